#include "worker/replace.h"

#include <string.h>

#include "unit.h"

/* Nothing stands in the way of it. */
static struct pl_replace_case open_case(enum pl_replace_reason r, enum pl_cfg_mode mode) {
    return (struct pl_replace_case){ .reason = r,
                                     .mode = mode,
                                     .way = PL_REPLACE_OVERLAP,
                                     .hold_ms = 45000,
                                     .boot_ms = 30000,
                                     .forecast_ms = UINT64_MAX,
                                     .max_per_hour = 4 };
}

static enum pl_replace_verdict judge(const struct pl_replace_case *c) {
    enum pl_replace_held why;
    return pl_replace_judge(c, &why);
}

/* Rows: every reason. Columns: observe, guard, enforce; then the same with death near. g = goes, w = would.
 */
TEST(the_mode_says_who_acts) {
    static const struct {
        const char *reason, *far, *near;
    } rows[] = {
        { "leak", "wwg", "wgg" },     { "forecast", "wwg", "wgg" }, { "host_rss", "wgg", "wgg" },
        { "hang", "wgg", "wgg" },     { "oom", "wgg", "wgg" },      { "max_requests", "wgg", "wgg" },
        { "operator", "ggg", "ggg" }, { "crash", "ggg", "ggg" },    { "generation", "ggg", "ggg" },
        { "rollback", "ggg", "ggg" }, { "budget", "wgg", "wgg" },
    };
    assert_int_equal(sizeof rows / sizeof *rows, PL_REPLACE_REASON_COUNT);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum pl_replace_reason r = pl_replace_reason_of(rows[i].reason);
        assert_in_range(r, 0, PL_REPLACE_REASON_COUNT - 1);
        assert_string_equal(pl_replace_reason_name(r), rows[i].reason);
        for (int mode = PL_CFG_MODE_OBSERVE; mode <= PL_CFG_MODE_ENFORCE; mode++) {
            struct pl_replace_case c = open_case(r, (enum pl_cfg_mode)mode);
            if (judge(&c) != (rows[i].far[mode] == 'g' ? PL_REPLACE_GO : PL_REPLACE_WOULD))
                fail_msg("%s in mode %d", rows[i].reason, mode);
            c.forecast_ms = 59999; /* less than two boots */
            if (judge(&c) != (rows[i].near[mode] == 'g' ? PL_REPLACE_GO : PL_REPLACE_WOULD))
                fail_msg("%s in mode %d, near", rows[i].reason, mode);
        }
    }
}

/* Each obstacle alone, for every reason and mode: who is held by it, and that what the mode forbids is not
 * told as a "would" while something else holds it. */
TEST(each_obstacle_holds_exactly_whom_it_should) {
    static const struct {
        const char *name;
        enum pl_replace_held why;
        bool asked; /* holds what an operator asks as well */
    } rows[] = {
        { "other", PL_HELD_BY_OTHER, true },
        { "device", PL_HELD_BY_DEVICE, true },
        { "cap", PL_HELD_BY_CAP, false },
        { "gap", PL_HELD_BY_GAP, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int r = 0; r < PL_REPLACE_REASON_COUNT; r++)
            for (int mode = PL_CFG_MODE_OBSERVE; mode <= PL_CFG_MODE_ENFORCE; mode++) {
                struct pl_replace_case c = open_case((enum pl_replace_reason)r, (enum pl_cfg_mode)mode);
                bool lets = judge(&c) == PL_REPLACE_GO;
                bool ours = pl_replace_is((enum pl_replace_reason)r, PL_REPLACE_OURS);
                c.under_way = rows[i].why == PL_HELD_BY_OTHER;
                c.device_busy = rows[i].why == PL_HELD_BY_DEVICE;
                c.in_hour = rows[i].why == PL_HELD_BY_CAP ? 4 : 3;
                if (rows[i].why == PL_HELD_BY_GAP) {
                    c.way = PL_REPLACE_HANDOVER;
                    c.gap_ms = 45001;
                    c.flowing = true;
                }
                enum pl_replace_held why = PL_HELD_BY_OTHER;
                enum pl_replace_verdict v = pl_replace_judge(&c, &why);
                if (!ours && !rows[i].asked) {
                    assert_int_equal(v, lets ? PL_REPLACE_GO : PL_REPLACE_WOULD);
                    continue;
                }
                if (v != (lets ? PL_REPLACE_HELD : PL_REPLACE_NOT))
                    fail_msg("%s %d %d", rows[i].name, r, mode);
                assert_int_equal(why, rows[i].why);
                assert_string_equal(pl_replace_held_name(why), rows[i].name);
            }
}

TEST(a_gap_longer_than_the_hold_is_opened_only_in_a_quiet_moment_or_when_told) {
    static const struct {
        enum pl_replace_reason reason;
        uint64_t gap_ms, forecast_ms;
        bool flowing, now;
        enum pl_replace_verdict verdict;
    } rows[] = {
        { PL_REPLACE_FOR_LEAK, 45000, UINT64_MAX, true, false, PL_REPLACE_GO }, /* it fits the hold */
        { PL_REPLACE_FOR_LEAK, 45001, UINT64_MAX, true, false, PL_REPLACE_HELD },
        { PL_REPLACE_FOR_LEAK, 45001, UINT64_MAX, true, true,
          PL_REPLACE_HELD }, /* only people are in a hurry */
        { PL_REPLACE_FOR_LEAK, 45001, UINT64_MAX, false, false, PL_REPLACE_GO },
        { PL_REPLACE_FOR_LEAK, 45001, 60000, true, false, PL_REPLACE_HELD },
        { PL_REPLACE_FOR_LEAK, 45001, 59999, true, false, PL_REPLACE_GO }, /* it dies in two boots anyway */
        { PL_REPLACE_FOR_OPERATOR, 45001, UINT64_MAX, true, false, PL_REPLACE_HELD },
        { PL_REPLACE_FOR_OPERATOR, 45001, UINT64_MAX, true, true, PL_REPLACE_GO },
        { PL_REPLACE_FOR_OPERATOR, 45001, UINT64_MAX, false, false, PL_REPLACE_GO },
        { PL_REPLACE_FOR_MAX_REQUESTS, 45001, UINT64_MAX, true, false, PL_REPLACE_HELD },
        { PL_REPLACE_FOR_MAX_REQUESTS, 0, UINT64_MAX, true, false, PL_REPLACE_GO }, /* others serve */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_replace_case c = open_case(rows[i].reason, PL_CFG_MODE_ENFORCE);
        c.way = PL_REPLACE_HANDOVER;
        c.gap_ms = rows[i].gap_ms;
        c.forecast_ms = rows[i].forecast_ms;
        c.flowing = rows[i].flowing;
        c.now = rows[i].now;
        if (judge(&c) != rows[i].verdict) fail_msg("row %zu", i);
    }
}

TEST(a_silent_worker_is_not_kept_silent_by_the_cap_or_the_gap) {
    struct pl_replace_case c = open_case(PL_REPLACE_FOR_HANG, PL_CFG_MODE_GUARD);
    c.silent = true;
    c.in_hour = 60;
    c.gap_ms = 600000;
    c.flowing = true;
    assert_int_equal(judge(&c), PL_REPLACE_GO);
    c.mode = PL_CFG_MODE_OBSERVE;
    assert_int_equal(judge(&c), PL_REPLACE_WOULD);
    c.under_way = true;
    assert_int_equal(judge(&c), PL_REPLACE_NOT);
}

TEST(only_the_first_five_can_be_taken_out_of_replace_when) {
    const char *one[] = { "hang" };
    struct pl_strings when = { one, 1 }, none = { NULL, 0 };
    for (int r = 0; r < PL_REPLACE_REASON_COUNT; r++) {
        const char *name = pl_replace_reason_name((enum pl_replace_reason)r);
        bool five = strcmp(name, "leak") == 0 || strcmp(name, "forecast") == 0 ||
                    strcmp(name, "budget") == 0 || strcmp(name, "host_rss") == 0 || strcmp(name, "hang") == 0;
        assert_int_equal(pl_replace_listed((enum pl_replace_reason)r, &none), !five);
        assert_int_equal(pl_replace_listed((enum pl_replace_reason)r, &when),
                         !five || strcmp(name, "hang") == 0);
    }
    assert_int_equal(pl_replace_reason_of("recycle"), PL_REPLACE_REASON_COUNT);
    assert_string_equal(pl_replace_reason_name(PL_REPLACE_REASON_COUNT), "unknown");
}

TEST(what_is_left_of_a_gap_grows_with_its_delay) {
    static const struct pl_gap gap = { .drain_ms = 4000, .stop_ms = 1000, .boot_ms = 30000 };
    static const struct {
        enum pl_gap_phase phase;
        uint64_t age_ms, left_ms;
    } rows[] = {
        { PL_GAP_DRAIN, 0, 35000 },    { PL_GAP_DRAIN, 3000, 32000 },
        { PL_GAP_DRAIN, 4000, 31000 }, { PL_GAP_DRAIN, 14000, 36000 } /* late by 10 s */,
        { PL_GAP_STOP, 0, 31000 },     { PL_GAP_STOP, 1000, 30000 },
        { PL_GAP_STOP, 5000, 32000 },  { PL_GAP_BOOT, 0, 30000 },
        { PL_GAP_BOOT, 20000, 10000 }, { PL_GAP_BOOT, 29999, 1000 },
        { PL_GAP_BOOT, 30000, 1000 },  { PL_GAP_BOOT, 50000, 10000 },
    };
    assert_int_equal(pl_gap_expected_ms(&gap), 35000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_gap_left_ms(&gap, rows[i].phase, rows[i].age_ms) != rows[i].left_ms) fail_msg("row %zu", i);
    static const struct pl_gap unknown = { .drain_ms = 4000, .stop_ms = 1000 };
    assert_int_equal(pl_gap_expected_ms(&unknown), 0);
    assert_int_equal(pl_gap_left_ms(&unknown, PL_GAP_BOOT, 5), 0);
}

TEST(the_hold_is_one_and_a_half_boots_and_at_most_a_minute) {
    assert_int_equal(pl_hold_ms(PL_CFG_AUTO, 0), 0); /* a boot that nobody knows is waited for by nobody */
    assert_int_equal(pl_hold_ms(PL_CFG_AUTO, 30000), 45000);
    assert_int_equal(pl_hold_ms(PL_CFG_AUTO, 40000), 60000);
    assert_int_equal(pl_hold_ms(PL_CFG_AUTO, 41000), 60000);
    assert_int_equal(pl_hold_ms(PL_CFG_AUTO, UINT64_MAX), 60000);
    assert_int_equal(pl_hold_ms(5000, 30000), 5000);
    assert_int_equal(pl_hold_ms(0, 30000), 0);
}

TEST(auto_hands_over_only_where_host_memory_for_two_is_known_to_be_short) {
    static const struct {
        enum pl_cfg_replace_mode mode;
        struct pl_replace_room room;
        enum pl_replace_way way;
    } rows[] = {
        { PL_CFG_REPLACE_MODE_AUTO, { 0, 900, 300 }, PL_REPLACE_OVERLAP }, /* no limit */
        { PL_CFG_REPLACE_MODE_AUTO, { 1000, 900, 0 }, PL_REPLACE_OVERLAP },
        { PL_CFG_REPLACE_MODE_AUTO, { 1000, 700, 300 }, PL_REPLACE_OVERLAP },
        { PL_CFG_REPLACE_MODE_AUTO, { 1000, 701, 300 }, PL_REPLACE_HANDOVER },
        { PL_CFG_REPLACE_MODE_AUTO, { 1000, 1100, 300 }, PL_REPLACE_HANDOVER },
        { PL_CFG_REPLACE_MODE_OVERLAP,
          { 1000, 1100, 300 },
          PL_REPLACE_OVERLAP }, /* who says so has his way */
        { PL_CFG_REPLACE_MODE_HANDOVER, { 0, 0, 0 }, PL_REPLACE_HANDOVER },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_replace_way_of(rows[i].mode, &rows[i].room) != rows[i].way) fail_msg("row %zu", i);
    assert_string_equal(pl_replace_way_name(PL_REPLACE_RESTART), "restart");
    assert_string_equal(pl_replace_way_name((enum pl_replace_way)9), "unknown");
}

TEST(a_drain_lasts_as_long_as_a_handler_does_on_average) {
    assert_int_equal(pl_drain_expected_ms(0, 5000, 60000), 0);
    assert_int_equal(pl_drain_expected_ms(3, 5000, 60000), 5000);
    assert_int_equal(pl_drain_expected_ms(3, 90000, 60000), 60000);
    assert_int_equal(pl_drain_expected_ms(1, 0, 60000), 0);
}

TEST(requests_flow_if_one_would_come_into_the_gap) {
    assert_true(pl_is_flowing(1, UINT64_MAX, 1));
    assert_true(pl_is_flowing(0, 29999, 30000));
    assert_false(pl_is_flowing(0, 30000, 30000));
    assert_false(pl_is_flowing(0, 0, 0));
}

TEST(workers_that_started_together_do_not_go_together) {
    uint64_t least = UINT64_MAX, most = 0;
    assert_int_equal(pl_max_requests_of(0, PL_CFG_AUTO, 1), 0);
    assert_int_equal(pl_max_requests_of(1000, 0, 1), 1000);
    assert_in_range(pl_max_requests_of(5, PL_CFG_AUTO, 1), 5, 5); /* a tenth of 5 is none */
    for (uint64_t seed = 1; seed <= 64; seed++) {
        uint64_t n = pl_max_requests_of(1000, PL_CFG_AUTO, seed);
        assert_in_range(n, 1000, 1100);
        assert_int_equal(n, pl_max_requests_of(1000, PL_CFG_AUTO, seed)); /* the same for the next main */
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    assert_in_range(least, 1000, 1020);
    assert_in_range(most, 1080, 1100);
}

TEST(a_share_of_host_memory_is_of_the_workers_part) {
    static const struct {
        struct pl_amount a;
        uint64_t max;
        uint32_t workers;
        uint64_t limit;
    } rows[] = {
        { { 9000, true }, UINT64_C(8) << 30, 1, UINT64_C(7730941132) },
        { { 9000, true }, UINT64_C(8) << 30, 4, UINT64_C(1932735283) },
        { { 10000, true }, 1 << 20, 1, 1 << 20 },
        { { 9000, true }, 0, 1, 0 }, /* no limit is known */
        { { 9000, true }, 1 << 20, 0, 0 },
        { { 123456, false }, 0, 7, 123456 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_host_limit_bytes(rows[i].a, rows[i].max, rows[i].workers) != rows[i].limit)
            fail_msg("row %zu: %llu", i,
                     (unsigned long long)pl_host_limit_bytes(rows[i].a, rows[i].max, rows[i].workers));
}

TEST(silence_is_never_judged_before_two_timeouts) {
    assert_int_equal(pl_silent_after_ms(60000, 10000), 60000);
    assert_int_equal(pl_silent_after_ms(60000, 60000), 120000);
}

TEST(an_hour_remembers_and_forgets) {
    enum { HOUR = 3600000 };
    struct pl_hour h = { 0 };
    uint64_t now = 1000;
    assert_int_equal(pl_hour_count(&h, now), 0);
    assert_int_equal(pl_hour_free_at_ms(&h, 4, now), 0);
    for (uint64_t i = 0; i < 6; i++) pl_hour_add(&h, now + i * 60000);
    now += 5 * 60000;
    assert_int_equal(pl_hour_count(&h, now), 6);
    assert_int_equal(pl_hour_free_at_ms(&h, 7, now), 0);
    assert_int_equal(pl_hour_free_at_ms(&h, 6, now), 1000 + HOUR);
    assert_int_equal(pl_hour_free_at_ms(&h, 4, now), 1000 + 2 * 60000 + HOUR);
    assert_int_equal(pl_hour_count(&h, 1000 + HOUR - 1), 6);
    assert_int_equal(pl_hour_count(&h, 1000 + HOUR), 5);
    assert_int_equal(pl_hour_free_at_ms(&h, 0, now), 0); /* never, and nobody waits for it */
    for (uint64_t i = 0; i < 3 * PL_HOUR_TIMES; i++) pl_hour_add(&h, now + i);
    assert_int_equal(pl_hour_count(&h, now + 3 * PL_HOUR_TIMES), PL_HOUR_TIMES);
}

RUN(cmocka_unit_test(the_mode_says_who_acts), cmocka_unit_test(each_obstacle_holds_exactly_whom_it_should),
    cmocka_unit_test(a_gap_longer_than_the_hold_is_opened_only_in_a_quiet_moment_or_when_told),
    cmocka_unit_test(a_silent_worker_is_not_kept_silent_by_the_cap_or_the_gap),
    cmocka_unit_test(only_the_first_five_can_be_taken_out_of_replace_when),
    cmocka_unit_test(what_is_left_of_a_gap_grows_with_its_delay),
    cmocka_unit_test(the_hold_is_one_and_a_half_boots_and_at_most_a_minute),
    cmocka_unit_test(auto_hands_over_only_where_host_memory_for_two_is_known_to_be_short),
    cmocka_unit_test(a_drain_lasts_as_long_as_a_handler_does_on_average),
    cmocka_unit_test(requests_flow_if_one_would_come_into_the_gap),
    cmocka_unit_test(workers_that_started_together_do_not_go_together),
    cmocka_unit_test(a_share_of_host_memory_is_of_the_workers_part),
    cmocka_unit_test(silence_is_never_judged_before_two_timeouts),
    cmocka_unit_test(an_hour_remembers_and_forgets))
