/* probe.c - a worker's own readiness. The first question is written into its listener before it is there to
 * answer, and waits; later ones are asked only when no request was answered lately: a real success is proof
 * enough. */
#include <stdio.h>

#include "crew/more.h"

enum { REPLY_BYTES = 65536 };

const char *pl_probe_path(const struct pl_worker *w, const char *own, char *out, size_t room) {
    const struct pl_description *d = w->service->more->description;
    snprintf(out, room, "%s%s", d != NULL ? d->path_prefix : "", own);
    return out;
}

/* The default is BentoML's own route; what somebody wrote is meant as it stands. */
static const char *ready_path(const struct pl_worker *w, char *out, size_t room) {
    const struct pl_service *s = w->service;
    const char *path = s->config->probe_ready_path;
    bool written =
        pl_config_origin(s->crew->app->config, s->index, "probe.ready_path", NULL) != PL_FROM_DEFAULT;
    return path != NULL && written ? path : pl_probe_path(w, "/readyz", out, room);
}

static void judge_ready(struct pl_worker *w, bool says_ready) {
    if (w->more->says_ready == says_ready && w->routable == says_ready) return;
    w->more->says_ready = says_ready;
    w->routable = says_ready && pl_worker_accepts(w->state);
    struct pl_crew *c = w->service->crew;
    if (w->routable)
        c->hooks.supply_changed(c->hooks.ctx, w->service);
    else
        c->hooks.unroutable(c->hooks.ctx, w);
    pl_life_ready_changed(w->service);
}

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    uint64_t now = pl_crew_now(w->service->crew);
    w->more->probe = NULL;
    w->more->probe_at_ms = now + (uint64_t)w->service->config->probe_interval_ms;
    bool yes = reply->answered && reply->status == 200;
    if (reply->answered)
        pl_silence_sign(&w->more->silence);
    else
        pl_silence_unanswered(&w->more->silence);
    if (yes) w->more->proof_ms = now;
    if (w->state == PL_WORKER_LOADING) {
        if (yes) {
            w->more->says_ready = true;
            pl_life_feed(w, PL_WEV_LOADED);
        }
        return;
    }
    /* No answer in time is load, not a verdict; only a clear no is. */
    if (w->state == PL_WORKER_READY && reply->answered) judge_ready(w, yes);
}

static void ask(struct pl_worker *w, uint64_t timeout_ms) {
    char path[PL_PROBE_PATH_BYTES];
    const struct pl_ask_question q = {
        .socket_path = w->socket_path,
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
