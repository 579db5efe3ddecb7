/* replace.c - a worker's place is given to a successor, one slot after the other, one replacement of a
 * service at a time.
 *
 * Overlap: the successor is started beside the old worker, warmed, and only when it is READY does the old one
 * drain; one that does not become READY is rolled back. Handover: the old worker drains and ends first;
 * nobody serves the slot until its successor is READY, and if it fails the old one is gone: then it is a
 * start like any other, tried again with growing pauses. A silent worker is ended at once, and its place
 * restarts.
 */
#include <stdio.h>
#include <string.h>

#include "crew/books.h"
#include "crew/more.h"

static struct pl_logger *log_of(const struct pl_service *s) { return s->crew->app->log; }

static struct pl_worker *ready_in(const struct pl_service *s, uint32_t slot) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot == slot && w->state == PL_WORKER_READY && !w->more->replaced) return w;
    return NULL;
}

static struct pl_worker *starting_in(const struct pl_service *s, uint32_t slot) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot == slot && w->state < PL_WORKER_READY) return w;
    return NULL;
}

static struct pl_worker *by_generation(const struct pl_service *s, uint64_t generation) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->generation == generation && generation != 0) return w;
    return NULL;
}

static bool old_is_there(const struct pl_service *s) {
    const struct pl_worker *old = by_generation(s, s->more->replacement.from_generation);
    return old != NULL && old->state != PL_WORKER_GONE;
}

static void finish(struct pl_service *s, bool ok, const char *message) {
    struct pl_replacement *r = &s->more->replacement;
    struct pl_crew *c = s->crew;
    char action[sizeof r->action];
    memcpy(action, r->action, sizeof action);
    *r = (struct pl_replacement){ 0 };
    s->more->plan.is = false;
    pl_kept_save(s);
    pl_gap_meter(s, pl_crew_now(c));
    pl_life_ready_changed(s);
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

/* --- may it be done */

static bool share_a_device(const struct pl_gpus *a, const struct pl_gpus *b) {
    for (size_t i = 0; i < a->list.count; i++)
        for (size_t k = 0; k < b->list.count; k++)
            if (strcmp(a->list.at[i], b->list.at[k]) == 0) return true;
    return false;
}

/* Another service is being replaced on a device that both name: there may be room for one more, not for two.
 */
static bool device_is_busy(const struct pl_service *s) {
    for (size_t i = 0; i < s->crew->every_count; i++) {
        const struct pl_service *other = s->crew->every[i];
        const struct pl_replacement *r = &other->more->replacement;
        if (other != s && r->active && !r->waiting && share_a_device(&s->config->gpus, &other->config->gpus))
            return true;
    }
    return false;
}

/* How near its death is, as far as this reason knows. */
static uint64_t end_of(const struct pl_worker *w, enum pl_replace_reason reason) {
    if (w == NULL) return UINT64_MAX;
    uint64_t ms = w->more->forecast_ms != 0 ? w->more->forecast_ms : UINT64_MAX;
    return reason == PL_REPLACE_FOR_BUDGET && w->more->crowded.end_ms < ms ? w->more->crowded.end_ms : ms;
}

static struct pl_replace_case case_of(const struct pl_service *s, const struct pl_worker *w,
                                      enum pl_replace_reason reason, enum pl_replace_way way, uint64_t now) {
    struct pl_gap gap;
    const struct pl_service_more *o = s->more;
    uint64_t gap_ms = way == PL_REPLACE_OVERLAP ? 0 : pl_gap_expect(s, w, &gap);
    uint32_t in_flight = 0;
    const struct pl_service *seen =
        s->parent != NULL ? s->parent : s; /* its callers' requests bring its own */
    for (const struct pl_worker *each = seen->workers; each != NULL; each = each->next)
        in_flight += each->in_flight;
    return (struct pl_replace_case){ .reason = reason,
                                     .mode = s->config->mode,
                                     .way = way,
                                     .under_way = o->replacement.active,
                                     .device_busy = device_is_busy(s),
                                     .flowing =
                                         pl_is_flowing(in_flight, now - seen->more->last_request_ms, gap_ms),
                                     .gap_ms = gap_ms,
                                     .hold_ms = pl_gap_hold_ms(s),
                                     .boot_ms = s->boot_ms,
                                     .forecast_ms = end_of(w, reason),
                                     .in_hour = pl_hour_count(&o->hour, now),
                                     .max_per_hour = (uint32_t)s->config->replace_max_per_hour };
}

static void tell_held(const struct pl_service *s, uint32_t slot, const struct pl_replace_case *c,
                      enum pl_replace_held why, uint64_t until_ms) {
    uint64_t now = pl_crew_now(s->crew);
    char until[PL_TIME_TEXT] = "";
    if (until_ms > now) pl_time_rfc3339(pl_wall_ms(s->crew->app->clock) + (until_ms - now), until);
    pl_log(log_of(s), PL_WARN, "worker.replace_held", F_STR("service", s->config->id), F_INT("worker", slot),
           F_STR("reason", pl_replace_reason_name(c->reason)), F_STR("why", pl_replace_held_name(why)),
           F_STR("mode", pl_replace_way_name(c->way)), F_INT("expected_gap_ms", c->gap_ms),
           F_STR("until", until[0] != '\0' ? until : NULL));
}

/* --- it is done */

static void tell_begin(const struct pl_service *s, const struct pl_worker *old, enum pl_replace_reason reason,
                       enum pl_replace_way way, uint64_t gap_ms) {
    pl_log(log_of(s), PL_INFO, "worker.replace", F_STR("service", s->config->id), F_INT("worker", old->slot),
           F_INT("generation", old->generation), F_STR("reason", pl_replace_reason_name(reason)),
           F_STR("mode", pl_replace_way_name(way)), F_INT("expected_gap_ms", gap_ms));
}

static void begin_handover(struct pl_service *s, struct pl_worker *old) {
    struct pl_replacement *r = &s->more->replacement;
    pl_ahead_begin(s); /* while the old one drains */
    bool alone = pl_gap_expect(s, old, &r->gap) != 0 || pl_service_ready_count(s) <= old->routable;
    r->gap_from_ms = alone ? r->started_ms : 0;
    r->ready_held = alone && pl_gap_stays_ready(s, r->expected_ms);
    s->held = s->refused = 0;
    pl_kept_save(s); /* before anything is done: the next main must know why nobody serves */
    pl_life_feed(old, PL_WEV_REPLACE);
    pl_gap_meter(s, r->started_ms);
    s->crew->hooks.supply_changed(s->crew->hooks.ctx, s);
}

static void begin_overlap(struct pl_service *s, struct pl_worker *old) {
    struct pl_replacement *r = &s->more->replacement;
    pl_kept_save(s);
    pl_life_successor(s, old);
    r->successor = starting_in(s, r->slot);
}

static void begin_slot(struct pl_service *s) {
    struct pl_replacement *r = &s->more->replacement;
    struct pl_worker *old = ready_in(s, r->slot);
    struct pl_gap gap;
    r->started_ms = pl_crew_now(s->crew);
    r->successor = NULL;
    r->gap_from_ms = r->from_generation = r->expected_ms = 0;
    r->waiting = false;
    if (old == NULL) {
        if (retry_slot(s, r->slot)) r->successor = starting_in(s, r->slot);
        return; /* nothing serves there: tick waits until the slot is READY again */
    }
    r->from_generation = old->generation;
    r->expected_ms = r->way == PL_REPLACE_HANDOVER ? pl_gap_expect(s, old, &gap) : 0;
    pl_hour_add(&s->more->hour, r->started_ms);
    tell_begin(s, old, r->reason, r->way, r->expected_ms);
    if (r->way == PL_REPLACE_HANDOVER)
        begin_handover(s, old);
    else
        begin_overlap(s, old);
}

bool pl_service_fixed(const struct pl_service *s) {
    return s->kind == PL_KIND_COMMAND && !s->more->as_command && pl_place_of(s->config) == PL_PLACE_FIXED;
}

/* An operator waits for a quiet moment: now, or asked again by the tick. */
static void try_slot(struct pl_service *s) {
    struct pl_replacement *r = &s->more->replacement;
    const struct pl_worker *old = ready_in(s, r->slot);
    enum pl_replace_held why;
    struct pl_replace_case c = case_of(s, old, r->reason, r->way, pl_crew_now(s->crew));
    c.under_way = false; /* it is this one */
    c.now = r->now;
    if (old == NULL || pl_replace_judge(&c, &why) != PL_REPLACE_HELD) {
        begin_slot(s);
        return;
    }
    if (!r->waiting) {
        tell_held(s, r->slot, &c, why, 0);
        r->waiting = true;
        pl_kept_save(s);
    }
    s->more->plan =
        (struct pl_replace_plan){ .is = true, .reason = r->reason, .slot = r->slot, .held_by = why };
}

/* By what the driver says of its devices, else by what the pages say. */
static bool has_room_beside(struct pl_worker *w) {
    bool known;
    bool room = pl_room_beside(w, &known);
    return known ? room : pl_books_room(w);
}

enum pl_replace_way pl_replace_way_now(const struct pl_service *s, struct pl_worker *old) {
    enum pl_replace_way way = pl_host_way(s);
    if (way != PL_REPLACE_OVERLAP || s->config->replace_mode != PL_CFG_REPLACE_MODE_AUTO) return way;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if ((w == old || (old == NULL && w->state == PL_WORKER_READY)) && !has_room_beside(w))
            return PL_REPLACE_HANDOVER;
    return PL_REPLACE_OVERLAP;
}

static bool wished_way(const struct pl_service *s, uint32_t slot, const char *mode,
                       enum pl_replace_way *way) {
    *way = pl_replace_way_now(s, ready_in(s, slot));
    if (mode == NULL || strcmp(mode, "auto") == 0) return true;
    *way = strcmp(mode, "handover") == 0 ? PL_REPLACE_HANDOVER : PL_REPLACE_OVERLAP;
    return *way == PL_REPLACE_HANDOVER || strcmp(mode, "overlap") == 0;
}

bool pl_service_replace(struct pl_service *s, const struct pl_replace_wish *wish,
                        struct pl_replace_answer *answer, struct pl_err *err) {
    struct pl_replacement *r = &s->more->replacement;
    enum pl_replace_way way;
    struct pl_gap gap;
    struct pl_replace_answer unread;
    if (answer == NULL) answer = &unread;
    if (s->kind == PL_KIND_REMOTE) {
        PL_FAIL(err, PL_E_USAGE, "%s is run by somebody else, at %s: Plimsoll cannot restart it",
                s->config->id, s->config->url);
        return pl_err_hint(err,
                           "restart it where it was started: requests get 503 with Retry-After meanwhile");
    }
    if (s->crew->frozen) return PL_FAIL(err, PL_E_LIMIT, "an upgrade is under way: wait for its end");
    if (r->active && !(r->waiting && wish->now)) {
        PL_FAIL(err, PL_E_LIMIT, "a replacement of %s %s", s->config->id,
                r->waiting ? "waits for a quiet moment" : "is under way");
        return pl_err_hint(err, r->waiting ? "--now does not wait" : "wait for it: plimsoll status %s",
                           s->config->id);
    }
    if (wish->slot > pl_life_slots(s))
        return PL_FAIL(err, PL_E_USAGE, "%s has %u workers: there is no worker %u", s->config->id,
                       pl_life_slots(s), wish->slot);
    if (!wished_way(s, wish->slot, wish->mode, &way)) {
        PL_FAIL(err, PL_E_USAGE, "there is no replacement mode '%.40s'", wish->mode);
        return pl_err_hint(err, "auto, overlap or handover");
    }
    if (way == PL_REPLACE_OVERLAP && pl_service_fixed(s)) {
        PL_FAIL(err, PL_E_USAGE, "%s always listens on port %lld, so that no successor can start beside it",
                s->config->id, (long long)s->config->worker_port);
        return pl_err_hint(err, "--mode handover, or write {port} in its command instead of --worker-port");
    }
    if (r->active) finish(s, false, "somebody did not want to wait for a quiet moment");
    *r = (struct pl_replacement){ .active = true,
                                  .now = wish->now,
                                  .reason = wish->reason,
                                  .way = way,
                                  .slot = wish->slot != 0 ? wish->slot : 1,
                                  .last_slot = wish->slot != 0 ? wish->slot : pl_life_slots(s) };
    snprintf(r->action, sizeof r->action, "%s", wish->action != NULL ? wish->action : "");
    *answer = (struct pl_replace_answer){ .mode = pl_replace_way_name(way), .hold_ms = pl_gap_hold_ms(s) };
    if (way == PL_REPLACE_HANDOVER) answer->expected_gap_ms = pl_gap_expect(s, ready_in(s, r->slot), &gap);
    answer->gap_known = way == PL_REPLACE_OVERLAP || gap.boot_ms != 0;
    try_slot(s);
    answer->waits = r->waiting;
    return true;
}

/* A worker that answers nothing has nothing to hand over: it is ended, and its slot starts again at once. */
static void end_silent(struct pl_worker *w, uint64_t silent_ms, uint64_t now) {
    struct pl_service *s = w->service;
    struct pl_gap gap;
    uint64_t gap_ms = pl_gap_expect(s, w, &gap);
    pl_hour_add(&s->more->hour, now);
    pl_kept_save(s);
    tell_begin(s, w, PL_REPLACE_FOR_HANG, PL_REPLACE_RESTART, gap_ms);
    w->more->hung_ms = silent_ms;
    pl_life_feed(w, PL_WEV_STOP);
}

void pl_service_would(struct pl_service *s, const char *action, const char *reason) {
    pl_series_add(pl_series(s->crew->app->metrics, PL_M_WOULD_TOTAL, s->config->id, action, reason), 1);
}

static void tell_would(struct pl_worker *w, const struct pl_replace_case *c, enum pl_replace_way way) {
    struct pl_service *s = w->service;
    uint32_t bit = 1u << c->reason;
    if ((w->more->would_told & bit) != 0) return;
    w->more->would_told |= bit;
    pl_service_would(s, "replace", pl_replace_reason_name(c->reason));
    pl_log(log_of(s), PL_INFO, "would.replace", F_STR("service", s->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_STR("reason", pl_replace_reason_name(c->reason)),
           F_STR("way", pl_replace_way_name(way)), F_INT("expected_gap_ms", c->gap_ms),
           F_STR("mode", pl_config_word("mode", s->config->mode)));
}

static void hold_back(struct pl_worker *w, const struct pl_replace_case *c, enum pl_replace_held why,
                      uint64_t now) {
    struct pl_service *s = w->service;
    uint32_t bit = 1u << c->reason;
    uint64_t until = why == PL_HELD_BY_CAP ? pl_hour_free_at_ms(&s->more->hour, c->max_per_hour, now) : 0;
    if (why == PL_HELD_BY_OTHER) return; /* its turn comes */
    s->more->plan = (struct pl_replace_plan){
        .is = true, .reason = c->reason, .slot = w->slot, .held_by = why, .until_ms = until
    };
    if ((w->more->held_told & bit) != 0) return;
    w->more->held_told |= bit;
    tell_held(s, w->slot, c, why, until);
}

void pl_replace_propose(struct pl_worker *w, enum pl_replace_reason reason, uint64_t silent_ms) {
    struct pl_service *s = w->service;
    uint64_t now = pl_crew_now(s->crew);
    enum pl_replace_way way = silent_ms != 0 ? PL_REPLACE_RESTART : pl_replace_way_now(s, w);
    enum pl_replace_held why;
    if (!pl_replace_listed(reason, &s->config->replace_when)) return;
    struct pl_replace_case c = case_of(s, w, reason, way, now);
    c.silent = silent_ms != 0;
    const struct pl_replacement *r = &s->more->replacement;
    if (c.silent) c.under_way = r->active && !r->waiting && r->slot == w->slot;
    switch (pl_replace_judge(&c, &why)) {
    case PL_REPLACE_GO:
        if (c.silent) {
            end_silent(w, silent_ms, now);
            return;
        }
        s->more->replacement = (struct pl_replacement){
            .active = true, .reason = reason, .way = way, .slot = w->slot, .last_slot = w->slot
        };
        begin_slot(s);
        return;
    case PL_REPLACE_WOULD:
        tell_would(w, &c, way);
        return;
    case PL_REPLACE_HELD:
        hold_back(w, &c, why, now);
        return;
    case PL_REPLACE_NOT:
        return;
    }
}

void pl_replace_settled(struct pl_worker *w, enum pl_replace_reason reason) {
    w->more->would_told &= ~(1u << reason);
    w->more->held_told &= ~(1u << reason);
}

/* --- its end */

void pl_replace_counted(const struct pl_service *s, enum pl_replace_reason reason, enum pl_replace_way way,
                        uint64_t took_ms) {
    struct pl_metrics *m = s->crew->app->metrics;
    pl_series_add(pl_series(m, PL_M_WORKER_REPLACEMENTS_TOTAL, s->config->id, pl_replace_reason_name(reason),
                            pl_replace_way_name(way)),
                  1);
    pl_series_observe(pl_series(m, PL_M_REPLACEMENT_SECONDS, s->config->id), (double)took_ms / 1000);
}

static void next_slot(struct pl_service *s, const struct pl_worker *successor) {
    struct pl_replacement *r = &s->more->replacement;
    if (r->slot < r->last_slot) {
        r->slot++;
        try_slot(s);
        return;
    }
    char message[160], gap[48] = "no gap";
    if (r->gap_longest_ms != 0)
        snprintf(gap, sizeof gap, "gap %.1f s, %u held, %u refused", (double)r->gap_longest_ms / 1000,
                 s->held, s->refused);
    snprintf(message, sizeof message, "generation %llu -> %llu, %s", (unsigned long long)r->from_generation,
             (unsigned long long)successor->generation, gap);
    finish(s, true, message);
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
    bool mine = r->successor == w || (r->successor == NULL && r->slot == w->slot && !old_is_there(s));
    if (!r->active || r->waiting || !mine) return;
    uint64_t now = pl_crew_now(s->crew), took = now - r->started_ms;
    uint64_t gap = r->gap_from_ms != 0 ? now - r->gap_from_ms : 0;
    if (gap > r->gap_longest_ms) r->gap_longest_ms = gap;
    pl_replace_counted(s, r->reason, r->way, took);
    pl_log(log_of(s), PL_INFO, "worker.replaced", F_STR("service", s->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_STR("reason", pl_replace_reason_name(r->reason)),
           F_STR("mode", pl_replace_way_name(r->way)), F_INT("took_ms", took), F_INT("gap_ms", gap),
           F_INT("held", gap != 0 ? s->held : 0), F_INT("refused", gap != 0 ? s->refused : 0));
    if (r->reason == PL_REPLACE_FOR_OPERATOR || r->reason == PL_REPLACE_FOR_GENERATION)
        s->crew->hooks.renewed(s->crew->hooks.ctx, s);
    next_slot(s, w);
}

/* The successor died before it was READY. */
static void roll_back(struct pl_service *s, const char *why) {
    char message[400];
    const struct pl_replacement *r = &s->more->replacement;
    bool gone = r->way == PL_REPLACE_HANDOVER || !old_is_there(s);
    snprintf(message, sizeof message, "%.280s; %s", why,
             gone ? "the old worker is gone: starts are tried again with growing pauses"
                  : "the old worker serves on");
    pl_log(log_of(s), PL_WARN, "worker.rollback", F_STR("service", s->config->id), F_INT("worker", r->slot),
           F_STR("mode", pl_replace_way_name(r->way)), F_STR("reason", why), F_STR("message", message));
    finish(s, false, message);
}

bool pl_replace_lost(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_replacement *r = &s->more->replacement;
    const struct pl_worker *old = w->more->replaces;
    bool beside = old != NULL && pl_worker_has_process(old->state), mine = r->active && r->successor == w;
    if (!beside && !mine) return false;
    bool serves_on = beside || (r->way == PL_REPLACE_OVERLAP && old_is_there(s));
    w->more->replaces = NULL;
    if (serves_on) w->more->replaced = true; /* the slot is the old one's still */
    if (mine) roll_back(s, w->more->end_sentence);
    return serves_on;
}

/* It died and is gone before its successor was READY, or the other way round. */
void pl_replace_forget(const struct pl_worker *w) {
    struct pl_service *s = w->service;
    for (struct pl_worker *each = s->workers; each != NULL; each = each->next)
        if (each->more->replaces == w) each->more->replaces = NULL;
    if (s->more->replacement.successor == w) s->more->replacement.successor = NULL;
}

static const char stuck[] =
    "the old worker does not end, even by SIGKILL: its place stays empty until it does";

void pl_replace_tick(struct pl_service *s, uint64_t now) {
    struct pl_replacement *r = &s->more->replacement;
    if (!r->active || r->successor != NULL || s->crew->stopping) return;
    if (r->waiting) {
        if (now - r->started_ms >= 1000 && !s->crew->frozen) {
            r->started_ms = now;
            try_slot(s);
        }
        return;
    }
    if (r->way == PL_REPLACE_HANDOVER && old_is_there(s)) { /* it drains, or ends */
        struct pl_worker *old = by_generation(s, r->from_generation);
        if (old->state == PL_WORKER_READY)
            pl_life_feed(old, PL_WEV_REPLACE); /* adopted and warmed once more */
        if (old->state != PL_WORKER_STUCK) return;
        pl_log(log_of(s), PL_WARN, "worker.rollback", F_STR("service", s->config->id),
               F_INT("worker", r->slot), F_STR("mode", pl_replace_way_name(r->way)), F_STR("reason", stuck));
        finish(s, false, stuck);
        return;
    }
    r->successor = starting_in(s, r->slot);
    if (r->successor != NULL) return;
    struct pl_worker *w = ready_in(s, r->slot);
    if (w != NULL && w->generation != r->from_generation)
        next_slot(s, w);
    else if (r->way == PL_REPLACE_OVERLAP || pl_life_slot(s, r->slot)->failed_starts > 0)
        roll_back(s, "its successor could not be started");
}

/* --- a main before this one had begun it */

/* Of a dependency nothing is kept: two in one place are an overlap. */
static void pair_up(struct pl_service *s) {
    for (struct pl_worker *w = s->workers, *next; w != NULL; w = next) {
        next = w->next;
        struct pl_worker *old = ready_in(s, w->slot);
        if (old == NULL || old->generation >= w->generation || w->state > PL_WORKER_READY) continue;
        w->more->replaces = old;
        if (w->state == PL_WORKER_READY) pl_replace_ready(w);
    }
}

void pl_replace_resume(struct pl_service *s) {
    struct pl_replacement *r = &s->more->replacement;
    if (pl_depend_is(s)) pair_up(s);
    if (!r->active || r->waiting) return;
    struct pl_worker *old = by_generation(s, r->from_generation), *next = starting_in(s, r->slot);
    if (r->way == PL_REPLACE_HANDOVER) {
        if (old != NULL && old->state == PL_WORKER_READY) pl_life_feed(old, PL_WEV_REPLACE);
        if (old == NULL || old->state == PL_WORKER_GONE) r->successor = next;
    } else if (old != NULL && old->state == PL_WORKER_READY) {
        if (next != NULL) next->more->replaces = old;
        r->successor = next;
    }
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->slot != r->slot || w->state != PL_WORKER_READY || w == old) continue;
        w->more->replaces = old; /* it became READY in the moment main died */
        r->successor = w;
        pl_replace_ready(w);
        return;
    }
}
