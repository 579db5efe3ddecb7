/* gateway/account.c - what is left of a request: numbers and one line. */
#include <stdio.h>
#include <string.h>

#include "base/access.h"
#include "gateway/inside.h"

static const char *const outcome_names[] = {
#define X(sym, name) name,
    PL_RESULTS(X)
#undef X
};
static const char *const replay_names[PL_REPLAY_COUNT] = { "not_sent", "not_started", "unknown" };

const char *pl_replay_name(unsigned class) { return replay_names[class]; }

void pl_count_code(struct pl_gate *gate, uint16_t status) {
    char text[8];
    unsigned i = status < PL_STATUS_SERIES ? status : 0;
    if (gate->code[i] == NULL) {
        snprintf(text, sizeof text, "%u", status);
        gate->code[i] =
            pl_series(gate->g->o.app->metrics, PL_M_REQUESTS_TOTAL, gate->service->config->id, text);
    }
    pl_series_add(gate->code[i], 1);
}

static void make_closed_sets(struct pl_gate *gate) {
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *id = gate->service->config->id;
    static const char *const ends[] = { "complete", "aborted",     "error",
                                        "stalled",  "client_gone", "worker_died" };
    for (unsigned i = 1; i < PL_REASON_COUNT; i++) {
        const struct pl_reason_info *info = pl_reason_info((enum pl_reason)i);
        pl_series(m, info->load ? PL_M_REQUESTS_REFUSED_TOTAL : PL_M_REQUESTS_REJECTED_TOTAL, id, info->name);
    }
    /* those that `observe` lets through */
    static const enum pl_reason would[] = { PL_REASON_QUEUE_FULL,     PL_REASON_PREDICTED_WAIT,
                                            PL_REASON_CONCURRENCY,    PL_REASON_TOO_LARGE,
                                            PL_REASON_INVALID,        PL_REASON_BUDGET,
                                            PL_REASON_CONTEXT_LENGTH, PL_REASON_KEY_LIMIT };
    for (size_t i = 0; i < sizeof would / sizeof would[0]; i++)
        pl_series(m, PL_M_WOULD_TOTAL, id, "refuse", pl_reason_info(would[i])->name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) pl_series(m, PL_M_STREAMS_TOTAL, id, ends[i]);
    for (size_t i = 0; i < PL_REPLAY_COUNT; i++)
        pl_series(m, PL_M_REQUESTS_REPLAYED_TOTAL, id, replay_names[i]);
    for (unsigned i = 0; i < PL_CAUSE_COUNT; i++)
        pl_series(m, PL_M_REQUESTS_LOST_TOTAL, id, pl_cause_name((enum pl_cause)i));
}

void pl_account_gate(struct pl_gate *gate) {
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *id = gate->service->config->id;
    gate->seconds = pl_series(m, PL_M_REQUEST_SECONDS, id);
    gate->first_byte = pl_series(m, PL_M_FIRST_BYTE_SECONDS, id);
    gate->admission = pl_series(m, PL_M_ADMISSION_SECONDS, id);
    gate->wait = pl_series(m, PL_M_QUEUE_WAIT_SECONDS, id);
    gate->bytes_in = pl_series(m, PL_M_BODY_BYTES_TOTAL, id, "in");
    gate->bytes_out = pl_series(m, PL_M_BODY_BYTES_TOTAL, id, "out");
    gate->queued = pl_series(m, PL_M_QUEUE_REQUESTS, id);
    gate->queued_bytes = pl_series(m, PL_M_QUEUE_BYTES, id);
    make_closed_sets(gate);
}

static struct pl_access_text header_text(const struct pl_http_head *h, enum pl_http_field id) {
    const struct pl_http_header *f = pl_http_find(h, id);
    if (f == NULL) return (struct pl_access_text){ 0 };
    return (struct pl_access_text){ pl_http_at(h, f->value), f->value_len };
}

static bool skipped(const struct pl_config *config, const struct pl_http_head *h) {
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    if (!config->logs_access) return true;
    for (size_t i = 0; i < config->logs_access_skip.count; i++) {
        const char *skip = config->logs_access_skip.at[i];
        if (strlen(skip) == path.len && memcmp(skip, path.at, path.len) == 0) return true;
    }
    return false;
}

static void fill_from_head(struct pl_access *a, const struct pl_conn *c) {
    const struct pl_http_head *h = pl_conn_head(c);
    a->scheme = pl_conn_is_secure(c) ? "https" : "http";
    a->method = (struct pl_access_text){ pl_http_at(h, h->method), h->method_len };
    a->target = (struct pl_access_text){ pl_http_at(h, h->target), h->target_len };
    a->request_type = header_text(h, PL_HF_CONTENT_TYPE);
    const struct pl_http_header *f = pl_http_find(h, PL_HF_TRACEPARENT);
    struct pl_text trace, span;
    if (f == NULL ||
        !pl_route_trace((struct pl_text){ pl_http_at(h, f->value), f->value_len }, &trace, &span))
        return;
    a->trace_id = (struct pl_access_text){ trace.at, trace.len };
    a->span_id = (struct pl_access_text){ span.at, span.len };
}

static int64_t since(uint64_t later_us, uint64_t earlier_us) {
    return later_us != 0 && earlier_us != 0 ? (int64_t)(later_us - earlier_us) : -1;
}

static void write_line(struct pl_request *r, const struct pl_ending *e, uint64_t now_us) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    char peer[PL_PEER_TEXT];
    if (skipped(r->g->o.app->config, h)) return;
    struct pl_access a = { .remote = pl_conn_peer(r->conn, peer),
                           .request_length = (int64_t)r->request_bytes,
                           .response_length = (int64_t)r->reply_bytes,
                           .id = r->id,
                           .status = r->status,
                           .duration_us = since(now_us, r->head_us),
                           .queue_us = since(r->admitted_us, r->body_us),
                           .first_byte_us = since(r->first_us, r->head_us),
                           .service = r->gate->service->config->id,
                           .outcome = outcome_names[e->outcome],
                           .reason = e->reason,
                           .key = pl_keys_name(r),
                           .replay = r->replayed || r->unsent != 0 ? replay_names[r->replay_class] : NULL };
    const struct pl_tokens_seen t = pl_tokens_seen(r);
    a.model = t.model;
    a.input_tokens = t.input;
    a.output_tokens = t.output;
    a.charged_bytes = r->entry.charged;
    fill_from_head(&a, r->conn);
    struct pl_text id = pl_request_id_text(r);
    a.request_id = (struct pl_access_text){ id.at, id.len };
    if (r->up != NULL && r->head_begun)
        a.response_type = header_text(pl_upstream_head(r->up), PL_HF_CONTENT_TYPE);
    if (r->berth != NULL) {
        a.worker = r->berth->worker->slot;
        a.generation = r->berth->worker->generation;
    }
    pl_log_access(r->g->o.app->log, &a);
}

void pl_account(struct pl_request *r, const struct pl_ending *e) {
    struct pl_gate *gate = r->gate;
    uint64_t now_us = pl_now_us();
    pl_count_code(gate, r->status != 0 ? r->status : 499);
    pl_keys_count(r);
    if (r->request_bytes != 0) pl_series_add(gate->bytes_in, (double)r->request_bytes);
    if (r->reply_bytes != 0) pl_series_add(gate->bytes_out, (double)r->reply_bytes);
    if (r->sent_any) pl_series_observe(gate->seconds, (double)(now_us - r->head_us) / 1e6);
    if (r->first_us != 0) pl_series_observe(gate->first_byte, (double)(r->first_us - r->head_us) / 1e6);
    if (r->streamed)
        pl_series_add(pl_series(r->g->o.app->metrics, PL_M_STREAMS_TOTAL, gate->service->config->id,
                                e->stream != NULL ? e->stream : "complete"),
                      1);
    pl_request_record(r, e, outcome_names[e->outcome], now_us);
    write_line(r, e, now_us);
}

void pl_account_conn(struct pl_gateway *g, const struct pl_conn *c, uint16_t status, const char *reason) {
    const struct pl_http_head *h = pl_conn_head(c);
    char peer[PL_PEER_TEXT];
    if (skipped(g->o.app->config, h)) return;
    struct pl_access a = { .remote = pl_conn_peer(c, peer),
                           .request_length = -1,
                           .response_length = -1,
                           .status = status,
                           .duration_us = -1,
                           .queue_us = -1,
                           .first_byte_us = -1,
                           .outcome = outcome_names[status < 400 ? PL_RESULT_OK : PL_RESULT_REJECTED],
                           .reason = reason };
    fill_from_head(&a, c);
    pl_log_access(g->o.app->log, &a);
}
