/* gateway/exchange.c - one request at one worker: the connection, the head and body on their way, and the
 * letting go. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/inspect.h"

static size_t next_slice(const struct pl_request *r) {
    size_t left = r->body.len - r->body_sent;
    return left < PL_SLICE_BYTES ? left : PL_SLICE_BYTES;
}

/* The kept body goes on for as long as the worker takes it. */
static void send_body(struct pl_request *r) {
    while (r->body_sent < r->body.len && pl_upstream_flushed(r->up)) {
        uv_buf_t slice = { r->body.data + r->body_sent, next_slice(r) };
        r->body_sent += slice.len;
        pl_upstream_send(r->up, &slice, 1);
    }
    r->sent_whole = r->body_sent == r->body.len;
}

static void on_writable(void *ctx, struct pl_upstream *u) {
    struct pl_request *r = ctx;
    (void)u;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
    r->last_ms = pl_gateway_now(r->g);
    if (r->body_mode == PL_BODY_KEEP && !r->sent_whole) send_body(r);
    if (r->conn != NULL) pl_conn_pause(r->conn, false);
}

const struct pl_upstream_calls pl_gateway_upstream_calls = {
    .part = pl_reply_part,
    .payload = pl_reply_payload,
    .failed = pl_judge_failed,
    .writable = on_writable,
    .tunnel = pl_tunnel_down,
};

struct pl_berth *pl_berth_of(struct pl_gateway *g, struct pl_worker *w) {
    struct pl_berth *b = w->pool;
    if (b != NULL) return b;
    struct pl_pool_options o = { .loop = g->o.app->loop,
                                 .timers = g->o.timers,
                                 .limits = &g->reply_limits,
                                 .calls = &pl_gateway_upstream_calls,
                                 .idle_ms = PL_POOL_IDLE_MS,
                                 .connect_ms = PL_CONNECT_MS,
                                 .to = &w->to };
    if (w->service->kind != PL_KIND_PYTHON) { /* how long it keeps idle ones is not ours to say */
        o.idle_ms = PL_POOL_FOREIGN_IDLE_MS;
        o.look_first = true;
    }
    b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    b->g = g;
    b->gate = pl_gate_of(g, w->service);
    b->worker = w;
    b->pool = pl_pool_create(&o);
    if (b->pool == NULL) {
        free(b);
        return NULL;
    }
    w->pool = b;
    return b;
}

static void attach(struct pl_request *r, struct pl_berth *b) {
    r->berth = b;
    r->next = b->exchanges;
    r->at = &b->exchanges;
    if (r->next != NULL) r->next->at = &r->next;
    b->exchanges = r;
    pl_worker_begin(b->worker);
}

void pl_exchange_detach(struct pl_request *r, bool ok) {
    struct pl_berth *b = r->berth;
    if (b == NULL) return;
    *r->at = r->next;
    if (r->next != NULL) r->next->at = r->at;
    r->next = NULL;
    r->at = NULL;
    r->berth = NULL;
    if (r->counted_stream) b->worker->streams--;
    r->counted_stream = false;
    pl_worker_end(b->worker, ok);
}

void pl_exchange_drop(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    bool held = r->entry.state == PL_ADMIT_RUNNING;
    pl_timer_stop(&r->timer);
    if (r->up != NULL) pl_upstream_close(r->up);
    r->up = NULL;
    if (held && r->sent_any && r->berth != NULL && pl_zombie_make(r)) return;
    pl_exchange_detach(r, false);
    if (held) pl_queue_release(r, false);
    pl_request_free(r);
    if (held) pl_queue_pump(gate);
}

static void on_timer(struct pl_timer *t) {
    struct pl_request *r = PL_TIMER_OWNER(t, struct pl_request, timer);
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC);
    switch ((enum pl_phase)r->phase) {
    case PL_REQ_RETRY:
        if (pl_gateway_now(r->g) >= r->until_ms)
            pl_answer_timeout(r);
        else
            pl_exchange_start(r);
        break;
    case PL_REQ_WAITING:
    case PL_REQ_REPLYING:
    case PL_REQ_TUNNEL:
        pl_reply_timer(r);
        break;
    case PL_REQ_JUDGING:
        pl_judge(r);
        break;
    case PL_REQ_READING:
    case PL_REQ_QUEUED:
    case PL_REQ_ZOMBIE:
        break;
    }
}

void pl_exchange_wait(struct pl_request *r, uint64_t ms) {
    pl_timer_start(r->g->o.timers, &r->timer, ms, on_timer);
}

/* The worker is there and takes nothing at the moment, or we lack descriptors. */
static void retry_later(struct pl_request *r) {
    uint64_t timeout = (uint64_t)r->gate->service->config->traffic_timeout_ms;
    if (r->phase != PL_REQ_RETRY) r->until_ms = pl_gateway_now(r->g) + timeout;
    r->phase = PL_REQ_RETRY;
    pl_exchange_wait(r, PL_RETRY_MS);
}

static void forward_of(const struct pl_request *r, struct pl_http_forward *f, char address[PL_PEER_TEXT]) {
    static const uint8_t modes[] = { [PL_CFG_HTTP_FORWARDED_KEEP] = PL_FORWARDED_KEEP,
                                     [PL_CFG_HTTP_FORWARDED_SET] = PL_FORWARDED_SET,
                                     [PL_CFG_HTTP_FORWARDED_APPEND] = PL_FORWARDED_APPEND };
    *f = (struct pl_http_forward){ .id = r->id,
                                   .request_id = r->made_id ? r->made : NULL,
                                   .scheme = pl_conn_is_secure(r->conn) ? "https" : "http" };
    f->drop_keys = r->keys_asked;
    f->drop_priority = f->drop_keys && !r->priority_told;
    f->forwarded = modes[r->g->o.app->config->http_forwarded];
    if (f->forwarded != PL_FORWARDED_KEEP) f->peer_address = pl_conn_address(r->conn, address);
}

/* How the body goes on, which is how it came, except that what is kept whole has a length. */
static enum pl_http_framing framing_of(const struct pl_request *r, const struct pl_http_head *h,
                                       uint64_t *length) {
    *length = r->body_mode == PL_BODY_STREAM ? h->content_length : r->body.len;
    if (h->framing == PL_HTTP_NO_BODY) return PL_HTTP_NO_BODY;
    return r->body_mode == PL_BODY_STREAM ? (enum pl_http_framing)h->framing : PL_HTTP_LENGTH;
}

static bool send_request(struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    struct pl_buf *head = &r->g->scratch;
    struct pl_http_forward f;
    char address[PL_PEER_TEXT];
    uint64_t length = 0;
    forward_of(r, &f, address);
    enum pl_http_framing framing = framing_of(r, h, &length);
    head->len = 0;
    if (!pl_http_write_request(head, h, framing, length, &f)) return false;
    r->body_sent = 0;
    uv_buf_t parts[2] = { { head->data, head->len }, { r->body.data, next_slice(r) } };
    bool whole = r->body_mode != PL_BODY_STREAM;
    pl_upstream_send(r->up, parts, whole && r->body.len != 0 ? 2 : 1);
    r->sent_any = true;
    if (whole) {
        r->body_sent = parts[1].len;
        send_body(r);
    }
    return true;
}

/* Where the worker's rings stand: what they lose from now on cannot be about this request. */
static void mark_page(struct pl_request *r) {
    struct pl_page_counters counters;
    if (!pl_page_counters(&r->berth->worker->page, &counters)) return;
    r->since_begun = counters.begun;
    r->since_ended = counters.ended;
}

static void begin_exchange(struct pl_request *r, struct pl_berth *b) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    attach(r, b);
    mark_page(r);
    pl_upstream_answers_head(r->up, h->method_id == HTTP_HEAD);
    pl_tokens_expect(r);
    pl_upstream_want_payload(r->up, h->minor == 0 || (r->inspect != NULL && r->inspect->counts));
    r->phase = PL_REQ_WAITING;
    r->sent_ms = r->last_ms = pl_gateway_now(r->g);
    pl_board_sent(r);
    if (!send_request(r)) {
        pl_answer_worker_failed(r, NULL, "out of memory");
        return;
    }
    pl_exchange_wait(r, (uint64_t)r->gate->service->config->traffic_timeout_ms);
    if (r->body_mode == PL_BODY_STREAM) pl_body_forward_kept(r);
}

void pl_exchange_start(struct pl_request *r) {
    struct pl_worker *w = pl_budget_pick(r);
    if (w == NULL && r->entry.charged != 0) { /* nobody is left where it is charged */
        pl_queue_return(r);
        return;
    }
    struct pl_berth *b = w != NULL ? pl_berth_of(r->g, w) : NULL;
    if (b == NULL) {
        retry_later(r);
        return;
    }
    switch (pl_upstream_open(b->pool, r, &r->up)) {
    case PL_DIAL_OK:
        begin_exchange(r, b);
        return;
    case PL_DIAL_REFUSED:
        attach(r, b);
        pl_judge_refused(r);
        return;
    case PL_DIAL_BUSY:
    case PL_DIAL_FAILED:
        retry_later(r);
    }
}
