/* net/server.c - the life of a client's connection: bytes in, one request after the other, time limits, the
 * end. */
#include "net/server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "net/dial.h"
#include "net/server_conn.h"

static void take_bytes(struct pl_conn *c, const char *at, size_t len);

void pl_conn_count_error(struct pl_conn *c, const char *reason) {
    pl_series_add(pl_series(c->server->o.metrics, PL_M_HTTP_ERRORS_TOTAL, c->listener->name, reason), 1);
}

static struct pl_timers *timers_of(const struct pl_conn *c) { return c->server->o.timers; }

/* --- the end of a connection */

static void on_freed(struct pl_sock *sock) {
    struct pl_conn *c = (struct pl_conn *)(void *)sock;
    struct pl_server *s = c->server;
    c->listener->connections--;
    pl_series_set(c->listener->open, (double)c->listener->connections);
    *c->at = c->next;
    if (c->next != NULL) c->next->at = c->at;
    s->count--;
    pl_http_parser_free(&c->parser);
    pl_buf_free(&c->pending);
    c->magic = 0;
    free(c);
    pl_listeners_resume(s);
    if (s->draining && s->count == 0 && s->empty != NULL) s->empty(s->empty_ctx);
}

/* The owner learns that its request has nobody to answer to; once. */
static void tell_gone(struct pl_conn *c) {
    if (!c->user_told) return;
    c->user_told = false;
    c->server->o.calls->gone(c->server->o.ctx, c);
    c->user = NULL;
}

void pl_conn_close_now(struct pl_conn *c) {
    if (c->phase == PL_CONN_CLOSED) return;
    c->phase = PL_CONN_CLOSED;
    pl_timer_stop(&c->timer);
    pl_timer_stop(&c->write_timer);
    tell_gone(c);
    pl_sock_close(&c->sock);
}

static void on_lingered(struct pl_timer *t) { pl_conn_close_now(PL_TIMER_OWNER(t, struct pl_conn, timer)); }

static void flushed(struct pl_conn *c) {
    if (!c->linger || c->sock.ended) {
        pl_conn_close_now(c);
        return;
    }
    c->phase = PL_CONN_LINGER;
    pl_sock_shut(&c->sock);
    pl_sock_read(&c->sock, true);
    pl_timer_start(timers_of(c), &c->timer, PL_CONN_LINGER_MS, on_lingered);
}

void pl_conn_wind_up(struct pl_conn *c, bool linger) {
    if (c->phase >= PL_CONN_FLUSH) return;
    c->phase = PL_CONN_FLUSH;
    c->sock.read_most = PL_SOCK_READ_BYTES; /* read away, not kept */
    c->linger = linger;
    c->user_told = false;
    c->user = NULL;
    pl_timer_stop(&c->timer);
    if (pl_sock_queued(&c->sock) == 0)
        flushed(c);
    else if (c->half_closed)
        pl_conn_watch_half(c);
}

/* --- time limits */

/* A request may have come that nobody has read yet: closing would take it back from a client who was in time.
 */
static bool is_unread(const struct pl_conn *c) { return pl_dial_stale(pl_sock_fd(&c->sock)); }

static void on_idle(struct pl_timer *t) {
    struct pl_conn *c = PL_TIMER_OWNER(t, struct pl_conn, timer);
    if (pl_sock_queued(&c->sock) == 0 && !is_unread(c))
        pl_conn_close_now(c);
    else /* it still takes the last answer; the write timer sees that it does */
        pl_timer_start(timers_of(c), t, c->server->o.limits->idle_timeout_ms, on_idle);
}

static void on_head_late(struct pl_timer *t) {
    struct pl_conn *c = PL_TIMER_OWNER(t, struct pl_conn, timer);
    pl_conn_count_error(c, "head_timeout");
    if (c->head_begun)
        pl_conn_error(c, 408, NULL, "The request's head did not arrive in time", NULL);
    else
        pl_conn_close_now(c);
}

static void on_rate(struct pl_timer *t) {
    struct pl_conn *c = PL_TIMER_OWNER(t, struct pl_conn, timer);
    uint64_t least = c->server->o.limits->body_min_rate * PL_CONN_RATE_WINDOW_MS / 1000;
    bool slow = c->body_bytes - c->rate_mark < least;
    c->rate_mark = c->body_bytes;
    if (!slow || c->paused) { /* paused: it is us who keep it waiting */
        pl_timer_start(timers_of(c), t, PL_CONN_RATE_WINDOW_MS, on_rate);
        return;
    }
    pl_conn_count_error(c, "body_timeout");
    bool answered = c->sock.given != c->answer_mark;
    tell_gone(c);
    if (answered)
        pl_conn_cut(c);
    else
        pl_conn_error(c, 408, NULL, "The request's body arrives too slowly", NULL);
}

/* The timer that fits what the connection waits for, once the bytes at hand are used up. */
static void watch_time(struct pl_conn *c) {
    const struct pl_server_limits *lim = c->server->o.limits;
    if (c->phase == PL_CONN_IDLE && c->head_begun) {
        if (!pl_timer_running(&c->timer) || c->timer.fire != on_head_late) {
            if (lim->head_timeout_ms != 0)
                pl_timer_start(timers_of(c), &c->timer, lim->head_timeout_ms, on_head_late);
            else
                pl_timer_stop(&c->timer);
        }
    } else if (c->phase == PL_CONN_IDLE) {
        if (lim->idle_timeout_ms != 0) pl_timer_start(timers_of(c), &c->timer, lim->idle_timeout_ms, on_idle);
    } else if (c->phase == PL_CONN_REQUEST) {
        if (c->body_done || lim->body_min_rate == 0)
            pl_timer_stop(&c->timer);
        else if (!pl_timer_running(&c->timer) || c->timer.fire != on_rate) {
            c->rate_mark = c->body_bytes;
            pl_timer_start(timers_of(c), &c->timer, PL_CONN_RATE_WINDOW_MS, on_rate);
        }
    }
}

/* --- requests */

/* What the label says of a refusal by the parser; a closed set. */
static const char *fault_label(uint16_t status) {
    switch (status) {
    case 414:
        return "request_line";
    case 431:
        return "head";
    case 417:
        return "expect";
    case 413:
        return "body";
    case 501:
        return "method";
    case 505:
        return "version";
    default:
        return "malformed";
    }
}

static void refuse(struct pl_conn *c) {
    uint16_t status = c->parser.fault_status != 0 ? c->parser.fault_status : 400;
    const char *why = c->parser.fault_reason != NULL ? c->parser.fault_reason : "malformed HTTP";
    bool answered = c->phase == PL_CONN_REQUEST && c->sock.given != c->answer_mark;
    pl_conn_count_error(c, fault_label(status));
    tell_gone(c);
    if (c->phase >= PL_CONN_FLUSH) return;
    if (answered)
        pl_conn_cut(c);
    else
        pl_conn_error(c, status, NULL, why, NULL);
}

/* Who sends requests ahead must take the answers: until then no further one is looked at. */
static bool can_parse(const struct pl_conn *c) {
    if (c->phase == PL_CONN_IDLE) return !pl_sock_full(&c->sock);
    return c->phase == PL_CONN_REQUEST && !c->body_done && !c->paused;
}

static void begin_request(struct pl_conn *c) {
    const struct pl_http_head *h = &c->parser.head;
    c->phase = PL_CONN_REQUEST;
    c->head_begun = c->body_done = c->paused = c->chunking = c->last = c->kept = c->asked = false;
    c->continue_asked = h->expect_continue;
    c->user_told = true;
    c->user = NULL;
    c->body_bytes = 0;
    c->answer_mark = c->sock.given;
    pl_timer_stop(&c->timer);
    if (h->framing == PL_HTTP_NO_BODY || (h->framing == PL_HTTP_LENGTH && h->content_length == 0)) {
        size_t none = 0;
        c->body_done = pl_http_parse(&c->parser, "", 0, &none) == PL_HTTP_END;
    }
    bool whole = c->body_done;
    c->server->o.calls->request(c->server->o.ctx, c);
    if (!c->user_told || c->phase != PL_CONN_REQUEST) return;
    if (whole)
        c->server->o.calls->body_end(c->server->o.ctx, c);
    else if (!c->paused)
        pl_conn_continue(c);
}

/* Handles what it can of the bytes; returns how many are used up. */
static size_t consume(struct pl_conn *c, const char *at, size_t len) {
    size_t used = 0;
    while (can_parse(c)) {
        size_t n = 0;
        enum pl_http_event e = pl_http_parse(&c->parser, at + used, len - used, &n);
        used += n;
        switch (e) {
        case PL_HTTP_MORE:
            c->head_begun = c->phase == PL_CONN_IDLE && !pl_http_parser_idle(&c->parser);
            return used;
        case PL_HTTP_HEAD:
            begin_request(c);
            break;
        case PL_HTTP_BODY:
            c->body_bytes += c->parser.piece_len;
            c->server->o.calls->body(c->server->o.ctx, c, c->parser.piece, c->parser.piece_len);
            break;
        case PL_HTTP_END:
            c->body_done = true;
            c->server->o.calls->body_end(c->server->o.ctx, c);
            break;
        case PL_HTTP_FAULT:
            c->head_begun = true;
            refuse(c);
            return len;
        }
    }
    return used;
}

/* A body is used up as it comes; what follows the request at hand must be kept until it is that one's turn.
 */
static uint32_t read_most(const struct pl_conn *c) {
    if (!can_parse(c)) return PL_CONN_AHEAD_BYTES;
    return c->phase == PL_CONN_IDLE ? PL_CONN_HEAD_BYTES : PL_SOCK_READ_BYTES;
}

static bool is_idle(const struct pl_conn *c) {
    return c->phase == PL_CONN_IDLE && !c->head_begun && c->pending.len == 0;
}

/* `at` are bytes just read, or none: then what is pending is looked at again. */
static void take_bytes(struct pl_conn *c, const char *at, size_t len) {
    if (c->feeding) return; /* the loop in consume() sees what has changed */
    c->feeding = true;
    if (c->pending.len != 0 || !can_parse(c)) {
        if (len != 0 && !pl_buf_add(&c->pending, at, len)) pl_conn_close_now(c);
        size_t used = consume(c, c->pending.len != 0 ? c->pending.data : "", c->pending.len);
        if (used == c->pending.len)
            pl_buf_free(&c->pending);
        else
            pl_buf_drop(&c->pending, used);
    } else {
        size_t used = consume(c, at, len);
        if (used < len && c->phase < PL_CONN_FLUSH && !pl_buf_add(&c->pending, at + used, len - used))
            pl_conn_close_now(c);
    }
    c->feeding = false;
    if (c->phase >= PL_CONN_FLUSH) {
        if (c->pending.len != 0) c->linger = true;
        pl_buf_free(&c->pending);
        return;
    }
    if (c->half_closed) {
        pl_conn_settle_half(c);
        return;
    }
    if (is_idle(c) && c->server->draining && !c->server->leaving) { /* they were no request */
        pl_conn_wind_up(c, false);
        return;
    }
    c->sock.read_most = read_most(c);
    pl_sock_read(&c->sock, c->pending.len < PL_CONN_PENDING_BYTES);
    watch_time(c);
}

static void tunnel_bytes(struct pl_conn *c, const char *at, size_t len) {
    if (c->paused || c->pending.len != 0) {
        if (!pl_buf_add(&c->pending, at, len)) pl_conn_close_now(c);
        return;
    }
    c->server->o.calls->body(c->server->o.ctx, c, at, len);
}

static void on_bytes(struct pl_sock *sock, const char *at, size_t len) {
    struct pl_conn *c = (struct pl_conn *)(void *)sock;
    PL_ASSERT(c->magic == PL_CONN_MAGIC);
    if (c->phase == PL_CONN_TUNNEL)
        tunnel_bytes(c, at, len);
    else if (c->phase < PL_CONN_FLUSH)
        take_bytes(c, at, len);
}

static void on_ended(struct pl_sock *sock, bool orderly) {
    struct pl_conn *c = (struct pl_conn *)(void *)sock;
    PL_ASSERT(c->magic == PL_CONN_MAGIC);
    if (pl_sock_broke_tls(sock)) pl_conn_count_error(c, "tls");
    if (!orderly || c->phase == PL_CONN_TUNNEL || c->phase == PL_CONN_LINGER) {
        pl_conn_close_now(c);
        return;
    }
    c->half_closed = true;
    pl_conn_settle_half(c);
}

static void on_drained(struct pl_sock *sock) {
    struct pl_conn *c = (struct pl_conn *)(void *)sock;
    PL_ASSERT(c->magic == PL_CONN_MAGIC);
    pl_timer_stop(&c->write_timer);
    if (c->phase == PL_CONN_FLUSH)
        flushed(c);
    else if (c->phase == PL_CONN_IDLE)
        take_bytes(c, "", 0);
    else if (c->user_told && c->server->o.calls->writable != NULL)
        c->server->o.calls->writable(c->server->o.ctx, c);
}

void pl_conn_next(struct pl_conn *c) {
    pl_http_parser_next(&c->parser);
    c->phase = PL_CONN_IDLE;
    c->user_told = c->paused = false;
    c->user = NULL;
    take_bytes(c, "", 0);
}

void pl_conn_pause(struct pl_conn *c, bool yes) {
    if (c->paused == yes || c->phase >= PL_CONN_FLUSH) return;
    c->paused = yes;
    if (c->phase == PL_CONN_TUNNEL) {
        pl_sock_read(&c->sock, !yes);
        if (!yes && c->pending.len != 0) {
            struct pl_buf held = c->pending;
            pl_buf_init(&c->pending, held.cap);
            c->server->o.calls->body(c->server->o.ctx, c, held.data, held.len);
            pl_buf_free(&held);
        }
    } else if (!yes) {
        c->rate_mark = c->body_bytes; /* the time in which we did not read is not the client's */
        if (pl_timer_running(&c->timer) && c->timer.fire == on_rate)
            pl_timer_start(timers_of(c), &c->timer, PL_CONN_RATE_WINDOW_MS, on_rate);
        pl_conn_continue(c);
        take_bytes(c, "", 0);
    }
}

/* --- connections begin */

static void remember_peer(struct pl_conn *c, const struct sockaddr_storage *peer) {
    if (peer->ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, peer, sizeof v4);
        c->address.s6_addr[10] = c->address.s6_addr[11] = 0xff; /* mapped */
        memcpy(&c->address.s6_addr[12], &v4.sin_addr, 4);
        c->port = ntohs(v4.sin_port);
    } else if (peer->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, peer, sizeof v6);
        c->address = v6.sin6_addr;
        c->port = ntohs(v6.sin6_port);
    }
}

void pl_conn_accept(struct pl_listener *l, int fd, const struct sockaddr_storage *peer) {
    static const struct pl_sock_calls calls = { on_bytes, on_ended, on_drained, on_freed };
    struct pl_server *s = l->server;
    struct pl_conn *c = s->room;
    s->room = NULL;
    c->magic = PL_CONN_MAGIC;
    c->server = s;
    c->listener = l;
    c->was_tcp = l->tcp;
    remember_peer(c, peer);
    pl_http_parser_init(&c->parser, false, &s->o.limits->http);
    c->parser.spares = &s->spares;
    pl_buf_init(&c->pending, 2 * PL_SOCK_READ_BYTES);
    c->next = s->conns;
    c->at = &s->conns;
    if (c->next != NULL) c->next->at = &c->next;
    s->conns = c;
    s->count++;
    pl_series_add(l->total, 1);
    pl_series_set(l->open, (double)++l->connections);
    bool open = pl_sock_open(&c->sock, s->o.loop, fd, l->tcp, &calls);
    bool secure = open && s->tls != NULL && l->tcp;
    bool plain_ok = s->o.plain_loopback && pl_conn_is_loopback(c);
    if (!open || (secure && !pl_sock_secure(&c->sock, s->tls, s->desk, plain_ok))) {
        pl_conn_close_now(c);
        return;
    }
    c->sock.read_most = PL_CONN_HEAD_BYTES;
    pl_sock_read(&c->sock, true);
    if (s->o.limits->head_timeout_ms != 0)
        pl_timer_start(s->o.timers, &c->timer, s->o.limits->head_timeout_ms, on_head_late);
}

/* --- the server */

struct pl_server *pl_server_create(const struct pl_server_options *o) {
    struct pl_server *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->o = *o;
    if (s->o.clock == NULL) s->o.clock = &pl_clock_system;
    pl_buf_init(&s->scratch, 0);
    return s;
}

void pl_server_set_tls(struct pl_server *s, struct pl_tls *tls) {
    if (tls != NULL && s->desk == NULL) s->desk = pl_tls_desk_create(s->o.loop);
    if (tls != NULL && s->desk == NULL) return; /* no memory: as it was */
    struct pl_tls *before = s->tls;
    s->tls = pl_tls_ref(tls);
    pl_tls_unref(before);
}

size_t pl_server_connections(const struct pl_server *s) { return s->count; }

void pl_server_close_idle(struct pl_server *s) {
    s->leaving = false;
    for (struct pl_conn *c = s->conns, *next; c != NULL; c = next) {
        next = c->next; /* closing is not freeing */
        if (is_idle(c) && !is_unread(c)) pl_conn_wind_up(c, false);
    }
}

void pl_server_drain(struct pl_server *s, void (*empty)(void *ctx), void *ctx) {
    s->empty = empty;
    s->empty_ctx = ctx;
    if (!s->draining) {
        s->draining = true;
        pl_listeners_close(s);
    }
    pl_server_close_idle(s);
    if (s->count == 0 && empty != NULL) empty(ctx);
}

void pl_server_leave(struct pl_server *s, void (*empty)(void *ctx), void *ctx) {
    s->empty = empty;
    s->empty_ctx = ctx;
    if (!s->draining) pl_listeners_close(s);
    s->draining = s->leaving = true;
    if (s->count == 0 && empty != NULL) empty(ctx);
}

void pl_server_cut(struct pl_server *s) {
    for (struct pl_conn *c = s->conns, *next; c != NULL; c = next) {
        next = c->next;
        pl_conn_close_now(c);
    }
}

void pl_server_destroy(struct pl_server *s) {
    if (s == NULL) return;
    PL_CHECK(s->count == 0);
    for (struct pl_listener *l = s->listeners, *next; l != NULL; l = next) {
        next = l->next;
        free(l);
    }
    pl_timer_stop(&s->resume);
    pl_tls_unref(s->tls);
    pl_tls_desk_destroy(s->desk);
    pl_buf_free(&s->scratch);
    pl_http_spares_free(&s->spares);
    free(s->room);
    free(s);
}
