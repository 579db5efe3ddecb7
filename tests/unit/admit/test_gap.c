/* A gap that was opened on purpose (handover), and a service that is only observed. */
#include "admit/admit.h"
#include "unit.h"

static const struct pl_admit_supply ready = { .ready = 1, .was_ready = true };

/* Nobody serves for `left_ms` more; requests may be held for `hold_ms`. */
static struct pl_admit_supply handover(uint64_t left_ms, uint64_t hold_ms) {
    return (struct pl_admit_supply){
        .was_ready = true, .handover = true, .boot_left_ms = left_ms, .hold_ms = hold_ms
    };
}

static struct pl_admit with(int64_t max, int64_t queue, uint64_t max_wait_ms) {
    struct pl_admit a;
    pl_admit_init(&a, &(struct pl_admit_limits){
                          .max_concurrency = max, .queue_requests = queue, .max_wait_ms = max_wait_ms });
    return a;
}

TEST(only_what_can_be_served_within_the_hold_is_held) {
    static const struct {
        uint64_t left_ms, hold_ms;
        int64_t queue;
        enum pl_admit_verdict verdict;
        enum pl_reason reason;
    } rows[] = {
        { 5000, 5000, 8, PL_ADMIT_WAIT, PL_REASON_NONE },
        { 5001, 5000, 8, PL_ADMIT_REFUSED, PL_REASON_HANDOVER },
        { 20000, 30000, 8, PL_ADMIT_WAIT,
          PL_REASON_NONE }, /* the hold is longer than max_wait: it was bounded before */
        { 0, 5000, 8, PL_ADMIT_REFUSED, PL_REASON_HANDOVER }, /* nobody knows how long */
        { 1000, 0, 8, PL_ADMIT_REFUSED, PL_REASON_HANDOVER },
        { 1000, 5000, 0, PL_ADMIT_REFUSED, PL_REASON_HANDOVER }, /* there is no queue to hold it in */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_admit a = with(-2, rows[i].queue, 10000);
        struct pl_admit_entry e = { 0 };
        struct pl_admit_refusal why;
        struct pl_admit_supply s = handover(rows[i].left_ms, rows[i].hold_ms);
        if (pl_admit_arrive(&a, &e, &s, 1, &why) != rows[i].verdict) fail_msg("row %zu", i);
        assert_int_equal(why.reason, rows[i].reason);
        if (why.reason == PL_REASON_HANDOVER)
            assert_int_equal(why.retry_after_ms, rows[i].left_ms != 0 ? rows[i].left_ms : 5000);
    }
}

TEST(who_is_held_longer_than_the_hold_is_told_what_is_left_now) {
    struct pl_admit a = with(-2, 8, 60000);
    struct pl_admit_entry e[2] = { 0 };
    struct pl_admit_refusal why;
    struct pl_admit_supply s = handover(4000, 5000);
    assert_int_equal(pl_admit_arrive(&a, &e[0], &s, 1000, &why), PL_ADMIT_WAIT);
    assert_int_equal(pl_admit_arrive(&a, &e[1], &s, 2000, &why), PL_ADMIT_WAIT);
    assert_int_equal(pl_admit_deadline(&a), 6000);
    assert_null(pl_admit_expired(&a, 5999, &why));
    s = handover(1500, 5000); /* it is late */
    assert_null(pl_admit_next(&a, &s, 6000));
    assert_ptr_equal(pl_admit_expired(&a, 6000, &why), &e[0]);
    assert_int_equal(why.reason, PL_REASON_HANDOVER);
    assert_int_equal(why.retry_after_ms, 1500);
    assert_null(pl_admit_expired(&a, 6000, &why));
    assert_ptr_equal(pl_admit_next(&a, &ready, 6500), &e[1]);
}

TEST(who_waited_before_is_held_from_the_opening_and_let_go_if_the_gap_is_too_long) {
    struct pl_admit a = with(1, 8, 60000);
    struct pl_admit_entry e[3] = { 0 };
    struct pl_admit_refusal why;
    for (int i = 0; i < 3; i++) pl_admit_arrive(&a, &e[i], &ready, 1000, &why);
    pl_admit_release(&a, &e[0], true, 20000);
    struct pl_admit_supply s = handover(4000, 5000);
    assert_null(pl_admit_next(&a, &s, 20000));
    assert_int_equal(pl_admit_deadline(&a), 25000);
    assert_null(pl_admit_expired(&a, 24999, &why));
    assert_ptr_equal(pl_admit_next(&a, &ready, 24999), &e[1]);
    s = handover(30000, 5000);
    assert_null(pl_admit_next(&a, &s, 25000));
    assert_ptr_equal(pl_admit_expired(&a, 25000, &why), &e[2]);
    assert_int_equal(why.reason, PL_REASON_HANDOVER);
    assert_int_equal(why.retry_after_ms, 30000);
}

TEST(held_time_is_not_counted_again_when_the_gap_is_over) {
    struct pl_admit a = with(1, 8, 10000);
    struct pl_admit_entry e[2] = { 0 };
    struct pl_admit_refusal why;
    struct pl_admit_supply s = handover(30000, 40000);
    for (int i = 0; i < 2; i++) assert_int_equal(pl_admit_arrive(&a, &e[i], &s, 1000, &why), PL_ADMIT_WAIT);
    assert_ptr_equal(pl_admit_next(&a, &ready, 31000), &e[0]);
    assert_null(pl_admit_next(&a, &ready, 31000)); /* one place */
    assert_null(pl_admit_expired(&a, 31000, &why));
    assert_int_equal(pl_admit_deadline(&a), 41000);
    assert_ptr_equal(pl_admit_expired(&a, 41000, &why), &e[1]);
    assert_int_equal(why.reason, PL_REASON_WAITED_TOO_LONG);
}

TEST(a_handover_of_one_of_several_holds_nobody) {
    struct pl_admit a = with(-2, 8, 10000);
    struct pl_admit_entry e = { 0 };
    struct pl_admit_refusal why;
    struct pl_admit_supply s = handover(30000, 5000);
    s.ready = 1;
    assert_int_equal(pl_admit_arrive(&a, &e, &s, 1, &why), PL_ADMIT_GO);
}

TEST(who_is_only_observed_is_let_through_and_told_what_would_have_been) {
    struct pl_admit a = with(2, 1, 10000);
    struct pl_admit_entry e[5] = { 0 };
    struct pl_admit_refusal why;
    static const enum pl_reason told[] = { PL_REASON_NONE, PL_REASON_NONE, /* places */
                                           PL_REASON_NONE,                 /* would have waited */
                                           PL_REASON_QUEUE_FULL, PL_REASON_QUEUE_FULL };
    a.limits.observe = true;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(pl_admit_arrive(&a, &e[i], &ready, 1, &why), PL_ADMIT_GO);
        if (why.reason != told[i]) fail_msg("request %zu", i);
    }
    assert_int_equal(a.running, 5);
    for (size_t i = 0; i < 5; i++) pl_admit_release(&a, &e[i], true, 2);
    assert_int_equal(pl_admit_arrive(&a, &e[0], &ready, 3, &why), PL_ADMIT_GO);
    assert_int_equal(why.reason, PL_REASON_NONE);
    a.limits.queue_requests = 0;
    pl_admit_arrive(&a, &e[1], &ready, 3, &why);
    assert_int_equal(pl_admit_arrive(&a, &e[2], &ready, 3, &why), PL_ADMIT_GO);
    assert_int_equal(why.reason, PL_REASON_CONCURRENCY);
}

TEST(observed_or_not_nobody_can_be_let_through_to_no_worker) {
    struct pl_admit a = with(1, 8, 10000);
    struct pl_admit_entry e[3] = { 0 };
    struct pl_admit_refusal why;
    struct pl_admit_supply gap = { .was_ready = true, .boot_left_ms = 3000 };
    a.limits.observe = true;
    for (int i = 0; i < 3; i++) assert_int_equal(pl_admit_arrive(&a, &e[i], &gap, 1, &why), PL_ADMIT_WAIT);
    gap.boot_left_ms = 30000;
    struct pl_admit_entry late = { 0 };
    assert_int_equal(pl_admit_arrive(&a, &late, &gap, 1, &why), PL_ADMIT_REFUSED);
    assert_int_equal(why.reason, PL_REASON_NOT_READY);
    for (int i = 0; i < 3; i++) assert_ptr_equal(pl_admit_next(&a, &ready, 2), &e[i]); /* all at once */
}

RUN(cmocka_unit_test(only_what_can_be_served_within_the_hold_is_held),
    cmocka_unit_test(who_is_held_longer_than_the_hold_is_told_what_is_left_now),
    cmocka_unit_test(who_waited_before_is_held_from_the_opening_and_let_go_if_the_gap_is_too_long),
    cmocka_unit_test(held_time_is_not_counted_again_when_the_gap_is_over),
    cmocka_unit_test(a_handover_of_one_of_several_holds_nobody),
    cmocka_unit_test(who_is_only_observed_is_let_through_and_told_what_would_have_been),
    cmocka_unit_test(observed_or_not_nobody_can_be_let_through_to_no_worker))
