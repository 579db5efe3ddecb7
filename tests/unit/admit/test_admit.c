#include "admit/admit.h"

#include <string.h>

#include "unit.h"

static const struct pl_admit_supply ready = { .ready = 1, .was_ready = true };

static struct pl_admit with(int64_t max, int64_t queue, uint64_t max_wait_ms) {
    struct pl_admit a;
    pl_admit_init(&a, &(struct pl_admit_limits){ max, queue, max_wait_ms, false });
    return a;
}

/* Arrival whose outcome is only a word: "go", "wait", or the reason. */
static const char *arrive(struct pl_admit *a, struct pl_admit_entry *e, const struct pl_admit_supply *s,
                          uint64_t now) {
    struct pl_admit_refusal why = { 0 };
    switch (pl_admit_arrive(a, e, s, now, &why)) {
    case PL_ADMIT_GO:
        return "go";
    case PL_ADMIT_WAIT:
        return "wait";
    case PL_ADMIT_REFUSED:
        return pl_reason_info(why.reason)->name;
    }
    return "?";
}

TEST(free_places_are_taken_at_once_and_the_next_one_waits) {
    struct pl_admit a = with(2, 1, 1000);
    struct pl_admit_entry e[4] = { 0 };
    assert_string_equal(arrive(&a, &e[0], &ready, 10), "go");
    assert_string_equal(arrive(&a, &e[1], &ready, 10), "go");
    assert_string_equal(arrive(&a, &e[2], &ready, 11), "wait");
    assert_string_equal(arrive(&a, &e[3], &ready, 12), "queue_full");
    assert_int_equal(e[3].state, PL_ADMIT_OUTSIDE);
    assert_null(pl_admit_next(&a, &ready, 13));
    pl_admit_release(&a, &e[0], true, 14);
    assert_ptr_equal(pl_admit_next(&a, &ready, 15), &e[2]);
    assert_int_equal(e[2].arrived_ms, 11);
    assert_int_equal(e[2].started_ms, 15);
    assert_null(pl_admit_next(&a, &ready, 15));
    assert_int_equal(a.running, 2);
    assert_int_equal(a.queued, 0);
}

TEST(nobody_overtakes_a_queue_that_has_not_moved_yet) {
    struct pl_admit a = with(1, 10, 1000);
    struct pl_admit_entry e[3] = { 0 };
    arrive(&a, &e[0], &ready, 1);
    arrive(&a, &e[1], &ready, 1);
    pl_admit_release(&a, &e[0], true, 2);
    assert_string_equal(arrive(&a, &e[2], &ready, 2), "wait");
    assert_ptr_equal(pl_admit_next(&a, &ready, 2), &e[1]);
}

TEST(without_a_limit_everybody_runs) {
    for (int64_t none = -2; none <= 0; none++) {
        struct pl_admit a = with(none, 0, 1000);
        struct pl_admit_entry e[1000] = { 0 };
        for (int i = 0; i < 1000; i++) assert_string_equal(arrive(&a, &e[i], &ready, 1), "go");
        assert_int_equal(a.running, 1000);
    }
}

TEST(supply_and_queue_decide_the_word) {
    static const struct {
        int64_t max, queue;
        struct pl_admit_supply s;
        int running; /* before the arrival */
        const char *word;
        uint64_t retry_after_ms;
    } rows[] = {
        /* a first start: nobody knows how long, or somebody does */
        { 4, 10, { .ready = 0 }, 0, "not_ready", 5000 },
        { 4, 10, { .ready = 0, .boot_left_ms = 7100 }, 0, "not_ready", 7100 },
        { 4, 10, { .ready = 0, .boot_left_ms = 120 }, 0, "not_ready", 120 },
        /* a gap: held while the boot fits into max_wait */
        { 4, 10, { .ready = 0, .was_ready = true }, 0, "wait", 0 },
        { 4, 10, { .ready = 0, .was_ready = true, .boot_left_ms = 10000 }, 0, "wait", 0 },
        { 4, 10, { .ready = 0, .was_ready = true, .boot_left_ms = 10001 }, 0, "not_ready", 10001 },
        { 0, 10, { .ready = 0, .was_ready = true, .boot_left_ms = 3000 }, 0, "wait", 0 },
        { 4, 0, { .ready = 0, .was_ready = true, .boot_left_ms = 3000 }, 0, "not_ready", 3000 },
        /* nobody is on the way */
        { 4, 10, { .ready = 0, .was_ready = true, .failed = true }, 0, "not_ready", 5000 },
        { 4, 10, { .ready = 0, .failed = true, .boot_left_ms = 60000 }, 0, "not_ready", 60000 },
        /* draining comes before everything else */
        { 4, 10, { .ready = 1, .was_ready = true, .draining = true }, 0, "draining", 5000 },
        { 4,
          10,
          { .ready = 0, .failed = true, .draining = true, .boot_left_ms = 2000 },
          0,
          "draining",
          2000 },
        /* load */
        { 4, 0, { .ready = 1, .was_ready = true }, 3, "go", 0 },
        { 4, 0, { .ready = 1, .was_ready = true }, 4, "concurrency", 1000 },
        { 4, 10, { .ready = 1, .was_ready = true }, 4, "wait", 0 },
        /* somebody is ready: what is said about the others does not count */
        { 4, 10, { .ready = 1, .failed = true }, 0, "go", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_admit a = with(rows[i].max, rows[i].queue, 10000);
        struct pl_admit_entry before[8] = { 0 }, e = { 0 };
        struct pl_admit_refusal why = { 0 };
        for (int k = 0; k < rows[i].running; k++) arrive(&a, &before[k], &ready, 1);
        enum pl_admit_verdict v = pl_admit_arrive(&a, &e, &rows[i].s, 1, &why);
        const char *word = v == PL_ADMIT_GO     ? "go"
                           : v == PL_ADMIT_WAIT ? "wait"
                                                : pl_reason_info(why.reason)->name;
        if (strcmp(word, rows[i].word) != 0 || why.retry_after_ms != rows[i].retry_after_ms)
            fail_msg("row %zu: %s, %llu ms", i, word, (unsigned long long)why.retry_after_ms);
    }
}

TEST(a_gap_holds_the_queue_until_a_worker_is_ready) {
    struct pl_admit a = with(8, 8, 1000);
    struct pl_admit_entry e[2] = { 0 };
    const struct pl_admit_supply gap = { .was_ready = true };
    assert_string_equal(arrive(&a, &e[0], &gap, 1), "wait");
    assert_string_equal(arrive(&a, &e[1], &gap, 2), "wait");
    assert_null(pl_admit_next(&a, &gap, 3));
    assert_ptr_equal(pl_admit_next(&a, &ready, 4), &e[0]);
    assert_ptr_equal(pl_admit_next(&a, &ready, 4), &e[1]);
}

TEST(who_was_let_in_is_served_while_draining_or_taken_out_on_request) {
    struct pl_admit a = with(1, 8, 1000);
    struct pl_admit_entry e[3] = { 0 };
    struct pl_admit_supply draining = ready;
    draining.draining = true;
    for (int i = 0; i < 3; i++) arrive(&a, &e[i], &ready, 1);
    pl_admit_release(&a, &e[0], true, 2);
    assert_ptr_equal(pl_admit_next(&a, &draining, 2), &e[1]);
    assert_ptr_equal(pl_admit_evict(&a), &e[2]);
    assert_int_equal(e[2].state, PL_ADMIT_OUTSIDE);
    assert_null(pl_admit_evict(&a));
}

TEST(the_oldest_expires_when_it_has_waited_max_wait) {
    struct pl_admit a = with(1, 8, 1000);
    struct pl_admit_entry e[3] = { 0 };
    struct pl_admit_refusal why = { 0 };
    assert_int_equal(pl_admit_deadline(&a), 0);
    arrive(&a, &e[0], &ready, 100);
    assert_int_equal(pl_admit_deadline(&a), 0); /* who runs has no deadline here */
    arrive(&a, &e[1], &ready, 200);
    arrive(&a, &e[2], &ready, 300);
    assert_int_equal(pl_admit_deadline(&a), 1200);
    assert_null(pl_admit_expired(&a, 1199, &why));
    assert_ptr_equal(pl_admit_expired(&a, 1200, &why), &e[1]);
    assert_int_equal(why.reason, PL_REASON_WAITED_TOO_LONG);
    assert_int_equal(why.retry_after_ms, 1000);
    assert_int_equal(pl_admit_deadline(&a), 1300);
    assert_null(pl_admit_expired(&a, 1299, &why));
    /* a live change counts at once */
    pl_admit_set_limits(&a, &(struct pl_admit_limits){ 1, 8, 500, false });
    assert_ptr_equal(pl_admit_expired(&a, 1299, &why), &e[2]);
    assert_null(pl_admit_expired(&a, 99999, &why));
}

TEST(requeued_ones_come_first_and_in_the_order_of_arrival) {
    struct pl_admit a = with(4, 2, 1000);
    struct pl_admit_entry e[6] = { 0 };
    for (int i = 0; i < 6; i++)
        arrive(&a, &e[i], &ready, 50); /* one millisecond: time alone would not tell them apart */
    pl_admit_requeue(&a, &e[2]);
    pl_admit_requeue(&a, &e[0]);
    pl_admit_requeue(&a, &e[3]);
    pl_admit_requeue(&a, &e[1]);
    assert_int_equal(a.running, 0);
    assert_int_equal(a.queued, 6); /* more than the queue takes: they were let in once */
    for (int i = 0; i < 4; i++) assert_ptr_equal(pl_admit_next(&a, &ready, 60), &e[i]);
    assert_int_equal(e[0].arrived_ms, 50);
    assert_null(pl_admit_next(&a, &ready, 60));
}

TEST(lower_limits_evict_nobody_and_higher_ones_let_more_in) {
    struct pl_admit a = with(3, 8, 1000);
    struct pl_admit_entry e[6] = { 0 };
    for (int i = 0; i < 5; i++) arrive(&a, &e[i], &ready, 1);
    pl_admit_set_limits(&a, &(struct pl_admit_limits){ 1, 1, 1000, false });
    assert_int_equal(a.running, 3);
    assert_int_equal(a.queued, 2);
    assert_string_equal(arrive(&a, &e[5], &ready, 1), "queue_full");
    pl_admit_release(&a, &e[0], true, 2);
    pl_admit_release(&a, &e[1], true, 2);
    assert_null(pl_admit_next(&a, &ready, 2));
    pl_admit_release(&a, &e[2], true, 2);
    assert_ptr_equal(pl_admit_next(&a, &ready, 2), &e[3]);
    pl_admit_set_limits(&a, &(struct pl_admit_limits){ -2, 1, 1000, false });
    assert_ptr_equal(pl_admit_next(&a, &ready, 2), &e[4]);
}

TEST(leaving_twice_counts_once) {
    struct pl_admit a = with(1, 8, 1000);
    struct pl_admit_entry e[2] = { 0 };
    arrive(&a, &e[0], &ready, 1);
    arrive(&a, &e[1], &ready, 1);
    pl_admit_withdraw(&a, &e[0]); /* it runs: not in the queue */
    pl_admit_release(&a, &e[1], true, 2);
    pl_admit_requeue(&a, &e[1]);
    assert_int_equal(a.running, 1);
    assert_int_equal(a.queued, 1);
    for (int i = 0; i < 2; i++) {
        pl_admit_withdraw(&a, &e[1]);
        pl_admit_release(&a, &e[0], true, 3);
    }
    assert_int_equal(a.running, 0);
    assert_int_equal(a.queued, 0);
}

RUN(cmocka_unit_test(free_places_are_taken_at_once_and_the_next_one_waits),
    cmocka_unit_test(nobody_overtakes_a_queue_that_has_not_moved_yet),
    cmocka_unit_test(without_a_limit_everybody_runs), cmocka_unit_test(supply_and_queue_decide_the_word),
    cmocka_unit_test(a_gap_holds_the_queue_until_a_worker_is_ready),
    cmocka_unit_test(who_was_let_in_is_served_while_draining_or_taken_out_on_request),
    cmocka_unit_test(the_oldest_expires_when_it_has_waited_max_wait),
    cmocka_unit_test(requeued_ones_come_first_and_in_the_order_of_arrival),
    cmocka_unit_test(lower_limits_evict_nobody_and_higher_ones_let_more_in),
    cmocka_unit_test(leaving_twice_counts_once))
