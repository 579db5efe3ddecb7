/* gateway/reply.c - a worker's reply on its way to the client, unchanged: raw bytes of the body section, as
 * they are read.
 *
 * What changes is only what must: a reply that ends with its connection gets chunks, since a cut could not be
 * told from an end; an HTTP/1.0 client, which knows no chunks, gets a length, or 505 if the reply is too long
 * to be kept. A small reply with a length goes out when it is whole: workers write head and body apart, and
 * one that dies between the two costs the client an honest 502 instead of half an answer.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "gateway/inspect.h"

static bool is_event_stream(const struct pl_http_head *h) {
    static const char type[] = "text/event-stream";
    const struct pl_http_header *f = pl_http_find(h, PL_HF_CONTENT_TYPE);
    return f != NULL && f->value_len >= sizeof type - 1 &&
           strncasecmp(pl_http_at(h, f->value), type, sizeof type - 1) == 0;
}

static bool without_length(const struct pl_http_head *h) {
    return h->framing == PL_HTTP_CHUNKED || h->framing == PL_HTTP_UNTIL_CLOSE;
}

/* The head for the client, into the gateway's scratch. */
static bool write_head(struct pl_request *r, const struct pl_http_head *h, enum pl_http_framing framing,
                       uint64_t length) {
    char lines[PL_HTTP_REQUEST_ID_MOST + 160];
    size_t n = 0;
    struct pl_text id = pl_request_id_text(r);
    lines[0] = '\0';
    if (pl_http_find(h, PL_HF_X_REQUEST_ID) == NULL)
        n = (size_t)snprintf(lines, sizeof lines, "X-Request-Id: %.*s\r\n", (int)id.len, id.at);
    if (r->refused_by_worker != PL_REASON_NONE) /* as a worker's own word it does not come through */
        n += (size_t)snprintf(lines + n, sizeof lines - n, "x-plimsoll-reason: %s\r\n",
                              pl_reason_info(r->refused_by_worker)->name);
    if (r->inspect != NULL && r->inspect->clamped != 0)
        snprintf(lines + n, sizeof lines - n, "x-plimsoll-max-tokens-clamped: %llu\r\n",
                 (unsigned long long)r->inspect->clamped);
    r->g->scratch.len = 0;
    return pl_http_write_response(&r->g->scratch, h, framing, length, pl_conn_will_keep(r->conn),
                                  pl_conn_head(r->conn)->minor, lines[0] != '\0' ? lines : NULL);
}

/* False: the request is over. `whole`: its end is at hand, too. */
static bool begin_reply(struct pl_request *r, const struct pl_http_head *h, bool whole) {
    const struct pl_http_head *asked = pl_conn_head(r->conn);
    r->first_us = pl_now_us();
    if (h->status == 101) {
        if (asked->upgrade) {
            pl_tunnel_begin(r);
        } else {
            pl_answer_worker_failed(r, NULL, "it changed the protocol without being asked to");
        }
        return false;
    }
    r->status = h->status;
    r->refused_by_worker = (uint8_t)pl_refusal_of_worker(r, h);
    r->streamed = without_length(h);
    if (r->streamed && !r->counted_stream) {
        r->counted_stream = true;
        r->berth->worker->streams++;
    }
    r->event_stream = is_event_stream(h);
    if (r->streamed && asked->minor == 0) {
        r->hold_reply = true;
        if (r->event_stream) {
            pl_answer_no_streams(r);
            return false;
        }
        return true;
    }
    r->chunk_out = h->framing == PL_HTTP_UNTIL_CLOSE;
    if (r->event_stream && r->streamed && h->status == 200 && pl_whole_watches(r)) {
        r->withheld = r->may_insert = true;
        r->first_us = 0; /* it is the answer's first byte that counts */
        return true;
    }
    enum pl_http_framing framing = r->chunk_out ? PL_HTTP_CHUNKED : (enum pl_http_framing)h->framing;
    if (!write_head(r, h, framing, h->content_length)) {
        pl_answer_worker_failed(r, NULL, "its head could not be passed on");
        return false;
    }
    bool may_fail = r->inspect != NULL && r->inspect->whole; /* and then it goes to another worker */
    r->gather = (!whole || may_fail) && framing == PL_HTTP_LENGTH && h->content_length <= PL_GATHER_BYTES;
    r->head_begun = !r->gather;
    r->phase = PL_REQ_REPLYING;
    return true;
}

static void watch_stall(struct pl_request *r);

/* The reply is complete at both ends. */
static void finish(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    struct pl_ending e = { .outcome = r->status >= 500   ? PL_RESULT_SERVER_ERROR
                                      : r->status >= 400 ? PL_RESULT_CLIENT_ERROR
                                                         : PL_RESULT_OK };
    bool ok = r->status < 500;
    if (r->refused_by_worker != PL_REASON_NONE) {
        pl_refused_by_worker(r, pl_upstream_head(r->up));
        e.outcome = PL_RESULT_REFUSED;
        e.reason = pl_reason_info(r->refused_by_worker)->name;
    }
    pl_timer_stop(&r->timer);
    if (ok) pl_quarantine_answered(r);
    pl_capture_look(r);
    pl_tokens_done(r);
    pl_account(r, &e);
    pl_upstream_release(r->up, r->sent_whole);
    r->up = NULL;
    pl_exchange_detach(r, ok);
    pl_queue_release(r, e.outcome != PL_RESULT_REFUSED);
    struct pl_conn *c = pl_request_leave_conn(r);
    pl_request_free(r);
    pl_conn_finish(c);
    pl_queue_pump(gate);
}

/* A kept reply for an HTTP/1.0 client. */
static void send_held(struct pl_request *r) {
    if (!write_head(r, pl_upstream_head(r->up), PL_HTTP_LENGTH, r->held.len)) {
        pl_answer_worker_failed(r, NULL, "its head could not be passed on");
        return;
    }
    uv_buf_t parts[2] = { { r->g->scratch.data, r->g->scratch.len }, { r->held.data, r->held.len } };
    r->head_begun = true;
    r->reply_bytes = r->held.len;
    pl_conn_send(r->conn, parts, r->held.len != 0 ? 2 : 1);
    finish(r);
}

/* The head that was held back, and chunk framing that came before the first byte. False: over. */
static bool let_out(struct pl_request *r) {
    const struct pl_http_head *h = pl_upstream_head(r->up);
    enum pl_http_framing framing = r->chunk_out ? PL_HTTP_CHUNKED : (enum pl_http_framing)h->framing;
    if (!write_head(r, h, framing, 0)) {
        pl_answer_worker_failed(r, NULL, "its head could not be passed on");
        return false;
    }
    uv_buf_t parts[2] = { { r->g->scratch.data, r->g->scratch.len }, { r->held.data, r->held.len } };
    r->withheld = false;
    r->head_begun = true;
    r->phase = PL_REQ_REPLYING;
    r->first_us = pl_now_us();
    pl_conn_send(r->conn, parts, r->held.len != 0 ? 2 : 1);
    r->held.len = 0;
    pl_llm_first_byte(r);
    watch_stall(r);
    return true;
}

static void add_raw(uv_buf_t *parts, unsigned *n, const char *at, size_t len) {
    if (len == 0) return;
    parts[*n].len = len;
    memcpy(&parts[(*n)++].base, &at, sizeof at); /* libuv's buffers are not const */
}

/* `head`: it goes out with this. False: it failed, and the request is over or waits to be sent again. */
static bool pass_on(struct pl_request *r, const struct pl_upstream_part *p, bool head) {
    static char line_end[] = "\r\n", last[] = "0\r\n\r\n";
    char chunk[24];
    uv_buf_t parts[6];
    unsigned n = 0;
    bool framed = r->chunk_out && p->raw_len != 0;
    if (head) parts[n++] = uv_buf_init(r->g->scratch.data, (unsigned)r->g->scratch.len);
    if (framed) parts[n++] = (uv_buf_t){ chunk, pl_http_chunk_head(chunk, p->raw_len) };
    size_t from, to;
    if (pl_dialect_strip(r, p, &from, &to)) {
        add_raw(parts, &n, p->raw, from);
        add_raw(parts, &n, p->raw + to, p->raw_len - to);
    } else {
        add_raw(parts, &n, p->raw, p->raw_len);
    }
    if (framed) parts[n++] = (uv_buf_t){ line_end, 2 };
    if (p->end && r->chunk_out) parts[n++] = (uv_buf_t){ last, 5 };
    r->reply_bytes += p->payload;
    if (!r->gather) {
        if (n != 0) pl_conn_send(r->conn, parts, n);
        r->may_insert = r->chunk_out || pl_upstream_between_chunks(r->up);
        return true;
    }
    for (unsigned i = 0; i < n; i++)
        pl_buf_add(&r->held, parts[i].base, parts[i].len); /* its cap is far above ours */
    if (!p->end) return true;
    if (pl_whole_is_dead(r, r->held.data, r->held.len)) {
        pl_whole_fail(r, NULL, PL_WHOLE_DEAD);
        return false;
    }
    uv_buf_t all = uv_buf_init(r->held.data, (unsigned)r->held.len);
    r->head_begun = true;
    pl_conn_send(r->conn, &all, 1);
    return true;
}

void pl_reply_part(void *ctx, struct pl_upstream *u, const struct pl_upstream_part *p) {
    struct pl_request *r = ctx;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC && r->up == u);
    r->last_ms = pl_gateway_now(r->g);
    if (p->head && !begin_reply(r, pl_upstream_head(u), p->end)) return;
    enum pl_whole whole = pl_whole_judge(r, p->end);
    if (whole != PL_WHOLE_SO_FAR) {
        pl_whole_fail(r, p, whole);
        return;
    }
    if (r->withheld && p->payload == 0 && !p->end) { /* it waits in the engine: traffic.timeout holds */
        pl_whole_read_over(r);
        if (!pl_buf_add(&r->held, p->raw, p->raw_len)) pl_answer_worker_failed(r, NULL, "out of memory");
        return;
    }
    bool head = p->head && !r->withheld;
    if (r->withheld && !let_out(r)) return;
    if (r->hold_reply) {
        if (p->end) send_held(r);
        return;
    }
    if (!pass_on(r, p, head)) return;
    if (p->end) {
        finish(r);
        return;
    }
    pl_whole_read_over(r);
    if (pl_conn_full(r->conn)) pl_upstream_pause(u, true);
    if (p->head && r->phase == PL_REQ_REPLYING) watch_stall(r);
}

/* Only where tokens are counted and for HTTP/1.0 clients. It comes before the part that tells of the head. */
void pl_reply_payload(void *ctx, struct pl_upstream *u, const char *bytes, size_t len) {
    struct pl_request *r = ctx;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC && r->up == u);
    pl_whole_before(r);
    pl_tokens_reply(r, bytes, len);
    pl_whole_piece(r, bytes, len);
    if (pl_conn_head(r->conn)->minor == 0 && without_length(pl_upstream_head(u)) &&
        !pl_buf_add(&r->held, bytes, len)) {
        r->first_us = pl_now_us();
        pl_answer_no_streams(r);
    }
}

/* --- time */

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* When to look again: at the end of the allowed pause, or of the whole stream. 0: never. */
static uint64_t left_of(const struct pl_request *r, uint64_t now) {
    const struct pl_service_config *c = r->gate->service->config;
    uint64_t left = UINT64_MAX;
    if (c->traffic_stall_ms > 0) left = sooner(left, r->last_ms + (uint64_t)c->traffic_stall_ms - now);
    if (c->traffic_max_stream_ms > 0)
        left = sooner(left, r->sent_ms + (uint64_t)c->traffic_max_stream_ms - now);
    return left == UINT64_MAX ? 0 : left;
}

static void watch_stall(struct pl_request *r) {
    uint64_t left = left_of(r, pl_gateway_now(r->g));
    if (r->last_words) return; /* another clock runs */
    if (left != 0)
        pl_exchange_wait(r, left);
    else
        pl_timer_stop(&r->timer);
}

static void replying_late(struct pl_request *r, uint64_t now) {
    const struct pl_service_config *c = r->gate->service->config;
    if (pl_conn_full(r->conn)) r->last_ms = now; /* it is the client who is slow; the server watches that */
    bool stalled = c->traffic_stall_ms > 0 && now - r->last_ms >= (uint64_t)c->traffic_stall_ms;
    if (stalled && r->gather)
        pl_answer_worker_failed(r, NULL, "its answer stopped half way");
    else if (c->traffic_max_stream_ms > 0 && now - r->sent_ms >= (uint64_t)c->traffic_max_stream_ms)
        pl_reply_cut(r, PL_RESULT_CUT, "aborted", "the answer took longer than traffic.max_stream");
    else if (stalled)
        pl_reply_cut(r, PL_RESULT_STALLED, "stalled", "the worker has been silent longer than traffic.stall");
    else
        watch_stall(r);
}

/* The worker is dead. All it ever wrote is in the socket already, so a short silence is the end. */
static void last_words_late(struct pl_request *r, uint64_t now) {
    bool held_up = r->phase != PL_REQ_WAITING && pl_conn_full(r->conn);
    if (held_up || now - r->last_ms < PL_LAST_WORDS_MS)
        pl_exchange_wait(r, PL_LAST_WORDS_MS);
    else
        pl_judge_closed(r);
}

void pl_reply_timer(struct pl_request *r) {
    uint64_t now = pl_gateway_now(r->g), timeout = (uint64_t)r->gate->service->config->traffic_timeout_ms;
    if (r->last_words)
        last_words_late(r, now);
    else if (r->phase == PL_REQ_REPLYING)
        replying_late(r, now);
    else if (r->phase == PL_REQ_WAITING && now - r->last_ms < timeout)
        pl_exchange_wait(r, timeout - (now - r->last_ms)); /* the body was still flowing */
    else if (r->phase == PL_REQ_WAITING)
        pl_answer_timeout(r);
}

/* --- the reply ends before its end */

/* A stream of events can say so itself, if there is a place for one more. */
static void insert_error(struct pl_request *r, const char *message) {
    static char line_end[] = "\r\n";
    char chunk[24];
    struct pl_buf event;
    if (!r->event_stream || !r->may_insert || message == NULL) return;
    pl_buf_init(&event, 4096);
    pl_buf_adds(&event, "\n\n"); /* ends what was cut off; between events it means nothing */
    pl_http_error_event(&event, 502, "worker_failed", message);
    uv_buf_t parts[3] = { { chunk, pl_http_chunk_head(chunk, event.len) },
                          { event.data, event.len },
                          { line_end, 2 } };
    pl_conn_send(r->conn, parts, 3);
    pl_buf_free(&event);
}

void pl_reply_cut(struct pl_request *r, enum pl_result outcome, const char *end, const char *message) {
    char id[20];
    struct pl_ending e = { .outcome = outcome, .stream = end };
    if (r->up != NULL) r->may_insert = r->chunk_out || pl_upstream_between_chunks(r->up);
    insert_error(r, message);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    pl_log(r->g->o.app->log, PL_WARN, "request.cut", F_STR("service", r->gate->service->config->id),
           F_STR("id", id), F_INT("bytes_sent", r->reply_bytes), F_STR("why", end));
    pl_account(r, &e);
    pl_conn_cut(pl_request_leave_conn(r));
    pl_exchange_drop(r);
}
