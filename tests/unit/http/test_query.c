#include "unit.h"

#include <string.h>

#include "http/query.h"

static struct pl_http_query q;

static bool reads(const char *target) { return pl_http_query_read(target, strlen(target), &q); }

TEST(the_path_stays_as_it_came_and_parameters_are_decoded) {
    assert_true(reads("/logs/my%20chat+1?worker=2&follow=1&&x=a+b%2Fc&flag&x=second&=v&empty="));
    assert_string_equal(q.path, "/logs/my%20chat+1");
    assert_int_equal(q.count, 7);
    assert_string_equal(pl_http_query_get(&q, "worker"), "2");
    assert_string_equal(pl_http_query_get(&q, "x"), "a b/c");
    assert_string_equal(pl_http_query_get(&q, "flag"), "1");
    assert_string_equal(pl_http_query_get(&q, ""), "v");
    assert_string_equal(pl_http_query_get(&q, "empty"), "");
    assert_null(pl_http_query_get(&q, "nothing"));
    assert_true(reads("/status"));
    assert_int_equal(q.count, 0);
    assert_true(reads("/status?"));
    assert_int_equal(q.count, 0);
    assert_true(reads("/status?&&"));
    assert_int_equal(q.count, 0);
}

TEST(broken_parameters_are_refused) {
    static const char *const bad[] = { "/?a=%0", "/?%00=1", "/?a=%00", "/?a=%g0", "/?a=%", "/?%2&b=c" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (reads(bad[i])) fail_msg("%s is not refused", bad[i]);
    assert_false(pl_http_query_read("/a\0b", 4, &q));
}

TEST(length_and_number_are_bounded) {
    char target[2 * PL_HTTP_OWN_TARGET_BYTES] = "/?";
    for (int i = 0; i < PL_HTTP_MAX_PARAMS; i++) strcat(target, "a&");
    assert_true(reads(target));
    assert_int_equal(q.count, PL_HTTP_MAX_PARAMS);
    strcat(target, "b");
    assert_false(reads(target));
    memset(target, 'a', sizeof target);
    assert_true(pl_http_query_read(target, PL_HTTP_OWN_TARGET_BYTES - 1, &q));
    assert_false(pl_http_query_read(target, PL_HTTP_OWN_TARGET_BYTES, &q));
}

RUN(cmocka_unit_test(the_path_stays_as_it_came_and_parameters_are_decoded),
    cmocka_unit_test(broken_parameters_are_refused), cmocka_unit_test(length_and_number_are_bounded))
