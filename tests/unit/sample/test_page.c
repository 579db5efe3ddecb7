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

TEST(ends_are_taken_in_order_and_once) {
    struct pl_page_record r[8];
    uint64_t cursor = 0, lost = 0;
    open_new();
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 8, &lost), 0);
    for (uint64_t id = 1; id <= 5; id++) page_end(&m, id, PL_OUTCOME_OK, "");
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 3, &lost), 3);
    assert_int_equal(cursor, 3);
    assert_int_equal(r[2].id, 3);
    assert_int_equal(r[2].n, 2);
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 8, &lost), 2);
    assert_int_equal(r[0].id, 4);
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 8, &lost), 0);
    assert_int_equal(lost, 0);
}

TEST(an_end_carries_memory_and_what_it_was) {
    struct pl_page_record r[1];
    uint64_t cursor = 0, lost = 0;
    const uint32_t flags = PL_RECORD_MEMORY | PL_RECORD_ALONE | PL_RECORD_PEAK_EXACT | PL_RECORD_QUIESCENT;
    open_new();
    page_end_as(&m, (struct pl_page_end_record){ .flags = flags,
                                                 .id = 7,
                                                 .at_us = 100,
                                                 .duration_us = 40,
                                                 .thread = 5,
                                                 .in_flight = 6,
                                                 .route = 2,
                                                 .status = 500,
                                                 .outcome = PL_OUTCOME_ERROR,
                                                 .tag = 3,
                                                 .device = 1,
                                                 .batch = 16,
                                                 .error_class = "OutOfMemoryError",
                                                 .allocated_before = 1000,
                                                 .allocated = 1100,
                                                 .reserved = 2000,
                                                 .peak = 1900,
                                                 .input_bytes = 11,
                                                 .host_anon = 12,
                                                 .begun = 13 });
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 1, &lost), 1);
    assert_int_equal(r->flags, flags);
    assert_int_equal(r->at_us, 100);
    assert_int_equal(r->duration_us, 40);
    assert_int_equal(r->thread, 5);
    assert_int_equal(r->in_flight, 6);
    assert_int_equal(r->route, 2);
    assert_int_equal(r->status, 500);
    assert_int_equal(r->outcome, PL_OUTCOME_ERROR);
    assert_int_equal(r->tag, 3);
    assert_int_equal(r->device, 1);
    assert_int_equal(r->batch, 16);
    assert_string_equal(r->error_class, "OutOfMemoryError");
    assert_int_equal(r->allocated_before, 1000);
    assert_int_equal(r->allocated, 1100);
    assert_int_equal(r->reserved, 2000);
    assert_int_equal(r->peak, 1900);
    assert_int_equal(r->input_bytes, 11);
    assert_int_equal(r->host_anon, 12);
    assert_int_equal(r->begun, 13);
}

TEST(what_a_lap_took_is_counted_as_lost) {
    static struct pl_page_record r[PL_PAGE_RECORDS];
    uint64_t cursor = 0, lost = 0;
    open_new();
    for (uint64_t id = 1; id <= PL_PAGE_RECORDS + 10; id++) page_end(&m, id, PL_OUTCOME_OK, "");
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, PL_PAGE_RECORDS, &lost), PL_PAGE_RECORDS);
    assert_int_equal(r[0].id, 11);
    assert_int_equal(lost, 10);
}

TEST(a_damaged_end_is_lost_and_the_next_one_is_not) {
    struct pl_page_record r[4];
    uint64_t cursor = 0, lost = 0;
    open_new();
    for (uint64_t id = 1; id <= 3; id++) page_end(&m, id, PL_OUTCOME_OK, "");
    page_end_slot(&m, 1)->allocated ^= 1;
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 2);
    assert_int_equal(r[1].id, 3);
    assert_int_equal(lost, 1);
}

TEST(a_counter_that_went_backwards_is_taken_up_where_it_stands) {
    struct pl_page_record r[4];
    uint64_t cursor = 1000, lost = 0;
    open_new();
    page_end(&m, 1, PL_OUTCOME_OK, "");
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 0);
    assert_int_equal(cursor, 1);
    page_end(&m, 2, PL_OUTCOME_OK, "");
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 1);
    assert_int_equal(r->id, 2);
    page_counts(&m)->ended = UINT64_MAX; /* a jump to the end of numbers ends soon, too */
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 0);
    assert_true(cursor == UINT64_MAX);
}

TEST(clocks_that_jump_are_told_as_they_are) {
    struct pl_page_record r[3];
    uint64_t cursor = 0, lost = 0;
    const uint64_t times[] = { 5000000, 7, UINT64_MAX };
    open_new();
    for (int i = 0; i < 3; i++)
        page_end_as(&m, (struct pl_page_end_record){ .id = 1, .at_us = times[i], .duration_us = UINT64_MAX });
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 3, &lost), 3);
    for (int i = 0; i < 3; i++) assert_true(r[i].at_us == times[i] && r[i].duration_us == UINT64_MAX);
}

TEST(a_page_of_the_first_version_has_ends_and_no_memory) {
    struct pl_page_record r[4];
    struct pl_page_host_now host;
    struct pl_page_end e;
    char text[PL_PAGE_TAG_ROOM];
    uint64_t cursor = 0, lost = 0;
    page_write_head(&m);
    m.head.minor = 0;
    m.head.ends.stride = 128;
    m.head.devices = m.head.host = m.head.engine = m.head.tags = (struct pl_page_block){ 0 };
    page_sign_head(&m.head);
    for (uint64_t n = 0; n < 2; n++) {
        uint8_t *at = m.bytes + PL_PAGE_ENDS_AT + n * 128;
        struct pl_page_end_record *old = (struct pl_page_end_record *)(void *)at;
        old->seq = 2 * n + 2;
        old->id = 10 + n;
        old->crc = pl_crc32(at + 4, 124);
    }
    page_counts(&m)->ended = 2;
    assert_true(pl_page_open(&p, &m, sizeof m, &err));
    assert_int_equal(pl_page_ended(&p, 11, 0, &e), PL_SEEN_YES);
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 4, &lost), 2);
    assert_int_equal(r[0].id, 10);
    assert_int_equal(r[0].tag, PL_NO_TAG);
    assert_int_equal(r[0].input_bytes, 0); /* the next record's bytes are not this one's */
    assert_int_equal(r[0].begun, 0);
    assert_int_equal(pl_page_devices(&p), 0);
    assert_false(pl_page_host(&p, &host));
    assert_false(pl_page_tag(&p, 0, text));
}

TEST(devices_host_and_engine_are_read_once_they_were_sampled) {
    struct pl_page_device_now d;
    struct pl_page_host_now host;
    struct pl_page_engine_now engine;
    open_new();
    assert_int_equal(pl_page_devices(&p), PL_PAGE_DEVICES);
    assert_false(pl_page_device(&p, 3, &d));
    assert_false(pl_page_device(&p, PL_PAGE_DEVICES, &d));
    assert_false(pl_page_host(&p, &host));
    assert_false(pl_page_engine(&p, &engine));
    *page_device(&m, 3) = (struct pl_page_device){ 3, 0, 9, 10, 11, 12, 13, 14, 15, 16, 17, "GPU-ab", { 0 } };
    *page_host(&m) = (struct pl_page_host){ 1, 2, 3, 4, 5, 6, 7, { 0 } };
    *page_engine(&m) = (struct pl_page_engine){ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, { 15, 16 } };
    assert_true(pl_page_device(&p, 3, &d));
    const struct pl_page_device_now wanted = { .index = 3,
                                               .sampled_us = 9,
                                               .allocated = 10,
                                               .reserved = 11,
                                               .active = 12,
                                               .peak = 13,
                                               .inactive_split = 14,
                                               .retries = 15,
                                               .ooms = 16,
                                               .total = 17,
                                               .uuid = "GPU-ab" };
    assert_memory_equal(&d.sampled_us, &wanted.sampled_us,
                        offsetof(struct pl_page_device_now, uuid) -
                            offsetof(struct pl_page_device_now, sampled_us));
    assert_int_equal(d.index, 3);
    assert_string_equal(d.uuid, "GPU-ab");
    assert_true(pl_page_host(&p, &host));
    const struct pl_page_host_now host_wanted = { 1, 2, 3, 4, 5, 6, 7 };
    assert_memory_equal(&host, &host_wanted, sizeof host);
    assert_true(pl_page_engine(&p, &engine));
    const struct pl_page_engine_now engine_wanted = { 1, 2,  3,  4,  5,  6,  7,         8,
                                                      9, 10, 11, 12, 13, 14, { 15, 16 } };
    assert_memory_equal(&engine, &engine_wanted, sizeof engine);
    memset(page_device(&m, 3)->uuid, 'x', sizeof page_device(&m, 3)->uuid);
    page_device(&m, 3)->uuid[5] = '\n';
    assert_true(pl_page_device(&p, 3, &d));
    assert_string_equal(d.uuid, "xxxxx");
}

TEST(a_tag_is_text_that_can_be_shown_anywhere) {
    char text[PL_PAGE_TAG_ROOM], longest[PL_PAGE_TAG_TEXT + 1] = { 0 };
    open_new();
    assert_false(pl_page_tag(&p, 1, text));
    page_write_tag(&m, 1,
                   "Toy /pr\xc3\xa9"
                   "dict f32[2]");
    assert_true(pl_page_tag(&p, 1, text));
    assert_string_equal(text, "Toy /pr\xc3\xa9"
                              "dict f32[2]");
    page_write_tag(&m, 2, "a\n\x1b\x7f\xc2\x9b\xff\xe2\x82");
    assert_true(pl_page_tag(&p, 2, text));
    assert_string_equal(text, "a????????");
    memset(longest, 'y', PL_PAGE_TAG_TEXT);
    page_write_tag(&m, 255, longest);
    assert_true(pl_page_tag(&p, 255, text));
    assert_string_equal(text, longest);
    page_tag(&m, 255)->text[3] = 'z';
    assert_false(pl_page_tag(&p, 255, text));
    assert_string_equal(text, "");
    assert_false(pl_page_tag(&p, 256, text));
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
    cmocka_unit_test(memory_taken_away_is_no_page), cmocka_unit_test(ends_are_taken_in_order_and_once),
    cmocka_unit_test(an_end_carries_memory_and_what_it_was),
    cmocka_unit_test(what_a_lap_took_is_counted_as_lost),
    cmocka_unit_test(a_damaged_end_is_lost_and_the_next_one_is_not),
    cmocka_unit_test(a_counter_that_went_backwards_is_taken_up_where_it_stands),
    cmocka_unit_test(clocks_that_jump_are_told_as_they_are),
    cmocka_unit_test(a_page_of_the_first_version_has_ends_and_no_memory),
    cmocka_unit_test(devices_host_and_engine_are_read_once_they_were_sampled),
    cmocka_unit_test(a_tag_is_text_that_can_be_shown_anywhere))
