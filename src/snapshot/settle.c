/* settle.c - the end of reading: traces and segments as the top names them, blocks that really lie in their
 * segments. */
#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"

static bool take_top(struct pl_snap_reader *r, pl_snap_value top, struct pl_err *err) {
    enum pl_snap_tag tag = pl_snap_tag(top);
    if (tag == V_DICT && r->objects[pl_snap_payload(top)].kind == D_TOP && r->top_seen) return true;
    if (tag == V_LIST) { /* torch.cuda.memory_snapshot() of old versions */
        const struct pl_snap_object *o = &r->objects[pl_snap_payload(top)];
        r->t.out->bare_list = true;
        if (o->kind == L_EMPTY) return true;
        r->top_segments = (struct pl_snap_trace){ o->index, o->count };
        if (o->kind == L_SEGMENTS) return true;
    }
    PL_FAIL(err, PL_E_CONFIG, "a pickle, but no memory snapshot: it has no 'segments'");
    return pl_err_hint(err, "torch.cuda.memory._dump_snapshot(\"mem.pickle\") writes one");
}

static bool take_traces(struct pl_snap_reader *r, struct pl_err *err) {
    struct pl_snap *s = r->t.out;
    size_t count = r->top_traces.count;
    if (count == 0) return true;
    s->traces = calloc(count, sizeof *s->traces);
    if (s->traces == NULL) return pl_snap_no_memory(r, err);
    s->trace_count = count;
    for (size_t i = 0; i < count; i++) {
        const struct pl_snap_object *o = &r->objects[r->lists[r->top_traces.first + i]];
        if (o->kind == L_EVENTS)
            s->traces[i] = (struct pl_snap_trace){ o->index, o->count };
        else if (o->kind != L_EMPTY)
            return PL_FAIL(err, PL_E_CONFIG, "the trace of device %zu is no list of events in their order",
                           i);
    }
    return true;
}

/* Addresses of the blocks; up to 2.0 they are the sum of what is before. */
static bool place_blocks(struct pl_snap *s, struct pl_snap_segment *g, struct pl_err *err) {
    uint64_t at = 0, requested = 0;
    for (uint32_t i = 0; i < g->block_count; i++) {
        struct pl_snap_block *b = &s->blocks[g->first_block + i];
        if (b->state != PL_SNAP_INACTIVE) requested += b->requested;
        if (!g->has_addr) continue;
        if (!b->has_addr) b->addr = g->addr + at;
        b->has_addr = true;
        uint64_t offset = b->addr - g->addr;
        if (offset < at || offset > g->total || b->size > g->total - offset) {
            PL_FAIL(err, PL_E_CONFIG, "segment 0x%llx: its block at 0x%llx %s", (unsigned long long)g->addr,
                    (unsigned long long)b->addr,
                    offset < at ? "overlaps the one before" : "goes beyond its end");
            return pl_err_hint(err, "the file is damaged or was not written by PyTorch");
        }
        at = offset + b->size;
    }
    if (!g->has_requested) g->requested = requested;
    return true;
}

static int by_address(const void *a, const void *b) {
    const struct pl_snap_segment *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool check_segments(struct pl_snap *s, struct pl_err *err) {
    uint64_t total = 0;
    bool sorted = true;
    for (size_t i = 0; i < s->segment_count; i++) {
        struct pl_snap_segment *g = &s->segments[i];
        if (g->device < 0 || g->device >= 4096)
            return PL_FAIL(err, PL_E_CONFIG, "segment %zu is on device %d", i, (int)g->device);
        if (!place_blocks(s, g, err)) return false;
        total += g->total;
        if (total > PL_SNAP_MOST_BYTES)
            return PL_FAIL(err, PL_E_CONFIG, "the segments hold more than 1 PiB: the file is damaged");
        if (i > 0 && by_address(g - 1, g) > 0) sorted = false;
    }
    if (!sorted) qsort(s->segments, s->segment_count, sizeof *s->segments, by_address);
    for (size_t i = 1; i < s->segment_count; i++) {
        const struct pl_snap_segment *a = &s->segments[i - 1], *b = &s->segments[i];
        if (a->has_addr && b->has_addr && a->device == b->device && b->addr - a->addr < a->total)
            return PL_FAIL(err, PL_E_CONFIG, "segments 0x%llx and 0x%llx overlap: the file is damaged",
                           (unsigned long long)a->addr, (unsigned long long)b->addr);
    }
    return true;
}

bool pl_snap_settle(struct pl_snap_reader *r, pl_snap_value top, struct pl_err *err) {
    struct pl_snap *s = r->t.out;
    if (!take_top(r, top, err) || !take_traces(r, err)) return false;
    if (r->top_segments.count > 0)
        memmove(s->segments, s->segments + r->top_segments.first,
                r->top_segments.count * sizeof *s->segments);
    s->segment_count = r->top_segments.count; /* others may be segments of the host */
    return check_segments(s, err);
}
