/* rest.c - a crew whose main gives the helm away. Frozen: no replacement is begun any more. At rest: what was
 * read of the workers' output is written out, nobody is asked anything, and what the keeper tells waits; for
 * a few milliseconds, until the other main is at the helm or has failed. After that it either goes on where
 * it stopped, or only watches for the ends of the workers that its last requests are with, and for those
 * that are about to end.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "crew/more.h"

void pl_crew_freeze(struct pl_crew *c, bool yes) { c->frozen = yes; }

void pl_crew_other_main(struct pl_crew *c, bool there) { c->other_main = there; }

const char *pl_crew_replacing(const struct pl_crew *c) {
    for (size_t i = 0; i < c->every_count; i++) {
        const struct pl_replacement *r = &c->every[i]->more->replacement;
        if (r->active && !r->waiting) return c->every[i]->config->id;
    }
    return NULL;
}

static void each_worker(struct pl_crew *c, void (*act)(struct pl_worker *w)) {
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers, *next; w != NULL; w = next) {
            next = w->next;
            act(w);
        }
}

static void rest(struct pl_worker *w) {
    pl_probe_stop(w);
    pl_canary_stop(w);
    pl_warm_stop(w);
    if (w->more->scrape != NULL) pl_ask_cancel(w->more->scrape);
    w->more->scrape = NULL;
    pl_explain_stop(w);
    pl_control_listen(w, false);
}

void pl_crew_rest(struct pl_crew *c) {
    c->resting = true;
    uv_timer_stop(&c->tick);
    pl_crew_agents_close(c);
    each_worker(c, rest);
}

bool pl_crew_rested(struct pl_crew *c) {
    if (c->link->waiters != NULL) return false; /* what was ordered is not done yet */
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (!pl_output_written(w)) return false;
    return true;
}

void pl_crew_keep_news(struct pl_crew *c, const struct pl_wire_message *m) {
    struct pl_wire_exit *more = realloc(c->kept_news, (c->kept_count + 1) * sizeof *more);
    if (more == NULL) return; /* what became of a worker shows when it is asked */
    c->kept_news = more;
    c->kept_news[c->kept_count++] = m->exit;
}

static void warm_again(struct pl_worker *w) {
    pl_control_listen(w, true);
    if (w->state != PL_WORKER_WARMING || w->more->samples_loading) return;
    pl_samples_free(w->more->samples);
    w->more->samples = w->more->sample = NULL;
    pl_warm_start(w);
}

void pl_crew_again(struct pl_crew *c, int agents_fd) {
    static struct pl_wire_message m;
    struct pl_err err;
    struct pl_wire_exit *news = c->kept_news;
    size_t count = c->kept_count;
    c->resting = c->frozen = false;
    c->kept_news = NULL;
    c->kept_count = 0;
    for (size_t i = 0; i < count; i++) {
        m.exit = news[i];
        m.fd_count = 0;
        pl_crew_news(c, &m);
    }
    free(news);
    each_worker(c, warm_again);
    if (agents_fd != -1 && !pl_crew_agents(c, agents_fd, &err))
        pl_log(c->app->log, PL_ERROR, "listen.failed", F_STR("listener", "agents.sock"),
               F_STR("reason", err.msg));
    pl_crew_run(c);
}

/* It is another main's affair now; what matters here is which of our last requests it takes with it. */
static void see_end(struct pl_worker *w, const struct pl_wire_exit *e) {
    struct pl_crew *c = w->service->crew;
    if (w->exited) return;
    w->exited = true;
    w->routable = false;
    w->more->exit = *e;
    pl_life_explain(w);
    c->hooks.unroutable(c->hooks.ctx, w);
    c->hooks.exited(c->hooks.ctx, w);
    if (w->service->parent == NULL) c->hooks.supply_changed(c->hooks.ctx, w->service);
}

/* Where another one goes on, that one gets what comes. The last one keeps what is here: the other main ends
 * it when nothing is in flight, and there is nowhere else for it. */
static void see_withdrawn(struct pl_worker *w) {
    struct pl_crew *c = w->service->crew;
    if (w->exited || w->withdrawn || w->service->parent != NULL) return;
    w->withdrawn = true;
    if (pl_service_lasts(w->service)) {
        w->routable = false;
        c->hooks.unroutable(c->hooks.ctx, w);
    }
    c->hooks.supply_changed(c->hooks.ctx, w->service);
}

void pl_crew_watch(struct pl_crew *c, const struct pl_wire_exit *e) {
    struct pl_worker *w = pl_crew_by_generation(c, e->generation);
    bool ended = e->state == PL_GEN_EXITED || e->state == PL_GEN_GONE;
    if (w == NULL) return;
    if (ended)
        see_end(w, e);
    else if (e->head.kind == PL_WIRE_WITHDRAWN)
        see_withdrawn(w);
}

static void leave(struct pl_worker *w) {
    if (w->more->ring.head != NULL) pl_log_raw_forget(w->service->crew->app->log, &w->more->ring.head->seen);
    if (w->more->watched) pl_control_close(w); /* its agent goes to the other main */
}

void pl_crew_leave(struct pl_crew *c) {
    c->left = true;
    if (!c->resting) pl_crew_rest(c);
    each_worker(c, leave);
    for (size_t i = 0; i < c->kept_count; i++) pl_crew_watch(c, &c->kept_news[i]);
    free(c->kept_news);
    c->kept_news = NULL;
    c->kept_count = 0;
}
