/* gateway/queue.c - room admit decides; here its decisions meet requests, the crew's supply and the clock. */
#include <string.h>

#include "base/check.h"
#include "base/crc32.h"
#include "crew/room.h"
#include "gateway/inside.h"

static bool all_out_of_service(const struct pl_service *s) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && !pl_look_out_of_service(w)) return false;
    return true;
}

static struct pl_admit_supply supply_of(struct pl_gate *gate, uint64_t now_ms) {
    struct pl_service *s = gate->service;
    uint32_t ready = pl_service_ready_count(s);
    struct pl_service_gap gap;
    bool draining = s->draining || gate->g->draining || gate->g->o.app->stopping;
    if (ready == 0 && pl_service_gap(s, now_ms, &gap))
        return (struct pl_admit_supply){ .was_ready = true,
                                         .draining = draining,
                                         .handover = true,
                                         .boot_left_ms = gap.left_ms,
                                         .hold_ms = gap.hold_ms };
    return (struct pl_admit_supply){ .ready = ready,
                                     .out_of_service = ready > 0 && all_out_of_service(s),
                                     .places = pl_budget_ready(gate),
                                     .was_ready = s->was_ready,
                                     /* nobody of ours is on the way, and nobody knows when: 503, no hold.
                                      * Once another main has the helm, who comes is its own alone */
                                     .failed = ready == 0 && (s->kind == PL_KIND_REMOTE || gate->g->left ||
                                                              pl_service_failed(s)),
                                     .draining = draining,
                                     .boot_left_ms = ready == 0 ? pl_service_boot_left_ms(s, now_ms) : 0 };
}

static struct pl_request *request_of(struct pl_admit_entry *e) {
    struct pl_request *r = (struct pl_request *)(void *)e;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
    return r;
}

static void tell_length(struct pl_gate *gate) {
    pl_series_set(gate->queued, (double)gate->admit.queued);
    pl_series_set(gate->queued_bytes, (double)gate->queue_bytes);
}

static void on_expiry(struct pl_timer *t) { pl_queue_pump(PL_TIMER_OWNER(t, struct pl_gate, expiry)); }

static void watch_expiry(struct pl_gate *gate) {
    uint64_t due = pl_admit_deadline(&gate->admit), now = pl_gateway_now(gate->g);
    if (due == 0)
        pl_timer_stop(&gate->expiry);
    else
        pl_timer_start(gate->g->o.timers, &gate->expiry, due > now ? due - now : 0, on_expiry);
}

static void joined(struct pl_request *r) {
    r->phase = PL_REQ_QUEUED;
    r->gate->queue_bytes += r->body.len;
    tell_length(r->gate);
    watch_expiry(r->gate);
}

static void left(struct pl_request *r) {
    r->gate->queue_bytes -= r->body.len;
    tell_length(r->gate);
}

/* Whose turn it is goes by key, where one was shown, or by address; a client without one (a Unix socket) is
 * the only one of its kind. */
static uint32_t flow_of(const struct pl_request *r) {
    char text[PL_PEER_TEXT];
    const int64_t by = r->gate->service->config->traffic_fairness;
    const char *key = by == PL_CFG_TRAFFIC_FAIRNESS_KEY ? pl_keys_name(r) : NULL;
    if (by == PL_CFG_TRAFFIC_FAIRNESS_NONE) return 0;
    if (key != NULL) return pl_crc32(key, strlen(key));
    const char *address = pl_conn_address(r->conn, text);
    return address != NULL ? pl_crc32(address, strlen(address)) : 0;
}

void pl_queue_enter(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    struct pl_admit_refusal why = { 0 };
    uint64_t now = pl_gateway_now(r->g);
    struct pl_admit_supply supply = supply_of(gate, now);
    r->body_us = pl_now_us();
    if (pl_quarantined(r)) return;
    r->entry.flow = flow_of(r);
    r->entry.rank = r->priority;
    pl_cost_set(r);
    enum pl_admit_verdict verdict = pl_admit_arrive(&gate->admit, &r->entry, &supply, now, &why);
    pl_series_observe(gate->admission, (double)(pl_now_us() - r->body_us) / 1e6);
    if (verdict != PL_ADMIT_REFUSED && why.reason != PL_REASON_NONE)
        pl_refuse_would(r, why.reason, why.retry_after_ms);
    if (supply.handover && verdict == PL_ADMIT_WAIT) gate->service->held++;
    if (r->entry.cost > 0 && r->entry.hold != PL_ADMIT_TOLD && why.reason != PL_REASON_CONTEXT_LENGTH)
        pl_ordinary_add(&gate->ordinary, r->entry.cost);
    switch (verdict) {
    case PL_ADMIT_GO:
        pl_cost_runs(r);
        pl_budget_tell(gate);
        r->admitted_us = r->body_us;
        pl_exchange_start(r);
        return;
    case PL_ADMIT_WAIT:
        joined(r);
        return;
    case PL_ADMIT_REFUSED:
        pl_refuse(r, why.reason, why.retry_after_ms, NULL);
    }
}

void pl_queue_return(struct pl_request *r) {
    pl_board_done(r);
    pl_admit_requeue(&r->gate->admit, &r->entry);
    pl_budget_tell(r->gate);
    joined(r);
    pl_queue_pump(r->gate);
}

void pl_queue_leave(struct pl_request *r) {
    left(r);
    pl_admit_withdraw(&r->gate->admit, &r->entry);
    tell_length(r->gate);
}

void pl_queue_release(struct pl_request *r, bool served) {
    pl_admit_release(&r->gate->admit, &r->entry, served, pl_gateway_now(r->g));
    pl_board_done(r);
    pl_cost_released(r);
    if (r->gate->admit.running == 0) pl_budget_reconcile(r->gate);
    pl_budget_tell(r->gate);
}

void pl_queue_empty(struct pl_gate *gate, enum pl_reason reason) {
    struct pl_admit_entry *e;
    while ((e = pl_admit_evict(&gate->admit)) != NULL) {
        struct pl_request *r = request_of(e);
        left(r);
        pl_refuse(r, reason, pl_service_boot_left_ms(gate->service, pl_gateway_now(gate->g)), NULL);
    }
}

/* What was not known when it came may be known now. */
static struct pl_admit_entry *next_one(struct pl_gate *gate, const struct pl_admit_supply *supply,
                                       uint64_t now) {
    struct pl_admit_entry *head = pl_admit_head(&gate->admit);
    if (head != NULL && head->hold == PL_ADMIT_ALONE) pl_cost_set(request_of(head));
    return pl_admit_next(&gate->admit, supply, now);
}

/* One round: who may run goes, who has waited too long is told. */
static void pump_once(struct pl_gate *gate) {
    uint64_t now = pl_gateway_now(gate->g);
    struct pl_admit_refusal why;
    struct pl_admit_entry *e;
    struct pl_admit_supply supply = supply_of(gate, now);
    while ((e = next_one(gate, &supply, now)) != NULL) {
        struct pl_request *r = request_of(e);
        left(r);
        pl_cost_runs(r);
        pl_budget_tell(gate);
        r->admitted_us = pl_now_us();
        pl_series_observe(gate->wait, (double)(r->admitted_us - r->body_us) / 1e6);
        pl_exchange_start(r);
        supply = supply_of(gate, now);
    }
    while ((e = pl_admit_expired(&gate->admit, now, &why)) != NULL) {
        struct pl_request *r = request_of(e);
        left(r);
        pl_refuse(r, why.reason, why.retry_after_ms, NULL);
    }
    if (supply.out_of_service) pl_queue_empty(gate, PL_REASON_DEVICE_OUT_OF_SERVICE);
    if (supply.failed) pl_queue_empty(gate, PL_REASON_NOT_READY);
}

void pl_queue_pump(struct pl_gate *gate) {
    gate->pump_again = true;
    if (gate->pumping || gate->admit.oldest == NULL) return;
    gate->pumping = true;
    while (gate->pump_again) {
        gate->pump_again = false;
        pump_once(gate);
    }
    gate->pumping = false;
    watch_expiry(gate);
}

void pl_queue_limits(struct pl_gate *gate) {
    const struct pl_service_config *c = gate->service->config;
    struct pl_admit_limits limits = { .max_concurrency = c->traffic_max_concurrency,
                                      .queue_requests = c->traffic_queue_max_requests,
                                      .max_wait_ms = (uint64_t)c->traffic_queue_max_wait_ms,
                                      .observe = c->mode == PL_CFG_MODE_OBSERVE };
    pl_admit_set_limits(&gate->admit, &limits);
}
