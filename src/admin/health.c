/* health.c - /livez, /readyz and their per-service forms. /livez: main's loop runs. /readyz: every required
 * service has a warm worker whose own readiness agrees and whose proof is fresh, and we are not draining.
 * Load never makes unready. */
#include <stdio.h>
#include <string.h>

#include "admin/inside.h"
#include "crew/look.h"
#include "worker/replace.h"

/* Until somebody serves. */
static uint64_t left_ms(const struct pl_service *s, uint64_t now) {
    struct pl_service_gap gap;
    return pl_service_gap(s, now, &gap) ? gap.left_ms : pl_service_boot_left_ms(s, now);
}

bool pl_admin_ready(const struct pl_admin *a) {
    if (a->o.app->stopping) return false;
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        if (s->config->required && !pl_service_ready(s)) return false;
    }
    return true;
}

const char *pl_health_why(const struct pl_service *s) {
    enum pl_worker_state best = PL_WORKER_IDLE;
    struct pl_look_replacement r;
    bool backoff = false, failed = false, silent = false;
    if (s->draining) return "draining";
    if (pl_service_failed(s)) return "failed";
    pl_look_replacement(s, 0, &r);
    if (r.under_way && strcmp(r.mode, "handover") == 0) return "replacing";
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        backoff = backoff || w->state == PL_WORKER_BACKOFF;
        failed = failed || w->state == PL_WORKER_FAILED;
        silent = silent || (w->state == PL_WORKER_READY && pl_look_is_silent(w));
        if (w->state <= PL_WORKER_READY && w->state > best) best = w->state;
        if (w->state == PL_WORKER_STUCK && best == PL_WORKER_IDLE) return "stuck";
    }
    bool stale =
        silent || pl_service_ready_count(s) > 0; /* it would serve, and nothing has shown it for long */
    if (best == PL_WORKER_READY) return stale ? "proof_stale" : "worker_not_ready";
    if (best == PL_WORKER_WARMING) return "warming";
    if (best != PL_WORKER_IDLE) return "starting";
    return backoff ? "backoff" : failed ? "failed" : "starting";
}

static json_t *service_json(const struct pl_admin *a, const struct pl_service *s) {
    bool ready = pl_service_ready(s) && !a->o.app->stopping;
    json_t *o = json_pack("{s:b}", "ready", ready);
    if (ready) return o;
    uint64_t now = pl_now_ms(a->o.app->clock);
    const char *phase = NULL;
    uint64_t since = 0;
    char detail[200] = "";
    json_object_set_new(o, "why", json_string(a->o.app->stopping ? "draining" : pl_health_why(s)));
    pl_look_start(s, now, &phase, &since, detail, sizeof detail);
    if (phase != NULL) {
        json_object_set_new(o, "phase", json_string(phase));
        json_object_set_new(o, "since_s", json_real((double)since / 1000));
    }
    if (s->boot_ms != 0) json_object_set_new(o, "expected_s", json_real((double)s->boot_ms / 1000));
    json_object_set_new(o, "attempt", json_integer((json_int_t)pl_look_attempt(s)));
    if (detail[0] != '\0') json_object_set_new(o, "detail", json_string(detail));
    return o;
}

static void reply(struct pl_conn *c, uint16_t status, json_t *doc, uint64_t retry_ms) {
    char extra[64] = "";
    char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (retry_ms != 0)
        snprintf(extra, sizeof extra, "Retry-After: %llu\r\n", (unsigned long long)(retry_ms + 999) / 1000);
    const struct pl_http_reply r = { .status = status,
                                     .extra = extra[0] != '\0' ? extra : NULL,
                                     .body = text != NULL ? text : "{}",
                                     .body_len = text != NULL ? strlen(text) : 2 };
    pl_conn_reply(c, &r);
    free(text);
    json_decref(doc);
}

static void answer_ready(struct pl_admin *a, struct pl_conn *c) {
    if (pl_admin_ready(a)) {
        reply(c, 200, json_pack("{s:b}", "ready", 1), 0);
        return;
    }
    uint64_t now = pl_now_ms(a->o.app->clock), longest = 0;
    const char *why = a->o.app->stopping ? "draining" : NULL;
    json_t *services = json_object();
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        json_object_set_new(services, s->config->id, service_json(a, s));
        if (!s->config->required || pl_service_ready(s)) continue;
        uint64_t left = left_ms(s, now);
        if (left > longest) longest = left;
        if (why == NULL) why = pl_health_why(s);
    }
    reply(c, 503,
          json_pack("{s:b,s:s,s:o}", "ready", 0, "why", why != NULL ? why : "starting", "services", services),
          a->o.app->stopping ? 0 : longest);
}

static void answer_ready_of(struct pl_admin *a, struct pl_conn *c, const struct pl_service *s) {
    if (pl_service_ready(s) && !a->o.app->stopping) {
        reply(c, 200, json_pack("{s:b}", "ready", 1), 0);
        return;
    }
    reply(c, 503, service_json(a, s), left_ms(s, pl_now_ms(a->o.app->clock)));
}

/* Forward progress of a service: busy is not dead; silence beyond liveness.silent_after is. */
static void answer_live_of(struct pl_conn *c, const struct pl_service *s) {
    uint64_t silent = pl_look_silent_ms(s);
    if (silent < pl_silent_after_ms(s->config->liveness_silent_after_ms, s->config->traffic_timeout_ms)) {
        reply(c, 200, json_pack("{s:b}", "live", 1), 0);
        return;
    }
    reply(c, 503,
          json_pack("{s:b,s:s,s:I}", "live", 0, "service", s->config->id, "silent_ms", (json_int_t)silent),
          0);
}

static bool starts(const char *path, const char *prefix, const char **rest) {
    size_t n = strlen(prefix);
    if (strncmp(path, prefix, n) != 0) return false;
    *rest = path + n;
    return true;
}

/* A dependency has no health of its own: its callers' readiness asks for it. */
static const struct pl_service *find_own(const struct pl_admin *a, const char *rest) {
    const struct pl_service *s = rest[0] == '/' ? pl_crew_find(a->o.crew, rest + 1, strlen(rest + 1)) : NULL;
    return s != NULL && s->parent == NULL ? s : NULL;
}

bool pl_health_answer(struct pl_admin *a, struct pl_conn *c, const char *path) {
    const char *rest;
    if (starts(path, "/livez", &rest)) {
        if (rest[0] == '\0') {
            reply(c, 200, json_pack("{s:b}", "live", 1), 0);
            return true;
        }
        const struct pl_service *s = find_own(a, rest);
        if (s != NULL) answer_live_of(c, s);
        return s != NULL;
    }
    if (starts(path, "/readyz", &rest)) {
        if (rest[0] == '\0') {
            answer_ready(a, c);
            return true;
        }
        const struct pl_service *s = find_own(a, rest);
        if (s != NULL) answer_ready_of(a, c, s);
        return s != NULL;
    }
    return false;
}
