/* The card table under several processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drydock/table.h"
#include "unit.h"

#define MIB ((uint64_t)1 << 20)
enum { PROCESSES = 8, STEPS = 2000 };

static struct dd_table *table;
static char name[64];

static int make(void **state) {
    char error[DD_ERROR];
    struct dd_plan p = { .gpu = "mine:1GiBx2", .context = 100 * MIB };
    (void)state;
    snprintf(name, sizeof name, "plimsoll-drydock-%d", (int)getpid());
    table = dd_table_make(name, &p, error);
    if (table == NULL) fail_msg("%s", error);
    dd_table_use(table);
    return 0;
}

static int drop(void **state) {
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    munmap(table, sizeof *table);
    return unlink(path);
}

/* A child that does `what` and is then held until it is killed; returns when it has done it. */
static pid_t child(void (*what)(void)) {
    int ends[2];
    char c;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        what();
        if (write(ends[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &c, 1), 1);
    close(ends[0]);
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void take_600(void) {
    if (dd_charge_context(0) != 0 || dd_charge(0, 600 * MIB) != 0) _exit(1);
}

TEST(a_card_is_shared_and_a_killed_process_gives_its_memory_back) {
    pid_t other = child(take_600);
    int32_t pids[4];
    uint64_t used[4];
    assert_true(dd_used(0) == 700 * MIB);
    assert_int_equal(dd_charge(0, 400 * MIB), -1);
    assert_int_equal(dd_charge(1, 400 * MIB), 0); /* the other card is another one */
    assert_int_equal(dd_processes(0, pids, used, 4), 1);
    assert_int_equal(pids[0], other);
    end(other);
    assert_int_equal(dd_charge(0, 400 * MIB), 0);
    assert_true(dd_used(0) == 400 * MIB);
    dd_uncharge(0, 400 * MIB);
    assert_true(dd_used(0) == 0);
    assert_true(table->card[0].peak == 700 * MIB);
}

TEST(a_card_that_keeps_does_not_give_back) {
    char error[DD_ERROR];
    assert_true(dd_faults_parse(table, "0=kept", error));
    end(child(take_600));
    assert_true(dd_used(0) == 700 * MIB);
    assert_true(dd_faults_parse(table, "0=none", error));
    assert_true(dd_used(0) == 0);
}

TEST(rows_of_ended_processes_keep_their_peaks) {
    end(child(take_600));
    dd_table_reap(table);
    const struct dd_row *gone = NULL;
    for (int i = 0; i < DD_ROWS; i++)
        if (table->row[i].state == DD_GONE) gone = &table->row[i];
    assert_non_null(gone);
    assert_true(gone->use[0].peak == 700 * MIB && gone->use[0].context == 100 * MIB &&
                gone->use[0].used == 0);
}

TEST(the_nth_allocation_and_its_retry_are_refused) {
    table->fail_at = 2;
    assert_int_equal(dd_charge(0, 2 * MIB), 0);
    assert_int_equal(dd_charge(0, 4 * MIB), -1);
    assert_int_equal(dd_charge(0, 4 * MIB), -1); /* the allocator tries once more */
    assert_int_equal(dd_charge(0, 4 * MIB), 0);
    assert_true(dd_used(0) == 6 * MIB);
}

TEST(a_cap_refuses_below_the_total) {
    table->card[0].cap = 100 * MIB;
    assert_int_equal(dd_charge(0, 100 * MIB), 0);
    assert_int_equal(dd_charge(0, 1), -1);
    assert_true(table->row[0].use[0].refused == 1 && table->row[0].use[0].refused_largest == 1);
}

TEST(more_processes_than_rows_reuse_the_oldest_ended_ones) {
    for (int i = 0; i < DD_ROWS + 10; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(dd_charge(0, MIB) != 0);
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(table->rows_born, DD_ROWS + 10);
    assert_true(dd_used(0) == 0);
}

/* Takes and gives at random until it is killed. */
static void wander(unsigned seed) {
    uint64_t mine = 0;
    for (;;) {
        uint64_t bytes = ((uint64_t)rand_r(&seed) % 64 + 1) * MIB;
        if (rand_r(&seed) % 2 == 0 && dd_charge(0, bytes) == 0)
            mine += bytes;
        else if (mine >= bytes)
            dd_uncharge(0, bytes), mine -= bytes;
    }
}

TEST(processes_that_are_killed_at_random_never_overfill_the_card) {
    pid_t pids[PROCESSES] = { 0 };
    unsigned seed = 7;
    for (int step = 0; step < STEPS; step++) {
        int i = rand_r(&seed) % PROCESSES;
        if (step % 20 == 0 && pids[i] != 0) {
            end(pids[i]); /* some of them with the lock in hand */
            pids[i] = 0;
        }
        if (pids[i] == 0) {
            pids[i] = fork();
            if (pids[i] == 0) wander((unsigned)step);
        }
        uint64_t sum = 0;
        dd_table_reap(table);
        pthread_mutex_lock(&table->mutex);
        for (int r = 0; r < DD_ROWS; r++)
            if (table->row[r].state == DD_LIVE) sum += table->row[r].use[0].used;
        pthread_mutex_unlock(&table->mutex);
        assert_true(sum <= 1024 * MIB);
    }
    for (int i = 0; i < PROCESSES; i++)
        if (pids[i] != 0) end(pids[i]);
    assert_true(dd_used(0) == 0);
}

TEST(a_table_of_another_version_is_refused_in_words) {
    char error[DD_ERROR] = "";
    setenv("PLIMSOLL_DRYDOCK_SHM", name, 1);
    table->version++;
    assert_null(dd_table_open(error));
    assert_non_null(strstr(error, "another version"));
    table->version--;
    struct dd_table *same = dd_table_open(error);
    assert_non_null(same);
    munmap(same, sizeof *same);
    unsetenv("PLIMSOLL_DRYDOCK_SHM");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make, drop)
RUN(CASE(a_card_is_shared_and_a_killed_process_gives_its_memory_back),
    CASE(a_card_that_keeps_does_not_give_back), CASE(rows_of_ended_processes_keep_their_peaks),
    CASE(the_nth_allocation_and_its_retry_are_refused), CASE(a_cap_refuses_below_the_total),
    CASE(more_processes_than_rows_reuse_the_oldest_ended_ones),
    CASE(processes_that_are_killed_at_random_never_overfill_the_card),
    CASE(a_table_of_another_version_is_refused_in_words))
