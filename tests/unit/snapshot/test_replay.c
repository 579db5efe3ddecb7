/* Every recorded trace of the real allocator, block for block; every what-if pair of the stress traces. */
#include <stdio.h>

#include "snapshot/whatif.h"
#include "snapshots.h"

#define MIB (UINT64_C(1) << 20)
enum { CARD_MIB = 40442 };

struct replayed {
    struct pl_snap *s;
    struct pl_snap_lives lives;
    struct pl_replay_fidelity f;
    struct pl_replay_result base;
};

static void replay(const char *path, uint32_t device, uint64_t capacity, double fraction,
                   struct replayed *r) {
    struct pl_err err;
    struct pl_alloc_conf conf;
    r->s = snap_file(path);
    assert_true(pl_snap_lives_make(r->s, device, &r->lives, &err));
    pl_alloc_conf_recorded(r->s, &conf);
    conf.fraction = fraction;
    assert_true(pl_replay_baseline(r->s, &r->lives, &conf, PL_REPLAY_ORDER_GUESS, capacity, 0, &r->f,
                                   &r->base, &err));
}

static void done(struct replayed *r) {
    pl_replay_result_free(&r->base);
    pl_snap_lives_free(&r->lives);
    pl_snap_destroy(r->s);
}

static double stat(const struct json *facts, uint32_t device, const char *name) {
    char key[16];
    const struct json *stats = json_get(facts, "stats_from_torch");
    snprintf(key, sizeof key, "%u", device);
    const struct json *one = json_get(stats, key);
    return json_get(one != NULL ? one : stats, name)->number;
}

static void is_exact(const char *path, const char *name) {
    if (strncmp(name, "no_history", 10) == 0 || strcmp(name, "ring_overflow") == 0) return;
    struct json *facts = snap_facts(path);
    struct pl_snap *s = snap_file(path);
    size_t devices = s->trace_count;
    pl_snap_destroy(s);
    for (uint32_t device = 0; device < devices; device++) {
        struct replayed r;
        replay(path, device, strcmp(name, "oom") == 0 ? 1024 * MIB : CARD_MIB * MIB, 1.0, &r);
        if (!r.f.exact)
            fail_msg("%s device %u: off %f, same blocks %d", name, device, r.f.off, r.base.same_layout);
        assert_int_equal(r.base.stats.ooms, stat(facts, device, "num_ooms"));
        assert_int_equal(r.base.stats.retries, stat(facts, device, "num_alloc_retries"));
        assert_int_equal(r.base.stats.allocated, stat(facts, device, "allocated_bytes.all.current"));
        assert_int_equal(r.base.stats.inactive_split_bytes,
                         stat(facts, device, "inactive_split_bytes.all.current"));
        assert_int_equal(r.f.order_by_age, strstr(name, "_t280") == NULL);
        done(&r);
    }
    json_free(facts);
}

TEST(every_complete_trace_replays_exactly) { each_snapshot("*", is_exact); }

static double number(const struct json *facts, const char *name, double otherwise) {
    const struct json *j = json_get(facts, name);
    return j != NULL && j->kind == JSON_NUMBER ? j->number : otherwise;
}

static void is_exact_under_stress(const char *path, const char *name) {
    struct json *facts = snap_facts(path);
    struct replayed r;
    replay(path, 0, (uint64_t)number(facts, "capacity_mib", 0) * MIB, number(facts, "fraction", 1.0), &r);
    if (!r.f.exact) fail_msg("%s: off %f", name, r.f.off);
    assert_int_equal(r.base.stats.peak_reserved, stat(facts, 0, "reserved_bytes.all.peak"));
    assert_int_equal(r.base.stats.retries, stat(facts, 0, "num_alloc_retries"));
    assert_int_equal(r.base.stats.inactive_split_bytes, stat(facts, 0, "inactive_split_bytes.all.current"));
    done(&r);
    json_free(facts);
}

TEST(every_stress_trace_replays_exactly) { each_snapshot("stress/*", is_exact_under_stress); }

/* The text of a target, with the fraction its process had. */
static void conf_of(const struct json *facts, char *out, size_t room) {
    double fraction = number(facts, "fraction", 1.0);
    snprintf(out, room, "%s", json_str(facts, "conf"));
    if (fraction < 1.0)
        snprintf(out + strlen(out), room - strlen(out), ",per_process_memory_fraction:%.2f", fraction);
}

static struct pl_whatif whatif_of(const struct replayed *r, uint64_t capacity) {
    return (struct pl_whatif){
        .s = r->s, .lives = &r->lives, .fidelity = &r->f, .baseline = &r->base, .capacity = capacity
    };
}

static struct replayed *from;
static const char *from_name;

static void predicts(const char *path, const char *name) {
    struct json *facts = snap_facts(path);
    struct pl_whatif w = whatif_of(from, 2048 * MIB);
    struct pl_whatif_row row;
    struct pl_err err;
    char conf[200];
    conf_of(facts, conf, sizeof conf);
    assert_true(pl_whatif_row(&w, conf, NULL, &row, &err));
    if (row.run.stats.peak_reserved != (uint64_t)stat(facts, 0, "reserved_bytes.all.peak"))
        fail_msg("%s -> %s: %llu", from_name, name, (unsigned long long)row.run.stats.peak_reserved);
    json_free(facts);
}

static void predicts_all(const char *path, const char *name) {
    struct json *facts = snap_facts(path);
    struct replayed r;
    replay(path, 0, 2048 * MIB, number(facts, "fraction", 1.0), &r);
    from = &r;
    from_name = name;
    each_snapshot("stress/seed1_2048_*", predicts);
    done(&r);
    json_free(facts);
}

TEST(a_trace_under_one_setting_predicts_the_peak_of_every_other) {
    each_snapshot("stress/seed1_2048_*", predicts_all);
}

static size_t allocations_before(const struct pl_snap *s, uint32_t event) {
    size_t count = 0;
    for (uint32_t i = 0; i < event; i++)
        count += s->events[i].action == PL_SNAP_ALLOC || s->events[i].action == PL_SNAP_OOM;
    return count;
}

static uint32_t first_oom(const struct pl_snap *s) {
    for (uint32_t i = 0; i < s->traces[0].count; i++)
        if (s->events[i].action == PL_SNAP_OOM) return i;
    return PL_SNAP_NONE;
}

/* The trace of the large device tells which allocation the small one will refuse. */
static void predicts_smaller(const char *path, const char *name) {
    char small_path[600], conf[200];
    const char *at = strstr(path, "_2048_");
    snprintf(small_path, sizeof small_path, "%.*s_900_%s", (int)(at - path), path, at + strlen("_2048_"));
    struct json *facts = snap_facts(path), *target = snap_facts(small_path);
    struct pl_snap *small = snap_file(small_path);
    struct replayed r;
    struct pl_whatif_row row;
    struct pl_err err;
    replay(path, 0, 2048 * MIB, number(facts, "fraction", 1.0), &r);
    struct pl_whatif w = whatif_of(&r, 900 * MIB);
    conf_of(facts, conf, sizeof conf);
    assert_true(pl_whatif_row(&w, conf, NULL, &row, &err));
    uint32_t measured = first_oom(small), got = row.run.first_oom;
    if ((measured == PL_SNAP_NONE) != (got == PL_SNAP_NONE))
        fail_msg("%s: one of both ran out of memory", name);
    if (got != PL_SNAP_NONE)
        assert_int_equal(allocations_before(r.s, got), allocations_before(small, measured));
    assert_int_equal(row.run.stats.peak_reserved, stat(target, 0, "reserved_bytes.all.peak"));
    pl_snap_destroy(small);
    done(&r);
    json_free(facts);
    json_free(target);
}

TEST(a_large_device_predicts_the_first_oom_of_a_small_one) {
    each_snapshot("stress/seed1_2048_*", predicts_smaller);
}

/* MiB as in the table of the allocator's specification. */
TEST(the_grid_of_the_max_split_trace) {
    static const struct {
        const char *conf;
        double reserved, allocated, releasable, largest, calls, least, calm;
    } rows[] = {
        { "", 1204, 526.5, 784, 200, 30, 602, 1204 },
        { "expandable_segments:True", 786, 517.5, 302, 200, 25, 622, 786 },
        { "expandable_segments:True,large_segment_size_mb:12", 786, 517.5, 362, 200, 30, 602, 786 },
        { "max_split_size_mb:64", 1264, 526.5, 868, 200, 31, 590, 1054 },
        { "max_split_size_mb:128", 1204, 526.5, 784, 200, 30, 602, 1204 },
        { "max_split_size_mb:256", 1204, 526.5, 784, 200, 30, 602, 1204 },
        { "max_split_size_mb:512", 1204, 526.5, 784, 200, 30, 602, 1204 },
        { "roundup_power2_divisions:2", 1318, 618, 848, 256, 29, 754, 1318 },
        { "roundup_power2_divisions:4", 1284, 561.5, 782, 224, 31, 634, 1284 },
        { "roundup_power2_divisions:8", 1230, 540, 794, 208, 30, 682, 1230 },
    };
    struct replayed r;
    struct pl_err err;
    struct pl_whatif_row got[10];
    enum pl_whatif_advice by;
    replay(PL_TEST_DATA "/snapshots/max_split.pickle", 0, CARD_MIB * MIB, 1.0, &r);
    struct pl_whatif w = whatif_of(&r, CARD_MIB * MIB);
    w.bisect = true;
    for (size_t i = 0; i < 10; i++) {
        assert_true(pl_whatif_row(&w, rows[i].conf, NULL, &got[i], &err));
        const struct pl_sim_stats *m = &got[i].run.stats;
        assert_true((double)m->peak_reserved == rows[i].reserved * 1048576 &&
                    (double)m->peak_allocated == rows[i].allocated * 1048576);
        assert_true((double)got[i].run.releasable == rows[i].releasable * 1048576 &&
                    (double)got[i].run.largest_free == rows[i].largest * 1048576);
        assert_true((double)(m->device_allocs + m->device_frees) == rows[i].calls);
        assert_true((double)got[i].min_capacity == rows[i].least * 1048576 &&
                    (double)got[i].min_calm == rows[i].calm * 1048576);
    }
    assert_int_equal(pl_whatif_choose(&w, got, 10, 4, &by),
                     1); /* least capacity: nothing by 2 %; without retries: expandable */
    assert_int_equal(by, PL_ADVICE_CALM);
    done(&r);
}

TEST(the_bad_mix_is_never_advised) {
    struct replayed r;
    struct pl_err err;
    struct pl_whatif_row rows[3];
    enum pl_whatif_advice by;
    replay(PL_TEST_DATA "/snapshots/stress/seed1_2048_roundup.pickle", 0, 2048 * MIB, 1.0, &r);
    struct pl_whatif w = whatif_of(&r, 2048 * MIB);
    static const char *const texts[] = { "roundup_power2_divisions:4",
                                         "max_split_size_mb:64,expandable_segments:True",
                                         "garbage_collection_threshold:0.6" };
    for (size_t i = 0; i < 3; i++) assert_true(pl_whatif_row(&w, texts[i], NULL, &rows[i], &err));
    assert_true(rows[1].high_peak < rows[0].high_peak && rows[2].high_peak < rows[0].high_peak);
    assert_int_equal(pl_whatif_choose(&w, rows, 3, 0, &by), 0);
    done(&r);
}

TEST(a_wrapped_ring_gives_no_advice) {
    struct replayed r;
    replay(PL_TEST_DATA "/snapshots/ring_overflow.pickle", 0, CARD_MIB * MIB, 1.0, &r);
    assert_int_equal(r.lives.before, 1);
    assert_true(pl_snap_lives_wrapped(&r.lives));
    assert_false(r.f.exact);
    done(&r);
}

TEST(an_oom_tells_how_large_the_device_is_at_least) {
    struct replayed r;
    replay(PL_TEST_DATA "/snapshots/oom.pickle", 0, 0, 1.0, &r);
    assert_false(r.f.capacity_known);
    assert_int_equal(r.f.capacity, 1024 * MIB);
    assert_true(r.f.exact);
    done(&r);
}

RUN(cmocka_unit_test(every_complete_trace_replays_exactly),
    cmocka_unit_test(every_stress_trace_replays_exactly),
    cmocka_unit_test(a_trace_under_one_setting_predicts_the_peak_of_every_other),
    cmocka_unit_test(a_large_device_predicts_the_first_oom_of_a_small_one),
    cmocka_unit_test(the_grid_of_the_max_split_trace), cmocka_unit_test(the_bad_mix_is_never_advised),
    cmocka_unit_test(a_wrapped_ring_gives_no_advice),
    cmocka_unit_test(an_oom_tells_how_large_the_device_is_at_least))
