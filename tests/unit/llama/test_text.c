/* What may be shown of an answer: whole characters, nothing of a stop string, whatever the pieces were. */
#include "unit.h"

#include <string.h>

#include "llama/text.h"

/* Pushes the text in pieces of `piece` bytes; what was shown, and whether it stopped. */
static bool shown(const char *text, size_t len, size_t piece, const char *const *stops, struct pl_buf *out) {
    struct pl_llm_text t;
    bool stopped = false;
    pl_llm_text_init(&t);
    pl_buf_init(out, 1 << 20);
    for (; stops != NULL && *stops != NULL; stops++)
        assert_true(pl_llm_text_stop(&t, *stops, strlen(*stops)));
    for (size_t at = 0; at < len && !stopped; at += piece)
        stopped = pl_llm_text_push(&t, text + at, at + piece < len ? piece : len - at, out);
    pl_llm_text_end(&t, out);
    pl_llm_text_free(&t);
    return stopped;
}

static void expect(const char *text, size_t len, const char *const *stops, const char *want, bool stops_it) {
    for (size_t piece = 1; piece <= len; piece++) {
        struct pl_buf out;
        assert_int_equal(shown(text, len, piece, stops, &out), stops_it);
        assert_string_equal(pl_buf_text(&out), want);
        pl_buf_free(&out);
    }
}

TEST(characters_are_never_cut) {
    const char *text = "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8b!";
    expect(text, strlen(text), NULL, text, false);
    struct pl_llm_text t;
    struct pl_buf out;
    pl_llm_text_init(&t);
    pl_buf_init(&out, 100);
    pl_llm_text_push(&t, "a\xf0\x9f", 3, &out);
    assert_string_equal(pl_buf_text(&out), "a");
    pl_llm_text_push(&t, "\x90\x8b", 2, &out);
    assert_string_equal(pl_buf_text(&out), "a\xf0\x9f\x90\x8b");
    pl_llm_text_free(&t);
    pl_buf_free(&out);
}

TEST(what_is_no_utf8_is_replaced) {
    expect("a\xff"
           "b",
           3, NULL,
           "a\xef\xbf\xbd"
           "b",
           false);
    expect("a\xc3", 2, NULL, "a\xef\xbf\xbd", false); /* never finished */
    expect("\xe2\x82"
           "x",
           3, NULL, "\xef\xbf\xbd\xef\xbf\xbdx", false);                            /* broken off */
    expect("\xed\xa0\x80", 3, NULL, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", false); /* a surrogate */
}

TEST(stop_strings_are_never_shown) {
    const char *const stops[] = { "###", "</end>", NULL };
    expect("one ### two", 11, stops, "one ", true);
    expect("one ## two", 10, stops, "one ## two", false);
    expect("a</en</end>b", 12, stops, "a</en", true);
    expect("a</en", 5, stops, "a</en", false);
    const char *const euro[] = { "\xe2\x82\xac", NULL };
    expect("5 \xe2\x82\xac.", 6, euro, "5 ", true);
}

TEST(the_first_stop_in_the_text_counts) {
    const char *const stops[] = { "bc", "ab", NULL };
    struct pl_buf out;
    assert_true(shown("xabcx", 5, 5, stops, &out));
    assert_string_equal(pl_buf_text(&out), "x");
    pl_buf_free(&out);
}

TEST(bad_stops_are_refused) {
    struct pl_llm_text t;
    char longer[PL_LLM_STOP_BYTES + 1];
    memset(longer, 'x', sizeof longer);
    pl_llm_text_init(&t);
    assert_false(pl_llm_text_stop(&t, "", 0));
    assert_false(pl_llm_text_stop(&t, longer, sizeof longer));
    assert_false(pl_llm_text_stop(&t, "a\0b", 3));
    for (int i = 0; i < PL_LLM_STOPS; i++) assert_true(pl_llm_text_stop(&t, "x", 1));
    assert_false(pl_llm_text_stop(&t, "x", 1));
    pl_llm_text_free(&t);
}

RUN(cmocka_unit_test(characters_are_never_cut), cmocka_unit_test(what_is_no_utf8_is_replaced),
    cmocka_unit_test(stop_strings_are_never_shown), cmocka_unit_test(the_first_stop_in_the_text_counts),
    cmocka_unit_test(bad_stops_are_refused))
