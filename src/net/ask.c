/* net/ask.c - a question on a connection of its own. The only states are asking and over: a connection on its
 * way lets the question wait, and one that fails says so; `done` is always called from the loop. */
#include "net/ask.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "http/parser.h"
#include "net/dial.h"

enum { ASK_MAGIC = 0x3f6b7361, ASK_READ_BYTES = 16384 };

static const struct pl_http_limits ask_limits = { .request_line = 8192, .head_bytes = 65536, .headers = 200 };

struct pl_ask {
    uint32_t magic;
    bool over, heard;
    uint8_t open_handles;
    bool tcp;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } u;
    uv_timer_t timer;
    uv_write_t write;
    struct pl_buf question, body;
    struct pl_http_parser parser;
    struct pl_ask_reply reply;
    uint64_t sent_us;
    size_t cap;
    pl_ask_piece *piece;
    pl_ask_done *done;
    void *ctx;
};

static void on_closed(uv_handle_t *handle) {
    struct pl_ask *a = handle->data;
    if (--a->open_handles != 0) return;
    pl_buf_free(&a->question);
    pl_buf_free(&a->body);
    pl_http_parser_free(&a->parser);
    a->magic = 0;
    free(a);
}

static void let_go(struct pl_ask *a) {
    a->over = true;
    uv_close(&a->u.handle, on_closed);
    uv_close((uv_handle_t *)&a->timer, on_closed);
}

/* Nothing of the question ever left: nobody was there to take it. */
static bool was_refused(const struct pl_ask *a) {
    uv_os_fd_t fd;
    return a->tcp && !a->heard && uv_fileno(&a->u.handle, &fd) == 0 && pl_dial_sent(fd) == 0;
}

static void finish(struct pl_ask *a, const char *problem) {
    if (a->over) return;
    if (problem != NULL && was_refused(a)) {
        a->reply.refused = true;
        problem = "connect";
    }
    a->reply.problem = problem;
    a->reply.answered = problem == NULL;
    a->reply.body = pl_buf_text(&a->body);
    a->reply.body_len = a->body.len;
    a->reply.took_us = a->sent_us != 0 ? pl_now_us() - a->sent_us : 0;
    let_go(a);
    a->done(a->ctx, &a->reply);
}

static void take(struct pl_ask *a, const char *at, size_t len) {
    for (;;) {
        size_t used = 0;
        switch (pl_http_parse(&a->parser, at, len, &used)) {
        case PL_HTTP_MORE:
            return;
        case PL_HTTP_HEAD:
            a->reply.status = a->parser.head.status;
            break;
        case PL_HTTP_BODY:
            if (a->piece != NULL) {
                if (a->piece(a->ctx, a->parser.piece, a->parser.piece_len)) break;
                finish(a, "left");
                return;
            }
            if (a->body.len + a->parser.piece_len > a->cap ||
                !pl_buf_add(&a->body, a->parser.piece, a->parser.piece_len)) {
                finish(a, "too large");
                return;
            }
            break;
        case PL_HTTP_END:
            if (a->reply.status >= 200) {
                finish(a, NULL);
                return;
            }
            pl_http_parser_next(&a->parser); /* 1xx: the reply follows */
            break;
        case PL_HTTP_FAULT:
            finish(a, "malformed");
            return;
        }
        at += used;
        len -= used;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    static char room[ASK_READ_BYTES]; /* one loop, and what was read is used before the next read */
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(room, sizeof room);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct pl_ask *a = stream->data;
    if (a->magic != ASK_MAGIC || a->over || n == 0) return;
    if (n > 0) {
        a->heard = true;
        take(a, b->base, (size_t)n);
        return;
    }
    bool whole = n == UV_EOF && pl_http_parse_close(&a->parser) == PL_HTTP_END;
    finish(a, whole ? NULL : "closed");
}

static void on_written(uv_write_t *request, int status) {
    struct pl_ask *a = request->data;
    if (status < 0 && !a->over) finish(a, "closed");
}

static void on_timer(uv_timer_t *timer) {
    struct pl_ask *a = timer->data;
    if (a->magic != ASK_MAGIC) return;
    finish(a, a->reply.problem != NULL ? a->reply.problem : "timeout");
}

static bool write_question(struct pl_buf *out, const struct pl_ask_question *q) {
    if (!pl_buf_addf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", q->method, q->target,
                     q->host != NULL ? q->host : "localhost"))
        return false;
    if (q->headers != NULL && !pl_buf_adds(out, q->headers)) return false;
    bool counted = q->body_len != 0 || (strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0);
    if (counted && !pl_buf_addf(out, "Content-Length: %zu\r\n", q->body_len)) return false;
    return pl_buf_adds(out, "\r\n") && (q->body_len == 0 || pl_buf_add(out, q->body, q->body_len));
}

struct pl_ask *pl_ask_start(uv_loop_t *loop, const struct pl_ask_question *q, pl_ask_done *done, void *ctx) {
    struct pl_ask *a = calloc(1, sizeof *a);
    if (a == NULL) return NULL;
    a->magic = ASK_MAGIC;
    a->done = done;
    a->ctx = ctx;
    a->cap = q->reply_cap;
    a->piece = q->piece;
    pl_buf_init(&a->question, 0);
    pl_buf_init(&a->body, 0);
    pl_http_parser_init(&a->parser, true, &ask_limits);
    pl_http_parser_answers_head(&a->parser, strcmp(q->method, "HEAD") == 0);
    if (!write_question(&a->question, q)) {
        pl_buf_free(&a->question);
        free(a);
        return NULL;
    }
    a->tcp = pl_dial_is_tcp(q->to);
    if (a->tcp)
        uv_tcp_init(loop, &a->u.tcp);
    else
        uv_pipe_init(loop, &a->u.pipe, 0);
    uv_timer_init(loop, &a->timer);
    a->open_handles = 2;
    a->u.handle.data = a->timer.data = a->write.data = a;
    int fd = -1;
    enum pl_dialled dialled = pl_dial(q->to, &fd);
    bool open =
        dialled == PL_DIAL_OK && (a->tcp ? uv_tcp_open(&a->u.tcp, fd) : uv_pipe_open(&a->u.pipe, fd)) == 0;
    if (fd != -1 && !open) close(fd);
    uv_buf_t text = uv_buf_init(a->question.data, (unsigned)a->question.len);
    if (open && uv_write(&a->write, &a->u.stream, &text, 1, on_written) == 0 &&
        uv_read_start(&a->u.stream, on_alloc, on_read) == 0) {
        a->sent_us = pl_now_us();
        uv_timer_start(&a->timer, on_timer, q->timeout_ms, 0);
        return a;
    }
    a->reply.refused = dialled == PL_DIAL_REFUSED;
    a->reply.problem = "connect";
    uv_timer_start(&a->timer, on_timer, 0, 0); /* the answer comes from the loop, never from here */
    return a;
}

void pl_ask_cancel(struct pl_ask *a) {
    if (a != NULL && a->magic == ASK_MAGIC && !a->over) let_go(a);
}
