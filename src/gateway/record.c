/* gateway/record.c - a request's row in the flight record: its numbers and its path. No bodies, queries,
 * headers or keys. */
#include "gateway/inside.h"

enum { OPEN_MOST = 1000 }; /* rows in one look */

static int64_t since(uint64_t later_us, uint64_t earlier_us) {
    return later_us != 0 && earlier_us != 0 && later_us >= earlier_us ? (int64_t)(later_us - earlier_us) : -1;
}

static struct pl_record_request row_of(const struct pl_request *r, uint64_t now_us) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    struct pl_record_request q = { .id = r->id,
                                   .service = r->gate->service->config->id,
                                   .method = pl_http_at(h, h->method),
                                   .method_len = h->method_len,
                                   .route = path.at,
                                   .route_len = path.len,
                                   .opened = r->opened,
                                   .duration_us = since(now_us, r->head_us),
                                   .queue_us = since(r->admitted_us, r->body_us),
                                   .first_byte_us = since(r->first_us, r->head_us),
                                   .request_bytes = (int64_t)r->request_bytes,
                                   .reply_bytes = (int64_t)r->reply_bytes,
                                   .input_tokens = -1,
                                   .output_tokens = -1 };
    const struct pl_tokens_seen t = pl_tokens_seen(r);
    if (t.input != 0) q.input_tokens = (int64_t)t.input;
    if (t.output != 0) q.output_tokens = (int64_t)t.output;
    if (r->berth != NULL) {
        q.worker = r->berth->worker->slot;
        q.generation = r->berth->worker->generation;
    }
    return q;
}

void pl_request_record(const struct pl_request *r, const struct pl_ending *e, const char *outcome,
                       uint64_t now_us) {
    struct pl_record *record = r->g->o.app->record;
    if (record == NULL) return;
    struct pl_record_request q = row_of(r, now_us);
    q.status = r->status;
    q.outcome = outcome;
    q.reason = e->reason;
    if (r->replayed || r->unsent != 0) q.replay = pl_replay_name(r->replay_class);
    pl_record_request(record, &q);
}

static void open_one(struct pl_request *r, uint64_t least_ms, uint64_t now_us, unsigned *count) {
    if (r->opened || r->conn == NULL || now_us - r->head_us < least_ms * 1000 || *count >= OPEN_MOST) return;
    struct pl_record_request q = row_of(r, now_us);
    q.open = true;
    r->opened = pl_record_request(r->g->o.app->record, &q);
    ++*count;
}

void pl_gateway_record_open(struct pl_gateway *g, uint64_t least_ms) {
    uint64_t now_us = pl_now_us();
    unsigned count = 0;
    if (g->o.app->record == NULL) return;
    for (size_t i = 0; i < g->gate_count; i++) {
        for (struct pl_worker *w = g->gates[i].service->workers; w != NULL; w = w->next) {
            struct pl_berth *b = w->pool;
            for (struct pl_request *r = b != NULL ? b->exchanges : NULL; r != NULL; r = r->next)
                open_one(r, least_ms, now_us, &count);
        }
        for (struct pl_admit_entry *e = g->gates[i].admit.oldest; e != NULL; e = e->next)
            open_one((struct pl_request *)(void *)e, least_ms, now_us, &count);
    }
}
