/* Charges that outlive main. */
#include "admit/board.h"

#include <string.h>

#include "unit.h"

static _Alignas(64) uint8_t memory[PL_BOARD_BYTES];
static struct pl_board one, two;

static int begin(void **state) {
    (void)state;
    memset(memory, 0, sizeof memory);
    return pl_board_open(&one, memory, 1) ? 0 : -1;
}
static uint32_t put(struct pl_board *b, uint64_t id) {
    return pl_board_put(b, &(struct pl_charge){ .generation = 7, .id = id, .bytes = 10 * id });
}
static unsigned left(struct pl_board *b) {
    uint32_t from = 0, slot;
    unsigned n = 0;
    struct pl_charge c;
    while (pl_board_next(b, &from, &slot, &c)) n++;
    return n;
}

TEST(the_next_main_finds_what_the_last_one_left_and_nothing_of_its_own) {
    uint32_t a = put(&one, 5), b = put(&one, 6), slot, from = 0;
    struct pl_charge c;
    pl_board_drop(&one, a);
    assert_int_equal(left(&one), 0);
    assert_true(pl_board_open(&two, memory, 2));
    put(&two, 9);
    assert_true(pl_board_next(&two, &from, &slot, &c));
    assert_int_equal(slot, b);
    assert_true(c.id == 6 && c.bytes == 60 && c.generation == 7 && c.main == 1);
    assert_false(pl_board_next(&two, &from, &slot, &c));
    assert_true(pl_board_adopt(&two, slot));
    assert_false(pl_board_is_gone(&two, slot, &c));
    pl_board_drop(&two, slot);
    assert_true(pl_board_is_gone(&two, slot, &c));
    assert_int_equal(left(&one), 1); /* for whoever comes after: the new one's */
}

TEST(orphans_of_an_orphan_are_found_too) {
    uint32_t slot, from = 0;
    struct pl_charge c;
    struct pl_board three;
    put(&one, 5);
    assert_true(pl_board_open(&two, memory, 2));
    assert_true(pl_board_next(&two, &from, &slot, &c) && pl_board_adopt(&two, slot));
    assert_true(pl_board_open(&three, memory, 3));
    assert_int_equal(left(&three), 1);
    assert_true(pl_board_adopt(&three, slot));
}

TEST(a_main_that_lives_takes_its_own_off_and_the_slot_may_be_somebody_elses) {
    uint32_t a = put(&one, 5), slot, from = 0;
    struct pl_charge c;
    assert_true(pl_board_open(&two, memory, 2));
    assert_true(pl_board_next(&two, &from, &slot, &c) && pl_board_adopt(&two, slot));
    pl_board_drop(&one, a);
    assert_true(pl_board_is_gone(&two, slot, &c));
    assert_false(pl_board_adopt(&two, slot));
    two.next = a;
    assert_int_equal(put(&two, 8), a);
    assert_true(pl_board_is_gone(&two, slot, &c));
}

TEST(what_other_mains_have_with_a_worker_is_seen) {
    uint32_t a = put(&one, 5);
    assert_true(pl_board_open(&two, memory, 2));
    assert_true(pl_board_has(&two, 7) && !pl_board_has(&two, 8));
    assert_false(pl_board_has(&one, 7)); /* its own */
    assert_true(pl_board_adopt(&two, a));
    assert_true(pl_board_has(&two, 7)); /* until it is over */
    pl_board_drop(&one, a);
    assert_false(pl_board_has(&two, 7));
    for (uint64_t i = 0; i < PL_BOARD_SLOTS; i++) put(&two, 100 + i);
    assert_true(pl_board_has(&two, 8)); /* full: some may not be on it */
    assert_true(pl_board_has(&(struct pl_board){ .at = NULL }, 7));
}

TEST(a_full_board_counts_what_it_could_not_take) {
    for (uint32_t i = 0; i < PL_BOARD_SLOTS; i++) assert_int_not_equal(put(&one, i + 1), PL_BOARD_NONE);
    assert_int_equal(put(&one, 1), PL_BOARD_NONE);
    assert_int_equal(one.unwritten, 1);
    pl_board_drop(&one, 77);
    assert_int_equal(put(&one, 1), 77);
    pl_board_drop(&one, PL_BOARD_NONE);
}

TEST(what_is_no_board_is_not_used) {
    memory[0] ^= 1;
    assert_false(pl_board_open(&two, memory, 2));
    assert_int_equal(put(&two, 1), PL_BOARD_NONE);
    assert_int_equal(left(&two), 0);
    pl_board_drop(&two, 0);
    memory[0] ^= 1;
    memory[4] = 2; /* another major */
    assert_false(pl_board_open(&two, memory, 2));
}

TEST(whatever_is_on_it_is_only_foreign_bytes) {
    for (size_t i = 64; i < sizeof memory; i++) memory[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_true(pl_board_open(&two, memory, 2));
    assert_true(left(&two) <= PL_BOARD_SLOTS);
    for (uint32_t i = 0; i < PL_BOARD_SLOTS; i++) pl_board_drop(&two, i);
    assert_int_equal(left(&two), 0);
}

#define ANEW(test) cmocka_unit_test_setup(test, begin)
RUN(ANEW(the_next_main_finds_what_the_last_one_left_and_nothing_of_its_own),
    ANEW(orphans_of_an_orphan_are_found_too),
    ANEW(a_main_that_lives_takes_its_own_off_and_the_slot_may_be_somebody_elses),
    ANEW(what_other_mains_have_with_a_worker_is_seen), ANEW(a_full_board_counts_what_it_could_not_take),
    ANEW(what_is_no_board_is_not_used), ANEW(whatever_is_on_it_is_only_foreign_bytes))
