/* gateway/tunnel.c - a websocket after its handshake: bytes both ways, as fast as the slower end takes them.
 */
#include <string.h>

#include "base/check.h"
#include "gateway/inside.h"

void pl_tunnel_begin(struct pl_request *r) {
    struct pl_buf *head = &r->g->scratch;
    const struct pl_http_head *h = pl_upstream_head(r->up);
    head->len = 0;
    if (!pl_http_write_response(head, h, PL_HTTP_NO_BODY, 0, true, 1, NULL)) {
        pl_answer_worker_failed(r, NULL, "its head could not be passed on");
        return;
    }
    uv_buf_t all = { head->data, head->len };
    r->status = 101;
    r->head_begun = true;
    r->phase = PL_REQ_TUNNEL;
    pl_timer_stop(&r->timer); /* silence is no fault of a websocket */
    pl_conn_send(r->conn, &all, 1);
    pl_conn_tunnel(r->conn);
    pl_conn_pause(r->conn, false); /* hands over what the client sent early */
}

void pl_tunnel_up(struct pl_request *r, const char *bytes, size_t len) {
    uv_buf_t data = { .len = len };
    memcpy(&data.base, &bytes, sizeof bytes);
    r->request_bytes += len;
    pl_upstream_send(r->up, &data, 1);
    if (pl_upstream_full(r->up)) pl_conn_pause(r->conn, true);
}

void pl_tunnel_down(void *ctx, struct pl_upstream *u, const char *bytes, size_t len) {
    struct pl_request *r = ctx;
    uv_buf_t data = { .len = len };
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC && r->up == u);
    memcpy(&data.base, &bytes, sizeof bytes);
    r->reply_bytes += len;
    r->last_ms = pl_gateway_now(r->g);
    pl_conn_send(r->conn, &data, 1);
    if (pl_conn_full(r->conn)) pl_upstream_pause(u, true);
}
