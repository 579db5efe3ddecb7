/* guard.c - once a second: what the facts about each worker ask for. The rules are worker/replace.h and
 * worker/silence.h; what is to be done about it is replace.c's. */
#include "crew/books.h"
#include "crew/explain.h"
#include "crew/look.h"
#include "crew/more.h"
#include "sample/proc.h"

enum { MEAN_OF = 512, RSS_OLD_MS = 5000 };

static const char *const host_kinds[] = { "rss", "anon", "swap", "pss" };

/* Sum of in_flight over time; halved when it grows old, so that the mean follows. */
void pl_guard_busy(struct pl_service *s, int change, uint64_t now) {
    struct pl_service_more *o = s->more;
    if (o->busy_seen_ms != 0 && now > o->busy_seen_ms) o->busy_ms += (now - o->busy_seen_ms) * o->busy;
    o->busy_seen_ms = now;
    if (change > 0) {
        o->busy++;
        o->last_request_ms = now;
        return;
    }
    if (o->busy > 0) o->busy--;
    if (++o->busy_ended < 2 * MEAN_OF) return;
    o->busy_ms /= 2;
    o->busy_ended /= 2;
}

void pl_guard_init(struct pl_service *s) {
    struct pl_metrics *m = s->crew->app->metrics;
    for (int r = 0; r < PL_REPLACE_REASON_COUNT; r++) {
        const char *name = pl_replace_reason_name((enum pl_replace_reason)r);
        if (pl_replace_is((enum pl_replace_reason)r, PL_REPLACE_OURS))
            pl_series(m, PL_M_WOULD_TOTAL, s->config->id, "replace", name);
    }
}

/* --- silence */

static void silence_over(struct pl_worker *w) {
    struct pl_crew *c = w->service->crew;
    if (!w->more->silent_told) return;
    w->more->silent_told = false;
    pl_replace_settled(w, PL_REPLACE_FOR_HANG);
    if (w->routable || !w->more->says_ready) return;
    w->routable = true;
    pl_life_ready_changed(w->service);
    c->hooks.supply_changed(c->hooks.ctx, w->service);
}

/* It gets no more requests, whatever the mode: what is sent to it has no answer. */
static void tell_silence(struct pl_worker *w, uint64_t silent_ms) {
    struct pl_crew *c = w->service->crew;
    if (w->more->silent_told) return;
    w->more->silent_told = true;
    pl_log(c->app->log, PL_ERROR, "worker.silent", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_INT("silent_ms", silent_ms),
           F_INT("in_flight", w->in_flight));
    w->routable = false;
    c->hooks.unroutable(c->hooks.ctx, w);
    pl_life_ready_changed(w->service);
}

static void look_for_silence(struct pl_worker *w, uint64_t now) {
    struct pl_worker_more *o = w->more;
    const struct pl_service_config *c = w->service->config;
    struct pl_page_counters p = { 0 };
    pl_page_counters(&w->page, &p);
    bool owes = w->in_flight > 0 || o->probe != NULL || o->silence.unanswered > 0;
    uint64_t silent = pl_silence_look(&o->silence, p.progress, owes, now);
    if (silent < pl_silent_after_ms(c->liveness_silent_after_ms, c->traffic_timeout_ms)) {
        silence_over(w);
        return;
    }
    tell_silence(w, silent);
    pl_replace_propose(w, PL_REPLACE_FOR_HANG, silent);
}

/* --- handlers that never end, memory, age in requests */

static void look_for_zombies(struct pl_worker *w) {
    const struct pl_service_config *c = w->service->config;
    int64_t most = c->replace_zombies != PL_CFG_AUTO ? c->replace_zombies : c->threads;
    if (w->more->silent_told) return;
    if (w->more->zombies > most)
        pl_replace_propose(w, PL_REPLACE_FOR_HANG, 0);
    else
        pl_replace_settled(w, PL_REPLACE_FOR_HANG);
}

static void look_at_memory(struct pl_worker *w, uint64_t now) {
    const struct pl_host_use *u = &w->more->host;
    const struct pl_service *s = w->service;
    struct pl_look_host l;
    if (!pl_look_host(w, &l) || now - u->seen_ms > RSS_OLD_MS) return;
    const uint64_t values[] = { u->rss, u->anon, u->swap, u->pss };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i] != PL_PROC_UNKNOWN)
            pl_series_set(pl_series(s->crew->app->metrics, PL_M_HOST_MEMORY_BYTES, s->config->id,
                                    pl_worker_label(w), host_kinds[i]),
                          (double)values[i]);
    if (l.limit == 0) return;
    if (u->anon + u->swap >= l.limit) {
        pl_explain_propose(w, "host_rss");
        pl_replace_propose(w, PL_REPLACE_FOR_HOST_RSS, 0);
    } else if (u->anon + u->swap < l.limit - l.limit / 10) {
        pl_explain_settled(w, "host_rss");
        pl_replace_settled(w, PL_REPLACE_FOR_HOST_RSS);
    }
}

/* Observed only, it is asked again after as many requests more: as often as it would have happened. */
static void look_at_requests(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    if (o->max_requests == 0 || w->served - o->would_requests < o->max_requests) return;
    pl_replace_propose(w, PL_REPLACE_FOR_MAX_REQUESTS, 0);
    if ((o->would_told & 1u << PL_REPLACE_FOR_MAX_REQUESTS) == 0) return;
    o->would_requests = w->served;
    pl_replace_settled(w, PL_REPLACE_FOR_MAX_REQUESTS);
}

/* A dependency is judged by its memory alone: its requests do not pass through us. */
void pl_guard_tick(struct pl_crew *c, uint64_t now) {
    if (c->stopping || c->frozen) return;
    pl_host_tick(c, now);
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        if (!s->more->replacement.waiting) s->more->plan.is = false;
        /* A server that somebody else runs is not ours to judge. A command has no page: while it answers no
         * probe it may still stream, so that its silence proves nothing. */
        bool ours = s->kind != PL_KIND_REMOTE, below = pl_depend_is(s);
        bool paged = s->kind == PL_KIND_PYTHON && !s->more->as_command && !below;
        for (struct pl_worker *w = s->workers, *next; ours && w != NULL; w = next) {
            next = w->next;
            if (w->state == PL_WORKER_READY && paged) look_for_silence(w, now);
            if (w->state == PL_WORKER_READY && paged) look_for_zombies(w);
            if (w->state == PL_WORKER_READY) look_at_memory(w, now);
            if (w->state == PL_WORKER_READY) pl_books_second(w, now);
            if (w->state == PL_WORKER_READY && !below) look_at_requests(w);
        }
        pl_gap_meter(s, now);
        pl_life_ready_changed(s); /* a gap may have outlasted the hold */
    }
    pl_crowd_tick(c, now);
}
