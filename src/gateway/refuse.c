/* gateway/refuse.c - answers of our own: refusals with their reason and when to come back, 502, 504, 505. */
#include <stdio.h>
#include <string.h>

#include "gateway/inside.h"

enum { TELL_EVERY_MS = 1000 };

static void add_id(struct pl_request *r, struct pl_buf *extra) {
    struct pl_text id = pl_request_id_text(r);
    pl_buf_addf(extra, "X-Request-Id: %.*s\r\n", (int)id.len, id.at);
    pl_cors_headers(r->gate, pl_conn_head(r->conn), extra);
}

/* The headers of an answer of ours, in the gateway's scratch. */
static struct pl_buf *begin_extra(struct pl_request *r) {
    struct pl_buf *extra = &r->g->scratch;
    extra->len = 0;
    add_id(r, extra);
    return extra;
}

/* Writes the answer; the request has no client afterwards. */
static void answer(struct pl_request *r, const struct pl_ending *e, const char *code, const char *message,
                   struct pl_buf *extra) {
    pl_account(r, e);
    uint16_t status = r->status;
    struct pl_conn *c = pl_request_leave_conn(r);
    pl_conn_error(c, status, code, message, pl_buf_text(extra));
}

static uint64_t whole_seconds(uint64_t ms) { return ms < 1000 ? 1 : (ms + 999) / 1000; }

static void tell_refusal(struct pl_request *r, enum pl_reason reason, uint64_t retry_after_ms) {
    struct pl_gate *gate = r->gate;
    const struct pl_reason_info *info = pl_reason_info(reason);
    uint64_t now = pl_gateway_now(r->g);
    if (gate->told_ms[reason] != 0 && now - gate->told_ms[reason] < TELL_EVERY_MS) return;
    gate->told_ms[reason] = now;
    char id[20];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    if (reason == PL_REASON_BUFFER_FULL)
        pl_log(r->g->o.app->log, PL_WARN, "buffer.full", F_INT("bytes", r->g->buffered));
    pl_log(r->g->o.app->log, PL_INFO, info->load ? "request.refused" : "request.rejected",
           F_STR("service", gate->service->config->id), F_STR("id", id), F_STR("reason", info->name),
           F_INT("status", r->status), F_INT("retry_after_s", whole_seconds(retry_after_ms)));
}

static uint16_t status_of(const struct pl_gate *gate, enum pl_reason reason) {
    int64_t contended = gate->service->config->traffic_contended_status;
    uint16_t status = pl_reason_info(reason)->status;
    return status == 429 && contended > 0 ? (uint16_t)contended : status;
}

void pl_refuse_would(struct pl_request *r, enum pl_reason reason, uint64_t retry_after_ms) {
    struct pl_gate *gate = r->gate;
    const char *name = pl_reason_info(reason)->name;
    uint64_t now = pl_gateway_now(r->g);
    char id[20];
    pl_service_would(gate->service, "refuse", name);
    if (gate->would_ms[reason] != 0 && now - gate->would_ms[reason] < TELL_EVERY_MS) return;
    gate->would_ms[reason] = now;
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    pl_log(r->g->o.app->log, PL_INFO, "would.refuse", F_STR("service", gate->service->config->id),
           F_STR("id", id), F_STR("reason", name), F_INT("status", status_of(gate, reason)),
           F_INT("retry_after_s", whole_seconds(retry_after_ms)),
           F_STR("mode", pl_config_word("mode", gate->service->config->mode)));
}

/* What the client may read about each reason, behind the status' own words. */
static void explain(const struct pl_request *r, enum pl_reason reason, uint64_t retry_ms, char *out,
                    size_t room) {
    const struct pl_service_config *c = r->gate->service->config;
    unsigned long long seconds = whole_seconds(retry_ms);
    switch (reason) {
    case PL_REASON_QUEUE_FULL:
        snprintf(out, room, "%lld requests are waiting already; come back in %llu s",
                 (long long)r->gate->admit.queued, seconds);
        break;
    case PL_REASON_PREDICTED_WAIT:
        snprintf(out, room, "the wait would be longer than %lld ms; come back in %llu s",
                 (long long)c->traffic_queue_max_wait_ms, seconds);
        break;
    case PL_REASON_WAITED_TOO_LONG:
        snprintf(out, room, "waited %lld ms for a free place; come back in %llu s",
                 (long long)c->traffic_queue_max_wait_ms, seconds);
        break;
    case PL_REASON_CONCURRENCY:
        snprintf(out, room, "%lld requests are running and there is no queue",
                 (long long)r->gate->admit.running);
        break;
    case PL_REASON_BUDGET:
    case PL_REASON_CONTEXT_LENGTH:
        snprintf(out, room, "it is charged %llu bytes, more than %s", (unsigned long long)r->entry.cost,
                 reason == PL_REASON_BUDGET ? "are free, and nobody can wait for them" : "memory.budget");
        break;
    case PL_REASON_NOT_READY:
        if (r->gate->service->kind == PL_KIND_REMOTE)
            snprintf(out, room, "the server behind %s is not ready; come back in %llu s", c->id, seconds);
        else
            snprintf(out, room, "service %s has no warm worker yet; come back in %llu s", c->id, seconds);
        break;
    case PL_REASON_HANDOVER:
        snprintf(out, room, "service %s changes its worker; come back in %llu s", c->id, seconds);
        break;
    case PL_REASON_DEVICE_OUT_OF_SERVICE:
        snprintf(out, room, "the device of service %s does not answer; come back in %llu s", c->id, seconds);
        break;
    case PL_REASON_DRAINING:
        snprintf(out, room, "service %s is draining", c->id);
        break;
    case PL_REASON_BUFFER_FULL:
        snprintf(out, room, "request bodies in memory have reached limits.buffered");
        break;
    default:
        snprintf(out, room, "%s", pl_reason_info(reason)->name);
    }
}

static void count_refusal(const struct pl_gate *gate, const struct pl_reason_info *info) {
    pl_series_add(pl_series(gate->g->o.app->metrics,
                            info->load ? PL_M_REQUESTS_REFUSED_TOTAL : PL_M_REQUESTS_REJECTED_TOTAL,
                            gate->service->config->id, info->name),
                  1);
}

static void refuse(struct pl_request *r, enum pl_reason reason, const char *code, uint64_t retry_after_ms,
                   const char *detail) {
    const struct pl_reason_info *info = pl_reason_info(reason);
    struct pl_gate *gate = r->gate;
    char why[256];
    struct pl_buf message;
    r->status = status_of(gate, reason);
    if (reason == PL_REASON_HANDOVER) gate->service->refused++;
    count_refusal(gate, info);
    tell_refusal(r, reason, retry_after_ms);
    struct pl_buf *extra = begin_extra(r);
    if (info->load)
        pl_buf_addf(extra, "Retry-After: %llu\r\nretry-after-ms: %llu\r\n",
                    (unsigned long long)whole_seconds(retry_after_ms),
                    (unsigned long long)(retry_after_ms != 0 ? retry_after_ms : 1000));
    if (reason == PL_REASON_UNAUTHORIZED) pl_buf_adds(extra, "WWW-Authenticate: Bearer\r\n");
    if (reason == PL_REASON_QUARANTINED) pl_buf_adds(extra, "x-should-retry: false\r\n");
    pl_buf_addf(extra, "x-plimsoll-reason: %s\r\n", info->name);
    if (info->dropped[0] != '\0') pl_buf_addf(extra, "x-llm-d-request-dropped-reason: %s\r\n", info->dropped);
    if (detail == NULL) {
        explain(r, reason, retry_after_ms, why, sizeof why);
        detail = why;
    }
    pl_buf_init(&message, 1024);
    pl_http_error_message(&message, r->status, 0, detail);
    struct pl_ending e = { .outcome = info->load ? PL_RESULT_REFUSED : PL_RESULT_REJECTED,
                           .reason = info->name };
    if (code == NULL) code = r->status == info->status ? info->code : NULL;
    answer(r, &e, code, pl_buf_text(&message), extra);
    pl_buf_free(&message);
    pl_exchange_drop(r);
}

void pl_refuse(struct pl_request *r, enum pl_reason reason, uint64_t retry_after_ms, const char *detail) {
    refuse(r, reason, NULL, retry_after_ms, detail);
}

void pl_refuse_as(struct pl_request *r, enum pl_reason reason, const char *code, const char *detail) {
    refuse(r, reason, code, 0, detail);
}

enum pl_reason pl_refusal_of_worker(const struct pl_request *r, const struct pl_http_head *h) {
    const struct pl_http_header *f =
        r->gate->service->kind == PL_KIND_LLAMA ? pl_http_find_named(h, "x-plimsoll-reason") : NULL;
    for (unsigned i = 1; f != NULL && i < PL_REASON_COUNT; i++) {
        const struct pl_reason_info *info = pl_reason_info((enum pl_reason)i);
        if (info->load && info->status == h->status && strlen(info->name) == f->value_len &&
            memcmp(info->name, pl_http_at(h, f->value), f->value_len) == 0)
            return (enum pl_reason)i;
    }
    return PL_REASON_NONE;
}

void pl_refused_by_worker(struct pl_request *r, const struct pl_http_head *h) {
    enum pl_reason reason = r->refused_by_worker;
    const struct pl_http_header *f = pl_http_find(h, PL_HF_RETRY_AFTER);
    const char *digits = f != NULL ? pl_http_at(h, f->value) : "";
    uint64_t seconds = 0;
    for (uint32_t i = 0; f != NULL && i < f->value_len && i < 8 && digits[i] >= '0' && digits[i] <= '9'; i++)
        seconds = seconds * 10 + (uint64_t)(digits[i] - '0');
    count_refusal(r->gate, pl_reason_info(reason));
    tell_refusal(r, reason, seconds * 1000);
}

void pl_answer_no_route(struct pl_gateway *g, struct pl_conn *c) {
    pl_account_conn(g, c, 404, "not_found");
    pl_conn_error(c, 404, NULL, "Not Found: no service answers here", NULL);
}

void pl_refuse_conn(struct pl_gate *gate, struct pl_conn *c) {
    const struct pl_reason_info *info = pl_reason_info(PL_REASON_BUFFER_FULL);
    count_refusal(gate, info);
    pl_account_conn(gate->g, c, info->status, info->name);
    pl_conn_error(c, info->status, NULL, "Service Unavailable: there is no memory for one more request",
                  "Retry-After: 1\r\nretry-after-ms: 1000\r\nx-plimsoll-reason: buffer_full\r\n");
}

void pl_answer_timeout(struct pl_request *r) {
    const struct pl_service_config *c = r->gate->service->config;
    struct pl_buf message;
    r->status = 504;
    pl_buf_init(&message, 1024);
    pl_http_error_message(&message, 504, (uint64_t)c->traffic_timeout_ms, NULL);
    struct pl_ending e = { .outcome = PL_RESULT_TIMEOUT, .reason = "timeout" };
    answer(r, &e, "timeout", pl_buf_text(&message), begin_extra(r));
    pl_buf_free(&message);
    pl_exchange_drop(r);
}

void pl_answer_no_streams(struct pl_request *r) {
    r->status = 505;
    struct pl_ending e = { .outcome = PL_RESULT_CLIENT_ERROR };
    answer(r, &e, NULL, "this answer is a stream, which needs HTTP/1.1", begin_extra(r));
    pl_exchange_drop(r);
}

void pl_answer_worker_failed(struct pl_request *r, const char *cause, const char *sentence) {
    char message[512];
    r->status = 502;
    struct pl_buf *extra = begin_extra(r);
    if (cause != NULL) pl_buf_addf(extra, "x-plimsoll-reason: %s\r\n", cause);
    if (cause != NULL && (strcmp(cause, "gpu_out_of_memory") == 0 || strcmp(cause, "crashed") == 0))
        pl_buf_adds(extra, "x-should-retry: false\r\n");
    if (cause != NULL)
        snprintf(message, sizeof message, "The worker died with this request: %s", sentence);
    else
        snprintf(message, sizeof message, "The worker did not answer this request: %s", sentence);
    struct pl_ending e = { .outcome = cause != NULL ? PL_RESULT_WORKER_DIED : PL_RESULT_SERVER_ERROR,
                           .reason = cause };
    answer(r, &e, "worker_failed", message, extra);
    pl_exchange_drop(r);
}
