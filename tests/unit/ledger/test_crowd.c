/* Does a worker leave room for one more request, will it when its successor is there, and would that one? */
#include "ledger/crowd.h"
#include "unit.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

static const uint64_t never = UINT64_MAX;

/* A card of 8 GiB with a worker of 1 GiB that has leaked 5; requests of 256 MiB; a replacement takes 5 s. */
static struct pl_crowd_case leaky(void) {
    return (struct pl_crowd_case){ .left = 2 * GIB,
                                   .unused = never,
                                   .margin = 1228 * MIB,
                                   .request = 256 * MIB,
                                   .held = 6 * GIB,
                                   .fresh = GIB,
                                   .beside = GIB,
                                   .replace_ms = 5000,
                                   .lived_ms = never };
}

static const char *judged(const struct pl_crowd_case *c, uint64_t *end_ms) {
    return pl_crowd_name(pl_crowd_judge(c, end_ms));
}

static void is(const struct pl_crowd_case *c, const char *word) {
    uint64_t end_ms;
    assert_string_equal(judged(c, &end_ms), word);
}

TEST(without_growth_it_goes_when_there_is_no_room_and_not_before) {
    struct pl_crowd_case c = leaky();
    is(&c, "room");
    c.left = 512 * MIB - 1; /* half of it is margin: one does not fit any more, but it runs alone */
    is(&c, "room");
    c.left = 256 * MIB;
    is(&c, "room");
    c.left--;
    is(&c, "full");
    c.margin = 0;
    is(&c, "full");
    c.left = 0;
    is(&c, "full");
}

TEST(it_goes_in_time_for_its_successor) {
    struct pl_crowd_case c = leaky();
    uint64_t end_ms;
    c.sure = true;
    c.per_ms = 60.0 * MIB / 1000; /* 300 MiB in the time of a replacement; beside it the successor, 1 GiB */
    c.left = 512 * MIB + GIB + 301 * MIB;
    assert_string_equal(judged(&c, &end_ms), "room");
    assert_in_range(end_ms, 22083, 22084);
    c.left -= 2 * MIB;
    is(&c, "soon");
    c.beside = 0; /* a handover: it comes after the old one */
    is(&c, "room");
    c.left = 512 * MIB + 299 * MIB;
    is(&c, "soon");
    c.left = 512 * MIB;
    assert_string_equal(judged(&c, &end_ms), "soon");
    assert_int_equal(end_ms, 1);
    c.left--;
    assert_string_equal(judged(&c, &end_ms), "soon");
    assert_int_equal(end_ms, 0);
    c.left = 256 * MIB - 1;
    is(&c, "full");
}

/* Its requests' memory stays with the old worker: no other process gets it. */
TEST(it_goes_while_its_successor_still_fits_into_what_nobody_uses) {
    struct pl_crowd_case c = leaky();
    c.per_ms = 60.0 * MIB / 1000;
    c.left = 512 * MIB + GIB + 301 * MIB; /* a minute to the end: four replacements and a half */
    c.unused = GIB + GIB / 10 + 256 * MIB + 301 * MIB;
    is(&c, "room");
    c.unused -= 2 * MIB;
    is(&c, "soon");
    c.unused -= 300 * MIB; /* too late for that: a handover, which has time */
    is(&c, "room");
    c.unused += 300 * MIB;
    c.per_ms = 0;
    is(&c, "room");
    c.per_ms = 60.0 * MIB / 1000;
    c.beside = 0; /* as configured, or the host has no room: it needs none of it */
    is(&c, "room");
    c.beside = GIB;
    c.left = 512 * MIB + 6001 * MIB; /* 20 replacements to the end */
    is(&c, "room");
    c.left -= 2 * MIB;
    is(&c, "soon");
    c.believed = true;
    is(&c, "room");
}

TEST(what_never_fits_beside_a_new_worker_does_not_count) {
    struct pl_crowd_case c = leaky();
    c.per_ms = 60.0 * MIB / 1000;
    c.beside = 7 * GIB;
    c.left = 512 * MIB + 301 * MIB;
    is(&c, "room");
    c.left -= 2 * MIB;
    is(&c, "soon");
}

TEST(a_growth_that_needs_long_may_come_to_rest_before) {
    struct pl_crowd_case c = leaky();
    uint64_t end_ms;
    c.sure = true;
    c.left = 512 * MIB + GIB; /* so long as it does not grow there is room, without a successor */
    c.per_ms = (double)GIB / 101000;
    assert_string_equal(judged(&c, &end_ms), "room");
    assert_in_range(end_ms, 100999, 101001);
    c.per_ms = (double)GIB / 99000;
    is(&c, "soon");
    c.sure = false; /* not twenty replacements, but three */
    is(&c, "room");
    c.per_ms = (double)GIB / 15100;
    is(&c, "room");
    c.per_ms = (double)GIB / 14900;
    is(&c, "soon");
}

TEST(growth_is_believed_once_until_one_has_not_come_to_rest) {
    struct pl_crowd_case c = leaky();
    c.left = 512 * MIB + 10 * MIB;
    c.per_ms = 60.0 * MIB / 1000;
    is(&c, "soon");
    c.believed = true;
    is(&c, "room");
    c.sure = true;
    is(&c, "soon");
    c.sure = false;
    c.left = 256 * MIB - 1;
    is(&c, "full");
}

TEST(a_worker_that_needs_it_all_from_the_start_is_not_replaced) {
    struct pl_crowd_case c = leaky();
    c.left = 512 * MIB;
    c.fresh = c.held;
    is(&c, "room");
    c.left--; /* requests run alone, out of the margin: said, too */
    is(&c, "large");
    c.left = 100 * MIB;
    is(&c, "large");
    c.fresh = c.held - 23 * MIB; /* that is no growth */
    is(&c, "large");
    c.fresh = c.held - 300 * MIB; /* what a new one leaves is not enough either: 400 of 512 */
    is(&c, "large");
    c.fresh = c.held - 412 * MIB;
    is(&c, "full");
    c.fresh = c.held + GIB; /* less than at the start: so be it */
    is(&c, "large");
}

TEST(growth_that_a_new_worker_would_not_undo_is_no_reason_while_there_is_room) {
    struct pl_crowd_case c = leaky();
    c.left = 600 * MIB;
    c.per_ms = 1.0 * MIB;
    c.fresh = c.held;
    is(&c, "room");
}

TEST(a_successor_that_is_soon_as_full_is_the_last) {
    struct pl_crowd_case c = leaky();
    c.left = 100 * MIB;
    c.lived_ms = 14999; /* three replacements are 15 s */
    is(&c, "again");
    c.lived_ms = 15000;
    is(&c, "full");
    c.left = 2 * GIB;
    c.lived_ms = 0;
    is(&c, "room");
    c.per_ms = 1.0 * MIB;
    is(&c, "again"); /* it would be, soon */
}

TEST(without_a_request_to_go_by_nothing_is_said) {
    struct pl_crowd_case c = leaky();
    uint64_t end_ms;
    c.request = c.left = 0;
    assert_string_equal(judged(&c, &end_ms), "room");
    assert_true(end_ms == never);
}

TEST(figures_that_are_out_of_all_proportion_do_no_harm) {
    struct pl_crowd_case c = leaky();
    uint64_t end_ms;
    c.request = 1ull << 50;
    is(&c, "large");
    c = leaky();
    c.per_ms = 1e-300;
    assert_string_equal(judged(&c, &end_ms), "room");
    assert_true(end_ms == never);
    c.per_ms = 1e300;
    assert_string_equal(judged(&c, &end_ms), "soon");
}

/* --- how fast it rises */

TEST(a_line_has_its_rate_after_three_marks) {
    struct pl_rise r = { 0 };
    for (uint64_t t = 0; t < 12; t++) {
        pl_rise_add(&r, t * 60 * MIB, 5000, 1000 + t * 1000);
        if (t < 10) assert_true(pl_rise_per_ms(&r) == 0);
    }
    assert_true(pl_rise_per_ms(&r) == 60.0 * MIB / 1000);
}

TEST(a_step_is_no_rise_and_neither_is_a_fall) {
    struct pl_rise r = { 0 };
    for (uint64_t t = 0; t < 100; t++) {
        pl_rise_add(&r, t < 50 ? GIB : 3 * GIB, 5000, 1000 + t * 1000);
        assert_true(pl_rise_per_ms(&r) == 0);
    }
    for (uint64_t t = 100; t < 120; t++) {
        pl_rise_add(&r, 3 * GIB - t * MIB, 5000, 1000 + t * 1000);
        assert_true(pl_rise_per_ms(&r) == 0);
    }
}

TEST(growth_that_has_come_to_rest_is_known_to_within_a_mark) {
    struct pl_rise r = { 0 };
    uint64_t t = 0;
    for (; t < 30; t++) pl_rise_add(&r, t * MIB, 5000, 1000 + t * 1000);
    assert_true(pl_rise_per_ms(&r) > 0);
    for (; t < 41; t++) pl_rise_add(&r, 29 * MIB, 5000, 1000 + t * 1000);
    assert_true(pl_rise_per_ms(&r) == 0);
}

TEST(a_replacement_takes_a_boot_and_a_half_and_the_time_of_news) {
    assert_int_equal(pl_crowd_replace_ms(1200), 4800);
    assert_int_equal(pl_crowd_replace_ms(60000), 93000);
    assert_int_equal(pl_crowd_replace_ms(0), 93000);
}

RUN(cmocka_unit_test(without_growth_it_goes_when_there_is_no_room_and_not_before),
    cmocka_unit_test(it_goes_in_time_for_its_successor),
    cmocka_unit_test(it_goes_while_its_successor_still_fits_into_what_nobody_uses),
    cmocka_unit_test(what_never_fits_beside_a_new_worker_does_not_count),
    cmocka_unit_test(a_growth_that_needs_long_may_come_to_rest_before),
    cmocka_unit_test(growth_is_believed_once_until_one_has_not_come_to_rest),
    cmocka_unit_test(a_worker_that_needs_it_all_from_the_start_is_not_replaced),
    cmocka_unit_test(growth_that_a_new_worker_would_not_undo_is_no_reason_while_there_is_room),
    cmocka_unit_test(a_successor_that_is_soon_as_full_is_the_last),
    cmocka_unit_test(without_a_request_to_go_by_nothing_is_said),
    cmocka_unit_test(figures_that_are_out_of_all_proportion_do_no_harm),
    cmocka_unit_test(a_line_has_its_rate_after_three_marks),
    cmocka_unit_test(a_step_is_no_rise_and_neither_is_a_fall),
    cmocka_unit_test(growth_that_has_come_to_rest_is_known_to_within_a_mark),
    cmocka_unit_test(a_replacement_takes_a_boot_and_a_half_and_the_time_of_news))
