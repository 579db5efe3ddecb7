/* admit/peaks.h - what a request will add to a worker's memory, learnt from those that have ended: by route,
 * by the size of its body, by how many were answered together.
 *
 * A record teaches when its peak was its own: peak less what was there before. Of a batch all requests share
 * one peak, total(n) = shared + n * own: a line through the largest totals of small and large batches, laid
 * so that no total lies above it. Each request is charged `own`, and `shared` is kept back once a worker, so
 * that a batch that fits may fill. Kept are the largest of the latest PL_PEAKS_WINDOW to twice as many
 * records, so what happened once is forgotten. Sizes lie in half octaves; between two that are known it is a
 * straight line (by bytes), below the smallest the smallest, above the largest in proportion, for one octave.
 * Pure.
 */
#ifndef PL_ADMIT_PEAKS_H
#define PL_ADMIT_PEAKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_PEAKS_ROUTES = 32, /* of one service; the last one stands for the rest */
    PL_PEAKS_PATH = 96,
    PL_PEAKS_SIZES = 84, /* 0: size unknown, then half octaves */
    PL_PEAKS_BATCHES = 12,
    PL_PEAKS_WINDOW = 256,
    PL_PEAKS_KNOWN = 8, /* records after which a route's figures are trusted */
    PL_PEAKS_TRIES = 3, /* that ran alone and taught nothing: it is not tried again */
};
#define PL_PEAKS_MOST (1ull << 50)

/* The largest of a window and of the one before it. `total` bytes for `requests` together. */
struct pl_peak {
    uint64_t total[2];
    uint32_t requests[2];
    uint32_t count;
};
struct pl_peaks_route {
    char path[PL_PEAKS_PATH];
    uint64_t seen;   /* records that taught */
    uint64_t shared; /* bytes of a batch that do not grow with it */
    uint64_t most;   /* the largest of `size`, while `most_known`: every request of the service asks for it */
    bool most_known;
    uint32_t tries; /* see PL_PEAKS_TRIES */
    struct pl_peak size[PL_PEAKS_SIZES];
    struct pl_peak batch[PL_PEAKS_BATCHES]; /* by requests: 1, 2, 3-4, 5-8, ... */
};
struct pl_peaks {
    struct pl_peaks_route *at; /* owned, room for PL_PEAKS_ROUTES; NULL: nothing is known */
    uint32_t count;
};

/* Requests that ended together, or one. */
struct pl_peak_lesson {
    uint64_t bytes;    /* body of one of them, their mean; 0: not known */
    uint64_t peak;     /* above what was there before they began */
    uint32_t requests; /* 1: no batch */
};

/* False: it cannot be, or there is no memory. A path that is new is added. */
bool pl_peaks_learn(struct pl_peaks *p, const char *path, size_t len, const struct pl_peak_lesson *lesson);
/* Bytes that a request adds. False: nothing is known about one of this size on this route. `bytes` 0: not
 * known, the largest of the route. */
bool pl_peaks_of(const struct pl_peaks *p, const char *path, size_t len, uint64_t bytes, uint64_t *out);
/* The largest that is known of any route; 0: nothing is. */
uint64_t pl_peaks_largest(const struct pl_peaks *p);
/* To be kept back for each worker: the largest `shared`. */
uint64_t pl_peaks_shared(const struct pl_peaks *p);
/* Its figures are trusted. */
bool pl_peaks_known(const struct pl_peaks *p, const char *path, size_t len);
/* May one run alone to teach what it needs? */
bool pl_peaks_may_try(const struct pl_peaks *p, const char *path, size_t len);
void pl_peaks_tried(struct pl_peaks *p, const char *path, size_t len); /* it did, and taught nothing */
struct pl_peaks_route *pl_peaks_route(const struct pl_peaks *p, const char *path, size_t len); /* or NULL */
struct pl_peaks_route *pl_peaks_add(struct pl_peaks *p, const char *path, size_t len);
void pl_peaks_settle(struct pl_peaks_route *r); /* after its batches were restored: the line anew */
void pl_peaks_free(struct pl_peaks *p);
#endif
