/* The drain rate, Retry-After and predicted_wait: a small machine with `places` places serves requests of one
 * length. */
#include "admit/admit.h"

#include "unit.h"

static const struct pl_admit_supply ready = { .ready = 1, .was_ready = true };

enum { CROWD = 512 };
struct machine {
    struct pl_admit a;
    struct pl_admit_entry pool[CROWD];
    uint64_t now, length_ms;
    int used;
};

static void start(struct machine *m, int64_t places, int64_t queue, uint64_t max_wait_ms,
                  uint64_t length_ms) {
    *m = (struct machine){ .now = 1000, .length_ms = length_ms };
    pl_admit_init(&m->a, &(struct pl_admit_limits){ places, queue, max_wait_ms, false });
}

static enum pl_admit_verdict come(struct machine *m, struct pl_admit_refusal *why) {
    for (int i = 0; i < CROWD; i++)
        if (m->pool[i].state == PL_ADMIT_OUTSIDE)
            return pl_admit_arrive(&m->a, &m->pool[i], &ready, m->now, why);
    fail_msg("the crowd is too large");
    return PL_ADMIT_REFUSED;
}

static void pass(struct machine *m, uint64_t ms) {
    for (uint64_t end = m->now + ms; m->now < end;) {
        m->now++;
        for (int i = 0; i < CROWD; i++)
            if (m->pool[i].state == PL_ADMIT_RUNNING && m->now - m->pool[i].started_ms >= m->length_ms)
                pl_admit_release(&m->a, &m->pool[i], true, m->now);
        while (pl_admit_next(&m->a, &ready, m->now) != NULL) continue;
    }
}

/* Keeps the queue at `waiting` for `ms`. */
static void flood(struct machine *m, int64_t waiting, uint64_t ms) {
    struct pl_admit_refusal why;
    for (uint64_t end = m->now + ms; m->now < end; pass(m, 1))
        while (m->a.queued < waiting && come(m, &why) != PL_ADMIT_REFUSED) continue;
}

static void assert_rate(const struct machine *m, double want) {
    if (m->a.drain_per_s < 0.9 * want || m->a.drain_per_s > 1.1 * want)
        fail_msg("%g releases per second, wanted %g", m->a.drain_per_s, want);
}

TEST(under_load_the_rate_is_what_the_machine_gives) {
    static const struct {
        int64_t places;
        uint64_t length_ms, for_ms;
        double rate;
    } rows[] = { { 1, 10, 5000, 100 },   { 4, 100, 5000, 40 },         { 64, 50, 3000, 1280 },
                 { 2, 7, 60000, 285.7 }, { 4, 30000, 120000, 0.1333 }, { 1, 1, 3000, 1000 } };
    static struct machine m;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        start(&m, rows[i].places, 100, 3600000, rows[i].length_ms);
        flood(&m, 20, rows[i].for_ms);
        assert_rate(&m, rows[i].rate);
    }
}

TEST(a_quiet_time_does_not_make_the_machine_slow) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 4, 400, 10000, 100);
    flood(&m, 20, 5000);
    pass(&m, 2000);
    for (int i = 0; i < 60; i++) { /* one a second */
        assert_int_equal(come(&m, &why), PL_ADMIT_GO);
        pass(&m, 1000);
    }
    assert_rate(&m, 40);
}

TEST(a_service_that_was_never_full_refuses_nobody_by_prediction) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 64, 400, 1000, 50);
    for (int i = 0; i < 100; i++) {
        come(&m, &why);
        pass(&m, 1000);
    }
    assert_int_equal((int)m.a.drain_per_s, 0);
    assert_int_equal(pl_admit_retry_after(&m.a), 1000);
    for (int i = 0; i < 464; i++) assert_int_not_equal(come(&m, &why), PL_ADMIT_REFUSED);
    assert_int_equal(come(&m, &why), PL_ADMIT_REFUSED);
    assert_int_equal(why.reason, PL_REASON_QUEUE_FULL);
}

TEST(a_long_queue_is_refused_by_prediction_once_the_rate_is_known) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 1, 400, 10000, 1000); /* one a second, ten seconds: ten may wait */
    for (int i = 0; i < 101; i++) assert_int_not_equal(come(&m, &why), PL_ADMIT_REFUSED);
    pass(&m, 8000);
    assert_int_equal(come(&m, &why), PL_ADMIT_REFUSED);
    assert_int_equal(why.reason, PL_REASON_PREDICTED_WAIT);
    assert_in_range(why.retry_after_ms, 90000, 97000); /* 93 in the queue */
    while (m.a.queued > 9) pl_admit_withdraw(&m.a, m.a.newest);
    assert_int_equal(come(&m, &why), PL_ADMIT_WAIT);
    assert_int_equal(come(&m, &why), PL_ADMIT_REFUSED);
}

TEST(seven_releases_are_not_enough_to_refuse_by) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 1, 400, 10000, 1000);
    for (int i = 0; i < 101; i++) come(&m, &why);
    pass(&m, 7000);
    assert_int_equal(come(&m, &why), PL_ADMIT_WAIT);
    pass(&m, 1000);
    assert_int_equal(come(&m, &why), PL_ADMIT_REFUSED);
}

TEST(a_machine_that_hangs_is_told_by_a_falling_rate) {
    static struct machine m;
    struct pl_admit_refusal why = { 0 };
    start(&m, 4, 100, 3600000, 100);
    flood(&m, 20, 5000);
    assert_rate(&m, 40);
    m.length_ms = UINT64_MAX;
    pass(&m, 95000);
    assert_true(m.a.drain_per_s < 2.1);
    pass(&m, 900000);
    while (come(&m, &why) == PL_ADMIT_WAIT) continue;
    assert_int_equal(why.reason, PL_REASON_QUEUE_FULL);
    assert_true(why.retry_after_ms > 100000);
}

TEST(a_machine_that_changes_its_pace_is_followed) {
    static struct machine m;
    start(&m, 4, 100, 3600000, 100);
    flood(&m, 20, 60000);
    m.length_ms = 400;
    flood(&m, 20, 90000);
    assert_rate(&m, 10);
    m.length_ms = 50;
    flood(&m, 20, 60000);
    assert_rate(&m, 80);
}

TEST(another_number_of_places_and_a_long_silence_forget_the_rate) {
    static struct machine m;
    start(&m, 4, 100, 3600000, 100);
    flood(&m, 20, 5000);
    pl_admit_set_limits(&m.a, &(struct pl_admit_limits){ 4, 50, 60000, false });
    assert_rate(&m, 40);
    pl_admit_set_limits(&m.a, &(struct pl_admit_limits){ 5, 50, 60000, false });
    assert_true(m.a.drain_per_s <= 0);
    flood(&m, 20, 5000);
    assert_rate(&m, 50);
    pass(&m, 1000);
    m.now += 700000;
    pass(&m, 1);
    assert_true(m.a.drain_per_s <= 0);
}

TEST(retry_after_lies_between_one_second_and_one_hour) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 64, 400, 3600000, 50);
    flood(&m, 20, 2000);
    assert_int_equal(pl_admit_retry_after(&m.a), 1000); /* 21 / 1280 s */
    start(&m, 1, 400, 3600000, 60000);
    for (int i = 0; i < 200; i++) come(&m, &why);
    pass(&m, 180000);
    assert_int_equal(pl_admit_retry_after(&m.a), 3600000); /* 197 minutes */
}

TEST(what_was_not_served_does_not_count) {
    static struct machine m;
    struct pl_admit_refusal why;
    start(&m, 1, 400, 3600000, UINT64_MAX);
    for (int i = 0; i < 20; i++) come(&m, &why);
    for (int i = 0; i < 20; i++) {
        pass(&m, 100);
        pl_admit_release(&m.a, &m.pool[i], false, m.now);
        pl_admit_next(&m.a, &ready, m.now);
    }
    assert_int_equal(m.a.running, 0);
    assert_true(m.a.drain_per_s <= 0);
}

RUN(cmocka_unit_test(under_load_the_rate_is_what_the_machine_gives),
    cmocka_unit_test(a_quiet_time_does_not_make_the_machine_slow),
    cmocka_unit_test(a_service_that_was_never_full_refuses_nobody_by_prediction),
    cmocka_unit_test(a_long_queue_is_refused_by_prediction_once_the_rate_is_known),
    cmocka_unit_test(seven_releases_are_not_enough_to_refuse_by),
    cmocka_unit_test(a_machine_that_hangs_is_told_by_a_falling_rate),
    cmocka_unit_test(a_machine_that_changes_its_pace_is_followed),
    cmocka_unit_test(another_number_of_places_and_a_long_silence_forget_the_rate),
    cmocka_unit_test(retry_after_lies_between_one_second_and_one_hour),
    cmocka_unit_test(what_was_not_served_does_not_count))
