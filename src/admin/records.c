/* records.c - /report, /history and /timeline/SERVICE out of the flight record. SQLite reads are not the
 * loop's: a child process (`plimsoll read-record`) makes the document, and we pass it on. A record that is in
 * memory is copied for it by the record's own thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/inside.h"
#include "net/errand.h"

#define UNREADABLE "the record cannot be read"
#define SLOW       "the record is slow to read"
#define SHORTER    "ask for a shorter time"
enum { READINGS_MOST = 4, LIMIT_MS = 20000, DOCUMENT_BYTES = 64 << 20, WORDS = 12, WORD_BYTES = 600 };

struct pl_reading {
    struct pl_reading *next;
    struct pl_admin *admin;
    struct pl_conn *conn;     /* NULL: the client left */
    struct pl_errand *errand; /* NULL: not yet, or not any more */
    uv_async_t copied;
    struct pl_timer limit; /* of the copy */
    char words[WORDS][WORD_BYTES];
    int word_count;
    int copy; /* descriptor of a record in memory; -1: it is a file */
};

static void add_word(struct pl_reading *r, const char *key, const char *value) {
    if (value == NULL || r->word_count == WORDS) return;
    snprintf(r->words[r->word_count++], WORD_BYTES, "%s%s", key, value);
}

/* --- its end */

static void on_closed(uv_handle_t *h) {
    struct pl_reading *r = h->data;
    for (struct pl_reading **at = &r->admin->readings; *at != NULL; at = &(*at)->next) {
        if (*at != r) continue;
        *at = r->next;
        break;
    }
    free(r);
}

static void refuse(struct pl_reading *r, const char *why, const char *remedy) {
    struct pl_conn *c = r->conn;
    r->conn = NULL;
    if (c != NULL) pl_admin_reply_error(c, 503, "service_unavailable", why, remedy);
}

static void finish(struct pl_reading *r) {
    pl_timer_stop(&r->limit);
    if (r->copy != -1) close(r->copy);
    r->copy = -1;
    uv_close((uv_handle_t *)&r->copied, on_closed);
}

static void answer(struct pl_reading *r, const struct pl_errand_result *of) {
    struct pl_conn *c = r->conn;
    const char *said = of->said->len > 0 ? pl_buf_text(of->said) : UNREADABLE;
    int64_t status = of->end == PL_ERRAND_EXITED ? of->status : -1;
    if (c == NULL) return;
    if (of->end == PL_ERRAND_LATE || of->end == PL_ERRAND_TOO_MUCH) {
        refuse(r, of->end == PL_ERRAND_LATE ? SLOW : "the answer is too large", SHORTER);
    } else if (status == 0 && of->said->len > 0) {
        const struct pl_http_reply reply = { .status = 200, .body = said, .body_len = of->said->len };
        r->conn = NULL;
        pl_conn_reply(c, &reply);
    } else if (status == 2) {
        r->conn = NULL;
        pl_admin_reply_error(c, 400, "bad_request", said, NULL);
    } else {
        refuse(r, said, NULL);
    }
}

static void on_done(void *ctx, struct pl_errand_result *of) {
    struct pl_reading *r = ctx;
    r->errand = NULL;
    answer(r, of);
    finish(r);
}

/* --- its way */

static void start(struct pl_reading *r) {
    struct pl_admin *a = r->admin;
    struct pl_err err;
    char *argv[WORDS + 2] = { (char *)(uintptr_t)a->o.program };
    for (int i = 0; i < r->word_count; i++) argv[i + 1] = r->words[i];
    const struct pl_errand_order o = { .loop = a->o.app->loop,
                                       .argv = argv,
                                       .fd = r->copy != -1 ? r->copy : 0,
                                       .bytes_most = DOCUMENT_BYTES,
                                       .limit_ms = LIMIT_MS,
                                       .done = on_done,
                                       .ctx = r };
    pl_timer_stop(&r->limit);
    r->errand = pl_errand_start(&o, &err);
    if (r->errand != NULL) return;
    refuse(r, UNREADABLE, NULL);
    finish(r);
}

/* The record's thread will come back with its copy, and until then it has the reading. */
static void on_late(struct pl_timer *t) {
    refuse(PL_TIMER_OWNER(t, struct pl_reading, limit), SLOW, SHORTER);
}

/* On the loop: the record's thread has left its copy. */
static void on_copied(uv_async_t *async) {
    struct pl_reading *r = async->data;
    if (r->copy != -1 && r->conn != NULL) {
        start(r);
        return;
    }
    refuse(r, UNREADABLE, NULL);
    finish(r);
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
    *r = (struct pl_reading){ .next = a->readings, .admin = a, .conn = c, .copy = -1 };
    a->readings = r;
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
    if (file[0] != '\0') {
        start(r);
        return;
    }
    pl_timer_start(a->o.timers, &r->limit, LIMIT_MS, on_late);
    pl_record_copy(a->o.app->record, take_copy, r);
}

void pl_records_gone(struct pl_admin *a, struct pl_conn *c) {
    for (struct pl_reading *r = a->readings, *next; r != NULL; r = next) {
        next = r->next;
        if (r->conn != c) continue;
        r->conn = NULL;
        if (r->errand == NULL) continue; /* the record's thread comes back with its copy */
        pl_errand_drop(r->errand);
        r->errand = NULL;
        finish(r);
    }
}
