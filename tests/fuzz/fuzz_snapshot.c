/* A memory snapshot as foreign bytes: read in pieces (the first byte is their size), then reported and
 * replayed. What the whole gives must be what the pieces give.
 *
 * USES snapshot base
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/reader.h"
#include "snapshot/report.h"
#include "snapshot/whatif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok) {
    if (!ok) abort();
}

static struct pl_snap *read_in(const uint8_t *data, size_t size, size_t piece, struct pl_err *err) {
    const struct pl_snap_limits limits = { .memory_bytes = 64 << 20, .seed = 3 };
    struct pl_snap_reader *r = pl_snap_reader_create(&limits);
    must(r != NULL);
    for (size_t at = 0; at < size; at += piece) {
        if (pl_snap_reader_feed(r, data + at, size - at < piece ? size - at : piece, err)) continue;
        must(err->msg[0] != '\0');
        pl_snap_reader_destroy(r);
        return NULL;
    }
    return pl_snap_reader_finish(r, err);
}

static void replay(const struct pl_snap *s, const struct pl_report *r) {
    struct pl_err err;
    struct pl_alloc_conf conf;
    struct pl_replay_fidelity f;
    struct pl_replay_result base;
    struct pl_whatif_row row;
    pl_alloc_conf_recorded(s, &conf);
    must(pl_replay_baseline(s, &r->lives, &conf, PL_REPLAY_ORDER_GUESS, 0, 0, &f, &base, &err));
    struct pl_whatif w = {
        .s = s, .lives = &r->lives, .fidelity = &f, .baseline = &base, .capacity = UINT64_C(1) << 30
    };
    static const char *const texts[] = {
        "expandable_segments:True",
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.9,max_split_size_mb:64"
    };
    for (size_t i = 0; i < 2; i++) must(pl_whatif_row(&w, texts[i], NULL, &row, &err));
    pl_replay_result_free(&base);
}

static void use(const struct pl_snap *s) {
    const struct pl_report_options o = {
        .top = 5, .fraction = 1.0, .order = PL_REPLAY_ORDER_GUESS, .since = s
    };
    size_t devices = pl_snap_device_count(s);
    for (uint32_t d = 0; d < devices && d < 3; d++) {
        struct pl_report r;
        struct pl_err err;
        must(pl_report_make(s, d, &o, &r, &err));
        must(r.sums.free == r.sums.releasable + r.sums.stuck);
        must(r.since_before == r.since_now && r.since_count == 0);
        replay(s, &r);
        pl_report_free(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    if (size < 2) return 0;
    struct pl_snap *whole = read_in(data + 1, size - 1, size, &err),
                   *pieces = read_in(data + 1, size - 1, (size_t)data[0] + 1, &err);
    must((whole == NULL) == (pieces == NULL));
    if (whole != NULL) {
        must(whole->event_count == pieces->event_count && whole->stack_count == pieces->stack_count &&
             whole->string_count == pieces->string_count);
        must(whole->event_count == 0 ||
             memcmp(whole->events, pieces->events, whole->event_count * sizeof *whole->events) == 0);
        use(whole);
    }
    pl_snap_destroy(whole);
    pl_snap_destroy(pieces);
    return 0;
}
