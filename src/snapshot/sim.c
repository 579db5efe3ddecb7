/* sim.c - malloc and free of the model. */
#include "snapshot/sim.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"
#include "snapshot/sim_inside.h"

enum { SLAB_BLOCKS = 256 };
static const uint64_t LEAST_BLOCK = 512, SMALL_SIZE = 1 * PL_ALLOC_MIB, SMALL_SEGMENT = 2 * PL_ALLOC_MIB,
                      LARGE_ALONE = 10 * PL_ALLOC_MIB, ROUND_LARGE = 2 * PL_ALLOC_MIB;
struct pl_sim_slab {
    struct pl_sim_slab *before;
    struct pl_sim_block blocks[SLAB_BLOCKS];
};

/* ---- sizes ---- */

static uint64_t round_to_division(uint64_t size, uint32_t divisions) {
    if ((size & (size - 1)) == 0) return size;
    uint64_t floor = UINT64_C(1) << (63 - __builtin_clzll(size));
    uint64_t step = floor >> (31 - __builtin_clz(divisions));
    if (step == 0) return floor << 1;
    uint64_t low = size & ~(step - 1);
    return low == size ? size : low + step;
}

uint64_t pl_sim_round_size(const struct pl_alloc_conf *conf, uint64_t size) {
    if (size < LEAST_BLOCK) return LEAST_BLOCK;
    int interval = 63 - __builtin_clzll(size) - 20;
    if (interval < 0) interval = 0;
    if (interval >= PL_SNAP_INTERVALS) interval = PL_SNAP_INTERVALS - 1;
    uint32_t divisions = conf->roundup[interval];
    if (divisions > 1 && size > LEAST_BLOCK * divisions) return round_to_division(size, divisions);
    return (size + LEAST_BLOCK - 1) / LEAST_BLOCK * LEAST_BLOCK;
}

uint64_t pl_sim_segment_size(const struct pl_alloc_conf *conf, uint64_t rounded) {
    if (rounded <= SMALL_SIZE) return SMALL_SEGMENT;
    if (rounded < LARGE_ALONE) return conf->large_segment;
    return (rounded + ROUND_LARGE - 1) / ROUND_LARGE * ROUND_LARGE;
}

/* ---- blocks ---- */

static bool more_blocks(struct pl_sim *sim) {
    struct pl_sim_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) return false;
    slab->before = sim->slabs;
    sim->slabs = slab;
    for (size_t i = 0; i < SLAB_BLOCKS; i++) {
        slab->blocks[i].next = sim->spare;
        sim->spare = &slab->blocks[i];
    }
    return true;
}

struct pl_sim_block *pl_sim_new_block(struct pl_sim *sim, uint64_t stream, uint64_t size,
                                      struct pl_sim_pool *pool, uint64_t addr) {
    if (sim->spare == NULL && !more_blocks(sim)) {
        sim->broken = true;
        return NULL;
    }
    struct pl_sim_block *b = sim->spare;
    sim->spare = b->next;
    sim->random = sim->random * 1664525u + 1013904223u;
    *b = (struct pl_sim_block){
        .stream = stream, .size = size, .pool = pool, .addr = addr, .mapped = true, .priority = sim->random
    };
    return b;
}

void pl_sim_drop_block(struct pl_sim *sim, struct pl_sim_block *b) {
    *b = (struct pl_sim_block){ .next = sim->spare };
    sim->spare = b;
}

void pl_sim_insert_free(struct pl_sim_block *b) {
    b->gc_base = b->pool->calls;
    pl_sim_set_add(&b->pool->blocks, b);
}

/* `target` swallows its neighbour, if that is free and of the same kind. The lower one's age stays the
 * target's own. */
uint64_t pl_sim_merge(struct pl_sim *sim, struct pl_sim_block *target, struct pl_sim_block *source) {
    if (source == NULL || source->allocated || source->pending || source->used_elsewhere ||
        source->mapped != target->mapped)
        return 0;
    uint64_t size = source->size;
    pl_sim_set_remove(source->mapped ? &target->pool->blocks : &target->pool->unmapped, source);
    if (target->prev == source) {
        target->addr = source->addr;
        target->prev = source->prev;
        if (target->prev != NULL) target->prev->next = target;
    } else {
        target->next = source->next;
        if (target->next != NULL) target->next->prev = target;
    }
    target->size += size;
    pl_sim_drop_block(sim, source);
    return size;
}

/* ---- pools, limits, addresses ---- */

static struct pl_sim_pool *pool_for(struct pl_sim *sim, bool small, uint16_t id) {
    size_t at = (size_t)id * 2 + (small ? 0 : 1);
    if (at >= sim->pool_count) {
        size_t count = (size_t)id * 2 + 2;
        struct pl_sim_pool **p = realloc(sim->pools, count * sizeof(struct pl_sim_pool *));
        if (p == NULL) return NULL;
        for (size_t i = sim->pool_count; i < count; i++) p[i] = NULL;
        sim->pools = p;
        sim->pool_count = count;
    }
    if (sim->pools[at] == NULL && (sim->pools[at] = calloc(1, sizeof(struct pl_sim_pool))) != NULL)
        *sim->pools[at] =
            (struct pl_sim_pool){ .unmapped.by_address = true, .small = small, .is_default = id == 0 };
    return sim->pools[at];
}

bool pl_sim_fits(const struct pl_sim *sim, uint64_t size) {
    return sim->physical + size + sim->other <= sim->total;
}

static bool over_limit(const struct pl_sim *sim, uint64_t size) {
    return sim->has_limit && sim->stats.reserved + size > sim->limit;
}

static bool gc_on(const struct pl_sim *sim) { return sim->has_limit && sim->conf.gc > 0; }

void pl_sim_grow(struct pl_sim *sim, uint64_t size) {
    struct pl_sim_stats *s = &sim->stats;
    sim->physical += size;
    s->reserved += size;
    s->device_allocs++;
    if (s->reserved > s->peak_reserved) s->peak_reserved = s->reserved;
}

uint64_t pl_sim_new_address(struct pl_sim *sim, uint64_t size, bool expandable) {
    uint64_t addr = sim->driver != NULL ? sim->driver(sim->driver_ctx, size, expandable) : 0;
    if (addr != 0) return addr;
    uint64_t span = (size + ROUND_LARGE - 1) / ROUND_LARGE * ROUND_LARGE + ROUND_LARGE;
    if (sim->falling) return sim->next_address -= span;
    sim->next_address += span;
    return sim->next_address - span;
}

uint64_t pl_sim_new_age(struct pl_sim *sim) { return sim->conf.order_by_age ? ++sim->registrations : 0; }

/* ---- a cached block for a request ---- */

/* What it could become by mapping what follows. */
static uint64_t expandable_size(const struct pl_sim_block *b) {
    return b->size + (b->next != NULL && !b->next->mapped ? b->next->size : 0);
}

static struct pl_sim_block *find_free(const struct pl_sim *sim, const struct pl_sim_pool *pool, uint64_t size,
                                      uint64_t stream) {
    const struct pl_alloc_conf *c = &sim->conf;
    struct pl_sim_block *b = pl_sim_set_find(&pool->blocks, stream, size);
    if (b == NULL || b->stream != stream) return NULL;
    if (b->range != NULL && c->expandable) {
        for (struct pl_sim_block *next = pl_sim_set_next(b);
             b->range != NULL && next != NULL && next->stream == stream &&
             expandable_size(next) < expandable_size(b);
             next = pl_sim_set_next(b))
            b = next;
    } else if (b->range != NULL) {
        while (b != NULL && b->range != NULL && b->stream == stream) b = pl_sim_set_next(b);
        if (b == NULL || b->stream != stream) return NULL;
    }
    if (c->fix193400 && b->range != NULL) return b;
    if (size < c->max_split && b->size >= c->max_split) return NULL;
    if (size >= c->max_split && b->size >= size + c->non_split_rounding) return NULL;
    return b;
}

static struct pl_sim_block *take_free(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                      uint64_t stream) {
    if (gc_on(sim)) pool->calls++;
    struct pl_sim_block *b = find_free(sim, pool, size, stream);
    if (b != NULL) pl_sim_set_remove(&pool->blocks, b);
    return b;
}

bool pl_sim_would_release(struct pl_sim *sim, uint64_t size, uint64_t stream, uint16_t id) {
    uint64_t rounded = pl_sim_round_size(&sim->conf, size),
             segment = pl_sim_segment_size(&sim->conf, rounded);
    struct pl_sim_pool *pool = pool_for(sim, rounded <= SMALL_SIZE, id);
    if (pool == NULL || find_free(sim, pool, rounded, stream) != NULL) return false;
    if (gc_on(sim) && sim->stats.reserved > (uint64_t)(sim->conf.gc * (double)sim->limit)) return true;
    return over_limit(sim, segment) || !pl_sim_fits(sim, sim->conf.expandable ? rounded : segment);
}

/* ---- malloc ---- */

static struct pl_sim_block *from_driver(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                        uint64_t segment, uint64_t stream) {
    if (over_limit(sim, segment)) return NULL;
    if (sim->conf.expandable) return pl_sim_expand(sim, pool, size, stream);
    if (!pl_sim_fits(sim, segment)) return NULL;
    struct pl_sim_block *b = pl_sim_new_block(sim, stream, segment, pool, 0);
    if (b == NULL) return NULL;
    b->addr = pl_sim_new_address(sim, segment, false);
    b->age = pl_sim_new_age(sim);
    pl_sim_grow(sim, segment);
    sim->stats.segment_events[PL_SIM_SEGMENT_ALLOC]++;
    return b;
}

static struct pl_sim_block *from_anywhere(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                          uint64_t stream) {
    uint64_t segment = pl_sim_segment_size(&sim->conf, size);
    struct pl_sim_block *b = take_free(sim, pool, size, stream);
    if (b != NULL) return b;
    if (gc_on(sim)) pl_sim_collect_garbage(sim);
    if ((b = from_driver(sim, pool, size, segment, stream)) != NULL) return b;
    if (sim->conf.throw_on_oom && over_limit(sim, segment)) return NULL;
    if (pl_sim_release_available(sim, pool, size, stream)) b = from_driver(sim, pool, size, segment, stream);
    if (b != NULL) return b;
    pl_sim_empty_cache(sim);
    if (sim->conf.fix189504 && (b = take_free(sim, pool, size, stream)) != NULL) return b;
    sim->stats.retries++;
    return from_driver(sim, pool, size, segment, stream);
}

static bool should_split(const struct pl_sim *sim, const struct pl_sim_block *b, uint64_t size) {
    uint64_t rest = b->size - size;
    if (b->pool->small || sim->conf.expandable) return rest >= LEAST_BLOCK;
    return size < sim->conf.max_split && rest > SMALL_SIZE;
}

/* The first `size` bytes of b; the rest, with the higher addresses, is free. */
static struct pl_sim_block *split(struct pl_sim *sim, struct pl_sim_block *rest, uint64_t size) {
    bool was_split = pl_sim_is_split(rest);
    struct pl_sim_block *b = pl_sim_new_block(sim, rest->stream, size, rest->pool, rest->addr);
    if (b == NULL) return NULL;
    b->range = rest->range;
    b->age = rest->age;
    b->prev = rest->prev;
    if (b->prev != NULL) b->prev->next = b;
    b->next = rest;
    rest->prev = b;
    rest->addr += size;
    rest->size -= size;
    pl_sim_insert_free(rest);
    if (b->range == NULL) sim->stats.inactive_split_bytes += was_split ? -(int64_t)size : (int64_t)rest->size;
    return b;
}

struct pl_sim_block *pl_sim_malloc(struct pl_sim *sim, uint64_t size, uint64_t stream, uint16_t id) {
    struct pl_sim_stats *s = &sim->stats;
    if (sim->events_ready) pl_sim_complete_all(sim);
    uint64_t rounded = pl_sim_round_size(&sim->conf, size);
    struct pl_sim_pool *pool = pool_for(sim, rounded <= SMALL_SIZE, id);
    sim->broken |= pool == NULL;
    if (sim->broken) return NULL;
    struct pl_sim_block *b = from_anywhere(sim, pool, rounded, stream);
    if (b == NULL) {
        s->ooms++;
        return NULL;
    }
    if (should_split(sim, b, rounded)) {
        if ((b = split(sim, b, rounded)) == NULL) return NULL;
    } else if (pl_sim_is_split(b) && b->range == NULL) {
        s->inactive_split_bytes -= (int64_t)b->size;
    }
    b->allocated = true;
    b->requested = size;
    s->allocated += b->size;
    s->requested += size;
    s->active += b->size;
    if (s->allocated > s->peak_allocated) s->peak_allocated = s->allocated;
    return b;
}

/* ---- free ---- */

static void free_block(struct pl_sim *sim, struct pl_sim_block *b) {
    uint64_t size = b->size;
    int64_t change = -(int64_t)pl_sim_merge(sim, b, b->prev);
    change -= (int64_t)pl_sim_merge(sim, b, b->next);
    pl_sim_insert_free(b);
    if (pl_sim_is_split(b)) change += (int64_t)b->size;
    if (b->range == NULL) sim->stats.inactive_split_bytes += change;
    sim->stats.active -= size;
    sim->stats.requested -= b->requested;
}

void pl_sim_record_stream(struct pl_sim *sim, struct pl_sim_block *b, uint64_t stream) {
    (void)sim;
    if (stream != b->stream) b->used_elsewhere = true;
}

uint64_t pl_sim_free(struct pl_sim *sim, struct pl_sim_block *b, bool pending) {
    b->allocated = false;
    sim->stats.allocated -= b->size;
    if (!pending && !b->used_elsewhere) {
        free_block(sim, b);
        return 0;
    }
    b->pending = true;
    b->used_elsewhere = false;
    b->ticket = ++sim->tickets;
    b->pending_prev = sim->pending_last;
    b->pending_next = NULL;
    if (sim->pending_last != NULL)
        sim->pending_last->pending_next = b;
    else
        sim->pending_first = b;
    sim->pending_last = b;
    return b->ticket;
}

void pl_sim_complete(struct pl_sim *sim, struct pl_sim_block *b, uint64_t ticket) {
    if (ticket == 0 || !b->pending || b->ticket != ticket)
        return; /* done already; the block may be another one's by now */
    if (b->pending_prev != NULL)
        b->pending_prev->pending_next = b->pending_next;
    else
        sim->pending_first = b->pending_next;
    if (b->pending_next != NULL)
        b->pending_next->pending_prev = b->pending_prev;
    else
        sim->pending_last = b->pending_prev;
    b->pending = false;
    b->ticket = 0;
    free_block(sim, b);
}

/* ---- life ---- */

struct pl_sim *pl_sim_create(const struct pl_alloc_conf *conf, uint64_t total, uint64_t other) {
    struct pl_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL) return NULL;
    sim->conf = *conf;
    sim->total = total;
    sim->other = other;
    sim->next_address = UINT64_C(0x7F0000000000);
    sim->random = 1;
    if (conf->fraction < 1.0) pl_sim_set_limit(sim, (uint64_t)(conf->fraction * (double)total));
    return sim;
}

void pl_sim_destroy(struct pl_sim *sim) {
    if (sim == NULL) return;
    for (size_t i = 0; i < sim->pool_count; i++) free(sim->pools[i]);
    free(sim->pools);
    pl_sim_free_ranges(sim);
    while (sim->slabs != NULL) {
        struct pl_sim_slab *slab = sim->slabs;
        sim->slabs = slab->before;
        free(slab);
    }
    free(sim);
}

const struct pl_sim_stats *pl_sim_stats(const struct pl_sim *sim) { return &sim->stats; }
bool pl_sim_broken(const struct pl_sim *sim) { return sim->broken; }
uint64_t pl_sim_address(const struct pl_sim_block *b) { return b->addr; }
void pl_sim_set_driver(struct pl_sim *sim, pl_sim_driver *driver, void *ctx) {
    sim->driver = driver;
    sim->driver_ctx = ctx;
}
void pl_sim_set_falling(struct pl_sim *sim) { sim->falling = true; }
void pl_sim_set_events_ready(struct pl_sim *sim, bool ready) { sim->events_ready = ready; }
void pl_sim_set_limit(struct pl_sim *sim, uint64_t bytes) {
    sim->has_limit = true;
    sim->limit = bytes;
}
void pl_sim_set_expandable(struct pl_sim *sim, bool on) { sim->conf.expandable = on; }

/* ---- looking at it ---- */

/* Calls for every block that there is: each slab once. Spare ones have no pool. */
#define EACH_BLOCK(sim, b)                                                                 \
    for (struct pl_sim_slab *slab_ = (sim)->slabs; slab_ != NULL; slab_ = slab_->before)   \
        for (struct pl_sim_block *b = slab_->blocks; b < slab_->blocks + SLAB_BLOCKS; b++) \
            if (b->pool != NULL)

static bool is_cached(const struct pl_sim_block *b) { return b->mapped && !b->allocated && !b->pending; }

uint64_t pl_sim_releasable(const struct pl_sim *sim) {
    uint64_t sum = 0;
    EACH_BLOCK(sim, b) {
        if (!is_cached(b) || !b->pool->is_default) continue;
        if (b->range == NULL) {
            if (!pl_sim_is_split(b)) sum += b->size;
            continue;
        }
        uint64_t page = b->range->page, offset = b->addr - b->range->base;
        uint64_t begin = (offset + page - 1) / page, end = (offset + b->size) / page;
        if (end > begin) sum += (end - begin) * page;
    }
    return sum;
}

uint64_t pl_sim_largest_free(const struct pl_sim *sim) {
    uint64_t most = 0;
    EACH_BLOCK(sim, b) if (is_cached(b) && b->size > most) most = b->size;
    return most;
}

uint64_t pl_sim_free_bytes(const struct pl_sim *sim) {
    uint64_t sum = 0;
    EACH_BLOCK(sim, b) if (is_cached(b)) sum += b->size;
    return sum;
}

bool pl_sim_adds_up(const struct pl_sim *sim) {
    uint64_t sum = 0;
    EACH_BLOCK(sim, b) if (b->mapped) sum += b->size;
    return sum == sim->stats.reserved && sum == sim->physical;
}

uint64_t pl_sim_hash_block(uint64_t hash, uint64_t offset, uint64_t size, enum pl_snap_state state) {
    return pl_snap_mix(pl_snap_mix(hash, offset), size << 2 | (uint64_t)state);
}

bool pl_sim_layout(struct pl_sim *sim, pl_sim_stretch *each, void *ctx) {
    EACH_BLOCK(sim, b) {
        if (!b->mapped || (b->prev != NULL && b->prev->mapped)) continue; /* only where a stretch begins */
        uint64_t hash = 0, size = 0;
        for (const struct pl_sim_block *x = b; x != NULL && x->mapped; x = x->next) {
            enum pl_snap_state state = x->allocated ? PL_SNAP_ACTIVE
                                       : x->pending ? PL_SNAP_PENDING
                                                    : PL_SNAP_INACTIVE;
            hash = pl_sim_hash_block(hash, x->addr - b->addr, x->size, state);
            size += x->size;
        }
        if (!each(ctx, b->stream, size, hash)) return false;
    }
    return true;
}
