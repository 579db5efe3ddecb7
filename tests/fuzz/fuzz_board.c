/* fuzz_board.c - whatever lies on a charge board: what is read from it is bounded, and it can be used after.
 *
 * USES base admit
 */
#include <stdint.h>
#include <string.h>

#include "admit/board.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static _Alignas(64) uint8_t memory[PL_BOARD_BYTES];
    struct pl_board b;
    struct pl_charge c;
    uint32_t from = 0, slot, found = 0;
    bool begins = size > 0 && (data[0] & 1) != 0; /* else its head is the input's as well */
    memset(memory, 0, sizeof memory);
    size_t at = begins ? 64 : 0, n = size < 16384 ? size : 16384;
    memcpy(memory + at, data, n);
    if (!pl_board_open(&b, memory, 7)) {
        PL_ASSERT(pl_board_put(&b, &(struct pl_charge){ .generation = 1 }) == PL_BOARD_NONE);
        return 0;
    }
    while (pl_board_next(&b, &from, &slot, &c)) {
        PL_ASSERT(slot < PL_BOARD_SLOTS && c.main != 7 && c.generation != 0);
        PL_ASSERT(!pl_board_is_gone(&b, slot, &c) && pl_board_adopt(&b, slot));
        if (found++ % 2 == 0) pl_board_drop(&b, slot);
    }
    PL_ASSERT(found <= PL_BOARD_SLOTS);
    uint32_t mine = pl_board_put(&b, &(struct pl_charge){ .generation = 1, .id = 2 });
    if (mine != PL_BOARD_NONE) pl_board_drop(&b, mine);
    return 0;
}
