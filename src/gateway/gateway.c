#include "gateway/gateway.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/inside.h"
#include "gateway/inspect.h"

static uint64_t limit_of(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static void read_limits(struct pl_gateway *g) {
    const struct pl_config *c = g->o.app->config;
    g->limits = (struct pl_server_limits){ .http = { .request_line = (uint32_t)c->limits_request_line_bytes,
                                                     .head_bytes = (uint32_t)c->limits_head_bytes,
                                                     .headers = (uint32_t)c->limits_headers },
                                           .head_timeout_ms = limit_of(c->http_head_timeout_ms),
                                           .idle_timeout_ms = limit_of(c->http_idle_timeout_ms),
                                           .write_timeout_ms = limit_of(c->http_write_timeout_ms),
                                           .body_min_rate = limit_of(c->http_body_min_rate_bytes),
                                           .connections = g->o.max_connections };
    for (size_t i = 0; i < g->gate_count; i++) {
        struct pl_gate *gate = &g->gates[i];
        const struct pl_service_config *s = gate->service->config;
        g->rules[i] = (struct pl_route_rule){ .path = s->route_path, .host = s->route_host };
        pl_queue_limits(gate);
        pl_budget_limits(gate);
    }
}

static bool make_gates(struct pl_gateway *g) {
    g->gate_count = pl_crew_service_count(g->o.crew);
    g->gates = calloc(g->gate_count, sizeof *g->gates);
    g->rules = calloc(g->gate_count, sizeof *g->rules);
    if (g->gates == NULL || g->rules == NULL) return false;
    for (size_t i = 0; i < g->gate_count; i++) {
        struct pl_gate *gate = &g->gates[i];
        gate->g = g;
        gate->service = pl_crew_service(g->o.crew, i);
        PL_ASSERT(gate->service->index == i);
        pl_account_gate(gate);
        pl_learnt_load(gate);
    }
    return true;
}

struct pl_gateway *pl_gateway_create(const struct pl_gateway_options *o, struct pl_err *err) {
    struct pl_gateway *g = calloc(1, sizeof *g);
    if (g == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "gateway");
        return NULL;
    }
    g->o = *o;
    g->reply_limits = (struct pl_http_limits){ .request_line = 65536, .head_bytes = 65536, .headers = 1000 };
    g->buffered_series = pl_series0(o->app->metrics, PL_M_BUFFERED_BYTES);
    pl_buf_init(&g->scratch, 0);
    struct pl_server_options so = { .loop = o->app->loop,
                                    .timers = o->timers,
                                    .metrics = o->app->metrics,
                                    .log = o->app->log,
                                    .clock = o->app->clock,
                                    .limits = &g->limits,
                                    .calls = &pl_gateway_server_calls,
                                    .ctx = g,
                                    .spare_fds = PL_SERVER_SPARE_FDS };
    g->server = pl_server_create(&so);
    if (g->server == NULL || !make_gates(g)) {
        PL_FAIL(err, PL_E_NOMEM, "gateway");
        pl_gateway_destroy(g);
        return NULL;
    }
    read_limits(g);
    pl_learnt_watch(g);
    return g;
}

bool pl_gateway_listen(struct pl_gateway *g, int fd, const char *name, struct pl_err *err) {
    return pl_server_listen(g->server, fd, name, err);
}

void pl_gateway_reconfigured(struct pl_gateway *g, uint64_t max_connections, uint64_t max_buffered) {
    g->o.max_connections = max_connections;
    g->o.max_buffered = max_buffered;
    read_limits(g);
    for (size_t i = 0; i < g->gate_count; i++) {
        pl_poison_forget(&g->gates[i].poison);
        pl_queue_pump(&g->gates[i]);
    }
}

/* --- what the crew tells */

static void on_described(void *ctx, struct pl_service *s) {
    struct pl_gateway *g = ctx;
    read_limits(g);
    pl_cost_described(pl_gate_of(g, s));
    pl_queue_pump(pl_gate_of(g, s));
}

static void on_supply(void *ctx, struct pl_service *s) {
    struct pl_gate *gate = pl_gate_of(ctx, s);
    pl_budget_limits(gate);
    pl_queue_pump(gate);
    /* the main that has the helm has another worker for it, or will */
    if (gate->g->left && !pl_service_lasts(s)) pl_server_close_idle(gate->g->server);
}

static void on_renewed(void *ctx, struct pl_service *s) { pl_poison_forget(&pl_gate_of(ctx, s)->poison); }

static void on_unroutable(void *ctx, struct pl_worker *w) {
    struct pl_berth *b = w->pool;
    (void)ctx;
    if (b != NULL) pl_pool_close_idle(b->pool);
}

static void on_exited(void *ctx, struct pl_worker *w) {
    struct pl_berth *b = w->pool;
    struct pl_gate *gate = w->service->parent == NULL ? pl_gate_of(ctx, w->service) : NULL;
    if (gate == NULL) return;
    if (b == NULL) {
        pl_budget_death(w, gate);
        pl_board_gone(ctx, w);
        return;
    }
    pl_pool_close_idle(b->pool);
    pl_budget_death(w, b->gate); /* while what it had is still charged */
    pl_board_gone(ctx, w);
    pl_judge_exited(b);
}

/* A dependency's requests do not pass through us. */
static void on_ended(void *ctx, struct pl_worker *w, const char *path, const struct pl_page_record *r) {
    if (w->service->parent == NULL) pl_cost_ended(pl_gate_of(ctx, w->service), w, path, r);
}

static void on_retried(void *ctx, struct pl_worker *w) {
    if (w->service->parent == NULL) pl_budget_short(w, pl_gate_of(ctx, w->service), false);
}

static void on_room_changed(void *ctx) { pl_budget_measure(ctx); }

static void on_gone(void *ctx, struct pl_worker *w) {
    struct pl_berth *b = w->pool;
    (void)ctx;
    if (b == NULL) return;
    pl_judge_gone(b);
    pl_pool_destroy(b->pool);
    w->pool = NULL;
    free(b);
}

static uint64_t on_charged(void *ctx, struct pl_worker *w) {
    return w->service->parent == NULL ? pl_budget_charged(pl_gate_of(ctx, w->service), w) : UINT64_MAX;
}

static uint64_t on_charged_to(void *ctx, const struct pl_worker *w) { return pl_budget_charged_to(ctx, w); }

static bool on_elsewhere(void *ctx, const struct pl_worker *w) {
    const struct pl_gateway *g = ctx;
    return pl_board_has(&g->board, w->generation);
}

static void on_engine_told(void *ctx, struct pl_worker *w) { pl_llm_told(w, pl_gate_of(ctx, w->service)); }

void pl_gateway_hooks(struct pl_gateway *g, struct pl_crew_hooks *out) {
    *out = (struct pl_crew_hooks){ .ctx = g,
                                   .described = on_described,
                                   .supply_changed = on_supply,
                                   .renewed = on_renewed,
                                   .unroutable = on_unroutable,
                                   .exited = on_exited,
                                   .ended = on_ended,
                                   .retried = on_retried,
                                   .room_changed = on_room_changed,
                                   .charged = on_charged,
                                   .charged_to = on_charged_to,
                                   .elsewhere = on_elsewhere,
                                   .gone = on_gone,
                                   .engine_told = on_engine_told };
}

/* --- the end */

void pl_gateway_drain(struct pl_gateway *g, void (*empty)(void *ctx), void *ctx) {
    g->draining = true;
    pl_gateway_save(g);
    pl_server_drain(g->server, empty, ctx);
}

void pl_gateway_save(struct pl_gateway *g) {
    for (size_t i = 0; !g->left && i < g->gate_count; i++) pl_learnt_save(&g->gates[i]);
}

void pl_gateway_leave(struct pl_gateway *g, void (*empty)(void *ctx), void *ctx) {
    g->left = true;
    pl_timer_stop(&g->save_timer);
    for (size_t i = 0; i < g->gate_count; i++) pl_queue_pump(&g->gates[i]);
    pl_server_leave(g->server, empty, ctx);
}

size_t pl_gateway_connections(const struct pl_gateway *g) { return pl_server_connections(g->server); }

void pl_gateway_cut(struct pl_gateway *g) {
    for (size_t i = 0; i < g->gate_count; i++) pl_queue_empty(&g->gates[i], PL_REASON_DRAINING);
    pl_server_cut(g->server);
}

void pl_gateway_destroy(struct pl_gateway *g) {
    if (g == NULL) return;
    pl_timer_stop(&g->zombie_timer);
    pl_timer_stop(&g->save_timer);
    for (size_t i = 0; g->gates != NULL && i < g->gate_count; i++) {
        pl_timer_stop(&g->gates[i].expiry);
        pl_timer_stop(&g->gates[i].probe_late);
        pl_peaks_free(&g->gates[i].peaks);
        pl_learnt_free(&g->gates[i]);
    }
    pl_server_destroy(g->server);
    pl_inspects_free(g);
    pl_board_close(g);
    for (struct pl_request *r = g->spare, *next; r != NULL; r = next) {
        next = r->next;
        pl_buf_free(&r->body);
        free(r);
    }
    pl_keys_free(g);
    pl_buf_free(&g->scratch);
    free(g->gates);
    free(g->rules);
    free(g);
}

/* --- numbers */

void pl_gateway_numbers(const struct pl_gateway *g, const struct pl_service *s,
                        struct pl_gateway_numbers *out) {
    const struct pl_admit *a = &g->gates[s->index].admit;
    uint64_t now = pl_gateway_now(g);
    *out = (struct pl_gateway_numbers){ .queued = a->queued,
                                        .running = a->running,
                                        .drain_per_s = a->drain_per_s };
    if (a->oldest != NULL && now > a->oldest->arrived_ms) out->oldest_ms = now - a->oldest->arrived_ms;
}

uint64_t pl_gateway_buffered(const struct pl_gateway *g) { return g->buffered; }

void pl_gateway_set_tls(struct pl_gateway *g, struct pl_tls *tls) { pl_server_set_tls(g->server, tls); }
void pl_gateway_unlisten(struct pl_gateway *g) { pl_server_unlisten(g->server); }
