/* net/server_half.c - clients that have ended their sending side. It may be all they do (their answer is
 * still wanted) or the first sign that they left, and TCP tells both alike until something is written.
 *
 * So a request that is whole is served on. If its answer takes longer than a moment, the client is sent "100
 * Continue", which every HTTP/1.1 client must be able to skip (RFC 9110 §15.2): one that has left answers
 * with a reset, and nobody works for a client who does not listen. An HTTP/1.0 client cannot be asked; it is
 * taken for gone. A client on a Unix socket needs no asking: the kernel knows whether its socket is still
 * there.
 */
#include <poll.h>

#include "net/server_conn.h"

enum { ASK_AFTER_MS = 100, LOOK_EVERY_MS = 250 };

static bool has_left(const struct pl_conn *c) {
    struct pollfd p = { .fd = pl_sock_fd(&c->sock) };
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

static bool can_ask(const struct pl_conn *c) { return c->was_tcp && c->parser.head.minor > 0; }

static void on_look(struct pl_timer *t) {
    struct pl_conn *c = PL_TIMER_OWNER(t, struct pl_conn, timer);
    bool silent = c->phase == PL_CONN_REQUEST && c->body_done && c->sock.given == c->answer_mark;
    if (has_left(c) || (silent && c->was_tcp && !can_ask(c))) {
        pl_conn_close_now(c);
        return;
    }
    if (silent && can_ask(c) && !c->asked) {
        c->asked = true;
        pl_conn_interim(c);
    }
    pl_timer_start(c->server->o.timers, &c->timer, LOOK_EVERY_MS, on_look);
}

void pl_conn_watch_half(struct pl_conn *c) {
    if (c->phase != PL_CONN_REQUEST && c->phase != PL_CONN_FLUSH) return;
    if (pl_timer_running(&c->timer) && c->timer.fire == on_look) return;
    pl_timer_start(c->server->o.timers, &c->timer, ASK_AFTER_MS, on_look);
}

void pl_conn_settle_half(struct pl_conn *c) {
    bool broken_off = c->phase == PL_CONN_REQUEST && !c->body_done && c->pending.len == 0;
    if (broken_off || has_left(c))
        pl_conn_close_now(c);
    else if (c->phase == PL_CONN_IDLE && c->pending.len == 0)
        pl_conn_wind_up(c, false); /* no further request can come */
    else
        pl_conn_watch_half(c);
}
