/* snapshot/measure.h - numbers of the final state: what is held, what could go back to the driver, what
 * cannot.
 *
 * reserved = allocated + pending + free; gap = reserved - allocated = releasable + stuck + pending.
 * releasable: what empty_cache() would give back: free blocks that are their whole segment, and in expandable
 * segments the whole free pages (2 MiB in a small pool, large_segment_size in a large one); only in the
 * default pool, because a private pool keeps its memory until it dies. stuck: the other free bytes. rounding:
 * size - requested of blocks in use.
 */
#ifndef PL_SNAPSHOT_MEASURE_H
#define PL_SNAPSHOT_MEASURE_H
#include "snapshot/snapshot.h"

struct pl_snap_sums {
    uint64_t reserved, allocated, active, requested;
    uint64_t rounding, pending, free, inactive_split, releasable, stuck, largest_free;
    uint64_t segments, expandable_segments, blocks, live_blocks;
};
/* Adds one segment. `large_page` as of pl_snap_large_page(). */
void pl_snap_measure(const struct pl_snap *s, const struct pl_snap_segment *g, uint64_t large_page,
                     struct pl_snap_sums *sums);
/* Of one device, or of all (UINT32_MAX). */
struct pl_snap_sums pl_snap_measure_device(const struct pl_snap *s, uint32_t device);
uint64_t pl_snap_large_page(const struct pl_snap *s); /* large_segment_size of the settings, 20 MiB */

/* Free bytes of the segment that cannot go back, and the live block that stands in the way of most of them.
 */
struct pl_snap_pinned {
    uint32_t segment;
    uint64_t stuck;
    uint32_t block; /* the largest live one; PL_SNAP_NONE: only private pools */
};
/* The `most` segments with the most stuck bytes, most first. Returns how many were written. */
size_t pl_snap_most_stuck(const struct pl_snap *s, uint32_t device, struct pl_snap_pinned *out, size_t most);
#endif
