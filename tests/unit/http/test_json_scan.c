/* What a body asks for, as far as admission must know it; the same however it was cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/json_scan.h"
#include "unit.h"

static struct pl_json_facts facts;

static enum pl_json_state scan(const char *text, size_t len, size_t step, uint32_t depth) {
    struct pl_json_scan *s = pl_json_scan_create(depth, true);
    assert_non_null(s);
    for (size_t i = 0; i < len; i += step) pl_json_scan_feed(s, text + i, len - i < step ? len - i : step);
    enum pl_json_state state = pl_json_scan_end(s);
    facts = *pl_json_scan_facts(s);
    pl_json_scan_destroy(s);
    return state;
}

/* Of a body that is JSON: in pieces of every size from one byte on, the same. */
static const struct pl_json_facts *of(const char *text) {
    struct pl_json_facts whole;
    size_t len = strlen(text);
    if (scan(text, len, len + 1, 64) != PL_JSON_WHOLE) fail_msg("not whole: %s", text);
    whole = facts;
    for (size_t step = 1; step < 40 && step < len; step++) {
        if (scan(text, len, step, 64) != PL_JSON_WHOLE) fail_msg("not whole in steps of %zu: %s", step, text);
        assert_memory_equal(&whole, &facts, sizeof whole);
    }
    return &facts;
}

TEST(a_chat_request_is_read) {
    const struct pl_json_facts *f = of(
        " {\"model\": \"org/llama\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello, you\"}],\n"
        "\"max_tokens\": 128, \"stream\": true, \"stream_options\": {\"include_usage\": true}, \"n\": 2}\n");
    assert_string_equal(f->model, "org/llama");
    assert_true(f->stream && f->include_usage);
    assert_int_equal(f->max_tokens.value, 128);
    assert_int_equal(f->n.value, 2);
    assert_false(f->best_of.there);
    assert_int_equal(f->text.words, 3); /* user, Hello, you */
    assert_int_equal(f->text.bytes, 14);
    assert_int_equal(f->array_items, 1);
    assert_int_equal(f->depth, 3);
    assert_int_equal(f->prompts, 0);
}

TEST(numbers_are_demands) {
    static const struct {
        const char *text;
        uint64_t value;
        bool unbounded;
    } rows[] = {
        { "0", 0, false },
        { "-0", 0, false },
        { "7", 7, false },
        { "16.5", 17, false },
        { "0.001", 1, false },
        { "1e3", 1000, false },
        { "1.5E+2", 150, false },
        { "250e-1", 25, false },
        { "1e400", PL_JSON_ASKED_MOST, false },
        { "1e-400", 1, false },
        { "99999999999999999999999999999999999999", PL_JSON_ASKED_MOST, false },
        { "0.00000000000000000000000000000000000001", 1, false },
        { "100e99999999999", PL_JSON_ASKED_MOST, false },
        { "-1", 0, true },
        { "-1e400", 0, true },
        { "Infinity", PL_JSON_ASKED_MOST, false },
        { "\"100\"", 100, false },
        { "\" +0100 \"", 100, false },
        { "\"1_000\"", 1000, false },
        { "\"0000000000000000512\"", 512, false },
        { "\"9\\u0039\"", 99, false },
        { "\"-1\"", 0, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"max_tokens\": %s}", rows[i].text);
        const struct pl_json_facts *f = of(text);
        if (!f->max_tokens.there || f->max_tokens.value != rows[i].value ||
            f->max_tokens.unbounded != rows[i].unbounded)
            fail_msg("%s: %llu", rows[i].text, (unsigned long long)f->max_tokens.value);
    }
    static const char *const none[] = { "null", "\"many\"", "true", "[5]", "{\"max_tokens\":5}" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"max_tokens\": %s}", none[i]);
        assert_false(of(text)->max_tokens.there);
    }
}

TEST(a_key_that_comes_twice_counts_by_the_larger_demand) {
    assert_int_equal(of("{\"max_tokens\":500,\"max_tokens\":1}")->max_tokens.value, 500);
    assert_int_equal(of("{\"max_tokens\":1,\"max_completion_tokens\":500}")->max_tokens.value, 500);
    assert_true(of("{\"stream\":true,\"stream\":false}")->stream);
    assert_string_equal(of("{\"model\":\"a\",\"model\":\"b\"}")->model, "b");
    assert_int_equal(of("{\"prompt\":[\"a\",\"b\"],\"prompt\":\"c\"}")->prompts, 3);
    assert_true(of("{\"max_tokens\":-1,\"max_tokens\":1}")->max_tokens.unbounded);
}

TEST(escaped_keys_are_the_same_keys) {
    assert_int_equal(of("{\"max_\\u0074okens\":9}")->max_tokens.value, 9);
    assert_int_equal(of("{\"\\u006d\\u0061\\u0078\\u005f\\u0074okens\":9}")->max_tokens.value, 9);
    assert_string_equal(of("{\"mo\\u0064el\":\"x\\u0079\"}")->model, "xy");
    assert_false(of("{\"max_tokensx\":9,\"Max_tokens\":9,\"max_token\":9}")->max_tokens.there);
}

TEST(prompts_may_be_texts_lists_and_tokens) {
    static const struct {
        const char *text;
        uint64_t prompts, ids;
    } rows[] = {
        { "{\"prompt\":\"a\"}", 1, 0 },
        { "{\"prompt\":[\"a\",\"b\",\"c\"]}", 3, 0 },
        { "{\"prompt\":[1,2,3]}", 1, 3 },
        { "{\"input\":[[1,2,3],[4]]}", 2, 4 },
        { "{\"prompt\":[]}", 0, 0 },
        { "{\"inputs\":\"a\"}", 1, 0 },
        { "{\"input\":[{\"role\":\"user\",\"content\":\"a\"}]}", 0, 0 },
        { "{\"other\":[1,2],\"text\":\"a\"}", 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct pl_json_facts *f = of(rows[i].text);
        if (f->prompts != rows[i].prompts || f->prompt_ids != rows[i].ids)
            fail_msg("%s: %llu, %llu", rows[i].text, (unsigned long long)f->prompts,
                     (unsigned long long)f->prompt_ids);
    }
}

TEST(tools_are_read_with_their_structure_and_formats_only_weighed) {
    const struct pl_json_facts *f = of("{\"tools\":[{\"name\":\"f\",\"p\":{\"type\":1}}]}");
    assert_int_equal(f->text.words, 4); /* name, f, p, type */
    assert_int_equal(f->text.digits, 1);
    assert_true(f->tools_bytes >= 26 && f->tools_bytes <= 32);
    f = of("{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}},\"messages\":[]}");
    assert_int_equal(f->text.bytes, 0);
    assert_true(f->format_bytes >= 36);
    assert_int_equal(of("{\"user\":\"u1\",\"metadata\":{\"a\":\"long\"},\"model\":\"m\"}")->text.bytes, 0);
}

TEST(text_is_counted_with_its_escapes_undone) {
    const struct pl_json_facts *f = of("{\"prompt\":\"a\\nb \\uac00\\ud83d\\ude00 caf\\u00e9 \\/ \\\"\"}");
    assert_int_equal(f->text.hangul, 1);
    assert_int_equal(f->text.four, 1);
    assert_int_equal(f->text.two, 1);
    assert_int_equal(f->text.words, 3);
    assert_int_equal(f->text.puncts, 2);
    assert_int_equal(of("{\"prompt\":\"\\ud800\\udc00\"}")->text.four, 1);
    assert_int_equal(of("{\"prompt\":\"\\ud800x\\udc00\"}")->text.three, 2); /* lone halves: U+FFFD */
    assert_int_equal(of("{\"a\":\"x\",\"b\":\"y\"}")->text.words, 2);
}

TEST(images_in_a_body_are_measured) {
    static const char png[] = "iVBORw0KGgoAAAANSUhEUgAAE4gAABOICAIAAAA="; /* 5000 x 5000 */
    char text[600];
    snprintf(text, sizeof text, "{\"image_url\":{\"url\":\"data:image/png;base64,%s\"}}", png);
    const struct pl_json_facts *f = of(text);
    assert_int_equal(f->images, 1);
    assert_int_equal(f->image_pixels, 25000000);
    assert_int_equal(f->text.bytes, 0);
    snprintf(text, sizeof text, "{\"x\":[\"%s\",\"DATA:image/PNG;x=y;BASE64,%s\"]}", png, png);
    f = of(text);
    assert_int_equal(f->images, 2);
    assert_int_equal(f->image_pixels_all, 50000000);
    assert_true(f->text.bytes > 80); /* where no image belongs it may be text as well */
    f = of("{\"url\":\"data:image/tiff;base64,SUkqAAAA\",\"image\":\"data:image/png;base64,\"}");
    assert_int_equal(f->images, 2);
    assert_int_equal(f->images_unread, 2);
    assert_int_equal(of("{\"url\":\"data:image/png,%89PNG\"}")->images_unread, 1);
    assert_int_equal(of("{\"url\":\"data:audio/wav;base64,UklGRg\"}")->images, 0);
    assert_int_equal(of("{\"image_url\":{\"url\":\"https://a/b.png\"}}")->images_remote, 1);
    f = of("{\"content\":\"data: what is it? https://a\"}");
    assert_int_equal(f->images + f->images_remote, 0);
    assert_int_equal(f->text.bytes, 27);
    /* escaped letters and slashes do not hide one */
    assert_int_equal(
        of("{\"url\":\"d\\u0061ta:image\\/png;base64,iVBORw0KGgoAAAANSUhEUgAAE4gAABOICAIAAAA=\"}")
            ->image_pixels,
        25000000);
}

TEST(replies_tell_what_was_used) {
    const struct pl_json_facts *f =
        of("{\"choices\":[{\"text\":\"a\",\"usage\":{\"prompt_tokens\":99}}],\"usage\":{\"prompt_tokens\":12,"
           "\"completion_tokens\":3,\"total_tokens\":15,\"prompt_tokens_details\":{\"cached_tokens\":4}}}");
    assert_true(f->has_usage);
    assert_false(f->has_error);
    assert_int_equal(f->prompt_tokens, 12);
    assert_int_equal(f->completion_tokens, 3);
    assert_int_equal(f->cached_tokens, 4);
    f = of("{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":2}"
           "}}");
    assert_true(f->has_usage);
    assert_int_equal(f->prompt_tokens, 7);
    assert_false(of("{\"usage\":null,\"error\":null}")->has_usage);
    assert_true(of("{\"error\":{\"message\":\"x\"}}")->has_error);
}

TEST(what_is_no_json_is_told) {
    static const char *const bad[] = {
        "",         "{",         "[1,]",        "{\"a\":}",    "{\"a\" 1}", "{a:1}", "[1 2]", "01",
        "+1",       "1.",        ".5",          "1e",          "--1",       "tru",   "truex", "nul",
        "\"a",      "\"\\x\"",   "\"\\u12g4\"", "[}",          "{]",        "{}}",   "1 2",   "{\"a\":1,}",
        "\"\n\"",   "[,1]",      "{,}",         "{\"a\":1:2}", "-",         "-Inf",  "\\",    "[1]x",
        "\xef\xbb", "\xff\xfe{", "{1:2}",       "[\"a\"\"b\"]"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t step = 1; step < 8; step++)
            if (scan(bad[i], strlen(bad[i]), step, 64) != PL_JSON_MALFORMED) fail_msg("taken: %s", bad[i]);
    static const char *const good[] = { "1",
                                        "-0.5e-7",
                                        "null",
                                        " [] ",
                                        "{}",
                                        "\"\"",
                                        "NaN",
                                        "[-Infinity]",
                                        "[[[]]]",
                                        "[NaN,Infinity]",
                                        "\xef\xbb\xbf{}",
                                        "{\"\":{\"\":[]}}",
                                        "true\n",
                                        "[0,0.0,10]" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) of(good[i]);
}

TEST(invalid_utf8_is_noted) {
    static const char *const bad[] = { "[\"\xc3(\"]",        "[\"\x80\"]",         "[\"\xc0\x80\"]",
                                       "[\"\xe0\x80\x80\"]", "[\"\xed\xa0\x80\"]", "[\"\xf4\x90\x80\x80\"]",
                                       "[\"\xf5\"]",         "[\"\xe2\x82\"]",     "[\"\xe2\x82\\n\"]",
                                       "{\"\xff\":1}" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!of(bad[i])->bad_utf8) fail_msg("row %zu", i);
    assert_false(of("[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xed\x9f\xbf\"]")->bad_utf8);
}

TEST(depth_is_bounded) {
    char text[2100];
    for (size_t levels = 60; levels < 70; levels++) {
        memset(text, '[', levels);
        memset(text + levels, ']', levels);
        enum pl_json_state want = levels > 64 ? PL_JSON_TOO_DEEP : PL_JSON_WHOLE;
        assert_int_equal(scan(text, 2 * levels, 3, 64), want);
        assert_int_equal(facts.depth, levels > 64 ? 65 : levels);
    }
    memset(text, '[', 1000);
    memset(text + 1000, ']', 1000);
    assert_int_equal(scan(text, 2000, 7, 100000), PL_JSON_TOO_DEEP);
    assert_int_equal(facts.depth, PL_JSON_DEPTH_MOST + 1);
}

TEST(the_longest_array_counts) {
    assert_int_equal(of("[[1,2],[\"a\",\"b\",{\"x\":[1,2,3,4,5]}],[]]")->array_items, 5);
    assert_int_equal(of("{\"a\":1,\"b\":2}")->array_items, 0);
}

/* Random documents, cut at random. */
static size_t write_value(char *out, unsigned depth) {
    static const char *const scalars[] = { "1",
                                           "-2.5e3",
                                           "true",
                                           "null",
                                           "\"x\"",
                                           "\"\\ud83d\\ude00\"",
                                           "\"data:image/gif;base64,R0lGODlhCAAJAIAA\"",
                                           "\"plain text of some length, with words\"",
                                           "\"\xea\xb0\x80\\n\"" };
    static const char *const keys[] = { "model",      "messages", "content", "url",
                                        "max_tokens", "tools",    "prompt",  "zz" };
    size_t n = 0;
    int kind = depth > 5 ? 0 : rand() % 3;
    if (kind == 0) return (size_t)sprintf(out, "%s", scalars[rand() % 9]);
    out[n++] = kind == 1 ? '[' : '{';
    for (int i = 0, count = rand() % 4; i < count; i++) {
        if (i > 0) out[n++] = ',';
        if (kind == 2) n += (size_t)sprintf(out + n, "\"%s\": ", keys[rand() % 8]);
        n += write_value(out + n, depth + 1);
    }
    out[n++] = kind == 1 ? ']' : '}';
    return n;
}

TEST(random_borders_change_nothing) {
    static char text[1 << 18];
    srand(5);
    for (int round = 0; round < 300; round++) {
        size_t len = write_value(text, 0);
        assert_int_equal(scan(text, len, len + 1, 64), PL_JSON_WHOLE);
        struct pl_json_facts whole = facts;
        struct pl_json_scan *s = pl_json_scan_create(64, true);
        for (size_t i = 0; i < len;) {
            size_t n = (size_t)rand() % 30;
            if (n > len - i) n = len - i;
            pl_json_scan_feed(s, text + i, n);
            i += n;
        }
        assert_int_equal(pl_json_scan_end(s), PL_JSON_WHOLE);
        assert_memory_equal(&whole, pl_json_scan_facts(s), sizeof whole);
        pl_json_scan_destroy(s);
    }
}

RUN(cmocka_unit_test(a_chat_request_is_read), cmocka_unit_test(numbers_are_demands),
    cmocka_unit_test(a_key_that_comes_twice_counts_by_the_larger_demand),
    cmocka_unit_test(escaped_keys_are_the_same_keys), cmocka_unit_test(prompts_may_be_texts_lists_and_tokens),
    cmocka_unit_test(tools_are_read_with_their_structure_and_formats_only_weighed),
    cmocka_unit_test(text_is_counted_with_its_escapes_undone),
    cmocka_unit_test(images_in_a_body_are_measured), cmocka_unit_test(replies_tell_what_was_used),
    cmocka_unit_test(what_is_no_json_is_told), cmocka_unit_test(invalid_utf8_is_noted),
    cmocka_unit_test(depth_is_bounded), cmocka_unit_test(the_longest_array_counts),
    cmocka_unit_test(random_borders_change_nothing))
