#include "base/arena.h"

#include <string.h>

#include "unit.h"

TEST(cap_is_a_null_not_a_crash) {
    struct pl_arena a;
    pl_arena_init(&a, 64);
    assert_true(pl_arena_alloc(&a, 48) != NULL);
    assert_true(pl_arena_alloc(&a, 32) == NULL);
    assert_true(pl_arena_alloc(&a, 16) != NULL);
    assert_true(a.used == 64 && a.peak == 64);
    pl_arena_free(&a);
    assert_true(a.used == 0);
}

TEST(rollback_returns_to_the_mark) {
    struct pl_arena a;
    pl_arena_init(&a, 0);
    char *kept = pl_arena_strndup(&a, "kept", 4);
    struct pl_arena_mark m = pl_arena_mark(&a);
    for (int i = 0; i < 100; i++) assert_true(pl_arena_alloc(&a, 1000) != NULL);
    pl_arena_rollback(&a, m);
    assert_true(strcmp(kept, "kept") == 0 && a.used == m.used && a.peak > m.used);
    pl_arena_free(&a);
}

TEST(memory_is_zeroed_and_aligned_also_where_it_was_used_before) {
    struct pl_arena a;
    pl_arena_init(&a, 0);
    struct pl_arena_mark m = pl_arena_mark(&a);
    for (int round = 0; round < 3; round++) {
        for (size_t size = 0; size < 100; size += 7) {
            unsigned char *p = pl_arena_alloc(&a, size);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (size_t i = 0; i < size; i++) assert_int_equal(p[i], 0);
            memset(p, 0xff, size);
        }
        pl_arena_rollback(&a, m);
    }
    pl_arena_free(&a);
}

TEST(a_size_that_would_overflow_is_refused) {
    struct pl_arena a;
    pl_arena_init(&a, 0);
    assert_null(pl_arena_alloc(&a, SIZE_MAX));
    assert_null(pl_arena_alloc(&a, SIZE_MAX - 8));
    assert_null(pl_arena_strndup(&a, "", SIZE_MAX));
    pl_arena_free(&a);
}

TEST(who_tries_many_things_can_ask_once_whether_one_was_refused) {
    struct pl_arena a;
    pl_arena_init(&a, 4096);
    struct pl_arena_mark m = pl_arena_mark(&a);
    assert_non_null(pl_arena_alloc(&a, 4000));
    assert_false(a.refused);
    assert_null(pl_arena_alloc(&a, 4000));
    pl_arena_rollback(&a, m);
    assert_non_null(pl_arena_alloc(&a, 4000));
    assert_true(a.refused);
    pl_arena_free(&a);
}

RUN(cmocka_unit_test(cap_is_a_null_not_a_crash), cmocka_unit_test(rollback_returns_to_the_mark),
    cmocka_unit_test(memory_is_zeroed_and_aligned_also_where_it_was_used_before),
    cmocka_unit_test(a_size_that_would_overflow_is_refused),
    cmocka_unit_test(who_tries_many_things_can_ask_once_whether_one_was_refused))
