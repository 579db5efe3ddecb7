/* The machine is a tree of tests/data/proc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "watch/host.h"

static const char *root(const char *tree, const char *below) {
    static char paths[2][512];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/proc/trees/%s/%s", PL_TEST_DATA, tree, below);
    return path;
}

static struct pl_watch_host group(const char *tree) {
    const struct pl_host_roots at = { root(tree, "proc"), root(tree, "cgroup") };
    struct pl_watch_host h;
    memset(&h, 0x55, sizeof h);
    pl_host_group(&at, "4242", &h);
    return h;
}

TEST(a_process_is_summed_with_what_was_swapped_out) {
    struct pl_watch_worker sum = { 0 };
    assert_true(pl_host_add(root("v2_swapped", "proc"), 4242, &sum));
    assert_int_equal(sum.anon, UINT64_C(131072) << 10);
    assert_int_equal(sum.swap, UINT64_C(3145728) << 10);
    assert_int_equal(sum.rss, (UINT64_C(131072) + 524288 + 8192) << 10);
    pl_host_add(root("v2_normal", "proc"), 4242, &sum);
    assert_int_equal(sum.processes, 2);
    assert_int_equal(sum.anon, (UINT64_C(131072) + 2621440) << 10);
    assert_int_equal(sum.threads, 76);
}

TEST(what_is_gone_or_damaged_is_not_known_and_never_0) {
    struct pl_watch_worker sum = { 0 };
    uint64_t pss, descriptors;
    assert_false(pl_host_add(root("gone", "proc"), 4242, &sum));
    assert_false(pl_host_add(root("damaged", "proc"), 4242, &sum));
    assert_false(pl_host_add(root("v2_normal", "proc"), 1, &sum));
    assert_int_equal(sum.processes, 0);
    pl_host_dear(root("gone", "proc"), 4242, &pss, &descriptors);
    assert_true(pss == PL_WATCH_UNKNOWN && descriptors == PL_WATCH_UNKNOWN);
    pl_host_dear(root("v2_normal", "proc"), 4242, &pss, &descriptors);
    assert_int_equal(pss, UINT64_C(2883584) << 10);
    assert_true(descriptors == PL_WATCH_UNKNOWN); /* the tree has no folder of them */
    pl_host_dear("/proc", getpid(), &pss, &descriptors);
    assert_true(descriptors >= 3 && descriptors != PL_WATCH_UNKNOWN);
}

TEST(the_limit_is_the_smallest_on_the_way_up) {
    static const struct {
        const char *tree;
        uint64_t limit;
    } rows[] = { { "v2_normal", UINT64_C(8) << 30 },  { "v2_container_root", UINT64_C(8) << 30 },
                 { "v1_normal", UINT64_C(8) << 30 },  { "v2_no_limit", PL_WATCH_UNKNOWN },
                 { "v1_no_limit", PL_WATCH_UNKNOWN }, { "gone", PL_WATCH_UNKNOWN } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (group(rows[i].tree).limit != rows[i].limit) fail_msg("%s", rows[i].tree);
}

TEST(a_group_of_either_version_is_read) {
    static const struct {
        const char *tree;
        uint32_t version;
        uint64_t current, peak, anon, file, shmem, kernel, max, oom_kill, group_kill;
    } rows[] = {
        { "v2_normal", 2, 3221225472, 3430940672, 2684354560, 536870912, 8388608, 31457280, 0, 0, 0 },
        { "v2_oom_group", 2, 1073741824, 8589934592, 536870912, 536870912, 8388608, 31457280, 77, 4, 1 },
        { "v2_container_root", 2, 3221225472, PL_WATCH_UNKNOWN, 2684354560, 536870912, 8388608, 31457280, 0,
          0, 0 },
        { "v1_oom_kill", 1, 2147483648, 8589934592, 1610612736, 536870912, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN,
          900, 1, PL_WATCH_UNKNOWN },
        { "v1_old_kernel_after", 1, 1073741824, 8589934592, 536870912, 536870912, PL_WATCH_UNKNOWN,
          PL_WATCH_UNKNOWN, 4411, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN },
        { "damaged", 2, PL_WATCH_UNKNOWN, 3221225472, 2684354560, 536870912, 8388608, 31457280,
          PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN },
        { "gone", 0, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN,
          PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN, PL_WATCH_UNKNOWN },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_watch_host h = group(rows[i].tree);
        if (h.cgroup != rows[i].version || h.current != rows[i].current || h.peak != rows[i].peak ||
            h.anon != rows[i].anon || h.file != rows[i].file || h.shmem != rows[i].shmem ||
            h.kernel != rows[i].kernel || h.events_max != rows[i].max ||
            h.events_oom_kill != rows[i].oom_kill || h.events_oom_group_kill != rows[i].group_kill)
            fail_msg("%s: version %u current %llu peak %llu kernel %llu max %llu", rows[i].tree, h.cgroup,
                     (unsigned long long)h.current, (unsigned long long)h.peak, (unsigned long long)h.kernel,
                     (unsigned long long)h.events_max);
    }
}

TEST(kills_are_counted_or_not_known) {
    static const struct {
        const char *tree;
        bool known;
        uint64_t kills, whole;
    } rows[] = { { "v2_oom_group", true, 4, 1 },   { "v1_oom_kill", true, 1, 0 }, { "v2_normal", true, 0, 0 },
                 { "v1_old_kernel", false, 0, 0 }, { "damaged", false, 0, 0 },    { "gone", false, 0, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pl_host_roots at = { root(rows[i].tree, "proc"), root(rows[i].tree, "cgroup") };
        uint64_t kills = 0, whole = 0;
        bool known = pl_host_kills(&at, "4242", &kills, &whole);
        if (known != rows[i].known || (known && (kills != rows[i].kills || whole != rows[i].whole)))
            fail_msg("%s", rows[i].tree);
    }
}

TEST(members_of_a_group_are_found_and_known_again) {
    struct pl_host_member m[4];
    pid_t leaders[] = { 7, 4242 };
    /* 4242 leads its group in the tree: it is not its own member */
    assert_int_equal(pl_host_members(root("v2_paren_comm", "proc"), leaders, 2, m, 4), 0);
    /* a group of our own: members of the one we were started in come and go as they like */
    int hold[2];
    char c;
    setpgid(0, 0);
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    if (child == 0) {
        close(hold[1]);
        (void)!read(hold[0], &c, 1);
        _exit(0);
    }
    close(hold[0]);
    pid_t group_of[] = { getpgrp() };
    assert_int_equal(pl_host_members("/proc", group_of, 1, m, 4), 1);
    assert_int_equal(m[0].pid, child);
    assert_true(pl_host_same("/proc", &m[0]));
    m[0].start_ticks++; /* the number is another one's now */
    assert_false(pl_host_same("/proc", &m[0]));
    close(hold[1]);
    waitpid(child, NULL, 0);
    assert_int_equal(pl_host_members(root("gone", "nowhere"), leaders, 2, m, 4), 0);
}

/* A child that leads a group, and its own child: both are the leader's, in whatever way they are found. */
TEST(who_belongs_to_whom_is_told_by_group_and_by_parents) {
    int up[2], hold[2];
    assert_int_equal(pipe(up) | pipe(hold), 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        setpgid(0, 0);
        pid_t below = fork();
        if (below == 0) setpgid(0, 0); /* out of the group: only its parents tell */
        if (below != 0) (void)!write(up[1], &below, sizeof below);
        close(hold[1]);
        (void)!read(hold[0], &c, 1);
        _exit(0);
    }
    close(hold[0]);
    pid_t below = 0, seen[64];
    assert_int_equal(read(up[0], &below, sizeof below), sizeof below);
    assert_int_equal(pl_host_leader("/proc", below, &child, 1), child);
    assert_int_equal(pl_host_leader("/proc", child, &child, 1), child);
    assert_int_equal(pl_host_leader("/proc", getpid(), &child, 1), 0);
    size_t n = pl_host_children("/proc", getpid(), seen, 64);
    bool found = false;
    for (size_t i = 0; i < n; i++) found = found || seen[i] == child;
    assert_true(found);
    close(hold[1]);
    waitpid(child, NULL, 0);
    assert_int_equal(pl_host_leader("/proc", child, &below, 1), 0);
}

RUN(cmocka_unit_test(a_process_is_summed_with_what_was_swapped_out),
    cmocka_unit_test(what_is_gone_or_damaged_is_not_known_and_never_0),
    cmocka_unit_test(the_limit_is_the_smallest_on_the_way_up),
    cmocka_unit_test(a_group_of_either_version_is_read), cmocka_unit_test(kills_are_counted_or_not_known),
    cmocka_unit_test(members_of_a_group_are_found_and_known_again),
    cmocka_unit_test(who_belongs_to_whom_is_told_by_group_and_by_parents))
