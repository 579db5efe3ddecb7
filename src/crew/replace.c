/* replace.c - overlap replacement: a successor is started beside the old worker, warmed, and only when it is
 * READY does the old one drain. A successor that does not become READY is rolled back: the old one serves on.
 * One slot after the other, one replacement of a service at a time. */
#include <stdio.h>
#include <string.h>

#include "crew/more.h"

static struct pl_logger *log_of(const struct pl_service *s) { return s->crew->app->log; }

static struct pl_worker *ready_in(const struct pl_service *s, uint32_t slot) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot == slot && w->state == PL_WORKER_READY && !w->more->replaced) return w;
    return NULL;
}

static void finish(struct pl_service *s, bool ok, const char *message) {
    struct pl_replacement *r = &s->more->replacement;
    struct pl_crew *c = s->crew;
    char action[sizeof r->action];
    memcpy(action, r->action, sizeof action);
    *r = (struct pl_replacement){ 0 };
    if (action[0] != '\0' && c->on_action != NULL) c->on_action(c->ctx, action, ok, message);
}

/* A slot whose worker is FAILED or waits in BACKOFF is simply started again. */
static bool retry_slot(struct pl_service *s, uint32_t slot) {
    struct pl_slot *place = pl_life_slot(s, slot);
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->slot != slot || (w->state != PL_WORKER_FAILED && w->state != PL_WORKER_BACKOFF)) continue;
        place->failed = false;
        place->failed_starts = 0;
        pl_life_feed(w, PL_WEV_RETRY);
        pl_life_tend(s, pl_crew_now(s->crew));
        return true;
    }
    return false;
}

static struct pl_worker *starting_in(const struct pl_service *s, uint32_t slot) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot == slot && w->state < PL_WORKER_READY) return w;
    return NULL;
}

static void begin_slot(struct pl_service *s) {
    struct pl_replacement *r = &s->more->replacement;
    struct pl_worker *old = ready_in(s, r->slot);
    r->started_ms = pl_crew_now(s->crew);
    r->successor = NULL;
    if (old == NULL) {
        if (retry_slot(s, r->slot)) r->successor = starting_in(s, r->slot);
        return; /* nothing serves there: tick waits until the slot is READY again */
    }
    r->from_generation = old->generation;
    pl_log(log_of(s), PL_INFO, "worker.replace", F_STR("service", s->config->id), F_INT("worker", r->slot),
           F_INT("generation", old->generation), F_STR("reason", r->reason), F_STR("mode", "overlap"),
           F_INT("expected_gap_ms", 0));
    pl_life_successor(s, old);
    r->successor = starting_in(s, r->slot);
    if (r->successor == NULL) pl_replace_lost(NULL);
}

bool pl_service_replace(struct pl_service *s, uint32_t slot, const char *reason, const char *action,
                        struct pl_err *err) {
    struct pl_replacement *r = &s->more->replacement;
    if (r->active) {
        PL_FAIL(err, PL_E_LIMIT, "a replacement of %s is under way", s->config->id);
        return pl_err_hint(err, "wait for it: plimsoll status %s", s->config->id);
    }
    if (slot > pl_life_slots(s))
        return PL_FAIL(err, PL_E_USAGE, "%s has %u workers: there is no worker %u", s->config->id,
                       pl_life_slots(s), slot);
    *r = (struct pl_replacement){ .active = true,
                                  .reason = reason,
                                  .slot = slot != 0 ? slot : 1,
                                  .last_slot = slot != 0 ? slot : pl_life_slots(s) };
    snprintf(r->action, sizeof r->action, "%s", action != NULL ? action : "");
    begin_slot(s);
    return true;
}

static void next_slot(struct pl_service *s, struct pl_worker *successor) {
    struct pl_replacement *r = &s->more->replacement;
    if (r->slot >= r->last_slot) {
        char message[128];
        snprintf(message, sizeof message, "generation %llu -> %llu, no gap",
                 (unsigned long long)r->from_generation, (unsigned long long)successor->generation);
        finish(s, true, message);
        return;
    }
    r->slot++;
    begin_slot(s);
}

void pl_replace_ready(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_replacement *r = &s->more->replacement;
    struct pl_worker *old = w->more->replaces;
    w->more->replaces = NULL;
    if (old != NULL && pl_worker_has_process(old->state)) {
        old->more->replaced = true;
        if (old->state == PL_WORKER_READY) pl_life_feed(old, PL_WEV_REPLACE);
    }
    if (!r->active || r->successor != w) return;
    uint64_t took = pl_crew_now(s->crew) - r->started_ms;
    struct pl_metrics *m = s->crew->app->metrics;
    pl_series_add(pl_series(m, PL_M_WORKER_REPLACEMENTS_TOTAL, s->config->id, r->reason, "overlap"), 1);
    pl_series_observe(pl_series(m, PL_M_REPLACEMENT_SECONDS, s->config->id), (double)took / 1000);
    pl_log(log_of(s), PL_INFO, "worker.replaced", F_STR("service", s->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_INT("took_ms", took), F_INT("gap_ms", 0));
    s->crew->hooks.renewed(s->crew->hooks.ctx, s);
    next_slot(s, w);
}

/* The successor died before it was READY. */
static void roll_back(struct pl_service *s, const char *why) {
    pl_log(log_of(s), PL_WARN, "worker.rollback", F_STR("service", s->config->id),
           F_INT("worker", s->more->replacement.slot), F_STR("reason", why));
    finish(s, false, why);
}

void pl_replace_lost(struct pl_worker *w) {
    if (w == NULL) return; /* it could not even be made: the tick sees it */
    struct pl_service *s = w->service;
    w->more->replaces = NULL;
    w->more->replaced = true; /* the slot is the old one's still */
    if (s->more->replacement.active && s->more->replacement.successor == w)
        roll_back(s, w->more->end_sentence);
}

void pl_replace_tick(struct pl_service *s, uint64_t now) {
    struct pl_replacement *r = &s->more->replacement;
    (void)now;
    if (!r->active || r->successor != NULL) return;
    r->successor = starting_in(s, r->slot);
    if (r->successor != NULL) return;
    struct pl_worker *w = ready_in(s, r->slot);
    if (w != NULL && w->generation != r->from_generation)
        next_slot(s, w);
    else
        roll_back(s, "its successor could not be started");
}
