#include "unit.h"
#include "worker/silence.h"

/* A worker that is asked once a second and never answers. */
static uint64_t nobody_answers(struct pl_silence *s, uint64_t *now, unsigned seconds) {
    uint64_t silent = 0;
    for (unsigned i = 0; i < seconds; i++) {
        *now += 1000;
        pl_silence_unanswered(s);
        silent = pl_silence_look(s, 7, true, *now);
    }
    return silent;
}

TEST(time_without_a_sign_adds_up_and_any_sign_ends_it) {
    struct pl_silence s = { 0 };
    uint64_t now = 1000;
    assert_int_equal(pl_silence_look(&s, 7, true, now), 0);
    assert_int_equal(nobody_answers(&s, &now, 30), 30000);
    pl_silence_sign(&s);
    assert_int_equal(pl_silence_ms(&s), 0);
    assert_int_equal(nobody_answers(&s, &now, 5), 5000);
    now += 1000;
    assert_int_equal(pl_silence_look(&s, 8, true, now), 0); /* its page has moved */
    assert_int_equal(s.unanswered, 0);
}

TEST(a_long_handler_that_nobody_asks_is_no_hang) {
    struct pl_silence s = { 0 };
    for (uint64_t now = 1000; now < 600000; now += 1000)
        assert_int_equal(pl_silence_look(&s, 7, true, now), 0);
    pl_silence_unanswered(&s);
    assert_int_equal(pl_silence_ms(&s), 0); /* one lost answer proves nothing */
}

TEST(an_idle_worker_owes_nothing) {
    struct pl_silence s = { 0 };
    for (uint64_t now = 1000; now < 600000; now += 1000) {
        pl_silence_unanswered(&s);
        assert_int_equal(pl_silence_look(&s, 7, false, now), 0);
    }
}

TEST(when_main_itself_stood_still_its_worker_is_not_blamed) {
    struct pl_silence s = { 0 };
    uint64_t now = 1000;
    pl_silence_look(&s, 7, true, now);
    nobody_answers(&s, &now, 3);
    now += 3600000; /* stopped, or the machine slept */
    assert_int_equal(pl_silence_look(&s, 7, true, now), 3000 + PL_SILENCE_STEP_MS);
}

RUN(cmocka_unit_test(time_without_a_sign_adds_up_and_any_sign_ends_it),
    cmocka_unit_test(a_long_handler_that_nobody_asks_is_no_hang),
    cmocka_unit_test(an_idle_worker_owes_nothing),
    cmocka_unit_test(when_main_itself_stood_still_its_worker_is_not_blamed))
