/* What else could be sent: longer, more, wrong; and what an OpenAPI document gives as an example. */
#include <stdlib.h>
#include <string.h>

#include "cli/soak.h"
#include "unit.h"

static json_t *read_json(const char *text) {
    json_t *doc = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(doc);
    return doc;
}

static void is_json(json_t *doc, const char *wanted) {
    char *text = json_dumps(doc, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    assert_string_equal(text, wanted);
    free(text);
    json_decref(doc);
}

TEST(lists_come_before_texts_before_numbers_and_whole_ones_first) {
    struct pl_soak_spot spots[PL_SOAK_PLACES];
    json_t *body =
        read_json("{\"n\": 5, \"text\": \"abc\", \"rows\": [[1.5, 2.5]], \"zero\": 0, \"empty\": []}");
    size_t n = pl_soak_spots(body, spots, PL_SOAK_PLACES);
    assert_int_equal(n, 4);
    assert_string_equal(spots[0].name, "rows");
    assert_string_equal(spots[1].name, "rows[0]");
    assert_string_equal(spots[2].name, "text");
    assert_string_equal(spots[3].name, "n");
    assert_int_equal(spots[2].size, 3);
    assert_int_equal(pl_soak_spots(body, spots, 1), 1);
    json_decref(body);
}

TEST(a_place_is_made_as_large_as_wanted_with_what_is_in_it) {
    static const struct {
        const char *body;
        uint64_t size;
        const char *wanted;
    } rows[] = {
        { "{\"a\":1,\"rows\":[[1,2],[3,4]]}", 3, "{\"a\":1,\"rows\":[[1,2],[3,4],[1,2]]}" },
        { "{\"rows\":[7,8,9]}", 1, "{\"rows\":[7]}" },
        { "{\"t\":\"abc\"}", 7, "{\"t\":\"abcabca\"}" },
        { "{\"t\":\"abc\"}", 2, "{\"t\":\"ab\"}" },
        { "{\"t\":\"\xc3\xa4\"}", 3, "{\"t\":\"\xc3\xa4\"}" }, /* not half a character */
        { "{\"n\":3}", 100, "{\"n\":100}" },
        { "[1]", 2, "[1,1]" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_soak_spot spots[PL_SOAK_PLACES];
        json_t *body = read_json(rows[i].body);
        assert_true(pl_soak_spots(body, spots, PL_SOAK_PLACES) > 0);
        is_json(pl_soak_resized(body, &spots[0], rows[i].size), rows[i].wanted);
        is_json(body, rows[i].body); /* as it was */
    }
}

TEST(a_body_is_made_wrong_in_six_ways) {
    static const char *const wanted[PL_SOAK_WRONG] = {
        "{\"x\":[-1.0,-2],\"s\":\"hi\"}",
        "{\"x\":[1.0,2],\"s\":\"\"}",
        "{\"x\":[1e30,1000000007],\"s\":\"hi\"}",
        "{\"x\":[1.0,2],\"s\":null}",
        "{\"x\":[],\"s\":\"hi\"}",
        "{}",
    };
    json_t *body = read_json("{\"x\": [1.0, 2], \"s\": \"hi\"}");
    for (unsigned k = 0; k < PL_SOAK_WRONG; k++) is_json(pl_soak_wrong(body, k), wanted[k]);
    assert_null(pl_soak_wrong(body, PL_SOAK_WRONG));
    json_decref(body);
    body = read_json("{\"s\": \"hi\"}");
    assert_null(pl_soak_wrong(body, 0)); /* no number: it would be the same */
    json_decref(body);
}

TEST(deep_and_odd_bodies_do_no_harm) {
    struct pl_soak_spot spots[PL_SOAK_PLACES];
    char deep[2 * 200 + 2] = "";
    for (int i = 0; i < 200; i++) deep[i] = '[', deep[399 - i] = ']';
    static const char *const odd[] = { "null", "3", "\"\"", "[]", "{}", "[[],[]]", "true" };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        json_t *body = read_json(odd[i]);
        pl_soak_spots(body, spots, PL_SOAK_PLACES);
        for (unsigned k = 0; k < PL_SOAK_WRONG; k++) json_decref(pl_soak_wrong(body, k));
        json_decref(body);
    }
    json_t *body = read_json(deep);
    assert_true(pl_soak_spots(body, spots, PL_SOAK_PLACES) < PL_SOAK_PLACES);
    json_decref(body);
}

static const char one_route[] =
    "{\"paths\":{\"/predict\":{\"post\":{\"requestBody\":{\"content\":{\"application/json\":{\"schema\":"
    "{\"$ref\":\"#/components/schemas/In\"}}}}}},\"/livez\":{\"get\":{}}},"
    "\"components\":{\"schemas\":{\"In\":{\"properties\":{\"length\":{\"type\":\"integer\",\"default\":64},"
    "\"note\":{\"type\":\"string\",\"examples\":[\"a\",\"b\"]}},\"required\":[\"note\"]}}}}";

TEST(the_body_is_what_the_author_wrote) {
    struct pl_err err = { 0 };
    const char *route = NULL;
    json_t *doc = read_json(one_route), *body = NULL;
    assert_true(pl_soak_example(doc, NULL, &route, &body, &err));
    assert_string_equal(route, "/predict");
    is_json(body, "{\"length\":64,\"note\":\"a\"}");
    json_decref(doc);
}

TEST(values_that_nobody_wrote_are_not_invented) {
    struct pl_err err = { 0 };
    const char *route = NULL;
    json_t *body = NULL;
    json_t *doc = read_json(
        "{\"paths\":{\"/p\":{\"post\":{\"requestBody\":{\"content\":{\"application/json\":{\"schema\":"
        "{\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}}}}}}}}");
    assert_false(pl_soak_example(doc, NULL, &route, &body, &err));
    assert_non_null(strstr(err.hint, "--body"));
    assert_null(body);
    json_decref(doc);
    struct pl_err several = { 0 };
    doc = read_json("{\"paths\":{\"/a\":{\"post\":{}},\"/b\":{\"post\":{}}}}");
    assert_false(pl_soak_example(doc, NULL, &route, &body, &several));
    assert_non_null(strstr(several.msg, "/a, /b"));
    json_decref(doc);
    struct pl_err circle = { 0 };
    doc = read_json(
        "{\"paths\":{\"/a\":{\"post\":{\"requestBody\":{\"$ref\":\"#/paths/~1a/post/requestBody\"}}}},"
        "\"x\":{\"$ref\":\"#/x\"}}");
    assert_false(pl_soak_example(doc, "/a", &route, &body, &circle));
    json_decref(doc);
}

RUN(cmocka_unit_test(lists_come_before_texts_before_numbers_and_whole_ones_first),
    cmocka_unit_test(a_place_is_made_as_large_as_wanted_with_what_is_in_it),
    cmocka_unit_test(a_body_is_made_wrong_in_six_ways), cmocka_unit_test(deep_and_odd_bodies_do_no_harm),
    cmocka_unit_test(the_body_is_what_the_author_wrote),
    cmocka_unit_test(values_that_nobody_wrote_are_not_invented))
