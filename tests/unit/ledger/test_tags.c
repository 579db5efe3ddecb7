/* Who leaves memory behind: one by one and overlapping, many tags, inseparable ones. */
#include <stdlib.h>
#include <string.h>

#include "ledger/tags.h"
#include "unit.h"

#define KIB 1024.0
#define MIB (1024.0 * KIB)

static uint64_t seed;
static double uniform(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

static struct pl_tags *start(void) {
    struct pl_tags *t = malloc(sizeof *t);
    assert_non_null(t);
    pl_tags_start(t);
    seed = 42;
    return t;
}

/* A tag's requests leave `leak[tag]` behind; in flight: noise on top of the floor when they overlap. */
static void traffic(struct pl_tags *t, const double *leak, int tags, int requests, bool serial) {
    double floor = 100 * MIB;
    for (int i = 0; i < requests; i++) {
        int tag = (int)(uniform() * tags);
        floor += leak[tag];
        double flight = serial || uniform() < 0.3 ? 0 : uniform() * 40 * MIB;
        pl_tags_add(t, (uint16_t)(tag / 2), tag % 2 == 1, floor + flight, serial, leak[tag], 0);
    }
}

TEST(one_by_one_a_leak_belongs_to_its_tag_exactly) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    const double leak[] = { 0, 0, 0, 32 * KIB }; /* tag 1, failed */
    traffic(t, leak, 4, 2000, true);
    pl_tags_report(t, 8 * KIB, &r);
    assert_true(r.exact);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.of[0].name, 1);
    assert_true(r.of[0].failed && r.of[0].certain);
    assert_true(r.of[0].bytes_per_request == 32 * KIB && r.of[0].share == 1);
    assert_true(r.failed_share == 1);
    free(t);
}

TEST(overlapping_requests_are_told_apart_by_regression) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    const double leak[] = { 0, 0, 96 * KIB, 0, 0, 32 * KIB };
    traffic(t, leak, 6, 12000, false);
    pl_tags_report(t, 21 * KIB, &r);
    assert_false(r.exact);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.of[0].name, 1);
    assert_false(r.of[0].failed);
    assert_true(r.of[0].low < 96 * KIB && r.of[0].high > 96 * KIB && r.of[0].low > 0);
    assert_true(r.of[0].separable);
    assert_int_equal(r.of[1].name, 2);
    assert_true(r.of[1].failed);
    assert_true(r.of[0].share > 0.6 && r.of[0].share < 0.9);
    assert_true(r.failed_share > 0.1 && r.failed_share < 0.4);
    free(t);
}

TEST(nobody_is_blamed_when_nothing_stays) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    const double leak[20] = { 0 };
    traffic(t, leak, 20, 12000, false);
    pl_tags_report(t, 0, &r);
    assert_int_equal(r.count, 0);
    pl_tags_report(t, 200 * KIB, &r); /* nor when something else grows */
    assert_int_equal(r.count, 0);
    assert_true(r.failed_share == 0);
    free(t);
}

/* Every window of 16 holds 8 of each: no regression can tell them apart. */
TEST(tags_that_always_run_together_are_said_to_be_inseparable) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    double floor = 0;
    for (int i = 0; i < 16000; i++) {
        floor += i % 2 == 0 ? 64 * KIB : 0;
        pl_tags_add(t, (uint16_t)(i % 2), false, floor, false, 0, 0);
    }
    pl_tags_report(t, 32 * KIB, &r);
    assert_true(r.count >= 1);
    assert_false(r.of[0].separable);
    free(t);
}

TEST(ten_thousand_tags_take_no_more_room_and_the_rest_is_other) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    double floor = 0;
    for (int i = 0; i < 40000; i++) {
        floor += 8 * KIB;
        pl_tags_add(t, (uint16_t)(i % 10000), false, floor, true, 8 * KIB, 0);
    }
    assert_int_equal(t->count, PL_TAGS_MAX);
    assert_int_equal(t->tag[PL_TAGS_MAX].requests, 40000 - 4 * PL_TAGS_MAX);
    pl_tags_report(t, 8 * KIB, &r);
    assert_int_equal(r.of[0].name, PL_TAG_OTHER);
    assert_true(r.of[0].bytes_per_request == 8 * KIB);
    free(t);
}

TEST(the_same_ten_thousand_overlapping_are_bounded_too) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    double floor = 0;
    for (int i = 0; i < 40000; i++) {
        floor += 8 * KIB;
        pl_tags_add(t, (uint16_t)(i * 7919 % 10000), false, floor + uniform() * MIB, false, 0, 0);
    }
    assert_int_equal(t->fitted, PL_TAGS_FITTED);
    pl_tags_report(t, 8 * KIB, &r);
    assert_int_equal(r.of[0].name, PL_TAG_OTHER);
    free(t);
}

TEST(requests_that_tell_nothing_count_all_the_same) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    double floor = 0;
    for (int i = 0; i < 20000; i++) {
        bool leaks = uniform() < 0.5;
        floor += leaks ? 64 * KIB : 0;
        if (uniform() < 0.7)
            pl_tags_count(t, leaks, false);
        else
            pl_tags_add(t, leaks, false, floor, false, 0, 0);
    }
    pl_tags_report(t, 32 * KIB, &r);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.of[0].name, 1);
    assert_true(r.of[0].bytes_per_request > 63 * KIB && r.of[0].bytes_per_request < 65 * KIB);
    free(t);
}

TEST(a_gap_in_the_records_begins_a_new_window) {
    struct pl_tags *t = start();
    struct pl_tag_report r;
    double floor = 0;
    for (int i = 0; i < 4000; i++) {
        if (i % 100 == 0) { /* 1 GiB came from requests nobody saw */
            floor += 1024 * MIB;
            pl_tags_broken(t);
        }
        pl_tags_add(t, 0, false, floor, false, 0, 0);
    }
    pl_tags_report(t, 1, &r);
    assert_int_equal(r.count, 0);
    free(t);
}

RUN(cmocka_unit_test(one_by_one_a_leak_belongs_to_its_tag_exactly),
    cmocka_unit_test(overlapping_requests_are_told_apart_by_regression),
    cmocka_unit_test(nobody_is_blamed_when_nothing_stays),
    cmocka_unit_test(tags_that_always_run_together_are_said_to_be_inseparable),
    cmocka_unit_test(ten_thousand_tags_take_no_more_room_and_the_rest_is_other),
    cmocka_unit_test(the_same_ten_thousand_overlapping_are_bounded_too),
    cmocka_unit_test(requests_that_tell_nothing_count_all_the_same),
    cmocka_unit_test(a_gap_in_the_records_begins_a_new_window))
