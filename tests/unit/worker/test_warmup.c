#include <string.h>

#include "unit.h"
#include "worker/warmup.h"

enum { LONGEST = 64 };

/* A series measured on fresh workers: CPU milliseconds of requests 1, 2, 3, 4, 5, 8, 12 and 20; between them
 * the last one holds. */
struct series {
    const char *name;
    double at[8], settled;
    uint32_t flat_from, flat_to; /* where it may be judged flat */
};
static const struct series measured[] = {
    { "trivial, direct", { 10.4, 2.2, 2.0, 1.7, 1.6, 1.6, 1.1, 1.1 }, 1.11, 8, 11 },
    { "trivial, zygote, record at start", { 15.9, 2.5, 2.3, 1.5, 1.6, 1.4, 1.6, 1.4 }, 1.19, 8, 11 },
    { "trivial, zygote, record after requests", { 4.2, 2.5, 1.8, 1.6, 1.9, 1.7, 1.3, 1.2 }, 1.13, 8, 10 },
    { "torch, direct", { 12.4, 2.8, 2.5, 2.0, 2.4, 1.6, 1.5, 1.5 }, 2.29, 8, 12 },
    { "torch, zygote, record at start", { 20.0, 3.9, 3.4, 3.2, 2.9, 2.4, 2.6, 2.6 }, 1.36, 8, 11 },
    { "torch, zygote, record after requests", { 6.5, 3.7, 3.3, 3.2, 2.6, 3.0, 2.3, 3.3 }, 1.53, 8, 12 },
};

static uint64_t cost_of(const struct series *s, uint32_t n) {
    static const uint32_t points[] = { 1, 2, 3, 4, 5, 8, 12, 20 };
    size_t i = 0;
    while (i + 1 < 8 && points[i + 1] <= n) i++;
    return (uint64_t)(s->at[i] * 1000);
}

/* Feeds costs until the round is over; how many were sent. */
static uint32_t run(struct pl_warmup *w, const uint64_t *costs, uint32_t count, enum pl_warmup_next *last) {
    uint32_t n = 0;
    do *last = pl_warmup_took(w, costs[n < count ? n : count - 1], costs[n < count ? n : count - 1], 1000);
    while (++n < LONGEST * 4 && *last == PL_WARMUP_AGAIN);
    return n;
}

TEST(the_measured_series_are_flat_where_they_were_measured_to_be) {
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        struct pl_warmup w;
        enum pl_warmup_next last;
        uint64_t costs[LONGEST];
        for (uint32_t n = 0; n < LONGEST; n++) costs[n] = cost_of(&measured[i], n + 1);
        pl_warmup_start(&w, 50, 60000, true, 1000);
        uint32_t n = run(&w, costs, LONGEST, &last);
        if (last != PL_WARMUP_FLAT || n < measured[i].flat_from || n > measured[i].flat_to)
            fail_msg("%s: %d after %u", measured[i].name, last, n);
        assert_int_equal(w.first_us, costs[0]);
        assert_true(w.settled_us <= 3 * (uint64_t)(measured[i].settled * 1000));
    }
}

TEST(the_rule_holds_at_its_edges) {
    static const struct {
        uint64_t before, after; /* of the two windows of four, microseconds */
        bool flat;
    } rows[] = {
        { 1000, 1000, true },      { 800, 1000, true },     { 1500, 1000, true },
        { 1501, 1000, false },     { 5000, 4000, true },    { 5001, 4000, false },
        { 500, 0, true },          { 501, 0, false },       { 125000, 100000, true },
        { 125001, 100000, false }, { 0, UINT64_MAX, true }, { UINT64_MAX, 0, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_warmup w;
        enum pl_warmup_next next = PL_WARMUP_AGAIN;
        pl_warmup_start(&w, 50, 60000, true, 0);
        for (int n = 0; n < 8; n++) {
            assert_int_equal(next, PL_WARMUP_AGAIN); /* never before the eighth */
            next = pl_warmup_took(&w, n < 4 ? rows[i].before : rows[i].after, 1, 0);
        }
        if ((next == PL_WARMUP_FLAT) != rows[i].flat) fail_msg("row %zu", i);
    }
}

TEST(one_outlier_in_a_window_does_not_decide) {
    static const uint64_t costs[] = { 1000, 90000, 1000, 1000, 1000, 1000, 90000, 1000 };
    struct pl_warmup w;
    enum pl_warmup_next last;
    pl_warmup_start(&w, 50, 60000, true, 0);
    assert_int_equal(run(&w, costs, 8, &last), 8);
    assert_int_equal(last, PL_WARMUP_FLAT);
}

TEST(what_never_gets_flat_ends_at_max) {
    uint64_t costs[LONGEST];
    for (int i = 0; i < LONGEST; i++)
        costs[i] = (uint64_t)1000000 >> (i < 19 ? i : 19); /* each one half of the last */
    struct pl_warmup w;
    enum pl_warmup_next last;
    pl_warmup_start(&w, 10, 60000, true, 1000);
    assert_int_equal(run(&w, costs, LONGEST, &last), 10);
    assert_int_equal(last, PL_WARMUP_BOUND);
}

TEST(what_takes_too_long_ends_by_time) {
    struct pl_warmup w;
    pl_warmup_start(&w, 50, 3000, true, 1000);
    assert_int_equal(pl_warmup_took(&w, 9, 9, 3999), PL_WARMUP_AGAIN);
    assert_int_equal(pl_warmup_took(&w, 9, 9, 4000), PL_WARMUP_BOUND);
    pl_warmup_start(&w, 50, 3000, true, 1000);
    assert_int_equal(pl_warmup_took(&w, 9, 9, 0), PL_WARMUP_AGAIN); /* a clock that is behind is no age */
}

TEST(without_repetition_every_sample_is_sent_once) {
    static const struct {
        uint32_t max;
        bool until_flat;
    } rows[] = { { 0, true }, { 50, false }, { 0, false } };
    for (size_t i = 0; i < 3; i++) {
        struct pl_warmup w;
        pl_warmup_start(&w, rows[i].max, 60000, rows[i].until_flat, 0);
        for (int round = 0; round < 5; round++) {
            assert_int_equal(pl_warmup_took(&w, 1000, 1000, 1), PL_WARMUP_BOUND);
            pl_warmup_next_round(&w);
        }
        assert_int_equal(w.done, 5);
    }
}

TEST(rounds_are_judged_apart_and_bounded_together) {
    static const uint64_t flat[] = { 1000 }, steep[] = { 900000, 300000, 100000, 30000, 10000, 3000 };
    struct pl_warmup w;
    enum pl_warmup_next last;
    pl_warmup_start(&w, 22, 60000, true, 0);
    assert_int_equal(run(&w, flat, 1, &last), 8);
    pl_warmup_next_round(&w);
    assert_int_equal(run(&w, steep, 6, &last), 12);
    assert_int_equal(last, PL_WARMUP_FLAT);
    assert_int_equal(w.first_us, 1000); /* of all rounds */
    assert_int_equal(w.settled_us, 3000);
    pl_warmup_next_round(&w);
    assert_int_equal(run(&w, flat, 1, &last), 2); /* 22 in all */
    assert_int_equal(last, PL_WARMUP_BOUND);
    pl_warmup_next_round(&w);
    assert_int_equal(run(&w, flat, 1, &last), 1); /* sent at least once all the same */
}

TEST(settled_is_the_median_of_what_there_is) {
    static const uint64_t wall[] = { 9000, 1000, 3000, 2000, 4000 };
    static const uint64_t want[] = { 9000, 5000, 3000, 2500, 2500 };
    struct pl_warmup w;
    pl_warmup_start(&w, 50, 60000, true, 0);
    for (int i = 0; i < 5; i++) {
        pl_warmup_took(&w, 1, wall[i], 0);
        assert_int_equal(w.settled_us, want[i]);
    }
    assert_int_equal(w.first_us, 9000);
}

RUN(cmocka_unit_test(the_measured_series_are_flat_where_they_were_measured_to_be),
    cmocka_unit_test(the_rule_holds_at_its_edges), cmocka_unit_test(one_outlier_in_a_window_does_not_decide),
    cmocka_unit_test(what_never_gets_flat_ends_at_max), cmocka_unit_test(what_takes_too_long_ends_by_time),
    cmocka_unit_test(without_repetition_every_sample_is_sent_once),
    cmocka_unit_test(rounds_are_judged_apart_and_bounded_together),
    cmocka_unit_test(settled_is_the_median_of_what_there_is))
