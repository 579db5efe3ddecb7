/* A page as a worker writes it: what was seen, what was not, and when nobody can tell. */
#include "sample/page.h"

#include "page_writer.h"
#include "unit.h"

static union page_memory m;
static struct pl_page p;
static struct pl_err err;

static void open_new(void) {
    page_write_head(&m);
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    assert_true(p.open);
}

TEST(zeros_are_not_yet_and_the_header_is_understood_when_it_comes) {
    struct pl_page_counters c;
    memset(&m, 0, sizeof m);
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    assert_false(p.open);
    assert_false(pl_page_counters(&p, &c));
    assert_int_equal(pl_page_began(&p, 7, 0), PL_SEEN_UNKNOWN);
    page_write_head(&m);
    page_begin(&m, 7);
    assert_true(pl_page_counters(&p, &c));
    assert_int_equal(c.begun, 1);
    assert_int_equal(pl_page_began(&p, 7, 0), PL_SEEN_YES);
}

TEST(no_page_answers_unknown) {
    struct pl_page_counters c;
    assert_true(pl_page_open(&p, NULL, 0, &err));
    assert_false(pl_page_counters(&p, &c));
    assert_int_equal(pl_page_began(&p, 7, 0), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_ended(&p, 7, 0, NULL), PL_SEEN_UNKNOWN);
}

TEST(counters_are_read_and_clamped) {
    struct pl_page_counters c;
    open_new();
    *page_counts(&m) = (struct pl_page_counts){ .progress = 9,
                                                .begun = 5,
                                                .ended = 3,
                                                .in_flight = 2,
                                                .zombies = 1,
                                                .tasks = UINT64_MAX,
                                                .errors = 4,
                                                .imported_ms = 10,
                                                .loaded_ms = 20,
                                                .serving_ms = 30,
                                                .features = 3 };
    assert_true(pl_page_counters(&p, &c));
    assert_int_equal(c.progress, 9);
    assert_int_equal(c.begun, 5);
    assert_int_equal(c.ended, 3);
    assert_int_equal(c.in_flight, 2);
    assert_int_equal(c.zombies, 1);
    assert_int_equal(c.tasks, UINT32_MAX);
    assert_int_equal(c.errors, 4);
    assert_int_equal(c.imported_ms, 10);
    assert_int_equal(c.loaded_ms, 20);
    assert_int_equal(c.serving_ms, 30);
    assert_int_equal(c.features, 3);
}

TEST(a_begun_request_is_seen_and_another_is_not) {
    open_new();
    page_begin(&m, 1);
    page_begin(&m, 2);
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_YES);
    assert_int_equal(pl_page_began(&p, 2, 1), PL_SEEN_YES);
    assert_int_equal(pl_page_began(&p, 3, 2), PL_SEEN_NO);
    assert_int_equal(pl_page_began(&p, 1, 1), PL_SEEN_NO); /* an older one is not this one */
    assert_int_equal(pl_page_ended(&p, 1, 0, NULL), PL_SEEN_NO);
}

TEST(an_end_tells_duration_outcome_and_class) {
    struct pl_page_end e;
    open_new();
    page_begin(&m, 1);
    page_end(&m, 1, PL_OUTCOME_ERROR, "OutOfMemoryError");
    page_end(&m, 2, PL_OUTCOME_CLIENT_ERROR, "ANameOfThirtyTwoBytesHasNoNulInIt");
    assert_int_equal(pl_page_ended(&p, 1, 0, &e), PL_SEEN_YES);
    assert_int_equal(e.id, 1);
    assert_int_equal(e.duration_us, 1500);
    assert_int_equal(e.outcome, PL_OUTCOME_ERROR);
    assert_string_equal(e.error_class, "OutOfMemoryError");
    assert_int_equal(pl_page_ended(&p, 2, 0, &e), PL_SEEN_YES);
    assert_int_equal(strlen(e.error_class), 32);
}

TEST(id_zero_is_nobody) {
    open_new();
    page_begin(&m, 0);
    assert_int_equal(pl_page_began(&p, 0, 0), PL_SEEN_UNKNOWN);
}

TEST(without_the_records_feature_absence_proves_nothing) {
    open_new();
    page_counts(&m)->features = PL_PAGE_F_DEADLINE;
    assert_int_equal(pl_page_began(&p, 3, 0), PL_SEEN_UNKNOWN);
}

TEST(a_lapped_ring_still_finds_but_no_longer_denies) {
    open_new();
    for (uint64_t id = 1; id <= PL_PAGE_RECORDS - 1; id++) page_begin(&m, id);
    assert_int_equal(pl_page_began(&p, 99999, 0), PL_SEEN_NO);
    page_begin(&m, PL_PAGE_RECORDS); /* the next one may be on its way over number 0 */
    assert_int_equal(pl_page_began(&p, 99999, 0), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_began(&p, 99999, 1), PL_SEEN_NO);
    for (uint64_t id = 1; id <= 3 * PL_PAGE_RECORDS; id++) page_begin(&m, 10000 + id);
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_began(&p, 10000 + 3 * PL_PAGE_RECORDS, 0), PL_SEEN_YES);
    assert_int_equal(pl_page_began(&p, 99999, page_counts(&m)->begun), PL_SEEN_NO);
}

TEST(a_counter_that_went_backwards_denies_nothing) {
    open_new();
    page_begin(&m, 1);
    assert_int_equal(pl_page_began(&p, 5, 2), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_began(&p, 5, UINT64_MAX), PL_SEEN_UNKNOWN);
    page_counts(&m)->begun = UINT64_MAX;
    assert_int_equal(pl_page_began(&p, 5, 0), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_began(&p, 5, UINT64_MAX - 3), PL_SEEN_UNKNOWN);
}

TEST(a_complete_record_counts_before_its_counter_does) {
    open_new();
    page_begin(&m, 1);
    page_fill_begin(&m, 1, 2); /* the worker died between the record and the counter */
    assert_int_equal(pl_page_began(&p, 2, 1), PL_SEEN_YES);
}

TEST(a_record_being_written_at_death_never_began) {
    open_new();
    page_begin(&m, 1);
    page_fill_begin(&m, 1, 2);
    page_begin_slot(&m, 1)->seq = 3;
    assert_int_equal(pl_page_began(&p, 2, 1), PL_SEEN_NO);
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_YES);
}

TEST(a_torn_record_that_was_published_denies_nothing) {
    open_new();
    for (uint64_t id = 1; id <= 3; id++) page_begin(&m, id);
    page_begin_slot(&m, 1)->id ^= 4;
    assert_int_equal(pl_page_began(&p, 77, 0), PL_SEEN_UNKNOWN);
    assert_int_equal(pl_page_began(&p, 77, 2), PL_SEEN_NO); /* it is not among those that count */
    assert_int_equal(pl_page_began(&p, 3, 0), PL_SEEN_YES);
}

TEST(every_damaged_byte_of_a_record_is_noticed) {
    for (size_t i = 0; i < sizeof(struct pl_page_end_record); i++) {
        open_new();
        page_end(&m, 5, PL_OUTCOME_OK, "");
        ((uint8_t *)page_end_slot(&m, 0))[i] ^= 0x10;
        assert_int_not_equal(pl_page_ended(&p, 5, 0, NULL), PL_SEEN_YES);
    }
}

TEST(memory_taken_away_is_no_page) {
    struct pl_page_counters c;
    open_new();
    memset(&m, 0, 4096); /* a hole of one memory page */
    assert_false(pl_page_counters(&p, &c));
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_UNKNOWN);
    open_new();
    page_begin(&m, 1);
    memset(m.bytes + PL_PAGE_BEGINS_AT, 0, 4096);
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_UNKNOWN);
}

RUN(cmocka_unit_test(zeros_are_not_yet_and_the_header_is_understood_when_it_comes),
    cmocka_unit_test(no_page_answers_unknown), cmocka_unit_test(counters_are_read_and_clamped),
    cmocka_unit_test(a_begun_request_is_seen_and_another_is_not),
    cmocka_unit_test(an_end_tells_duration_outcome_and_class), cmocka_unit_test(id_zero_is_nobody),
    cmocka_unit_test(without_the_records_feature_absence_proves_nothing),
    cmocka_unit_test(a_lapped_ring_still_finds_but_no_longer_denies),
    cmocka_unit_test(a_counter_that_went_backwards_denies_nothing),
    cmocka_unit_test(a_complete_record_counts_before_its_counter_does),
    cmocka_unit_test(a_record_being_written_at_death_never_began),
    cmocka_unit_test(a_torn_record_that_was_published_denies_nothing),
    cmocka_unit_test(every_damaged_byte_of_a_record_is_noticed),
    cmocka_unit_test(memory_taken_away_is_no_page))
