/* gateway/zombie.c - requests whose client was answered (504) or left while their handler runs on.
 *
 * Neither BentoML nor a closed connection stops a handler, so its place in the service's concurrency stays
 * taken until the page has its end record. Looked at every 50 ms, only while there are any.
 */
#include "base/check.h"
#include "gateway/inside.h"

enum { RING_SURE = 512 }; /* records that the end ring certainly still holds */

static void on_tick(struct pl_timer *t);

static void watch(struct pl_gateway *g) {
    if (g->zombies != NULL && !pl_timer_running(&g->zombie_timer))
        pl_timer_start(g->o.timers, &g->zombie_timer, PL_ZOMBIE_TICK_MS, on_tick);
}

bool pl_zombie_make(struct pl_request *r) {
    struct pl_gateway *g = r->g;
    struct pl_berth *b = r->berth;
    struct pl_page_counters now;
    if (b->worker->exited || !pl_page_counters(&b->worker->page, &now)) return false;
    r->began = pl_page_began(&b->worker->page, r->id, r->since_begun) != PL_SEEN_NO;
    /* It had not ended when its client was still waiting, so an end record is recent. */
    if (now.ended > RING_SURE && now.ended - RING_SURE > r->since_ended)
        r->since_ended = now.ended - RING_SURE;
    r->last_ms = pl_gateway_now(g);
    r->until_ms = r->sent_ms + (uint64_t)r->gate->service->config->traffic_timeout_ms + PL_ZOMBIE_LATE_MS;
    r->phase = PL_REQ_ZOMBIE;
    pl_request_unreserve(r);
    pl_buf_free(&r->body);
    pl_worker_zombies(b->worker,
                      1); /* before the exchange ends: the worker must not count as drained in between */
    pl_exchange_detach(r, false);
    r->berth = b;
    r->next = g->zombies;
    r->at = &g->zombies;
    if (r->next != NULL) r->next->at = &r->next;
    g->zombies = r;
    watch(g);
    return true;
}

static void lay_to_rest(struct pl_request *r) {
    *r->at = r->next;
    if (r->next != NULL) r->next->at = r->at;
    r->next = NULL;
    r->at = NULL;
    pl_worker_zombies(r->berth->worker, -1);
    r->berth = NULL;
    pl_queue_release(r, false);
    pl_request_free(r);
}

/* Never begun: it may still wait for a thread inside the worker. It will not begin once the launcher's own
 * deadline has passed, or when the worker has had nothing in hand for a while. */
static bool never_will(struct pl_request *r, const struct pl_page_counters *c, uint64_t now) {
    if (c->in_flight != 0) r->last_ms = now;
    return now >= r->until_ms || now - r->last_ms >= PL_ZOMBIE_QUIET_MS;
}

static bool is_over(struct pl_request *r, uint64_t now) {
    struct pl_page *page = &r->berth->worker->page;
    struct pl_page_counters c;
    struct pl_page_end end;
    if (!pl_page_counters(page, &c)) return true; /* nobody will tell us any more */
    if (pl_page_ended(page, r->id, r->since_ended, &end) != PL_SEEN_NO) return true;
    r->since_ended = c.ended; /* read before we looked: what ended until then was not this one */
    if (!r->began) r->began = pl_page_began(page, r->id, r->since_begun) != PL_SEEN_NO;
    return !r->began && never_will(r, &c, now);
}

static void on_tick(struct pl_timer *t) {
    struct pl_gateway *g = PL_TIMER_OWNER(t, struct pl_gateway, zombie_timer);
    uint64_t now = pl_gateway_now(g);
    for (struct pl_request *r = g->zombies, *next; r != NULL; r = next) {
        next = r->next;
        PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
        if (is_over(r, now)) lay_to_rest(r);
    }
    for (size_t i = 0; i < g->gate_count; i++) pl_queue_pump(&g->gates[i]);
    watch(g);
}

void pl_zombie_forget(struct pl_berth *b) {
    for (struct pl_request *r = b->g->zombies, *next; r != NULL; r = next) {
        next = r->next;
        if (r->berth == b) lay_to_rest(r);
    }
    pl_queue_pump(b->gate);
}
