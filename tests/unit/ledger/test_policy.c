/* Alarm, forecast news, empty_cache and the reasons to replace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/policy.h"
#include "unit.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

TEST(the_alarm_is_raised_once_and_settles_below_its_mark) {
    struct pl_alarm a = { 0 };
    assert_int_equal(pl_alarm_look(&a, 89, 100, 9000), PL_ALARM_NOTHING);
    assert_int_equal(pl_alarm_look(&a, 90, 100, 9000), PL_ALARM_RAISED);
    assert_int_equal(pl_alarm_look(&a, 99, 100, 9000), PL_ALARM_NOTHING);
    assert_int_equal(pl_alarm_look(&a, 86, 100, 9000), PL_ALARM_NOTHING);
    assert_int_equal(pl_alarm_look(&a, 84, 100, 9000), PL_ALARM_SETTLED);
    assert_int_equal(pl_alarm_look(&a, 84, 100, 9000), PL_ALARM_NOTHING);
    assert_int_equal(pl_alarm_look(&a, 84, 0, 9000), PL_ALARM_NOTHING); /* no limit is known */
}

TEST(a_forecast_is_news_when_there_is_one_and_each_time_it_halves) {
    struct pl_forecast_told t = { 0 };
    struct pl_forecast f = { .is = true, .seconds = 1000 };
    assert_true(pl_forecast_is_news(&t, &f));
    f.seconds = 600;
    assert_false(pl_forecast_is_news(&t, &f));
    f.seconds = 499;
    assert_true(pl_forecast_is_news(&t, &f));
    f.seconds = 2000;
    assert_false(pl_forecast_is_news(&t, &f));
    f.is = false;
    assert_false(pl_forecast_is_news(&t, &f));
    f = (struct pl_forecast){ .is = true, .seconds = 2000 };
    assert_true(pl_forecast_is_news(&t, &f));
    f.seconds = HUGE_VAL;
    assert_false(pl_forecast_is_news(&t, &f));
}

static struct pl_ledger *device(uint64_t total, uint64_t reserved, uint64_t allocated) {
    struct pl_ledger *l = calloc(1, sizeof *l);
    assert_non_null(l);
    pl_ledger_start(l);
    l->gpu[0].seen = true;
    l->gpu[0].total = total;
    l->gpu[0].reserved = reserved;
    l->gpu[0].after = allocated;
    return l;
}

TEST(empty_cache_is_never_asked_for_without_its_key) {
    struct pl_ledger *l = device(GIB, GIB, 0);
    struct pl_empty e = { 0 };
    const struct pl_empty_rule none = { .reserved_over = -1 };
    l->requests = 1000000;
    assert_false(pl_empty_wanted(&e, &none, l, 0, 1000));
    free(l);
}

TEST(empty_cache_is_asked_for_at_its_mark_and_only_when_it_can_help) {
    const struct pl_empty_rule rule = { .reserved_over = 8500, .min_interval_ms = 60000 };
    struct pl_ledger *l = device(1000 * MIB, 849 * MIB, 200 * MIB);
    struct pl_empty e = { 0 };
    assert_false(pl_empty_wanted(&e, &rule, l, 0, 1000));
    l->gpu[0].reserved = 850 * MIB;
    assert_true(pl_empty_wanted(&e, &rule, l, 0, 1000));
    assert_int_equal(e.expected, 650 * MIB);
    assert_false(pl_empty_wanted(&e, &rule, l, 0, 200000)); /* one is under way */
    pl_empty_done(&e, 600 * MIB);
    assert_false(pl_empty_wanted(&e, &rule, l, 0, 60999)); /* min_interval */
    assert_true(pl_empty_wanted(&e, &rule, l, 0, 61000));
    free(l);
    struct pl_empty leaking = { 0 };
    l = device(1000 * MIB, 900 * MIB, 880 * MIB); /* a leak: live tensors, nothing to give back */
    assert_false(pl_empty_wanted(&leaking, &rule, l, 0, 1000));
    l->gpu[0].after = 300 * MIB;
    l->gpu[0].inactive_split = 590 * MIB; /* pieces of blocks in use */
    assert_false(pl_empty_wanted(&leaking, &rule, l, 0, 1000));
    free(l);
}

TEST(empty_cache_that_gives_nothing_back_is_asked_for_ever_more_rarely) {
    const struct pl_empty_rule rule = { .reserved_over = 5000, .min_interval_ms = 1000 };
    struct pl_ledger *l = device(1000 * MIB, 900 * MIB, 200 * MIB);
    struct pl_empty e = { 0 };
    uint64_t now = 1000, calls = 0;
    for (; now < 1000 * 1000; now += 500) {
        if (!pl_empty_wanted(&e, &rule, l, 0, now)) continue;
        calls++;
        pl_empty_done(&e, MIB);
    }
    assert_in_range(calls, 7, 7 + 1000 / 64 + 1);
    free(l);
}

TEST(empty_cache_by_count_of_requests) {
    const struct pl_empty_rule rule = { .reserved_over = -1, .every_requests = 100 };
    struct pl_ledger *l = device(0, 900 * MIB, 200 * MIB);
    struct pl_empty e = { 0 };
    l->requests = 99;
    assert_false(pl_empty_wanted(&e, &rule, l, 0, 1000));
    l->requests = 100;
    assert_true(pl_empty_wanted(&e, &rule, l, 0, 1000));
    pl_empty_done(&e, 700 * MIB);
    l->requests = 199;
    assert_false(pl_empty_wanted(&e, &rule, l, 0, 2000));
    l->requests = 200;
    assert_true(pl_empty_wanted(&e, &rule, l, 0, 2000));
    free(l);
}

static struct pl_ledger_verdict leak(double rate) {
    return (struct pl_ledger_verdict){ .word = PL_VERDICT_LEAK,
                                       .confirmed = true,
                                       .bytes_per_request = rate,
                                       .low = rate * 0.99,
                                       .high = rate * 1.01 };
}

TEST(a_leak_that_comes_back_at_the_same_rate_is_counted) {
    struct pl_again a = { 0 };
    struct pl_ledger_verdict first = leak(32768), same = leak(31000), other = leak(90000);
    assert_int_equal(pl_again_seen(&a, &first, 10), 0);
    pl_again_replaced(&a, &first, 10, 1000);
    assert_int_equal(pl_again_seen(&a, &same, 1000), 1);
    assert_int_equal(pl_again_seen(&a, &other, 1000), 0);
    assert_int_equal(pl_again_seen(&a, &same, 10), 0); /* a twin of the old one: no proof of anything */
    pl_again_replaced(&a, &same, 1000, 2000);
    assert_int_equal(pl_again_seen(&a, &first, 2000), 2);
    pl_again_replaced(&a, &first, 1500, 2500); /* a twin keeps the count */
    assert_int_equal(pl_again_seen(&a, &first, 3000), 2);
    pl_again_replaced(&a, &other, 3000, 4000);
    assert_int_equal(pl_again_seen(&a, &other, 4000), 1);
}

TEST(a_verdict_is_a_reason_once_and_a_near_end_always) {
    struct pl_ledger_verdict v = leak(32768);
    struct pl_forecast f = { .is = true, .seconds = 1000, .low_s = 900, .high_s = 1200 };
    struct pl_reasons_case c = { .verdict = &v, .forecast = &f, .boot_ms = 10000 };
    struct pl_reasons r = pl_reasons_of(&c);
    assert_true(r.leak);
    assert_false(r.forecast);
    assert_int_equal(r.forecast_ms, 900000);
    c.again = 1; /* the next one would leak as well */
    r = pl_reasons_of(&c);
    assert_false(r.leak);
    f.low_s = 29;
    r = pl_reasons_of(&c);
    assert_false(r.leak);
    assert_true(r.forecast);
    v.word = PL_VERDICT_GROWING; /* a cache that will hit the limit must go too */
    v.confirmed = false;
    c.again = 0;
    r = pl_reasons_of(&c);
    assert_false(r.leak);
    assert_true(r.forecast);
    f.is = false;
    r = pl_reasons_of(&c);
    assert_false(r.forecast);
    assert_true(r.forecast_ms == UINT64_MAX);
}

RUN(cmocka_unit_test(the_alarm_is_raised_once_and_settles_below_its_mark),
    cmocka_unit_test(a_forecast_is_news_when_there_is_one_and_each_time_it_halves),
    cmocka_unit_test(empty_cache_is_never_asked_for_without_its_key),
    cmocka_unit_test(empty_cache_is_asked_for_at_its_mark_and_only_when_it_can_help),
    cmocka_unit_test(empty_cache_that_gives_nothing_back_is_asked_for_ever_more_rarely),
    cmocka_unit_test(empty_cache_by_count_of_requests),
    cmocka_unit_test(a_leak_that_comes_back_at_the_same_rate_is_counted),
    cmocka_unit_test(a_verdict_is_a_reason_once_and_a_near_end_always))
