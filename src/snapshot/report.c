#include "snapshot/report.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/holders.h"

static int by_reserved(const void *a, const void *b) {
    const struct pl_report_part *x = a, *y = b;
    if (x->sums.reserved != y->sums.reserved) return x->sums.reserved < y->sums.reserved ? 1 : -1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Sums by pool or by stream. */
static bool parts(const struct pl_snap *s, uint32_t device, bool by_pool, struct pl_report_part **out,
                  size_t *count) {
    size_t keys = by_pool ? s->pool_count : s->stream_count, n = 0;
    struct pl_snap_trace g = pl_snap_segments_of(s, device);
    struct pl_report_part *p = calloc(keys + 1, sizeof *p);
    uint64_t page = pl_snap_large_page(s);
    if (p == NULL) return false;
    for (uint32_t i = g.first; i < g.first + g.count; i++)
        pl_snap_measure(s, &s->segments[i], page,
                        &p[by_pool ? s->segments[i].pool : s->segments[i].stream].sums);
    for (size_t i = 0; i < keys; i++) {
        if (p[i].sums.segments == 0) continue;
        p[n] = p[i];
        p[n++].key = (uint32_t)i;
    }
    qsort(p, n, sizeof *p, by_reserved);
    *out = p;
    *count = n;
    return true;
}

/* ---- over time ---- */

/* The requests are in the trace, what the allocator made of them is not: rounded by the settings. */
static void timeline(const struct pl_snap *s, const struct pl_alloc_conf *conf, struct pl_report *r) {
    const struct pl_snap_lives *l = &r->lives;
    uint64_t reserved = r->sums.reserved, allocated = l->before_bytes;
    uint32_t count = l->trace.count;
    const struct pl_snap_event *events = count > 0 ? s->events + l->trace.first : NULL;
    for (uint32_t i = count; i-- > 0;) {
        uint8_t a = events[i].action;
        if (a == PL_SNAP_SEGMENT_ALLOC || a == PL_SNAP_SEGMENT_MAP)
            reserved -= events[i].size < reserved ? events[i].size : reserved;
        if (a == PL_SNAP_SEGMENT_FREE || a == PL_SNAP_SEGMENT_UNMAP) reserved += events[i].size;
    }
    r->peak_event = PL_SNAP_NONE;
    r->point_count = count < PL_REPORT_POINTS ? count : (size_t)PL_REPORT_POINTS;
    for (uint32_t i = 0; i < count; i++) {
        const struct pl_snap_event *e = &events[i];
        const struct pl_snap_life *life = l->of[i] != PL_SNAP_NONE ? &l->at[l->of[i]] : NULL;
        switch (e->action) {
        case PL_SNAP_SEGMENT_ALLOC:
        case PL_SNAP_SEGMENT_MAP:
            reserved += e->size;
            break;
        case PL_SNAP_SEGMENT_FREE:
        case PL_SNAP_SEGMENT_UNMAP:
            reserved -= e->size < reserved ? e->size : reserved;
            break;
        case PL_SNAP_ALLOC:
            allocated += pl_sim_round_size(conf, e->size);
            break;
        default:
            if (life != NULL && life->freed == i)
                allocated -= life->born == PL_SNAP_NONE ? life->size : pl_sim_round_size(conf, life->size);
        }
        struct pl_report_point *p = &r->points[(uint64_t)i * r->point_count / count];
        if (reserved > p->reserved) p->reserved = reserved;
        if (allocated > p->allocated) p->allocated = allocated;
        p->event = i;
        p->time_us = e->time_us;
        if (reserved > r->peak_reserved) r->peak_reserved = reserved;
        if (allocated > r->peak_allocated || r->peak_event == PL_SNAP_NONE) {
            r->peak_allocated = allocated;
            r->peak_event = i;
        }
    }
}

/* ---- when memory ran out ---- */

struct watch {
    struct pl_report *r;
    size_t next;
};

static bool look(void *ctx, struct pl_sim *sim, uint32_t event) {
    struct watch *w = ctx;
    if (w->next == w->r->oom_count) return true;
    struct pl_report_oom *o = &w->r->ooms[w->next];
    if (o->event != event) return true;
    o->reserved = pl_sim_stats(sim)->reserved;
    o->allocated = pl_sim_stats(sim)->allocated;
    o->cached = pl_sim_free_bytes(sim);
    o->largest_free = pl_sim_largest_free(sim);
    o->releasable = pl_sim_releasable(sim);
    w->next++;
    return true;
}

/* As for the words of an OOM message: would the cached bytes hold it, alone or with the free ones? */
static enum pl_report_why why(const struct pl_report_oom *o, const struct pl_alloc_conf *conf) {
    uint64_t unallocated = o->reserved > o->allocated ? o->reserved - o->allocated : 0;
    if (o->device_free >= pl_sim_segment_size(conf, o->request)) return PL_WHY_LIMIT;
    if (o->request <= unallocated) return PL_WHY_FRAGMENTATION;
    if (o->request <= unallocated + o->device_free) return PL_WHY_PARTLY;
    return PL_WHY_SHORTAGE;
}

static bool find_ooms(const struct pl_snap *s, const struct pl_alloc_conf *conf,
                      const struct pl_report_options *o, struct pl_report *r, struct pl_err *err) {
    size_t all = r->lives.counts[PL_SNAP_OOM], most = all < o->top ? all : o->top;
    struct watch w = { .r = r };
    struct pl_replay_fidelity f;
    struct pl_replay_result base, seen;
    if (most == 0) return true;
    r->ooms = calloc(most, sizeof *r->ooms);
    if (r->ooms == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the report");
    for (uint32_t i = 0; i < r->lives.trace.count && r->oom_count < most; i++) {
        const struct pl_snap_event *e = &s->events[r->lives.trace.first + i];
        if (e->action != PL_SNAP_OOM) continue;
        r->ooms[r->oom_count++] = (struct pl_report_oom){ .event = i,
                                                          .stack = e->stack,
                                                          .tag = e->tag,
                                                          .time_us = e->time_us,
                                                          .request = e->size,
                                                          .device_free = e->addr };
    }
    if (!pl_replay_baseline(s, &r->lives, conf, o->order, o->capacity, o->other, &f, &base, err))
        return false;
    pl_replay_result_free(&base);
    r->oom_trusted = f.trusted;
    struct pl_replay_plan plan = { .s = s,
                                   .lives = &r->lives,
                                   .conf = *conf,
                                   .capacity = f.capacity,
                                   .other = f.other,
                                   .baseline = true,
                                   .watch = look,
                                   .watch_ctx = &w };
    plan.conf.order_by_age = f.order_by_age;
    if (!pl_replay(&plan, &seen, err)) return false;
    pl_replay_result_free(&seen);
    for (size_t i = 0; i < r->oom_count; i++) {
        r->ooms[i].known = f.trusted;
        r->ooms[i].why = why(&r->ooms[i], conf);
    }
    return true;
}

bool pl_report_make(const struct pl_snap *s, uint32_t device, const struct pl_report_options *o,
                    struct pl_report *r, struct pl_err *err) {
    struct pl_alloc_conf conf;
    *r = (struct pl_report){ .device = device, .sums = pl_snap_measure_device(s, device) };
    pl_alloc_conf_recorded(s, &conf);
    if (o->fraction < 1.0) conf.fraction = o->fraction;
    if (!pl_snap_lives_make(s, device, &r->lives, err)) return false;
    timeline(s, &conf, r);
    r->stuck = calloc(o->top + 1, sizeof *r->stuck);
    bool ok = r->stuck != NULL && parts(s, device, true, &r->pools, &r->pool_count) &&
              parts(s, device, false, &r->streams, &r->stream_count) && pl_holders_at_end(s, o->top, r) &&
              pl_holders_at_peak(s, o->top, r) && pl_holders_growth(s, o->top, r);
    if (!ok)
        PL_FAIL(err, PL_E_NOMEM, "no memory for the report");
    else
        r->stuck_count = pl_snap_most_stuck(s, device, r->stuck, o->top);
    ok = ok && (o->since == NULL || pl_holders_since(s, o->since, o->top, r, err)) &&
         find_ooms(s, &conf, o, r, err);
    if (!ok) pl_report_free(r);
    return ok;
}

void pl_report_free(struct pl_report *r) {
    void *const all[] = { r->pools,        r->streams, r->stuck, r->holders, r->tags,
                          r->peak_holders, r->growth,  r->since, r->ooms };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    pl_snap_lives_free(&r->lives);
    *r = (struct pl_report){ 0 };
}
