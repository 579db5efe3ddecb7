/* Numbers that others have published or that torch's own tests expect, and sizes measured with the real
 * allocator. */
#include "snapshot/sim.h"
#include "unit.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct pl_sim *sim_with(const char *text, uint64_t total, uint64_t other) {
    struct pl_alloc_conf c;
    struct pl_err err;
    pl_alloc_conf_init(&c);
    assert_true(pl_alloc_conf_parse(&c, text, &err));
    struct pl_sim *sim = pl_sim_create(&c, total, other);
    assert_non_null(sim);
    return sim;
}

static uint64_t mib(uint64_t bytes) { return bytes / MIB; }

/* pytorch#193400: a 64 MiB canary; each cycle takes 91 and 45.5 MiB, keeps 2, frees the first two. */
static void cycle(struct pl_sim *sim, bool keep) {
    struct pl_sim_block *a = pl_sim_malloc(sim, 91 * MIB, 0, 0), *b = pl_sim_malloc(sim, 91 * MIB / 2, 0, 0);
    assert_true(a != NULL && b != NULL);
    if (keep) assert_non_null(pl_sim_malloc(sim, 2 * MIB, 0, 0));
    pl_sim_free(sim, a, false);
    pl_sim_free(sim, b, false);
    assert_true(pl_sim_adds_up(sim));
}

static void cycles(struct pl_sim *sim, int count, bool keep) {
    assert_non_null(pl_sim_malloc(sim, 64 * MIB, 0, 0));
    for (int i = 0; i < count; i++) cycle(sim, keep);
}

TEST(max_split_with_expandable_grows_as_published) {
    static const struct {
        int cycle;
        uint64_t allocated, reserved;
    } published[] = { { 0, 66, 220 },    { 20, 106, 2980 },  { 40, 146, 5760 },
                      { 60, 186, 8520 }, { 80, 226, 11300 }, { 100, 266, 14060 } };
    struct pl_sim *sim = sim_with("max_split_size_mb:128,expandable_segments:True", 16 * GIB, 0);
    pl_sim_malloc(sim, 64 * MIB, 0, 0);
    for (int i = 0, row = 0; i <= 100; i++) {
        cycle(sim, true);
        if (i != published[row].cycle) continue;
        assert_int_equal(mib(pl_sim_stats(sim)->allocated), published[row].allocated);
        assert_int_equal(mib(pl_sim_stats(sim)->reserved), published[row++].reserved);
    }
    assert_int_equal(mib(pl_sim_stats(sim)->peak_reserved), 14060);
    pl_sim_destroy(sim);
}

TEST(the_first_retry_comes_at_cycle_115_as_on_rocm) {
    for (uint64_t other = 300; other <= 350; other += 50) {
        struct pl_sim *sim =
            sim_with("max_split_size_mb:128,expandable_segments:True", 16 * GIB, other * MIB);
        cycles(sim, 115, true);
        assert_int_equal(pl_sim_stats(sim)->retries, 0);
        cycle(sim, true);
        assert_int_equal(mib(pl_sim_stats(sim)->allocated), 296);
        assert_int_equal(mib(pl_sim_stats(sim)->reserved), 2680);
        assert_int_equal(mib(pl_sim_stats(sim)->peak_reserved), 16000);
        assert_int_equal(pl_sim_stats(sim)->retries, 1);
        assert_int_equal(pl_sim_stats(sim)->ooms, 0);
        pl_sim_destroy(sim);
    }
}

TEST(memory_of_others_brings_the_first_retry_forward) {
    static const struct {
        uint64_t other, cycle, reserved, peak;
    } rows[] = { { 0, 117, 2720, 16360 },
                 { 100, 117, 2720, 16280 },
                 { 200, 116, 2700, 16140 },
                 { 250, 115, 2700, 16100 } };
    for (size_t i = 0; i < 4; i++) {
        struct pl_sim *sim =
            sim_with("max_split_size_mb:128,expandable_segments:True", 16 * GIB, rows[i].other * MIB);
        uint64_t at = 0;
        for (cycles(sim, 1, true); pl_sim_stats(sim)->retries == 0; at++) cycle(sim, true);
        assert_int_equal(at, rows[i].cycle);
        assert_int_equal(mib(pl_sim_stats(sim)->reserved), rows[i].reserved);
        assert_int_equal(mib(pl_sim_stats(sim)->peak_reserved), rows[i].peak);
        pl_sim_destroy(sim);
    }
}

TEST(either_option_alone_stays_small) {
    static const struct {
        const char *conf;
        bool keep;
        uint64_t allocated, reserved;
    } rows[] = { { "expandable_segments:True", true, 266, 420 },
                 { "max_split_size_mb:128", true, 266, 422 },
                 { "", true, 266, 422 },
                 { "max_split_size_mb:128,expandable_segments:True", false, 64, 220 } };
    for (size_t i = 0; i < 4; i++) {
        struct pl_sim *sim = sim_with(rows[i].conf, 16 * GIB, 0);
        cycles(sim, 101, rows[i].keep);
        assert_int_equal(mib(pl_sim_stats(sim)->allocated), rows[i].allocated);
        assert_int_equal(mib(pl_sim_stats(sim)->reserved), rows[i].reserved);
        pl_sim_destroy(sim);
    }
}

TEST(the_proposed_fix_ends_the_growth) {
    struct pl_alloc_conf c;
    struct pl_err err;
    pl_alloc_conf_init(&c);
    assert_true(pl_alloc_conf_parse(&c, "max_split_size_mb:128,expandable_segments:True", &err));
    c.fix193400 = true;
    struct pl_sim *sim = pl_sim_create(&c, 16 * GIB, 0);
    cycles(sim, 101, true);
    assert_int_equal(mib(pl_sim_stats(sim)->reserved), 420);
    pl_sim_destroy(sim);
}

/* The expectations of torch's test_max_split_expandable and test_garbage_collect_expandable. */
TEST(torchs_own_test_of_max_split_and_expandable) {
    struct pl_sim *sim = sim_with("max_split_size_mb:40", 16 * GIB, 0);
    pl_sim_set_limit(sim, 120 * MIB);
    struct pl_sim_block *a = pl_sim_malloc(sim, 40 * MIB, 0, 0);
    pl_sim_set_expandable(sim, true);
    struct pl_sim_block *b = pl_sim_malloc(sim, 40 * MIB, 0, 0);
    pl_sim_set_expandable(sim, false);
    struct pl_sim_block *c = pl_sim_malloc(sim, 40 * MIB, 0, 0);
    assert_null(pl_sim_malloc(sim, 40 * MIB, 0, 0));
    pl_sim_free(sim, a, false);
    pl_sim_free(sim, b, false);
    pl_sim_free(sim, c, false);
    assert_non_null(pl_sim_malloc(sim, 120 * MIB, 0, 0));
    assert_int_equal(pl_sim_stats(sim)->reserved, 120 * MIB);
    pl_sim_destroy(sim);
}

TEST(torchs_own_test_of_garbage_collection_and_expandable) {
    struct pl_sim *sim = sim_with("garbage_collection_threshold:0.5", 16 * GIB, 0);
    pl_sim_set_limit(sim, 120 * MIB);
    struct pl_sim_block *a = pl_sim_malloc(sim, 40 * MIB, 0, 0);
    pl_sim_set_expandable(sim, true);
    struct pl_sim_block *b = pl_sim_malloc(sim, 40 * MIB, 0, 0);
    pl_sim_free(sim, a, false);
    pl_sim_free(sim, b, false);
    assert_non_null(pl_sim_malloc(sim, 80 * MIB, 0, 0));
    const struct pl_sim_stats *s = pl_sim_stats(sim);
    assert_int_equal(s->segment_events[PL_SIM_SEGMENT_ALLOC], 1);
    assert_int_equal(s->segment_events[PL_SIM_SEGMENT_FREE], 1);
    assert_int_equal(s->segment_events[PL_SIM_SEGMENT_MAP], 2);
    assert_int_equal(s->reserved, 80 * MIB);
    pl_sim_destroy(sim);
}

TEST(one_allocation_on_an_empty_device) {
    static const struct {
        uint64_t request, allocated, reserved;
        int64_t inactive_split; /* -1: expandable */
    } rows[] = {
        { 1, 512, 2097152, 2096640 },
        { MIB, 1048576, 2097152, 1048576 },
        { MIB + 1, 1049088, 20971520, 19922432 },
        { 10 * MIB - 513, 10485248, 20971520, 10486272 },
        { 10 * MIB - 1, 10485760, 10485760, 0 },
        { 10 * MIB, 10485760, 10485760, 0 },
        { 10 * MIB + 1, 10486272, 12582912, 2096640 },
        { 25 * MIB, 27262976, 27262976, 0 },
        { 1, 512, 2097152, -1 },
        { MIB, 1048576, 2097152, -1 },
        { MIB + 1, 1049088, 20971520, -1 },
        { 10 * MIB, 10485760, 20971520, -1 },
        { 10 * MIB + 1, 10486272, 20971520, -1 },
        { 25 * MIB, 26214400, 41943040, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_sim *sim =
            sim_with(rows[i].inactive_split < 0 ? "expandable_segments:True" : "", 16 * GIB, 0);
        pl_sim_malloc(sim, rows[i].request, 0, 0);
        assert_int_equal(pl_sim_stats(sim)->allocated, rows[i].allocated);
        assert_int_equal(pl_sim_stats(sim)->reserved, rows[i].reserved);
        assert_int_equal(pl_sim_stats(sim)->inactive_split_bytes,
                         rows[i].inactive_split < 0 ? 0 : rows[i].inactive_split);
        pl_sim_destroy(sim);
    }
}

TEST(sizes_are_rounded_by_divisions) {
    static const struct {
        const char *conf;
        uint64_t size, rounded;
    } rows[] = {
        { "", 1, 512 },
        { "", 511, 512 },
        { "", 512, 512 },
        { "", 513, 1024 },
        { "", MIB, MIB },
        { "", MIB + 1, 1049088 },
        { "roundup_power2_divisions:2", 1200, 1536 },
        { "roundup_power2_divisions:4", 1200, 1536 },
        { "roundup_power2_divisions:4", 1100 << 10, 1310720 },
        { "roundup_power2_divisions:8", 1100 << 10, 1179648 },
        { "roundup_power2_divisions:2", 1100 << 10, 1572864 },
        { "roundup_power2_divisions:2", 1200 * MIB, 1610612736 },
        { "roundup_power2_divisions:4", 1200 * MIB, 1342177280 },
        { "roundup_power2_divisions:8", 1200 * MIB, 1342177280 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_alloc_conf c;
        struct pl_err err;
        pl_alloc_conf_init(&c);
        assert_true(pl_alloc_conf_parse(&c, rows[i].conf, &err));
        assert_int_equal(pl_sim_round_size(&c, rows[i].size), rows[i].rounded);
    }
}

/* pytorch#189504: after the event sync of the last retry the pool is not searched again. */
TEST(an_oom_although_the_block_is_free_and_then_none) {
    for (int fixed = 0; fixed < 2; fixed++) {
        struct pl_alloc_conf c;
        pl_alloc_conf_init(&c);
        c.fix189504 = fixed == 1;
        struct pl_sim *sim = pl_sim_create(&c, GIB, 0);
        pl_sim_free(sim, pl_sim_malloc(sim, 900 * MIB, 0, 0), false);
        pl_sim_malloc(sim, 400 * MIB, 0, 0);
        struct pl_sim_block *second = pl_sim_malloc(sim, 450 * MIB, 0, 0);
        pl_sim_record_stream(sim, second, 7);
        pl_sim_free(sim, second, false);
        if (!fixed) assert_null(pl_sim_malloc(sim, 450 * MIB, 0, 0));
        assert_non_null(pl_sim_malloc(sim, 450 * MIB, 0, 0));
        pl_sim_destroy(sim);
    }
}

TEST(a_whole_pending_segment_is_released_in_time) {
    struct pl_sim *sim = sim_with("", GIB, 0);
    struct pl_sim_block *first = pl_sim_malloc(sim, 300 * MIB, 0, 0);
    pl_sim_malloc(sim, 600 * MIB, 0, 0);
    pl_sim_record_stream(sim, first, 7);
    pl_sim_free(sim, first, false);
    assert_non_null(pl_sim_malloc(sim, 300 * MIB, 0, 0));
    pl_sim_destroy(sim);
}

/* Batch sizes 8 to 39, 24 layers: N MiB kept, 4 N for a moment, N/2 kept, all freed after the step. */
TEST(a_growing_batch_under_six_settings) {
    static const struct {
        const char *conf;
        uint64_t large[4], small[4]; /* peak allocated, peak reserved, retries, allocations of the device */
    } rows[] = {
        { "", { 1542, 3360, 0, 43 }, { 1540, 2484, 1, 52 } },
        { "max_split_size_mb:128", { 1542, 3360, 0, 43 }, { 1542, 2532, 0, 43 } },
        { "expandable_segments:True", { 1540, 1560, 0, 58 }, { 1540, 1560, 0, 58 } },
        { "expandable_segments:True,large_segment_size_mb:12", { 1540, 1548, 0, 73 }, { 1540, 1548, 0, 73 } },
        { "roundup_power2_divisions:8", { 1580, 1888, 0, 30 }, { 1580, 1888, 0, 30 } },
        { "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
          { 1542, 3360, 0, 43 },
          { 1540, 1696, 0, 70 } },
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const uint64_t *want = i % 2 == 0 ? rows[i / 2].large : rows[i / 2].small;
        struct pl_sim *sim = sim_with(rows[i / 2].conf, i % 2 == 0 ? 8 * GIB : 5 * GIB / 2, 0);
        for (uint64_t n = 8; n < 40; n++) {
            struct pl_sim_block *live[48];
            for (int k = 0; k < 24; k++) {
                live[2 * k] = pl_sim_malloc(sim, n * MIB, 0, 0);
                pl_sim_free(sim, pl_sim_malloc(sim, 4 * n * MIB, 0, 0), false);
                live[2 * k + 1] = pl_sim_malloc(sim, n * MIB / 2, 0, 0);
            }
            for (int k = 0; k < 48; k++) pl_sim_free(sim, live[k], false);
        }
        const struct pl_sim_stats *s = pl_sim_stats(sim);
        assert_int_equal(mib(s->peak_allocated), want[0]);
        assert_int_equal(mib(s->peak_reserved), want[1]);
        assert_int_equal(s->retries, want[2]);
        assert_int_equal(s->device_allocs, want[3]);
        pl_sim_destroy(sim);
    }
}

static uint64_t falling(void *ctx, uint64_t size, bool expandable) {
    (void)size;
    (void)expandable;
    return *(uint64_t *)ctx -= 0x1000000;
}

TEST(of_two_free_blocks_the_older_segment_or_the_lower_address_is_taken) {
    for (int by_age = 0; by_age < 2; by_age++) {
        struct pl_alloc_conf c;
        uint64_t next = 0x7F0003000000;
        pl_alloc_conf_init(&c);
        c.order_by_age = by_age == 1;
        struct pl_sim *sim = pl_sim_create(&c, GIB, 0);
        pl_sim_set_driver(sim, falling, &next);
        struct pl_sim_block *first = pl_sim_malloc(sim, 20 * MIB, 0, 0),
                            *second = pl_sim_malloc(sim, 20 * MIB, 0, 0);
        pl_sim_free(sim, first, false);
        pl_sim_free(sim, second, false);
        assert_int_equal(pl_sim_address(pl_sim_malloc(sim, 20 * MIB, 0, 0)),
                         by_age ? 0x7F0002000000 : 0x7F0001000000);
        pl_sim_destroy(sim);
    }
}

/* throw_on_cudamalloc_oom: a limit refuses at once, cached memory and the retry chain stay untouched. */
TEST(a_limit_with_throw_on_oom_costs_no_retry) {
    struct pl_sim *sim = sim_with("throw_on_cudamalloc_oom:True", GIB, 0);
    pl_sim_set_limit(sim, 100 * MIB);
    pl_sim_free(sim, pl_sim_malloc(sim, 60 * MIB, 0, 0), false);
    assert_null(pl_sim_malloc(sim, 80 * MIB, 0, 0));
    assert_int_equal(pl_sim_stats(sim)->retries, 0);
    assert_int_equal(pl_sim_stats(sim)->reserved, 60 * MIB);
    pl_sim_destroy(sim);
}

RUN(cmocka_unit_test(max_split_with_expandable_grows_as_published),
    cmocka_unit_test(the_first_retry_comes_at_cycle_115_as_on_rocm),
    cmocka_unit_test(memory_of_others_brings_the_first_retry_forward),
    cmocka_unit_test(either_option_alone_stays_small), cmocka_unit_test(the_proposed_fix_ends_the_growth),
    cmocka_unit_test(torchs_own_test_of_max_split_and_expandable),
    cmocka_unit_test(torchs_own_test_of_garbage_collection_and_expandable),
    cmocka_unit_test(one_allocation_on_an_empty_device), cmocka_unit_test(sizes_are_rounded_by_divisions),
    cmocka_unit_test(an_oom_although_the_block_is_free_and_then_none),
    cmocka_unit_test(a_whole_pending_segment_is_released_in_time),
    cmocka_unit_test(a_growing_batch_under_six_settings),
    cmocka_unit_test(of_two_free_blocks_the_older_segment_or_the_lower_address_is_taken),
    cmocka_unit_test(a_limit_with_throw_on_oom_costs_no_retry))
