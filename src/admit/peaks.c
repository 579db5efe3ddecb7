#include "admit/peaks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OCTAVE = 2, LARGEST_SHIFT = 41 };

/* --- one cell */

static uint64_t own_of(uint64_t total, uint32_t requests, uint64_t shared) {
    return requests > 0 && total > shared ? (total - shared) / requests : 0;
}

/* Bytes of each request, by the larger of its two windows; 0: nothing is known. */
static uint64_t cell_value(const struct pl_peak *c, uint64_t shared) {
    uint64_t a = own_of(c->total[0], c->requests[0], shared), b = own_of(c->total[1], c->requests[1], shared);
    return a > b ? a : b;
}

static bool cell_known(const struct pl_peak *c) { return c->requests[0] != 0 || c->requests[1] != 0; }

/* False: its value is as it was. */
static bool cell_add(struct pl_peak *c, const struct pl_peak_lesson *l, uint64_t shared) {
    if (c->count >= PL_PEAKS_WINDOW) {
        c->total[1] = c->total[0];
        c->requests[1] = c->requests[0];
        c->requests[0] = 0;
        c->count = 0;
    }
    c->count++;
    if (c->requests[0] != 0 &&
        own_of(l->peak, l->requests, shared) <= own_of(c->total[0], c->requests[0], shared))
        return false;
    c->total[0] = l->peak;
    c->requests[0] = l->requests;
    return true;
}

/* --- sizes */

/* Bytes that cell i stands for: its upper end. */
static double cell_bytes(unsigned i) { return exp2((double)i / OCTAVE); }

static unsigned cell_of(uint64_t bytes) {
    if (bytes == 0) return 0;
    if (bytes >> LARGEST_SHIFT != 0) return PL_PEAKS_SIZES - 1;
    double at = ceil(log2((double)bytes) * OCTAVE);
    unsigned i = at < 1 ? 1 : (unsigned)at;
    return i < PL_PEAKS_SIZES ? i : PL_PEAKS_SIZES - 1;
}

/* --- batches */

static unsigned batch_of(uint32_t requests) {
    unsigned k = 0;
    for (uint32_t most = 1; k < PL_PEAKS_BATCHES - 1 && requests > most; k++) most *= 2;
    return k;
}

struct point {
    double n, total;
};

static bool batch_point(const struct pl_peak *c, struct point *out) {
    int i = c->total[1] > c->total[0] && c->requests[1] != 0 ? 1 : 0;
    if (c->requests[i] == 0) return false;
    *out = (struct point){ c->requests[i], (double)c->total[i] };
    return true;
}

static uint64_t shared_of(const struct pl_peaks_route *r) {
    struct point p, first = { 0 }, last = { 0 };
    for (unsigned k = 0; k < PL_PEAKS_BATCHES; k++) {
        if (!batch_point(&r->batch[k], &p)) continue;
        if (first.n == 0) first = p;
        last = p;
    }
    if (last.n <= first.n) return 0;
    double own = last.total > first.total ? (last.total - first.total) / (last.n - first.n) : 0, shared = 0;
    for (unsigned k = 0; k < PL_PEAKS_BATCHES; k++)
        if (batch_point(&r->batch[k], &p) && p.total - own * p.n > shared) shared = p.total - own * p.n;
    return (uint64_t)shared;
}

void pl_peaks_settle(struct pl_peaks_route *r) {
    r->shared = shared_of(r);
    r->most_known = false;
}

/* --- routes */

static size_t cut(size_t len) { return len < PL_PEAKS_PATH - 1 ? len : PL_PEAKS_PATH - 1; }

static bool is_path(const struct pl_peaks_route *r, const char *path, size_t len) {
    return strncmp(r->path, path, cut(len)) == 0 && r->path[cut(len)] == '\0';
}

struct pl_peaks_route *pl_peaks_route(const struct pl_peaks *p, const char *path, size_t len) {
    for (uint32_t i = 0; i < p->count; i++)
        if (is_path(&p->at[i], path, len)) return &p->at[i];
    return p->count == PL_PEAKS_ROUTES ? &p->at[PL_PEAKS_ROUTES - 1] : NULL;
}

struct pl_peaks_route *pl_peaks_add(struct pl_peaks *p, const char *path, size_t len) {
    struct pl_peaks_route *r = pl_peaks_route(p, path, len);
    if (r != NULL) return r;
    if (p->at == NULL) p->at = calloc(PL_PEAKS_ROUTES, sizeof *p->at);
    if (p->at == NULL) return NULL;
    r = &p->at[p->count++];
    memcpy(r->path, path, cut(len));
    return r;
}

bool pl_peaks_learn(struct pl_peaks *p, const char *path, size_t len, const struct pl_peak_lesson *lesson) {
    if (lesson->peak > PL_PEAKS_MOST || lesson->requests == 0) return false;
    struct pl_peaks_route *r = pl_peaks_add(p, path, len);
    if (r == NULL) return false;
    r->seen++;
    r->tries = 0;
    bool batch = cell_add(&r->batch[batch_of(lesson->requests)], lesson, 0);
    if (batch) pl_peaks_settle(r);
    if (cell_add(&r->size[cell_of(lesson->bytes)], lesson, r->shared)) r->most_known = false;
    return true;
}

static uint64_t largest_of(struct pl_peaks_route *r) {
    if (r->most_known) return r->most;
    r->most = 0;
    for (unsigned i = 0; i < PL_PEAKS_SIZES; i++) {
        uint64_t v = cell_value(&r->size[i], r->shared);
        if (v > r->most) r->most = v;
    }
    r->most_known = true;
    return r->most;
}

/* Between its neighbours by bytes; false: too far above the largest. */
static bool from_neighbours(const struct pl_peaks_route *r, unsigned i, uint64_t *out) {
    unsigned below = i, above = i;
    while (below > 0 && !cell_known(&r->size[below])) below--;
    while (above < PL_PEAKS_SIZES && !cell_known(&r->size[above])) above++;
    double low = (double)cell_value(&r->size[below], r->shared);
    if (above == PL_PEAKS_SIZES) {
        if (below == 0 || i - below > OCTAVE) return false;
        *out = (uint64_t)(low * cell_bytes(i) / cell_bytes(below));
        return true;
    }
    double high = (double)cell_value(&r->size[above], r->shared);
    if (below > 0) {
        double share = (cell_bytes(i) - cell_bytes(below)) / (cell_bytes(above) - cell_bytes(below));
        high = low + (high - low) * share;
    }
    *out = (uint64_t)high;
    return true;
}

bool pl_peaks_of(const struct pl_peaks *p, const char *path, size_t len, uint64_t bytes, uint64_t *out) {
    struct pl_peaks_route *r = pl_peaks_route(p, path, len);
    unsigned i = cell_of(bytes);
    *out = 0;
    if (r == NULL || r->seen == 0) return false;
    if (i == 0)
        *out = largest_of(r);
    else if (cell_known(&r->size[i]))
        *out = cell_value(&r->size[i], r->shared);
    else
        return from_neighbours(r, i, out);
    return true;
}

uint64_t pl_peaks_largest(const struct pl_peaks *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint64_t mine = largest_of(&p->at[i]) + p->at[i].shared;
        if (mine > most) most = mine;
    }
    return most;
}

uint64_t pl_peaks_shared(const struct pl_peaks *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (p->at[i].shared > most) most = p->at[i].shared;
    return most;
}

bool pl_peaks_known(const struct pl_peaks *p, const char *path, size_t len) {
    const struct pl_peaks_route *r = pl_peaks_route(p, path, len);
    return r != NULL && r->seen >= PL_PEAKS_KNOWN;
}

bool pl_peaks_may_try(const struct pl_peaks *p, const char *path, size_t len) {
    const struct pl_peaks_route *r = pl_peaks_route(p, path, len);
    return r == NULL || r->tries < PL_PEAKS_TRIES;
}

void pl_peaks_tried(struct pl_peaks *p, const char *path, size_t len) {
    struct pl_peaks_route *r = pl_peaks_add(p, path, len);
    if (r != NULL && r->tries < PL_PEAKS_TRIES) r->tries++;
}

void pl_peaks_free(struct pl_peaks *p) {
    free(p->at);
    *p = (struct pl_peaks){ 0 };
}
