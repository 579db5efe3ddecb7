/* sim_release.c - giving cached memory back to the driver: empty_cache, the retry chain, garbage collection.
 */
#include <stddef.h>

#include "snapshot/sim_inside.h"

/* cudaFree of a whole segment. */
void pl_sim_release_block(struct pl_sim *sim, struct pl_sim_block *b) {
    sim->physical -= b->size;
    sim->stats.reserved -= b->size;
    sim->stats.device_frees++;
    sim->stats.segment_events[PL_SIM_SEGMENT_FREE]++;
    pl_sim_set_remove(&b->pool->blocks, b);
    pl_sim_drop_block(sim, b);
}

static void release_pool(struct pl_sim *sim, struct pl_sim_pool *pool) {
    struct pl_sim_block *chosen = NULL, **last = &chosen, *next;
    if (pool == NULL) return;
    for (struct pl_sim_block *b = pl_sim_set_first(&pool->blocks); b != NULL; b = next) {
        next = pl_sim_set_next(b);
        if (b->range != NULL) {
            b->chosen = NULL;
            *last = b;
            last = &b->chosen;
        } else if (!pl_sim_is_split(b)) {
            pl_sim_release_block(sim, b);
        }
    }
    for (struct pl_sim_block *b = chosen; b != NULL; b = next) {
        next = b->chosen;
        pl_sim_unmap(sim, b);
    }
}

void pl_sim_complete_all(struct pl_sim *sim) {
    while (sim->pending_first != NULL) pl_sim_complete(sim, sim->pending_first, sim->pending_first->ticket);
}

/* Private pools keep theirs until they die. */
void pl_sim_empty_cache(struct pl_sim *sim) {
    pl_sim_complete_all(sim);
    if (sim->pool_count < 2) return;
    release_pool(sim, sim->pools[1]);
    release_pool(sim, sim->pools[0]);
}

bool pl_sim_release_available(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size, uint64_t stream) {
    uint64_t max_split = sim->conf.max_split, key = size > max_split ? size : max_split, total = 0;
    struct pl_sim_block *chosen = NULL, **last = &chosen, *next;
    if (max_split == PL_ALLOC_UNLIMITED) return false;
    struct pl_sim_block *b = pl_sim_set_find(&pool->blocks, stream, key);
    if (b != NULL && b->stream == stream && b->range == NULL) {
        pl_sim_release_block(sim, b);
        return true;
    }
    for (b = b != NULL ? pl_sim_set_before(b) : pl_sim_set_last(&pool->blocks);
         b != NULL && total < key && b->size >= max_split && b->stream == stream; b = pl_sim_set_before(b)) {
        if (b->range != NULL) continue;
        total += b->size;
        b->chosen = NULL;
        *last = b;
        last = &b->chosen;
    }
    for (b = chosen; b != NULL; b = next) {
        next = b->chosen;
        pl_sim_release_block(sim, b);
    }
    return total >= key;
}

/* Large segments of the default pool that have not been used for longer than the mean, until enough is back.
 */
void pl_sim_collect_garbage(struct pl_sim *sim) {
    uint64_t threshold = (uint64_t)(sim->conf.gc * (double)sim->limit), reclaimed = 0, ages = 0, count = 0;
    struct pl_sim_pool *pool = sim->pool_count >= 2 ? sim->pools[1] : NULL;
    if (sim->stats.reserved <= threshold || pool == NULL) return;
    uint64_t target = sim->stats.reserved - threshold;
    for (const struct pl_sim_block *b = pl_sim_set_first(&pool->blocks); b != NULL; b = pl_sim_set_next(b)) {
        if (pl_sim_is_split(b)) continue;
        ages += pool->calls - b->gc_base;
        count++;
    }
    for (bool freed = true; reclaimed < target && freed && count > 0;) {
        double mean = (double)ages / (double)count;
        struct pl_sim_block *next;
        freed = false;
        for (struct pl_sim_block *b = pl_sim_set_first(&pool->blocks); b != NULL; b = next) {
            uint64_t age = pool->calls - b->gc_base;
            next = pl_sim_set_next(b);
            if (pl_sim_is_split(b) || b->range != NULL || (double)age < mean) continue;
            freed = true;
            reclaimed += b->size;
            ages -= age;
            count--;
            pl_sim_release_block(sim, b);
        }
    }
}
