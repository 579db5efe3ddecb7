#include "crew/look.h"
#include "crew/zygote.h"

#include <stdio.h>
#include <string.h>

#include "crew/more.h"

static const struct pl_worker *starting(const struct pl_service *s) {
    const struct pl_worker *best = NULL;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->state < PL_WORKER_READY && (best == NULL || w->state > best->state)) best = w;
    return best;
}

void pl_look_start(const struct pl_service *s, uint64_t now_ms, const char **phase, uint64_t *since_ms,
                   char *detail, size_t room) {
    const struct pl_worker *w = starting(s);
    detail[0] = '\0';
    *phase = NULL;
    *since_ms = 0;
    if (w == NULL) {
        if (s->more->last_death[0] != '\0') snprintf(detail, room, "%s", s->more->last_death);
        return;
    }
    const struct pl_worker_more *o = w->more;
    const struct pl_service *missing = pl_depend_waits(w) ? pl_depend_missing(w) : NULL;
    *since_ms = now_ms - o->time.spawned;
    if (s->kind != PL_KIND_PYTHON && w->state < PL_WORKER_WARMING) {
        *phase = "socket";
        const char *path = pl_ready_path(s->crew->app->config, s->index, o->probe_turn);
        if (o->probe_status != 0)
            snprintf(detail, room, "GET %.100s is answered %u", path, o->probe_status);
        else
            snprintf(detail, room, "nobody answers GET %.100s yet", path);
        return;
    }
    if (missing != NULL) {
        *phase = "loaded";
        snprintf(detail, room, "imported; waits for its dependency %.100s", missing->config->id);
    } else if (w->state == PL_WORKER_WARMING) {
        *phase = "warm";
        if (o->sample != NULL)
            snprintf(detail, room, "warm-up %u of at most %lld: %.100s", o->warmup.done + 1,
                     (long long)s->config->warmup_max, o->sample->target);
    } else if (o->time.loaded != 0) {
        *phase = "socket";
        snprintf(detail, room, "loaded; waits for the service's own readiness");
    } else if (o->time.imported != 0) {
        *phase = "loaded";
        snprintf(detail, room, "imported; __init__ runs");
    } else {
        *phase = "imported";
        snprintf(detail, room, "python starts and imports the service");
    }
}

uint32_t pl_look_attempt(const struct pl_service *s) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->more->slot_room; i++)
        if (s->more->slots[i].failed_starts > most) most = s->more->slots[i].failed_starts;
    return most + 1;
}

uint64_t pl_look_proof_age_ms(const struct pl_service *s, uint64_t now_ms) {
    uint64_t newest = 0;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->state == PL_WORKER_READY && pl_canary_proof_ms(w) > newest) newest = pl_canary_proof_ms(w);
    return newest != 0 ? now_ms - newest : UINT64_MAX;
}

/* One that shows progress is enough: then the service does. */
uint64_t pl_look_silent_ms(const struct pl_service *s) {
    uint64_t least = UINT64_MAX;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->state != PL_WORKER_READY) continue;
        uint64_t silent = pl_silence_ms(&w->more->silence);
        if (silent < least) least = silent;
    }
    return least != UINT64_MAX ? least : 0;
}

bool pl_look_wanted(const struct pl_service *s) {
    return !pl_depend_is(s) || s->workers != NULL || pl_depend_wanted(s);
}

const struct pl_description *pl_look_description(const struct pl_service *s) { return s->more->description; }

static uint64_t since(uint64_t at, uint64_t from) { return at > from ? at - from : 0; }

void pl_look_worker(struct pl_worker *w, uint64_t now_ms, struct pl_look_worker *out) {
    const struct pl_worker_more *o = w->more;
    struct pl_page_counters p = { 0 };
    pl_page_counters(&w->page, &p);
    *out = (struct pl_look_worker){ .age_ms = o->time.spawned != 0 ? now_ms - o->time.spawned : 0,
                                    .imported_ms = since(o->time.imported, o->time.spawned),
                                    .loaded_ms = since(o->time.loaded, o->time.spawned),
                                    .socket_ms = since(o->time.socket, o->time.spawned),
                                    .warm_ms = since(o->time.warm, o->time.spawned),
                                    .ready_ms = since(o->time.ready, o->time.spawned),
                                    .first_request_us = o->time.first_request_us,
                                    .first_us = o->time.first_us,
                                    .settled_us = o->time.settled_us,
                                    .requests = pl_depend_is(w->service) ? p.ended : w->served,
                                    .in_flight = pl_depend_is(w->service) ? p.in_flight : w->in_flight,
                                    .zombies = (uint32_t)o->zombies,
                                    .tasks = p.tasks,
                                    .warmup_requests = o->warmup.done,
                                    .warm = o->warm,
                                    .source = pl_sample_source_name(o->source),
                                    .way = pl_way_name(o->way) };
}

const char *pl_look_cause(const struct pl_worker *w, const char **sentence) {
    *sentence = w->more->end_sentence[0] != '\0' ? w->more->end_sentence : "it was stopped";
    return pl_cause_name(w->more->cause);
}

bool pl_look_last_death(const struct pl_service *s, struct pl_look_death *out) {
    if (s->more->last_death[0] == '\0') return false;
    snprintf(out->id, sizeof out->id, "d%llu", (unsigned long long)s->more->last_death_generation);
    out->wall_ms = s->more->last_death_wall_ms;
    out->cause = pl_cause_name(s->more->last_cause);
    out->sentence = s->more->last_death;
    return true;
}

static const struct pl_worker *first_ready(const struct pl_service *s) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->state == PL_WORKER_READY) return w;
    return NULL;
}

static void look_under_way(const struct pl_service *s, uint64_t now_ms, struct pl_look_replacement *out) {
    const struct pl_replacement *r = &s->more->replacement;
    struct pl_service_gap gap;
    out->planned = out->under_way = true;
    out->mode = pl_replace_way_name(r->way);
    out->reason = pl_replace_reason_name(r->reason);
    out->slot = r->slot;
    out->gap_known = true;
    if (!pl_service_gap(s, now_ms, &gap)) return;
    out->gap_known = gap.left_ms != 0;
    out->expected_gap_ms = gap.left_ms;
}

void pl_look_replacement(const struct pl_service *s, uint64_t now_ms, struct pl_look_replacement *out) {
    const struct pl_service_more *o = s->more;
    const struct pl_replacement *r = &o->replacement;
    enum pl_replace_way way = r->active ? r->way : pl_replace_way_now(s, NULL);
    struct pl_gap gap = { .boot_ms = 1 };
    *out = (struct pl_look_replacement){ .mode = pl_replace_way_name(way),
                                         .in_hour = pl_hour_count(&o->hour, now_ms),
                                         .max_per_hour = (uint32_t)s->config->replace_max_per_hour };
    if (r->active && !r->waiting) {
        look_under_way(s, now_ms, out);
        return;
    }
    if (way == PL_REPLACE_HANDOVER) out->expected_gap_ms = pl_gap_expect(s, first_ready(s), &gap);
    out->gap_known = gap.boot_ms != 0;
    if (!o->plan.is) return;
    out->planned = true;
    out->reason = pl_replace_reason_name(o->plan.reason);
    out->held_by = pl_replace_held_name(o->plan.held_by);
    out->slot = o->plan.slot;
}

bool pl_look_is_silent(const struct pl_worker *w) { return w->more->silent_told; }

struct pl_tail *pl_look_tail(const struct pl_service *s, uint32_t slot, bool previous) {
    if (previous) return s->more->previous_tail;
    if (slot == 0) return s->more->tail;
    struct pl_tail *newest = NULL;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->more->tail != NULL && w->slot == slot) newest = w->more->tail;
    return newest != NULL ? newest : s->more->previous_tail;
}

const char *pl_look_target(const struct pl_service *s, char *out, size_t room) {
    const struct pl_strings *words = &s->config->command;
    const struct pl_service_config *c = s->config;
    if (words->count == 0) return c->run != NULL ? c->run : c->model != NULL ? c->model : c->url;
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < words->count && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", i > 0 ? " " : "", words->at[i]);
    out[pl_death_whole_chars(out, strlen(out))] = '\0';
    return out;
}

const char *pl_look_engine(const struct pl_service *s) {
    bool bentoml = s->config->run != NULL && s->config->engine == PL_CFG_ENGINE_AUTO;
    return bentoml ? "bentoml" : pl_engine_name(pl_engine_of(s->config));
}
