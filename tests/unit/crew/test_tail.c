/* The last lines of a worker's output, and those since a time. */
#include <string.h>

#include "crew/tail.h"
#include "unit.h"

enum { ROOM = 4 };
#define ALL UINT32_MAX

static struct pl_tail *of_six(void) {
    struct pl_tail *t = pl_tail_create(ROOM);
    static const char *const lines[] = { "one", "two", "three", "four", "five", "six" };
    assert_non_null(t);
    for (uint64_t i = 0; i < 6; i++) pl_tail_add(t, lines[i], strlen(lines[i]), 1000 + 10 * i);
    return t;
}

static void is_told(const struct pl_tail *t, uint32_t lines, uint64_t since, const char *want) {
    struct pl_buf out;
    pl_buf_init(&out, 4096);
    pl_tail_text(t, lines, since, &out);
    assert_string_equal(pl_buf_text(&out), want);
    pl_buf_free(&out);
}

TEST(the_last_lines_are_kept_oldest_first) {
    struct pl_tail *t = of_six();
    is_told(t, ALL, 0, "three\nfour\nfive\nsix\n");
    is_told(t, 2, 0, "five\nsix\n");
    is_told(t, 0, 0, "");
    is_told(t, 100, 0, "three\nfour\nfive\nsix\n");
    assert_int_equal(pl_tail_count(t), 6);
    pl_tail_drop(t);
}

TEST(a_time_leaves_out_what_was_read_before_it) {
    struct pl_tail *t = of_six();
    is_told(t, ALL, 1, "three\nfour\nfive\nsix\n");
    is_told(t, ALL, 1040, "five\nsix\n");
    is_told(t, ALL, 1041, "six\n");
    is_told(t, 1, 1040, "six\n");
    is_told(t, 3, 1050, "six\n");
    is_told(t, ALL, 1051, "");
    pl_tail_drop(t);
}

TEST(a_tail_without_lines_tells_none) {
    struct pl_tail *t = pl_tail_create(ROOM);
    is_told(t, ALL, 0, "");
    is_told(t, 3, 5, "");
    pl_tail_drop(t);
}

RUN(cmocka_unit_test(the_last_lines_are_kept_oldest_first),
    cmocka_unit_test(a_time_leaves_out_what_was_read_before_it),
    cmocka_unit_test(a_tail_without_lines_tells_none))
