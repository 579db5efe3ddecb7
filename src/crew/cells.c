/* cells.c - what an engine with a KV cache of its own says on its page, as metrics. */
#include "crew/cells.h"

#include <stdlib.h>
#include <string.h>

#include "crew/more.h"
#include "plimsoll/shm.h"

_Static_assert((int)PL_PAGE_STEPS == (int)PL_METRIC_BUCKETS, "the page counts by our bounds");

/* What was on the page when it was last looked at. */
struct pl_cells {
    uint64_t preemptions, steps_us, steps[PL_PAGE_STEPS];
};

static const char *const states[] = { "total", "used", "reserved", "cached", "parked" };

/* A worker's counters begin with it; one that goes backwards is a worker's lie. */
static uint64_t more_than(uint64_t now, uint64_t *seen) {
    uint64_t more = now > *seen ? now - *seen : 0;
    *seen = now;
    return more;
}

static void count(struct pl_metrics *m, const char *service, const char *worker, struct pl_cells *c,
                  const struct pl_page_engine_now *e) {
    uint64_t steps[PL_PAGE_STEPS];
    for (size_t i = 0; i < PL_PAGE_STEPS; i++) steps[i] = more_than(e->steps[i], &c->steps[i]);
    pl_series_merge(pl_series(m, PL_M_STEP_SECONDS, service, worker), steps,
                    (double)more_than(e->steps_us, &c->steps_us) / 1e6);
    pl_series_add(pl_series(m, PL_M_KV_PREEMPTIONS_TOTAL, service, worker),
                  (double)more_than(e->preemptions, &c->preemptions));
}

/* One that was there before this main: what it had counted by then was told by the last one. */
static struct pl_cells *begin(const struct pl_worker *w, const struct pl_page_engine_now *e) {
    struct pl_cells *c = calloc(1, sizeof *c);
    if (c == NULL || !w->more->adopted) return c;
    c->preemptions = e->preemptions;
    c->steps_us = e->steps_us;
    memcpy(c->steps, e->steps, sizeof c->steps);
    return c;
}

void pl_cells_second(struct pl_worker *w) {
    struct pl_page_engine_now e;
    struct pl_metrics *m = w->service->crew->app->metrics;
    const char *service = w->service->config->id, *worker = pl_worker_label(w);
    if (!pl_page_engine(&w->page, &e)) return;
    if (w->more->cells == NULL) w->more->cells = begin(w, &e);
    if (w->more->cells == NULL) return;
    const uint64_t cells[] = { e.cells, e.cells_used, e.cells_reserved, e.cells_cached, e.cells_parked };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        pl_series_set(pl_series(m, PL_M_KV_CELLS, service, worker, states[i]), (double)cells[i]);
    count(m, service, worker, w->more->cells, &e);
}

void pl_cells_free(struct pl_worker *w) {
    struct pl_metrics *m = w->service->crew->app->metrics;
    if (w->more->cells == NULL) return;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        const char *labels[] = { w->service->config->id, pl_worker_label(w), states[i] };
        pl_metrics_drop(m, PL_M_KV_CELLS, labels, 3);
    }
    free(w->more->cells);
    w->more->cells = NULL;
}
