/* snapshot/report.h - what a person on call asks of a snapshot, for one device: who holds how much, since
 * when, what grew, what was there when memory ran out. Numbers only; snapshot_*.c of the room cli write them.
 * Arrays are owned by the report.
 */
#ifndef PL_SNAPSHOT_REPORT_H
#define PL_SNAPSHOT_REPORT_H
#include "snapshot/lives.h"
#include "snapshot/measure.h"
#include "snapshot/replay.h"

enum { PL_REPORT_POINTS = 600, PL_REPORT_QUARTERS = 4, PL_REPORT_TAG_BYTES = 120 };

struct pl_report_share { /* of a pool, stream, stack or tag */
    uint32_t key;        /* index in the snapshot; PL_SNAP_NONE: has none */
    uint64_t bytes, blocks;
};
struct pl_report_part { /* of the segments */
    uint32_t key;
    struct pl_snap_sums sums;
};
struct pl_report_growth {
    uint32_t stack;
    uint64_t bytes[PL_REPORT_QUARTERS]; /* live at 25, 50, 75, 100 % of the trace */
};
struct pl_report_since {
    uint32_t stack; /* PL_SNAP_NONE: blocks without one */
    uint64_t before, now;
};
struct pl_report_point { /* the most within a stretch of events */
    uint32_t event;
    uint64_t time_us, reserved, allocated;
};
/* Words for why: by the numbers just before. */
enum pl_report_why { PL_WHY_LIMIT, PL_WHY_FRAGMENTATION, PL_WHY_PARTLY, PL_WHY_SHORTAGE };
struct pl_report_oom {
    uint32_t event, stack, tag;
    uint64_t time_us, request, device_free, reserved, allocated;
    bool known; /* the model is believed: the next three are filled in */
    uint64_t cached, largest_free, releasable;
    enum pl_report_why why;
};
struct pl_report {
    uint32_t device;
    struct pl_snap_sums sums;
    struct pl_snap_lives lives;
    struct pl_report_part *pools, *streams; /* most reserved first */
    size_t pool_count, stream_count;
    struct pl_snap_pinned *stuck;
    size_t stuck_count;
    struct pl_report_share *holders, *tags, *peak_holders; /* most bytes first */
    size_t holder_count, tag_count, peak_holder_count;
    struct pl_report_growth *growth; /* only stacks that rise at every quarter, most first */
    size_t growth_count;
    struct pl_report_since *since;
    size_t since_count;
    uint64_t since_before, since_now; /* live bytes of both files */
    bool has_since, since_stacks;     /* both have stacks to compare */
    struct pl_report_point points[PL_REPORT_POINTS];
    size_t point_count;
    uint64_t peak_reserved, peak_allocated;
    uint32_t peak_event; /* of allocated; PL_SNAP_NONE: no trace */
    struct pl_report_oom *ooms;
    size_t oom_count;
    bool oom_trusted;
};
struct pl_report_options {
    size_t top;                  /* rows of each list */
    uint64_t capacity, other;    /* 0 = not known */
    double fraction;             /* 1 = none */
    int order;                   /* PL_REPLAY_ORDER_* */
    const struct pl_snap *since; /* or NULL; borrowed for the call */
};
bool pl_report_make(const struct pl_snap *s, uint32_t device, const struct pl_report_options *o,
                    struct pl_report *out, struct pl_err *err);
void pl_report_free(struct pl_report *r);
/* "endpoint|bucket|request" without the request, which is another one each time. */
size_t pl_report_tag_len(const char *tag, size_t len);
#endif
