/* status.c - /status: one document with everything `plimsoll status` shows (surface.md 6.4). A figure that is
 * not known is absent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/inside.h"
#include "crew/caches.h"
#include "crew/last_life.h"
#include "crew/look.h"

static void set_seconds(json_t *o, const char *key, uint64_t ms) {
    if (ms != 0) json_object_set_new(o, key, json_real((double)ms / 1000));
}

static json_t *timeline_json(const struct pl_look_worker *l) {
    json_t *t = json_pack("{s:i}", "spawned", 0);
    set_seconds(t, "imported", l->imported_ms);
    set_seconds(t, "loaded", l->loaded_ms);
    set_seconds(t, "socket", l->socket_ms);
    set_seconds(t, "warm", l->warm_ms);
    set_seconds(t, "ready", l->ready_ms);
    if (l->first_request_us != 0)
        json_object_set_new(t, "first_request_s", json_real((double)l->first_request_us / 1e6));
    return t;
}

static json_t *memory_json(struct pl_worker *w, uint64_t now) {
    json_t *list = json_array();
    struct pl_look_host h;
    struct pl_look_device d;
    if (pl_look_host(w, &h)) {
        json_t *host = json_pack("{s:s,s:I}", "scope", "host", "rss_bytes", (json_int_t)h.rss);
        if (h.pss != 0) json_object_set_new(host, "pss_bytes", json_integer((json_int_t)h.pss));
        if (h.limit != 0) json_object_set_new(host, "limit_bytes", json_integer((json_int_t)h.limit));
        json_array_append_new(list, host);
    }
    for (uint32_t i = 0; i < PL_LOOK_DEVICES; i++) {
        if (!pl_look_device(w, i, now, &d)) continue;
        json_t *o =
            json_pack("{s:s,s:I,s:I,s:I}", "scope", d.scope, "allocated_bytes", (json_int_t)d.allocated,
                      "reserved_bytes", (json_int_t)d.reserved, "peak_bytes", (json_int_t)d.peak);
        if (d.limit != 0) json_object_set_new(o, "limit_bytes", json_integer((json_int_t)d.limit));
        json_array_append_new(list, o);
    }
    return list;
}

static void set_finite(json_t *o, const char *key, double value) {
    if (isfinite(value)) json_object_set_new(o, key, json_real(value));
}

static json_t *verdict_json(const struct pl_look_verdict *v) {
    char since[PL_TIME_TEXT];
    json_t *o = json_pack("{s:s,s:s,s:s,s:I,s:s,s:b}", "word", v->word, "scope", v->scope, "since",
                          pl_time_rfc3339(v->since_wall_ms, since), "requests", (json_int_t)v->requests,
                          "text", v->text, "bad", v->bad);
    if (v->shape != NULL) json_object_set_new(o, "shape", json_string(v->shape));
    if (v->missing > 0) json_object_set_new(o, "missing_requests", json_integer((json_int_t)v->missing));
    if (v->since_requests > 0)
        json_object_set_new(o, "since_requests", json_integer((json_int_t)v->since_requests));
    if (v->growth_bytes > 0) json_object_set_new(o, "growth_bytes", json_real(v->growth_bytes));
    if (v->copies > 0) json_object_set_new(o, "copies", json_integer(v->copies));
    if (v->again > 0) json_object_set_new(o, "again", json_integer(v->again));
    if (v->bytes_per_request > 0) {
        json_object_set_new(o, "confidence", json_string(v->confirmed ? "confirmed" : "suspected"));
        json_object_set_new(o, "bytes_per_request", json_real(v->bytes_per_request));
        json_object_set_new(o, "low", json_real(v->low));
        json_object_set_new(o, "high", json_real(v->high));
    }
    if (v->tag[0] != '\0') {
        json_object_set_new(o, "top_tag", json_string(v->tag));
        json_object_set_new(o, "share", json_real(v->share));
        json_object_set_new(o, "failed_share", json_real(v->failed_share));
    }
    set_finite(o, "forecast_s", v->forecast_s);
    set_finite(o, "forecast_low_s", v->forecast_low_s);
    set_finite(o, "forecast_high_s", v->forecast_high_s);
    set_finite(o, "forecast_requests", v->forecast_requests);
    return o;
}

static json_t *worker_json(struct pl_worker *w, uint64_t now) {
    struct pl_look_worker l;
    pl_look_worker(w, now, &l);
    json_t *o = json_pack("{s:i,s:I,s:s,s:f,s:I,s:i,s:i,s:i,s:b,s:o}", "worker", (int)w->slot, "generation",
                          (json_int_t)w->generation, "state", pl_worker_state_name(w->state), "age_s",
                          (double)l.age_ms / 1000, "requests", (json_int_t)l.requests, "in_flight",
                          (int)l.in_flight, "zombies", (int)l.zombies, "tasks", (int)l.tasks, "warm", l.warm,
                          "timeline", timeline_json(&l));
    if (w->pid != 0) json_object_set_new(o, "pid", json_integer(w->pid));
    if (w->service->kind == PL_KIND_PYTHON) json_object_set_new(o, "way", json_string(l.way));
    json_t *memory = memory_json(w, now);
    if (json_array_size(memory) > 0) json_object_set(o, "memory", memory);
    json_decref(memory);
    if (pl_look_lane(w) != NULL) json_object_set_new(o, "fast_lane", json_loads(pl_look_lane(w), 0, NULL));
    struct pl_look_verdict v;
    json_t *verdict = pl_look_verdict(w, &v) ? verdict_json(&v) : NULL;
    if (pl_look_holder(w) != NULL) { /* an operator may ask where no verdict does */
        if (verdict == NULL) verdict = json_object();
        json_object_set_new(verdict, "holder", json_string(pl_look_holder(w)));
    }
    struct pl_look_explained x;
    if (pl_look_explained(w, &x)) {
        if (verdict == NULL) verdict = json_object();
        json_t *e = json_pack("{s:s,s:i}", "state", x.state, "tries", (int)x.tries);
        if (x.reason != NULL) json_object_set_new(e, "reason", json_string(x.reason));
        json_object_set_new(verdict, "explain", e);
    }
    if (verdict != NULL) json_object_set_new(o, "verdict", verdict);
    if (w->state == PL_WORKER_READY && l.settled_us != 0)
        json_object_set_new(o, "warmup",
                            json_pack("{s:s,s:i,s:f,s:f}", "source", l.source, "requests",
                                      (int)l.warmup_requests, "first_ms", (double)l.first_us / 1000,
                                      "settled_ms", (double)l.settled_us / 1000));
    return o;
}

static bool any_warm(const struct pl_service *s, uint64_t now) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        struct pl_look_worker l;
        pl_look_worker(w, now, &l);
        if (w->state == PL_WORKER_READY && l.warm) return true;
    }
    return false;
}

static json_t *queue_json(const struct pl_admin *a, const struct pl_service *s) {
    struct pl_gateway_numbers load;
    pl_gateway_numbers(a->o.gateway, s, &load);
    json_t *q =
        json_pack("{s:I,s:I,s:I}", "requests", (json_int_t)load.queued, "max_requests",
                  (json_int_t)s->config->traffic_queue_max_requests, "running", (json_int_t)load.running);
    if (load.queued > 0) json_object_set_new(q, "oldest_ms", json_integer((json_int_t)load.oldest_ms));
    if (load.drain_per_s > 0) json_object_set_new(q, "drain_per_s", json_real(load.drain_per_s));
    return q;
}

/* What engines have compiled for it, and whether the last start had to. */
static void add_caches(json_t *o, const struct pl_service *s) {
    const struct pl_caches *c = pl_look_caches(s);
    uint64_t files = 0;
    if (c == NULL) return;
    json_t *bytes = json_object();
    for (int i = 0; i < PL_CACHES; i++) {
        files += c->files[i];
        if (c->files[i] > 0)
            json_object_set_new(bytes, pl_caches_name((enum pl_cache)i),
                                json_integer((json_int_t)c->bytes[i]));
    }
    json_t *caches = json_pack("{s:b,s:I,s:o}", "cold", c->cold, "files", (json_int_t)files, "bytes", bytes);
    if (c->cold)
        json_object_set_new(
            caches, "offer",
            json_string("its last start compiled; restart it once and the next one only loads"));
    json_object_set_new(o, "caches", caches);
}

/* What is being done, should be done, or would be: so that a gap is known before it is opened. */
static json_t *replacement_json(const struct pl_service *s, uint64_t now) {
    struct pl_look_replacement r;
    pl_look_replacement(s, now, &r);
    json_t *o = json_pack("{s:b,s:b,s:s,s:i,s:i}", "planned", r.planned, "under_way", r.under_way, "mode",
                          r.mode, "in_hour", (int)r.in_hour, "max_per_hour", (int)r.max_per_hour);
    if (r.gap_known) json_object_set_new(o, "expected_gap_s", json_real((double)r.expected_gap_ms / 1000));
    if (!r.planned) return o;
    json_object_set_new(o, "reason", json_string(r.reason));
    json_object_set_new(o, "worker", json_integer((json_int_t)r.slot));
    if (r.held_by != NULL) json_object_set_new(o, "held_by", json_string(r.held_by));
    return o;
}

/* "0" is GPU 0; a UUID, several, or the host keep their names. */
static json_t *gpu_json(const char *name) {
    char *end;
    long index = strtol(name, &end, 10);
    return name[0] != '\0' && *end == '\0' ? json_integer(index) : json_string(name);
}

static json_t *place_json(const struct pl_gateway_budget *b) {
    json_t *o =
        json_pack("{s:o,s:i,s:I,s:I,s:I,s:I,s:I,s:f}", "gpu", gpu_json(b->gpu), "requests", (int)b->requests,
                  "full_bytes", (json_int_t)b->full_bytes, "budget_bytes", (json_int_t)b->budget_bytes,
                  "charged_bytes", (json_int_t)b->charged_bytes, "orphan_bytes", (json_int_t)b->orphan_bytes,
                  "free_bytes", (json_int_t)b->free_bytes, "used_ratio",
                  b->budget_bytes > 0 ? (double)b->charged_bytes / (double)b->budget_bytes : 0.0);
    if (b->alarm_bytes > 0) json_object_set_new(o, "alarm_bytes", json_integer((json_int_t)b->alarm_bytes));
    if (b->kept_bytes > 0) json_object_set_new(o, "kept_bytes", json_integer((json_int_t)b->kept_bytes));
    if (b->margin_bytes + b->fixed_bytes + b->foreign_bytes == 0) return o; /* it is not measured */
    json_object_set_new(o, "foreign_bytes", json_integer((json_int_t)b->foreign_bytes));
    json_object_set_new(o, "fixed_bytes", json_integer((json_int_t)b->fixed_bytes));
    json_object_set_new(o, "margin_bytes", json_integer((json_int_t)b->margin_bytes));
    return o;
}

static json_t *budget_json(const struct pl_admin *a, const struct pl_service *s) {
    json_t *list = json_array();
    struct pl_gateway_budget b;
    for (size_t i = 0; pl_gateway_budget(a->o.gateway, s, i, &b); i++)
        json_array_append_new(list, place_json(&b));
    return list;
}

/* Where its workers' memory is read: what holds for such workers, and not whether one was looked at already.
 */
static const char *memory_known(const struct pl_service *s, uint64_t now) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        struct pl_look_device d;
        for (uint32_t i = 0; i < PL_LOOK_DEVICES; i++)
            if (pl_look_device(w, i, now, &d)) return "device";
    }
    return pl_look_reads_host(s) ? "host" : "none";
}

/* What works for this kind of worker, and what does not. */
static json_t *guards_json(const struct pl_admin *a, const struct pl_service *s, uint64_t now) {
    struct pl_gateway_budget b;
    bool budget = pl_gateway_budget(a->o.gateway, s, 0, &b);
    bool ours = s->kind != PL_KIND_REMOTE;
    return json_pack("{s:b,s:b,s:b,s:s,s:s,s:b}", "readiness", 1, "restart", ours, "replacement", ours,
                     "admission",
                     budget                                   ? "bytes"
                     : s->config->traffic_max_concurrency > 0 ? "count"
                                                              : "none",
                     "memory", memory_known(s, now), "ledger", s->kind == PL_KIND_PYTHON);
}

static json_t *workers_json(const struct pl_service *s, uint64_t now) {
    json_t *workers = json_array();
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->state != PL_WORKER_GONE) json_array_append_new(workers, worker_json(w, now));
    return workers;
}

static void add_death(json_t *o, const struct pl_service *s) {
    struct pl_look_death d;
    char ts[PL_TIME_TEXT];
    if (pl_look_last_death(s, &d))
        json_object_set_new(o, "last_death",
                            json_pack("{s:s,s:s,s:s,s:s}", "id", d.id, "ts", pl_time_rfc3339(d.wall_ms, ts),
                                      "cause", d.cause, "sentence", d.sentence));
}

static void add_start_memory(json_t *o, const struct pl_service *s) {
    struct pl_look_start_memory m;
    if (!pl_look_start_memory(s, &m)) return;
    json_t *start =
        json_pack("{s:I,s:I}", "peak_rss_bytes", (json_int_t)m.rss, "peak_anon_bytes", (json_int_t)m.anon);
    if (m.pss != 0) json_object_set_new(start, "peak_pss_bytes", json_integer((json_int_t)m.pss));
    if (m.limit != 0) json_object_set_new(start, "limit_bytes", json_integer((json_int_t)m.limit));
    if (m.suggested != 0)
        json_object_set_new(start, "suggested_limit_bytes", json_integer((json_int_t)m.suggested));
    json_object_set_new(o, "start_memory", start);
}

/* An engine's last start against what was planned of it. */
static void add_plan(json_t *o, const struct pl_admin *a, const struct pl_service *s) {
    struct pl_gateway_plan p;
    if (!pl_gateway_plan(a->o.gateway, s, &p)) return;
    json_t *plan = json_pack("{s:f}", "drift_ratio", p.drift_ratio);
    if (p.length > 0 && p.capacity_requests > 0) {
        json_object_set_new(plan, "capacity_requests", json_integer((json_int_t)p.capacity_requests));
        json_object_set_new(plan, "length", json_integer((json_int_t)p.length));
    }
    json_object_set_new(o, "plan", plan);
}

static void add_zygote(json_t *o, const struct pl_service *s, uint64_t now) {
    struct pl_look_zygote z;
    if (!pl_look_zygote(s, now, &z)) return;
    json_t *zygote = json_pack("{s:s}", "state", z.state);
    if (z.reason[0] != '\0') json_object_set_new(zygote, "reason", json_string(z.reason));
    if (z.module[0] != '\0') json_object_set_new(zygote, "module", json_string(z.module));
    if (z.pid != 0) {
        json_object_set_new(zygote, "pid", json_integer(z.pid));
        json_object_set_new(zygote, "modules", json_integer(z.modules));
        json_object_set_new(zygote, "age_s", json_real((double)z.age_ms / 1000));
        if (z.pss != 0) json_object_set_new(zygote, "pss_bytes", json_integer((json_int_t)z.pss));
    }
    json_object_set_new(o, "zygote", zygote);
}

static json_t *dependency_json(const struct pl_service *s, uint64_t now) {
    bool ready = pl_service_ready_count(s) > 0;
    json_t *o =
        json_pack("{s:s,s:b,s:o}", "name", s->config->id, "ready", ready, "workers", workers_json(s, now));
    if (!ready) json_object_set_new(o, "why", json_string(pl_health_why(s)));
    add_death(o, s);
    add_zygote(o, s, now);
    return o;
}

static void add_dependencies(json_t *o, const struct pl_service *s, uint64_t now) {
    json_t *list = json_array();
    for (const struct pl_service *d = s->dependencies; d != NULL; d = d->next)
        if (pl_look_wanted(d)) json_array_append_new(list, dependency_json(d, now));
    if (json_array_size(list) > 0) json_object_set(o, "dependencies", list);
    json_decref(list);
}

static json_t *service_json(struct pl_admin *a, struct pl_service *s, uint64_t now) {
    char target[256];
    if (s->parent != NULL) return dependency_json(s, now);
    const struct pl_service_config *c = s->config;
    const char *mode_place;
    enum pl_origin origin = pl_config_origin(a->o.app->config, s->index, "mode", &mode_place);
    bool ready = pl_service_ready(s);
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:b,s:o,s:o}", "name", c->id, "kind", pl_kind_name(s->kind),
                  "target", pl_look_target(s, target, sizeof target), "engine", pl_look_engine(s), "mode",
                  pl_config_word("mode", c->mode), "mode_origin", pl_origin_name(origin), "ready", ready,
                  "workers", workers_json(s, now), "queue", queue_json(a, s));
    if (ready)
        json_object_set_new(o, "warmth", json_string(any_warm(s, now) ? "warm" : "unwarmed"));
    else
        json_object_set_new(o, "why", json_string(a->o.app->stopping ? "draining" : pl_health_why(s)));
    uint64_t proof = pl_look_proof_age_ms(s, now);
    if (proof != UINT64_MAX) json_object_set_new(o, "proof_age_s", json_integer((json_int_t)(proof / 1000)));
    json_object_set_new(o, "guards", guards_json(a, s, now));
    json_object_set_new(o, "budget", budget_json(a, s));
    json_object_set_new(o, "replacement", replacement_json(s, now));
    add_plan(o, a, s);
    add_caches(o, s);
    pl_limits_add(a, s, now, o);
    pl_recent_add(a, c->id, o);
    add_death(o, s);
    add_zygote(o, s, now);
    add_start_memory(o, s);
    add_dependencies(o, s, now);
    return o;
}

/* What this start had to tell of the one before: nobody was left to say goodbye. */
static void add_last_life(json_t *o, const struct pl_crew *c) {
    struct pl_look_life l;
    if (!pl_look_last_life(c, &l)) return;
    json_t *life = json_pack("{s:s,s:s,s:s}", "seen", l.seen, "cause", l.cause, "sentence", l.sentence);
    if (l.scope != NULL) json_object_set_new(life, "scope", json_string(l.scope));
    json_object_set_new(o, "last_life", life);
}

static json_t *events_json(const struct pl_admin *a, unsigned most) {
    json_t *list = json_array();
    uint64_t from = a->event_count > most ? a->event_count - most : 0;
    for (uint64_t i = from; i < a->event_count; i++) {
        const struct pl_event *e = &a->events[i % PL_EVENTS_KEPT];
        json_t *doc = e->line != NULL ? json_loadb(e->line, e->len, 0, NULL) : NULL;
        if (doc != NULL) json_array_append_new(list, doc);
    }
    return list;
}

static void set_known(json_t *o, const char *key, uint64_t value) {
    if (value != PL_LOOK_UNKNOWN) json_object_set_new(o, key, json_integer((json_int_t)value));
}

static json_t *gpus_json(const struct pl_admin *a, uint64_t now) {
    struct pl_look_gpu gpus[64];
    json_t *list = json_array();
    size_t n = pl_look_gpus(a->o.crew, now, gpus, sizeof gpus / sizeof *gpus);
    for (size_t i = 0; i < n; i++) {
        const struct pl_look_gpu *g = &gpus[i];
        json_t *o = json_pack("{s:i,s:s,s:s,s:b,s:I}", "gpu", (int)g->gpu, "uuid", g->uuid, "name", g->name,
                              "in_service", g->in_service, "sample_age_ms", (json_int_t)g->sample_age_ms);
        set_known(o, "total_bytes", g->total);
        set_known(o, "used_bytes", g->used);
        set_known(o, "foreign_bytes", g->foreign);
        if (g->utilization_pct != PL_LOOK_UNKNOWN)
            json_object_set_new(o, "utilization_ratio", json_real((double)g->utilization_pct / 100));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *pl_status_json(struct pl_admin *a, const char *service) {
    struct pl_app *app = a->o.app;
    uint64_t now = pl_now_ms(app->clock);
    char boot[20], hash[17];
    if (service != NULL) {
        struct pl_service *s = pl_crew_find(a->o.crew, service, strlen(service));
        return s != NULL ? service_json(a, s, now) : NULL;
    }
    snprintf(boot, sizeof boot, "%08llx", (unsigned long long)(app->boot & 0xffffffff));
    pl_config_hash(app->config, hash);
    json_t *services = json_array();
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++)
        json_array_append_new(services, service_json(a, pl_crew_service(a->o.crew, i), now));
    json_t *config = json_pack("{s:s,s:b}", "hash", hash, "rejected", a->o.rejected());
    if (app->config->file != NULL) json_object_set_new(config, "file", json_string(app->config->file));
    json_t *o = json_pack("{s:i,s:s,s:s,s:s,s:s,s:o,s:f,s:b,s:b,s:b,s:o,s:o,s:o}", "v", 1, "kind", "status",
                          "instance", app->config->name, "version", a->o.version, "boot", boot, "pid",
                          json_pack("{s:i,s:i}", "keeper", (int)a->o.keeper_pid, "main", (int)getpid()),
                          "uptime_s", (double)(now - app->started_ms) / 1000, "ready", pl_admin_ready(a),
                          "draining", app->stopping, "dry_run", a->o.dry_run, "config", config, "services",
                          services, "events", events_json(a, 10));
    json_object_set_new(o, "started", json_string(a->o.start_reason));
    add_last_life(o, a->o.crew);
    json_object_set_new(o, "gpus", gpus_json(a, now));
    if (a->o.state_dir != NULL) json_object_set_new(o, "state_dir", json_string(a->o.state_dir));
    if (a->tls_until_s != 0) {
        char ts[PL_TIME_TEXT];
        const char *until = pl_time_rfc3339((uint64_t)a->tls_until_s * 1000, ts);
        json_object_set_new(o, "tls", json_pack("{s:s}", "not_after", until));
    }
    if (a->o.listen != NULL) json_object_set_new(o, "listen", json_pack("[s]", a->o.listen));
    if (a->o.admin != NULL) json_object_set_new(o, "admin", json_string(a->o.admin));
    return o;
}
