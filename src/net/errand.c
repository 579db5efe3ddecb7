#include "net/errand.h"

#include <signal.h>
#include <stdlib.h>

struct pl_errand {
    uv_process_t process;
    uv_pipe_t out;
    uv_timer_t limit;
    struct pl_buf said;
    pl_errand_done *done; /* NULL: nobody wants it any more */
    void *ctx;
    int64_t status;
    bool exited, by_signal, at_end, late, too_much;
    unsigned open_handles;
};

static void on_closed(uv_handle_t *h) {
    struct pl_errand *e = h->data;
    if (--e->open_handles > 0) return;
    pl_buf_free(&e->said);
    free(e);
}

static void close_one(uv_handle_t *h) {
    if (!uv_is_closing(h)) uv_close(h, on_closed);
}

static enum pl_errand_end end_of(const struct pl_errand *e) {
    if (e->too_much) return PL_ERRAND_TOO_MUCH;
    if (e->late) return PL_ERRAND_LATE;
    return e->by_signal ? PL_ERRAND_KILLED : PL_ERRAND_EXITED;
}

/* Only when the child was reaped: a process whose handle is closed before stays a zombie. */
static void finish(struct pl_errand *e) {
    struct pl_errand_result r = { .end = end_of(e), .status = e->status, .said = &e->said };
    pl_errand_done *done = e->done;
    e->done = NULL;
    if (r.end != PL_ERRAND_EXITED) e->said.len = 0;
    if (done != NULL) done(e->ctx, &r);
    close_one((uv_handle_t *)&e->process);
    close_one((uv_handle_t *)&e->out);
    close_one((uv_handle_t *)&e->limit);
}

/* Its output may stay open for as long as a child of it lives: nobody waits for that once it was ended. */
static void finish_if_over(struct pl_errand *e) {
    if (e->exited && (e->at_end || e->late || e->too_much || e->done == NULL)) finish(e);
}

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *out) {
    static char bytes[65536];
    (void)h;
    (void)suggested;
    *out = uv_buf_init(bytes, sizeof bytes);
}

/* Not once it was reaped: its number may be another's by then. */
static void end_child(struct pl_errand *e) {
    if (!e->exited) uv_process_kill(&e->process, SIGKILL);
    finish_if_over(e);
}

static void on_bytes(uv_stream_t *s, ssize_t n, const uv_buf_t *buf) {
    struct pl_errand *e = s->data;
    if (n > 0 && !e->too_much && !pl_buf_add(&e->said, buf->base, (size_t)n)) {
        e->too_much = true;
        end_child(e);
    }
    if (n >= 0) return;
    uv_read_stop(s);
    e->at_end = true;
    finish_if_over(e);
}

static void on_exit_of(uv_process_t *process, int64_t status, int signal) {
    struct pl_errand *e = process->data;
    e->exited = true;
    e->status = status;
    e->by_signal = signal != 0;
    finish_if_over(e);
}

static void on_late(uv_timer_t *t) {
    struct pl_errand *e = t->data;
    e->late = true;
    end_child(e);
}

static int spawn(struct pl_errand *e, const struct pl_errand_order *o) {
#ifdef __SANITIZE_ADDRESS__ /* leaks are looked for by ptrace, which main's fence refuses to its children \
                               too */
    static char no_leaks[] = "ASAN_OPTIONS=detect_leaks=0";
    char *nothing[] = { no_leaks, NULL };
#else
    char *nothing[] = { NULL };
#endif
    uv_stdio_container_t ends[4] = { { .flags = UV_IGNORE },
                                     { .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
                                       .data.stream = (uv_stream_t *)&e->out },
                                     { .flags = UV_IGNORE },
                                     { .flags = UV_INHERIT_FD, .data.fd = o->fd } };
    const uv_process_options_t options = { .exit_cb = on_exit_of,
                                           .env = nothing,
                                           .file = o->argv[0],
                                           .args = (char **)(uintptr_t)o->argv,
                                           .stdio = ends,
                                           .stdio_count = o->fd > 0 ? 4 : 3 };
    int r = uv_spawn(o->loop, &e->process, &options);
    e->exited = r != 0;
    return r != 0 ? r : uv_read_start((uv_stream_t *)&e->out, on_room, on_bytes);
}

struct pl_errand *pl_errand_start(const struct pl_errand_order *o, struct pl_err *err) {
    struct pl_errand *e = calloc(1, sizeof *e);
    if (e == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        return NULL;
    }
    pl_buf_init(&e->said, o->bytes_most);
    uv_pipe_init(o->loop, &e->out, 0);
    uv_timer_init(o->loop, &e->limit);
    e->out.data = e->process.data = e->limit.data = e;
    e->open_handles = 3;
    int r = spawn(e, o);
    if (r != 0) {
        PL_FAIL_SYS(err, -r, "start %s", o->argv[0]);
        pl_errand_drop(e);
        return NULL;
    }
    e->done = o->done;
    e->ctx = o->ctx;
    uv_timer_start(&e->limit, on_late, o->limit_ms, 0);
    uv_unref((uv_handle_t *)&e->process);
    uv_unref((uv_handle_t *)&e->out);
    uv_unref((uv_handle_t *)&e->limit);
    return e;
}

void pl_errand_drop(struct pl_errand *e) {
    if (e == NULL) return;
    e->done = NULL;
    end_child(e);
}
