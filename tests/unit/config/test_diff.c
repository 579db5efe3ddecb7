#include "config/diff.h"

#include <string.h>

#include "config/config.h"
#include "unit.h"

static struct pl_err err;
static struct pl_changes changes;

static struct pl_config *read(const char *text) {
    static char *none[] = { NULL };
    struct pl_config *c = pl_config_create();
    assert_non_null(c);
    if (!pl_config_read_yaml(c, "p.yaml", text, strlen(text), none, &err)) fail_msg("%s", err.msg);
    return c;
}

static const struct pl_change *find(const char *key) {
    for (size_t i = 0; i < changes.count; i++)
        if (strcmp(changes.at[i].key, key) == 0) return &changes.at[i];
    return NULL;
}

static void diff(const char *was, const char *is) {
    static struct pl_config *old, *new;
    pl_config_destroy(old);
    pl_config_destroy(new);
    old = read(was);
    new = read(is);
    pl_config_diff(old, new, &changes);
}

TEST(the_same_text_changes_nothing_and_neither_does_its_order) {
    diff("services:\n  a: {run: s:A}\n  b: {run: s:B, route: {path: /b}}\n",
         "services:\n  b: {route: {path: /b}, run: s:B}\n  a: {run: s:A}\n");
    assert_int_equal(changes.count, 0);
}
TEST(each_change_has_its_class_its_place_and_both_values) {
    diff("services:\n  a: {run: s:A, threads: 2}\n",
         "listen: 127.0.0.1:4000\nservices:\n  a: {run: s:A, threads: 4, traffic: {timeout: 5s}}\n");
    assert_int_equal(changes.count, 3);
    assert_int_equal(find("listen")->class, PL_CHANGE_RESTART);
    assert_null(find("listen")->service);
    assert_int_equal(find("threads")->class, PL_CHANGE_GENERATION);
    assert_string_equal(find("threads")->from, "2");
    assert_string_equal(find("threads")->to, "4");
    assert_string_equal(find("threads")->place, "p.yaml:3:26");
    assert_int_equal(find("traffic.timeout")->class, PL_CHANGE_LIVE);
    assert_string_equal(find("traffic.timeout")->from, "60s");
}
TEST(a_service_that_comes_or_goes_needs_a_restart) {
    diff("services:\n  a: {run: s:A}\n", "services:\n  b: {run: s:A}\n");
    assert_int_equal(changes.count, 2);
    assert_int_equal(changes.at[0].class, PL_CHANGE_RESTART);
    assert_string_equal(changes.at[0].from, "a");
    assert_string_equal(changes.at[1].to, "b");
}
TEST(what_the_decorator_says_is_no_change) {
    struct pl_config *old = read("services:\n  a: {run: s:A}\n"), *new = read("services:\n  a: {run: s:A}\n");
    assert_true(pl_config_set(old, 0, "threads", "8", PL_FROM_DECORATOR, "decorator", &err));
    pl_config_diff(old, new, &changes);
    assert_int_equal(changes.count, 0);
    assert_true(pl_config_set(new, 0, "threads", "4", PL_FROM_FILE, "p.yaml:9:9", &err));
    pl_config_diff(old, new, &changes);
    assert_int_equal(changes.count, 1);
    pl_config_destroy(old);
    pl_config_destroy(new);
}
TEST(services_are_put_into_the_old_order) {
    struct pl_config *old = read("services:\n  a: {run: s:A}\n  b: {run: s:B, route: {path: /b}}\n");
    struct pl_config *new =
        read("services:\n  b: {run: s:B, route: {path: /b}, threads: 3}\n  a: {run: s:A}\n");
    assert_true(pl_config_align(old, new));
    assert_string_equal(new->services[0].id, "a");
    assert_int_equal(new->services[1].threads, 3);
    assert_string_equal(pl_config_text(new, 1, "threads"), "3");
    assert_int_equal(pl_config_find(new, "b"), 1);
    pl_config_destroy(new);
    new = read("services:\n  b: {run: s:B}\n  c: {run: s:A, route: {path: /c}}\n");
    assert_false(pl_config_align(old, new));
    pl_config_destroy(old);
    pl_config_destroy(new);
}
RUN(cmocka_unit_test(the_same_text_changes_nothing_and_neither_does_its_order),
    cmocka_unit_test(each_change_has_its_class_its_place_and_both_values),
    cmocka_unit_test(a_service_that_comes_or_goes_needs_a_restart),
    cmocka_unit_test(what_the_decorator_says_is_no_change),
    cmocka_unit_test(services_are_put_into_the_old_order))
