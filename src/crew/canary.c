/* canary.c - proof of readiness where nobody asks: a marked warm-up request is sent to a worker that has had
 * nothing to do for canary.interval. Past admission, in nobody's slot, and never beside a real request; a
 * real success is better proof and puts it off. Proof is fresh for twice the interval. Without a marked
 * request the worker's own readiness is the proof.
 *
 * Declared ones come with the configuration. Recorded ones (`plimsoll sample --canary`) are looked for while
 * there is none, once an interval: they count without a restart.
 */
#include <stdio.h>
#include <stdlib.h>

#include "crew/more.h"

enum { REPLY_BYTES = 64 << 20, MESSAGE_BYTES = 200 };

static uint64_t interval_ms(const struct pl_service *s) { return (uint64_t)s->config->canary_interval_ms; }

static struct pl_sample *first_of(const struct pl_worker *w, struct pl_sample *from) {
    struct pl_sample *s = from;
    while (s != NULL && !s->canary) s = s->next;
    return s != NULL || from == w->more->samples ? s : first_of(w, w->more->samples);
}

static bool has_canary(const struct pl_worker *w) { return first_of(w, w->more->samples) != NULL; }

uint64_t pl_canary_proof_ms(const struct pl_worker *w) {
    return has_canary(w) ? w->more->real_ms : w->more->proof_ms;
}

bool pl_canary_fresh(const struct pl_service *s, uint64_t now) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && (!has_canary(w) || now - w->more->real_ms < 2 * interval_ms(s))) return true;
    return false;
}

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    struct pl_worker_more *o = w->more;
    struct pl_service *s = w->service;
    const struct pl_sample *sample = o->canary_sample;
    char message[MESSAGE_BYTES];
    bool ok =
        reply->answered && (sample->status != 0 ? reply->status == sample->status : reply->status < 400);
    o->canary = NULL;
    o->canary_at_ms = pl_crew_now(s->crew) + interval_ms(s);
    o->canary_sample = first_of(w, sample->next != NULL ? sample->next : o->samples);
    if (ok) {
        o->real_ms = o->proof_ms = pl_crew_now(s->crew);
        pl_silence_sign(&o->silence);
    } else {
        snprintf(message, sizeof message, "%.*s", MESSAGE_BYTES - 1,
                 reply->answered          ? reply->body
                 : reply->problem != NULL ? reply->problem
                                          : "no answer");
        pl_log(s->crew->app->log, PL_WARN, "canary.failed", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("route", sample->target),
               F_INT("status", reply->answered ? reply->status : 0), F_INT("took_ms", reply->took_us / 1000),
               F_STR("message", message));
    }
    pl_life_ready_changed(s);
}

static void ask(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    char headers[4096];
    snprintf(headers, sizeof headers, "x-plimsoll-warmup: 1\r\n%s", o->canary_sample->headers);
    const struct pl_ask_question q = {
        .to = &w->to,
        .host = pl_remote_host(w->service),
        .method = o->canary_sample->method,
        .target = o->canary_sample->target,
        .headers = headers,
        .body = o->canary_sample->body,
        .body_len = o->canary_sample->body_len,
        .reply_cap = REPLY_BYTES,
        .timeout_ms = (uint64_t)w->service->config->canary_timeout_ms,
    };
    o->canary = pl_ask_start(w->service->crew->app->loop, &q, on_answer, w);
    if (o->canary == NULL) o->canary_at_ms = pl_crew_now(w->service->crew) + interval_ms(w->service);
}

/* Bodies of the others were needed once. */
static void keep_canaries(struct pl_worker *w) {
    struct pl_sample **at = &w->more->samples;
    while (*at != NULL) {
        struct pl_sample *s = *at;
        if (s->canary) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = NULL;
        pl_samples_free(s);
    }
    w->more->sample = NULL;
    w->more->canary_sample = w->more->samples;
}

void pl_canary_loaded(struct pl_worker *w, struct pl_sample *list) {
    pl_samples_free(w->more->samples);
    w->more->samples = list;
    keep_canaries(w);
    w->more->real_ms = pl_crew_now(w->service->crew); /* it is asked for proof from now on */
}

void pl_canary_ready(struct pl_worker *w) {
    w->more->real_ms = pl_crew_now(w->service->crew);
    w->more->canary_at_ms = w->more->real_ms + interval_ms(w->service);
    keep_canaries(w);
}

void pl_canary_tick(struct pl_worker *w, uint64_t now) {
    struct pl_worker_more *o = w->more;
    if (w->state != PL_WORKER_READY || pl_depend_is(w->service) || o->canary != NULL || o->samples_loading)
        return;
    if (o->samples == NULL) {
        if (o->canary_looked_ms != 0 && now - o->canary_looked_ms < interval_ms(w->service)) return;
        o->canary_looked_ms = now;
        pl_samples_load(w);
        return;
    }
    if (now - o->real_ms >= 2 * interval_ms(w->service)) pl_life_ready_changed(w->service);
    bool idle = w->in_flight == 0 && o->zombies == 0;
    if (!idle || now < o->canary_at_ms || now - o->real_ms < interval_ms(w->service)) return;
    ask(w);
}

void pl_canary_stop(struct pl_worker *w) {
    if (w->more->canary != NULL) pl_ask_cancel(w->more->canary);
    w->more->canary = NULL;
}
