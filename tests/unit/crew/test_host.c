/* The machine is a tree of tests/data/proc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew/host_read.h"
#include "unit.h"

static const char *root(const char *tree, const char *below) {
    static char paths[2][512];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/proc/trees/%s/%s", PL_TEST_DATA, tree, below);
    return path;
}

TEST(a_process_is_summed_with_what_was_swapped_out) {
    struct pl_host_sum sum = { 0 };
    pl_host_add(root("v2_swapped", "proc"), 4242, &sum);
    assert_true(sum.known);
    assert_int_equal(sum.anon, UINT64_C(131072) << 10);
    assert_int_equal(sum.swap, UINT64_C(3145728) << 10);
    assert_int_equal(sum.rss, (UINT64_C(131072) + 524288 + 8192) << 10);
    pl_host_add(root("v2_normal", "proc"), 4242, &sum);
    assert_int_equal(sum.processes, 2);
    assert_int_equal(sum.anon, (UINT64_C(131072) + 2621440) << 10);
}

TEST(what_is_gone_or_damaged_is_not_known_and_never_0) {
    struct pl_host_sum sum = { 0 };
    pl_host_add(root("gone", "proc"), 4242, &sum);
    pl_host_add(root("damaged", "proc"), 4242, &sum);
    pl_host_add(root("v2_normal", "proc"), 1, &sum);
    assert_false(sum.known);
    assert_int_equal(sum.processes, 0);
}

TEST(the_limit_is_the_smallest_on_the_way_up) {
    static const struct {
        const char *tree;
        uint64_t limit;
    } rows[] = { { "v2_normal", UINT64_C(8) << 30 },
                 { "v2_container_root", UINT64_C(8) << 30 },
                 { "v1_normal", UINT64_C(8) << 30 },
                 { "v2_no_limit", 0 },
                 { "v1_no_limit", 0 },
                 { "gone", 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_host_limit(root(rows[i].tree, "proc"), root(rows[i].tree, "cgroup"), "4242") != rows[i].limit)
            fail_msg("%s", rows[i].tree);
}

TEST(members_of_a_group_are_found_and_known_again) {
    struct pl_host_member m[4];
    pid_t leaders[] = { 7, 4242 };
    /* 4242 leads its group in the tree: it is not its own member */
    assert_int_equal(pl_host_members(root("v2_paren_comm", "proc"), leaders, 2, m, 4), 0);
    /* this process: a member of its own group unless it leads it, and of nobody else's */
    pid_t group[] = { getpgrp() };
    size_t n = pl_host_members("/proc", group, 1, m, 4);
    for (size_t i = 0; i < n; i++) assert_true(pl_host_same("/proc", &m[i]));
    if (n > 0) {
        m[0].start_ticks++; /* the number is another one's now */
        assert_false(pl_host_same("/proc", &m[0]));
    }
    assert_int_equal(pl_host_members(root("gone", "nowhere"), leaders, 2, m, 4), 0);
}

RUN(cmocka_unit_test(a_process_is_summed_with_what_was_swapped_out),
    cmocka_unit_test(what_is_gone_or_damaged_is_not_known_and_never_0),
    cmocka_unit_test(the_limit_is_the_smallest_on_the_way_up),
    cmocka_unit_test(members_of_a_group_are_found_and_known_again))
