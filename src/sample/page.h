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

/* A block likewise. */
struct pl_page_block_at {
    uint32_t at, stride, count;
};

struct pl_page {
    const uint8_t *at; /* mapped read-only by the caller; NULL: no page */
    size_t bytes;
    bool open; /* the header was understood; before the worker writes it: false, ask again */
    bool bad;  /* the header is not ours: answers UNKNOWN for ever */
    uint32_t counters_at;
    struct pl_page_ring begins, ends;
    struct pl_page_block_at devices, host, engine, tags; /* count 0: the writer is older than they are */
};

struct pl_page_counters {
    uint64_t progress; /* changes whenever the worker does anything */
    uint32_t in_flight, zombies, tasks;
    uint64_t begun, ended, errors;
    /* monotonic ms of the worker's clock (CLOCK_MONOTONIC, the same as ours); 0 = not yet */
    uint64_t imported_ms, loaded_ms, serving_ms;
    uint32_t features; /* bits PL_PAGE_F_* of shm.h */
    uint64_t ooms, untagged;
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

/* An end record, whole. Fields that the writer's version does not have are 0, `tag` PL_NO_TAG. */
struct pl_page_record {
    uint64_t n; /* its number in the ring, from 0 */
    uint64_t id, at_us, duration_us;
    uint32_t flags, outcome; /* enum pl_record_flag, enum pl_outcome */
    uint32_t thread, in_flight, batch;
    uint16_t route, status, tag, device;
    uint64_t allocated_before, allocated, reserved, peak; /* bytes; only with PL_RECORD_MEMORY */
    uint64_t input_bytes, host_anon, begun;
    char error_class[33];
};

struct pl_page_device_now {
    uint32_t index;
    uint64_t sampled_us; /* CLOCK_MONOTONIC, as the worker says */
    uint64_t allocated, reserved, active, peak, inactive_split, total; /* bytes */
    uint64_t retries, ooms;
    char uuid[49];
};

struct pl_page_host_now {
    uint64_t sampled_us, anon, swap, rss, threads, python_blocks, gc_objects;
};

struct pl_page_engine_now {
    uint64_t sampled_us, cells, cells_used, cells_reserved, cells_cached, cells_parked;
    uint64_t weights, compute, output, tokens_in, tokens_out;
    uint64_t kv, preemptions, steps_us, steps[18]; /* 0 from an older writer */
};

enum { PL_PAGE_TAG_ROOM = 97 };

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

/* Copies the end records from number *cursor on, oldest first, at most `room`, and moves the cursor behind
 * the last one it is done with; call it again while it returns `room`. Records that are gone or damaged are
 * skipped and added to *lost. A cursor of 0 begins with the oldest there is. A ring whose counter went
 * backwards is taken up where it stands now. What a record says is the worker's word: times and sizes may be
 * anything. */
size_t pl_page_take_ends(struct pl_page *p, uint64_t *cursor, struct pl_page_record *out, size_t room,
                         uint64_t *lost);
/* How many devices can be asked for; 0 without a page, or from an older writer. */
uint32_t pl_page_devices(struct pl_page *p);
/* False when the device was never sampled. */
bool pl_page_device(struct pl_page *p, uint32_t i, struct pl_page_device_now *out);
bool pl_page_host(struct pl_page *p, struct pl_page_host_now *out);
bool pl_page_engine(struct pl_page *p, struct pl_page_engine_now *out);
/* The text of a tag (see shm.h) as printable UTF-8, other bytes as '?'. False when the entry is not there,
 * not written yet, or damaged. */
bool pl_page_tag(struct pl_page *p, uint32_t i, char text[PL_PAGE_TAG_ROOM]);
#endif
