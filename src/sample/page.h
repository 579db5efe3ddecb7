/* sample/page.h - reads a worker's page (include/plimsoll/shm.h) as foreign bytes.
 *
 * Sizes are checked once at open, indices masked, text bounded; a record is copied out and accepted only when
 * its sequence did not move and its CRC agrees, in a bounded number of tries. A lying page can only lie about
 * its own worker.
 */
#ifndef PL_SAMPLE_PAGE_H
#define PL_SAMPLE_PAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A ring as it was found at open; never read from the page again. */
struct pl_page_ring {
    uint32_t at, stride;
    uint32_t mask; /* slots - 1 */
};

struct pl_page {
    const uint8_t *at; /* mapped read-only by the caller; NULL: no page */
    size_t bytes;
    bool open; /* the header was understood; before the worker writes it: false, ask again */
    bool bad;  /* the header is not ours: answers UNKNOWN for ever */
    uint32_t counters_at;
    struct pl_page_ring begins, ends;
};

struct pl_page_counters {
    uint64_t progress; /* changes whenever the worker does anything */
    uint32_t in_flight, zombies, tasks;
    uint64_t begun, ended, errors;
    /* monotonic ms of the worker's clock (CLOCK_MONOTONIC, the same as ours); 0 = not yet */
    uint64_t imported_ms, loaded_ms, serving_ms;
    uint32_t features; /* bits PL_PAGE_F_* of shm.h */
};

enum pl_page_seen {
    PL_SEEN_NO,
    PL_SEEN_YES,
    PL_SEEN_UNKNOWN /* no page, unreadable, or the ring has lapped */
};

struct pl_page_end {
    uint64_t id, duration_us;
    uint32_t outcome; /* enum of shm.h: ok, client error, error, cancelled */
    char error_class[33];
};

/* Makes a page from mapped memory; understands the header if it is there already. Zeros are "not yet", never
 * an error. Wrong magic, major, or sizes: false with err, and the page answers UNKNOWN to everything. */
bool pl_page_open(struct pl_page *p, const void *at, size_t bytes, struct pl_err *err);
/* False when there is nothing to read: no page, not written yet, not ours, or its memory was taken away. */
bool pl_page_counters(struct pl_page *p, struct pl_page_counters *out);
/* Did a handler begin (end) for this request? NO is a promise: the ring has not lapped since `since_begun`
 * (the value of counters.begun (ended) when the request was sent), and no record has this id. A request that
 * never reached a handler gets an end record too, once the worker is done with it. */
enum pl_page_seen pl_page_began(struct pl_page *p, uint64_t id, uint64_t since_begun);
enum pl_page_seen pl_page_ended(struct pl_page *p, uint64_t id, uint64_t since_ended,
                                struct pl_page_end *out);
#endif
