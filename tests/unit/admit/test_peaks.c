/* What a request will take, learnt from those that ended. */
#include "admit/peaks.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static struct pl_peaks p;
static void teach(const char *path, uint64_t bytes, uint64_t peak, uint32_t requests) {
    assert_true(
        pl_peaks_learn(&p, path, strlen(path),
                       &(struct pl_peak_lesson){ .bytes = bytes, .peak = peak, .requests = requests }));
}
#define NOTHING UINT64_MAX
static uint64_t of(const char *path, uint64_t bytes) {
    uint64_t out;
    return pl_peaks_of(&p, path, strlen(path), bytes, &out) ? out : NOTHING;
}
static int begin(void **state) {
    (void)state;
    pl_peaks_free(&p);
    return 0;
}

TEST(nothing_is_known_of_what_was_never_seen) {
    assert_int_equal(of("/a", 100), NOTHING);
    assert_int_equal(pl_peaks_largest(&p), 0);
    teach("/a", 100, 5000, 1);
    assert_int_equal(of("/b", 100), NOTHING);
    assert_int_equal(of("/a/", 100), NOTHING);
    assert_int_equal(of("/a", 100), 5000);
}

TEST(the_largest_of_its_size_counts_and_sizes_are_apart) {
    teach("/a", 1000, 10000, 1);
    teach("/a", 1000, 40000, 1);
    teach("/a", 1000, 20000, 1);
    teach("/a", 1000000, 9000000, 1);
    assert_int_equal(of("/a", 1000), 40000);
    assert_int_equal(of("/a", 1000000), 9000000);
    assert_int_equal(of("/a", 0), 9000000); /* a size that is not known may be any */
    assert_int_equal(pl_peaks_largest(&p), 9000000);
}

TEST(between_two_sizes_it_is_a_line_and_above_the_largest_in_proportion_for_an_octave) {
    teach("/a", 1 << 10, 1 << 20, 1);
    teach("/a", 1 << 14, 16 << 20, 1);
    uint64_t mid = of("/a", 1 << 12);
    assert_true(mid > (3 << 20) && mid < (5 << 20));
    assert_int_equal(of("/a", 10), 1 << 20);
    assert_int_equal(of("/a", 1 << 15), 32 << 20);
    assert_int_equal(of("/a", (1 << 15) + 1), NOTHING);
    assert_int_equal(of("/a", UINT64_MAX), NOTHING);
}

TEST(what_happened_once_is_forgotten) {
    teach("/a", 100, 1000000, 1);
    for (int i = 0; i < PL_PEAKS_WINDOW; i++) teach("/a", 100, 1000, 1);
    assert_int_equal(of("/a", 100), 1000000);
    for (int i = 0; i < PL_PEAKS_WINDOW; i++) teach("/a", 100, 1000, 1);
    assert_int_equal(of("/a", 100), 1000);
}

TEST(a_batch_shares_what_does_not_grow_with_it) {
    teach("/a", 100, 1100, 1);
    assert_int_equal(of("/a", 100), 1100);
    assert_int_equal(pl_peaks_shared(&p), 0); /* from one point no line */
    teach("/a", 100, 1000 + 8 * 100, 8);
    assert_int_equal(pl_peaks_shared(&p), 1000);
    assert_int_equal(of("/a", 100), 100);
    /* no total lies above the line */
    teach("/a", 100, 1000 + 4 * 150, 4);
    for (unsigned n = 1; n <= 8; n *= 2) {
        uint64_t total = n == 4 ? 1600 : 1000 + n * 100;
        assert_true(pl_peaks_shared(&p) + n * of("/a", 100) >= total);
    }
    assert_int_equal(pl_peaks_largest(&p), pl_peaks_shared(&p) + of("/a", 0));
}

TEST(a_batch_that_gets_smaller_as_it_grows_is_all_shared) {
    teach("/a", 100, 1000, 1);
    teach("/a", 100, 800, 16);
    assert_int_equal(pl_peaks_shared(&p), 1000);
    assert_int_equal(of("/a", 100), 0);
}

TEST(what_cannot_be_teaches_nothing) {
    assert_false(pl_peaks_learn(&p, "/a", 2, &(struct pl_peak_lesson){ 1, PL_PEAKS_MOST + 1, 1 }));
    assert_false(pl_peaks_learn(&p, "/a", 2, &(struct pl_peak_lesson){ 1, 1, 0 }));
    assert_int_equal(of("/a", 1), NOTHING);
}

TEST(routes_are_bounded_and_the_last_one_stands_for_the_rest) {
    char path[200];
    for (int i = 0; i < 3 * PL_PEAKS_ROUTES; i++) {
        int n = snprintf(path, sizeof path, "/%d", i);
        teach(path, 100, (uint64_t)(1000 + i), 1);
        assert_int_equal(n, strlen(path));
    }
    assert_int_equal(p.count, PL_PEAKS_ROUTES);
    assert_int_equal(of("/3", 100), 1003);
    assert_int_equal(of("/90", 100), 1095);
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    teach(path, 100, 5000, 1);
    assert_int_equal(of(path, 100), 5000);
}

TEST(one_that_teaches_nothing_is_tried_three_times) {
    for (int i = 0; i < PL_PEAKS_TRIES; i++) {
        assert_true(pl_peaks_may_try(&p, "/a", 2));
        pl_peaks_tried(&p, "/a", 2);
    }
    assert_false(pl_peaks_may_try(&p, "/a", 2));
    assert_false(pl_peaks_known(&p, "/a", 2));
    for (int i = 0; i < PL_PEAKS_KNOWN; i++) teach("/a", 1, 1, 1);
    assert_true(pl_peaks_may_try(&p, "/a", 2) && pl_peaks_known(&p, "/a", 2));
}

/* It is asked for with every request, and remembered between lessons. */
TEST(the_largest_is_what_a_look_at_every_size_would_find) {
    uint32_t seed = 12345;
    for (int i = 0; i < 20000; i++) {
        char path[8];
        seed = seed * 1664525 + 1013904223;
        snprintf(path, sizeof path, "/%u", seed >> 8 & 3);
        uint64_t bytes = seed >> 10 & 0xfff, peak = seed >> 12 & 0xffff;
        teach(path, bytes, i % 97 == 0 ? peak * 50 : peak, (seed >> 28) % 5 == 0 ? 1 + (seed >> 26 & 7) : 1);
        uint64_t remembered = pl_peaks_largest(&p), any = of(path, 0);
        for (uint32_t k = 0; k < p.count; k++) p.at[k].most_known = false;
        assert_int_equal(remembered, pl_peaks_largest(&p));
        assert_int_equal(any, of(path, 0));
    }
}

#define ANEW(test) cmocka_unit_test_setup_teardown(test, begin, begin)
RUN(ANEW(nothing_is_known_of_what_was_never_seen), ANEW(the_largest_of_its_size_counts_and_sizes_are_apart),
    ANEW(between_two_sizes_it_is_a_line_and_above_the_largest_in_proportion_for_an_octave),
    ANEW(what_happened_once_is_forgotten), ANEW(a_batch_shares_what_does_not_grow_with_it),
    ANEW(a_batch_that_gets_smaller_as_it_grows_is_all_shared), ANEW(what_cannot_be_teaches_nothing),
    ANEW(routes_are_bounded_and_the_last_one_stands_for_the_rest),
    ANEW(one_that_teaches_nothing_is_tried_three_times),
    ANEW(the_largest_is_what_a_look_at_every_size_would_find))
