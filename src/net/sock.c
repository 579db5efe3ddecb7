#include "net/sock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/stalls.h"
#include "net/tls_inside.h"

enum { SOCK_MAGIC = 0x4b434f53 };

struct pl_sock_write {
    uv_write_t request;
    struct pl_buf data;
};

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    static char room[PL_SOCK_READ_BYTES]; /* one loop, and what was read is used before the next read */
    const struct pl_sock *s = handle->data;
    (void)suggested;
    *out = uv_buf_init(room, s->read_most);
}

void pl_sock_raw_end(struct pl_sock *s, bool orderly) {
    if (s->ended || s->closing) return;
    s->ended = true;
    pl_sock_read(s, false);
    s->calls->ended(s, orderly);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct pl_sock *s = stream->data;
    PL_ASSERT(s->magic == SOCK_MAGIC);
    pl_stalls_enter("net.read");
    if (s->closing || s->ended || n == 0) return;
    if (n < 0)
        pl_sock_raw_end(s, n == UV_EOF && !s->broken);
    else if (s->tls != NULL)
        pl_sock_tls_read(s, b->base, (size_t)n);
    else
        s->calls->bytes(s, b->base, (size_t)n); /* broken or not: an answer may lie before the end */
}

static void write_next(struct pl_sock *s);

static void on_written(uv_write_t *request, int status) {
    struct pl_sock_write *job = request->data;
    struct pl_sock *s = request->handle->data;
    PL_ASSERT(s->magic == SOCK_MAGIC);
    pl_stalls_enter("net.write");
    pl_buf_free(&job->data);
    free(job);
    s->writing = NULL;
    if (s->closing) return;
    if (status < 0) {
        s->broken = true;
        pl_sock_raw_end(s, false);
    } else if (s->next.len != 0) {
        write_next(s);
    } else {
        s->calls->drained(s);
    }
}

/* The way a failed write becomes `ended`: the socket is in error, so the next read from the loop says so. */
static void breaks(struct pl_sock *s) {
    s->broken = true;
    pl_buf_free(&s->next);
    pl_sock_read(s, true);
}

void pl_sock_raw_cut(struct pl_sock *s) {
    shutdown(pl_sock_fd(s), SHUT_RDWR);
    breaks(s);
}

static void write_next(struct pl_sock *s) {
    struct pl_sock_write *job = malloc(sizeof *job);
    if (job == NULL) {
        pl_sock_raw_cut(s);
        return;
    }
    job->data = s->next;
    job->request.data = job;
    pl_buf_init(&s->next, 0);
    s->writing = job;
    uv_buf_t all = uv_buf_init(job->data.data, (unsigned)job->data.len);
    if (uv_write(&job->request, &s->u.stream, &all, 1, on_written) == 0) return;
    s->writing = NULL;
    pl_buf_free(&job->data);
    free(job);
    breaks(s);
}

bool pl_sock_open(struct pl_sock *s, uv_loop_t *loop, int fd, bool tcp, const struct pl_sock_calls *calls) {
    if (tcp)
        uv_tcp_init(loop, &s->u.tcp);
    else
        uv_pipe_init(loop, &s->u.pipe, 0);
    s->u.handle.data = s;
    s->calls = calls;
    s->writing = NULL;
    s->given = 0;
    s->tls = NULL;
    s->reading = s->watching = s->closing = s->broken = s->ended = false;
    s->read_most = PL_SOCK_READ_BYTES;
    pl_buf_init(&s->next, 0);
    s->magic = SOCK_MAGIC;
    int r = tcp ? uv_tcp_open(&s->u.tcp, fd) : uv_pipe_open(&s->u.pipe, fd);
    if (r == 0) return true;
    close(fd);
    return false;
}

void pl_sock_read(struct pl_sock *s, bool yes) {
    if (yes == s->reading || s->closing || (yes && s->ended)) return;
    if (!yes && s->broken && !s->ended) return; /* the end must be heard */
    s->reading = yes;
    pl_sock_raw_watch(s);
    if (yes && s->tls != NULL) pl_sock_tls_wanted(s);
}

void pl_sock_raw_watch(struct pl_sock *s) {
    bool watch = s->reading && !s->closing && (s->broken || s->tls == NULL || !pl_sock_tls_waits(s));
    if (watch == s->watching || s->closing) return;
    s->watching = watch;
    if (watch)
        uv_read_start(&s->u.stream, on_alloc, on_read);
    else
        uv_read_stop(&s->u.stream);
}

static bool queue_rest(struct pl_sock *s, const uv_buf_t *parts, unsigned count, size_t sent) {
    for (unsigned i = 0; i < count; i++) {
        if (sent >= parts[i].len) {
            sent -= parts[i].len;
            continue;
        }
        if (!pl_buf_add(&s->next, parts[i].base + sent, parts[i].len - sent)) return false;
        sent = 0;
    }
    return true;
}

bool pl_sock_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count) {
    size_t total = 0;
    for (unsigned i = 0; i < count; i++) total += parts[i].len;
    if (s->closing || s->broken) return false;
    s->given += total;
    if (total == 0) return true;
    return s->tls != NULL ? pl_sock_tls_send(s, parts, count) : pl_sock_raw_send(s, parts, count);
}

bool pl_sock_raw_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count) {
    size_t total = 0, sent = 0;
    for (unsigned i = 0; i < count; i++) total += parts[i].len;
    if (s->closing || s->broken) return false;
    if (s->writing == NULL) {
        int n = uv_try_write(&s->u.stream, parts, count);
        if (n < 0 && n != UV_EAGAIN) {
            breaks(s);
            return false;
        }
        sent = n > 0 ? (size_t)n : 0;
        if (sent == total) return true;
    }
    if (!queue_rest(s, parts, count, sent)) {
        pl_sock_raw_cut(s); /* without memory: better cut than with a hole */
        return false;
    }
    if (s->writing == NULL) write_next(s);
    return !s->broken;
}

void pl_sock_shut(struct pl_sock *s) {
    if (s->tls != NULL && !s->closing) pl_sock_tls_goodbye(s);
    if (!s->closing && !s->broken) shutdown(pl_sock_fd(s), SHUT_WR);
}

static void on_closed(uv_handle_t *handle) {
    struct pl_sock *s = handle->data;
    pl_buf_free(&s->next);
    if (s->tls != NULL) pl_sock_tls_free(s);
    s->magic = 0;
    s->calls->freed(s);
}

void pl_sock_close(struct pl_sock *s) {
    if (s->closing) return;
    if (s->tls != NULL) {
        if (pl_sock_queued(s) == 0) pl_sock_tls_goodbye(s);
        pl_sock_tls_leave(s);
    }
    s->closing = true;
    uv_close(&s->u.handle, on_closed);
}

size_t pl_sock_queued(const struct pl_sock *s) {
    return s->next.len + (s->writing != NULL ? s->u.stream.write_queue_size : 0);
}

int pl_sock_fd(const struct pl_sock *s) {
    uv_os_fd_t fd = -1;
    return uv_fileno(&s->u.handle, &fd) == 0 ? fd : -1;
}
