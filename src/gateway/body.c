/* gateway/body.c - what the server says of a client: head, body, end, and that it left. Bodies up to
 * limits.replay are kept, so that the request can be sent again; larger ones flow through behind the
 * admission. What a body asks for is held against the limits while it comes (inspect.c); where only its end
 * can tell, it is kept up to there. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "gateway/inspect.h"

static struct pl_gate *gate_for(struct pl_gateway *g, const struct pl_http_head *h) {
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len), host = { "", 0 };
    const struct pl_http_header *f = pl_http_find(h, PL_HF_HOST);
    if (f != NULL) host = (struct pl_text){ pl_http_at(h, f->value), f->value_len };
    int i = pl_route_pick(g->rules, g->gate_count, path, host);
    return i < 0 ? NULL : &g->gates[i];
}

static bool has_compat(const struct pl_gate *gate, const char *word) {
    const struct pl_strings *list = &gate->service->config->compat;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], word) == 0) return true;
    return false;
}

/* A route of another server that somebody's `compat` has: of the service that would get it, or of any. */
static enum pl_route_compat compat_of(struct pl_gateway *g, const struct pl_http_head *h,
                                      struct pl_text path) {
    enum pl_route_compat is = pl_route_compat(path);
    if (is == PL_COMPAT_NONE) return is;
    const char *word = is == PL_COMPAT_VLLM || is == PL_COMPAT_VLLM_MODELS ? "vllm" : "kserve";
    const struct pl_gate *gate = gate_for(g, h);
    if (gate != NULL) return has_compat(gate, word) ? is : PL_COMPAT_NONE;
    for (size_t i = 0; i < g->gate_count; i++)
        if (has_compat(&g->gates[i], word)) return is;
    return PL_COMPAT_NONE;
}

static bool answered_by_us(struct pl_gateway *g, struct pl_conn *c, const struct pl_http_head *h) {
    if (h->method_id != HTTP_GET && h->method_id != HTTP_HEAD) return false;
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    if (!pl_route_is_own(path)) {
        enum pl_route_compat compat = compat_of(g, h, path);
        if (compat == PL_COMPAT_NONE) return false;
        bool tells = compat == PL_COMPAT_VLLM_MODELS || compat == PL_COMPAT_KSERVE_MODEL;
        if (tells && pl_keys_refuse_conn(g, c)) return true;
    }
    return g->o.own.answer != NULL && g->o.own.answer(g->o.own.ctx, c);
}

/* True: it is refused. A service that is only observed takes it. */
static bool refuse_too_large(struct pl_request *r) {
    char text[128];
    if (r->gate->service->config->mode == PL_CFG_MODE_OBSERVE) {
        if (!r->too_large_told) pl_refuse_would(r, PL_REASON_TOO_LARGE, 0);
        r->too_large_told = true;
        return false;
    }
    snprintf(text, sizeof text, "the body is larger than limits.body, %lld bytes",
             (long long)r->gate->service->config->limits_body_bytes);
    pl_refuse(r, PL_REASON_TOO_LARGE, 0, text);
    return true;
}

static void refuse_buffer_full(struct pl_request *r) { pl_refuse(r, PL_REASON_BUFFER_FULL, 1000, NULL); }

/* Room for all of it at once where its length is known: pages that are not used cost nothing, and a body that
 * is copied whenever its buffer doubles does. */
static bool make_room(struct pl_request *r, uint64_t bytes) {
    return bytes <= PL_SLICE_BYTES || pl_buf_reserve(&r->body, (size_t)bytes);
}

/* The body is not kept: admission now, and the rest when the worker takes it. */
static void flow(struct pl_request *r) {
    r->body_mode = PL_BODY_STREAM;
    r->kept_whole = false;
    pl_conn_pause(r->conn, true);
    if (pl_dialect_choose(r)) pl_queue_enter(r);
}

static void on_request(void *ctx, struct pl_conn *c) {
    struct pl_gateway *g = ctx;
    const struct pl_http_head *h = pl_conn_head(c);
    if (answered_by_us(g, c, h)) return;
    struct pl_gate *gate = gate_for(g, h);
    if (gate == NULL) {
        if (!pl_keys_refuse_conn(g, c)) pl_answer_no_route(g, c);
        return;
    }
    if (pl_cors_preflight(gate, c)) return;
    struct pl_request *r = pl_request_new(g, gate, c);
    if (r == NULL) {
        pl_refuse_conn(gate, c);
        return;
    }
    const struct pl_service_config *config = gate->service->config;
    bool counted = h->framing == PL_HTTP_LENGTH;
    r->kept_whole = true;
    if (pl_keys_refuse(r)) return;
    if (g->draining) {
        pl_refuse(r, PL_REASON_DRAINING, 1000, NULL);
    } else if (counted && h->content_length > (uint64_t)config->limits_body_bytes && refuse_too_large(r)) {
        return;
    } else if (!pl_inspect_begin(r)) {
        return;
    } else if (counted && pl_inspect_settled(r) &&
               h->content_length > (uint64_t)config->limits_replay_bytes) {
        flow(r);
    } else if (counted && !(pl_request_reserve(r, h->content_length) && make_room(r, h->content_length))) {
        refuse_buffer_full(r);
    } else if (h->framing != PL_HTTP_NO_BODY) {
        r->body_mode = PL_BODY_KEEP;
    }
}

/* Larger than what is kept to be sent again. */
static bool is_large(const struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    uint64_t bytes = h->framing == PL_HTTP_LENGTH ? h->content_length : r->body.len;
    return bytes > (uint64_t)r->gate->service->config->limits_replay_bytes;
}

/* One more piece of a body that we keep: it may be sent again, or its end may still be what forbids it. */
static void keep(struct pl_request *r, const char *bytes, size_t len) {
    const struct pl_service_config *config = r->gate->service->config;
    bool counted = pl_conn_head(r->conn)->framing == PL_HTTP_LENGTH;
    if (!pl_inspect_piece(r, bytes, len)) return;
    if (r->request_bytes > (uint64_t)config->limits_body_bytes && refuse_too_large(r)) {
        return;
    } else if (!counted && !pl_request_reserve(r, len)) {
        refuse_buffer_full(r);
    } else if (!pl_buf_add(&r->body, bytes, len)) {
        pl_refuse(r, PL_REASON_BUFFER_FULL, 1000, "there is no memory for this body");
    } else if (is_large(r) && pl_inspect_settled(r)) {
        flow(r);
    }
}

static void send_piece(struct pl_request *r, const char *bytes, size_t len) {
    static char end[] = "\r\n";
    char head[24];
    uv_buf_t data = { .len = len };
    memcpy(&data.base, &bytes, sizeof bytes); /* libuv's buffers are not const */
    if (len == 0) return;
    if (pl_conn_head(r->conn)->framing == PL_HTTP_CHUNKED) {
        uv_buf_t parts[3] = { { head, pl_http_chunk_head(head, len) }, data, { end, 2 } };
        pl_upstream_send(r->up, parts, 3);
    } else {
        pl_upstream_send(r->up, &data, 1);
    }
}

static void pass_on(struct pl_request *r, const char *bytes, size_t len) {
    if (r->up == NULL) return; /* its connection is gone; what becomes of it is being judged */
    r->last_ms = pl_gateway_now(r->g);
    const struct pl_service_config *config = r->gate->service->config;
    if (r->request_bytes > (uint64_t)config->limits_body_bytes) {
        if (r->head_begun && config->mode != PL_CFG_MODE_OBSERVE) {
            pl_reply_cut(r, PL_RESULT_REJECTED, "aborted", NULL);
            return;
        }
        if (refuse_too_large(r)) return;
    }
    send_piece(r, bytes, len);
    if (pl_upstream_full(r->up)) pl_conn_pause(r->conn, true);
}

static void on_body(void *ctx, struct pl_conn *c, const char *bytes, size_t len) {
    struct pl_request *r = pl_conn_user(c);
    (void)ctx;
    if (r == NULL) return;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
    if (r->phase == PL_REQ_TUNNEL) {
        pl_tunnel_up(r, bytes, len);
        return;
    }
    r->request_bytes += len;
    if (r->body_mode == PL_BODY_KEEP)
        keep(r, bytes, len);
    else
        pass_on(r, bytes, len);
}

static void finish_stream(struct pl_request *r) {
    static char last[] = "0\r\n\r\n";
    if (r->up == NULL) return;
    if (pl_conn_head(r->conn)->framing == PL_HTTP_CHUNKED) {
        uv_buf_t all = { last, sizeof last - 1 };
        pl_upstream_send(r->up, &all, 1);
    }
    r->sent_whole = true;
    r->last_ms = pl_gateway_now(r->g);
}

static void on_body_end(void *ctx, struct pl_conn *c) {
    struct pl_request *r = pl_conn_user(c);
    (void)ctx;
    if (r == NULL) return;
    if (r->body_mode == PL_BODY_STREAM)
        finish_stream(r);
    else if (pl_inspect_end(r))
        pl_queue_enter(r);
}

void pl_body_forward_kept(struct pl_request *r) {
    send_piece(r, r->body.data, r->body.len);
    pl_buf_free(&r->body); /* it cannot be sent again: there is more than this */
    pl_request_unreserve(r);
    pl_conn_pause(r->conn, false);
}

static void on_writable(void *ctx, struct pl_conn *c) {
    struct pl_request *r = pl_conn_user(c);
    (void)ctx;
    if (r == NULL || r->up == NULL) return;
    r->last_ms = pl_gateway_now(r->g);
    pl_upstream_pause(r->up, false);
}

static void on_gone(void *ctx, struct pl_conn *c) {
    struct pl_request *r = pl_conn_user(c);
    (void)ctx;
    if (r == NULL) return;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
    bool waited = r->phase == PL_REQ_QUEUED;
    struct pl_ending e = { .outcome = PL_RESULT_CLIENT_GONE, .stream = "client_gone" };
    if (!r->head_begun) r->status = 499;
    if (waited) {
        e.reason = pl_reason_info(PL_REASON_CLIENT_GONE)->name;
        pl_series_add(pl_series(r->g->o.app->metrics, PL_M_REQUESTS_REFUSED_TOTAL,
                                r->gate->service->config->id, e.reason),
                      1);
        pl_queue_leave(r);
    }
    pl_account(r, &e);
    pl_request_leave_conn(r);
    pl_exchange_drop(r);
}

static void on_scarce(void *ctx) {
    struct pl_gateway *g = ctx;
    for (size_t i = 0; i < g->gate_count; i++)
        for (struct pl_worker *w = g->gates[i].service->workers; w != NULL; w = w->next) {
            struct pl_berth *b = w->pool;
            if (b != NULL) pl_pool_close_idle(b->pool);
        }
}

const struct pl_server_calls pl_gateway_server_calls = { .request = on_request,
                                                         .body = on_body,
                                                         .body_end = on_body_end,
                                                         .writable = on_writable,
                                                         .scarce = on_scarce,
                                                         .gone = on_gone };
