/* gateway/capture.c - requests that were answered well, for whoever wants to keep some as warm-up samples. */
#include <stdio.h>
#include <string.h>

#include "gateway/inside.h"

void pl_gateway_capture(struct pl_gateway *g, struct pl_service *s, const char *route, uint32_t count,
                        pl_gateway_captured *each, void *ctx) {
    struct pl_gate *gate = pl_gate_of(g, s);
    snprintf(gate->capture.route, sizeof gate->capture.route, "%s", route);
    gate->capture.left = count;
    gate->capture.each = each;
    gate->capture.ctx = ctx;
}

void pl_capture_look(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    if (gate->capture.left == 0 || r->body_mode == PL_BODY_STREAM || r->status >= 400) return;
    const struct pl_http_head *h = pl_conn_head(r->conn);
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    if (path.len != strlen(gate->capture.route) || memcmp(path.at, gate->capture.route, path.len) != 0)
        return;
    const struct pl_http_header *type = pl_http_find(h, PL_HF_CONTENT_TYPE);
    const struct pl_captured c = { .method = llhttp_method_name((llhttp_method_t)h->method_id),
                                   .target = pl_http_at(h, h->target),
                                   .target_len = h->target_len,
                                   .content_type = type != NULL ? pl_http_at(h, type->value) : NULL,
                                   .content_type_len = type != NULL ? type->value_len : 0,
                                   .body = r->body.data != NULL ? r->body.data : "",
                                   .body_len = r->body.len,
                                   .last = gate->capture.left == 1 };
    gate->capture.left--;
    gate->capture.each(gate->capture.ctx, gate->service, &c);
}
