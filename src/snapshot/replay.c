#include "snapshot/replay.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct pl_sim_block *block; /* NULL: never allocated here, or given back */
    uint64_t ticket;
};
struct run {
    const struct pl_replay_plan *plan;
    const struct pl_snap_event *events;
    struct pl_sim *sim;
    struct slot *slots;
    struct pl_replay_result *out;
    size_t next_call, call_room;
    uint32_t at;
    uint64_t recorded; /* reserved, as recorded */
    bool stop;
};

static bool is_give_back(const struct pl_snap_event *e) {
    return e->action == PL_SNAP_SEGMENT_FREE || e->action == PL_SNAP_SEGMENT_UNMAP;
}
static bool is_taking(const struct pl_snap_event *e) {
    return e->action == PL_SNAP_SEGMENT_ALLOC || e->action == PL_SNAP_SEGMENT_MAP;
}

static uint64_t stream_of(const struct run *r, uint32_t stream) { return r->plan->s->streams[stream]; }

/* The address that the driver gave in the same malloc, so that ties fall as they did. */
static uint64_t recorded_address(void *ctx, uint64_t size, bool expandable) {
    const struct run *r = ctx;
    enum pl_snap_action wanted = expandable ? PL_SNAP_SEGMENT_MAP : PL_SNAP_SEGMENT_ALLOC;
    for (uint32_t i = r->at; i-- > 0;) {
        const struct pl_snap_event *e = &r->events[i];
        if (!is_give_back(e) && !is_taking(e)) return 0;
        if (e->action == wanted && (expandable || e->size == size)) return e->addr;
    }
    return 0;
}

static bool says_empty_cache(const struct pl_snap *s, uint32_t stack) {
    if (stack >= s->stack_count) return false;
    const struct pl_snap_stack *x = &s->stacks[stack];
    for (uint64_t i = x->first; i < x->first + x->count; i++)
        if (strcmp(pl_snap_text(s, s->frames[s->frame_ids[i]].name, NULL), "empty_cache") == 0) return true;
    return false;
}

/* Was the run of segment_free/unmap that begins at i a call of empty_cache()? Inside a malloc the same events
 * come from garbage collection or the retry chain; so it was, when no allocation follows or the one that does
 * had no need of it. */
static bool empties_cache(struct run *r, uint32_t i) {
    uint32_t count = r->plan->lives->trace.count;
    if (says_empty_cache(r->plan->s, r->events[i].stack)) return true;
    while (i < count && is_give_back(&r->events[i])) i++;
    while (i < count && is_taking(&r->events[i])) i++;
    if (i == count) return true;
    const struct pl_snap_event *e = &r->events[i];
    if (e->action != PL_SNAP_ALLOC && e->action != PL_SNAP_OOM) return true;
    return !pl_sim_would_release(r->sim, e->size, stream_of(r, e->stream),
                                 pl_snap_pool_of(r->plan->s, r->plan->lives->device, e));
}

static bool note_call(struct run *r, uint32_t i) {
    struct pl_replay_result *out = r->out;
    if (out->cache_call_count == r->call_room) {
        size_t room = r->call_room < 16 ? 16 : r->call_room * 2;
        uint32_t *p = realloc(out->cache_calls, room * sizeof *p);
        if (p == NULL) return false;
        out->cache_calls = p;
        r->call_room = room;
    }
    out->cache_calls[out->cache_call_count++] = i;
    return true;
}

static bool give_back(struct run *r, uint32_t i) {
    const struct pl_replay_plan *p = r->plan;
    bool call;
    if (p->baseline) {
        bool first = i == 0 || !is_give_back(&r->events[i - 1]);
        call = first && empties_cache(r, i);
        if (call && !note_call(r, i)) return false;
    } else {
        while (r->next_call < p->cache_call_count && p->cache_calls[r->next_call] < i) r->next_call++;
        call = r->next_call < p->cache_call_count && p->cache_calls[r->next_call] == i;
    }
    if (call) pl_sim_empty_cache(r->sim);
    return true;
}

static void compare(struct run *r) {
    uint64_t reserved = pl_sim_stats(r->sim)->reserved;
    uint64_t off = reserved > r->recorded ? reserved - r->recorded : r->recorded - reserved;
    if (off > r->out->worst_off) r->out->worst_off = off;
}

static void allocate(struct run *r, uint32_t i, const struct pl_snap_event *e) {
    const struct pl_replay_plan *p = r->plan;
    uint16_t pool = pl_snap_pool_of(p->s, p->lives->device, e);
    struct pl_sim_block *b = pl_sim_malloc(r->sim, e->size, stream_of(r, e->stream), pool);
    if (b == NULL) {
        if (e->action == PL_SNAP_ALLOC && r->out->first_oom == PL_SNAP_NONE) r->out->first_oom = i;
        r->stop |= p->stop_at_oom && e->action == PL_SNAP_ALLOC;
    } else if (e->action == PL_SNAP_OOM) { /* it fits here: nothing in the trace will free it */
        r->out->would_fit++;
        pl_sim_free(r->sim, b, false);
    } else {
        r->slots[p->lives->of[i]].block = b;
    }
    r->stop |= p->stop_at_retry && pl_sim_stats(r->sim)->retries > 0;
    compare(r);
}

static void free_one(struct run *r, uint32_t i) {
    uint32_t id = r->plan->lives->of[i];
    if (id == PL_SNAP_NONE) return;
    const struct pl_snap_life *life = &r->plan->lives->at[id];
    struct slot *slot = &r->slots[id];
    if (slot->block == NULL) return;
    if (life->freed == i) {
        bool pending =
            r->events[i].action == PL_SNAP_FREE_REQUESTED && life->completed != i + 1 && life->completed != i;
        slot->ticket = pl_sim_free(r->sim, slot->block, pending);
        if (slot->ticket == 0) slot->block = NULL;
    } else if (life->completed == i) {
        pl_sim_complete(r->sim, slot->block, slot->ticket);
        slot->block = NULL;
    }
}

static bool one_event(struct run *r, uint32_t i) {
    const struct pl_snap_event *e = &r->events[i];
    r->at = i;
    if (r->plan->watch != NULL && !r->plan->watch(r->plan->watch_ctx, r->sim, i)) {
        r->stop = true;
        return true;
    }
    switch (e->action) {
    case PL_SNAP_ALLOC:
    case PL_SNAP_OOM:
        allocate(r, i, e);
        return true;
    case PL_SNAP_FREE_REQUESTED:
    case PL_SNAP_FREE_COMPLETED:
        free_one(r, i);
        return true;
    case PL_SNAP_SEGMENT_FREE:
    case PL_SNAP_SEGMENT_UNMAP:
        r->recorded -= e->size;
        return give_back(r, i);
    case PL_SNAP_SEGMENT_ALLOC:
    case PL_SNAP_SEGMENT_MAP:
        r->recorded += e->size;
        return true;
    default:
        return true;
    }
}

/* What was live before the trace, lowest address first. */
static bool start(struct run *r) {
    const struct pl_snap_lives *l = r->plan->lives;
    for (size_t i = 0; i < l->before; i++) {
        r->slots[i].block =
            pl_sim_malloc(r->sim, l->at[i].size, stream_of(r, l->at[i].stream), l->at[i].pool);
        if (r->slots[i].block == NULL) return false;
    }
    return true;
}

/* ---- layouts, without addresses ---- */

struct stretch {
    uint64_t stream, size, hash;
};
struct layout {
    struct stretch *at;
    size_t count, room;
};

static bool add_stretch(void *ctx, uint64_t stream, uint64_t size, uint64_t hash) {
    struct layout *l = ctx;
    if (l->count == l->room) {
        size_t room = l->room < 64 ? 64 : l->room * 2;
        struct stretch *p = realloc(l->at, room * sizeof *p);
        if (p == NULL) return false;
        l->at = p;
        l->room = room;
    }
    l->at[l->count++] = (struct stretch){ stream, size, hash };
    return true;
}

static int by_all(const void *a, const void *b) { return memcmp(a, b, sizeof(struct stretch)); }

static bool recorded_layout(const struct run *r, struct layout *l) {
    const struct pl_snap *s = r->plan->s;
    struct pl_snap_trace g = pl_snap_segments_of(s, r->plan->lives->device);
    for (uint32_t i = g.first; i < g.first + g.count; i++) {
        const struct pl_snap_segment *seg = &s->segments[i];
        uint64_t hash = 0;
        for (uint32_t k = seg->first_block; k < seg->first_block + seg->block_count; k++)
            hash = pl_sim_hash_block(hash, s->blocks[k].addr - seg->addr, s->blocks[k].size,
                                     (enum pl_snap_state)s->blocks[k].state);
        if (!add_stretch(l, s->streams[seg->stream], seg->total, hash)) return false;
    }
    return true;
}

static bool compare_layouts(struct run *r) {
    struct layout a = { 0 }, b = { 0 };
    bool ok = recorded_layout(r, &a) && pl_sim_layout(r->sim, add_stretch, &b);
    if (ok && a.count > 0) qsort(a.at, a.count, sizeof *a.at, by_all);
    if (ok && b.count > 0) qsort(b.at, b.count, sizeof *b.at, by_all);
    r->out->same_layout =
        ok && a.count == b.count && (a.count == 0 || memcmp(a.at, b.at, a.count * sizeof *a.at) == 0);
    free(a.at);
    free(b.at);
    return ok;
}

/* ---- the run ---- */

/* Counted back from the end. */
static uint64_t reserved_at_start(const struct pl_snap *s, const struct pl_snap_lives *l, uint64_t *final,
                                  uint64_t *peak) {
    struct pl_snap_trace g = pl_snap_segments_of(s, l->device);
    uint64_t now = 0;
    for (uint32_t i = g.first; i < g.first + g.count; i++) now += s->segments[i].total;
    *final = *peak = now;
    for (uint32_t i = l->trace.count; i-- > 0;) {
        const struct pl_snap_event *e = &s->events[l->trace.first + i];
        if (is_taking(e)) now -= e->size < now ? e->size : now;
        if (is_give_back(e)) now += e->size;
        if (now > *peak) *peak = now;
    }
    return now;
}

static bool run_all(struct run *r) {
    uint64_t final, peak;
    r->recorded = reserved_at_start(r->plan->s, r->plan->lives, &final, &peak);
    if (!start(r)) {
        r->out->start_failed = true;
        return !pl_sim_broken(r->sim);
    }
    for (uint32_t i = 0; i < r->plan->lives->trace.count && !r->stop; i++)
        if (!one_event(r, i)) return false;
    if (pl_sim_broken(r->sim)) return false;
    if (r->stop) return true;
    r->out->releasable = pl_sim_releasable(r->sim);
    r->out->largest_free = pl_sim_largest_free(r->sim);
    return !r->plan->baseline || compare_layouts(r);
}

bool pl_replay(const struct pl_replay_plan *plan, struct pl_replay_result *out, struct pl_err *err) {
    struct run r = { .plan = plan, .out = out };
    *out = (struct pl_replay_result){ .first_oom = PL_SNAP_NONE };
    if (plan->lives->trace.count > 0) r.events = plan->s->events + plan->lives->trace.first;
    r.sim = pl_sim_create(&plan->conf, plan->capacity, plan->other);
    r.slots = calloc(plan->lives->count + 1, sizeof *r.slots);
    bool ok = r.sim != NULL && r.slots != NULL;
    if (ok) {
        if (plan->baseline) pl_sim_set_driver(r.sim, recorded_address, &r);
        if (plan->falling) pl_sim_set_falling(r.sim);
        ok = run_all(&r);
        out->stats = *pl_sim_stats(r.sim);
    }
    pl_sim_destroy(r.sim);
    free(r.slots);
    if (ok) return true;
    pl_replay_result_free(out);
    return PL_FAIL(err, PL_E_NOMEM, "no memory to replay %u events", plan->lives->trace.count);
}

void pl_replay_result_free(struct pl_replay_result *r) {
    free(r->cache_calls);
    r->cache_calls = NULL;
    r->cache_call_count = 0;
}

/* ---- fidelity ---- */

static void recorded_facts(const struct pl_snap *s, const struct pl_snap_lives *l,
                           struct pl_replay_fidelity *f) {
    static const enum pl_snap_action actions[PL_SIM_SEGMENT_KINDS] = {
        PL_SNAP_SEGMENT_ALLOC, PL_SNAP_SEGMENT_FREE, PL_SNAP_SEGMENT_MAP, PL_SNAP_SEGMENT_UNMAP
    };
    f->recorded_start = reserved_at_start(s, l, &f->recorded_final, &f->recorded_peak);
    for (size_t i = 0; i < PL_SIM_SEGMENT_KINDS; i++) f->recorded_events[i] = l->counts[actions[i]];
    f->recorded_ooms = l->counts[PL_SNAP_OOM];
}

/* The largest reserved + free at an oom: others may hold memory too, so the device is at least that large. */
static uint64_t capacity_of_ooms(const struct pl_snap *s, const struct pl_snap_lives *l, uint64_t at_start) {
    uint64_t now = at_start, most = 0;
    for (uint32_t i = 0; i < l->trace.count; i++) {
        const struct pl_snap_event *e = &s->events[l->trace.first + i];
        if (is_taking(e)) now += e->size;
        if (is_give_back(e)) now -= e->size < now ? e->size : now;
        if (e->action == PL_SNAP_OOM && e->addr <= PL_SNAP_MOST_BYTES && now + e->addr > most)
            most = now + e->addr;
    }
    return most;
}

static void judge(const struct pl_snap_lives *l, const struct pl_replay_result *r,
                  struct pl_replay_fidelity *f) {
    uint64_t peak = f->recorded_peak > 0 ? f->recorded_peak : 1;
    bool events = memcmp(f->recorded_events, r->stats.segment_events, sizeof f->recorded_events) == 0;
    f->off = (double)r->worst_off / (double)peak;
    f->l0_share = pl_snap_lives_wrapped(l) ? (double)l->before_bytes / (double)peak : 0;
    f->exact = r->same_layout && events && r->worst_off == 0 && r->stats.peak_reserved == f->recorded_peak &&
               r->stats.reserved == f->recorded_final && r->stats.ooms == f->recorded_ooms;
    f->trusted = l->trace.count > 0 && !r->start_failed && f->off <= PL_REPLAY_GATE &&
                 f->l0_share <= PL_REPLAY_MOST_L0;
}

static bool better(const struct pl_replay_fidelity *a, const struct pl_replay_result *ra,
                   const struct pl_replay_fidelity *b, const struct pl_replay_result *rb) {
    if (a->exact != b->exact) return a->exact;
    if (ra->same_layout != rb->same_layout) return ra->same_layout;
    return a->off < b->off;
}

bool pl_replay_baseline(const struct pl_snap *s, const struct pl_snap_lives *lives,
                        const struct pl_alloc_conf *conf, int order, uint64_t capacity, uint64_t other,
                        struct pl_replay_fidelity *f, struct pl_replay_result *out, struct pl_err *err) {
    *f = (struct pl_replay_fidelity){ .capacity = capacity, .other = other, .capacity_known = capacity > 0 };
    recorded_facts(s, lives, f);
    if (capacity > 0 && f->recorded_peak > capacity - (other < capacity ? other : capacity)) {
        capacity = 0; /* more was held than that device has: it was recorded on a larger one */
        f->larger = true;
        f->capacity_known = false;
    }
    if (capacity == 0) {
        f->capacity = capacity_of_ooms(s, lives, f->recorded_start);
        f->other = 0; /* it is not in that sum */
        if (f->capacity == 0) f->capacity = PL_REPLAY_ENDLESS;
    }
    struct pl_replay_plan plan = {
        .s = s, .lives = lives, .conf = *conf, .capacity = f->capacity, .other = f->other, .baseline = true
    };
    plan.conf.order_by_age =
        order == PL_REPLAY_ORDER_GUESS ? pl_snap_orders_by_age(s) : order == PL_REPLAY_ORDER_AGE;
    f->order_by_age = plan.conf.order_by_age;
    if (!pl_replay(&plan, out, err)) return false;
    judge(lives, out, f);
    if (f->exact || order != PL_REPLAY_ORDER_GUESS) return true;
    struct pl_replay_fidelity f2 = *f;
    struct pl_replay_result out2;
    plan.conf.order_by_age = f2.order_by_age = !f->order_by_age;
    if (!pl_replay(&plan, &out2, err)) {
        pl_replay_result_free(out);
        return false;
    }
    judge(lives, &out2, &f2);
    bool take = better(&f2, &out2, f, out);
    pl_replay_result_free(take ? out : &out2);
    if (take) {
        *f = f2;
        *out = out2;
    }
    return true;
}
