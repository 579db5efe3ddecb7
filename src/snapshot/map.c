#include "snapshot/map.h"

#include <stdlib.h>

#include "snapshot/inside.h"

enum { FIRST_SIZE = 256 };

/* The key is from a file: mixed, so that neighbouring addresses do not become neighbouring slots. */
static size_t home(const struct pl_map *m, uint64_t key) {
    return (size_t)pl_snap_mix(key, UINT64_C(0x2545F4914F6CDD1D)) & (m->size - 1);
}

static size_t find(const struct pl_map *m, uint64_t key) {
    size_t at = home(m, key);
    while (m->slots[at].value != PL_SNAP_NONE && m->slots[at].key != key) at = (at + 1) & (m->size - 1);
    return at;
}

uint32_t pl_map_get(const struct pl_map *m, uint64_t key) {
    return m->size == 0 ? PL_SNAP_NONE : m->slots[find(m, key)].value;
}

static bool grow(struct pl_map *m) {
    struct pl_map bigger = { .size = m->size == 0 ? FIRST_SIZE : m->size * 2, .count = m->count };
    bigger.slots = malloc(bigger.size * sizeof *bigger.slots);
    if (bigger.slots == NULL) return false;
    for (size_t i = 0; i < bigger.size; i++) bigger.slots[i].value = PL_SNAP_NONE;
    for (size_t i = 0; i < m->size; i++)
        if (m->slots[i].value != PL_SNAP_NONE) bigger.slots[find(&bigger, m->slots[i].key)] = m->slots[i];
    free(m->slots);
    *m = bigger;
    return true;
}

bool pl_map_put(struct pl_map *m, uint64_t key, uint32_t value) {
    if ((m->count + 1) * 2 > m->size && !grow(m)) return false;
    size_t at = find(m, key);
    if (m->slots[at].value == PL_SNAP_NONE) m->count++;
    m->slots[at] = (struct pl_map_slot){ key, value };
    return true;
}

uint32_t pl_map_take(struct pl_map *m, uint64_t key) {
    if (m->size == 0) return PL_SNAP_NONE;
    size_t mask = m->size - 1, hole = find(m, key);
    uint32_t value = m->slots[hole].value;
    if (value == PL_SNAP_NONE) return value;
    for (size_t at = (hole + 1) & mask; m->slots[at].value != PL_SNAP_NONE; at = (at + 1) & mask) {
        if (((at - home(m, m->slots[at].key)) & mask) < ((at - hole) & mask))
            continue; /* it is at its best already */
        m->slots[hole] = m->slots[at];
        hole = at;
    }
    m->slots[hole].value = PL_SNAP_NONE;
    m->count--;
    return value;
}

void pl_map_free(struct pl_map *m) {
    free(m->slots);
    *m = (struct pl_map){ 0 };
}
