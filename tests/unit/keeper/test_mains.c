#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "unit.h"

/* A keeper whose clock the test turns. Its main is a real process that runs /bin/sleep, so that signals can
 * be seen. */
static struct pl_keeper keeper;
static struct pl_keeper *const k = &keeper;
static char word[] = "sleep";
static char seconds[] = "1000";
static char *const argv_sleep[] = { word, seconds, NULL };
enum { START_MS = 1000000 };

static int start(void **state) {
    (void)state;
    memset(k, 0, sizeof *k);
    k->set = (struct pl_keeper_settings){ .hello_ms = 30000,
                                          .hang_ms = 10000,
                                          .abort_ms = 2000,
                                          .stop_ms = 30000,
                                          .crash_window_ms = 60000,
                                          .crash_limit = 5 };
    k->main_argv = argv_sleep;
    k->exe_fd = open("/bin/sleep", O_PATH | O_CLOEXEC);
    k->now_ms = k->looked_ms = START_MS;
    pl_keeper_start_main(k, k->exe_fd, PL_ROLE_HELM);
    return k->mains[0].pid > 0 ? 0 : -1;
}

static int finish(void **state) {
    (void)state;
    for (int i = 0; i < PL_KEEPER_MAINS; i++) {
        if (k->mains[i].pid == 0) continue;
        kill(k->mains[i].pid, SIGKILL);
        waitpid(k->mains[i].pid, NULL, 0);
    }
    return 0;
}

/* Ends with it; the wait status. */
static int ended(struct pl_main *m) {
    int status = 0;
    assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
    pl_keeper_main_ended(k, m, status);
    return status;
}

static int crash(void) {
    struct pl_main *m = pl_keeper_main_with(k, PL_ROLE_HELM);
    assert_non_null(m);
    kill(m->pid, SIGKILL);
    return ended(m);
}

/* Time goes on in steps of a second, as the loop would wake. */
static void pass(uint64_t ms) {
    for (uint64_t end = k->now_ms + ms; k->now_ms < end;) {
        k->now_ms += end - k->now_ms < 1000 ? end - k->now_ms : 1000;
        pl_keeper_look_at_mains(k);
    }
}

static void beat(struct pl_main *m) {
    struct pl_wire_beat *beat = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m->beat_fd, 0);
    atomic_fetch_add(&beat->beats, 1);
    munmap(beat, 4096);
}

TEST(silence_is_measured_from_the_last_beat) {
    struct pl_main *m = &k->mains[0];
    m->greeted = true;
    for (int i = 0; i < 5; i++) {
        beat(m);
        pass(9000);
        assert_int_equal(m->kill_at_ms, 0);
    }
    beat(m);
    pass(10000); /* seen after one second: nine of silence */
    assert_int_equal(m->kill_at_ms, 0);
    pass(1000);
    assert_int_equal(m->kill_at_ms, k->now_ms + k->set.abort_ms);
    assert_int_equal(WTERMSIG(ended(m)), SIGABRT);
}

TEST(a_main_that_sigabrt_does_not_end_gets_sigkill) {
    struct pl_main *m = &k->mains[0];
    m->greeted = true;
    kill(m->pid, SIGSTOP);
    pass(10000);
    assert_true(m->kill_at_ms != 0);
    pass(2000);
    assert_int_equal(WTERMSIG(ended(m)), SIGKILL);
}

TEST(a_keeper_that_slept_blames_nobody) {
    struct pl_main *m = &k->mains[0];
    for (int greeted = 0; greeted <= 1; greeted++) {
        m->greeted = greeted == 1;
        k->now_ms += 3600000;
        pl_keeper_look_at_mains(k);
        assert_int_equal(m->kill_at_ms, 0);
        pass(9000);
        assert_int_equal(m->kill_at_ms, 0);
    }
    pass(1000);
    assert_true(m->kill_at_ms != 0);
}

TEST(hang_0_means_never) {
    k->set.hang_ms = 0;
    k->mains[0].greeted = true;
    pass(100000);
    assert_int_equal(k->mains[0].kill_at_ms, 0);
}

TEST(hello_has_its_own_limit) {
    pass(29000);
    assert_int_equal(k->mains[0].kill_at_ms, 0);
    pass(1000);
    assert_true(k->mains[0].kill_at_ms != 0);
}

TEST(after_bye_silence_is_no_fault_and_its_status_ends_everything) {
    struct pl_main *m = &k->mains[0];
    m->greeted = m->said_bye = true;
    m->leave_by_ms = k->now_ms + 30000;
    k->exit_status = 6;
    pass(29000);
    assert_int_equal(m->kill_at_ms, 0);
    pass(1000);
    assert_int_equal(WTERMSIG(ended(m)), SIGKILL);
    assert_int_equal(k->stop, PL_STOP_OWN);
    assert_int_equal(k->exit_status, 6);
    assert_int_equal(k->crash_count, 0);
}

TEST(the_pauses_grow_and_the_limit_ends_it) {
    static const uint64_t pauses[] = { 1, 100, 500, 2000 };
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        crash();
        assert_int_equal(pl_keeper_crashes(k), i + 1);
        assert_int_equal(k->start_main_at_ms, k->now_ms + pauses[i]);
        assert_null(pl_keeper_main_with(k, PL_ROLE_HELM));
        k->now_ms += pauses[i] - 1;
        pl_keeper_look_at_mains(k);
        assert_null(pl_keeper_main_with(k, PL_ROLE_HELM));
        k->now_ms++;
        pl_keeper_look_at_mains(k);
        assert_non_null(pl_keeper_main_with(k, PL_ROLE_HELM));
    }
    crash();
    assert_int_equal(k->stop, PL_STOP_OWN);
    assert_int_equal(k->exit_status, PL_KEEPER_CRASH_LOOP_STATUS);
    assert_int_equal(k->start_main_at_ms, 0);
}

TEST(crashes_outside_the_window_are_forgiven) {
    for (int i = 0; i < PL_KEEPER_MOST_CRASHES + 3; i++) {
        k->now_ms += 30000;
        crash();
        assert_int_equal(pl_keeper_crashes(k), i == 0 ? 1 : 2);
        assert_int_equal(k->stop, PL_STOP_NONE);
        k->now_ms += 100;
        k->looked_ms = k->now_ms;
        pl_keeper_look_at_mains(k);
    }
}

TEST(a_crash_while_the_stop_is_asked_hands_it_to_the_keeper) {
    pl_keeper_stop(k, PL_STOP_ASKED, 0);
    k->stop_by_ms = k->now_ms + 30000;
    crash();
    assert_int_equal(k->stop, PL_STOP_OWN);
    assert_int_equal(k->exit_status, 0);
    assert_int_equal(k->start_main_at_ms, 0);
}

TEST(a_stop_that_takes_too_long_is_taken_over) {
    pl_keeper_stop(k, PL_STOP_ASKED, 0);
    k->stop_by_ms = k->now_ms + 3000;
    k->mains[0].greeted = true;
    pass(2000);
    assert_int_equal(k->stop, PL_STOP_ASKED);
    pass(1000);
    assert_int_equal(k->stop, PL_STOP_OWN);
    assert_int_equal(WTERMSIG(ended(&k->mains[0])), SIGKILL);
}

TEST(a_stop_never_goes_back) {
    pl_keeper_stop(k, PL_STOP_OWN, 70);
    pl_keeper_stop(k, PL_STOP_ASKED, 0);
    assert_int_equal(k->stop, PL_STOP_OWN);
    assert_int_equal(k->exit_status, 70);
}

TEST(a_deadline_that_is_over_does_not_keep_the_loop_awake) {
    struct pl_main *m = &k->mains[0];
    k->set.hang_ms = 0;
    m->kill_at_ms = m->leave_by_ms = m->closed_ms = m->rest_until_ms = k->now_ms - 1;
    k->start_main_at_ms = k->now_ms - 1;
    k->set.hello_ms = k->set.abort_ms = 1;
    m->beat_ms = k->now_ms - 10;
    assert_int_equal(pl_keeper_mains_deadline(k), k->now_ms + 1000);
    m->rest_until_ms = k->now_ms + 10;
    assert_int_equal(pl_keeper_mains_deadline(k), k->now_ms + 10);
}

/* The helm is with a candidate that an upgrade has started; the old main is leaving. */
static struct pl_main *upgraded(void) {
    struct pl_main *old = pl_keeper_main_with(k, PL_ROLE_HELM);
    int exe = open("/bin/sleep", O_PATH | O_CLOEXEC);
    pl_keeper_start_main(k, exe, PL_ROLE_CANDIDATE);
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    assert_non_null(candidate);
    candidate->exe_fd = exe;
    k->upgrade = PL_UPGRADE_STANDING_DOWN;
    pl_keeper_give_helm(k, candidate);
    assert_ptr_equal(pl_keeper_main_with(k, PL_ROLE_HELM), candidate);
    assert_ptr_equal(pl_keeper_main_with(k, PL_ROLE_LEAVING), old);
    return old;
}

TEST(an_old_main_leaves_in_the_time_that_it_asked_for) {
    k->set.leave_ms = 600000;
    k->mains[0].leave_ms = 5000;
    assert_int_equal(upgraded()->leave_by_ms, k->now_ms + 5000);
}

TEST(a_main_that_crashes_as_soon_as_it_has_the_helm_is_followed_by_the_one_before) {
    int former = k->exe_fd;
    upgraded();
    assert_int_equal(k->former_exe_fd, former);
    assert_int_not_equal(k->exe_fd, former);
    k->now_ms += 9999;
    crash();
    assert_int_equal(k->exe_fd, former);
    assert_int_equal(k->former_exe_fd, 0);
    assert_int_equal(k->start_main_at_ms, k->now_ms + 1);
}

TEST(a_later_crash_may_be_chance_and_a_second_one_is_not) {
    int former = k->exe_fd;
    ended((kill(upgraded()->pid, SIGKILL), pl_keeper_main_with(k, PL_ROLE_LEAVING)));
    int newer = k->exe_fd;
    k->now_ms += 20000;
    crash();
    assert_int_equal(k->exe_fd, newer);
    k->now_ms += 1;
    k->looked_ms = k->now_ms;
    pl_keeper_look_at_mains(k);
    crash();
    assert_int_equal(k->exe_fd, former);
}

TEST(what_crashes_long_after_an_upgrade_is_started_again_as_it_is) {
    ended((kill(upgraded()->pid, SIGKILL), pl_keeper_main_with(k, PL_ROLE_LEAVING)));
    int newer = k->exe_fd;
    k->now_ms += 60001;
    for (int i = 0; i < 2; i++) {
        crash();
        assert_int_equal(k->exe_fd, newer);
        k->now_ms += 100;
        k->looked_ms = k->now_ms;
        pl_keeper_look_at_mains(k);
    }
}

#define WITH_MAIN(f) cmocka_unit_test_setup_teardown(f, start, finish)
RUN(WITH_MAIN(silence_is_measured_from_the_last_beat),
    WITH_MAIN(a_main_that_sigabrt_does_not_end_gets_sigkill), WITH_MAIN(a_keeper_that_slept_blames_nobody),
    WITH_MAIN(hang_0_means_never), WITH_MAIN(hello_has_its_own_limit),
    WITH_MAIN(after_bye_silence_is_no_fault_and_its_status_ends_everything),
    WITH_MAIN(the_pauses_grow_and_the_limit_ends_it), WITH_MAIN(crashes_outside_the_window_are_forgiven),
    WITH_MAIN(a_crash_while_the_stop_is_asked_hands_it_to_the_keeper),
    WITH_MAIN(a_stop_that_takes_too_long_is_taken_over), WITH_MAIN(a_stop_never_goes_back),
    WITH_MAIN(a_deadline_that_is_over_does_not_keep_the_loop_awake),
    WITH_MAIN(an_old_main_leaves_in_the_time_that_it_asked_for),
    WITH_MAIN(a_main_that_crashes_as_soon_as_it_has_the_helm_is_followed_by_the_one_before),
    WITH_MAIN(a_later_crash_may_be_chance_and_a_second_one_is_not),
    WITH_MAIN(what_crashes_long_after_an_upgrade_is_started_again_as_it_is))
