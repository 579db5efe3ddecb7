#include "snapshot/report.h"

#include "snapshots.h"

#define MIB (UINT64_C(1) << 20)

static void report(const char *name, uint32_t device, const struct pl_snap *since, struct pl_snap **s,
                   struct pl_report *r) {
    char path[600];
    struct pl_err err = { 0 };
    const struct pl_report_options o = {
        .top = 10, .fraction = 1.0, .order = PL_REPLAY_ORDER_GUESS, .since = since
    };
    snprintf(path, sizeof path, "%s/snapshots/%s.pickle", PL_TEST_DATA, name);
    *s = snap_file(path);
    if (!pl_report_make(*s, device, &o, r, &err)) fail_msg("%s: %s", name, err.msg);
}

static void done(struct pl_snap *s, struct pl_report *r) {
    pl_report_free(r);
    pl_snap_destroy(s);
}

static void adds_up(const char *path, const char *name) {
    struct json *facts = snap_facts(path);
    struct pl_snap *s = snap_file(path);
    pl_snap_destroy(s);
    for (uint32_t d = 0; d < 2; d++) {
        struct pl_report r;
        report(name, d, NULL, &s, &r);
        const struct pl_snap_sums *m = &r.sums;
        assert_int_equal(m->reserved, m->allocated + m->pending + m->free);
        assert_int_equal(m->free, m->releasable + m->stuck);
        assert_int_equal(m->active, m->allocated + m->pending);
        assert_int_equal(m->active, m->requested + m->rounding);
        uint64_t pools = 0, streams = 0, holders = 0;
        for (size_t i = 0; i < r.pool_count; i++) pools += r.pools[i].sums.reserved;
        for (size_t i = 0; i < r.stream_count; i++) streams += r.streams[i].sums.reserved;
        for (size_t i = 0; i < r.holder_count; i++) holders += r.holders[i].bytes;
        assert_true(pools == m->reserved && streams == m->reserved && holders <= m->active);
        const struct json *stats = json_get(json_get(facts, "stats_from_torch"), d == 0 ? "0" : "1");
        if (stats != NULL) {
            assert_int_equal(m->reserved, json_get(stats, "reserved_bytes.all.current")->number);
            assert_int_equal(m->allocated, json_get(stats, "allocated_bytes.all.current")->number);
            if (m->expandable_segments == 0) /* torch does not count those */
                assert_int_equal(m->inactive_split,
                                 json_get(stats, "inactive_split_bytes.all.current")->number);
        }
        done(s, &r);
    }
    json_free(facts);
}

TEST(the_parts_of_the_gap_add_up) { each_snapshot("*", adds_up); }

TEST(a_leak_is_the_stack_that_only_rises) {
    struct pl_snap *s;
    struct pl_report r;
    report("steady_leak", 0, NULL, &s, &r);
    assert_int_equal(r.growth_count, 1);
    assert_int_equal(r.growth[0].bytes[3], 60 * MIB);
    const struct pl_snap_frame *f = &s->frames[pl_snap_top_frame(s, r.growth[0].stack)];
    assert_string_equal(pl_snap_text(s, f->name, NULL), "handler_leak");
    assert_int_equal(r.holders[0].bytes, 60 * MIB);
    assert_int_equal(r.peak_reserved, 62 * MIB);
    done(s, &r);
}

TEST(a_cache_that_settled_has_none) {
    struct pl_snap *s;
    struct pl_report r;
    report("plateau_cache", 0, NULL, &s, &r);
    assert_int_equal(r.growth_count, 0);
    assert_int_equal(r.sums.releasable, r.sums.reserved);
    assert_int_equal(r.sums.stuck, 0);
    done(s, &r);
}

TEST(blocks_without_frames_get_those_of_their_event) {
    struct pl_snap *s;
    struct pl_report r;
    report("alloc_ctx", 0, NULL, &s, &r);
    assert_int_equal(r.holders[0].bytes, 60 * MIB);
    assert_int_not_equal(r.holders[0].key, PL_SNAP_NONE);
    done(s, &r);
}

TEST(a_file_without_stacks_or_trace_still_has_its_sums) {
    struct pl_snap *s;
    struct pl_report r;
    report("no_history", 0, NULL, &s, &r);
    assert_int_equal(r.lives.trace.count, 0);
    assert_int_equal(r.peak_event, PL_SNAP_NONE);
    assert_int_equal(r.sums.allocated, 60 * MIB);
    assert_int_equal(r.holders[0].key, PL_SNAP_NONE);
    done(s, &r);
    report("empty", 0, NULL, &s, &r);
    assert_int_equal(r.sums.reserved, 0);
    assert_int_equal(pl_snap_device_count(s), 0);
    done(s, &r);
}

TEST(tags_hold_bytes_and_lose_their_request) {
    struct pl_snap *s;
    struct pl_report r;
    report("user_metadata", 0, NULL, &s, &r);
    assert_int_equal(r.tag_count, 2);
    assert_string_equal(pl_snap_text(s, r.tags[0].key, NULL), "req-2");
    assert_int_equal(r.tags[0].bytes, 5 * MIB);
    done(s, &r);
    assert_int_equal(pl_report_tag_len("/predict|b8|123", 15), 11);
    assert_int_equal(pl_report_tag_len("/predict|b8", 11), 11);
    assert_int_equal(pl_report_tag_len("", 0), 0);
}

TEST(growth_since_an_older_file_names_the_stack) {
    struct pl_snap *old = snap_file(PL_TEST_DATA "/snapshots/plateau_cache.pickle"), *s;
    struct pl_report r;
    report("steady_leak", 0, old, &s, &r);
    assert_true(r.has_since && r.since_stacks);
    assert_int_equal(r.since_before, 0);
    assert_int_equal(r.since_now, 60 * MIB);
    assert_int_equal(r.since_count, 1);
    assert_int_equal(r.since[0].now, 60 * MIB);
    pl_report_free(&r);
    pl_snap_destroy(old);
    struct pl_snap *again;
    report("steady_leak", 0, s, &again, &r); /* the same file: nothing grew */
    assert_int_equal(r.since_count, 0);
    assert_int_equal(r.since_before, r.since_now);
    done(again, &r);
    pl_snap_destroy(s);
}

TEST(what_pins_a_segment_is_named) {
    struct pl_snap *s;
    struct pl_report r;
    report("max_split", 0, NULL, &s, &r);
    assert_int_equal(r.stuck[0].stuck, 24 * MIB);
    assert_int_equal(s->blocks[r.stuck[0].block].size, 60 * MIB);
    uint64_t total = 0;
    for (size_t i = 0; i < r.stuck_count; i++) total += r.stuck[i].stuck;
    assert_int_equal(total, r.sums.stuck);
    done(s, &r);
}

TEST(a_private_pool_keeps_what_it_has) {
    struct pl_snap *s;
    struct pl_report r;
    report("cuda_graph_pool", 0, NULL, &s, &r);
    assert_int_equal(r.pool_count, 2);
    for (size_t i = 0; i < 2; i++)
        if (r.pools[i].key != 0) assert_int_equal(r.pools[i].sums.releasable, 0);
    done(s, &r);
}

TEST(an_oom_comes_with_the_state_before_it) {
    struct pl_snap *s;
    struct pl_report r;
    report("oom", 0, NULL, &s, &r);
    assert_int_equal(r.oom_count, 1);
    const struct pl_report_oom *o = &r.ooms[0];
    assert_true(o->known);
    assert_int_equal(o->request, 128 * MIB);
    assert_int_equal(o->device_free, 8 * MIB);
    assert_int_equal(o->cached, 0);
    assert_int_equal(o->why, PL_WHY_SHORTAGE);
    done(s, &r);
    report("stress/seed1_900_default", 0, NULL, &s, &r);
    assert_int_equal(r.oom_count, 1);
    assert_true(r.ooms[0].known && r.ooms[0].cached > 0);
    done(s, &r);
}

TEST(expandable_segments_release_whole_pages) {
    struct pl_snap *s;
    struct pl_report r;
    report("expandable_unmap", 0, NULL, &s, &r);
    assert_int_equal(r.sums.segments, 3);
    assert_int_equal(r.sums.expandable_segments, 3);
    assert_int_equal(r.sums.inactive_split, 0);
    assert_int_equal(r.sums.stuck, r.sums.free); /* empty_cache() has just been called */
    done(s, &r);
}

RUN(cmocka_unit_test(the_parts_of_the_gap_add_up), cmocka_unit_test(a_leak_is_the_stack_that_only_rises),
    cmocka_unit_test(a_cache_that_settled_has_none),
    cmocka_unit_test(blocks_without_frames_get_those_of_their_event),
    cmocka_unit_test(a_file_without_stacks_or_trace_still_has_its_sums),
    cmocka_unit_test(tags_hold_bytes_and_lose_their_request),
    cmocka_unit_test(growth_since_an_older_file_names_the_stack),
    cmocka_unit_test(what_pins_a_segment_is_named), cmocka_unit_test(a_private_pool_keeps_what_it_has),
    cmocka_unit_test(an_oom_comes_with_the_state_before_it),
    cmocka_unit_test(expandable_segments_release_whole_pages))
