#include "base/buf.h"

#include <string.h>

#include "unit.h"

TEST(past_the_cap_the_content_stays_as_it_was) {
    struct pl_buf b;
    pl_buf_init(&b, 10);
    assert_true(pl_buf_add(&b, "0123456", 7));
    assert_false(pl_buf_add(&b, "789a", 4));
    assert_false(pl_buf_addf(&b, "%d", 12345));
    assert_false(pl_buf_add_json(&b, "ab", 2));
    assert_string_equal(pl_buf_text(&b), "0123456");
    assert_true(pl_buf_add(&b, "789", 3));
    assert_int_equal(b.len, 10);
    assert_true(b.size <= 10);
    /* no room for the NUL */
    assert_string_equal(pl_buf_text(&b), "");
    pl_buf_free(&b);
    assert_int_equal(b.cap, 10);
}

TEST(a_reserve_that_would_overflow_is_refused) {
    struct pl_buf b;
    pl_buf_init(&b, 0);
    assert_true(pl_buf_adds(&b, "x"));
    assert_false(pl_buf_reserve(&b, SIZE_MAX));
    assert_string_equal(pl_buf_text(&b), "x");
    pl_buf_free(&b);
}

TEST(formatted_text_longer_than_the_small_buffer_is_whole) {
    struct pl_buf b;
    char long_text[2000];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    pl_buf_init(&b, 0);
    assert_true(pl_buf_addf(&b, "<%s|%d>", long_text, 7));
    assert_int_equal(b.len, sizeof long_text - 1 + 4);
    assert_memory_equal(b.data + b.len - 3, "|7>", 3);
    pl_buf_free(&b);
}

TEST(json_strings_are_escaped) {
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } table[] = {
        { "", 0, "\"\"" },
        { "plain", 5, "\"plain\"" },
        { "a\"b\\c", 5, "\"a\\\"b\\\\c\"" },
        { "\n\r\t", 3, "\"\\n\\r\\t\"" },
        { "\0\x1b[31m", 6, "\"\\u0000\\u001b[31m\"" },
        { "\x7f", 1, "\"\\u007f\"" },
        { "\xc2\x9b", 2, "\"\\u009b\"" },
        { "\xc2\xa0", 2, "\"\xc2\xa0\"" },
        { "gr\xc3\xbc\xc3\x9f", 6, "\"gr\xc3\xbc\xc3\x9f\"" },
        { "\xe2\x82\xac", 3, "\"\xe2\x82\xac\"" },
        { "\xf0\x9f\x9a\xa2", 4, "\"\xf0\x9f\x9a\xa2\"" },
        { "a\xff"
          "b",
          3, "\"a\\ufffdb\"" },
        { "\xe2\x82", 2, "\"\\ufffd\\ufffd\"" },
        { "\xc0\xaf", 2, "\"\\ufffd\\ufffd\"" },
        { "\xe0\x80\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"" },
        { "\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"" },
        { "\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct pl_buf b;
        pl_buf_init(&b, 0);
        assert_true(pl_buf_add_json(&b, table[i].in, table[i].len));
        assert_string_equal(pl_buf_text(&b), table[i].out);
        pl_buf_free(&b);
    }
}

TEST(drop_forgets_from_the_front) {
    struct pl_buf b;
    pl_buf_init(&b, 0);
    pl_buf_adds(&b, "headbody");
    pl_buf_drop(&b, 4);
    assert_string_equal(pl_buf_text(&b), "body");
    pl_buf_drop(&b, 100);
    assert_int_equal(b.len, 0);
    pl_buf_free(&b);
}

RUN(cmocka_unit_test(past_the_cap_the_content_stays_as_it_was),
    cmocka_unit_test(a_reserve_that_would_overflow_is_refused),
    cmocka_unit_test(formatted_text_longer_than_the_small_buffer_is_whole),
    cmocka_unit_test(json_strings_are_escaped), cmocka_unit_test(drop_forgets_from_the_front))
