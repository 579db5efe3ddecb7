/* warm.c - the warm-up: the first requests of a worker come from us, marked, until their cost is flat. Only
 * then is it READY. A declared or recorded one that fails keeps the worker from becoming ready and says why;
 * one made of the author's examples only warns; none at all reads `ready (unwarmed)`. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "crew/more.h"

enum { REPLY_BYTES = 64 << 20, MESSAGE_BYTES = 200 };

static struct pl_logger *log_of(const struct pl_worker *w) { return w->service->crew->app->log; }

/* CPU the worker has used so far, microseconds; 0 if it cannot be told. */
static uint64_t cpu_us(const struct pl_worker *w) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(w->pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void ask(struct pl_worker *w);

static void finish(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    o->warm = o->warm_ok > 0 || w->service->kind == PL_KIND_LLAMA; /* it warms itself before it says ready */
    o->time.warm = pl_crew_now(w->service->crew);
    o->time.first_us = o->warmup.first_us;
    o->time.settled_us = o->warmup.settled_us;
    if (!o->warm && w->service->kind != PL_KIND_REMOTE)
        pl_log(log_of(w), PL_WARN, "worker.unwarmed", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("route", "all"),
               F_STR("remedy", "declare warmup.requests, or give the parameters defaults or examples"));
    pl_life_feed(w, PL_WEV_WARMED);
}

static void next_sample(struct pl_worker *w) {
    w->more->sample = w->more->sample->next;
    if (w->more->sample == NULL) {
        finish(w);
        return;
    }
    pl_warmup_next_round(&w->more->warmup);
    ask(w);
}

static bool as_wanted(const struct pl_sample *s, const struct pl_ask_reply *reply) {
    if (!reply->answered) return false;
    return s->status != 0 ? reply->status == s->status : reply->status < 400;
}

static void failed(struct pl_worker *w, const struct pl_ask_reply *reply) {
    const struct pl_sample *s = w->more->sample;
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof message, "%.*s", MESSAGE_BYTES - 1,
             reply->answered          ? reply->body
             : reply->problem != NULL ? reply->problem
                                      : "no answer");
    enum pl_level level = s->source == PL_SAMPLE_EXAMPLES ? PL_WARN : PL_ERROR;
    pl_log(log_of(w), level, "worker.warmup_failed", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("route", s->target),
           F_INT("status", reply->status), F_STR("source", pl_sample_source_name(s->source)),
           F_STR("message", message));
    if (s->source == PL_SAMPLE_EXAMPLES) {
        next_sample(w);
        return;
    }
    if (reply->answered)
        snprintf(w->more->problem, sizeof w->more->problem, "%s %.80s was answered %d: %.120s", s->method,
                 s->target, (int)reply->status, message);
    else
        snprintf(w->more->problem, sizeof w->more->problem, "%s %.80s: %s", s->method, s->target, message);
    w->more->warm_failed = true;
    pl_life_feed(w, PL_WEV_WARM_FAILED);
}

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    struct pl_worker_more *o = w->more;
    o->warming = NULL;
    if (!as_wanted(o->sample, reply)) {
        failed(w, reply);
        return;
    }
    uint64_t after = cpu_us(w);
    uint64_t cost = after > o->warm_cpu_us && o->warm_cpu_us > 0 ? after - o->warm_cpu_us : reply->took_us;
    o->warm_ok++;
    if (pl_warmup_took(&o->warmup, cost, reply->took_us, pl_crew_now(w->service->crew)) == PL_WARMUP_AGAIN)
        ask(w);
    else
        next_sample(w);
}

static void ask(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    char headers[4096];
    snprintf(headers, sizeof headers, "x-plimsoll-warmup: 1\r\n%s", o->sample->headers);
    const struct pl_ask_question q = {
        .to = &w->to,
        .host = pl_remote_host(w->service),
        .method = o->sample->method,
        .target = o->sample->target,
        .headers = headers,
        .body = o->sample->body,
        .body_len = o->sample->body_len,
        .reply_cap = REPLY_BYTES,
        .timeout_ms = (uint64_t)w->service->config->traffic_timeout_ms,
    };
    o->warm_cpu_us = cpu_us(w);
    o->warming = pl_ask_start(w->service->crew->app->loop, &q, on_answer, w);
    if (o->warming == NULL) finish(w);
}

void pl_samples_loaded(struct pl_worker *w, struct pl_sample *list, const char *problem) {
    struct pl_worker_more *o = w->more;
    if (w->state != PL_WORKER_WARMING || w->service->crew->resting) {
        pl_samples_free(list);
        return;
    }
    if (problem != NULL) {
        pl_log(log_of(w), PL_ERROR, "worker.warmup_failed", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("source", "declared"),
               F_STR("message", problem));
        pl_samples_free(list);
        snprintf(o->problem, sizeof o->problem, "%s", problem);
        o->warm_failed = true;
        pl_life_feed(w, PL_WEV_WARM_FAILED);
        return;
    }
    o->samples = list != NULL ? list : pl_samples_examples(w->service);
    o->sample = o->samples;
    o->source = o->samples != NULL ? o->samples->source : PL_SAMPLE_NONE;
    unsigned count = 0;
    for (const struct pl_sample *s = o->samples; s != NULL; s = s->next) count++;
    pl_log(log_of(w), PL_INFO, "worker.warming", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation),
           F_STR("source", pl_sample_source_name(o->source)), F_INT("requests", count));
    if (o->sample == NULL) {
        finish(w);
        return;
    }
    const struct pl_service_config *c = w->service->config;
    pl_warmup_start(&o->warmup, (uint32_t)c->warmup_max, (uint64_t)c->warmup_max_time_ms,
                    c->warmup_until_flat, pl_crew_now(w->service->crew));
    ask(w);
}

/* What somebody else runs is taken as it is. A dependency is warmed by what its callers' warm-up makes of it.
 */
void pl_warm_start(struct pl_worker *w) {
    if (w->service->kind == PL_KIND_REMOTE)
        finish(w);
    else if (pl_depend_is(w->service))
        pl_life_feed(w, PL_WEV_WARMED);
    else
        pl_samples_load(w);
}

void pl_warm_stop(struct pl_worker *w) {
    if (w->more->warming != NULL) pl_ask_cancel(w->more->warming);
    w->more->warming = NULL;
}
