/* Sizes of images, from files that are replayed by the fuzz target too. */
#include <stdio.h>
#include <string.h>

#include "http/image.h"
#include "unit.h"

static struct pl_image read_file(const char *name) {
    char path[512];
    uint8_t bytes[4096];
    struct pl_image i;
    snprintf(path, sizeof path, "%s/../fuzz/corpus/image/%s", PL_TEST_DATA, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t len = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    pl_image_init(&i);
    pl_image_feed(&i, bytes, len);
    return i;
}

TEST(the_four_kinds_are_measured) {
    static const struct {
        const char *name;
        enum pl_image_kind kind;
        uint32_t width, height;
    } rows[] = {
        { "png", PL_IMAGE_PNG, 5000, 5000 },
        { "jpeg", PL_IMAGE_JPEG, 4032, 3024 }, /* behind a thumbnail that says 1 x 1 */
        { "gif", PL_IMAGE_GIF, 300, 200 },     /* its frame is larger than its screen of 10 x 10 */
        { "gif_plain", PL_IMAGE_GIF, 640, 480 },
        { "webp_lossy", PL_IMAGE_WEBP, 640, 480 },
        { "webp_lossless", PL_IMAGE_WEBP, 1024, 768 },
        { "webp_canvas", PL_IMAGE_WEBP, 5000, 4000 },
        { "text", PL_IMAGE_NONE, 0, 0 },
        { "empty", PL_IMAGE_NONE, 0, 0 },
        { "cut", PL_IMAGE_PNG, 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_image image = read_file(rows[i].name);
        if (image.kind != rows[i].kind || image.width != rows[i].width || image.height != rows[i].height)
            fail_msg("%s: %u x %u", rows[i].name, image.width, image.height);
    }
}

static struct pl_image of(const char *bytes, size_t len) {
    struct pl_image i;
    pl_image_init(&i);
    pl_image_feed(&i, bytes, len);
    return i;
}

TEST(an_image_without_a_size_has_none) {
    static const char nothing[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\5";
    static const char no_head[] = "\x89PNG\r\n\x1a\n\0\0\0\1tEXt\0\0\1\0\0\0\1\0";
    static const char data_first[] = "\xff\xd8\xff\xda\0\2\xff\xc0\0\x0b\x08\0\5\0\5";
    static const char no_height[] = "\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\5\1\1\x11\0\xff\xd9";
    struct pl_image i = of(nothing, sizeof nothing - 1);
    assert_true(i.over && pl_image_pixels(&i) == 0);
    i = of(no_head, sizeof no_head - 1);
    assert_true(i.over && pl_image_pixels(&i) == 0);
    i = of(data_first, sizeof data_first - 1);
    assert_true(i.over && pl_image_pixels(&i) == 0);
    i = of(no_height, sizeof no_height - 1);
    assert_true(i.over && pl_image_pixels(&i) == 0);
}

TEST(of_two_frame_heads_the_larger_counts) {
    static const char two[] = "\xff\xd8\xff\xc2\0\x0b\x08\0\1\0\1\1\1\x11\0"
                              "\xff\xc0\0\x0b\x08\x10\0\x20\0\1\1\x11\0\xff\xda";
    struct pl_image i = of(two, sizeof two - 1);
    assert_int_equal(i.width, 0x2000);
    assert_int_equal(i.height, 0x1000);
    assert_int_equal(pl_image_pixels(&i), 0x2000000);
}

RUN(cmocka_unit_test(the_four_kinds_are_measured), cmocka_unit_test(an_image_without_a_size_has_none),
    cmocka_unit_test(of_two_frame_heads_the_larger_counts))
