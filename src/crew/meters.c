/* meters.c - the crew's gauges. State changes set theirs at once; ages and page counters once a second. */
#include <stdio.h>

#include "crew/accounts.h"
#include "crew/cells.h"
#include "crew/more.h"

const char *pl_worker_label(const struct pl_worker *w) {
    static char texts[4][16]; /* as many as one statement may want */
    static unsigned turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%u", w->slot);
    return text;
}

/* Of a slot's generations the newest that has not ended speaks for the slot. */
static const struct pl_worker *speaker(const struct pl_service *s, uint32_t slot) {
    const struct pl_worker *best = NULL;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->slot != slot || w->state == PL_WORKER_GONE) continue;
        bool serves = w->state == PL_WORKER_READY;
        if (best == NULL || serves || best->state != PL_WORKER_READY) best = w;
    }
    return best;
}

void pl_meters_state(struct pl_worker *w) {
    const struct pl_service *s = w->service;
    struct pl_metrics *m = s->crew->app->metrics;
    const struct pl_worker *who = speaker(s, w->slot);
    const char *label = pl_worker_label(w);
    for (int i = 0; i < PL_WORKER_STATE_COUNT; i++)
        pl_series_set(pl_series(m, PL_M_WORKER_STATE, s->config->id, label,
                                pl_worker_state_name((enum pl_worker_state)i)),
                      who != NULL && (int)who->state == i);
    pl_series_set(pl_series(m, PL_M_WORKER_WARM, s->config->id, label),
                  who != NULL && who->state == PL_WORKER_READY && who->more->warm);
    if (who != NULL && who->generation != 0)
        pl_series_set(pl_series(m, PL_M_WORKER_GENERATION, s->config->id, label), (double)who->generation);
    if (w->state != PL_WORKER_READY) return;
    const struct pl_timeline *t = &w->more->time;
    const struct {
        const char *phase;
        uint64_t at;
    } phases[] = { { "imported", t->imported },
                   { "loaded", t->loaded },
                   { "socket", t->socket },
                   { "warm", t->warm },
                   { "ready", t->ready } };
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (phases[i].at >= t->spawned && phases[i].at != 0)
            pl_series_set(pl_series(m, PL_M_START_SECONDS, s->config->id, phases[i].phase),
                          (double)(phases[i].at - t->spawned) / 1000);
    pl_series_set(pl_series(m, PL_M_WARMUP_REQUESTS, s->config->id), w->more->warmup.done);
    if (t->first_us != 0)
        pl_series_set(pl_series(m, PL_M_COLD_LATENCY_SECONDS, s->config->id), (double)t->first_us / 1e6);
    if (t->settled_us != 0)
        pl_series_set(pl_series(m, PL_M_WARM_LATENCY_SECONDS, s->config->id), (double)t->settled_us / 1e6);
}

static void second_of_worker(struct pl_worker *w, uint64_t now) {
    const struct pl_service *s = w->service;
    struct pl_metrics *m = s->crew->app->metrics;
    const char *label = pl_worker_label(w);
    struct pl_page_counters p = { 0 };
    if (w->state != PL_WORKER_READY) return;
    pl_page_counters(&w->page, &p);
    pl_accounts_second(w, now);
    pl_cells_second(w);
    pl_series_set(pl_series(m, PL_M_WORKER_AGE_SECONDS, s->config->id, label),
                  (double)(now - w->more->time.spawned) / 1000);
    pl_series_set(pl_series(m, PL_M_REQUESTS_IN_FLIGHT, s->config->id, label),
                  pl_depend_is(s) ? p.in_flight : w->in_flight);
    pl_series_set(pl_series(m, PL_M_ZOMBIE_REQUESTS, s->config->id, label), w->more->zombies);
    pl_series_set(pl_series(m, PL_M_TASKS_RUNNING, s->config->id, label), p.tasks);
    if (w->more->scraped_ms != 0)
        pl_series_set(pl_series(m, PL_M_SCRAPE_AGE_SECONDS, s->config->id, label),
                      (double)(now - w->more->scraped_ms) / 1000);
}

void pl_meters_tick(struct pl_crew *c, uint64_t now) {
    pl_host_own(c);
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        uint64_t proof = 0;
        for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
            second_of_worker(w, now);
            pl_control_tick(w, now);
            pl_explain_tick(w, now);
            uint64_t mine = pl_canary_proof_ms(w);
            if (w->routable && mine > proof) proof = mine;
        }
        if (proof != 0 && !pl_depend_is(s))
            pl_series_set(pl_series(c->app->metrics, PL_M_PROOF_AGE_SECONDS, s->config->id),
                          (double)(now - proof) / 1000);
    }
}
