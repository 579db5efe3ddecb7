#include "unit.h"
#include "worker/host_room.h"

static const uint64_t MIB = UINT64_C(1) << 20;

TEST(a_start_is_held_only_while_another_one_is_under_way) {
    static const struct {
        uint64_t limit, used, coming, peak; /* MiB */
        uint32_t running;
        enum pl_start_verdict verdict;
    } rows[] = {
        { 0, 9999, 9999, 9999, 5, PL_START_NOW },   /* no limit */
        { 1000, 500, 0, 0, 3, PL_START_NOW },       /* nothing is known of it */
        { 1000, 100, 0, 300, 0, PL_START_NOW },     /* room enough */
        { 1000, 100, 300, 600, 1, PL_START_NOW },   /* together just enough */
        { 1000, 100, 301, 600, 1, PL_START_LATER }, /* together one too much */
        { 1000, 900, 0, 600, 0, PL_START_NOW },     /* beside what serves: not a matter of order */
        { 1000, 0, 0, 1000, 0, PL_START_NOW },      /* to the byte */
        { 1000, 0, 0, 1001, 0, PL_START_NEVER },    /* not even alone */
        { 1000, 0, 0, 1001, 7, PL_START_NEVER },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct pl_start_room r = { .limit = rows[i].limit * MIB,
                                         .used = rows[i].used * MIB,
                                         .coming = rows[i].coming * MIB,
                                         .peak = rows[i].peak * MIB,
                                         .running = rows[i].running };
        assert_int_equal(pl_start_judge(&r), rows[i].verdict);
    }
}

TEST(numbers_without_end_do_not_turn_over) {
    const struct pl_start_room r = {
        .limit = UINT64_MAX - 1, .used = UINT64_MAX, .coming = 5, .peak = 1, .running = 1
    };
    assert_int_equal(pl_start_judge(&r), PL_START_LATER);
    assert_true(pl_start_limit(UINT64_MAX, 1, 1) == UINT64_MAX);
}

TEST(the_limit_has_a_tenth_to_spare_in_whole_steps) {
    assert_int_equal(pl_start_limit(100 * MIB, 200 * MIB, 0), 0);
    assert_int_equal(pl_start_limit(0, 0, 1), 64 * MIB);
    assert_int_equal(pl_start_limit(100 * MIB, 200 * MIB, 300 * MIB), 704 * MIB); /* 660 */
    assert_int_equal(pl_start_limit(0, 0, 640 * MIB), 704 * MIB);
}

RUN(cmocka_unit_test(a_start_is_held_only_while_another_one_is_under_way),
    cmocka_unit_test(numbers_without_end_do_not_turn_over),
    cmocka_unit_test(the_limit_has_a_tenth_to_spare_in_whole_steps))
