/* output.c - what workers print, from the keeper's rings to our stdout, line by line and byte for byte. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "crew/more.h"
#include "crew/tail.h"

/* A chunk of empty lines grows about a hundredfold in the JSON form, and must still fit into the log's ring.
 */
enum { CHUNK = 4096, TURNS = 128, LAST_WAIT_MS = 10000 };

static struct pl_tail *tail_of(struct pl_worker *w) {
    if (w->more->tail == NULL)
        w->more->tail = pl_tail_create((uint32_t)w->service->crew->app->config->logs_tail);
    return w->more->tail;
}

static void print_json(struct pl_worker *w, const char *line, size_t len, uint64_t now_ms,
                       struct pl_buf *out) {
    char ts[PL_TIME_TEXT];
    pl_time_rfc3339(now_ms, ts);
    pl_buf_addf(out, "{\"ts\":\"%s\",\"service\":\"%s\",\"worker\":%u,\"generation\":%llu,\"line\":", ts,
                w->service->config->id, w->slot, (unsigned long long)w->generation);
    pl_buf_add_json(out, line, len);
    pl_buf_add(out, "}\n", 2);
}

/* One line without its newline. `whole`: it had one (a piece of a longer line has not). */
static void put_line(struct pl_worker *w, const char *line, size_t len, struct pl_buf *out) {
    const struct pl_config *c = w->service->crew->app->config;
    struct pl_tail *tail = tail_of(w), **all = &w->service->more->tail;
    uint64_t now_ms = pl_wall_ms(w->service->crew->app->clock);
    pl_words_read(w, line, len);
    if (tail != NULL) pl_tail_add(tail, line, len, now_ms);
    if (*all == NULL) *all = pl_tail_create((uint32_t)c->logs_tail);
    if (*all != NULL) pl_tail_add(*all, line, len, now_ms);
    switch (c->logs_workers) {
    case PL_CFG_LOGS_WORKERS_JSON:
        print_json(w, line, len, now_ms, out);
        return;
    case PL_CFG_LOGS_WORKERS_PREFIX:
        pl_buf_addf(out, "%s/%u.%llu | ", w->service->config->id, w->slot, (unsigned long long)w->generation);
        break;
    default:
        break;
    }
    pl_buf_add(out, line, len);
    pl_buf_add(out, "\n", 1);
}

static void take(struct pl_worker *w, const char *bytes, size_t count, struct pl_buf *out) {
    struct pl_buf *partial = &w->more->partial;
    while (count > 0) {
        const char *end = memchr(bytes, '\n', count);
        size_t len = end != NULL ? (size_t)(end - bytes) : count;
        size_t room = PL_CREW_LINE_BYTES - partial->len;
        if (end == NULL && len < room) {
            pl_buf_add(partial, bytes, len);
            return;
        }
        size_t part = len > room ? room : len;
        if (partial->len > 0) {
            pl_buf_add(partial, bytes, part);
            put_line(w, partial->data, partial->len, out);
            partial->len = 0;
        } else {
            put_line(w, bytes, part, out);
        }
        bytes += part;
        count -= part;
        if (part == len && end != NULL) {
            bytes++;
            count--;
        }
    }
}

static void count(struct pl_worker *w, uint64_t bytes) {
    struct pl_worker_more *o = w->more;
    struct pl_metrics *m = w->service->crew->app->metrics;
    uint64_t lost = atomic_load_explicit(&o->ring.head->lost, memory_order_relaxed);
    o->log_bytes += bytes;
    pl_series_add(pl_series(m, PL_M_WORKER_LOG_BYTES_TOTAL, w->service->config->id, pl_worker_label(w)),
                  (double)bytes);
    if (lost > o->log_lost)
        pl_series_add(
            pl_series(m, PL_M_WORKER_LOG_BYTES_DROPPED_TOTAL, w->service->config->id, pl_worker_label(w)),
            (double)(lost - o->log_lost));
    o->log_lost = lost;
}

/* False: the log has no room. What was to be written waits in `unsent`, the rest in the keeper's ring. Seen
 * is what has been written, up to the end of a line: what a main that is killed had in hand, the next one
 * tells. */
static bool hand_on(struct pl_worker *w) {
    struct pl_logger *log = w->service->crew->app->log;
    struct pl_ring *ring = &w->more->ring;
    struct pl_buf *out = &w->more->unsent;
    if (out->len == 0) return true;
    if (!pl_log_raw(log, out->data, out->len)) return false;
    out->len = 0;
    pl_log_raw_mark(log, &ring->head->seen, ring->place - w->more->partial.len);
    return true;
}

void pl_output_read(struct pl_worker *w) {
    static char chunk[CHUNK];
    if (w->more->ring.head == NULL || w->service->crew->resting) return;
    for (int turn = 0; turn < TURNS && hand_on(w); turn++) {
        size_t n = pl_ring_peek(&w->more->ring, chunk, sizeof chunk);
        if (n == 0) break;
        take(w, chunk, n, &w->more->unsent);
        count(w, n);
    }
}

bool pl_output_written(struct pl_worker *w) {
    struct pl_ring *ring = &w->more->ring;
    if (ring->head == NULL || w->more->let_go) return true;
    return hand_on(w) &&
           atomic_load_explicit(&ring->head->seen, memory_order_acquire) + w->more->partial.len >=
               ring->place;
}

bool pl_output_done(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    if (o->ring.head == NULL) return true;
    pl_output_read(w);
    uint64_t head = atomic_load_explicit(&o->ring.head->head, memory_order_acquire);
    bool empty = o->unsent.len == 0 && head == o->ring.place;
    if (empty && o->partial.len > 0) {
        put_line(w, o->partial.data, o->partial.len, &o->unsent);
        o->partial.len = 0;
        hand_on(w);
    }
    bool written = head == atomic_load_explicit(&o->ring.head->seen, memory_order_acquire);
    return (empty && written) || pl_crew_now(w->service->crew) - o->gone_ms > LAST_WAIT_MS;
}

void pl_output_free(struct pl_worker *w) {
    if (w->more->ring.head != NULL) pl_log_raw_forget(w->service->crew->app->log, &w->more->ring.head->seen);
    pl_ring_close(&w->more->ring);
    pl_buf_free(&w->more->partial);
    pl_buf_free(&w->more->unsent);
    struct pl_service_more *s = w->service->more;
    if (w->more->tail != NULL) {
        pl_tail_drop(s->previous_tail);
        s->previous_tail = w->more->tail;
        w->more->tail = NULL;
    }
}
