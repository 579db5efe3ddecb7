#include "net/upstream.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/sock.h"

enum { UPSTREAM_MAGIC = 0x4d525453 };

struct pl_upstream {
    struct pl_sock sock; /* first */
    uint32_t magic;
    bool in_pool, served, want_payload;
    bool heard;     /* bytes of a reply have come */
    bool head_seen; /* of the final reply */
    bool dirty;     /* more came than the reply, or it ended with the connection */
    bool tunnel;
    bool any_payload;
    bool connecting; /* TCP, and it was not established when it was handed out */
    uint64_t tail;   /* framing bytes handed over since the last payload byte (or the head) */
    struct pl_pool *pool;
    struct pl_upstream *next, **at; /* idle list */
    void *ctx;
    struct pl_timer retire;
    struct pl_http_parser parser;
};

struct pl_pool {
    struct pl_pool_options o;
    struct pl_upstream *idle; /* the one used last comes first */
    size_t live;              /* in use, idle and closing */
    bool gone;
    struct pl_http_spares spares;
};

static void end_pool(struct pl_pool *p) {
    if (p->live > 0 || !p->gone) return;
    pl_http_spares_free(&p->spares);
    free(p);
}

static void leave_idle(struct pl_upstream *u) {
    if (!u->in_pool) return;
    u->in_pool = false;
    *u->at = u->next;
    if (u->next != NULL) u->next->at = u->at;
    pl_timer_stop(&u->retire);
}

void pl_upstream_close(struct pl_upstream *u) {
    PL_ASSERT(u->magic == UPSTREAM_MAGIC);
    leave_idle(u);
    pl_timer_stop(&u->retire);
    u->ctx = NULL;
    pl_sock_close(&u->sock);
}

static void on_retire(struct pl_timer *t) {
    pl_upstream_close(PL_TIMER_OWNER(t, struct pl_upstream, retire));
}

static void on_freed(struct pl_sock *sock) {
    struct pl_upstream *u = (struct pl_upstream *)(void *)sock;
    struct pl_pool *p = u->pool;
    pl_http_parser_free(&u->parser);
    u->magic = 0;
    free(u);
    p->live--;
    end_pool(p);
}

/* --- replies */

static bool interim(const struct pl_http_head *h) { return h->status < 200 && h->status != 101; }

/* Reads one reply's worth out of the bytes. False: it is over with this connection, nothing may be touched.
 */
static bool read_reply(struct pl_upstream *u, const char *at, size_t len, struct pl_upstream_part *part,
                       size_t *used) {
    const struct pl_upstream_calls *calls = u->pool->o.calls;
    size_t raw_from = 0, last_payload = 0;
    bool payload_here = false;
    for (;;) {
        size_t n = 0;
        enum pl_http_event e = pl_http_parse(&u->parser, at + *used, len - *used, &n);
        *used += n;
        if (e == PL_HTTP_MORE) break;
        if (e == PL_HTTP_FAULT) {
            calls->failed(u->ctx, u, PL_UPSTREAM_MALFORMED);
            return false;
        }
        if (e == PL_HTTP_HEAD && !interim(&u->parser.head)) {
            u->head_seen = part->head = true;
            raw_from = *used;
            if (u->parser.head.status == 101) {
                u->tunnel = true;
                break;
            }
        } else if (e == PL_HTTP_BODY) {
            payload_here = u->any_payload = true;
            part->payload += u->parser.piece_len;
            last_payload = (size_t)(u->parser.piece - at) + u->parser.piece_len;
            if (u->want_payload) calls->payload(u->ctx, u, u->parser.piece, u->parser.piece_len);
            if (u->sock.closing) return false;
        } else if (e == PL_HTTP_END) {
            part->end = u->head_seen;
            if (part->end) break;
            pl_http_parser_next(&u->parser); /* it was 1xx */
        }
    }
    if (!u->head_seen) return true;
    part->raw = at + raw_from;
    part->raw_len = *used - raw_from;
    u->tail = payload_here ? *used - last_payload : u->tail + part->raw_len;
    return true;
}

static void on_bytes(struct pl_sock *sock, const char *at, size_t len) {
    struct pl_upstream *u = (struct pl_upstream *)(void *)sock;
    const struct pl_upstream_calls *calls = u->pool->o.calls;
    PL_ASSERT(u->magic == UPSTREAM_MAGIC);
    if (u->in_pool) { /* nobody asked */
        pl_upstream_close(u);
        return;
    }
    if (u->tunnel) {
        calls->tunnel(u->ctx, u, at, len);
        return;
    }
    struct pl_upstream_part part = { 0 };
    size_t used = 0;
    u->heard = true;
    if (!read_reply(u, at, len, &part, &used)) return;
    if (used < len && !u->tunnel) u->dirty = true;
    if (part.head || part.end || part.raw_len != 0) calls->part(u->ctx, u, &part);
    /* part() may have given the connection back or closed it; only a tunnel is certain to be still in use */
    if (part.head && u->tunnel && used < len && !u->sock.closing)
        calls->tunnel(u->ctx, u, at + used, len - used);
}

static enum pl_upstream_end end_of(const struct pl_upstream *u) {
    bool refused = u->connecting && !u->heard && pl_dial_sent(pl_sock_fd(&u->sock)) == 0;
    return refused ? PL_UPSTREAM_REFUSED : PL_UPSTREAM_CLOSED;
}

static void on_connect_late(struct pl_timer *t) {
    struct pl_upstream *u = PL_TIMER_OWNER(t, struct pl_upstream, retire);
    if (!u->in_pool && !pl_dial_connected(pl_sock_fd(&u->sock)))
        u->pool->o.calls->failed(u->ctx, u, PL_UPSTREAM_REFUSED);
}

static void on_ended(struct pl_sock *sock, bool orderly) {
    struct pl_upstream *u = (struct pl_upstream *)(void *)sock;
    const struct pl_upstream_calls *calls = u->pool->o.calls;
    PL_ASSERT(u->magic == UPSTREAM_MAGIC);
    if (u->in_pool) {
        pl_upstream_close(u);
        return;
    }
    u->dirty = true;
    if (orderly && u->head_seen && !u->tunnel && pl_http_parse_close(&u->parser) == PL_HTTP_END) {
        struct pl_upstream_part part = { .end = true };
        calls->part(u->ctx, u, &part);
        return;
    }
    calls->failed(u->ctx, u, end_of(u));
}

static void on_drained(struct pl_sock *sock) {
    struct pl_upstream *u = (struct pl_upstream *)(void *)sock;
    PL_ASSERT(u->magic == UPSTREAM_MAGIC);
    if (!u->in_pool && u->pool->o.calls->writable != NULL) u->pool->o.calls->writable(u->ctx, u);
}

/* --- the pool */

struct pl_pool *pl_pool_create(const struct pl_pool_options *o) {
    struct pl_pool *p = calloc(1, sizeof *p);
    if (p != NULL) p->o = *o;
    return p;
}

void pl_pool_close_idle(struct pl_pool *p) {
    while (p->idle != NULL) pl_upstream_close(p->idle);
}

void pl_pool_destroy(struct pl_pool *p) {
    if (p == NULL) return;
    pl_pool_close_idle(p);
    p->gone = true;
    end_pool(p);
}

static enum pl_dialled dial(struct pl_pool *p, struct pl_upstream **out) {
    static const struct pl_sock_calls calls = { on_bytes, on_ended, on_drained, on_freed };
    int fd = -1;
    struct pl_upstream *u = calloc(1, sizeof *u);
    if (u == NULL) return PL_DIAL_FAILED;
    enum pl_dialled r = pl_dial(p->o.to, &fd);
    if (r != PL_DIAL_OK) {
        free(u);
        return r;
    }
    u->magic = UPSTREAM_MAGIC;
    u->pool = p;
    p->live++;
    pl_http_parser_init(&u->parser, true, p->o.limits);
    u->parser.spares = &p->spares;
    bool tcp = pl_dial_is_tcp(p->o.to);
    u->connecting = tcp && !pl_dial_connected(fd);
    if (!pl_sock_open(&u->sock, p->o.loop, fd, tcp, &calls)) {
        pl_upstream_close(u);
        return PL_DIAL_FAILED;
    }
    if (u->connecting) pl_timer_start(p->o.timers, &u->retire, p->o.connect_ms, on_connect_late);
    pl_sock_read(&u->sock, true);
    *out = u;
    return PL_DIAL_OK;
}

enum pl_dialled pl_upstream_open(struct pl_pool *p, void *ctx, struct pl_upstream **out) {
    while (p->o.look_first && p->idle != NULL && pl_dial_stale(pl_sock_fd(&p->idle->sock)))
        pl_upstream_close(p->idle);
    struct pl_upstream *u = p->idle;
    if (u != NULL) {
        leave_idle(u);
    } else {
        enum pl_dialled r = dial(p, &u);
        if (r != PL_DIAL_OK) return r;
    }
    u->ctx = ctx;
    u->heard = u->head_seen = u->dirty = u->any_payload = u->want_payload = false;
    u->tail = 0;
    *out = u;
    return PL_DIAL_OK;
}

void pl_upstream_release(struct pl_upstream *u, bool reusable) {
    struct pl_pool *p = u->pool;
    bool fit = reusable && u->head_seen && !u->dirty && !u->tunnel && u->parser.head.keep_alive && !p->gone &&
               !u->sock.broken && !u->sock.ended && !u->sock.closing && pl_sock_queued(&u->sock) == 0;
    if (!fit) {
        pl_upstream_close(u);
        return;
    }
    pl_http_parser_next(&u->parser);
    pl_http_parser_answers_head(&u->parser, false);
    pl_sock_read(&u->sock, true);
    pl_timer_stop(&u->retire);
    u->connecting = false;
    u->served = u->in_pool = true;
    u->ctx = NULL;
    u->next = p->idle;
    u->at = &p->idle;
    if (u->next != NULL) u->next->at = &u->next;
    p->idle = u;
    pl_timer_start(p->o.timers, &u->retire, p->o.idle_ms, on_retire);
}

/* --- one exchange */

bool pl_upstream_reused(const struct pl_upstream *u) { return u->served; }
void pl_upstream_answers_head(struct pl_upstream *u, bool yes) {
    pl_http_parser_answers_head(&u->parser, yes);
}
void pl_upstream_want_payload(struct pl_upstream *u, bool yes) { u->want_payload = yes; }
void pl_upstream_send(struct pl_upstream *u, const uv_buf_t *parts, unsigned count) {
    pl_sock_send(&u->sock, parts, count);
}
bool pl_upstream_full(const struct pl_upstream *u) { return pl_sock_full(&u->sock); }
bool pl_upstream_flushed(const struct pl_upstream *u) {
    return pl_sock_queued(&u->sock) == 0 && !u->sock.broken && !u->sock.closing;
}
void pl_upstream_pause(struct pl_upstream *u, bool yes) { pl_sock_read(&u->sock, !yes); }
const struct pl_http_head *pl_upstream_head(const struct pl_upstream *u) { return &u->parser.head; }
bool pl_upstream_heard(const struct pl_upstream *u) { return u->heard; }

bool pl_upstream_between_chunks(const struct pl_upstream *u) {
    if (u->parser.head.framing != PL_HTTP_CHUNKED || !u->head_seen || u->parser.left != 0) return false;
    return u->any_payload ? u->tail == 2 : u->tail == 0;
}
