/* Images among the parts of a form, in pieces of every size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/multipart.h"
#include "unit.h"

#define TYPE "multipart/form-data; boundary=abc"
#define PNG  "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x13\x88\0\0\x13\x88" /* 5000 x 5000; has line ends in it */
#define GIF  "GIF89a\x40\0\x30\0\0\0\0;"

static struct pl_multipart m;

static void scan(const char *type, const char *body, size_t len, size_t step) {
    assert_true(pl_multipart_init(&m, type, strlen(type)));
    for (size_t i = 0; i < len; i += step) pl_multipart_feed(&m, body + i, len - i < step ? len - i : step);
    pl_multipart_end(&m);
}

#define EXPECT(type, body, count, unread, most)          \
    for (size_t step = 1; step < sizeof(body); step++) { \
        scan(type, body, sizeof(body) - 1, step);        \
        assert_int_equal(m.images, count);               \
        assert_int_equal(m.images_unread, unread);       \
        assert_int_equal(m.image_pixels, most);          \
    }

TEST(the_largest_image_of_a_form_counts) {
    EXPECT(TYPE,
           "--abc\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext\r\n"
           "--abc\r\nContent-Type: image/gif\r\n\r\n" GIF "\r\n"
           "--abc\r\ncontent-type:IMAGE/png\r\n\r\n" PNG "\r\n--abc--\r\n",
           2, 0, 25000000);
    assert_int_equal(m.width, 5000);
}

TEST(an_image_is_one_whatever_its_part_says) {
    EXPECT(TYPE, "--abc\r\nContent-Type: text/plain\r\n\r\n" PNG "\r\n--abc--", 1, 0, 25000000);
    EXPECT(TYPE, "--abc\r\n\r\n" PNG "\r\n--abc--", 1, 0, 25000000);
    EXPECT(TYPE, "--abc\r\n\r\n" PNG, 1, 0, 25000000); /* cut */
}

TEST(one_that_cannot_be_read_is_told) {
    EXPECT(TYPE, "--abc\r\nContent-Type: image/tiff\r\n\r\nII*\0\r\n--abc--", 1, 1, 0);
    EXPECT(TYPE, "--abc\r\nContent-Type: image/png\r\n\r\n\r\n--abc--", 1, 1, 0);
    EXPECT(TYPE, "--abc\r\n\r\n\x89PNG\r\n\x1a\n\r\n--abc--", 1, 1, 0);
}

TEST(lenient_readers_are_not_ahead_of_us) {
    EXPECT(TYPE, "--abc\nA: b\n\n" GIF "\n--abc--", 1, 0, 3072);
    EXPECT(TYPE, "preamble\r\n--abc  \r\nA: b\r\n\r\n" GIF "\r\n--abc--", 1, 0, 3072);
    EXPECT("multipart/form-data; charset=x; Boundary=\"a b;c\"", "--a b;c\r\n\r\n" GIF "\r\n--a b;c--", 1, 0,
           3072);
    EXPECT(TYPE, "--abc\r\n\r\n\n--ab\r\n--abc\r\n\r\n" GIF, 1, 0, 3072);
    EXPECT(TYPE, "--abc\r\n\r\n--abc\r\n\r\n" GIF, 1, 0, 3072); /* an empty part */
    EXPECT(TYPE, "--abc--\r\n\r\n--abc\r\n\r\n" GIF, 0, 0, 0);  /* after the end there is nothing */
}

TEST(without_a_boundary_there_is_nothing_to_follow) {
    static const char *const bad[] = { "multipart/form-data",
                                       "multipart/form-data; boundary=",
                                       "text/plain; boundary=a",
                                       "multipart/form-data; boundary=\"\"",
                                       "multi",
                                       "" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(pl_multipart_init(&m, bad[i], strlen(bad[i])));
    char longest[128] = "multipart/mixed; boundary=";
    memset(longest + 26, 'b', PL_BOUNDARY_MOST);
    assert_true(pl_multipart_init(&m, longest, 26 + PL_BOUNDARY_MOST));
    longest[26 + PL_BOUNDARY_MOST] = 'b';
    assert_false(pl_multipart_init(&m, longest, 27 + PL_BOUNDARY_MOST));
}

RUN(cmocka_unit_test(the_largest_image_of_a_form_counts),
    cmocka_unit_test(an_image_is_one_whatever_its_part_says),
    cmocka_unit_test(one_that_cannot_be_read_is_told), cmocka_unit_test(lenient_readers_are_not_ahead_of_us),
    cmocka_unit_test(without_a_boundary_there_is_nothing_to_follow))
