#include "crew/explain.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "crew/look.h"
#include "crew/more.h"
#include "crew/shelf.h"
#include "worker/looks.h"

enum {
    PATIENCE_MS = 20000, /* beside twice the deadline: quiet waited for, a child killed, a slow machine */
    BUSY_TRIES = 2,
    BUSY_AGAIN_MS = 10000,
};

static const char *const results[] = { "done", "incomplete", "refused", "failed" };
enum result { DONE, INCOMPLETE, REFUSED, FAILED };
static const int exit_statuses[] = { 0, 4, 1, 5 };

/* One explanation under way, owned by its worker. */
struct pl_explaining {
    char action[24], why[32], mode[16];
    uint64_t deadline_ms, again_ms, look_at_ms, ended_before;
    uint32_t more; /* looks that were taken again */
    bool force, by_verdict, history_on;
    bool waits;    /* until look_at_ms, for the second look or to take one again */
    bool hurries;  /* to take one again: requests are not waited for */
    json_t *first; /* report of the first look, complete */
};

void pl_explain_init(const struct pl_service *s) {
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        pl_series(s->crew->app->metrics, PL_M_EXPLAIN_RUNS_TOTAL, s->config->id, results[i]);
}

const char *pl_look_holder(const struct pl_worker *w) { return w->more->holder; }

/* How it stands with what a verdict wanted to know. An operator's explanation is told to him. */
static void stands(struct pl_worker *w, const char *state, const char *reason) {
    const struct pl_explaining *e = w->more->explaining;
    struct pl_explained *x = &w->more->explained;
    if (e == NULL || !e->by_verdict) return;
    x->state = state;
    x->tries = e->more + 1;
    snprintf(x->reason, sizeof x->reason, "%s", reason);
}

bool pl_look_explained(const struct pl_worker *w, struct pl_look_explained *out) {
    const struct pl_explained *x = &w->more->explained;
    *out = (struct pl_look_explained){ .state = x->state,
                                       .reason = x->reason[0] != '\0' ? x->reason : NULL,
                                       .tries = x->tries };
    return x->state != NULL;
}

/* --- which worker */

static bool can_be_asked(const struct pl_worker *w) {
    return w->more->control != NULL && !w->exited &&
           (w->state == PL_WORKER_READY || w->state == PL_WORKER_DRAINING);
}

/* On its way out, then idle, then the least busy: lower is better. */
static uint64_t reluctance(const struct pl_worker *w) {
    return (w->state == PL_WORKER_DRAINING ? 0 : UINT64_C(1) << 32) + w->in_flight;
}

struct pl_worker *pl_explain_choose(struct pl_service *s, uint32_t slot, struct pl_err *err) {
    struct pl_worker *best = NULL;
    bool any = false;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (slot != 0 && w->slot != slot) continue;
        any = true;
        if (can_be_asked(w) && (best == NULL || reluctance(w) < reluctance(best))) best = w;
    }
    if (best != NULL) return best;
    if (s->kind != PL_KIND_PYTHON || s->more->as_command)
        PL_FAIL(err, PL_E_LIMIT, "%s has no worker of ours inside: only a Python service can be asked",
                s->config->id);
    else if (!any && slot != 0)
        PL_FAIL(err, PL_E_USAGE, "%s has no worker %u", s->config->id, slot);
    else
        PL_FAIL(err, PL_E_LIMIT, "no worker of %s is ready to be asked", s->config->id);
    return NULL;
}

/* --- the end of one */

static void count(const struct pl_worker *w, enum result r) {
    pl_series_add(pl_series(w->service->crew->app->metrics, PL_M_EXPLAIN_RUNS_TOTAL, w->service->config->id,
                            results[r]),
                  1);
}

void pl_explain_report(struct pl_crew *c, const char *action, int exit_status, const char *message,
                       const char *json) {
    if (action[0] != '\0' && c->on_report != NULL) c->on_report(c->ctx, action, exit_status, message, json);
}

static void not_minded(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    (void)ctx, (void)w, (void)line, (void)len;
}

static void end(struct pl_worker *w) {
    struct pl_explaining *e = w->more->explaining;
    if (e->history_on && e->by_verdict) /* only as long as it is needed */
        pl_control_ask(w, "record_history", ",\"on\":false", PATIENCE_MS, not_minded, NULL);
    json_decref(e->first);
    free(e);
    w->more->explaining = NULL;
}

static void refuse(struct pl_worker *w, enum result r, const char *reason, const char *hint) {
    struct pl_explaining *e = w->more->explaining;
    struct pl_proposal *p = &w->more->proposal;
    char message[400];
    count(w, r);
    pl_log(w->service->crew->app->log, PL_WARN, "explain.refused", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("reason", reason),
           F_STR("hint", hint), F_STR("why", e->why));
    snprintf(message, sizeof message, "%s: %s", reason, hint);
    stands(w, results[r], reason);
    if (e->by_verdict && strcmp(reason, "busy") == 0 && ++p->tries < BUSY_TRIES) {
        p->at_ms = pl_crew_now(w->service->crew) + BUSY_AGAIN_MS;
        stands(w, "waits", reason);
    }
    pl_explain_report(w->service->crew, e->action, exit_statuses[r], message, NULL);
    end(w);
}

/* "service.py:18" of the first of a list of places. */
static const char *first_place(const json_t *list, char *out, size_t room) {
    const json_t *at = json_array_get(list, 0);
    const char *file = json_string_value(json_object_get(at, "file"));
    if (file == NULL) return NULL;
    snprintf(out, room, "%s:%lld", file, (long long)json_integer_value(json_object_get(at, "line")));
    return out;
}

static void tell_holder(struct pl_worker *w, const json_t *row) {
    char grown[256], made[256];
    const char *holder = json_string_value(json_object_get(row, "holder"));
    const char *file = json_string_value(json_object_get(row, "file"));
    const char *kind = json_string_value(json_object_get(row, "kind"));
    const char *route = json_string_value(json_object_get(row, "route"));
    long long line = json_integer_value(json_object_get(row, "line"));
    pl_log(w->service->crew->app->log, PL_WARN, "memory.holder", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("holder", holder),
           F_STR("file", file), F_INT("line", line), F_STR("kind", kind),
           F_INT("bytes", json_integer_value(json_object_get(row, "bytes"))),
           F_BOOL("growing", json_is_true(json_object_get(row, "growing"))),
           F_STR("grown_at", first_place(json_object_get(row, "grown_at"), grown, sizeof grown)),
           F_STR("allocated_at", first_place(json_object_get(row, "allocated_at"), made, sizeof made)),
           F_STR("route", route));
    if (w->more->holder != NULL) return; /* the largest is told first */
    if (asprintf(&w->more->holder, "%s:%lld %s", file != NULL ? file : "?", line,
                 holder != NULL ? holder : "?") == -1)
        w->more->holder = NULL;
}

/* What holds more at the second look than at the first; rows come largest first. Returns how many. */
static int tell_growing(struct pl_worker *w, const json_t *found) {
    static const char *const lists[] = { "findings", "pinned_host" };
    int growing = 0;
    size_t i;
    json_t *row;
    free(w->more->holder);
    w->more->holder = NULL;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        json_array_foreach(json_object_get(found, lists[l]), i, row) {
            if (!json_is_true(json_object_get(row, "growing"))) continue;
            tell_holder(w, row);
            growing++;
        }
    return growing;
}

/* What is kept until the report lies on the disk; the worker may be gone by then. */
struct keeping {
    struct pl_crew *crew;
    char action[24];
    int exit_status;
    char message[200];
    char *text;
};

static void kept(void *ctx, const char *path, uint64_t bytes, const char *problem) {
    struct keeping *k = ctx;
    (void)bytes, (void)path;
    if (problem != NULL && k->crew->state_dir != NULL)
        pl_log(k->crew->app->log, PL_WARN, "explain.refused", F_STR("reason", "not_kept"),
               F_STR("hint", problem));
    pl_explain_report(k->crew, k->action, k->exit_status, k->message, k->text);
    free(k->text);
    free(k);
}

void pl_explain_name(const struct pl_worker *w, const char *ending, char *out, size_t room) {
    snprintf(out, room, "%013llu-%s-g%llu%s", (unsigned long long)pl_wall_ms(w->service->crew->app->clock),
             w->service->config->id, (unsigned long long)w->generation, ending);
}

static void finish(struct pl_worker *w, json_t *found) {
    struct pl_explaining *e = w->more->explaining;
    struct pl_crew *c = w->service->crew;
    char ts[PL_TIME_TEXT], file[128];
    const json_t *cost = json_object_get(found, "cost");
    double pause_ms = json_number_value(json_object_get(cost, "pause_ms"));
    bool complete = json_is_true(json_object_get(found, "complete"));
    int growing = tell_growing(w, found);
    stands(w, results[complete ? DONE : INCOMPLETE], "");
    pl_series_observe(pl_series(c->app->metrics, PL_M_EXPLAIN_PAUSE_SECONDS, w->service->config->id),
                      pause_ms / 1000);
    count(w, complete ? DONE : INCOMPLETE);
    pl_explain_name(w, ".json", file, sizeof file);
    pl_log(
        c->app->log, PL_INFO, "explain.done", F_STR("service", w->service->config->id),
        F_INT("worker", w->slot), F_INT("generation", w->generation),
        F_REAL("took_ms", json_number_value(json_object_get(cost, "total_ms"))), F_REAL("pause_ms", pause_ms),
        F_INT("findings", json_array_size(json_object_get(found, "findings"))), F_INT("growing", growing),
        F_STR("mode", json_string_value(json_object_get(found, "mode"))), F_BOOL("complete", complete),
        F_STR("why", e->why), F_INT("tries", e->more + 1), F_STR("file", c->state_dir != NULL ? file : NULL));
    json_t *doc =
        json_pack("{s:i,s:s,s:s,s:i,s:I,s:s,s:s}", "v", 1, "kind", "explain", "service",
                  w->service->config->id, "worker", (int)w->slot, "generation", (json_int_t)w->generation,
                  "ts", pl_time_rfc3339(pl_wall_ms(c->app->clock), ts), "why", e->why);
    json_object_update_missing(doc, found);
    struct keeping *k = calloc(1, sizeof *k);
    if (k != NULL) {
        *k = (struct keeping){ .crew = c, .exit_status = exit_statuses[complete ? DONE : INCOMPLETE] };
        memcpy(k->action, e->action, sizeof k->action);
        snprintf(k->message, sizeof k->message, "%d growing of %zu holders%s", growing,
                 json_array_size(json_object_get(found, "findings")), complete ? "" : ", not complete");
        k->text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        if (k->text == NULL || !pl_shelf_keep(c, "explain", file, k->text, kept, k))
            kept(k, "", 0, "out of memory");
    }
    json_decref(doc);
    end(w);
}

/* --- the looks */

static void looked(void *ctx, struct pl_worker *w, const char *line, size_t len);

static bool look(struct pl_worker *w) {
    const struct pl_explaining *e = w->more->explaining;
    char more[256];
    uint64_t deadline_ms = pl_looks_deadline_ms(e->deadline_ms, e->more);
    snprintf(more, sizeof more,
             ",\"mode\":\"%s\",\"deadline_ms\":%llu,\"force\":%s,\"again\":%s,\"retry\":%s,\"code\":%s",
             e->mode, (unsigned long long)deadline_ms, e->force ? "true" : "false",
             e->first != NULL ? "true" : "false", e->more > 0 ? "true" : "false",
             w->service->config->explain_code ? "true" : "false");
    stands(w, "under_way", "");
    return pl_control_ask(w, "explain", more, 2 * deadline_ms + PATIENCE_MS, looked, NULL);
}

static void wait_for(struct pl_worker *w, uint64_t ms, bool hurries) {
    struct pl_explaining *e = w->more->explaining;
    struct pl_page_counters p = { 0 };
    pl_page_counters(&w->page, &p);
    e->ended_before = p.ended;
    e->look_at_ms = pl_crew_now(w->service->crew) + ms;
    e->hurries = hurries;
    e->waits = true;
}

static void look_again(struct pl_worker *w, enum pl_look_came came) {
    struct pl_explaining *e = w->more->explaining;
    const char *reason = pl_look_came_name(came);
    e->more++;
    e->force |= came == PL_LOOK_BUSY; /* beside its requests, then */
    pl_log(w->service->crew->app->log, PL_WARN, "explain.again", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("reason", reason),
           F_INT("look", e->first != NULL ? 2 : 1), F_INT("try", e->more + 1), F_INT("of", PL_LOOKS_MORE + 1),
           F_INT("deadline_ms", pl_looks_deadline_ms(e->deadline_ms, e->more)), F_STR("why", e->why));
    stands(w, "waits", reason);
    wait_for(w, PL_LOOKS_AGAIN_MS, true);
}

static enum pl_look_came what_came(const json_t *said, const json_t *found) {
    const char *refused = json_string_value(json_object_get(said, "refused"));
    const char *error = json_string_value(json_object_get(said, "error"));
    if (json_is_object(found))
        return json_is_true(json_object_get(found, "complete")) ? PL_LOOK_COMPLETE : PL_LOOK_INCOMPLETE;
    if (said == NULL) return PL_LOOK_SILENT;
    const char *word = refused != NULL ? refused : error != NULL ? error : "";
    return strcmp(word, "running") == 0 ? PL_LOOK_RUNNING
           : strcmp(word, "busy") == 0  ? PL_LOOK_BUSY
                                        : PL_LOOK_NEVER;
}

static void refuse_said(struct pl_worker *w, const json_t *said) {
    const char *refused = json_string_value(json_object_get(said, "refused"));
    const char *hint = json_string_value(json_object_get(said, "hint"));
    const char *error = json_string_value(json_object_get(said, "error"));
    if (refused != NULL)
        refuse(w, REFUSED, refused, hint != NULL ? hint : "");
    else
        refuse(w, FAILED, "failed", error != NULL ? error : "the worker did not answer in time, or ended");
}

static void looked(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    (void)ctx;
    struct pl_explaining *e = w->more->explaining;
    if (e == NULL) return;
    json_t *said = line != NULL ? json_loadb(line, len, 0, NULL) : NULL;
    json_t *found = json_object_get(said, "report");
    enum pl_look_came came = what_came(said, found);
    const struct pl_looks so_far = { .by_verdict = e->by_verdict,
                                     .two = e->again_ms != 0,
                                     .first = e->first != NULL,
                                     .alive = can_be_asked(w),
                                     .more = e->more };
    switch (pl_looks_next(&so_far, came)) {
    case PL_LOOKS_SECOND:
        e->first = json_incref(found);
        wait_for(w, e->again_ms, false);
        break;
    case PL_LOOKS_AGAIN:
        look_again(w, came);
        break;
    case PL_LOOKS_REPORT:
        finish(w, found);
        break;
    case PL_LOOKS_FIRST:
        finish(w, e->first);
        break;
    case PL_LOOKS_NOTHING:
        refuse_said(w, said);
        break;
    }
    json_decref(said);
}

static void history_told(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    (void)ctx;
    struct pl_explaining *e = w->more->explaining;
    if (e == NULL) return;
    json_t *said = line != NULL ? json_loadb(line, len, 0, NULL) : NULL;
    const char *refused = json_string_value(json_object_get(said, "refused"));
    e->history_on = json_is_true(json_object_get(said, "on"));
    if (refused != NULL && !e->by_verdict)
        refuse(w, REFUSED, "history", refused);
    else if (!look(w))
        refuse(w, FAILED, "failed", "the worker cannot be asked");
    json_decref(said);
}

static bool begin(struct pl_worker *w, const struct pl_explain_wish *wish, bool by_verdict,
                  struct pl_err *err) {
    struct pl_explaining *e = calloc(1, sizeof *e);
    if (e == NULL) return PL_FAIL(err, PL_E_NOMEM, "out of memory");
    *e = (struct pl_explaining){ .deadline_ms = wish->deadline_ms,
                                 .again_ms = wish->again_ms,
                                 .force = wish->force,
                                 .by_verdict = by_verdict };
    snprintf(e->action, sizeof e->action, "%s", wish->action != NULL ? wish->action : "");
    snprintf(e->why, sizeof e->why, "%s", wish->why);
    snprintf(e->mode, sizeof e->mode, "%s",
             wish->mode != NULL ? wish->mode : pl_config_word("explain", w->service->config->explain));
    w->more->explaining = e;
    const char *history = wish->history == PL_HISTORY_ON ? ",\"on\":true" : ",\"on\":false";
    bool asked = wish->history == PL_HISTORY_AS_IS
                     ? look(w)
                     : pl_control_ask(w, "record_history", history, PATIENCE_MS, history_told, NULL);
    if (asked) return true;
    stands(w, results[FAILED], "");
    free(e);
    w->more->explaining = NULL;
    return PL_FAIL(err, PL_E_LIMIT, "worker %u of %s cannot be asked", w->slot, w->service->config->id);
}

bool pl_service_explain(struct pl_service *s, const struct pl_explain_wish *wish, struct pl_err *err) {
    struct pl_worker *w = pl_explain_choose(s, wish->slot, err);
    if (w == NULL) return false;
    if (w->more->explaining != NULL)
        return PL_FAIL(err, PL_E_LIMIT, "worker %u of %s is being explained: wait for its end", w->slot,
                       s->config->id);
    if (strcmp(pl_config_word("explain", s->config->explain), "off") == 0)
        return PL_FAIL(err, PL_E_LIMIT, "explain is off for %s", s->config->id);
    return begin(w, wish, false, err);
}

/* The first one of its life counts: a main that comes later asks in vain, as it should. */
void pl_explain_ready(struct pl_worker *w) {
    pl_control_ask(w, "explain", ",\"census\":\"ready\"", PATIENCE_MS, not_minded, NULL);
}

/* --- on a verdict */

void pl_explain_propose(struct pl_worker *w, const char *why) {
    struct pl_proposal *p = &w->more->proposal;
    if (strcmp(p->why, why) == 0 ||
        strcmp(pl_config_word("explain", w->service->config->explain), "off") == 0)
        return;
    *p = (struct pl_proposal){ .at_ms = pl_crew_now(w->service->crew) };
    snprintf(p->why, sizeof p->why, "%s", why);
}

void pl_explain_settled(struct pl_worker *w, const char *why) {
    if (strcmp(w->more->proposal.why, why) != 0) return;
    w->more->proposal = (struct pl_proposal){ 0 };
    w->more->explained = (struct pl_explained){ 0 };
    free(w->more->holder);
    w->more->holder = NULL;
}

static void try_proposal(struct pl_worker *w) {
    struct pl_proposal *p = &w->more->proposal;
    struct pl_err err;
    const struct pl_explain_wish wish = { .deadline_ms = PL_EXPLAIN_DEADLINE_MS,
                                          .again_ms = PL_EXPLAIN_AGAIN_MS,
                                          .history = PL_HISTORY_ON,
                                          /* a leak under load that never pauses has a holder, too: at last
                                           * it is looked for beside the requests */
                                          .force = p->tries == BUSY_TRIES - 1,
                                          .why = p->why };
    p->at_ms = 0;
    begin(w, &wish, true, &err);
}

/* It can be asked no more: what there is must do. */
static void give_up(struct pl_worker *w) {
    struct pl_explaining *e = w->more->explaining;
    e->waits = false;
    if (e->first != NULL)
        finish(w, e->first);
    else
        refuse(w, FAILED, "failed", "it cannot be looked at again: it ends, or another main has the helm");
}

/* What drains takes with it what there is to see: it is looked at now, if it is to be looked at. */
static bool is_due(struct pl_worker *w, uint64_t now) {
    const struct pl_explaining *e = w->more->explaining;
    struct pl_page_counters c = { 0 };
    bool drains = w->state == PL_WORKER_DRAINING;
    pl_page_counters(&w->page, &c);
    if (now >= e->look_at_ms) return true;
    return e->hurries ? drains
                      : c.ended - e->ended_before >= PL_EXPLAIN_REQUESTS || (drains && w->in_flight == 0);
}

void pl_explain_tick(struct pl_worker *w, uint64_t now) {
    struct pl_explaining *e = w->more->explaining;
    const struct pl_proposal *p = &w->more->proposal;
    bool wanted = p->at_ms != 0 && (now >= p->at_ms || w->state == PL_WORKER_DRAINING);
    if (e == NULL && wanted && can_be_asked(w)) try_proposal(w);
    if (e == NULL || !e->waits || !is_due(w, now)) return;
    e->waits = false;
    if (!look(w)) give_up(w);
}

/* What was asked has been answered with nothing. */
void pl_explain_stop(struct pl_worker *w) {
    if (w->more->explaining != NULL && w->more->explaining->waits) give_up(w);
}

void pl_explain_free(struct pl_worker *w) {
    free(w->more->holder);
    w->more->holder = NULL;
}
