/* net/listener.c - accepting. Not libuv's uv_listen: out of descriptors it accepts and drops what waits; we
 * leave it in the backlog, where the next free descriptor (or the next process) finds it.
 *
 * Who accepts the crowd keeps a few descriptors in reserve and gives them up when there are no others, so
 * that the requests already accepted find connections to their workers. It accepts again when the reserve is
 * whole again. The admin server keeps some for itself: whoever asks what is wrong is answered. Out of memory
 * it is the same: nobody is accepted until there is some. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/reserve.h"
#include "net/server_conn.h"
#include "net/stalls.h"

enum { ACCEPT_AT_ONCE = 64, RESUME_MS = 500, TELL_EVERY_MS = 1000 };

static void on_readable(uv_poll_t *poll, int status, int events);

static void drop_reserve(struct pl_server *s) {
    while (s->reserved > 0) close(s->reserve[--s->reserved]);
}

static bool take_reserve(struct pl_server *s) {
    while (s->reserved < s->o.spare_fds && s->reserved < PL_SERVER_SPARE_FDS) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd == -1) {
            drop_reserve(s);
            return false;
        }
        s->reserve[s->reserved++] = fd;
    }
    return true;
}

/* One that was used to accept, if it is there again. */
static void take_reserve_back(struct pl_server *s) {
    int fd = s->reserved < s->o.spare_fds ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (fd != -1) s->reserve[s->reserved++] = fd;
}

/* At most once a second: at the limit every connection that ends lets another one in. */
static void tell_paused(struct pl_listener *l, const char *why) {
    struct pl_server *s = l->server;
    uint64_t now = pl_timers_now(s->o.timers);
    if (s->o.log == NULL || (s->told_ms != 0 && now - s->told_ms < TELL_EVERY_MS)) return;
    s->told_ms = now;
    pl_log(s->o.log, PL_WARN, "listen.paused", F_STR("listener", l->name), F_STR("reason", why),
           F_INT("fds", s->count));
}

static void pause_one(struct pl_listener *l) {
    if (l->paused) return;
    l->paused = true;
    uv_poll_stop(&l->poll);
}

static void on_resume(struct pl_timer *t) {
    struct pl_server *s = PL_TIMER_OWNER(t, struct pl_server, resume);
    if (take_reserve(s) && pl_reserve_whole())
        pl_listeners_resume(s);
    else
        pl_timer_start(s->o.timers, t, RESUME_MS, on_resume);
}

void pl_listeners_resume(struct pl_server *s) {
    if (s->o.spare_own && !s->draining) take_reserve_back(s);
    bool full = s->o.limits->connections != 0 && s->count >= s->o.limits->connections;
    if (s->draining || full || pl_timer_running(&s->resume)) return;
    for (struct pl_listener *l = s->listeners; l != NULL; l = l->next) {
        if (!l->paused || uv_is_closing((uv_handle_t *)&l->poll)) continue;
        l->paused = false;
        uv_poll_start(&l->poll, UV_READABLE, on_readable);
    }
}

/* Of descriptors, or of memory: what idle connections to workers hold is given up, too. */
static void out_of_room(struct pl_listener *l, int why) {
    struct pl_server *s = l->server;
    for (struct pl_listener *each = s->listeners; each != NULL; each = each->next) pause_one(each);
    drop_reserve(s);
    if (s->o.calls->scarce != NULL) s->o.calls->scarce(s->o.ctx);
    pl_timer_start(s->o.timers, &s->resume, RESUME_MS, on_resume);
    tell_paused(l, strerror(why));
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct pl_listener *l = poll->data;
    struct pl_server *s = l->server;
    pl_stalls_enter("net.accept");
    if (status < 0 || (events & UV_READABLE) == 0) return;
    for (int i = 0; i < ACCEPT_AT_ONCE && !l->paused; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t len = sizeof peer;
        if (s->o.limits->connections != 0 && s->count >= s->o.limits->connections) {
            pause_one(l);
            tell_paused(l, "limits.connections");
            return;
        }
        /* Room for it first: who cannot be served waits in the backlog, and is not sent away. */
        if (s->room == NULL) s->room = calloc(1, sizeof *s->room);
        if (s->room == NULL || !pl_reserve_whole()) {
            out_of_room(l, ENOMEM);
            return;
        }
        int fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            pl_conn_accept(l, fd, &peer);
        } else if (errno == EMFILE && s->o.spare_own && s->reserved > 0) {
            close(s->reserve[--s->reserved]);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            out_of_room(l, errno);
            return;
        } else if (errno == EAGAIN) {
            return;
        } /* else: that client has left already, or an interrupt; look at the next */
    }
}

/* Series of a closed set are there from the start, with 0. */
static void make_series(struct pl_listener *l) {
    static const char *const reasons[] = { "malformed",    "request_line",  "head",    "expect",
                                           "body",         "method",        "version", "head_timeout",
                                           "body_timeout", "write_timeout", "tls" };
    struct pl_metrics *m = l->server->o.metrics;
    l->open = pl_series(m, PL_M_CONNECTIONS, l->name);
    l->total = pl_series(m, PL_M_CONNECTIONS_TOTAL, l->name);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        pl_series(m, PL_M_HTTP_ERRORS_TOTAL, l->name, reasons[i]);
}

/* Linux: what is accepted inherits them. A client whose machine or network is gone says nothing at all: it is
 * asked after a minute of silence and given up half a minute later, or a websocket would stay for ever. */
static void set_options(int fd) {
    static const struct {
        int level, name, value;
    } options[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },   { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, 60 }, { IPPROTO_TCP, TCP_KEEPINTVL, 10 },
        { IPPROTO_TCP, TCP_KEEPCNT, 3 },
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
}

bool pl_server_listen(struct pl_server *s, int fd, const char *name, struct pl_err *err) {
    struct sockaddr_storage own = { 0 };
    socklen_t len = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &len) == -1) {
        int why = errno;
        close(fd);
        return PL_FAIL_SYS(err, why, "listener %s", name);
    }
    struct pl_listener *l = calloc(1, sizeof *l);
    if (l == NULL) {
        close(fd);
        return PL_FAIL(err, PL_E_NOMEM, "listener %s", name);
    }
    l->server = s;
    l->fd = fd;
    l->tcp = own.ss_family == AF_INET || own.ss_family == AF_INET6;
    snprintf(l->name, sizeof l->name, "%s", name);
    if (l->tcp) set_options(fd);
    int r = uv_poll_init(s->o.loop, &l->poll, fd); /* makes it non-blocking */
    if (r == 0) {
        l->poll.data = l;
        r = uv_poll_start(&l->poll, UV_READABLE, on_readable);
    }
    if (r != 0) {
        close(fd);
        free(l);
        return PL_FAIL_SYS(err, -r, "listener %s", name);
    }
    make_series(l);
    take_reserve(s); /* not to be had: the first resume tries again */
    l->next = s->listeners;
    s->listeners = l;
    return true;
}

static void on_poll_closed(uv_handle_t *handle) {
    struct pl_listener *l = handle->data;
    close(l->fd); /* not sooner: libuv still watches it until now */
    l->fd = -1;
}

/* The structs stay: connections point to their listener's name and series. pl_server_destroy frees them. */
void pl_listeners_close(struct pl_server *s) {
    pl_timer_stop(&s->resume);
    drop_reserve(s);
    for (struct pl_listener *l = s->listeners; l != NULL; l = l->next)
        if (!uv_is_closing((uv_handle_t *)&l->poll)) uv_close((uv_handle_t *)&l->poll, on_poll_closed);
}

void pl_server_unlisten(struct pl_server *s) { pl_listeners_close(s); }
