/* ledger/floor.h - the floor of a counter: its minimum over each of 24 to 64 buckets of consecutive requests.
 *
 * The minimum is what stays when requests in flight come and go. When all 64 buckets are full, neighbours
 * merge and the width doubles: the whole history since the warm-up in constant memory.
 */
#ifndef PL_LEDGER_FLOOR_H
#define PL_LEDGER_FLOOR_H
#include <stdbool.h>
#include <stdint.h>

enum { PL_FLOOR_BUCKETS = 64, PL_FLOOR_FIRST_WIDTH = 8 };

/* Zero it before the first use. Values are bytes. */
struct pl_floor {
    double at[PL_FLOOR_BUCKETS]; /* minima, oldest first */
    double open;                 /* of the bucket that is being filled */
    uint64_t width;              /* requests of a bucket; 0: nothing came yet */
    uint64_t filled;             /* of the open bucket */
    uint32_t count;              /* closed buckets */
};

/* One sample that stands for `requests` of them (>= 1). A series that is sampled rarely gets buckets that
 * hold at least one sample: a jump wider than a bucket widens all of them. */
void pl_floor_add(struct pl_floor *f, double bytes, uint64_t requests);
/* Requests in the closed buckets. */
uint64_t pl_floor_requests(const struct pl_floor *f);
/* The last closed bucket, or the open one when there is none; 0 before the first sample. */
double pl_floor_last(const struct pl_floor *f);
#endif
