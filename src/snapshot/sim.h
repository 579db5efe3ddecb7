/* snapshot/sim.h - a model of PyTorch's native CUDA caching allocator on one device: what it keeps, splits,
 * merges, gives back, and when it runs out.
 *
 * Source: c10/cuda/CUDACachingAllocator.cpp of 2.8 to 2.15; how to read it: docs/snapshot.md. Checked against
 * recorded traces of the real allocator (tests/data/snapshots) and published numbers (pytorch#193400,
 * legacy-rocm-build#6603). Not modelled: user MemPools with their own allocator, captures under pressure,
 * cudaMallocAsync. Bytes everywhere.
 */
#ifndef PL_SNAPSHOT_SIM_H
#define PL_SNAPSHOT_SIM_H
#include <stdbool.h>
#include <stdint.h>

#include "snapshot/conf.h"

struct pl_sim;
struct pl_sim_block; /* a handle: valid from malloc until its memory was really freed */

enum {
    PL_SIM_SEGMENT_ALLOC,
    PL_SIM_SEGMENT_FREE,
    PL_SIM_SEGMENT_MAP,
    PL_SIM_SEGMENT_UNMAP,
    PL_SIM_SEGMENT_KINDS
};
struct pl_sim_stats {
    uint64_t reserved, allocated, active, requested, peak_reserved, peak_allocated;
    int64_t inactive_split_bytes;
    uint64_t retries, ooms, device_allocs, device_frees;
    uint64_t segment_events[PL_SIM_SEGMENT_KINDS];
};

/* `total` of the device, of which `other` belongs to others. NULL without memory. */
struct pl_sim *pl_sim_create(const struct pl_alloc_conf *conf, uint64_t total, uint64_t other);
void pl_sim_destroy(struct pl_sim *sim); /* NULL is fine */
const struct pl_sim_stats *pl_sim_stats(const struct pl_sim *sim);
/* True once the model itself had no memory: its answers are worth nothing from then on. */
bool pl_sim_broken(const struct pl_sim *sim);

/* NULL: out of memory. `pool` as in pl_snap.pools: 0 is the default pool. */
struct pl_sim_block *pl_sim_malloc(struct pl_sim *sim, uint64_t size, uint64_t stream, uint16_t pool);
/* `pending`: the block waits (record_stream) until pl_sim_complete or until everything cached is released.
 * Returns the ticket for pl_sim_complete, 0 when it is free already. */
uint64_t pl_sim_free(struct pl_sim *sim, struct pl_sim_block *block, bool pending);
void pl_sim_complete(struct pl_sim *sim, struct pl_sim_block *block,
                     uint64_t ticket); /* no effect the second time */
void pl_sim_record_stream(struct pl_sim *sim, struct pl_sim_block *block, uint64_t stream);
void pl_sim_empty_cache(struct pl_sim *sim);
/* Would malloc(size) give cached memory back to the driver first? */
bool pl_sim_would_release(struct pl_sim *sim, uint64_t size, uint64_t stream, uint16_t pool);

uint64_t
pl_sim_releasable(const struct pl_sim *sim); /* by empty_cache() now; pending blocks are not counted */
uint64_t pl_sim_largest_free(const struct pl_sim *sim);
uint64_t pl_sim_free_bytes(const struct pl_sim *sim);
uint64_t pl_sim_address(const struct pl_sim_block *block);
uint64_t pl_sim_round_size(const struct pl_alloc_conf *conf, uint64_t size);
uint64_t pl_sim_segment_size(const struct pl_alloc_conf *conf, uint64_t rounded);

/* Tells the address of new driver memory; 0 = the model's own choice. */
typedef uint64_t pl_sim_driver(void *ctx, uint64_t size, bool expandable);
void pl_sim_set_driver(struct pl_sim *sim, pl_sim_driver *driver, void *ctx);
void pl_sim_set_falling(struct pl_sim *sim); /* own choice: falling instead of rising addresses */
void pl_sim_set_events_ready(struct pl_sim *sim, bool ready); /* pending frees complete at the next malloc */
void pl_sim_set_limit(struct pl_sim *sim, uint64_t bytes);    /* instead of fraction * total */
void pl_sim_set_expandable(struct pl_sim *sim, bool on);      /* for later mallocs */

/* Every stretch of mapped memory, in no order: its stream, bytes and a hash of its blocks (offset, size,
 * state). */
typedef bool pl_sim_stretch(void *ctx, uint64_t stream, uint64_t size, uint64_t hash);
bool pl_sim_layout(struct pl_sim *sim, pl_sim_stretch *each, void *ctx);
uint64_t pl_sim_hash_block(uint64_t hash, uint64_t offset, uint64_t size, enum pl_snap_state state);
/* free + live + pending = reserved = what the device gave. */
bool pl_sim_adds_up(const struct pl_sim *sim);
#endif
