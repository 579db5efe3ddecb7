#include "base/log_marks.h"

#include "unit.h"

static struct pl_log_marks m;
static _Atomic uint64_t a, b;

static int empty(void **state) {
    (void)state;
    m = (struct pl_log_marks){ .first = PL_LOG_MARKS - 3 }; /* it wraps */
    a = b = 0;
    return 0;
}

TEST(a_target_is_raised_when_its_place_is_written) {
    pl_log_marks_add(&m, 10, &a, 1);
    pl_log_marks_add(&m, 20, &b, 2);
    pl_log_marks_add(&m, 30, &a, 3);
    pl_log_marks_reach(&m, 9);
    assert_int_equal(a, 0);
    pl_log_marks_reach(&m, 20);
    assert_int_equal(a, 1);
    assert_int_equal(b, 2);
    pl_log_marks_reach(&m, 1000);
    assert_int_equal(a, 3);
    assert_int_equal(m.count, 0);
}

TEST(a_target_never_falls_and_a_forgotten_one_is_not_touched) {
    a = 50;
    pl_log_marks_add(&m, 1, &a, 7);
    pl_log_marks_add(&m, 2, &b, 8);
    pl_log_marks_forget(&m, &b);
    pl_log_marks_reach(&m, 2);
    assert_int_equal(a, 50);
    assert_int_equal(b, 0);
}

TEST(when_it_is_full_the_newest_of_each_target_stays_in_order) {
    for (uint64_t i = 1; i <= PL_LOG_MARKS; i++) pl_log_marks_add(&m, i, i % 2 == 0 ? &a : &b, i);
    pl_log_marks_add(&m, PL_LOG_MARKS + 1, &b, 1000);
    assert_int_equal(m.count, 3);
    pl_log_marks_reach(&m, PL_LOG_MARKS - 1);
    assert_int_equal(b, PL_LOG_MARKS - 1);
    assert_int_equal(a, 0);
    pl_log_marks_reach(&m, PL_LOG_MARKS);
    assert_int_equal(a, PL_LOG_MARKS);
    pl_log_marks_reach(&m, PL_LOG_MARKS + 1);
    assert_int_equal(b, 1000);
}

TEST(as_many_targets_as_places_lose_nothing_that_was_there) {
    static _Atomic uint64_t many[PL_LOG_MARKS];
    for (uint64_t i = 0; i < PL_LOG_MARKS; i++) pl_log_marks_add(&m, i + 1, &many[i], i + 1);
    pl_log_marks_add(&m, PL_LOG_MARKS + 1, &a, 9);
    pl_log_marks_reach(&m, PL_LOG_MARKS + 1);
    for (uint64_t i = 0; i < PL_LOG_MARKS; i++) assert_int_equal(many[i], i + 1);
    assert_int_equal(a, 0);
}

RUN(cmocka_unit_test_setup(a_target_is_raised_when_its_place_is_written, empty),
    cmocka_unit_test_setup(a_target_never_falls_and_a_forgotten_one_is_not_touched, empty),
    cmocka_unit_test_setup(when_it_is_full_the_newest_of_each_target_stays_in_order, empty),
    cmocka_unit_test_setup(as_many_targets_as_places_lose_nothing_that_was_there, empty))
