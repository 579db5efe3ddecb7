/* gap.c - the time in which nobody serves: what is expected of it before it is opened and while it is open,
 * and how long a request may be held in it. */
#include "crew/look.h"
#include "crew/more.h"

enum { STOP_UNKNOWN_MS = 500 };

static bool others_serve(const struct pl_service *s, const struct pl_worker *old) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w != old && w->routable) return true;
    return false;
}

/* 0: others serve, or no boot was ever measured (then gap->boot_ms is 0). `old` may be NULL. */
uint64_t pl_gap_expect(const struct pl_service *s, const struct pl_worker *old, struct pl_gap *gap) {
    const struct pl_service_more *o = s->more;
    uint64_t mean_ms = o->busy_ended > 0 ? o->busy_ms / o->busy_ended : 0;
    *gap = (struct pl_gap){ .drain_ms = pl_drain_expected_ms(old != NULL ? old->in_flight : 0, mean_ms,
                                                             pl_life_drain_ms(s)),
                            .stop_ms = o->stop_ms != 0 ? o->stop_ms : STOP_UNKNOWN_MS,
                            .boot_ms = s->boot_ms };
    return others_serve(s, old) ? 0 : pl_gap_expected_ms(gap);
}

/* The hold, bounded by max_wait; unless somebody has set the hold and left max_wait alone. */
uint64_t pl_gap_hold_ms(const struct pl_service *s) {
    const struct pl_config *c = s->crew->app->config;
    uint64_t hold_ms = pl_hold_ms(s->config->replace_hold_ms, s->boot_ms);
    uint64_t wait_ms = (uint64_t)s->config->traffic_queue_max_wait_ms;
    if (hold_ms <= wait_ms) return hold_ms;
    bool hold_is_set = pl_config_origin(c, s->index, "replace.hold", NULL) != PL_FROM_DEFAULT;
    bool wait_is_set = pl_config_origin(c, s->index, "traffic.queue.max_wait", NULL) != PL_FROM_DEFAULT;
    return hold_is_set && !wait_is_set ? hold_ms : wait_ms;
}

bool pl_gap_stays_ready(const struct pl_service *s, uint64_t expected_ms) {
    if (expected_ms == 0 || expected_ms > pl_gap_hold_ms(s)) return false;
    switch (s->config->replace_ready_while_held) {
    case PL_CFG_REPLACE_READY_WHILE_HELD_TRUE:
        return true;
    case PL_CFG_REPLACE_READY_WHILE_HELD_FALSE:
        return false;
    case PL_CFG_REPLACE_READY_WHILE_HELD_AUTO:
    default:
        return s->crew->app->config->replicas == 1;
    }
}

static uint64_t since(uint64_t now, uint64_t at) { return now > at ? now - at : 0; }

/* Where it is, from the two workers it is about. */
static uint64_t left_ms(const struct pl_service *s, uint64_t now) {
    const struct pl_replacement *r = &s->more->replacement;
    const struct pl_worker *newest = NULL;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->slot != r->slot) continue;
        if (w->generation != 0 && w->generation == r->from_generation) {
            if (w->state == PL_WORKER_DRAINING)
                return pl_gap_left_ms(&r->gap, PL_GAP_DRAIN, since(now, r->gap_from_ms));
            if (w->state == PL_WORKER_STOPPING)
                return pl_gap_left_ms(&r->gap, PL_GAP_STOP, since(now, w->more->stopped_ms));
            if (w->state == PL_WORKER_STUCK) return 0; /* its device may never come back */
        } else if (w->state < PL_WORKER_READY) {
            newest = w;
        }
    }
    return pl_gap_left_ms(&r->gap, PL_GAP_BOOT, newest != NULL ? since(now, newest->more->time.spawned) : 0);
}

bool pl_service_gap(const struct pl_service *s, uint64_t now_ms, struct pl_service_gap *out) {
    const struct pl_replacement *r = &s->more->replacement;
    if (!r->active || r->gap_from_ms == 0 || pl_service_ready_count(s) > 0) return false;
    *out = (struct pl_service_gap){ .left_ms = left_ms(s, now_ms), .hold_ms = pl_gap_hold_ms(s) };
    return true;
}

bool pl_service_ready(const struct pl_service *s) {
    const struct pl_replacement *r = &s->more->replacement;
    if (s->draining) return false;
    if (pl_service_ready_count(s) > 0) return pl_canary_fresh(s, pl_crew_now(s->crew));
    if (!r->active || r->gap_from_ms == 0 || !r->ready_held) return false;
    return since(pl_crew_now(s->crew), r->gap_from_ms) <=
           pl_gap_hold_ms(s); /* later nobody is held any more */
}

void pl_gap_meter(struct pl_service *s, uint64_t now) {
    struct pl_look_replacement l;
    struct pl_metrics *m = s->crew->app->metrics;
    const char *labels[] = { s->config->id };
    if (pl_depend_is(s)) return; /* calls to it wait in its backlog */
    pl_look_replacement(s, now, &l);
    if (l.gap_known && l.expected_gap_ms != 0)
        pl_series_set(pl_series(m, PL_M_REPLACEMENT_GAP_SECONDS, s->config->id),
                      (double)l.expected_gap_ms / 1000);
    else
        pl_metrics_drop(m, PL_M_REPLACEMENT_GAP_SECONDS, labels, 1);
}
