/* Bytes: charged at arrival, given back at the end, lowered by an OOM, slowly back. */
#include <string.h>

#include "admit/admit.h"
#include "unit.h"

enum { GB = 1000 };
static const struct pl_admit_supply on_one = { .ready = 1, .was_ready = true, .places = 1 };
static const struct pl_admit_supply on_both = { .ready = 2, .was_ready = true, .places = 3 };

static struct pl_admit a;
static struct pl_admit_entry e[64];
static struct pl_admit_refusal why;

static void begin(int64_t max, int64_t queue) {
    pl_admit_init(&a, &(struct pl_admit_limits){
                          .max_concurrency = max, .queue_requests = queue, .max_wait_ms = 1000 });
    memset(e, 0, sizeof e);
    pl_admit_set_budget(&a, 0, 10 * GB);
}

static const char *arrive(unsigned i, uint64_t cost, const struct pl_admit_supply *s) {
    e[i].cost = cost;
    switch (pl_admit_arrive(&a, &e[i], s, 10, &why)) {
    case PL_ADMIT_GO:
        return "go";
    case PL_ADMIT_WAIT:
        return "wait";
    case PL_ADMIT_REFUSED:
        return pl_reason_info(why.reason)->name;
    }
    return "?";
}

TEST(bytes_are_charged_at_arrival_and_the_next_one_waits_for_them) {
    begin(0, 8);
    assert_string_equal(arrive(0, 6 * GB, &on_one), "go");
    assert_string_equal(arrive(1, 4 * GB, &on_one), "go");
    assert_int_equal(a.places[0].charged, 10 * GB);
    assert_string_equal(arrive(2, 1, &on_one), "wait");
    assert_null(pl_admit_next(&a, &on_one, 11));
    pl_admit_release(&a, &e[1], true, 12);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[2]);
    assert_int_equal(a.places[0].charged, 6 * GB + 1);
    pl_admit_release(&a, &e[0], true, 13);
    pl_admit_release(&a, &e[2], true, 13);
    pl_admit_release(&a, &e[2], true, 13);
    assert_int_equal(a.places[0].charged, 0);
}

TEST(a_large_one_at_the_head_is_not_overtaken_for_ever) {
    begin(0, 8);
    arrive(0, 6 * GB, &on_one);
    assert_string_equal(arrive(1, 8 * GB, &on_one), "wait");
    assert_string_equal(arrive(2, 1 * GB, &on_one), "wait");
    assert_null(pl_admit_next(&a, &on_one, 11));
    pl_admit_release(&a, &e[0], true, 12);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[1]);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[2]);
}

TEST(what_can_never_fit_is_told_so) {
    begin(0, 8);
    assert_string_equal(arrive(0, 10 * GB + 1, &on_one), "context_length");
    assert_string_equal(arrive(0, 10 * GB, &on_one), "go");
    assert_string_equal(arrive(1, UINT64_MAX, &on_one), "context_length");
    pl_admit_release(&a, &e[0], true, 12);
    a.places[0].charged = 5 * GB;
    assert_true(pl_budget_oom(&a.places[0], 100));
    a.places[0].charged = 0;
    assert_string_equal(arrive(0, 5 * GB, &on_one), "budget"); /* it would fit into what there was */
    assert_true(why.retry_after_ms >= 1000);
}

TEST(without_a_queue_bytes_refuse_by_their_own_name) {
    begin(2, 0);
    arrive(0, 9 * GB, &on_one);
    assert_string_equal(arrive(1, 2 * GB, &on_one), "budget");
    assert_string_equal(arrive(1, 1 * GB, &on_one), "go");
    assert_string_equal(arrive(2, 0, &on_one), "concurrency");
}

TEST(without_a_budget_or_a_cost_bytes_do_not_count) {
    begin(0, 8);
    arrive(0, 10 * GB, &on_one);
    assert_string_equal(arrive(1, 0, &on_one), "go");
    pl_admit_set_budget(&a, 0, 0);
    assert_string_equal(arrive(2, UINT64_MAX, &on_one), "go");
    pl_admit_release(&a, &e[0], true, 11);
    assert_int_equal(a.places[0].charged, 0);
}

TEST(the_roomiest_place_with_a_worker_is_charged) {
    begin(0, 8);
    pl_admit_set_budget(&a, 1, 10 * GB);
    for (unsigned i = 0; i < 4; i++) assert_string_equal(arrive(i, 5 * GB, &on_both), "go");
    assert_int_equal(e[0].place, 0);
    assert_int_equal(e[1].place, 1);
    assert_int_equal(a.places[0].charged, 10 * GB);
    assert_int_equal(a.places[1].charged, 10 * GB);
    assert_string_equal(arrive(4, 5 * GB, &on_both), "wait");
    pl_admit_release(&a, &e[1], true, 12);
    assert_null(pl_admit_next(&a, &on_one, 12)); /* the free one has no worker */
    assert_ptr_equal(pl_admit_next(&a, &on_both, 12), &e[4]);
    assert_int_equal(e[4].place, 1);
}

TEST(who_comes_back_gives_its_bytes_back) {
    begin(0, 8);
    arrive(0, 6 * GB, &on_one);
    pl_admit_requeue(&a, &e[0]);
    assert_int_equal(a.places[0].charged, 0);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[0]);
    assert_int_equal(a.places[0].charged, 6 * GB);
}

TEST(an_observed_service_lets_them_through_and_tells) {
    begin(0, 8);
    a.limits.observe = true;
    arrive(0, 9 * GB, &on_one);
    assert_string_equal(arrive(1, 9 * GB, &on_one), "go");
    assert_int_equal(a.places[0].charged, 18 * GB);
    assert_string_equal(arrive(2, 11 * GB, &on_one), "go");
    assert_int_equal(why.reason, PL_REASON_CONTEXT_LENGTH);
}

TEST(a_burst_cannot_overshoot) {
    begin(0, 64);
    uint64_t ran = 0;
    for (unsigned i = 0; i < 64; i++) arrive(i, 3 * GB, &on_one);
    assert_int_equal(a.running, 3);
    for (unsigned round = 0; a.running > 0; round++) {
        for (unsigned i = 0; i < 64; i++)
            if (e[i].state == PL_ADMIT_RUNNING) {
                pl_admit_release(&a, &e[i], true, 20 + round);
                ran++;
                break;
            }
        while (pl_admit_next(&a, &on_one, 20 + round) != NULL) assert_true(a.places[0].charged <= 10 * GB);
    }
    assert_int_equal(ran, 64);
    assert_int_equal(a.places[0].charged, 0);
}

/* --- the budget itself */

TEST(an_oom_lowers_it_to_less_than_was_charged) {
    struct pl_budget b = { 0 };
    pl_budget_set(&b, 1000);
    b.charged = 800;
    assert_true(pl_budget_oom(&b, 5));
    assert_int_equal(b.bytes, 720);
    b.charged = 900; /* more than there is now: who ran before is not thrown out */
    assert_int_equal(pl_budget_free(&b), 0);
    uint64_t now = 5 + PL_BUDGET_ONE_MS;
    assert_false(pl_budget_oom(&b, now - 1)); /* the same shortage, told by another one */
    assert_true(pl_budget_oom(&b, now));
    assert_int_equal(b.bytes, 648);
    for (int i = 0; i < 100; i++) pl_budget_oom(&b, now += PL_BUDGET_ONE_MS);
    assert_int_equal(b.bytes, 1000 / 16);
    assert_false(pl_budget_oom(&b, now + PL_BUDGET_ONE_MS));
    assert_int_equal(b.quiet_ms, PL_BUDGET_QUIET_MOST_MS);
}

TEST(it_comes_back_slowly_and_more_slowly_each_time) {
    struct pl_budget b = { 0 };
    pl_budget_set(&b, 1000);
    pl_budget_oom(&b, 0);
    assert_int_equal(b.bytes, 900);
    assert_false(pl_budget_pass(&b, PL_BUDGET_QUIET_MS - 1));
    uint64_t now = PL_BUDGET_QUIET_MS;
    assert_true(pl_budget_pass(&b, now));
    assert_int_equal(b.bytes, 921);
    assert_false(pl_budget_pass(&b, now + PL_BUDGET_STEP_MS - 1));
    for (int i = 0; i < 10; i++) pl_budget_pass(&b, now += PL_BUDGET_STEP_MS);
    assert_int_equal(b.bytes, 1000);
    pl_budget_oom(&b, now);
    assert_false(pl_budget_pass(&b, now + 2 * PL_BUDGET_QUIET_MS - 1));
    assert_true(pl_budget_pass(&b, now + 2 * PL_BUDGET_QUIET_MS));
}

TEST(what_an_oom_taught_outlives_a_reload_and_a_restart) {
    struct pl_budget b = { 0 }, again = { 0 };
    pl_budget_set(&b, 1000);
    b.charged = 500;
    pl_budget_oom(&b, 0);
    pl_budget_set(&b, 2000);
    assert_int_equal(b.bytes, 450);
    pl_budget_set(&b, 400);
    assert_int_equal(b.bytes, 400);
    pl_budget_set(&again, 1000);
    pl_budget_restore(&again, 450, PL_BUDGET_QUIET_MS, 77);
    assert_int_equal(again.bytes, 450);
    assert_false(pl_budget_pass(&again, 77 + PL_BUDGET_QUIET_MS - 1));
    pl_budget_restore(&again, 5000, 1, 0); /* nonsense */
    assert_int_equal(again.bytes, 450);
}

TEST(what_was_taught_before_there_was_a_measure_holds_when_there_is_one) {
    struct pl_budget b = { 0 };
    pl_budget_restore(&b, 450, PL_BUDGET_QUIET_MS, 77);
    assert_int_equal(b.bytes, 0);
    pl_budget_set(&b, 1000);
    assert_int_equal(b.bytes, 450);
    pl_budget_set(&b, 300); /* a neighbour came, and went */
    pl_budget_set(&b, 1000);
    assert_int_equal(b.bytes, 450);
}

TEST(retries_of_the_allocator_lower_it_a_little_and_those_of_an_oom_are_one_with_it) {
    struct pl_budget b = { 0 };
    pl_budget_set(&b, 1000);
    assert_true(pl_budget_retries(&b, 5));
    assert_int_equal(b.bytes, 950);
    assert_false(pl_budget_retries(&b, 6));
    assert_true(pl_budget_oom(&b, 5 + PL_BUDGET_ONE_MS));
    assert_int_equal(b.bytes, 855);
    assert_false(pl_budget_retries(&b, 6 + PL_BUDGET_ONE_MS));
}

TEST(what_fitted_at_some_time_is_no_fault_of_the_request) {
    begin(0, 8);
    a.places[0].ever = 12 * GB;
    assert_string_equal(arrive(0, 11 * GB, &on_one), "budget");
    assert_string_equal(arrive(0, 12 * GB + 1, &on_one), "context_length");
}

TEST(a_gap_is_no_time_to_say_that_there_is_no_room) {
    static const struct pl_admit_supply gap = { .was_ready = true, .boot_left_ms = 500 };
    begin(0, 8);
    a.places[0].ever = 12 * GB;
    pl_admit_set_budget(&a, 0, GB); /* the worker that ends holds the rest */
    assert_string_equal(arrive(0, 8 * GB, &on_one), "budget");
    assert_string_equal(arrive(1, 8 * GB, &gap), "wait");
    assert_string_equal(arrive(2, 13 * GB, &gap), "context_length");
    assert_null(pl_admit_next(&a, &on_one, 11)); /* the next one is there, and so is the old one's memory */
    pl_admit_set_budget(&a, 0, 10 * GB);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[1]);
    pl_admit_release(&a, &e[1], true, 13);
}

TEST(what_others_have_and_what_is_kept_back_is_not_free) {
    begin(0, 8);
    a.places[0].kept = 2 * GB;
    a.places[0].others = 5 * GB;
    assert_string_equal(arrive(0, 9 * GB, &on_one), "budget"); /* not beside what is kept */
    assert_string_equal(arrive(0, 3 * GB, &on_one), "go");
    assert_string_equal(arrive(1, 1, &on_one), "wait");
    a.places[0].others = 0;
    assert_ptr_equal(pl_admit_next(&a, &on_one, 11), &e[1]);
    assert_int_equal(pl_budget_free(&a.places[0]), 5 * GB - 1);
}

/* --- how hard a cost is held to */

TEST(one_that_is_still_learnt_is_charged_and_only_told) {
    begin(0, 8);
    e[0].hold = e[1].hold = e[2].hold = PL_ADMIT_TOLD;
    assert_string_equal(arrive(0, 9 * GB, &on_one), "go");
    assert_int_equal(why.reason, PL_REASON_NONE);
    assert_string_equal(arrive(1, 9 * GB, &on_one), "go");
    assert_int_equal(why.reason, PL_REASON_BUDGET);
    assert_string_equal(arrive(2, 11 * GB, &on_one), "go");
    assert_int_equal(why.reason, PL_REASON_CONTEXT_LENGTH);
    assert_int_equal(a.places[0].charged, 29 * GB);
    assert_string_equal(arrive(3, 1, &on_one), "wait");
    for (unsigned i = 0; i < 3; i++) pl_admit_release(&a, &e[i], true, 12);
    assert_int_equal(a.places[0].charged, 0);
}

TEST(those_that_all_fit_are_never_held_back) {
    begin(0, 8);
    for (unsigned i = 0; i < 4; i++) {
        e[i].hold = PL_ADMIT_FREE;
        assert_string_equal(arrive(i, 9 * GB, &on_one), "go");
        assert_int_equal(why.reason, PL_REASON_NONE);
    }
    assert_int_equal(a.places[0].charged, 36 * GB);
}

TEST(one_of_which_nothing_is_known_runs_alone) {
    begin(0, 8);
    e[1].hold = e[2].hold = PL_ADMIT_ALONE;
    assert_string_equal(arrive(0, 1 * GB, &on_one), "go");
    assert_string_equal(arrive(1, 0, &on_one), "wait");
    assert_string_equal(arrive(2, 0, &on_one), "wait");
    assert_string_equal(arrive(3, 1, &on_one), "wait");
    pl_admit_release(&a, &e[0], true, 12);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[1]);
    assert_int_equal(pl_budget_free(&a.places[0]), 0);
    assert_null(pl_admit_next(&a, &on_one, 12));
    a.alone_held = true; /* its record is not in when its reply is */
    pl_admit_release(&a, &e[1], true, 13);
    assert_null(pl_admit_next(&a, &on_one, 13));
    a.alone_held = false;
    e[2].hold = PL_ADMIT_STRICT; /* it is known by now */
    e[2].cost = 9 * GB;
    assert_ptr_equal(pl_admit_next(&a, &on_one, 14), &e[2]);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 14), &e[3]);
}

TEST(what_a_dead_main_let_in_counts_until_it_ends) {
    struct pl_admit_entry orphan = { 0 }, counted = { 0 };
    begin(3, 8);
    pl_admit_adopt(&a, &orphan, 0, 9 * GB, 5);
    pl_admit_adopt(&a, &counted, PL_ADMIT_NOWHERE, 9 * GB, 5);
    assert_int_equal(a.places[0].orphans, 9 * GB);
    assert_int_equal(a.orphans, 2);
    assert_string_equal(arrive(0, 1 * GB, &on_one), "go");
    assert_string_equal(arrive(1, 0, &on_one), "wait"); /* three run */
    pl_admit_release(&a, &counted, false, 11);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 11), &e[1]);
    assert_string_equal(arrive(2, 2 * GB, &on_one), "wait");
    pl_admit_release(&a, &orphan, false, 12);
    assert_int_equal(a.places[0].orphans, 0);
    assert_int_equal(a.orphans, 0);
    assert_ptr_equal(pl_admit_next(&a, &on_one, 12), &e[2]);
    assert_int_equal(a.places[0].charged, 3 * GB);
}

TEST(a_device_that_does_not_answer_lets_nobody_in) {
    struct pl_admit_supply out = on_one;
    out.out_of_service = true;
    begin(0, 8);
    assert_string_equal(arrive(0, 0, &out), "device_out_of_service");
    arrive(0, 10 * GB, &on_one);
    assert_string_equal(arrive(1, 1, &on_one), "wait");
    pl_admit_release(&a, &e[0], true, 11);
    assert_null(pl_admit_next(&a, &out, 11));
    assert_ptr_equal(pl_admit_next(&a, &on_one, 11), &e[1]);
}

RUN(cmocka_unit_test(what_was_taught_before_there_was_a_measure_holds_when_there_is_one),
    cmocka_unit_test(retries_of_the_allocator_lower_it_a_little_and_those_of_an_oom_are_one_with_it),
    cmocka_unit_test(what_fitted_at_some_time_is_no_fault_of_the_request),
    cmocka_unit_test(a_gap_is_no_time_to_say_that_there_is_no_room),
    cmocka_unit_test(what_others_have_and_what_is_kept_back_is_not_free),
    cmocka_unit_test(one_that_is_still_learnt_is_charged_and_only_told),
    cmocka_unit_test(those_that_all_fit_are_never_held_back),
    cmocka_unit_test(one_of_which_nothing_is_known_runs_alone),
    cmocka_unit_test(what_a_dead_main_let_in_counts_until_it_ends),
    cmocka_unit_test(a_device_that_does_not_answer_lets_nobody_in),
    cmocka_unit_test(bytes_are_charged_at_arrival_and_the_next_one_waits_for_them),
    cmocka_unit_test(a_large_one_at_the_head_is_not_overtaken_for_ever),
    cmocka_unit_test(what_can_never_fit_is_told_so),
    cmocka_unit_test(without_a_queue_bytes_refuse_by_their_own_name),
    cmocka_unit_test(without_a_budget_or_a_cost_bytes_do_not_count),
    cmocka_unit_test(the_roomiest_place_with_a_worker_is_charged),
    cmocka_unit_test(who_comes_back_gives_its_bytes_back),
    cmocka_unit_test(an_observed_service_lets_them_through_and_tells),
    cmocka_unit_test(a_burst_cannot_overshoot), cmocka_unit_test(an_oom_lowers_it_to_less_than_was_charged),
    cmocka_unit_test(it_comes_back_slowly_and_more_slowly_each_time),
    cmocka_unit_test(what_an_oom_taught_outlives_a_reload_and_a_restart))
