#include "snapshot/measure.h"

#include <string.h>

#include "snapshot/conf.h"

static const uint64_t SMALL_PAGE = UINT64_C(2) << 20;

uint64_t pl_snap_large_page(const struct pl_snap *s) {
    struct pl_alloc_conf conf;
    pl_alloc_conf_recorded(s, &conf);
    return conf.large_segment;
}

/* Whole pages inside a free block; a segment in the file begins at a page. */
static uint64_t whole_pages(uint64_t offset, uint64_t size, uint64_t page) {
    uint64_t begin = (offset + page - 1) / page, end = (offset + size) / page;
    return end > begin ? (end - begin) * page : 0;
}

static uint64_t releasable(const struct pl_snap_segment *g, const struct pl_snap_block *b, uint64_t offset,
                           uint64_t large_page) {
    if (g->pool != 0) return 0;
    if (g->expandable) return whole_pages(offset, b->size, g->small ? SMALL_PAGE : large_page);
    return b->size == g->total ? b->size : 0;
}

void pl_snap_measure(const struct pl_snap *s, const struct pl_snap_segment *g, uint64_t large_page,
                     struct pl_snap_sums *sums) {
    uint64_t offset = 0;
    sums->segments++;
    sums->expandable_segments += g->expandable;
    sums->reserved += g->total;
    sums->requested += g->requested;
    for (uint32_t i = 0; i < g->block_count; i++) {
        const struct pl_snap_block *b = &s->blocks[g->first_block + i];
        sums->blocks++;
        if (b->state == PL_SNAP_INACTIVE) {
            uint64_t back = releasable(g, b, offset, large_page);
            sums->free += b->size;
            sums->releasable += back;
            sums->stuck += b->size - back;
            if (!g->expandable && b->size < g->total) sums->inactive_split += b->size;
            if (b->size > sums->largest_free) sums->largest_free = b->size;
        } else {
            sums->live_blocks++;
            sums->active += b->size;
            if (b->state == PL_SNAP_PENDING)
                sums->pending += b->size;
            else
                sums->allocated += b->size;
            if (b->requested > 0 && b->requested < b->size) sums->rounding += b->size - b->requested;
        }
        offset += b->size;
    }
}

struct pl_snap_sums pl_snap_measure_device(const struct pl_snap *s, uint32_t device) {
    struct pl_snap_sums sums = { 0 };
    uint64_t page = pl_snap_large_page(s);
    for (size_t i = 0; i < s->segment_count; i++)
        if (device == UINT32_MAX || s->segments[i].device == (int32_t)device)
            pl_snap_measure(s, &s->segments[i], page, &sums);
    return sums;
}

static uint32_t largest_live(const struct pl_snap *s, const struct pl_snap_segment *g) {
    uint32_t best = PL_SNAP_NONE;
    for (uint32_t i = g->first_block; i < g->first_block + g->block_count; i++)
        if (s->blocks[i].state != PL_SNAP_INACTIVE &&
            (best == PL_SNAP_NONE || s->blocks[i].size > s->blocks[best].size))
            best = i;
    return best;
}

size_t pl_snap_most_stuck(const struct pl_snap *s, uint32_t device, struct pl_snap_pinned *out, size_t most) {
    struct pl_snap_trace g = pl_snap_segments_of(s, device);
    uint64_t page = pl_snap_large_page(s);
    size_t count = 0;
    for (uint32_t i = g.first; i < g.first + g.count; i++) {
        struct pl_snap_sums sums = { 0 };
        pl_snap_measure(s, &s->segments[i], page, &sums);
        if (sums.stuck == 0) continue;
        size_t at = count;
        while (at > 0 && out[at - 1].stuck < sums.stuck) at--;
        if (at >= most) continue;
        if (count < most) count++;
        memmove(out + at + 1, out + at, (count - at - 1) * sizeof *out);
        out[at] = (struct pl_snap_pinned){ i, sums.stuck, largest_live(s, &s->segments[i]) };
    }
    return count;
}
