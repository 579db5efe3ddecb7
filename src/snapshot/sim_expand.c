/* sim_expand.c - expandable segments: addresses first, memory page by page. */
#include <stdlib.h>

#include "snapshot/sim_inside.h"

static const uint64_t SMALL_PAGE = 2 * PL_ALLOC_MIB;

static bool allocatable(const struct pl_sim_block *b) {
    return b != NULL && !b->allocated && !b->pending && !b->used_elsewhere;
}

static struct pl_sim_block *new_range(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t stream) {
    struct pl_sim_range *range = calloc(1, sizeof *range);
    if (range == NULL) {
        sim->broken = true;
        return NULL;
    }
    range->page = pool->small ? SMALL_PAGE : sim->conf.large_segment;
    range->size = (sim->total + sim->total / 8 + range->page - 1) / range->page * range->page;
    range->base = pl_sim_new_address(sim, range->size, true);
    struct pl_sim_block *b = pl_sim_new_block(sim, stream, range->size, pool, range->base);
    if (b == NULL) {
        free(range);
        return NULL;
    }
    range->next = sim->ranges;
    if (range->next != NULL) range->next->before = range;
    sim->ranges = range;
    b->mapped = false;
    b->range = range;
    b->age = pl_sim_new_age(sim);
    pl_sim_set_add(&pool->unmapped, b);
    return b;
}

static void drop_range(struct pl_sim *sim, struct pl_sim_range *range) {
    if (range->next != NULL) range->next->before = range->before;
    if (range->before != NULL)
        range->before->next = range->next;
    else
        sim->ranges = range->next;
    free(range);
}

void pl_sim_free_ranges(struct pl_sim *sim) {
    while (sim->ranges != NULL) drop_range(sim, sim->ranges);
}

/* The lowest place on the stream where `size` bytes can be had by mapping; else a new range. */
static struct pl_sim_block *find_place(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                       uint64_t stream) {
    for (struct pl_sim_block *u = pl_sim_set_find(&pool->unmapped, stream, 0);
         u != NULL && u->stream == stream; u = pl_sim_set_next(u)) {
        struct pl_sim_block *begin = allocatable(u->prev) ? u->prev : u;
        uint64_t total = 0;
        for (const struct pl_sim_block *b = begin; total < size && allocatable(b); b = b->next)
            total += b->size;
        if (total >= size) return begin;
    }
    return new_range(sim, pool, stream);
}

/* Maps the first `size` bytes of an unmapped block, in whole pages. False: the device has no room for them.
 */
static bool map(struct pl_sim *sim, struct pl_sim_block *b, uint64_t size) {
    struct pl_sim_pool *pool = b->pool;
    uint64_t page = b->range->page, offset = b->addr - b->range->base;
    uint64_t mapped = ((offset + size + page - 1) / page - offset / page) * page;
    if (!pl_sim_fits(sim, mapped)) return false;
    struct pl_sim_block *rest = NULL;
    if (mapped < b->size) {
        rest = pl_sim_new_block(sim, b->stream, b->size - mapped, pool, b->addr + mapped);
        if (rest == NULL) return false;
        rest->mapped = false;
        rest->range = b->range;
        rest->age = b->age;
        rest->prev = b;
        rest->next = b->next;
    }
    pl_sim_set_remove(&pool->unmapped, b);
    b->mapped = true;
    if (rest != NULL) {
        if (b->next != NULL) b->next->prev = rest;
        b->next = rest;
        pl_sim_set_add(&pool->unmapped, rest);
        b->size = mapped;
    }
    pl_sim_merge(sim, b, b->prev);
    pl_sim_merge(sim, b, b->next);
    pl_sim_insert_free(b);
    pl_sim_grow(sim, mapped);
    sim->stats.segment_events[PL_SIM_SEGMENT_MAP]++;
    return true;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

struct pl_sim_block *pl_sim_expand(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                   uint64_t stream) {
    struct pl_sim_block *b = find_place(sim, pool, size, stream);
    if (b == NULL || (!b->mapped && !map(sim, b, smaller(b->size, size)))) return NULL;
    while (b->size < size) { /* what was mapped by earlier turns stays, when a later one fails */
        struct pl_sim_block *next = b->next;
        if (!map(sim, next, smaller(size - b->size, next->size))) return NULL;
        b = next; /* it has swallowed b */
    }
    pl_sim_set_remove(&pool->blocks, b);
    return b;
}

static struct pl_sim_block *cut_off(struct pl_sim *sim, const struct pl_sim_block *b, uint64_t addr,
                                    uint64_t size) {
    struct pl_sim_block *piece = pl_sim_new_block(sim, b->stream, size, b->pool, addr);
    if (piece == NULL) return NULL;
    piece->range = b->range;
    piece->age = b->age;
    return piece;
}

void pl_sim_unmap(struct pl_sim *sim, struct pl_sim_block *b) {
    struct pl_sim_pool *pool = b->pool;
    struct pl_sim_range *range = b->range;
    uint64_t page = range->page, offset = b->addr - range->base;
    uint64_t begin = (offset + page - 1) / page * page, end = (offset + b->size) / page * page;
    if (begin >= end) return;
    uint64_t left_size = begin - offset, right_size = offset + b->size - end;
    pl_sim_set_remove(&pool->blocks, b);
    if (left_size > 0) {
        struct pl_sim_block *left = cut_off(sim, b, b->addr, left_size);
        if (left == NULL) return;
        left->prev = b->prev;
        if (left->prev != NULL) left->prev->next = left;
        left->next = b;
        b->prev = left;
        pl_sim_insert_free(left);
    }
    if (right_size > 0) {
        struct pl_sim_block *right = cut_off(sim, b, range->base + end, right_size);
        if (right == NULL) return;
        right->prev = b;
        right->next = b->next;
        if (right->next != NULL) right->next->prev = right;
        b->next = right;
        pl_sim_insert_free(right);
    }
    b->addr = range->base + begin;
    b->size = end - begin;
    b->mapped = false;
    pl_sim_merge(sim, b, b->prev);
    pl_sim_merge(sim, b, b->next);
    sim->physical -= end - begin;
    sim->stats.reserved -= end - begin;
    sim->stats.device_frees++;
    sim->stats.segment_events[PL_SIM_SEGMENT_UNMAP]++;
    if (pl_sim_is_split(b)) {
        pl_sim_set_add(&pool->unmapped, b);
    } else { /* nothing of the range is left */
        pl_sim_drop_block(sim, b);
        drop_range(sim, range);
    }
}
