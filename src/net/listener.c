/* net/listener.c - accepting. Not libuv's uv_listen: out of descriptors it accepts and drops what waits; we
 * leave it in the backlog, where the next free descriptor (or the next process) finds it. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/server_conn.h"
#include "net/stalls.h"

enum { ACCEPT_AT_ONCE = 64, RESUME_MS = 500 };

static void on_readable(uv_poll_t *poll, int status, int events);

static void pause_one(struct pl_listener *l) {
    if (l->paused) return;
    l->paused = true;
    uv_poll_stop(&l->poll);
}

static void on_resume(struct pl_timer *t) {
    struct pl_server *s = PL_TIMER_OWNER(t, struct pl_server, resume);
    pl_listeners_resume(s);
}

void pl_listeners_resume(struct pl_server *s) {
    bool full = s->o.limits->connections != 0 && s->count >= s->o.limits->connections;
    if (s->draining || full || pl_timer_running(&s->resume)) return;
    for (struct pl_listener *l = s->listeners; l != NULL; l = l->next) {
        if (!l->paused) continue;
        l->paused = false;
        uv_poll_start(&l->poll, UV_READABLE, on_readable);
    }
}

static void out_of_descriptors(struct pl_listener *l, int why) {
    struct pl_server *s = l->server;
    for (struct pl_listener *each = s->listeners; each != NULL; each = each->next) pause_one(each);
    pl_timer_start(s->o.timers, &s->resume, RESUME_MS, on_resume);
    if (s->o.log != NULL)
        pl_log(s->o.log, PL_WARN, "listen.paused", F_STR("listener", l->name), F_STR("reason", strerror(why)),
               F_INT("fds", s->count));
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
            return;
        }
        int fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            pl_conn_accept(l, fd, &peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            out_of_descriptors(l, errno);
            return;
        } else if (errno == EAGAIN) {
            return;
        } /* else: that client has left already, or an interrupt; look at the next */
    }
}

/* Series of a closed set are there from the start, with 0. */
static void make_series(struct pl_listener *l) {
    static const char *const reasons[] = { "malformed",    "request_line", "head",    "expect",
                                           "body",         "method",       "version", "head_timeout",
                                           "body_timeout", "write_timeout" };
    struct pl_metrics *m = l->server->o.metrics;
    l->open = pl_series(m, PL_M_CONNECTIONS, l->name);
    l->total = pl_series(m, PL_M_CONNECTIONS_TOTAL, l->name);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        pl_series(m, PL_M_HTTP_ERRORS_TOTAL, l->name, reasons[i]);
}

bool pl_server_listen(struct pl_server *s, int fd, const char *name, struct pl_err *err) {
    struct sockaddr_storage own = { 0 };
    socklen_t len = sizeof own;
    int on = 1;
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
    if (l->tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* Linux: what is accepted inherits it */
    int r = uv_poll_init(s->o.loop, &l->poll, fd);                /* makes it non-blocking */
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
    for (struct pl_listener *l = s->listeners; l != NULL; l = l->next)
        if (!uv_is_closing((uv_handle_t *)&l->poll)) uv_close((uv_handle_t *)&l->poll, on_poll_closed);
}

void pl_server_unlisten(struct pl_server *s) { pl_listeners_close(s); }
