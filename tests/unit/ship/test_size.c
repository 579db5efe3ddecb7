/* test_size.c - the numbers of a manifest: the three worked examples, and the edges of each formula. */
#include "unit.h"

#include "ship/size.h"

static struct pl_size s;

static const struct pl_measured one_gpu = { .boots_s = { 21.4, 23.0, 38.6 },
                                            .boot_count = 3,
                                            .cold_boot = true,
                                            .pull_s = 95,
                                            .schedule_s = 5,
                                            .longest_request_s = 30,
                                            .queue_max_wait_s = 10,
                                            .worker_stop_s = 10,
                                            .weights_bytes = 1288490188,
                                            .main_bytes = 41943040,
                                            .worker_steady_bytes = 2254857830,
                                            .worker_load_peak_bytes = 3650722201,
                                            .shm_known = true,
                                            .cpu_p95 = 0.6 };
static const struct pl_measured vllm = { .boots_s = { 212, 225, 418 },
                                         .boot_count = 3,
                                         .cold_boot = true,
                                         .pull_s = 300,
                                         .schedule_s = 5,
                                         .longest_request_s = 120,
                                         .queue_max_wait_s = 10,
                                         .worker_stop_s = 12,
                                         .main_bytes = 62914560,
                                         .worker_steady_bytes = 16106127360,
                                         .worker_load_peak_bytes = 27917287424,
                                         .shm_peak_bytes = 1288490188,
                                         .shm_known = true };

TEST(one_gpu_as_worked_out_by_hand) {
    const struct pl_size_ask ask = { .replicas = 1, .gpus = 1, .workers = 1, .keep_weights_cached = true };
    pl_ship_size(&one_gpu, &ask, &s);
    assert_int_equal(s.start_period_s, 1);
    assert_int_equal(s.start_failures, 60);
    assert_int_equal(s.start_timeout_s, 50);
    assert_int_equal(s.pre_stop_s, 5);
    assert_int_equal(s.drain_s, 40);
    assert_int_equal(s.grace_s, 60);
    assert_int_equal(s.peak_bytes, 3692665241);
    assert_int_equal(s.memory_mib, 5632);
    assert_int_equal(s.shm_mib, 0);
    assert_int_equal(s.cpu_millis, 2000);
    assert_int_equal(s.deadline_s, 600);
    assert_int_equal(pl_size_strategy(&ask), PL_STRATEGY_RECREATE);
}

TEST(four_gpus_behind_a_picker) {
    const struct pl_size_ask ask = { .replicas = 2, .gpus = 4, .workers = 1, .front = PL_FRONT_PICKER };
    pl_ship_size(&vllm, &ask, &s);
    assert_int_equal(s.start_period_s, 5);
    assert_int_equal(s.start_failures, 126);
    assert_int_equal(s.grace_s, 180);
    assert_int_equal(s.memory_mib, 33536);
    assert_int_equal(s.shm_mib, 2560);
    assert_int_equal(s.deadline_s, 1403);
    assert_int_equal(s.scale_up_s, 423);
    assert_int_equal(s.scale_down_s, 3600);
    assert_int_equal(s.scale_down_period_s, 900);
    assert_int_equal(pl_size_strategy(&ask), PL_STRATEGY_ONE_DOWN);
}

/* Fewer than three boots, or none known to be cold, and the budget is three times the slowest. */
TEST(few_boots_are_not_trusted) {
    const struct pl_size_ask ask = { .replicas = 1, .workers = 1 };
    struct pl_measured m = one_gpu;
    m.cold_boot = false;
    pl_ship_size(&m, &ask, &s);
    assert_int_equal(s.start_budget_s, 116);
    m.cold_boot = true;
    m.boot_count = 2;
    pl_ship_size(&m, &ask, &s);
    assert_int_equal(s.start_budget_s, 69);
}

TEST(nothing_measured_is_guessed_and_says_so) {
    const struct pl_size_ask ask = { .replicas = 1, .gpus = 2, .workers = 1 };
    const struct pl_measured nothing = { 0 };
    pl_ship_size(&nothing, &ask, &s);
    assert_false(s.boot_known || s.host_known || s.stop_known || s.cpu_known);
    assert_true(s.shm_guessed);
    assert_int_equal(s.shm_mib, 2048);
    assert_true(s.start_budget_s >= 300 && s.memory_mib > 2048 && s.worker_stop_s == 10);
}

/* A replacement beside the old worker needs room for one more load; in a handover the old one is gone. */
TEST(overlap_has_room_for_one_more_load) {
    struct pl_size_ask ask = { .replicas = 1, .workers = 3 };
    const struct pl_measured m = { .main_bytes = 1,
                                   .worker_steady_bytes = 100,
                                   .worker_load_peak_bytes = 150 };
    assert_int_equal(pl_size_peak(&m, &ask), 1 + 2 * 100 + 150);
    ask.overlap = true;
    assert_int_equal(pl_size_peak(&m, &ask), 1 + 3 * 100 + 150);
}

TEST(room_for_one_more_pod_means_a_surge) {
    struct pl_size_ask ask = { .replicas = 3, .workers = 1 };
    assert_int_equal(pl_size_strategy(&ask), PL_STRATEGY_SURGE);
    ask.gpus = 1;
    assert_int_equal(pl_size_strategy(&ask), PL_STRATEGY_ONE_DOWN);
    ask.spare_gpu = true;
    assert_int_equal(pl_size_strategy(&ask), PL_STRATEGY_SURGE);
}

TEST(guaranteed_pods_get_whole_cores) {
    const struct pl_size_ask ask = { .replicas = 1, .workers = 1, .guaranteed = true };
    pl_ship_size(&one_gpu, &ask, &s);
    assert_int_equal(s.cpu_millis, 1000);
}

RUN(cmocka_unit_test(one_gpu_as_worked_out_by_hand), cmocka_unit_test(four_gpus_behind_a_picker),
    cmocka_unit_test(few_boots_are_not_trusted), cmocka_unit_test(nothing_measured_is_guessed_and_says_so),
    cmocka_unit_test(overlap_has_room_for_one_more_load),
    cmocka_unit_test(room_for_one_more_pod_means_a_surge), cmocka_unit_test(guaranteed_pods_get_whole_cores))
