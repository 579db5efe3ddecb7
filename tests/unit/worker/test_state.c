#include <string.h>

#include "unit.h"
#include "worker/state.h"

static bool step(enum pl_worker_state *s, enum pl_worker_event e) { return pl_worker_next(*s, e, s); }

/* Walks a line of events; every one must mean something. */
static enum pl_worker_state walk(enum pl_worker_state s, const enum pl_worker_event *events, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!step(&s, events[i]))
            fail_msg("%s in %s", pl_worker_event_name(events[i]), pl_worker_state_name(s));
    return s;
}
#define WALK(from, ...)                                       \
    walk(from, (const enum pl_worker_event[]){ __VA_ARGS__ }, \
         sizeof((const enum pl_worker_event[]){ __VA_ARGS__ }) / sizeof(enum pl_worker_event))

#define EACH_PAIR(s, e)                                              \
    for (enum pl_worker_state s = 0; s < PL_WORKER_STATE_COUNT; s++) \
        for (enum pl_worker_event e = 0; e < PL_WORKER_EVENT_COUNT; e++)

TEST(only_warmed_leads_to_ready) {
    EACH_PAIR(s, e) {
        enum pl_worker_state to = PL_WORKER_IDLE;
        if (pl_worker_next(s, e, &to) && to == PL_WORKER_READY)
            assert_true(s == PL_WORKER_WARMING && e == PL_WEV_WARMED);
    }
}

TEST(only_gone_has_no_way_out) {
    for (enum pl_worker_state s = 0; s < PL_WORKER_STATE_COUNT; s++) {
        int out = 0;
        for (enum pl_worker_event e = 0; e < PL_WORKER_EVENT_COUNT; e++) {
            enum pl_worker_state to;
            out += pl_worker_next(s, e, &to);
        }
        assert_true((out > 0) == (s != PL_WORKER_GONE));
    }
}

TEST(an_event_without_meaning_changes_nothing) {
    int meaningless = 0;
    EACH_PAIR(s, e) {
        enum pl_worker_state to = PL_WORKER_STATE_COUNT;
        if (pl_worker_next(s, e, &to)) {
            assert_true(to < PL_WORKER_STATE_COUNT);
        } else {
            assert_int_equal(to, PL_WORKER_STATE_COUNT);
            meaningless++;
        }
    }
    assert_true(meaningless > 0);
}

TEST(stop_and_exit_lead_every_living_worker_to_stopping) {
    static const enum pl_worker_state living[] = { PL_WORKER_SPAWNING, PL_WORKER_LOADING, PL_WORKER_WARMING,
                                                   PL_WORKER_READY, PL_WORKER_DRAINING };
    for (size_t i = 0; i < sizeof living / sizeof living[0]; i++) {
        assert_int_equal(WALK(living[i], PL_WEV_STOP), PL_WORKER_STOPPING);
        assert_int_equal(WALK(living[i], PL_WEV_EXITED), PL_WORKER_STOPPING);
    }
    assert_int_equal(WALK(PL_WORKER_STOPPING, PL_WEV_EXITED), PL_WORKER_STOPPING);
}

TEST(whatever_has_a_process_loses_it_by_exit_and_emptiness) {
    EACH_PAIR(s, e) { /* an edge never loses or gains a process in passing */
        enum pl_worker_state to;
        if (!pl_worker_next(s, e, &to)) continue;
        if (!pl_worker_has_process(s) && pl_worker_has_process(to)) assert_int_equal(e, PL_WEV_START);
        if (pl_worker_has_process(s) && !pl_worker_has_process(to))
            assert_true(e == PL_WEV_EMPTY || e == PL_WEV_WAIT || e == PL_WEV_GIVE_UP);
    }
    for (enum pl_worker_state s = 0; s < PL_WORKER_STATE_COUNT; s++)
        if (pl_worker_has_process(s)) assert_int_equal(WALK(s, PL_WEV_EXITED, PL_WEV_EMPTY), PL_WORKER_GONE);
}

TEST(only_a_ready_worker_takes_requests) {
    for (enum pl_worker_state s = 0; s < PL_WORKER_STATE_COUNT; s++)
        assert_int_equal(pl_worker_accepts(s), s == PL_WORKER_READY);
}

TEST(what_is_kept_from_getting_ready_is_stopped) {
    static const enum pl_worker_state starting[] = { PL_WORKER_SPAWNING, PL_WORKER_LOADING,
                                                     PL_WORKER_WARMING };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(WALK(starting[i], PL_WEV_START_TIMEOUT), PL_WORKER_STOPPING);
        assert_int_equal(WALK(starting[i], PL_WEV_REPLACE), PL_WORKER_STOPPING);
    }
    assert_int_equal(WALK(PL_WORKER_WARMING, PL_WEV_WARM_FAILED), PL_WORKER_STOPPING);
    enum pl_worker_state ready = PL_WORKER_READY;
    assert_false(step(&ready, PL_WEV_START_TIMEOUT)); /* a timer that fires late kills nobody */
    assert_false(step(&ready, PL_WEV_WARM_FAILED));
}

TEST(only_a_stopping_worker_gets_stuck) {
    EACH_PAIR(s, e) {
        enum pl_worker_state to;
        if (pl_worker_next(s, e, &to) && to == PL_WORKER_STUCK)
            assert_true(s == PL_WORKER_STOPPING && e == PL_WEV_UNREAPED);
    }
    assert_int_equal(WALK(PL_WORKER_STUCK, PL_WEV_EMPTY), PL_WORKER_GONE);
}

TEST(a_whole_life_passes_every_station) {
    assert_int_equal(WALK(PL_WORKER_IDLE, PL_WEV_START, PL_WEV_SPAWNED, PL_WEV_LOADED, PL_WEV_WARMED),
                     PL_WORKER_READY);
    assert_int_equal(WALK(PL_WORKER_READY, PL_WEV_REPLACE), PL_WORKER_DRAINING);
    assert_int_equal(WALK(PL_WORKER_DRAINING, PL_WEV_DRAINED, PL_WEV_EXITED, PL_WEV_EMPTY), PL_WORKER_GONE);
    assert_int_equal(
        WALK(PL_WORKER_DRAINING, PL_WEV_DRAIN_TIMEOUT, PL_WEV_UNREAPED, PL_WEV_EXITED, PL_WEV_EMPTY),
        PL_WORKER_GONE);
    assert_int_equal(WALK(PL_WORKER_IDLE, PL_WEV_STOP), PL_WORKER_GONE);
}

TEST(a_failed_start_waits_or_gives_up_and_a_retry_ends_both) {
    assert_int_equal(WALK(PL_WORKER_LOADING, PL_WEV_EXITED, PL_WEV_WAIT), PL_WORKER_BACKOFF);
    assert_int_equal(WALK(PL_WORKER_LOADING, PL_WEV_EXITED, PL_WEV_GIVE_UP), PL_WORKER_FAILED);
    assert_int_equal(WALK(PL_WORKER_BACKOFF, PL_WEV_RETRY), PL_WORKER_GONE);
    assert_int_equal(WALK(PL_WORKER_FAILED, PL_WEV_RETRY), PL_WORKER_GONE);
    assert_int_equal(WALK(PL_WORKER_BACKOFF, PL_WEV_STOP), PL_WORKER_GONE);
    assert_int_equal(WALK(PL_WORKER_FAILED, PL_WEV_STOP), PL_WORKER_GONE);
}

TEST(names_are_those_of_labels_and_numbers_from_elsewhere_are_unknown) {
    assert_string_equal(pl_worker_state_name(PL_WORKER_READY), "ready");
    assert_string_equal(pl_worker_event_name(PL_WEV_GIVE_UP), "give_up");
    assert_string_equal(pl_worker_state_name((enum pl_worker_state)99), "unknown");
    assert_string_equal(pl_worker_event_name((enum pl_worker_event)99), "unknown");
    for (enum pl_worker_state s = 0; s < PL_WORKER_STATE_COUNT; s++)
        for (enum pl_worker_state t = 0; t < s; t++)
            assert_string_not_equal(pl_worker_state_name(s), pl_worker_state_name(t));
}

RUN(cmocka_unit_test(only_warmed_leads_to_ready), cmocka_unit_test(only_gone_has_no_way_out),
    cmocka_unit_test(an_event_without_meaning_changes_nothing),
    cmocka_unit_test(stop_and_exit_lead_every_living_worker_to_stopping),
    cmocka_unit_test(whatever_has_a_process_loses_it_by_exit_and_emptiness),
    cmocka_unit_test(only_a_ready_worker_takes_requests),
    cmocka_unit_test(what_is_kept_from_getting_ready_is_stopped),
    cmocka_unit_test(only_a_stopping_worker_gets_stuck), cmocka_unit_test(a_whole_life_passes_every_station),
    cmocka_unit_test(a_failed_start_waits_or_gives_up_and_a_retry_ends_both),
    cmocka_unit_test(names_are_those_of_labels_and_numbers_from_elsewhere_are_unknown))
