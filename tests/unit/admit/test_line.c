/* Whose turn it is: even between flows, in order within one. */
#include <string.h>

#include "admit/admit.h"
#include "unit.h"

static const struct pl_admit_supply ready = { .ready = 1, .was_ready = true, .places = 1 };
enum { CROWD = 400 };
static struct pl_admit a;
static struct pl_admit_entry e[CROWD];
static struct pl_admit_refusal why;

static void begin(int64_t max) {
    pl_admit_init(&a, &(struct pl_admit_limits){
                          .max_concurrency = max, .queue_requests = CROWD, .max_wait_ms = 1000 });
    memset(e, 0, sizeof e);
}
static void arrive(unsigned i, uint32_t flow, uint64_t cost) {
    e[i].flow = flow;
    e[i].cost = cost;
    assert_int_not_equal(pl_admit_arrive(&a, &e[i], &ready, 1, &why), PL_ADMIT_REFUSED);
}
/* One ends, the next one runs: which? */
static unsigned after(unsigned i) {
    pl_admit_release(&a, &e[i], true, 2);
    struct pl_admit_entry *n = pl_admit_next(&a, &ready, 2);
    assert_non_null(n);
    return (unsigned)(n - e);
}

TEST(a_flood_of_one_does_not_keep_the_others_out) {
    begin(1);
    for (unsigned i = 0; i < 100; i++) arrive(i, 7, 0);
    arrive(100, 8, 0);
    arrive(101, 9, 0);
    arrive(102, 8, 0);
    unsigned order[4], at = 0;
    for (unsigned i = 0; i < 4; i++) order[i] = at = after(at);
    assert_true(order[0] == 1 || order[0] == 100);
    unsigned of_8_and_9 = 0;
    for (unsigned i = 0; i < 4; i++) of_8_and_9 += order[i] >= 100;
    assert_true(of_8_and_9 >= 2);
    /* within a flow the order is that of arrival */
    unsigned last = 0;
    while (a.queued > 0) {
        at = after(at);
        if (at >= 100) continue;
        assert_true(at > last);
        last = at;
    }
}

TEST(shares_are_of_work_not_of_requests) {
    begin(1);
    pl_admit_set_budget(&a, 0, 1000);
    for (unsigned i = 0; i < 40; i++) arrive(i, 1, 100);
    for (unsigned i = 40; i < 200; i++) arrive(i, 2, 25);
    unsigned heavy = 0, at = 0;
    for (unsigned i = 0; i < 100; i++) {
        at = after(at);
        heavy += at < 40;
    }
    assert_true(heavy >= 18 && heavy <= 22); /* a fifth of the requests, half of the work */
}

TEST(who_was_away_does_not_come_back_with_a_credit) {
    begin(1);
    arrive(0, 1, 0);
    for (unsigned i = 1; i < 50; i++) { /* flow 1 alone for a while */
        arrive(i, 1, 0);
        after(i - 1);
    }
    for (unsigned i = 50; i < 60; i++) arrive(i, 1, 0);
    for (unsigned i = 60; i < 70; i++) arrive(i, 2, 0);
    unsigned of_2 = 0, at = 49;
    for (unsigned i = 0; i < 10; i++) of_2 += (at = after(at)) >= 60;
    assert_true(of_2 >= 4 && of_2 <= 6);
}

TEST(expiry_and_eviction_go_by_arrival_whatever_the_turn) {
    begin(1);
    for (unsigned i = 0; i < 5; i++) arrive(i, 1, 0);
    arrive(5, 2, 0);
    assert_int_equal(pl_admit_deadline(&a), 1001);
    assert_ptr_equal(pl_admit_expired(&a, 1001, &why), &e[1]);
    pl_admit_withdraw(&a, &e[3]);
    assert_ptr_equal(pl_admit_evict(&a), &e[2]);
    assert_ptr_equal(pl_admit_evict(&a), &e[4]);
    assert_ptr_equal(pl_admit_evict(&a), &e[5]);
    assert_null(pl_admit_evict(&a));
    assert_int_equal(a.active_count, 0);
}

TEST(any_number_is_a_flow) {
    begin(1);
    arrive(0, 0, 0);
    for (unsigned i = 1; i < CROWD; i++) arrive(i, i * 2654435761u, 0);
    unsigned seen = 1, at = 0;
    while (a.queued > 0) {
        at = after(at);
        seen++;
    }
    assert_int_equal(seen, CROWD);
    assert_int_equal(a.active_count, 0);
}

TEST(a_higher_rank_goes_first_and_shares_are_even_within_one) {
    begin(1);
    arrive(0, 1, 0);
    for (unsigned i = 1; i < 31; i++) { /* key 1 and key 2 at every rank */
        e[i].rank = (uint8_t)(i % 3);
        arrive(i, 1 + i % 2, 0);
    }
    unsigned at = 0, of_key_1 = 0;
    for (unsigned n = 0; n < 30; n++) {
        at = after(at);
        assert_int_equal(e[at].rank, 2 - n / 10);
        of_key_1 += e[at].flow == 1;
        if (n % 10 == 3) assert_true(of_key_1 >= 1 && of_key_1 <= 3);
        if (n % 10 == 9) of_key_1 = 0;
    }
    assert_int_equal(a.active_count, 0);
}

RUN(cmocka_unit_test(a_higher_rank_goes_first_and_shares_are_even_within_one),
    cmocka_unit_test(a_flood_of_one_does_not_keep_the_others_out),
    cmocka_unit_test(shares_are_of_work_not_of_requests),
    cmocka_unit_test(who_was_away_does_not_come_back_with_a_credit),
    cmocka_unit_test(expiry_and_eviction_go_by_arrival_whatever_the_turn),
    cmocka_unit_test(any_number_is_a_flow))
