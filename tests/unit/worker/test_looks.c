#include "unit.h"
#include "worker/looks.h"

static const struct pl_looks by_verdict = { .by_verdict = true, .two = true, .alive = true };
static const struct pl_looks by_hand = { .two = true, .alive = true };

static struct pl_looks with(struct pl_looks l, bool first, uint32_t more) {
    l.first = first;
    l.more = more;
    return l;
}

TEST(only_a_complete_first_look_is_a_first) {
    for (uint32_t more = 0; more <= PL_LOOKS_MORE; more++)
        for (int came = PL_LOOK_COMPLETE; came <= PL_LOOK_NEVER; came++) {
            struct pl_looks a = with(by_verdict, false, more), b = with(by_hand, false, more);
            bool complete = came == PL_LOOK_COMPLETE;
            assert_int_equal(pl_looks_next(&a, (enum pl_look_came)came) == PL_LOOKS_SECOND, complete);
            assert_int_equal(pl_looks_next(&b, (enum pl_look_came)came) == PL_LOOKS_SECOND, complete);
        }
}

TEST(what_had_too_little_time_is_tried_twice_more) {
    static const enum pl_look_came late[] = { PL_LOOK_INCOMPLETE, PL_LOOK_SILENT, PL_LOOK_RUNNING };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        for (int first = 0; first < 2; first++)
            for (uint32_t more = 0; more <= PL_LOOKS_MORE; more++) {
                struct pl_looks l = with(by_verdict, first, more);
                enum pl_looks_next next = pl_looks_next(&l, late[i]);
                assert_int_equal(next == PL_LOOKS_AGAIN, more < PL_LOOKS_MORE);
                l.alive = false;
                assert_int_not_equal(pl_looks_next(&l, late[i]), PL_LOOKS_AGAIN);
            }
}

TEST(whoever_waits_is_told_at_once) {
    struct pl_looks first = with(by_hand, false, 0), second = with(by_hand, true, 0);
    assert_int_equal(pl_looks_next(&first, PL_LOOK_INCOMPLETE), PL_LOOKS_REPORT);
    assert_int_equal(pl_looks_next(&first, PL_LOOK_SILENT), PL_LOOKS_NOTHING);
    assert_int_equal(pl_looks_next(&second, PL_LOOK_INCOMPLETE), PL_LOOKS_REPORT);
    assert_int_equal(pl_looks_next(&second, PL_LOOK_SILENT), PL_LOOKS_FIRST);
    assert_int_equal(pl_looks_next(&second, PL_LOOK_COMPLETE), PL_LOOKS_REPORT);
    first.two = false;
    assert_int_equal(pl_looks_next(&first, PL_LOOK_COMPLETE), PL_LOOKS_REPORT);
}

TEST(in_the_end_there_is_the_first_look_or_nothing) {
    struct pl_looks l = with(by_verdict, true, PL_LOOKS_MORE);
    assert_int_equal(pl_looks_next(&l, PL_LOOK_SILENT), PL_LOOKS_FIRST);
    assert_int_equal(pl_looks_next(&l, PL_LOOK_INCOMPLETE), PL_LOOKS_REPORT);
    l.first = false;
    assert_int_equal(pl_looks_next(&l, PL_LOOK_SILENT), PL_LOOKS_NOTHING);
}

TEST(what_would_be_the_same_again_is_not_asked_again) {
    struct pl_looks l = with(by_verdict, false, 0);
    assert_int_equal(pl_looks_next(&l, PL_LOOK_NEVER), PL_LOOKS_NOTHING);
    assert_int_equal(pl_looks_next(&l, PL_LOOK_BUSY), PL_LOOKS_NOTHING); /* asked anew, not at once */
    l.first = true;
    assert_int_equal(pl_looks_next(&l, PL_LOOK_NEVER), PL_LOOKS_FIRST);
    assert_int_equal(pl_looks_next(&l, PL_LOOK_BUSY), PL_LOOKS_AGAIN);
}

TEST(each_time_it_has_twice_the_time) {
    assert_int_equal(pl_looks_deadline_ms(10000, 0), 10000);
    assert_int_equal(pl_looks_deadline_ms(10000, 1), 20000);
    assert_int_equal(pl_looks_deadline_ms(10000, 2), 40000);
    assert_int_equal(pl_looks_deadline_ms(10000, 50), 40000);
}

RUN(cmocka_unit_test(only_a_complete_first_look_is_a_first),
    cmocka_unit_test(what_had_too_little_time_is_tried_twice_more),
    cmocka_unit_test(whoever_waits_is_told_at_once),
    cmocka_unit_test(in_the_end_there_is_the_first_look_or_nothing),
    cmocka_unit_test(what_would_be_the_same_again_is_not_asked_again),
    cmocka_unit_test(each_time_it_has_twice_the_time))
