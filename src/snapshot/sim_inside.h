/* snapshot/sim_inside.h - blocks, pools, ordered sets of the model. For sim*.c and free_set.c only. */
#ifndef PL_SNAPSHOT_SIM_INSIDE_H
#define PL_SNAPSHOT_SIM_INSIDE_H
#include "snapshot/sim.h"

struct pl_sim_pool;
/* 9/8 of the device as addresses, mapped page by page. */
struct pl_sim_range {
    uint64_t base, page, size;
    struct pl_sim_range *next, *before;
};
struct pl_sim_block {
    uint64_t stream, size, requested, addr,
        age; /* age: when the segment came from the driver; 0 in address order */
    uint64_t gc_base, ticket;
    struct pl_sim_block *prev, *next;           /* neighbours in the segment */
    struct pl_sim_block *left, *right, *parent; /* in a set */
    struct pl_sim_block *pending_prev, *pending_next, *chosen;
    struct pl_sim_pool *pool;
    struct pl_sim_range *range; /* of an expandable segment */
    uint32_t priority;
    bool allocated, mapped, pending, used_elsewhere;
};
/* Blocks in order: of free ones (stream, size, age, address), of unmapped ones (stream, address). */
struct pl_sim_set {
    struct pl_sim_block *root;
    bool by_address;
};
void pl_sim_set_add(struct pl_sim_set *set, struct pl_sim_block *b);
void pl_sim_set_remove(struct pl_sim_set *set, struct pl_sim_block *b);
/* The first at or behind (stream, size) of free ones, (stream) of unmapped ones. */
struct pl_sim_block *pl_sim_set_find(const struct pl_sim_set *set, uint64_t stream, uint64_t size);
struct pl_sim_block *pl_sim_set_first(const struct pl_sim_set *set);
struct pl_sim_block *pl_sim_set_last(const struct pl_sim_set *set);
struct pl_sim_block *pl_sim_set_next(const struct pl_sim_block *b);
struct pl_sim_block *pl_sim_set_before(const struct pl_sim_block *b);

struct pl_sim_pool {
    struct pl_sim_set blocks, unmapped;
    uint64_t calls; /* get_free_blocks_call_count, which drives the ages of garbage collection */
    bool small, is_default;
};
struct pl_sim_slab;
struct pl_sim {
    struct pl_alloc_conf conf;
    struct pl_sim_stats stats;
    uint64_t total, other, physical, limit, next_address, registrations, tickets;
    bool has_limit, falling, events_ready, broken;
    struct pl_sim_pool **pools; /* 2 for each pool id: small, large */
    size_t pool_count;
    struct pl_sim_block *pending_first, *pending_last;
    struct pl_sim_slab *slabs;
    struct pl_sim_range *ranges;
    struct pl_sim_block *spare;
    uint32_t random;
    pl_sim_driver *driver;
    void *driver_ctx;
};

/* sim.c */
struct pl_sim_block *pl_sim_new_block(struct pl_sim *sim, uint64_t stream, uint64_t size,
                                      struct pl_sim_pool *pool, uint64_t addr);
void pl_sim_drop_block(struct pl_sim *sim, struct pl_sim_block *b);
void pl_sim_insert_free(struct pl_sim_block *b);
uint64_t pl_sim_merge(struct pl_sim *sim, struct pl_sim_block *target, struct pl_sim_block *source);
uint64_t pl_sim_new_address(struct pl_sim *sim, uint64_t size, bool expandable);
uint64_t pl_sim_new_age(struct pl_sim *sim);
bool pl_sim_fits(const struct pl_sim *sim, uint64_t size);
void pl_sim_grow(struct pl_sim *sim, uint64_t size);
static inline bool pl_sim_is_split(const struct pl_sim_block *b) {
    return b->prev != NULL || b->next != NULL;
}
/* sim_expand.c */
struct pl_sim_block *pl_sim_expand(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size,
                                   uint64_t stream);
void pl_sim_unmap(struct pl_sim *sim, struct pl_sim_block *b);
void pl_sim_free_ranges(struct pl_sim *sim);
/* sim_release.c */
void pl_sim_release_block(struct pl_sim *sim, struct pl_sim_block *b);
void pl_sim_complete_all(struct pl_sim *sim);
bool pl_sim_release_available(struct pl_sim *sim, struct pl_sim_pool *pool, uint64_t size, uint64_t stream);
void pl_sim_collect_garbage(struct pl_sim *sim);
#endif
