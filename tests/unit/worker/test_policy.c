#include "unit.h"
#include "worker/policy.h"

TEST(the_pause_doubles_up_to_its_cap) {
    static const struct {
        uint64_t initial, max;
        uint32_t failed;
        uint64_t pause;
    } rows[] = {
        { 1000, 60000, 0, 1000 },
        { 1000, 60000, 1, 1000 },
        { 1000, 60000, 2, 2000 },
        { 1000, 60000, 3, 4000 },
        { 1000, 60000, 6, 32000 },
        { 1000, 60000, 7, 60000 },
        { 1000, 60000, 100, 60000 },
        { 1000, 60000, UINT32_MAX, 60000 },
        { 5000, 1000, 1, 1000 },
        { 0, 60000, 9, 0 },
        { 3, UINT64_MAX, 63, UINT64_C(13835058055282163712) },
        { 3, UINT64_MAX, 64, UINT64_MAX },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(pl_backoff_ms(rows[i].initial, rows[i].max, rows[i].failed), rows[i].pause);
}

TEST(a_death_after_ready_restarts_at_once_and_a_failed_start_waits) {
    static const struct {
        bool was_ready;
        uint64_t lived_ms;
        uint32_t failed, attempts;
        enum pl_after_death then;
    } rows[] = {
        { true, 86400000, 0, 5, PL_RESTART_NOW }, { true, 1, 0, 5, PL_RESTART_NOW },
        { true, 10000, 3, 5, PL_RESTART_NOW },    { true, 9999, 3, 5, PL_RESTART_LATER },
        { true, 9999, 9, 5, PL_RESTART_LATER }, /* it can be ready: never given up */
        { false, 0, 1, 5, PL_RESTART_LATER },     { false, 0, 4, 5, PL_RESTART_LATER },
        { false, 0, 5, 5, PL_GIVE_UP },           { false, 0, 6, 5, PL_GIVE_UP },
        { false, 0, 1, 1, PL_GIVE_UP },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (pl_after_death(rows[i].was_ready, rows[i].lived_ms, rows[i].failed, rows[i].attempts) !=
            rows[i].then)
            fail_msg("row %zu", i);
}

TEST(a_start_may_take_three_measured_boots) {
    assert_int_equal(pl_start_timeout_ms(0), 600000);
    assert_int_equal(pl_start_timeout_ms(1), 60000);
    assert_int_equal(pl_start_timeout_ms(20000), 60000);
    assert_int_equal(pl_start_timeout_ms(20001), 60003);
    assert_int_equal(pl_start_timeout_ms(400000), 1200000);
    assert_true(pl_start_timeout_ms(UINT64_MAX) == UINT64_MAX);
}

TEST(a_client_is_told_what_is_left_of_the_boot) {
    static const struct {
        uint64_t boot, age, left;
    } rows[] = {
        { 0, 0, 0 },
        { 0, 90000, 0 },
        { 30000, 0, 30000 },
        { 30000, 12000, 18000 },
        { 30000, 29500, 1000 },
        { 30000, 30000, 1000 },
        { 30000, 31000, 1000 },
        { 30000, 50000, 10000 },
        { 1, 0, 1000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(pl_boot_left_ms(rows[i].boot, rows[i].age), rows[i].left);
}

TEST(a_boot_is_learnt_by_a_quarter) {
    assert_int_equal(pl_boot_learn_ms(0, 8000), 8000);
    assert_int_equal(pl_boot_learn_ms(8000, 8000), 8000);
    assert_int_equal(pl_boot_learn_ms(8000, 12000), 9000);
    assert_int_equal(pl_boot_learn_ms(8000, 4000), 7000);
    uint64_t boot = 1000;
    for (int i = 0; i < 30; i++) boot = pl_boot_learn_ms(boot, 50000);
    assert_in_range(boot, 49900, 50000);
}

RUN(cmocka_unit_test(the_pause_doubles_up_to_its_cap),
    cmocka_unit_test(a_death_after_ready_restarts_at_once_and_a_failed_start_waits),
    cmocka_unit_test(a_start_may_take_three_measured_boots),
    cmocka_unit_test(a_client_is_told_what_is_left_of_the_boot),
    cmocka_unit_test(a_boot_is_learnt_by_a_quarter))
