/* net/server_write.c - answers: whole ones of our own, streams, and bytes that somebody else made. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "net/server_conn.h"

static void on_write_late(struct pl_timer *t) {
    struct pl_conn *c = PL_TIMER_OWNER(t, struct pl_conn, write_timer);
    uint64_t taken = c->sock.given - pl_sock_queued(&c->sock);
    if (taken != c->taken_mark) {
        c->taken_mark = taken;
        pl_timer_start(c->server->o.timers, t, c->server->o.limits->write_timeout_ms, on_write_late);
        return;
    }
    pl_conn_count_error(c, "write_timeout");
    pl_conn_close_now(c);
}

void pl_conn_send(struct pl_conn *c, const uv_buf_t *parts, unsigned count) {
    if (c->phase >= PL_CONN_FLUSH) return;
    pl_sock_send(&c->sock, parts, count);
    if (pl_sock_queued(&c->sock) == 0 || pl_timer_running(&c->write_timer)) return;
    if (c->server->o.limits->write_timeout_ms == 0) return;
    c->taken_mark = c->sock.given - pl_sock_queued(&c->sock);
    pl_timer_start(c->server->o.timers, &c->write_timer, c->server->o.limits->write_timeout_ms,
                   on_write_late);
}

static void send_scratch(struct pl_conn *c) {
    struct pl_buf *b = &c->server->scratch;
    uv_buf_t all = uv_buf_init(b->data, (unsigned)b->len);
    pl_conn_send(c, &all, 1);
    if (b->size > 1 << 20) pl_buf_free(b);
}

bool pl_conn_full(const struct pl_conn *c) { return pl_sock_full(&c->sock); }

bool pl_conn_will_keep(struct pl_conn *c) {
    bool over = c->half_closed && c->pending.len == 0;
    const struct pl_server *s = c->server;
    bool may = !s->draining || (s->leaving && c->kept); /* who was told that it may come back finds us */
    bool keep =
        c->phase == PL_CONN_REQUEST && c->body_done && c->parser.head.keep_alive && !c->last && !over && may;
    c->last = !keep;
    c->kept = keep;
    return keep;
}

void pl_conn_continue(struct pl_conn *c) {
    if (!c->continue_asked || c->body_done || c->phase != PL_CONN_REQUEST) return;
    pl_conn_interim(c);
}

void pl_conn_interim(struct pl_conn *c) {
    static char text[] = PL_HTTP_CONTINUE;
    c->continue_asked = false;
    uv_buf_t all = uv_buf_init(text, sizeof text - 1);
    pl_conn_send(c, &all, 1);
    c->answer_mark = c->sock.given; /* no part of the answer yet */
}

void pl_conn_reply(struct pl_conn *c, const struct pl_http_reply *r) {
    if (c->phase >= PL_CONN_TUNNEL) return;
    bool asked = c->phase == PL_CONN_REQUEST; /* else: a refusal before there was a head */
    struct pl_http_reply whole = *r;
    struct pl_buf *out = &c->server->scratch;
    whole.keep_alive = asked && pl_conn_will_keep(c);
    whole.head_only = asked && c->parser.head.method_id == HTTP_HEAD;
    whole.client_minor = asked ? c->parser.head.minor : 1;
    whole.wall_ms = pl_wall_ms(c->server->o.clock);
    out->len = 0;
    if (!pl_http_write_reply(out, &whole)) {
        pl_conn_close_now(c);
        return;
    }
    send_scratch(c);
    c->user_told = false;
    if (whole.keep_alive)
        pl_conn_next(c);
    else
        pl_conn_wind_up(c, !asked || !c->body_done || c->pending.len != 0);
}

void pl_conn_error(struct pl_conn *c, uint16_t status, const char *code, const char *message,
                   const char *extra) {
    struct pl_buf body;
    const struct pl_http_head *h = &c->parser.head;
    bool asked = c->phase == PL_CONN_REQUEST;
    enum pl_http_dialect d =
        asked ? pl_http_dialect_of(pl_http_at(h, h->target), h->target_len) : PL_DIALECT_BENTOML;
    pl_buf_init(&body, 65536);
    pl_http_error_body(&body, d, status, code, message);
    struct pl_http_reply r = { .status = status, .extra = extra, .body = body.data, .body_len = body.len };
    pl_conn_reply(c, &r);
    pl_buf_free(&body);
}

bool pl_conn_start(struct pl_conn *c, uint16_t status, const char *content_type, const char *extra) {
    struct pl_buf *out = &c->server->scratch;
    if (c->parser.head.minor == 0) {
        pl_conn_error(c, 505, NULL, "a stream needs HTTP/1.1", NULL);
        return false;
    }
    out->len = 0;
    pl_buf_addf(out,
                "HTTP/1.1 %u %s\r\nServer: plimsoll\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n",
                status, pl_http_status_text(status), content_type);
    if (extra != NULL) pl_buf_adds(out, extra);
    pl_buf_adds(out, pl_conn_will_keep(c) ? "\r\n" : "Connection: close\r\n\r\n");
    c->chunking = true;
    send_scratch(c);
    return true;
}

void pl_conn_piece(struct pl_conn *c, const char *bytes, size_t len) {
    char head[24];
    static char end[] = "\r\n";
    if (len == 0) return; /* would be the last chunk */
    uv_buf_t parts[3] = { { .base = head, .len = pl_http_chunk_head(head, len) },
                          { .len = len },
                          { end, 2 } };
    memcpy(&parts[1].base, &bytes, sizeof bytes); /* libuv's buffers are not const */
    pl_conn_send(c, parts, 3);
}

void pl_conn_finish(struct pl_conn *c) {
    if (c->phase != PL_CONN_REQUEST) return;
    if (c->chunking) {
        static char last[] = "0\r\n\r\n";
        uv_buf_t all = uv_buf_init(last, sizeof last - 1);
        pl_conn_send(c, &all, 1);
    }
    c->user_told = false;
    if (pl_conn_will_keep(c))
        pl_conn_next(c);
    else
        pl_conn_wind_up(c, !c->body_done || c->pending.len != 0);
}

void pl_conn_cut(struct pl_conn *c) {
    if (c->phase >= PL_CONN_FLUSH) return;
    c->user_told = false;
    pl_conn_wind_up(c, false);
}

void pl_conn_tunnel(struct pl_conn *c) {
    if (c->phase != PL_CONN_REQUEST) return;
    c->phase = PL_CONN_TUNNEL;
    c->sock.read_most = PL_SOCK_READ_BYTES;
    pl_timer_stop(&c->timer);
    c->paused = c->pending.len != 0; /* pl_conn_pause(c, false) hands over what came early */
}

/* --- what can be asked */

const struct pl_http_head *pl_conn_head(const struct pl_conn *c) { return &c->parser.head; }
void pl_conn_set_user(struct pl_conn *c, void *user) { c->user = user; }
void *pl_conn_user(const struct pl_conn *c) { return c->user; }
const char *pl_conn_listener(const struct pl_conn *c) { return c->listener->name; }

static char *put_number(char *at, unsigned value) {
    char digits[8];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    memcpy(at, digits + n, sizeof digits - n);
    return at + (sizeof digits - n);
}

/* By hand where it is easy: inet_ntop prints, and every request asks. */
const char *pl_conn_address(const struct pl_conn *c, char out[PL_PEER_TEXT]) {
    char *at = out;
    if (!c->was_tcp) return NULL;
    if (!IN6_IS_ADDR_V4MAPPED(&c->address)) return inet_ntop(AF_INET6, &c->address, out, PL_PEER_TEXT);
    for (int i = 12; i < 16; i++) {
        at = put_number(at, c->address.s6_addr[i]);
        *at++ = i < 15 ? '.' : '\0';
    }
    return out;
}

const char *pl_conn_peer(const struct pl_conn *c, char out[PL_PEER_TEXT]) {
    char address[PL_PEER_TEXT], *at = out;
    if (pl_conn_address(c, address) == NULL) return "unix:";
    size_t len = strlen(address); /* at most 45 */
    bool v6 = memchr(address, ':', len) != NULL;
    if (v6) *at++ = '[';
    memcpy(at, address, len);
    at += len;
    if (v6) *at++ = ']';
    *at++ = ':';
    *put_number(at, c->port) = '\0';
    return out;
}

bool pl_conn_is_secure(const struct pl_conn *c) { return pl_sock_is_secure(&c->sock); }

bool pl_conn_is_loopback(const struct pl_conn *c) {
    if (!c->was_tcp) return false;
    if (IN6_IS_ADDR_V4MAPPED(&c->address)) return c->address.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&c->address);
}

bool pl_conn_peer_uid(const struct pl_conn *c, uid_t *uid) {
    struct ucred who;
    socklen_t len = sizeof who;
    if (c->was_tcp || getsockopt(pl_sock_fd(&c->sock), SOL_SOCKET, SO_PEERCRED, &who, &len) != 0)
        return false;
    *uid = who.uid;
    return true;
}
