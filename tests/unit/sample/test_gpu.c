#include "sample/gpu.h"

#include "unit.h"

static const uint64_t gib = UINT64_C(1) << 30, mib = UINT64_C(1) << 20;

static struct pl_watch_gpu card(uint64_t used) {
    return (struct pl_watch_gpu){
        .flags = PL_WATCH_GPU_PROCESSES, .total = 40 * gib, .used = used, .free = 40 * gib - used
    };
}

static void put(struct pl_watch_gpu *g, uint32_t pid, uint32_t leader, uint64_t bytes) {
    g->processes[g->process_count++] = (struct pl_watch_process){ pid, leader, bytes };
}

TEST(foreign_is_what_is_used_less_ours) {
    struct pl_watch_gpu g = card(20 * gib);
    put(&g, 812, 812, 6 * gib);
    put(&g, 830, 812, 2 * gib); /* its child */
    put(&g, 99, 0, 5 * gib);
    assert_int_equal(pl_gpu_process_bytes(&g, 812), 8 * gib);
    assert_int_equal(pl_gpu_process_bytes(&g, 0), 13 * gib);
    assert_int_equal(pl_gpu_foreign(&g, true, PL_WATCH_UNKNOWN), 12 * gib);
}

TEST(a_list_of_other_peoples_numbers_is_not_believed) {
    struct pl_watch_gpu g = card(20 * gib);
    assert_int_equal(pl_gpu_foreign(&g, true, 3 * gib), 3 * gib); /* empty, as in a container */
    assert_true(pl_gpu_foreign(&g, true, PL_WATCH_UNKNOWN) == PL_WATCH_UNKNOWN);
    assert_int_equal(pl_gpu_foreign(&g, false, PL_WATCH_UNKNOWN), 20 * gib); /* none of ours is there */
    put(&g, 4711, 0, 19 * gib);
    assert_int_equal(pl_gpu_foreign(&g, true, gib), gib);
    g.flags = 0; /* no bytes told */
    put(&g, 812, 812, PL_WATCH_UNKNOWN);
    assert_int_equal(pl_gpu_foreign(&g, true, 2 * gib), 2 * gib);
    assert_true(pl_gpu_foreign(&g, false, 2 * gib) == 2 * gib); /* one of ours is still on it */
    g.used = PL_WATCH_UNKNOWN;
    assert_true(pl_gpu_foreign(&g, false, 2 * gib) == PL_WATCH_UNKNOWN);
}

TEST(memory_comes_back_or_it_does_not) {
    struct pl_watch_gpu before = card(21 * gib), after;
    struct pl_gpu_hold h;
    put(&before, 812, 812, 10 * gib);
    put(&before, 900, 900, 10 * gib);
    assert_true(pl_gpu_hold_take(&before, 812, &h));
    assert_true(h.bytes == 10 * gib && h.apart == gib && h.pid_count == 1);
    after = card(11 * gib);
    put(&after, 900, 900, 10 * gib);
    assert_int_equal(pl_gpu_hold_left(&h, &after), 0);
    after = card(30 * gib); /* its successor has taken 19 */
    put(&after, 900, 900, 10 * gib);
    put(&after, 950, 950, 19 * gib);
    assert_int_equal(pl_gpu_hold_left(&h, &after), 0);
    after = card(21 * gib); /* nobody is listed for ten of it */
    put(&after, 900, 900, 10 * gib);
    assert_int_equal(pl_gpu_hold_left(&h, &after), 10 * gib);
    after = card(21 * gib); /* it is still listed */
    put(&after, 900, 900, 10 * gib);
    put(&after, 812, 0, 10 * gib);
    assert_int_equal(pl_gpu_hold_left(&h, &after), 10 * gib);
    after.flags = 0;
    assert_true(pl_gpu_hold_left(&h, &after) == PL_WATCH_UNKNOWN);
}

TEST(who_has_nothing_holds_nothing) {
    struct pl_watch_gpu g = card(21 * gib);
    struct pl_gpu_hold h;
    assert_false(pl_gpu_hold_take(&g, 812, &h));
    put(&g, 812, 812, 0);
    assert_false(pl_gpu_hold_take(&g, 812, &h));
    assert_false(pl_gpu_hold_take(&g, 0, &h));
    g.flags = 0;
    g.processes[0].bytes = gib;
    assert_false(pl_gpu_hold_take(&g, 812, &h));
}

TEST(a_power_cap_is_no_throttling) {
    assert_false(pl_gpu_throttled(0x1 | 0x2 | 0x4 | 0x10 | 0x100));
    static const uint64_t bits[] = { 0x8, 0x20, 0x40, 0x80 };
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) assert_true(pl_gpu_throttled(bits[i]));
}

TEST(a_hundredth_of_the_card_is_notable) {
    struct pl_watch_gpu g = card(0);
    assert_int_equal(pl_gpu_notable(&g), 40 * gib / 100);
    g.total = 8 * gib;
    assert_int_equal(pl_gpu_notable(&g), 256 * mib);
    g.total = PL_WATCH_UNKNOWN;
    assert_int_equal(pl_gpu_notable(&g), 256 * mib);
}

RUN(cmocka_unit_test(foreign_is_what_is_used_less_ours),
    cmocka_unit_test(a_list_of_other_peoples_numbers_is_not_believed),
    cmocka_unit_test(memory_comes_back_or_it_does_not), cmocka_unit_test(who_has_nothing_holds_nothing),
    cmocka_unit_test(a_power_cap_is_no_throttling), cmocka_unit_test(a_hundredth_of_the_card_is_notable))
