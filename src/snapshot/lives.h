/* snapshot/lives.h - one row for each allocation of a trace: when it began, when it was given back, when it
 * was really free.
 *
 * A ring that wrapped begins in the middle: what was live before the first event (L0) is the final blocks,
 * walked back. A file whose free_completed (or free_requested) events were left out (skip_actions) is read as
 * if both came together. Event numbers count from the begin of the device's trace.
 */
#ifndef PL_SNAPSHOT_LIVES_H
#define PL_SNAPSHOT_LIVES_H
#include "base/err.h"
#include "snapshot/snapshot.h"

struct pl_snap_life {
    uint64_t addr, size; /* size as requested; of L0 the block's where only that is known */
    uint32_t born, freed,
        completed; /* events; born NONE: before the trace; freed, completed NONE: still there at the end */
    uint32_t stack, tag, stream;
    uint16_t pool;
};
struct pl_snap_lives {
    struct pl_snap_trace trace;
    uint32_t device;
    struct pl_snap_life *at; /* L0 first, in ascending address order */
    size_t count, before;    /* of them L0 */
    uint64_t before_bytes;
    uint32_t *of;         /* per event: its life, PL_SNAP_NONE */
    size_t unknown_frees; /* free_requested of what nobody allocated */
    size_t counts[PL_SNAP_ACTION_COUNT];
};
bool pl_snap_lives_make(const struct pl_snap *s, uint32_t device, struct pl_snap_lives *out,
                        struct pl_err *err);
void pl_snap_lives_free(struct pl_snap_lives *l);
/* The trace begins in the middle of a history. */
bool pl_snap_lives_wrapped(const struct pl_snap_lives *l);
#endif
