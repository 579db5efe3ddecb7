/* What a text is made of, and that it does not matter how it came. */
#include <stdlib.h>
#include <string.h>

#include "base/text_count.h"
#include "unit.h"

static struct pl_text_counts of(const char *text) {
    struct pl_text_counts c = { 0 };
    pl_text_count(&c, text, strlen(text));
    return c;
}

TEST(words_digits_and_marks_are_told_apart) {
    struct pl_text_counts c = of("Hello, world!!  x=42\n");
    assert_int_equal(c.bytes, 21);
    assert_int_equal(c.letters, 11);
    assert_int_equal(c.words, 3);
    assert_int_equal(c.digits, 2);
    assert_int_equal(c.puncts, 4);
    assert_int_equal(c.punct_runs, 3);
    assert_int_equal(c.space_runs, 3);
}

TEST(other_scripts_are_counted_by_letters_not_by_bytes) {
    assert_int_equal(of("가나다").hangul, 3);
    assert_int_equal(of("漢字かな").cjk, 4);
    assert_int_equal(of("привет").two, 6);
    assert_int_equal(of("नम").three, 2);
    assert_int_equal(of("–").three, 1);
    assert_int_equal(of("😀😀").four, 2);
    struct pl_text_counts c = of("가나다");
    assert_int_equal(c.letters + c.puncts + c.space_runs + c.cjk + c.two + c.three + c.four, 0);
}

TEST(a_break_begins_a_new_word) {
    struct pl_text_counts c = { 0 };
    pl_text_count(&c, "ab", 2);
    pl_text_count(&c, "cd", 2);
    assert_int_equal(c.words, 1);
    pl_text_count_break(&c);
    pl_text_count(&c, "ef", 2);
    assert_int_equal(c.words, 2);
}

TEST(pieces_of_any_size_give_the_same_counts) {
    static const char letters[] =
        "abcXYZ 019\t\n.,;{}\"\xc3\xa9\xea\xb0\x80\xe6\xbc\xa2\xf0\x9f\x98\x80\xe2\x80\x93\x7f\x01";
    srand(11);
    for (int round = 0; round < 400; round++) {
        char text[700];
        size_t len = (size_t)rand() % sizeof text;
        int few = round % 2;
        for (size_t i = 0; i < len; i++)
            text[i] = few ? "ab "[rand() % 3] : letters[(size_t)rand() % (sizeof letters - 1)];
        struct pl_text_counts whole = { 0 }, bytes = { 0 }, pieces = { 0 };
        pl_text_count(&whole, text, len);
        for (size_t i = 0; i < len; i++) pl_text_count(&bytes, text + i, 1);
        for (size_t i = 0; i < len;) {
            size_t n = (size_t)rand() % 200;
            if (n > len - i) n = len - i;
            pl_text_count(&pieces, text + i, n);
            i += n;
        }
        assert_memory_equal(&whole, &bytes, sizeof whole);
        assert_memory_equal(&whole, &pieces, sizeof whole);
    }
}

RUN(cmocka_unit_test(words_digits_and_marks_are_told_apart),
    cmocka_unit_test(other_scripts_are_counted_by_letters_not_by_bytes),
    cmocka_unit_test(a_break_begins_a_new_word), cmocka_unit_test(pieces_of_any_size_give_the_same_counts))
