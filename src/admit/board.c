#include "admit/board.h"

#include <stdatomic.h>
#include <string.h>

struct head {
    uint32_t magic, major, slots, slot_bytes;
    uint8_t reserved[48];
};
struct slot {
    _Atomic uint32_t state;
    uint32_t reserved;
    struct pl_charge charge;
    uint64_t reserved2;
};
_Static_assert(sizeof(struct head) == 64 && sizeof(struct slot) == 64, "board");
_Static_assert((1 + PL_BOARD_SLOTS) * sizeof(struct slot) == PL_BOARD_BYTES, "board");

static struct slot *slot_at(const struct pl_board *b, uint32_t i) {
    return (struct slot *)(void *)(b->at + sizeof(struct head)) + i;
}

bool pl_board_open(struct pl_board *b, void *at, uint64_t main) {
    static const struct head nothing;
    struct head *h = at;
    *b = (struct pl_board){ .main = main };
    if (memcmp(h, &nothing, sizeof nothing) == 0)
        *h = (struct head){ .magic = PL_BOARD_MAGIC,
                            .major = PL_BOARD_MAJOR,
                            .slots = PL_BOARD_SLOTS,
                            .slot_bytes = sizeof(struct slot) };
    bool ours = h->magic == PL_BOARD_MAGIC && h->major == PL_BOARD_MAJOR && h->slots == PL_BOARD_SLOTS &&
                h->slot_bytes == sizeof(struct slot);
    if (ours) b->at = at;
    return ours;
}

static bool take(struct slot *s) {
    uint32_t expected = PL_BOARD_FREE;
    return atomic_compare_exchange_strong(&s->state, &expected, PL_BOARD_TAKEN);
}

uint32_t pl_board_put(struct pl_board *b, const struct pl_charge *c) {
    if (b->at == NULL) return PL_BOARD_NONE;
    for (uint32_t n = 0; n < PL_BOARD_SLOTS; n++) {
        uint32_t i = b->next;
        b->next = (b->next + 1) % PL_BOARD_SLOTS;
        struct slot *s = slot_at(b, i);
        if (!take(s)) continue;
        s->charge = *c;
        s->charge.main = b->main;
        atomic_store(&s->state, PL_BOARD_CHARGED);
        return i;
    }
    b->unwritten++;
    return PL_BOARD_NONE;
}

void pl_board_drop(struct pl_board *b, uint32_t slot) {
    if (b->at == NULL || slot >= PL_BOARD_SLOTS) return;
    struct slot *s = slot_at(b, slot);
    s->charge.generation = 0;
    atomic_store(&s->state, PL_BOARD_FREE);
}

static bool is_held(uint32_t state) { return state == PL_BOARD_CHARGED || state == PL_BOARD_ORPHAN; }

bool pl_board_next(const struct pl_board *b, uint32_t *from, uint32_t *slot, struct pl_charge *out) {
    while (b->at != NULL && *from < PL_BOARD_SLOTS) {
        uint32_t i = (*from)++;
        struct slot *s = slot_at(b, i);
        struct pl_charge c = s->charge;
        if (!is_held(atomic_load(&s->state)) || c.main == b->main || c.generation == 0) continue;
        *slot = i;
        *out = c;
        return true;
    }
    return false;
}

bool pl_board_has(const struct pl_board *b, uint64_t generation) {
    bool full = true;
    for (uint32_t i = 0; b->at != NULL && i < PL_BOARD_SLOTS; i++) {
        const struct slot *s = slot_at(b, i);
        uint32_t state = atomic_load(&s->state);
        if (is_held(state) && s->charge.main != b->main && s->charge.generation == generation) return true;
        full = full && state != PL_BOARD_FREE;
    }
    return full;
}

bool pl_board_adopt(struct pl_board *b, uint32_t slot) {
    struct slot *s = slot_at(b, slot);
    uint32_t state = atomic_load(&s->state);
    return is_held(state) &&
           (state == PL_BOARD_ORPHAN || atomic_compare_exchange_strong(&s->state, &state, PL_BOARD_ORPHAN));
}

bool pl_board_is_gone(const struct pl_board *b, uint32_t slot, const struct pl_charge *c) {
    const struct slot *s = slot_at(b, slot);
    return !is_held(atomic_load(&s->state)) || s->charge.id != c->id || s->charge.generation != c->generation;
}
