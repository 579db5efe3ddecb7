#include "snapshot/lives.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/map.h"

struct walk {
    const struct pl_snap *s;
    const struct pl_snap_event *events;
    struct pl_snap_lives *out;
    struct pl_map here, waiting;
    size_t room;
    enum pl_snap_action done; /* the event that ends a life when walking back */
};

static struct pl_snap_life *add(struct walk *w) {
    struct pl_snap_lives *l = w->out;
    if (l->count == w->room) {
        size_t room = w->room < 64 ? 64 : w->room + w->room / 2;
        struct pl_snap_life *p = l->count < PL_SNAP_NONE ? realloc(l->at, room * sizeof *p) : NULL;
        if (p == NULL) return NULL;
        l->at = p;
        w->room = room;
    }
    struct pl_snap_life *x = &l->at[l->count++];
    *x = (struct pl_snap_life){ .born = PL_SNAP_NONE,
                                .freed = PL_SNAP_NONE,
                                .completed = PL_SNAP_NONE,
                                .stack = PL_SNAP_NONE,
                                .tag = PL_SNAP_NONE };
    return x;
}

static int by_address(const void *a, const void *b) {
    const struct pl_snap_life *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool add_final_blocks(struct walk *w) {
    struct pl_snap_trace g = pl_snap_segments_of(w->s, w->out->device);
    for (uint32_t i = g.first; i < g.first + g.count; i++) {
        const struct pl_snap_segment *seg = &w->s->segments[i];
        for (uint32_t k = 0; seg->has_addr && k < seg->block_count; k++) {
            const struct pl_snap_block *b = &w->s->blocks[seg->first_block + k];
            if (b->state == PL_SNAP_INACTIVE) continue;
            struct pl_snap_life *x = add(w);
            if (x == NULL || !pl_map_put(&w->here, b->addr, (uint32_t)w->out->count - 1)) return false;
            x->addr = b->addr;
            x->size = b->size;
            x->stack = b->stack;
            x->stream = seg->stream;
            x->pool = seg->pool;
        }
    }
    return true;
}

/* The final blocks, back through the trace: what is left was there before it. */
static bool find_before(struct walk *w) {
    struct pl_snap_lives *l = w->out;
    if (!add_final_blocks(w)) return false;
    for (uint32_t i = l->trace.count; i-- > 0;) {
        const struct pl_snap_event *e = &w->events[i];
        if (e->action == PL_SNAP_ALLOC) pl_map_take(&w->here, e->addr);
        if (e->action != w->done) continue;
        struct pl_snap_life *x = add(w);
        if (x == NULL || !pl_map_put(&w->here, e->addr, (uint32_t)l->count - 1)) return false;
        x->addr = e->addr;
        x->size = e->size;
        x->stream = e->stream;
        x->pool = pl_snap_pool_of(w->s, l->device, e);
    }
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (pl_map_get(&w->here, l->at[i].addr) == i) l->at[kept++] = l->at[i];
    l->count = l->before = kept;
    if (kept > 0) qsort(l->at, kept, sizeof *l->at, by_address);
    pl_map_free(&w->here);
    for (size_t i = 0; i < kept; i++) {
        l->before_bytes += l->at[i].size;
        if (!pl_map_put(&w->here, l->at[i].addr, (uint32_t)i)) return false;
    }
    return true;
}

static bool is_born(struct walk *w, uint32_t i, const struct pl_snap_event *e) {
    struct pl_snap_life *x = add(w);
    uint32_t id = (uint32_t)w->out->count - 1;
    if (x == NULL || !pl_map_put(&w->here, e->addr, id)) return false;
    x->addr = e->addr;
    x->size = e->size;
    x->born = i;
    x->stack = e->stack;
    x->tag = e->tag;
    x->stream = e->stream;
    x->pool = pl_snap_pool_of(w->s, w->out->device, e);
    w->out->of[i] = id;
    return true;
}

static bool is_freed(struct walk *w, uint32_t i, const struct pl_snap_event *e) {
    struct pl_snap_lives *l = w->out;
    uint32_t id = pl_map_take(&w->here, e->addr);
    l->of[i] = id;
    if (id == PL_SNAP_NONE) {
        l->unknown_frees++;
        return true;
    }
    l->at[id].freed = i;
    const struct pl_snap_event *next = i + 1 < l->trace.count ? e + 1 : NULL;
    if (next != NULL && next->action == PL_SNAP_FREE_COMPLETED && next->addr == e->addr) {
        l->at[id].completed = i + 1;
        l->of[i + 1] = id;
        return true;
    }
    if (w->done == PL_SNAP_FREE_REQUESTED) {
        l->at[id].completed = i;
        return true;
    }
    return pl_map_put(&w->waiting, e->addr, id);
}

static void is_completed(struct walk *w, uint32_t i, const struct pl_snap_event *e) {
    struct pl_snap_lives *l = w->out;
    if (l->of[i] != PL_SNAP_NONE) return; /* together with its request */
    uint32_t id = pl_map_take(&w->waiting, e->addr);
    if (id == PL_SNAP_NONE) { /* its free_requested fell out of the ring, or was not recorded */
        id = pl_map_take(&w->here, e->addr);
        if (id == PL_SNAP_NONE) return;
        l->at[id].freed = i;
    }
    l->at[id].completed = i;
    l->of[i] = id;
}

static bool walk_on(struct walk *w) {
    for (uint32_t i = 0; i < w->out->trace.count; i++) {
        const struct pl_snap_event *e = &w->events[i];
        if (e->action == PL_SNAP_ALLOC && !is_born(w, i, e)) return false;
        if (e->action == PL_SNAP_FREE_REQUESTED && !is_freed(w, i, e)) return false;
        if (e->action == PL_SNAP_FREE_COMPLETED) is_completed(w, i, e);
    }
    return true;
}

static bool has_pending(const struct pl_snap *s, uint32_t device) {
    struct pl_snap_trace g = pl_snap_segments_of(s, device);
    for (uint32_t i = g.first; i < g.first + g.count; i++)
        for (uint32_t k = 0; k < s->segments[i].block_count; k++)
            if (s->blocks[s->segments[i].first_block + k].state == PL_SNAP_PENDING) return true;
    return false;
}

bool pl_snap_lives_make(const struct pl_snap *s, uint32_t device, struct pl_snap_lives *out,
                        struct pl_err *err) {
    *out = (struct pl_snap_lives){ .trace = pl_snap_trace_of(s, device), .device = device };
    struct walk w = { .s = s, .out = out, .done = PL_SNAP_FREE_COMPLETED };
    if (out->trace.count > 0) w.events = s->events + out->trace.first;
    for (uint32_t i = 0; i < out->trace.count; i++) out->counts[w.events[i].action]++;
    if (out->counts[PL_SNAP_FREE_COMPLETED] == 0 && !has_pending(s, device)) w.done = PL_SNAP_FREE_REQUESTED;
    out->of = malloc(((size_t)out->trace.count + 1) * sizeof *out->of);
    bool ok = out->of != NULL;
    if (ok) memset(out->of, 0xff, ((size_t)out->trace.count + 1) * sizeof *out->of);
    ok = ok && find_before(&w) && walk_on(&w);
    pl_map_free(&w.here);
    pl_map_free(&w.waiting);
    if (ok) return true;
    pl_snap_lives_free(out);
    return PL_FAIL(err, PL_E_NOMEM, "no memory for the %u events of device %u", out->trace.count, device);
}

void pl_snap_lives_free(struct pl_snap_lives *l) {
    free(l->at);
    free(l->of);
    l->at = NULL;
    l->of = NULL;
}

bool pl_snap_lives_wrapped(const struct pl_snap_lives *l) {
    return l->trace.count > 0 && (l->before > 0 || l->unknown_frees > 0);
}
