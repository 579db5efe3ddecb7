/* test_tree.c - YAML as a tree: places, types, anchors, limits. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "ship/tree.h"

static struct pl_arena arena;
static struct pl_tree tree;
static struct pl_err err;

static bool read_bytes(const char *text, size_t len) {
    pl_arena_free(&arena);
    pl_arena_init(&arena, 0);
    memset(&err, 0, sizeof err);
    return pl_tree_read("f.yaml", text, len, &arena, &tree, &err);
}
static const struct pl_node *read(const char *text) {
    if (!read_bytes(text, strlen(text))) fail_msg("%s: %s", text, err.msg);
    return tree.count > 0 ? tree.documents[0] : NULL;
}
static void refused(const char *text, const char *why) {
    assert_false(read_bytes(text, strlen(text)));
    if (strstr(err.msg, why) == NULL) fail_msg("%s: %s", text, err.msg);
}

TEST(every_node_knows_its_place) {
    const struct pl_node *doc = read("a: 1\nb:\n  - x\n  - {c: d}\n");
    const struct pl_node *c = pl_node_get(pl_node_first(pl_node_get(doc, "b"))->next, "c");
    assert_int_equal(c->line, 4);
    assert_int_equal(c->col, 9);
    assert_int_equal(c->key->col, 6);
    assert_string_equal(pl_node_text(c), "d");
    assert_null(pl_node_get(doc, "z"));
    assert_null(pl_node_path(doc, "b", "c", NULL));
    assert_ptr_equal(pl_node_path(doc, "a", NULL), pl_node_get(doc, "a"));
}

TEST(quotes_make_a_text_of_everything) {
    const struct pl_node *doc = read("a: true\nb: 'true'\nc: ~\nd: ''\ne: 1e3\nf: 0x10\ng: .inf\nh: False\n");
    double x = 0;
    assert_true(pl_node_true(pl_node_get(doc, "a")));
    assert_false(pl_node_true(pl_node_get(doc, "b")));
    assert_true(pl_node_is_null(pl_node_get(doc, "c")));
    assert_true(pl_node_is_null(pl_node_get(doc, "missing")));
    assert_false(pl_node_is_null(pl_node_get(doc, "d")));
    assert_true(pl_node_number(pl_node_get(doc, "e"), &x));
    assert_true(x > 999 && x < 1001);
    assert_false(pl_node_number(pl_node_get(doc, "g"), &x));
    assert_false(pl_node_number(pl_node_get(doc, "a"), &x));
    assert_true(pl_node_false(pl_node_get(doc, "h")));
}

TEST(the_last_of_equal_keys_counts) {
    assert_string_equal(pl_node_text(pl_node_get(read("a: 1\na: 2\n"), "a")), "2");
}

TEST(anchors_and_merges_are_followed) {
    const struct pl_node *doc = read("x: &x {k: 1, l: 2}\ny: {<<: *x, l: 3}\nz: *x\nw: {<<: [{m: 4}, *x]}\n");
    assert_string_equal(pl_node_text(pl_node_path(doc, "y", "k", NULL)), "1");
    assert_string_equal(pl_node_text(pl_node_path(doc, "y", "l", NULL)), "3");
    assert_string_equal(pl_node_text(pl_node_path(doc, "z", "k", NULL)), "1");
    assert_string_equal(pl_node_text(pl_node_path(doc, "w", "m", NULL)), "4");
    assert_string_equal(pl_node_text(pl_node_path(doc, "w", "l", NULL)), "2");
}

TEST(documents_are_counted_and_anchors_end_with_theirs) {
    read("a: 1\n---\nb: 2\n---\n");
    assert_int_equal(tree.count, 3);
    read("");
    assert_int_equal(tree.count, 0);
    refused("a: &x 1\n---\nb: *x\n", "f.yaml:3:4: an alias of an anchor that is not there");
}

TEST(what_is_no_yaml_or_too_much_is_refused_with_its_place) {
    refused("a: [1\n", "f.yaml:2:1");
    refused("a: &b {c: *b}\n", "f.yaml:1:11: an anchor that holds itself");
    refused("a: *b\n", "f.yaml:1:4: an alias of an anchor that is not there");
    refused("a: \"\\0\"\n", "f.yaml:1:4: a zero byte");
    assert_false(read_bytes("a: \xff\xfe\x01", 6));
    char deep[140];
    memset(deep, '[', 70);
    memset(deep + 70, ']', 70);
    assert_false(read_bytes(deep, sizeof deep));
    assert_non_null(strstr(err.msg, "f.yaml:1:65: nested more than 64 deep"));
}

TEST(large_files_are_refused_before_they_are_built) {
    size_t n = PL_TREE_BYTES + 1;
    char *text = test_malloc(n);
    memset(text, ' ', n);
    assert_false(read_bytes(text, n));
    assert_int_equal(err.code, PL_E_TOO_LARGE);
    n = 0;
    for (unsigned i = 0; i < PL_TREE_NODES / 2 + 2; i++) { /* flat list: [1,1,1...] */
        text[n++] = i == 0 ? '[' : ',';
        text[n++] = '1';
    }
    text[n++] = ',';
    for (unsigned i = 0; i < PL_TREE_NODES / 2; i++) {
        text[n++] = '1';
        text[n++] = ',';
    }
    text[n++] = ']';
    assert_false(read_bytes(text, n));
    assert_non_null(strstr(err.msg, "more than 200000 values"));
    n = 0;
    for (unsigned i = 0; i <= PL_TREE_KEYS; i++) n += (size_t)sprintf(text + n, "k%u: 1\n", i);
    assert_false(read_bytes(text, n));
    assert_non_null(strstr(err.msg, "more than 2000 keys"));
    test_free(text);
}

/* Forty lists of the one before, twice each: 2^40 texts when copied. */
TEST(a_bomb_of_aliases_is_as_large_as_its_text) {
    char text[4096];
    size_t n = (size_t)sprintf(text, "a0: &a0 [1]\n");
    for (unsigned i = 1; i < 40; i++)
        n += (size_t)sprintf(text + n, "a%u: &a%u [*a%u, *a%u]\n", i, i, i - 1, i - 1);
    const struct pl_node *doc = read(text);
    const struct pl_node *last = pl_node_get(doc, "a39");
    for (unsigned i = 39; i > 0; i--) last = pl_node_see(pl_node_first(last));
    assert_string_equal(pl_node_text(pl_node_first(last)), "1");
    assert_true(arena.used < 1 << 20);
}

static int end(void **state) {
    (void)state;
    pl_arena_free(&arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_knows_its_place),
        cmocka_unit_test(quotes_make_a_text_of_everything),
        cmocka_unit_test(the_last_of_equal_keys_counts),
        cmocka_unit_test(anchors_and_merges_are_followed),
        cmocka_unit_test(documents_are_counted_and_anchors_end_with_theirs),
        cmocka_unit_test(what_is_no_yaml_or_too_much_is_refused_with_its_place),
        cmocka_unit_test(large_files_are_refused_before_they_are_built),
        cmocka_unit_test(a_bomb_of_aliases_is_as_large_as_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
