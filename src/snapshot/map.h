/* snapshot/map.h - addresses to numbers: open addressing, grows by itself, PL_SNAP_NONE where there is
 * nothing. */
#ifndef PL_SNAPSHOT_MAP_H
#define PL_SNAPSHOT_MAP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_map_slot {
    uint64_t key;
    uint32_t value; /* PL_SNAP_NONE: free */
};
struct pl_map {
    struct pl_map_slot *slots;
    size_t size, count;
};
uint32_t pl_map_get(const struct pl_map *m, uint64_t key);
bool pl_map_put(struct pl_map *m, uint64_t key, uint32_t value); /* false without memory */
uint32_t pl_map_take(struct pl_map *m, uint64_t key);            /* what was there; it is gone */
void pl_map_free(struct pl_map *m);
#endif
