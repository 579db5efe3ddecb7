#include "ledger/floor.h"

static double least(double a, double b) { return b < a ? b : a; }

static void merge(struct pl_floor *f) {
    uint32_t pairs = f->count / 2;
    bool odd = f->count % 2 == 1;
    double left = odd ? f->at[f->count - 1] : 0;
    for (uint32_t i = 0; i < pairs; i++) f->at[i] = least(f->at[2 * i], f->at[2 * i + 1]);
    if (odd) { /* the odd one goes back into the open bucket */
        f->open = f->filled == 0 ? left : least(f->open, left);
        f->filled += f->width;
    }
    f->count = pairs;
    f->width *= 2;
}

static void close_full(struct pl_floor *f) {
    if (f->filled < f->width) return;
    f->at[f->count++] = f->open;
    f->filled -= f->width;
    if (f->count == PL_FLOOR_BUCKETS) merge(f);
}

void pl_floor_add(struct pl_floor *f, double bytes, uint64_t requests) {
    if (requests == 0) requests = 1;
    if (f->width == 0) f->width = PL_FLOOR_FIRST_WIDTH;
    while (requests > f->width && f->width < UINT64_MAX / 4) {
        merge(f);
        close_full(f);
    }
    f->open = f->filled == 0 ? bytes : least(f->open, bytes);
    f->filled += requests;
    close_full(f);
    if (f->filled > 0 && f->filled < requests) f->open = bytes; /* it reaches into the next bucket */
}

uint64_t pl_floor_requests(const struct pl_floor *f) { return f->count * f->width; }

double pl_floor_last(const struct pl_floor *f) {
    if (f->count > 0) return f->at[f->count - 1];
    return f->filled > 0 ? f->open : 0;
}
