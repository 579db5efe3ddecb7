/* records.c - /report, /history and /timeline/SERVICE out of the flight record. SQLite reads are not the
 * loop's: a child process (`plimsoll read-record`) makes the document, and we pass it on. A record that is in
 * memory is copied for it by the record's own thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/inside.h"

enum { READINGS_MOST = 4, LIMIT_MS = 20000, DOCUMENT_BYTES = 64 << 20, WORDS = 12, WORD_BYTES = 600 };

struct pl_reading {
    struct pl_reading *next;
    struct pl_admin *admin;
    struct pl_conn *conn; /* NULL: the client left */
    uv_process_t process;
    uv_pipe_t out;
    uv_async_t copied;
    struct pl_timer limit;
    struct pl_buf text;
    char words[WORDS][WORD_BYTES];
    int word_count;
    int copy; /* descriptor of a record in memory; -1: it is a file */
    int64_t status;
    bool running, exited, at_end, too_much, late;
    unsigned open_handles;
};

static void add_word(struct pl_reading *r, const char *key, const char *value) {
    if (value == NULL || r->word_count == WORDS) return;
    snprintf(r->words[r->word_count++], WORD_BYTES, "%s%s", key, value);
}

/* --- its end */

static void free_if_closed(struct pl_reading *r) {
    if (--r->open_handles > 0) return;
    for (struct pl_reading **at = &r->admin->readings; *at != NULL; at = &(*at)->next) {
        if (*at != r) continue;
        *at = r->next;
        break;
    }
    pl_buf_free(&r->text);
    free(r);
}

static void on_closed(uv_handle_t *h) { free_if_closed(h->data); }

static void close_handle(struct pl_reading *r, uv_handle_t *h) {
    h->data = r;
    if (!uv_is_closing(h)) uv_close(h, on_closed);
}

static void answer(struct pl_reading *r) {
    struct pl_conn *c = r->conn;
    r->conn = NULL;
    if (c == NULL) return;
    if (r->late || r->too_much) {
        pl_admin_reply_error(c, 503, "service_unavailable",
                             r->late ? "the record is slow to read" : "the answer is too large",
                             "ask for a shorter time");
    } else if (r->status == 0 && r->text.len > 0) {
        const struct pl_http_reply reply = { .status = 200, .body = r->text.data, .body_len = r->text.len };
        pl_conn_reply(c, &reply);
    } else {
        bool asked_wrong = r->status == 2;
        const char *said = r->text.len > 0 ? pl_buf_text(&r->text) : "the record cannot be read";
        pl_admin_reply_error(c, asked_wrong ? 400 : 503, asked_wrong ? "bad_request" : "service_unavailable",
                             said, NULL);
    }
}

static void finish(struct pl_reading *r) {
    pl_timer_stop(&r->limit);
    answer(r);
    if (r->copy != -1) close(r->copy);
    r->copy = -1;
    if (r->running) {
        close_handle(r, (uv_handle_t *)&r->process);
        close_handle(r, (uv_handle_t *)&r->out);
    }
    close_handle(r, (uv_handle_t *)&r->copied);
}

static void finish_if_over(struct pl_reading *r) {
    if (r->exited && r->at_end) finish(r);
}

/* --- the child */

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *out) {
    static char bytes[65536];
    (void)h;
    (void)suggested;
    *out = uv_buf_init(bytes, sizeof bytes);
}

static void on_bytes(uv_stream_t *s, ssize_t n, const uv_buf_t *buf) {
    struct pl_reading *r = s->data;
    if (n > 0 && !r->too_much && !pl_buf_add(&r->text, buf->base, (size_t)n)) {
        r->too_much = true;
        uv_process_kill(&r->process, SIGKILL);
    }
    if (n >= 0) return;
    uv_read_stop(s);
    r->at_end = true;
    finish_if_over(r);
}

static void on_exit_of(uv_process_t *p, int64_t status, int signal) {
    struct pl_reading *r = p->data;
    r->exited = true;
    r->status = signal != 0 ? 5 : status;
    finish_if_over(r);
}

static void on_late(struct pl_timer *t) {
    struct pl_reading *r = PL_TIMER_OWNER(t, struct pl_reading, limit);
    r->late = true;
    if (r->running)
        uv_process_kill(&r->process, SIGKILL);
    else
        answer(r);
}

static void start(struct pl_reading *r) {
    struct pl_admin *a = r->admin;
    char *argv[WORDS + 2] = { (char *)(uintptr_t)a->o.program };
    for (int i = 0; i < r->word_count; i++) argv[i + 1] = r->words[i];
    uv_stdio_container_t ends[4] = { { .flags = UV_IGNORE },
                                     { .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
                                       .data.stream = (uv_stream_t *)&r->out },
                                     { .flags = UV_IGNORE },
                                     { .flags = UV_INHERIT_FD, .data.fd = r->copy } };
    char *nothing[] = {
        NULL
    }; /* our secrets are in our environment, and a reader of ours can be looked at */
    const uv_process_options_t o = { .exit_cb = on_exit_of,
                                     .env = nothing,
                                     .file = a->o.program,
                                     .args = argv,
                                     .stdio = ends,
                                     .stdio_count = r->copy != -1 ? 4 : 3 };
    uv_pipe_init(a->o.app->loop, &r->out, 0);
    r->process.data = r->out.data = r;
    r->open_handles += 2;
    r->running = true;
    if (uv_spawn(a->o.app->loop, &r->process, &o) != 0 ||
        uv_read_start((uv_stream_t *)&r->out, on_room, on_bytes) != 0) {
        r->status = 5;
        finish(r);
    }
}

/* On the loop: the record's thread has left its copy. */
static void on_copied(uv_async_t *async) {
    struct pl_reading *r = async->data;
    if (r->copy == -1 || r->conn == NULL) {
        r->status = 5;
        finish(r);
        return;
    }
    start(r);
}

/* On the record's thread. */
static void take_copy(void *ctx, int fd) {
    struct pl_reading *r = ctx;
    r->copy = fd;
    uv_async_send(&r->copied);
}

/* --- the request */

static size_t count(const struct pl_admin *a) {
    size_t n = 0;
    for (const struct pl_reading *r = a->readings; r != NULL; r = r->next) n++;
    return n;
}

void pl_records_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t, const char *what,
                       const char *service) {
    char file[512];
    struct pl_reading *r = NULL;
    if (a->o.app->record == NULL || a->o.program == NULL) {
        pl_admin_reply_error(c, 503, "service_unavailable", "there is no record", NULL);
        return;
    }
    if (count(a) < READINGS_MOST) r = calloc(1, sizeof *r);
    if (r == NULL) {
        pl_admin_reply_error(c, 503, "service_unavailable", "others read the record now", "ask again");
        return;
    }
    *r = (struct pl_reading){ .next = a->readings, .admin = a, .conn = c, .copy = -1, .open_handles = 1 };
    a->readings = r;
    pl_buf_init(&r->text, DOCUMENT_BYTES);
    uv_async_init(a->o.app->loop, &r->copied, on_copied);
    r->copied.data = r;
    pl_record_file(a->o.app->record, file, sizeof file);
    add_word(r, "read-record", "");
    add_word(r, "", file[0] != '\0' ? file : "fd:3");
    add_word(r, what, "");
    add_word(r, "service=", service != NULL ? service : pl_http_query_get(t, "service"));
    static const char *const names[][2] = {
        { "from", "from=" }, { "since", "from=" }, { "to", "to=" }, { "until", "to=" }, { "step", "step=" }
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_word(r, names[i][1], pl_http_query_get(t, names[i][0]));
    pl_timer_start(a->o.timers, &r->limit, LIMIT_MS, on_late);
    if (file[0] != '\0')
        start(r);
    else
        pl_record_copy(a->o.app->record, take_copy, r);
}

void pl_records_gone(struct pl_admin *a, struct pl_conn *c) {
    for (struct pl_reading *r = a->readings; r != NULL; r = r->next) {
        if (r->conn != c) continue;
        r->conn = NULL;
        if (r->running && !r->exited) uv_process_kill(&r->process, SIGKILL);
    }
}
