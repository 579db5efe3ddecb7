/* The floor, the trend and the rule on series whose answer is known. */
#include <math.h>
#include <string.h>

#include "ledger/rule.h"
#include "unit.h"

#define MIB (1024.0 * 1024)
#define KIB 1024.0

static void feed(struct pl_rule *r, uint64_t count, double from, double per_request) {
    for (uint64_t i = 0; i < count; i++) pl_rule_add(r, from + per_request * (double)i, 1);
}

TEST(the_floor_keeps_the_minimum_of_each_bucket) {
    struct pl_floor f = { 0 };
    for (int i = 0; i < 16; i++) pl_floor_add(&f, i % 8 == 3 ? 5 + i : 100, 1);
    assert_int_equal(f.count, 2);
    assert_true(f.at[0] == 8 && f.at[1] == 16);
    assert_int_equal(pl_floor_requests(&f), 16);
    assert_true(pl_floor_last(&f) == 16);
}

TEST(full_buckets_merge_and_the_width_doubles) {
    struct pl_floor f = { 0 };
    for (int i = 0; i < 64 * 8; i++) pl_floor_add(&f, 1000 - i, 1);
    assert_int_equal(f.count, 32);
    assert_int_equal(f.width, 16);
    assert_true(f.at[0] == 1000 - 15 && f.at[31] == 1000 - 511);
    for (int i = 0; i < 1000000; i++) pl_floor_add(&f, 7, 1);
    assert_in_range(f.count, 32, 63);
    assert_true(pl_floor_requests(&f) <= 1000512 && pl_floor_requests(&f) + f.width > 1000512);
}

TEST(a_sample_that_stands_for_many_requests_widens_the_buckets) {
    struct pl_floor f = { 0 };
    for (int i = 0; i < 30; i++) pl_floor_add(&f, i, 20);
    assert_int_equal(f.width, 32);
    assert_true(pl_floor_requests(&f) + f.filled == 600);
    for (uint32_t i = 1; i < f.count; i++) assert_true(f.at[i] > f.at[i - 1]); /* none is made up */
    pl_floor_add(&f, 99, 1ull << 62);
    assert_true(f.count < PL_FLOOR_BUCKETS);
    pl_floor_add(&f, 99, UINT64_MAX / 2);
    assert_true(f.count < PL_FLOOR_BUCKETS);
}

TEST(a_line_has_its_slope_and_narrow_bounds) {
    double v[40];
    struct pl_trend t;
    for (int i = 0; i < 40; i++) v[i] = 100 + 3 * i;
    pl_trend_of(v, 40, &t);
    assert_true(fabs(t.all.mid - 3) < 1e-9 && fabs(t.all.low - 3) < 1e-9 && fabs(t.all.high - 3) < 1e-9);
    assert_true(t.all.z > 5 && t.fall == 0 && t.wander < 1e-6);
    assert_true(fabs(t.rises - 39) < 1e-6);
}

/* Values of the textbook formula: S = 10, no ties, n = 5: var = 16.667, Z = 9 / 4.082. */
TEST(mann_kendall_agrees_with_the_formula) {
    const double rising[] = { 1, 2, 3, 4, 5 }, same[] = { 2, 2, 2, 2, 2, 2 }, tied[] = { 1, 1, 2, 2, 3, 3 };
    struct pl_trend t;
    pl_trend_of(rising, 5, &t);
    assert_true(fabs(t.all.z - 9 / sqrt(5.0 * 4 * 15 / 18)) < 1e-9);
    pl_trend_of(same, 6, &t);
    assert_true(t.all.z == 0 && t.all.mid == 0);
    pl_trend_of(tied, 6, &t); /* S = 12; three ties of two: var = (6*5*17 - 3*2*1*9) / 18 */
    assert_true(fabs(t.all.z - 11 / sqrt((6.0 * 5 * 17 - 3 * 2 * 9) / 18)) < 1e-9);
}

TEST(a_cycle_is_taken_out_and_the_line_stays) {
    double v[60];
    struct pl_trend t;
    for (int i = 0; i < 60; i++) v[i] = 5 * i + 200 * sin(2 * M_PI * i / 17.0);
    double amplitude = pl_trend_take_cycle(v, 60);
    assert_true(fabs(amplitude - 200) < 20);
    pl_trend_of(v, 60, &t);
    assert_true(fabs(t.all.mid - 5) < 0.5);
    for (int i = 0; i < 60; i++) v[i] = 300 * (1 - exp(-i / 10.0)); /* a plateau is no cycle */
    assert_true(pl_trend_take_cycle(v, 60) == 0);
}

TEST(a_leak_is_suspected_then_confirmed_with_its_rate) {
    struct pl_rule r = { 0 };
    feed(&r, 1000, 500 * MIB, 32 * KIB);
    assert_int_equal(r.state, PL_RULE_STABLE);
    feed(&r, 3000, 500 * MIB + 1000 * 32 * KIB, 32 * KIB);
    assert_int_equal(r.state, PL_RULE_CONFIRMED);
    assert_in_range(r.suspected_at, 1001, 1500);
    assert_in_range(r.confirmed_at, 2500, 3500);
    assert_true(fabs(r.slope - 32 * KIB) < KIB && r.low <= r.slope && r.slope <= r.high);
    assert_int_equal(r.shape, PL_SHAPE_LINE);
}

TEST(it_says_how_many_requests_are_missing) {
    struct pl_rule r = { 0 };
    assert_int_equal(pl_rule_missing(&r), 500);
    feed(&r, 499, MIB, 0);
    assert_int_equal(pl_rule_missing(&r), 1);
    assert_int_equal(r.state, PL_RULE_WARMING);
    feed(&r, 1, MIB, 0);
    assert_int_equal(pl_rule_missing(&r), 0);
    assert_int_equal(r.state, PL_RULE_STABLE);
    assert_int_equal(r.shape, PL_SHAPE_FLAT);
}

TEST(a_buffer_that_fills_up_is_taken_back_and_settles) {
    struct pl_rule r = { 0 };
    uint64_t after;
    feed(&r, 4000, 100 * MIB, 32 * KIB);          /* full at 125 MiB more */
    assert_int_equal(r.state, PL_RULE_CONFIRMED); /* nobody could know */
    feed(&r, 12000, 100 * MIB + 4000 * 32 * KIB, 0);
    assert_int_equal(r.state, PL_RULE_STABLE);
    assert_true(pl_rule_settled(&r, MIB, &after));
    assert_in_range(after, 3500, 4500);
}

TEST(a_small_buffer_settles_during_the_warm_up) {
    struct pl_rule r = { 0 };
    uint64_t after;
    for (int i = 0; i < 1000; i++) pl_rule_add(&r, 10 * MIB + 32 * KIB * (i < 100 ? i : 100), 1);
    assert_int_equal(r.state, PL_RULE_STABLE);
    assert_true(pl_rule_settled(&r, 16 * KIB, &after));
    assert_in_range(after, 88, 112);
    assert_false(pl_rule_settled(&r, 4 * MIB, &after));
}

TEST(what_never_grew_has_not_settled) {
    struct pl_rule r = { 0 };
    uint64_t after;
    feed(&r, 2000, 10 * MIB, 0);
    assert_false(pl_rule_settled(&r, 16 * KIB, &after));
}

TEST(a_step_is_a_step) {
    struct pl_rule r = { 0 };
    feed(&r, 2000, 100 * MIB, 0);
    feed(&r, 2000, 400 * MIB, 0);
    assert_int_equal(r.confirmed_at, 0);
    assert_int_equal(r.shape, PL_SHAPE_STEPS);
}

TEST(up_and_down_is_a_sawtooth) {
    struct pl_rule r = { 0 };
    for (int i = 0; i < 6000; i++) pl_rule_add(&r, 100 * MIB + (i * 997 % 2111) * 64 * KIB / 2, 1);
    assert_int_equal(r.state, PL_RULE_STABLE);
    struct pl_rule s = { 0 };
    for (int i = 0; i < 8000; i++) pl_rule_add(&s, 100 * MIB + (i % 1733) * 40 * KIB, 1);
    assert_int_equal(s.confirmed_at, 0);
    assert_true(s.shape == PL_SHAPE_SAWTOOTH || s.shape == PL_SHAPE_CYCLE);
}

TEST(a_slow_sine_is_a_cycle) {
    struct pl_rule r = { 0 };
    for (int i = 0; i < 12000; i++) pl_rule_add(&r, 500 * MIB + 100 * MIB * sin(2 * M_PI * i / 3000.0), 1);
    assert_int_equal(r.state, PL_RULE_STABLE);
    assert_int_equal(r.shape, PL_SHAPE_CYCLE);
}

/* A cache that fills ever more slowly is no leak, even when it is far from full. */
TEST(a_large_cache_that_slows_down_is_never_confirmed) {
    for (double tau = 1000; tau < 8000; tau += 700) {
        struct pl_rule r = { 0 };
        for (int i = 0; i < 12000; i++) pl_rule_add(&r, 2000 * MIB * (1 - exp(-i / tau)), 1);
        assert_int_equal(r.confirmed_at, 0);
    }
}

/* In the whole history it is a corner by then; and its rate is its own, not the mean since the start. */
TEST(a_leak_that_begins_after_a_long_life_is_found) {
    for (uint64_t calm = 3000; calm <= 3000000; calm *= 10) {
        struct pl_history h = { 0 };
        uint64_t i = 0, leaked = 0;
        for (; i < calm; i++) pl_history_add(&h, 100 * MIB, 1);
        assert_int_equal(pl_history_rule(&h)->state, PL_RULE_STABLE);
        while (pl_history_rule(&h)->state != PL_RULE_CONFIRMED && leaked < 40000)
            pl_history_add(&h, 100 * MIB + 51 * KIB * (double)++leaked, 1);
        const struct pl_rule *r = pl_history_rule(&h);
        assert_int_equal(r->state, PL_RULE_CONFIRMED);
        assert_true(leaked < PL_HISTORY_PART + 4000);
        assert_true(fabs(r->slope - 51 * KIB) < 6 * KIB);
        assert_true(pl_history_before(&h) + r->confirmed_at == calm + leaked);
    }
}

TEST(a_series_sampled_once_in_fifty_requests_is_judged_as_well) {
    struct pl_rule r = { 0 };
    for (int i = 0; i < 200; i++) pl_rule_add(&r, 300 * MIB + 50.0 * i * 32 * KIB, 50);
    assert_int_equal(r.state, PL_RULE_CONFIRMED);
    assert_true(fabs(r.slope - 32 * KIB) < 2 * KIB);
}

/* 2 KiB a request are 4 MiB after 2,000: too little for a server's noise, a leak in a test without any. */
TEST(in_a_steady_series_a_small_leak_is_one) {
    struct pl_rule usual = { 0 }, steady = { .least = 1 * MIB };
    feed(&usual, 6000, 100 * MIB, 2 * KIB);
    feed(&steady, 6000, 100 * MIB, 2 * KIB);
    assert_int_equal(usual.state, PL_RULE_STABLE);
    assert_int_equal(steady.state, PL_RULE_CONFIRMED);
    assert_true(fabs(steady.slope - 2 * KIB) < 1);
    struct pl_rule soon = { .least = 1 * MIB };
    feed(&soon, 6000, 100 * MIB, 32 * KIB);
    assert_int_equal(soon.confirmed_at, 2250);
    struct pl_rule buffer = { .least = 1 * MIB };
    feed(&buffer, 1000, 100 * MIB, 32 * KIB);
    feed(&buffer, 5000, 131.25 * MIB, 0);
    assert_int_equal(buffer.state, PL_RULE_STABLE);
}

RUN(cmocka_unit_test(in_a_steady_series_a_small_leak_is_one),
    cmocka_unit_test(the_floor_keeps_the_minimum_of_each_bucket),
    cmocka_unit_test(full_buckets_merge_and_the_width_doubles),
    cmocka_unit_test(a_sample_that_stands_for_many_requests_widens_the_buckets),
    cmocka_unit_test(a_line_has_its_slope_and_narrow_bounds),
    cmocka_unit_test(mann_kendall_agrees_with_the_formula),
    cmocka_unit_test(a_cycle_is_taken_out_and_the_line_stays),
    cmocka_unit_test(a_leak_is_suspected_then_confirmed_with_its_rate),
    cmocka_unit_test(it_says_how_many_requests_are_missing),
    cmocka_unit_test(a_buffer_that_fills_up_is_taken_back_and_settles),
    cmocka_unit_test(a_small_buffer_settles_during_the_warm_up),
    cmocka_unit_test(what_never_grew_has_not_settled), cmocka_unit_test(a_step_is_a_step),
    cmocka_unit_test(up_and_down_is_a_sawtooth), cmocka_unit_test(a_slow_sine_is_a_cycle),
    cmocka_unit_test(a_large_cache_that_slows_down_is_never_confirmed),
    cmocka_unit_test(a_leak_that_begins_after_a_long_life_is_found),
    cmocka_unit_test(a_series_sampled_once_in_fifty_requests_is_judged_as_well))
