/* probe.c - a worker's own readiness. The first question is written into the listener we made before it is
 * there to answer, and waits; later ones are asked only when no request was answered lately: a real success
 * is proof enough. */
#include <stdio.h>

#include "crew/more.h"

enum {
    REPLY_BYTES = 65536,
    TRY_AGAIN_MS = 100,   /* starting, and nobody listens yet */
    START_ASK_MS = 10000, /* starting, and somebody took the question: how long it may think */
};

const char *pl_probe_path(const struct pl_worker *w, const char *own, char *out, size_t room) {
    const struct pl_description *d = w->service->more->description;
    snprintf(out, room, "%s%s", d != NULL ? d->path_prefix : "", own);
    return out;
}

static const char *ready_path(const struct pl_worker *w, char *out, size_t room) {
    const struct pl_service *s = w->service;
    bool written =
        pl_config_origin(s->crew->app->config, s->index, "probe.ready_path", NULL) != PL_FROM_DEFAULT;
    if (s->kind == PL_KIND_PYTHON && !written) return pl_probe_path(w, "/readyz", out, room);
    return pl_ready_path(s->crew->app->config, s->index, w->more->probe_turn);
}

/* How long a server of somebody else's stays away: what Retry-After is made of. */
static void learn_outage(struct pl_worker *w, bool says_ready, uint64_t now) {
    struct pl_service *s = w->service;
    if (s->kind != PL_KIND_REMOTE) return;
    if (says_ready && w->more->unready_ms != 0)
        s->boot_ms = pl_boot_learn_ms(s->boot_ms, now - w->more->unready_ms);
    w->more->unready_ms = says_ready ? 0 : now;
}

static void judge_ready(struct pl_worker *w, bool says_ready) {
    if (w->more->says_ready == says_ready && w->routable == says_ready) return;
    w->more->says_ready = says_ready;
    w->routable = says_ready && pl_worker_accepts(w->state);
    struct pl_crew *c = w->service->crew;
    learn_outage(w, says_ready, pl_crew_now(c));
    if (!w->routable) c->hooks.unroutable(c->hooks.ctx, w);
    c->hooks.supply_changed(c->hooks.ctx, w->service);
    pl_life_ready_changed(w->service);
}

/* No path is configured and this one is not there: the next of the usual ones. */
static void next_path(struct pl_worker *w, const struct pl_ask_reply *reply) {
    struct pl_service *s = w->service;
    unsigned count = pl_ready_paths(s->crew->app->config, s->index);
    if (!reply->answered || reply->status != 404 || count < 2) return;
    if (++w->more->probe_turn < count || s->more->remote_told) return;
    s->more->remote_told = true;
    pl_log(s->crew->app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
           F_INT("worker", w->slot), F_STR("feature", "readiness"),
           F_STR("reason", "neither /readyz nor /health is there: set probe.ready_path"));
}

/* No answer in time is load, not a verdict; only a clear no is: another status, or nobody who listens. A
 * server of somebody else's that has nothing of ours in hand and still says nothing is gone as well. */
static bool clear_no(const struct pl_worker *w, const struct pl_ask_reply *reply, uint64_t now) {
    if (reply->answered || reply->refused) return true;
    const struct pl_service_config *c = w->service->config;
    return w->service->kind == PL_KIND_REMOTE &&
           (w->in_flight == 0 || now - w->more->proof_ms > (uint64_t)c->liveness_silent_after_ms);
}

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    uint64_t now = pl_crew_now(w->service->crew);
    bool yes = reply->answered && reply->status == 200;
    w->more->probe = NULL;
    w->more->probe_at_ms = now + (uint64_t)w->service->config->probe_interval_ms;
    if (reply->answered)
        pl_silence_sign(&w->more->silence);
    else
        pl_silence_unanswered(&w->more->silence);
    w->more->probe_status = reply->answered ? reply->status : 0;
    next_path(w, reply);
    if (yes) w->more->proof_ms = now;
    if (!reply->answered && w->service->kind == PL_KIND_REMOTE) pl_remote_turn(w);
    if (w->state == PL_WORKER_LOADING) {
        if (reply->refused) w->more->probe_at_ms = now + TRY_AGAIN_MS;
        if (yes) {
            w->more->says_ready = true;
            pl_life_feed(w, PL_WEV_LOADED);
        }
        return;
    }
    if (w->state == PL_WORKER_READY && (yes || clear_no(w, reply, now))) judge_ready(w, yes);
}

static void ask(struct pl_worker *w, uint64_t timeout_ms) {
    char path[PL_PROBE_PATH_BYTES];
    const struct pl_ask_question q = {
        .to = &w->to,
        .host = pl_remote_host(w->service),
        .method = "GET",
        .target = ready_path(w, path, sizeof path),
        .headers = "x-plimsoll-warmup: 1\r\n",
        .reply_cap = REPLY_BYTES,
        .timeout_ms = timeout_ms,
    };
    w->more->probe = pl_ask_start(w->service->crew->app->loop, &q, on_answer, w);
}

void pl_probe_start(struct pl_worker *w) {
    uint64_t now = pl_crew_now(w->service->crew);
    if (pl_depend_is(w->service)) return;
    uint64_t left = w->more->start_until_ms > now ? w->more->start_until_ms - now : 1;
    /* Only the socket that we made ourselves holds a question until there is somebody to answer it. */
    if (w->service->kind != PL_KIND_PYTHON && left > START_ASK_MS) left = START_ASK_MS;
    if (w->more->probe == NULL) ask(w, left);
}

/* Of a socket that several share nobody knows who answers: the page says when this one has loaded, and who
 * calls it asks for the service's own readiness. */
static void look_at_page(struct pl_worker *w, uint64_t now) {
    if (w->state != PL_WORKER_LOADING || w->more->time.loaded == 0) return;
    w->more->says_ready = true;
    w->more->proof_ms = now;
    pl_life_feed(w, PL_WEV_LOADED);
}

/* What it says of itself moves its readiness elsewhere: the question that waits would miss it. */
void pl_probe_moved(struct pl_worker *w) {
    if (w->state != PL_WORKER_LOADING || w->more->probe == NULL) return;
    pl_probe_stop(w);
    pl_probe_start(w);
}

void pl_probe_tick(struct pl_worker *w, uint64_t now) {
    if (pl_depend_is(w->service)) {
        look_at_page(w, now);
        return;
    }
    if (w->more->probe != NULL || now < w->more->probe_at_ms) return;
    if (w->state == PL_WORKER_LOADING) {
        pl_probe_start(w);
    } else if (w->state == PL_WORKER_READY) {
        uint64_t interval = (uint64_t)w->service->config->probe_interval_ms;
        if (w->more->says_ready && w->in_flight > 0 && now - w->more->proof_ms < interval) return;
        ask(w, (uint64_t)w->service->config->probe_timeout_ms);
    }
}

void pl_probe_stop(struct pl_worker *w) {
    if (w->more->probe != NULL) pl_ask_cancel(w->more->probe);
    w->more->probe = NULL;
}

void pl_probe_lost(struct pl_worker *w) {
    if (w->state != PL_WORKER_READY || w->exited) return;
    w->more->probe_at_ms = 0;
    judge_ready(w, false);
}
