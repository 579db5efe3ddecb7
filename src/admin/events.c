/* events.c - the events as the log saw them, kept in a ring and followed by those who ask; worker output
 * likewise. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "admin/inside.h"
#include "crew/look.h"
#include "crew/tail.h"

enum { PULSE_MS = 200, FOLLOW_BYTES = 1 << 20 };

struct pl_follower {
    struct pl_follower *next;
    struct pl_conn *conn;
    /* events: a pattern and a level; `sse`: framed for a page */
    bool events, sse;
    char glob[64];
    char service[48]; /* "" = all */
    enum pl_level level;
    /* logs */
    struct pl_service *of;
    uint32_t slot;
    struct pl_tail *tail; /* owned reference */
    uint64_t from;
};

static enum pl_level level_of(const char *text) {
    for (int l = PL_DEBUG; text != NULL && l <= PL_ERROR; l++)
        if (strcmp(text, pl_level_name((enum pl_level)l)) == 0) return (enum pl_level)l;
    return PL_INFO;
}

static bool mentions(const char *line, const char *service) {
    char key[80];
    snprintf(key, sizeof key, "\"service\":\"%s\"", service);
    return service[0] == '\0' || strstr(line, key) != NULL;
}

static bool wanted(const struct pl_follower *f, const struct pl_event *e) {
    return e->level >= f->level && (f->glob[0] == '\0' || fnmatch(f->glob, e->name, 0) == 0) &&
           mentions(e->line, f->service);
}

static void send_event(const struct pl_admin *a, struct pl_conn *c, bool sse, const struct pl_event *e) {
    char head[64];
    if (pl_conn_full(c)) return; /* a follower that does not read misses lines, and holds nothing up */
    if (sse) {
        int n = snprintf(head, sizeof head, "id: %016llx-%llu\ndata: ", (unsigned long long)a->o.app->boot,
                         (unsigned long long)e->number);
        pl_conn_piece(c, head, (size_t)n);
    }
    pl_conn_piece(c, e->line, e->len);
    pl_conn_piece(c, "\n\n", sse ? 2 : 1);
}

/* A page that comes back says what it has seen last: the number of the first event that it lacks. */
static uint64_t first_unseen(const struct pl_admin *a, const struct pl_http_head *h) {
    const struct pl_http_header *f = pl_http_find_named(h, "last-event-id");
    char text[48];
    unsigned long long boot, number;
    if (f == NULL || f->value_len >= sizeof text) return 0;
    memcpy(text, pl_http_at(h, f->value), f->value_len);
    text[f->value_len] = '\0';
    return sscanf(text, "%16llx-%20llu", &boot, &number) == 2 && boot == a->o.app->boot ? number + 1 : 0;
}

void pl_admin_tap(void *ctx, enum pl_level level, const char *event, const char *line, size_t len) {
    struct pl_admin *a = ctx;
    if (strcmp(event, "access") == 0) return; /* the access log is not an event stream */
    struct pl_event *e = &a->events[a->event_count % PL_EVENTS_KEPT];
    free(e->line);
    *e =
        (struct pl_event){ .number = a->event_count, .level = level, .line = strndup(line, len), .len = len };
    if (e->line == NULL) return;
    snprintf(e->name, sizeof e->name, "%s", event);
    a->event_count++;
    for (struct pl_follower *f = a->followers; f != NULL; f = f->next)
        if (f->events && wanted(f, e)) send_event(a, f->conn, f->sse, e);
}

static struct pl_follower *follow(struct pl_admin *a, struct pl_conn *c) {
    struct pl_follower *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->conn = c;
    f->next = a->followers;
    a->followers = f;
    return f;
}

static void drop(struct pl_admin *a, struct pl_follower *f) {
    for (struct pl_follower **at = &a->followers; *at != NULL; at = &(*at)->next) {
        if (*at != f) continue;
        *at = f->next;
        break;
    }
    pl_tail_drop(f->tail);
    free(f);
}

void pl_followers_gone(struct pl_admin *a, struct pl_conn *c) {
    for (struct pl_follower *f = a->followers, *next; f != NULL; f = next) {
        next = f->next;
        if (f->conn == c) drop(a, f);
    }
}

void pl_followers_end(struct pl_admin *a) {
    while (a->followers != NULL) {
        struct pl_conn *c = a->followers->conn;
        drop(a, a->followers);
        pl_conn_finish(c);
    }
}

void pl_events_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t) {
    const char *glob = pl_http_query_get(t, "event"), *service = pl_http_query_get(t, "service");
    const char *go_on = pl_http_query_get(t, "follow");
    struct pl_follower filter = { .level = level_of(pl_http_query_get(t, "level")) };
    snprintf(filter.glob, sizeof filter.glob, "%s", glob != NULL ? glob : "");
    snprintf(filter.service, sizeof filter.service, "%s", service != NULL ? service : "");
    const struct pl_http_head *h = pl_conn_head(c);
    const struct pl_http_header *accept = pl_http_find_named(h, "accept");
    filter.sse = accept != NULL && memmem(pl_http_at(h, accept->value), accept->value_len,
                                          "text/event-stream", strlen("text/event-stream")) != NULL;
    uint64_t from = a->event_count > PL_EVENTS_KEPT ? a->event_count - PL_EVENTS_KEPT : 0;
    uint64_t unseen = filter.sse ? first_unseen(a, h) : 0;
    if (unseen > from) from = unseen;
    if (!pl_conn_start(c, 200, filter.sse ? "text/event-stream" : "application/x-ndjson",
                       "Cache-Control: no-store\r\n"))
        return;
    for (uint64_t i = from; i < a->event_count; i++) {
        const struct pl_event *e = &a->events[i % PL_EVENTS_KEPT];
        if (e->line != NULL && wanted(&filter, e)) send_event(a, c, filter.sse, e);
    }
    struct pl_follower *f = go_on != NULL && strcmp(go_on, "1") == 0 ? follow(a, c) : NULL;
    if (f == NULL) {
        pl_conn_finish(c);
        return;
    }
    f->events = true;
    f->sse = filter.sse;
    memcpy(f->glob, filter.glob, sizeof f->glob);
    memcpy(f->service, filter.service, sizeof f->service);
    f->level = filter.level;
}

/* --- worker output */

static void on_pulse(struct pl_timer *timer) {
    struct pl_admin *a = PL_TIMER_OWNER(timer, struct pl_admin, pulse);
    struct pl_buf text;
    bool any = false;
    pl_buf_init(&text, FOLLOW_BYTES);
    for (struct pl_follower *f = a->followers; f != NULL; f = f->next) {
        if (f->events) continue;
        any = true;
        if (pl_conn_full(f->conn)) continue;
        text.len = 0;
        if (f->tail != NULL) f->from = pl_tail_since(f->tail, f->from, &text);
        struct pl_tail *now = pl_look_tail(f->of, f->slot, false);
        if (now != f->tail) { /* the next generation speaks */
            pl_tail_drop(f->tail);
            f->tail = pl_tail_ref(now);
            f->from = now != NULL ? pl_tail_since(now, 0, &text) : 0;
        }
        if (text.len > 0) pl_conn_piece(f->conn, text.data, text.len);
    }
    pl_buf_free(&text);
    if (any) pl_timer_start(a->o.timers, &a->pulse, PULSE_MS, on_pulse);
}

void pl_logs_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t,
                    const char *service) {
    struct pl_service *s = pl_crew_find(a->o.crew, service, strlen(service));
    const char *slot = pl_http_query_get(t, "worker"), *lines = pl_http_query_get(t, "tail");
    const char *previous = pl_http_query_get(t, "previous"), *go_on = pl_http_query_get(t, "follow");
    const char *since = pl_http_query_get(t, "since_ms");
    if (s == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
        return;
    }
    uint32_t number = slot != NULL ? (uint32_t)strtoul(slot, NULL, 10) : 0;
    struct pl_tail *tail = pl_look_tail(s, number, previous != NULL && strcmp(previous, "1") == 0);
    if (tail == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such log: nothing was printed yet", NULL);
        return;
    }
    if (!pl_conn_start(c, 200, "text/plain; charset=utf-8", NULL)) return;
    struct pl_buf text;
    pl_buf_init(&text, (size_t)64 << 20);
    uint32_t most = lines != NULL ? (uint32_t)strtoul(lines, NULL, 10) : UINT32_MAX;
    pl_tail_text(tail, most, since != NULL ? strtoull(since, NULL, 10) : 0, &text);
    if (text.len > 0) pl_conn_piece(c, text.data, text.len);
    pl_buf_free(&text);
    struct pl_follower *f = go_on != NULL && strcmp(go_on, "1") == 0 ? follow(a, c) : NULL;
    if (f == NULL) {
        pl_conn_finish(c);
        return;
    }
    f->of = s;
    f->slot = number;
    f->tail = pl_tail_ref(tail);
    f->from = pl_tail_count(tail);
    if (!pl_timer_running(&a->pulse)) pl_timer_start(a->o.timers, &a->pulse, PULSE_MS, on_pulse);
}
