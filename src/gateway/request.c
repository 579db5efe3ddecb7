/* gateway/request.c - request objects: made at the head, taken from a shelf so that the hot path does not
 * allocate. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/inspect.h"

static uint64_t next_id(struct pl_gateway *g) { return g->o.app->boot << 32 | (++g->sequence & UINT32_MAX); }

/* The client's x-request-id is for people; when it has none, or one that should not be in a log, ours serves.
 */
static void name_it(struct pl_request *r) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    const struct pl_http_header *f = pl_http_find(h, PL_HF_X_REQUEST_ID);
    if (f != NULL && pl_http_request_id_ok(pl_http_at(h, f->value), f->value_len)) return;
    r->made_id = true;
    for (int i = 0; i < 16; i++) r->made[i] = "0123456789abcdef"[r->id >> (60 - 4 * i) & 15];
}

struct pl_request *pl_request_new(struct pl_gateway *g, struct pl_gate *gate, struct pl_conn *c) {
    struct pl_request *r = g->spare;
    struct pl_buf body = { 0 };
    if (r != NULL) {
        g->spare = r->next;
        g->spare_count--;
        body = r->body;
    } else {
        r = malloc(sizeof *r);
        if (r == NULL) return NULL;
    }
    memset(r, 0, sizeof *r);
    r->body = body;
    r->body.len = 0;
    r->magic = PL_REQUEST_MAGIC;
    r->g = g;
    r->gate = gate;
    r->conn = c;
    r->id = next_id(g);
    r->head_us = pl_now_us();
    pl_buf_init(&r->held, PL_HOLD_BYTES);
    pl_conn_set_user(c, r);
    name_it(r);
    return r;
}

bool pl_request_reserve(struct pl_request *r, uint64_t bytes) {
    struct pl_gateway *g = r->g;
    if (bytes > g->o.max_buffered || g->buffered > g->o.max_buffered - bytes) return false;
    g->buffered += bytes;
    r->reserved += bytes;
    pl_series_set(g->buffered_series, (double)g->buffered);
    return true;
}

void pl_request_unreserve(struct pl_request *r) {
    if (r->reserved == 0) return;
    r->g->buffered -= r->reserved;
    r->reserved = 0;
    pl_series_set(r->g->buffered_series, (double)r->g->buffered);
}

void pl_request_free(struct pl_request *r) {
    struct pl_gateway *g = r->g;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC && r->conn == NULL && r->up == NULL && r->at == NULL);
    PL_ASSERT(r->entry.state == PL_ADMIT_OUTSIDE);
    pl_timer_stop(&r->timer);
    pl_request_unreserve(r);
    pl_keys_done(r);
    pl_inspect_free(r);
    pl_buf_free(&r->held);
    r->magic = 0;
    if (r->body.size > PL_REQUEST_BODY_KEPT) pl_buf_free(&r->body);
    if (g->spare_count >= PL_REQUESTS_SPARE) {
        pl_buf_free(&r->body);
        free(r);
        return;
    }
    r->next = g->spare;
    g->spare = r;
    g->spare_count++;
}

struct pl_conn *pl_request_leave_conn(struct pl_request *r) {
    struct pl_conn *c = r->conn;
    r->conn = NULL;
    pl_conn_set_user(c, NULL);
    return c;
}

struct pl_text pl_request_id_text(const struct pl_request *r) {
    if (r->made_id) return (struct pl_text){ r->made, strlen(r->made) };
    const struct pl_http_head *h = pl_conn_head(r->conn);
    const struct pl_http_header *f = pl_http_find(h, PL_HF_X_REQUEST_ID);
    if (f == NULL) return (struct pl_text){ "", 0 };
    return (struct pl_text){ pl_http_at(h, f->value), f->value_len };
}
