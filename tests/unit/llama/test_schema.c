/* Grammars: what is refused before llama.cpp sees it, and JSON schemas as GBNF that llama.cpp itself parses
 * and obeys. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama/grammar.h"
#include "llama/schema.h"

static bool made(const char *schema, struct pl_buf *out, char fault[200]) {
    json_t *root = json_loads(schema, JSON_DECODE_ANY, NULL);
    assert_non_null(root);
    pl_buf_init(out, PL_LLM_GRAMMAR_BYTES);
    bool ok = pl_llm_schema(root, out, fault, 200);
    json_decref(root);
    return ok;
}

static void expect_root(const char *schema, const char *root) {
    struct pl_buf out;
    char fault[200];
    if (!made(schema, &out, fault)) fail_msg("%s: %s", schema, fault);
    char line[2048];
    const char *at = strstr(pl_buf_text(&out), "root ::= ");
    assert_non_null(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    assert_string_equal(line + strlen("root ::= "), root);
    assert_null(pl_llm_grammar_fault(out.data, out.len, true));
    pl_buf_free(&out);
}

static void expect_fault(const char *schema, const char *words) {
    struct pl_buf out;
    char fault[200];
    assert_false(made(schema, &out, fault));
    if (strstr(fault, words) == NULL) fail_msg("%s: said '%s'", schema, fault);
    pl_buf_free(&out);
}

TEST(plain_kinds) {
    expect_root("{\"type\":\"string\"}", "string");
    expect_root("{\"type\":\"number\"}", "number");
    expect_root("{\"type\":\"boolean\",\"title\":\"t\",\"description\":\"d\"}", "boolean");
    expect_root("{\"type\":[\"string\",\"null\"]}", "(string | null)");
    expect_root("{}", "value");
    expect_root("{\"type\":\"object\"}", "object");
    expect_root("{\"const\":\"a\\\"b\"}", "\"\\\"a\\\\\\\"b\\\"\"");
    expect_root("{\"enum\":[1,\"x\",null]}", "(\"1\" | \"\\\"x\\\"\" | \"null\")");
    expect_root("{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}", "\"\\\"\" char{2,5} \"\\\"\"");
    expect_root("{\"type\":\"string\",\"format\":\"date\"}", "\"\\\"\" date \"\\\"\"");
    expect_root("{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}]}", "(null | integer)");
}

TEST(objects_and_arrays) {
    expect_root("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},"
                "\"required\":[\"a\"]}",
                "\"{\" ws \"\\\"a\\\"\" \":\" ws null (\",\" ws \"\\\"b\\\"\" \":\" ws null)? ws \"}\"");
    expect_root("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},"
                "\"required\":[\"b\"]}",
                "\"{\" ws (\"\\\"a\\\"\" \":\" ws null \",\" ws )? \"\\\"b\\\"\" \":\" ws null ws \"}\"");
    expect_root("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":3}",
                "\"[\" ws item1 (\",\" ws item1){0,2} ws \"]\"");
    expect_root("{\"type\":\"array\",\"maxItems\":0}", "\"[\" ws \"]\"");
    expect_root(
        "{\"$ref\":\"#/$defs/"
        "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}}}}}",
        "ref1");
}

/* Does the expression for whole numbers take exactly those between? Read by a small matcher of what integer()
 * writes. */
static bool takes(const char **at, const char **text);
static bool sequence(const char **at, const char **text) {
    const char *t = *text;
    bool ok = true;
    while (**at != '\0' && **at != '|' && **at != ')') {
        if (**at == ' ') {
            ++*at;
        } else if (**at == '"') {
            for (++*at; **at != '"'; ++*at) ok = ok && *t == **at ? (t++, true) : false;
            ++*at;
        } else if (**at == '[') {
            char from = (*at)[1], to = (*at)[3];
            int times = 1;
            *at += 5;
            if (**at == '{') {
                times = atoi(*at + 1);
                *at += strcspn(*at, "}") + 1;
            }
            for (; times > 0; times--) ok = ok && *t >= from && *t <= to ? (t++, true) : false;
        } else if (**at == '(') {
            ++*at;
            ok = takes(at, &t) && ok;
            ++*at;
        } else {
            fail_msg("an expression that this test does not read: %s", *at);
        }
    }
    if (ok) *text = t;
    return ok;
}
static bool takes(const char **at, const char **text) {
    bool any = false;
    const char *longest = *text, *from = *text;
    for (;; ++*at) {
        const char *t = from;
        if (sequence(at, &t) && t >= longest) any = true, longest = t;
        if (**at != '|') break;
    }
    *text = longest;
    return any;
}

TEST(whole_numbers_between) {
    static const int edges[] = { -1203, -999, -100, -11, -10, -1, 0, 1, 9, 10, 11, 99, 100, 250, 1000, 1203 };
    enum { COUNT = sizeof edges / sizeof *edges };
    for (int a = 0; a < COUNT; a++)
        for (int b = a; b < COUNT; b++) {
            char schema[120], fault[200], number[16];
            struct pl_buf out;
            snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", edges[a],
                     edges[b]);
            assert_true(made(schema, &out, fault));
            const char *root = pl_buf_text(&out) + strlen("root ::= ");
            char line[4096];
            snprintf(line, sizeof line, "%.*s", (int)strcspn(root, "\n"), root);
            for (int n = -1300; n <= 1300; n++) {
                snprintf(number, sizeof number, "%d", n);
                const char *at = line, *text = number;
                bool taken = takes(&at, &text) && *text == '\0';
                if (taken != (n >= edges[a] && n <= edges[b]))
                    fail_msg("%d to %d and %d: %s", edges[a], edges[b], n, line);
            }
            pl_buf_free(&out);
        }
}

TEST(what_is_not_supported_is_named) {
    expect_fault("{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems");
    expect_fault("{\"not\":{\"type\":\"string\"}}", "not");
    expect_fault("{\"type\":\"string\",\"pattern\":\"a+\"}", "pattern");
    expect_fault("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":3}}}",
                 "/properties");
    expect_fault("{\"type\":\"string\",\"format\":\"email\"}", "email");
    expect_fault("{\"type\":\"object\",\"properties\":{},\"required\":[\"x\"]}", "x is not among");
    expect_fault("{\"$ref\":\"http://a/b\"}", "$ref");
    expect_fault("{\"$ref\":\"#/$defs/gone\"}", "nowhere");
    expect_fault("{\"$ref\":\"#/$defs/a/b\",\"$defs\":{\"b\":{\"type\":\"null\"}}}", "$ref");
    expect_fault("{\"$ref\":\"#\"}", "back to itself");
    expect_fault("{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", "back to itself");
    expect_fault("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"oneOf\":[{\"$ref\":\"#/$defs/"
                 "b\"}]},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
                 "back to itself");
    expect_fault("{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no whole number");
    expect_fault("{\"type\":\"text\"}", "no type of JSON");
    expect_fault("3", "a schema is an object");
    expect_fault("{\"enum\":[]}", "1 to 256");
    char deep[4000] = "";
    for (int i = 0; i < 60; i++) strcat(deep, "{\"items\":");
    strcat(deep, "{}");
    for (int i = 0; i < 60; i++) strcat(deep, "}");
    expect_fault(deep, "deeper");
}

TEST(grammars_that_would_end_the_process) {
    static char nested[45000], rules[PL_LLM_GRAMMAR_BYTES + 2];
    strcpy(nested, "root ::= ");
    memset(nested + 9, '(', 20000);
    assert_string_equal(pl_llm_grammar_fault(nested, strlen(nested), false),
                        "it nests brackets deeper than 64");
    assert_null(pl_llm_grammar_fault("root ::= \"((((\" [(] # ((((\n", 26, false));
    memset(rules, 'a', sizeof rules);
    assert_non_null(pl_llm_grammar_fault(rules, sizeof rules, false));
    size_t n = 0;
    for (int i = 0; i < 2049; i++) n += (size_t)snprintf(rules + n, sizeof rules - n, "r%d ::= \"a\"\n", i);
    assert_string_equal(pl_llm_grammar_fault(rules, n, false), "it has more than 2,048 rules");
    assert_non_null(pl_llm_grammar_fault("root ::= \"a\"{1,999999}", 22, false));
    static const char *const refused[] = { "root ::= [b-z]{9,3}",
                                           "root ::= \"a\"{2,0}",
                                           "root ::= \"a\"{",
                                           "root ::= \"a\"{,3}",
                                           "root ::= \"a\"{1 2}",
                                           "root ::= \"a\"{2000}{2000}",
                                           "root ::= \"a\"{0,99999999999999999999}" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (pl_llm_grammar_fault(refused[i], strlen(refused[i]), false) == NULL)
            fail_msg("taken: %s", refused[i]);
    static const char *const taken[] = { "root ::= [b-z]{3,9}", "root ::= \"a\"{ 2 , 2 } x\nx ::= [0-9]{3,}",
                                         "root ::= (\"a\" | [{}]){0,2000}", "root ::= \"{9,3}\" # {9,3}" };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        assert_null(pl_llm_grammar_fault(taken[i], strlen(taken[i]), false));
    /* ways that multiply with every character of a token */
    static const char *const slow[] = {
        "root ::= ([a-z]? [0-9]?){0,40} \"!\"",
        "root ::= (([a-z]?){0,8} [0-9]?){0,8} \"!\"",
        "root ::= ([a-z] | \"\"){0,9}",
        "root ::= (\"a\" | ){2,3}",
        "root ::= ([a-z]* | \"b\"){3}",
        "root ::= a? a? a? a? a? a? a? a? a? a? a? a? a? a? a? a? a?\na ::= [a-z]",
        "root ::= \"x\" ([a-z]? a? a? a? a? a? a? a? a? a? a? a? a? a? a? a? a*)\na ::= [a-z]",
        "root ::= \"a\")"
    };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        if (pl_llm_grammar_fault(slow[i], strlen(slow[i]), false) == NULL) fail_msg("taken: %s", slow[i]);
    static const char *const quick[] = {
        "root ::= (\"a\" [0-9]?){0,40}",
        "root ::= a? a? a? a? a? a? a? a? \"x\" a? a? a? a? a? a? a? a? a?\na ::= [a-z]",
        "root ::= ([a-z]? \"b\"){2,9} | \"\"", "root ::= ([a-z]?)? (\"c\" | \"\")\nx ::= \"\" | \"d\"{2}"
    };
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        const char *fault = pl_llm_grammar_fault(quick[i], strlen(quick[i]), false);
        if (fault != NULL) fail_msg("%s: %s", quick[i], fault);
    }
    /* small texts that llama.cpp would write out to gigabytes */
    static char bomb[60000];
    size_t at = (size_t)snprintf(bomb, sizeof bomb, "root ::= ");
    while (at < sizeof bomb - 20) at += (size_t)snprintf(bomb + at, 20, "[a]{1,2000}");
    assert_string_equal(pl_llm_grammar_fault(bomb, at, false),
                        "its repetitions make more than 65,536 elements");
    memset(bomb, 'x', sizeof bomb);
    memcpy(bomb, "root ::= \"", 10);
    memset(bomb + 40000, '+', sizeof bomb - 40000);
    bomb[39999] = '"';
    assert_string_equal(pl_llm_grammar_fault(bomb, sizeof bomb, false),
                        "its repetitions make more than 65,536 elements");
    assert_non_null(pl_llm_grammar_fault("root ::= \"\0\"", 12, false));
}

RUN(cmocka_unit_test(plain_kinds), cmocka_unit_test(objects_and_arrays),
    cmocka_unit_test(whole_numbers_between), cmocka_unit_test(what_is_not_supported_is_named),
    cmocka_unit_test(grammars_that_would_end_the_process))
