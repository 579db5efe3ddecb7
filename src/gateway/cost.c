/* gateway/cost.c - what a request is charged, and how that is learnt.
 *
 * memory.charge: what its like have taken (admit/peaks.h), else memory.per_request, else, where it can teach,
 * it runs alone once; else nothing. A budget that Plimsoll has measured itself holds nobody back in `guard`
 * before the route has been seen PL_PEAKS_KNOWN times: what would have been done is told.
 */
#include <stdio.h>
#include <string.h>

#include "crew/look.h"
#include "gateway/inspect.h"
#include "plimsoll/shm.h"

enum { RECORD_LATE_MS = 1000 };

static struct pl_text path_of(const struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    return pl_route_path(pl_http_at(h, h->target), h->target_len);
}

static uint64_t bytes_of(const struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    if (r->body_mode == PL_BODY_STREAM) return h->framing == PL_HTTP_LENGTH ? h->content_length : 0;
    return r->request_bytes;
}

static bool learns(const struct pl_gate *gate) {
    const int64_t charge = gate->service->config->memory_charge;
    if (charge == PL_CFG_MEMORY_CHARGE_LEARNT) return true;
    return charge == PL_CFG_MEMORY_CHARGE_AUTO &&
           (gate->service->kind == PL_KIND_PYTHON || !pl_engine_of(gate->service->config)->llm);
}

/* Somebody has asked for it: it acts from the first request on. */
static bool acts_early(const struct pl_service_config *c) {
    return c->memory_charge == PL_CFG_MEMORY_CHARGE_LEARNT || c->memory_budget_bytes > 0 ||
           c->mode == PL_CFG_MODE_ENFORCE;
}

/* --- what is known of the service */

void pl_cost_described(struct pl_gate *gate) {
    const struct pl_description *d = pl_look_description(gate->service);
    gate->threaded = d != NULL && d->route_count > 0;
    for (size_t i = 0; d != NULL && i < d->route_count; i++)
        if (d->routes[i].kind != PL_ROUTE_SYNC || d->routes[i].batchable) gate->threaded = false;
}

static bool is_route(const struct pl_gate *gate, struct pl_text path) {
    const struct pl_description *d = pl_look_description(gate->service);
    for (size_t i = 0; d != NULL && i < d->route_count; i++)
        if (strlen(d->routes[i].path) == path.len && memcmp(d->routes[i].path, path.at, path.len) == 0)
            return true;
    return false;
}

static bool tells_peaks(const struct pl_gate *gate) {
    const uint32_t wanted = PL_PAGE_F_RECORDS | PL_PAGE_F_MEMORY | PL_PAGE_F_PEAKS;
    struct pl_page_counters c;
    for (struct pl_worker *w = gate->service->workers; w != NULL; w = w->next)
        if (w->routable && pl_page_counters(&w->page, &c) && (c.features & wanted) == wanted) return true;
    return false;
}

/* As many as its threads can run at a time fit: the rest waits in the worker, and takes nothing there. */
static bool all_fit(struct pl_gate *gate) {
    int64_t threads = gate->service->config->threads;
    uint64_t most = pl_peaks_largest(&gate->peaks), need;
    if (!gate->threaded || threads <= 0) return false;
    for (unsigned i = 0; i < gate->place_count; i++) {
        const struct pl_budget *b = &gate->admit.places[i];
        uint64_t workers = pl_budget_workers(gate, i);
        if (b->full == 0 || workers == 0) continue;
        if (__builtin_mul_overflow(most, (uint64_t)threads * workers, &need)) return false;
        if (need + b->others + b->orphans > pl_budget_most(b)) return false;
    }
    return true;
}

/* --- the charge */

static void charge_learnt(struct pl_request *r, struct pl_text path, uint64_t bytes) {
    struct pl_gate *gate = r->gate;
    const struct pl_service_config *c = gate->service->config;
    r->entry.cost = bytes;
    if (!acts_early(c) && !pl_peaks_known(&gate->peaks, path.at, path.len))
        r->entry.hold = PL_ADMIT_TOLD;
    else if (all_fit(gate))
        r->entry.hold = PL_ADMIT_FREE;
    else if (pl_budget_only_alone(gate, bytes))
        r->entry.hold = PL_ADMIT_ALONE;
}

void pl_cost_set(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    const struct pl_service_config *c = gate->service->config;
    uint64_t bytes;
    r->entry.cost = r->entry.prefill = 0;
    r->entry.hold = PL_ADMIT_STRICT;
    if (c->memory_charge == PL_CFG_MEMORY_CHARGE_NONE || !pl_budget_counts(gate)) return;
    struct pl_text path = path_of(r);
    if (learns(gate) && pl_peaks_of(&gate->peaks, path.at, path.len, bytes_of(r), &bytes)) {
        charge_learnt(r, path, bytes);
        return;
    }
    r->entry.cost = pl_budget_cost(r);
    if (r->entry.cost > 0 || !learns(gate) || !acts_early(c)) return;
    if (pl_peaks_may_try(&gate->peaks, path.at, path.len) && is_route(gate, path) && tells_peaks(gate))
        r->entry.hold = PL_ADMIT_ALONE;
}

/* --- one that runs alone to teach: nobody else does so before its record is here */

static void probe_over(struct pl_gate *gate, bool taught) {
    gate->probe = 0;
    gate->admit.alone_held = false;
    pl_timer_stop(&gate->probe_late);
    if (!taught) pl_peaks_tried(&gate->peaks, gate->probe_path, strlen(gate->probe_path));
    pl_queue_pump(gate);
}

static void on_late(struct pl_timer *t) { probe_over(PL_TIMER_OWNER(t, struct pl_gate, probe_late), false); }

void pl_cost_runs(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    if (r->entry.hold != PL_ADMIT_ALONE || r->entry.charged == 0 || r->entry.cost > 0) return;
    struct pl_text path = path_of(r);
    gate->probe = r->id;
    gate->admit.alone_held = true;
    snprintf(gate->probe_path, sizeof gate->probe_path, "%.*s",
             (int)(path.len < PL_PEAKS_PATH - 1 ? path.len : PL_PEAKS_PATH - 1), path.at);
}

void pl_cost_released(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    if (gate->probe != 0 && gate->probe == r->id)
        pl_timer_start(gate->g->o.timers, &gate->probe_late, RECORD_LATE_MS, on_late);
}

/* --- lessons */

static bool learn(struct pl_gate *gate, const char *path, const struct pl_peak_lesson *l) {
    if (!pl_peaks_learn(&gate->peaks, path, strlen(path), l)) return false;
    gate->learnt.changed = true;
    return true;
}

static bool has_peak(const struct pl_page_record *e) {
    const uint32_t wanted = PL_RECORD_MEMORY | PL_RECORD_PEAK_EXACT;
    /* a worker's first one sets up what all others find there */
    return (e->flags & wanted) == wanted && (e->flags & PL_RECORD_OOM) == 0 && e->n > 0;
}

static uint64_t peak_of(const struct pl_page_record *e) {
    return e->peak > e->allocated_before ? e->peak - e->allocated_before : 0;
}

static bool finish_batch(struct pl_gate *gate, struct pl_batch_seen *b) {
    bool any = b->requests > 0 && b->told;
    const struct pl_peak_lesson l = { .bytes = b->requests > 0 ? b->bytes / b->requests : 0,
                                      .peak = b->peak,
                                      .requests = b->requests };
    b->requests = 0;
    return any && learn(gate, b->path, &l);
}

/* The first record of a batch has its memory; those of the others follow it. */
static bool of_batch(struct pl_gate *gate, struct pl_berth *at, const char *path,
                     const struct pl_page_record *e) {
    struct pl_batch_seen one = { 0 }, *b = at != NULL ? &at->batch : &one;
    if (e->batch == 0) {
        if (b->requests > 0 && strcmp(b->path, path) == 0) {
            b->requests++;
            b->bytes += e->input_bytes;
        }
        return false;
    }
    bool taught = finish_batch(gate, b);
    *b = (struct pl_batch_seen){
        .requests = 1, .told = has_peak(e), .bytes = e->input_bytes, .peak = peak_of(e)
    };
    snprintf(b->path, sizeof b->path, "%s", path);
    /* one that is known to have been alone is not waited for */
    if (at == NULL || (e->flags & PL_RECORD_WARMUP) != 0 || e->id == gate->probe)
        taught |= finish_batch(gate, b);
    return taught;
}

void pl_cost_ended(struct pl_gate *gate, struct pl_worker *w, const char *path,
                   const struct pl_page_record *e) {
    bool taught = false;
    if ((e->flags & PL_RECORD_BATCHED) != 0) {
        taught = of_batch(gate, w->pool, path, e);
    } else if ((e->flags & PL_RECORD_UNBEGUN) == 0 && has_peak(e)) {
        const struct pl_peak_lesson l = { .bytes = e->input_bytes, .peak = peak_of(e), .requests = 1 };
        taught = learn(gate, path, &l);
    }
    /* It ran beside others, and there was no room for them together. */
    if ((e->flags & PL_RECORD_OOM) != 0 && (e->flags & PL_RECORD_ALONE) == 0) pl_budget_short(w, gate, true);
    if (gate->probe != 0 && e->id == gate->probe) probe_over(gate, taught);
    if (taught) pl_budget_shared(gate);
}
