#include "admit/poison.h"

#include <stdio.h>

#include <string.h>

#include "unit.h"

static struct pl_poison p;
static uint64_t fp(const char *body) { return pl_poison_fingerprint(3, "/predict", 8, body, strlen(body)); }

TEST(one_death_is_nobodys_fault_and_two_are) {
    pl_poison_forget(&p);
    assert_false(pl_poison_death(&p, fp("a"), 1, 1000));
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 1000), 0);
    assert_true(pl_poison_death(&p, fp("a"), 2, 5000));
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 5000), PL_POISON_WINDOW_MS);
    assert_int_equal(pl_poison_left_ms(&p, fp("b"), 5000), 0);
    assert_int_equal(pl_poison_deaths(&p, fp("a")), 2);
}
TEST(many_at_one_death_count_once) {
    pl_poison_forget(&p);
    for (int i = 0; i < 10; i++) assert_false(pl_poison_death(&p, fp("a"), 7, 1000));
    assert_int_equal(pl_poison_deaths(&p, fp("a")), 1);
}
TEST(deaths_far_apart_do_not_add_up) {
    pl_poison_forget(&p);
    pl_poison_death(&p, fp("a"), 1, 1000);
    assert_false(pl_poison_death(&p, fp("a"), 2, 1001 + PL_POISON_WINDOW_MS));
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 1001 + PL_POISON_WINDOW_MS), 0);
    assert_true(pl_poison_death(&p, fp("a"), 3, 2000 + PL_POISON_WINDOW_MS));
}
TEST(it_ends_after_ten_minutes_or_with_new_code) {
    pl_poison_forget(&p);
    pl_poison_death(&p, fp("a"), 1, 0);
    pl_poison_death(&p, fp("a"), 2, 10);
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 9 + PL_POISON_WINDOW_MS), 1);
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 10 + PL_POISON_WINDOW_MS), 0);
    pl_poison_forget(&p);
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 20), 0);
}
TEST(the_table_stays_small_and_forgets_the_oldest) {
    char body[16];
    pl_poison_forget(&p);
    for (int i = 0; i < 1000; i++) {
        snprintf(body, sizeof body, "%d", i);
        pl_poison_death(&p, fp(body), 1, (uint64_t)i);
    }
    assert_int_equal(p.count, PL_POISON_ENTRIES);
    assert_int_equal(pl_poison_deaths(&p, fp("999")), 1);
    assert_int_equal(pl_poison_deaths(&p, fp("1")), 0);
}
TEST(method_target_and_body_do_not_run_into_each_other) {
    assert_true(pl_poison_fingerprint(3, "/a", 2, "b", 1) != pl_poison_fingerprint(3, "/ab", 3, "", 0));
    assert_true(pl_poison_fingerprint(3, "/a", 2, "b", 1) != pl_poison_fingerprint(3, "/b", 2, "b", 1));
    assert_true(pl_poison_fingerprint(3, "/a", 2, "", 0) != pl_poison_fingerprint(1, "/a", 2, "", 0));
    assert_true(pl_poison_fingerprint(1, "/a?x=1", 6, "", 0) != pl_poison_fingerprint(1, "/a?x=2", 6, "", 0));
}
TEST(who_was_answered_meanwhile_only_stood_beside) {
    pl_poison_forget(&p);
    pl_poison_death(&p, fp("a"), 1, 0);
    pl_poison_death(&p, fp("b"), 1, 0);
    pl_poison_answered(&p, fp("a"));
    pl_poison_answered(&p, fp("c")); /* nobody knows it */
    assert_int_equal(p.count, 1);
    assert_false(pl_poison_death(&p, fp("a"), 2, 10));
    assert_true(pl_poison_death(&p, fp("b"), 2, 10));
    assert_int_equal(pl_poison_left_ms(&p, fp("a"), 20), 0);
    pl_poison_answered(&p, fp("b")); /* one like it was let in before the second death */
    assert_int_equal(pl_poison_left_ms(&p, fp("b"), 20), 0);
}
RUN(cmocka_unit_test(one_death_is_nobodys_fault_and_two_are), cmocka_unit_test(many_at_one_death_count_once),
    cmocka_unit_test(deaths_far_apart_do_not_add_up),
    cmocka_unit_test(it_ends_after_ten_minutes_or_with_new_code),
    cmocka_unit_test(the_table_stays_small_and_forgets_the_oldest),
    cmocka_unit_test(method_target_and_body_do_not_run_into_each_other),
    cmocka_unit_test(who_was_answered_meanwhile_only_stood_beside))
