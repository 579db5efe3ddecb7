/* The leak rule on random series: no false leak in 1,000, and the share of real ones that it finds. The seeds
 * are fixed. By hand, with a table: `make marks`, or `test_ledger_marks RUNS REQUESTS FIRST_SEED`. */
#include <stdio.h>

#include "leak_series.h"
#include "ledger/ledger.h"
#include "unit.h"

enum { REQUESTS = 12000, STABLE_RUNS = 125, STEADY_RUNS = 40, LEAK_RUNS = 100, RUNS_MAX = 100000 };

struct outcome {
    uint32_t runs, ever, leaks, growing, stable;
    uint64_t confirmed_median, suspected_median;
};

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *v, uint32_t n) {
    qsort(v, n, sizeof *v, by_number);
    return n == 0 ? 0 : v[n / 2];
}

/* The requests at which it was first suspected and first confirmed. */
static void note(const struct pl_history *h, uint64_t at, uint64_t *suspected, uint64_t *confirmed) {
    enum pl_rule_state s = pl_history_rule(h)->state;
    if (s >= PL_RULE_SUSPECTED && *suspected == 0) *suspected = at;
    if (s == PL_RULE_CONFIRMED && *confirmed == 0) *confirmed = at;
}

/* `ever`: a leak at any moment, even when it was taken back later. */
static struct outcome run_with(enum series_kind kind, uint32_t runs, uint64_t requests, uint64_t seed,
                               double least) {
    struct outcome out = { .runs = runs };
    uint64_t *confirmed = calloc(runs, sizeof *confirmed), *suspected = calloc(runs, sizeof *suspected);
    uint32_t suspects = 0;
    assert_non_null(confirmed);
    assert_non_null(suspected);
    for (uint32_t i = 0; i < runs; i++) {
        struct series g;
        struct pl_history h = { 0 };
        uint64_t first = 0, found = 0;
        pl_history_steady(&h, least);
        series_start(&g, kind, requests, seed + i);
        for (uint64_t k = 0; k < requests; k++)
            if (pl_history_add(&h, series_next(&g), 1)) note(&h, k + 1, &first, &found);
        enum pl_rule_state end = pl_history_rule(&h)->state;
        out.stable += end == PL_RULE_STABLE;
        out.growing += end == PL_RULE_SUSPECTED;
        out.leaks += end == PL_RULE_CONFIRMED;
        if (found != 0) confirmed[out.ever++] = found;
        if (first != 0) suspected[suspects++] = first;
    }
    out.confirmed_median = median(confirmed, out.ever);
    out.suspected_median = median(suspected, suspects);
    free(confirmed);
    free(suspected);
    printf("%-16s %5u runs: called a leak %5.1f %%; at the end leak %5.1f, growing %5.1f, stable %5.1f %%; "
           "median request of suspicion %5llu, of confirmation %5llu\n",
           series_names[kind], runs, 100.0 * out.ever / runs, 100.0 * out.leaks / runs,
           100.0 * out.growing / runs, 100.0 * out.stable / runs, (unsigned long long)out.suspected_median,
           (unsigned long long)out.confirmed_median);
    fflush(stdout);
    return out;
}

static struct outcome run(enum series_kind kind, uint32_t runs, uint64_t requests, uint64_t seed) {
    return run_with(kind, runs, requests, seed, 0);
}

static void finds(enum series_kind kind, double least_share) {
    struct outcome o = run(kind, LEAK_RUNS, REQUESTS, 1);
    assert_true(o.ever >= least_share * o.runs);
    assert_true(o.leaks + o.growing == o.runs); /* never called stable */
    assert_true(o.suspected_median < o.confirmed_median);
}

/* `plimsoll soak` calls less growth than PL_RULE_GROWTH growth: what settles is then suspected more often,
 * and still never confirmed, although these series are far noisier than those of soak. */
TEST(nor_with_the_mark_of_soak) {
    uint32_t ever = 0;
    for (int k = 0; k < SERIES_KIND_COUNT; k++)
        if (!series_leaks[k])
            ever += run_with((enum series_kind)k, STEADY_RUNS, REQUESTS / 2, 1, PL_LEDGER_ALONE).ever;
    assert_int_equal(ever, 0);
}

TEST(a_thousand_series_that_are_no_leak_are_never_called_one) {
    uint32_t runs = 0, ever = 0;
    for (int k = 0; k < SERIES_KIND_COUNT; k++) {
        if (series_leaks[k]) continue;
        struct outcome o = run((enum series_kind)k, STABLE_RUNS, REQUESTS, 1);
        runs += o.runs;
        ever += o.ever;
    }
    assert_int_equal(runs, 1000);
    assert_int_equal(ever, 0);
}

/* The marks of the design: 99, 88 and 65 %. */
TEST(a_leak_of_51_kib_a_request_is_found) { finds(SERIES_LEAK_51, 0.99); }
TEST(a_leak_of_20_kib_a_request_is_found) { finds(SERIES_LEAK_20, 0.99); }
TEST(a_leak_of_one_request_in_a_hundred_is_found) { finds(SERIES_LEAK_RARE, 0.99); }
TEST(a_leak_under_a_daily_cycle_is_found) { finds(SERIES_LEAK_CYCLE, 0.95); }
TEST(a_leak_under_a_growing_cache_is_found) { finds(SERIES_LEAK_CACHE, 0.95); }

/* Nobody waits longer than this for a verdict on the plainest leak. */
TEST(a_plain_leak_is_suspected_and_confirmed_early) {
    struct outcome o = run(SERIES_LEAK_51, 20, REQUESTS, 1000);
    assert_true(o.suspected_median <= 1000);
    assert_true(o.confirmed_median <= 3000);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_series_that_are_no_leak_are_never_called_one),
        cmocka_unit_test(nor_with_the_mark_of_soak),
        cmocka_unit_test(a_leak_of_51_kib_a_request_is_found),
        cmocka_unit_test(a_leak_of_20_kib_a_request_is_found),
        cmocka_unit_test(a_leak_of_one_request_in_a_hundred_is_found),
        cmocka_unit_test(a_leak_under_a_daily_cycle_is_found),
        cmocka_unit_test(a_leak_under_a_growing_cache_is_found),
        cmocka_unit_test(a_plain_leak_is_suspected_and_confirmed_early),
    };
    if (argc < 2) return cmocka_run_group_tests(tests, NULL, NULL);
    uint32_t runs = (uint32_t)strtoul(argv[1], NULL, 10);
    uint64_t requests = argc > 2 ? strtoull(argv[2], NULL, 10) : REQUESTS;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (runs == 0 || runs > RUNS_MAX || requests == 0) return 2;
    for (int k = 0; k < SERIES_KIND_COUNT; k++) run((enum series_kind)k, runs, requests, seed);
    return 0;
}
