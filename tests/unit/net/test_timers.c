#include <stdlib.h>

#include "net/timers.h"
#include "unit.h"

static uint64_t fake_ms;
static uint64_t fake_now(void *ctx) {
    (void)ctx;
    return fake_ms;
}
static const struct pl_clock fake_clock = { .now_ms = fake_now, .wall_ms = fake_now };

struct item {
    struct pl_timer timer;
    struct pl_timers *wheel;
    uint64_t fired_ms;
    unsigned times;
    uint64_t again_ms;
    struct item *victim;
};

static void fire(struct pl_timer *t) {
    struct item *i = PL_TIMER_OWNER(t, struct item, timer);
    i->fired_ms = fake_ms;
    i->times++;
    if (i->victim != NULL) pl_timer_stop(&i->victim->timer);
    if (i->again_ms != 0) pl_timer_start(i->wheel, t, i->again_ms, fire);
}

static void walk_to(struct pl_timers *w, uint64_t ms) {
    while (fake_ms < ms) {
        fake_ms++;
        pl_timers_advance(w, fake_ms);
    }
}

TEST(a_deadline_never_fires_early_and_at_most_a_tick_late) {
    fake_ms = 1003;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    static const uint64_t after[] = { 0, 1, 7, 8, 9, 50, 999, 8191, 8192, 8193, 20000, 75000 };
    struct item items[sizeof after / sizeof after[0]] = { 0 };
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++)
        pl_timer_start(w, &items[i].timer, after[i], fire);
    walk_to(w, 1003 + 80000);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        assert_int_equal(items[i].times, 1);
        assert_in_range(items[i].fired_ms, 1003 + after[i], 1003 + after[i] + PL_TIMER_TICK_MS);
    }
    pl_timers_destroy(w);
}

TEST(a_stopped_one_does_not_fire_and_a_restarted_one_fires_once) {
    fake_ms = 5;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    struct item stopped = { 0 }, restarted = { 0 };
    pl_timer_start(w, &stopped.timer, 20, fire);
    pl_timer_start(w, &restarted.timer, 20, fire);
    assert_true(pl_timer_running(&stopped.timer));
    pl_timer_stop(&stopped.timer);
    pl_timer_stop(&stopped.timer);
    assert_false(pl_timer_running(&stopped.timer));
    walk_to(w, 15);
    pl_timer_start(w, &restarted.timer, 100, fire);
    walk_to(w, 300);
    assert_int_equal(stopped.times, 0);
    assert_int_equal(restarted.times, 1);
    assert_in_range(restarted.fired_ms, 115, 123);
    pl_timers_destroy(w);
}

TEST(one_that_starts_itself_again_does_not_spin) {
    fake_ms = 0;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    struct item i = { .wheel = w, .again_ms = 1 };
    pl_timer_start(w, &i.timer, 0, fire);
    walk_to(w, 80);
    assert_in_range(i.times, 8, 12);
    pl_timers_destroy(w);
}

TEST(a_fire_function_may_stop_its_neighbour_in_the_same_slot) {
    fake_ms = 0;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    struct item a = { 0 }, b = { 0 };
    a.victim = &b;
    b.victim = &a;
    pl_timer_start(w, &a.timer, 10, fire);
    pl_timer_start(w, &b.timer, 10, fire);
    walk_to(w, 100);
    assert_int_equal(a.times + b.times, 1);
    pl_timers_destroy(w);
}

TEST(after_a_long_sleep_everything_due_fires_and_the_rest_waits) {
    fake_ms = 0;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    struct item items[200] = { 0 };
    for (unsigned i = 0; i < 200; i++) pl_timer_start(w, &items[i].timer, (uint64_t)i * 997, fire);
    fake_ms = 100000;
    pl_timers_advance(w, fake_ms);
    for (unsigned i = 0; i < 200; i++) assert_int_equal(items[i].times, (uint64_t)i * 997 <= 100000);
    walk_to(w, 200 * 997 + 10);
    for (unsigned i = 0; i < 200; i++) assert_int_equal(items[i].times, 1);
    pl_timers_destroy(w);
}

TEST(random_starts_and_stops_agree_with_a_simple_list) {
    enum { COUNT = 64, STEPS = 20000 };
    static struct item items[COUNT];
    static uint64_t due[COUNT]; /* 0: not running */
    unsigned seed = 7;
    fake_ms = 12345;
    struct pl_timers *w = pl_timers_create(NULL, &fake_clock);
    for (unsigned step = 0; step < STEPS; step++) {
        seed = seed * 1103515245u + 12345u;
        unsigned i = (seed >> 16) % COUNT;
        unsigned kind = (seed >> 8) % 4;
        if (kind == 0) {
            pl_timer_stop(&items[i].timer);
            due[i] = 0;
        } else {
            uint64_t after = (seed >> 4) % (kind == 1 ? 30u : kind == 2 ? 3000u : 30000u);
            pl_timer_start(w, &items[i].timer, after, fire);
            due[i] = fake_ms + after;
        }
        fake_ms += (seed >> 24) % 16;
        pl_timers_advance(w, fake_ms);
        for (unsigned k = 0; k < COUNT; k++) {
            if (items[k].times == 0) {
                assert_true(due[k] == 0 || due[k] + PL_TIMER_TICK_MS >= fake_ms);
                continue;
            }
            assert_int_equal(items[k].times, 1);
            assert_true(due[k] != 0 && due[k] <= fake_ms);
            items[k].times = 0;
            due[k] = 0;
        }
    }
    pl_timers_destroy(w);
}

TEST(the_loop_sleeps_until_something_is_due_and_then_fires_it) {
    uv_loop_t loop;
    struct item i = { 0 };
    uv_loop_init(&loop);
    struct pl_timers *w = pl_timers_create(&loop, &pl_clock_system);
    uint64_t before = pl_now_ms(&pl_clock_system);
    pl_timer_start(w, &i.timer, 30, fire);
    while (i.times == 0) uv_run(&loop, UV_RUN_ONCE);
    assert_true(pl_now_ms(&pl_clock_system) - before >= 30);
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 0); /* nothing left: the uv_timer sleeps */
    pl_timers_destroy(w);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

RUN(cmocka_unit_test(a_deadline_never_fires_early_and_at_most_a_tick_late),
    cmocka_unit_test(a_stopped_one_does_not_fire_and_a_restarted_one_fires_once),
    cmocka_unit_test(one_that_starts_itself_again_does_not_spin),
    cmocka_unit_test(a_fire_function_may_stop_its_neighbour_in_the_same_slot),
    cmocka_unit_test(after_a_long_sleep_everything_due_fires_and_the_rest_waits),
    cmocka_unit_test(random_starts_and_stops_agree_with_a_simple_list),
    cmocka_unit_test(the_loop_sleeps_until_something_is_due_and_then_fires_it))
