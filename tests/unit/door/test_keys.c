/* The file of API keys: what is read, what is refused and with which words, and which key opens what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/keys.h"
#include "unit.h"

#define OF_TEST  "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" /* "test" */
#define OF_OTHER "sha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa" /* "other" */

static struct pl_keyring *read_text(const char *text) {
    struct pl_err err = { 0 };
    struct pl_keyring *ring = pl_keyring_read("keys.yaml", text, strlen(text), &err);
    if (ring == NULL) fail_msg("%s", err.msg);
    return ring;
}

static const char *opened_by(const struct pl_keyring *ring, const char *key) {
    const struct pl_key_row *row = pl_keyring_find(ring, key, strlen(key));
    return row != NULL ? row->name : "";
}

TEST(a_row_has_a_name_hashes_and_limits) {
    struct pl_keyring *ring =
        read_text("- {name: team-a, hash: '" OF_TEST "', services: [chat, vision], max_concurrency: 8,\n"
                  "   requests_per_minute: 600, tokens_per_minute: 100000, max_priority: high}\n"
                  "- name: b\n  hash: " OF_OTHER "\n");
    assert_int_equal(ring->row_count, 2);
    const struct pl_key_row *a = pl_keyring_find(ring, "test", 4), *b = pl_keyring_find(ring, "other", 5);
    assert_string_equal(a->name, "team-a");
    assert_int_equal(a->max_concurrency, 8);
    assert_int_equal(a->requests_per_minute, 600);
    assert_int_equal(a->tokens_per_minute, 100000);
    assert_int_equal(a->max_priority, PL_PRIORITY_HIGH);
    assert_true(pl_key_opens(a, "chat") && pl_key_opens(a, "vision"));
    assert_false(pl_key_opens(a, "cha") || pl_key_opens(a, "chatt") || pl_key_opens(a, ""));
    assert_string_equal(b->name, "b");
    assert_int_equal(b->max_priority, PL_PRIORITY_NORMAL);
    assert_int_equal(b->max_concurrency, 0);
    assert_true(pl_key_opens(b, "whatever"));
    pl_keyring_free(ring);
}

TEST(only_the_very_key_opens) {
    struct pl_keyring *ring = read_text("keys:\n- {name: a, hash: '" OF_TEST "'}\n");
    assert_string_equal(opened_by(ring, "test"), "a");
    static const char *const others[] = { "", "tes", "testt", "Test", "test ", OF_TEST, "a" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_string_equal(opened_by(ring, others[i]), "");
    assert_null(pl_keyring_find(ring, "test\0x", 6));
    pl_keyring_free(ring);
}

TEST(while_a_key_is_changed_the_old_and_the_new_one_open) {
    struct pl_keyring *ring = read_text("[{\"name\":\"a\",\"hash\":[\"" OF_TEST "\",\"" OF_OTHER "\"]}]");
    assert_string_equal(opened_by(ring, "test"), "a");
    assert_string_equal(opened_by(ring, "other"), "a");
    pl_keyring_free(ring);
}

TEST(a_single_key_stands_alone_or_beside_the_file) {
    struct pl_err err = { 0 };
    struct pl_key_digest d = pl_key_hash("one", 3);
    struct pl_keyring *ring = pl_keyring_add(NULL, "default", &d, &err);
    assert_string_equal(opened_by(ring, "one"), "default");
    assert_int_equal(pl_keyring_find(ring, "one", 3)->max_priority, PL_PRIORITY_HIGH);
    pl_keyring_free(ring);
    ring = read_text("- {name: default, hash: '" OF_TEST "'}\n");
    assert_null(pl_keyring_add(ring, "default", &d, &err));
    assert_non_null(strstr(err.msg, "named 'default'"));
    assert_ptr_equal(pl_keyring_add(ring, "single", &d, &err), ring);
    assert_string_equal(opened_by(ring, "one"), "single");
    assert_string_equal(opened_by(ring, "test"), "default");
    pl_keyring_free(ring);
}

TEST(what_is_wrong_is_told_with_its_place_and_never_shows_a_key) {
    static const struct {
        const char *text, *message, *hint;
    } all[] = {
        { "", "keys.yaml: a list of rows {name, hash: sha256:...} is wanted", "" },
        { "a: 1\n", "keys.yaml: a list of rows {name, hash: sha256:...} is wanted", "" },
        { "keys: {a: 1}\n", "keys.yaml: a list of rows {name, hash: sha256:...} is wanted", "" },
        { "[]\n", "keys.yaml: no key in it", "" },
        { "- secret\n", "keys.yaml:1:3: a row is a mapping: {name, hash, ...}", "" },
        { "- {name: a}\n", "keys.yaml:1:3: this row has no hash", "" },
        { "- {hash: '" OF_TEST "'}\n", "keys.yaml:1:3: this row has no name", "" },
        { "- {name: a, hash: secret}\n", "keys.yaml:1:19: this is not sha256: and 64 hexadecimal digits",
          "printf %s \"$KEY\" | sha256sum prints them" },
        { "- {name: a, hash: 'sha256:9f86'}\n",
          "keys.yaml:1:19: this is not sha256: and 64 hexadecimal digits",
          "printf %s \"$KEY\" | sha256sum prints them" },
        { "- {name: a, hash: []}\n", "keys.yaml:1:19: there is no hash", "" },
        { "- {name: a, hash: {x: 1}}\n", "keys.yaml:1:19: one value is wanted here, not a mapping", "" },
        { "- {name: 'a b', hash: '" OF_TEST "'}\n",
          "keys.yaml:1:10: a name is 1 to 64 letters, digits and . _ @ -", "" },
        { "- {name: a, hash: '" OF_TEST "'}\n- {name: a, hash: '" OF_OTHER "'}\n",
          "keys.yaml:2:10: this name is there already",
          "a key that is being changed has one row and a list of hashes" },
        { "- {name: a, hash: '" OF_TEST "'}\n- {name: b, hash: '" OF_TEST "'}\n",
          "keys.yaml:2:19: this hash is there already", "" },
        { "- {name: a, name: b}\n", "keys.yaml:1:13: 'name' is there already (keys.yaml:1:4)", "" },
        { "- {name: a, hash: '" OF_TEST "', max_concurency: 1}\n",
          "keys.yaml:1:94: unknown field 'max_concurency'", "did you mean 'max_concurrency'?" },
        { "- {name: a, requests_per_minute: 0}\n", "keys.yaml:1:34: a limit is 1 to 1000000000",
          "leave it out for no limit; to lock a key out, take its row out" },
        { "- {name: a, requests_per_minute: 1k}\n", "keys.yaml:1:34: this is not a whole number", "" },
        { "- {name: a, requests_per_minute: -1}\n", "keys.yaml:1:34: this is not a whole number", "" },
        { "- {name: a, max_priority: urgent}\n", "keys.yaml:1:27: this is none of low, normal, high", "" },
        { "- {name: a, services: []}\n", "keys.yaml:1:23: name a service, or leave `services` out for all",
          "" },
        { "- {name: a\n", "keys.yaml:2:1: did not find expected ',' or '}', while parsing a flow mapping",
          "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pl_err err = { 0 };
        assert_null(pl_keyring_read("keys.yaml", all[i].text, strlen(all[i].text), &err));
        assert_string_equal(err.msg, all[i].message);
        assert_string_equal(err.hint, all[i].hint);
        assert_int_equal(pl_err_exit_status(err.code), 3);
        assert_null(strstr(err.msg, "secret"));
    }
}

TEST(a_file_cannot_make_us_grow) {
    struct pl_err err = { 0 };
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES + 1);
    size_t n = 0;
    for (int i = 0; i <= PL_KEYS_MOST; i++) n += (size_t)sprintf(text + n, "- {name: n%d}\n", i);
    assert_null(pl_keyring_read("keys.yaml", text, n, &err)); /* the second row is never looked at */
    assert_non_null(strstr(err.msg, "more than 1000 keys"));
    /* a list of services by alias in every row */
    n = (size_t)sprintf(text, "- {name: n0, hash: '" OF_TEST "', services: &s [");
    for (int i = 0; i < 256; i++) n += (size_t)sprintf(text + n, "service-%0100d,", i);
    n += (size_t)sprintf(text + n, "]}\n");
    for (int i = 1; i < 900; i++) n += (size_t)sprintf(text + n, "- {name: n%d, services: *s}\n", i);
    assert_null(pl_keyring_read("keys.yaml", text, n, &err));
    free(text);
}

TEST(priorities_are_three_words) {
    enum pl_priority p = PL_PRIORITY_LOW;
    assert_true(pl_priority_read("high", 4, &p) && p == PL_PRIORITY_HIGH);
    assert_true(pl_priority_read("low", 3, &p) && p == PL_PRIORITY_LOW);
    assert_false(pl_priority_read("High", 4, &p) || pl_priority_read("", 0, &p) ||
                 pl_priority_read("normal ", 7, &p));
}

RUN(cmocka_unit_test(a_row_has_a_name_hashes_and_limits), cmocka_unit_test(only_the_very_key_opens),
    cmocka_unit_test(while_a_key_is_changed_the_old_and_the_new_one_open),
    cmocka_unit_test(a_single_key_stands_alone_or_beside_the_file),
    cmocka_unit_test(what_is_wrong_is_told_with_its_place_and_never_shows_a_key),
    cmocka_unit_test(a_file_cannot_make_us_grow), cmocka_unit_test(priorities_are_three_words))
