/* test_torture_snapshot.c - no memory, at every place between a snapshot's bytes and what is said of it. */
#include "torture.h"

#include "snapshot/report.h"
#include "snapshot/whatif.h"
#include "snapshots.h"

/* Reads, reports and replays; false with err. What it counted is in `sum`, so that nothing can be lost
 * quietly. */
static bool work(const struct bytes *b, uint64_t *sum, struct pl_err *err) {
    static const struct pl_snap_limits limits = { .memory_bytes = 64 << 20, .seed = 7 };
    const struct pl_report_options o = { .top = 5, .fraction = 1.0, .order = PL_REPLAY_ORDER_GUESS };
    struct pl_snap_reader *reader = pl_snap_reader_create(&limits);
    if (reader == NULL) return PL_FAIL(err, PL_E_NOMEM, "no reader");
    if (!pl_snap_reader_feed(reader, b->at, b->len, err)) {
        pl_snap_reader_destroy(reader);
        return false;
    }
    struct pl_snap *s = pl_snap_reader_finish(reader, err);
    struct pl_report r = { 0 };
    struct pl_alloc_conf conf;
    struct pl_replay_fidelity f;
    struct pl_replay_result base = { 0 };
    struct pl_whatif_row row;
    if (s == NULL) return false;
    bool ok = pl_report_make(s, 0, &o, &r, err);
    if (ok) {
        pl_alloc_conf_recorded(s, &conf);
        ok = pl_replay_baseline(s, &r.lives, &conf, PL_REPLAY_ORDER_GUESS, 0, 0, &f, &base, err);
    }
    struct pl_whatif what = {
        .s = s, .lives = &r.lives, .fidelity = &f, .baseline = &base, .capacity = UINT64_C(1) << 30
    };
    ok = ok && pl_whatif_row(&what, "expandable_segments:True", NULL, &row, err);
    if (ok)
        *sum = s->event_count + s->stack_count + s->string_count + r.sums.reserved + r.sums.active +
               r.holder_count + r.pool_count + r.oom_count;
    pl_replay_result_free(&base);
    pl_report_free(&r);
    pl_snap_destroy(s);
    return ok;
}

static void tortured(const char *name) {
    char path[600];
    uint64_t whole = 0, sum;
    snprintf(path, sizeof path, "%s/snapshots/%s.pickle", PL_TEST_DATA, name);
    struct bytes b = file_bytes(path);
    for (torture_begin(); torture_goes_on();) {
        struct pl_err err = { 0 };
        sum = 0;
        bool ok = work(&b, &sum, &err);
        torture_ends();
        if (!ok) torture_failed(&err);
        if (ok && whole == 0) whole = sum;
        if (ok) assert_int_equal(sum, whole);
    }
    free(b.at);
}

TEST(a_snapshot_of_two_devices) { tortured("two_devices"); }
TEST(a_snapshot_with_pools_of_graphs) { tortured("cuda_graph_pool"); }

RUN(cmocka_unit_test(a_snapshot_of_two_devices), cmocka_unit_test(a_snapshot_with_pools_of_graphs))
