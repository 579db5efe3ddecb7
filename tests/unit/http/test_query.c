#include "unit.h"

#include <string.h>

#include "http/query.h"

static bool parse(struct pl_arena *a, const char *target, struct pl_http_query *q) {
    return pl_http_query_parse(target, strlen(target), a, q);
}

TEST(path_and_parameters_are_decoded) {
    struct pl_arena a;
    struct pl_http_query q;
    pl_arena_init(&a, 65536);
    assert_true(parse(&a, "/logs/my%20chat+1?worker=2&follow=1&&x=a+b%2Fc&flag&x=second&=v", &q));
    assert_string_equal(q.path, "/logs/my chat+1");
    assert_int_equal(q.count, 6);
    assert_string_equal(pl_http_query_get(&q, "worker"), "2");
    assert_string_equal(pl_http_query_get(&q, "x"), "a b/c");
    assert_string_equal(pl_http_query_get(&q, "flag"), "");
    assert_null(pl_http_query_get(&q, "nothing"));
    assert_true(parse(&a, "/status", &q));
    assert_int_equal(q.count, 0);
    assert_true(parse(&a, "/status?", &q));
    assert_int_equal(q.count, 0);
    pl_arena_free(&a);
}

TEST(broken_and_misleading_targets_are_refused) {
    static const char *const bad[] = { "/%",     "/%2",    "/%zz",    "/%00",   "/a%2fb",
                                       "/a%2Fb", "/?a=%0", "/?%00=1", "/?a=%g0" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pl_arena a;
        struct pl_http_query q;
        pl_arena_init(&a, 65536);
        if (parse(&a, bad[i], &q)) fail_msg("%s is not refused", bad[i]);
        pl_arena_free(&a);
    }
}

TEST(parameters_are_bounded) {
    struct pl_arena a;
    struct pl_http_query q;
    char target[256] = "/?";
    for (int i = 0; i < PL_HTTP_MAX_PARAMS; i++) strcat(target, "a&");
    pl_arena_init(&a, 65536);
    assert_true(parse(&a, target, &q));
    strcat(target, "b");
    assert_false(parse(&a, target, &q));
    pl_arena_free(&a);
    pl_arena_init(&a, 64);
    assert_false(parse(&a, target, &q));
    pl_arena_free(&a);
}

RUN(cmocka_unit_test(path_and_parameters_are_decoded),
    cmocka_unit_test(broken_and_misleading_targets_are_refused), cmocka_unit_test(parameters_are_bounded))
