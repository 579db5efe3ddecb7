/* fuzz_image.c - the first bytes of an image, whole and byte by byte, raw and in base64: one answer.
 *
 * USES base http
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const struct pl_image *a, const struct pl_image *b) {
    PL_ASSERT(a->width == b->width && a->height == b->height && a->kind == b->kind && a->over == b->over);
    PL_ASSERT((a->width == 0) == (a->height == 0));
}

static char *encode(const uint8_t *data, size_t size, size_t *len) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = malloc(size / 3 * 4 + 5);
    PL_ASSERT(out != NULL);
    *len = 0;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits =
            (uint32_t)data[i] << 16 | (n > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (n > 2 ? data[i + 2] : 0u);
        for (size_t k = 0; k < 4; k++) out[(*len)++] = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
    }
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_image whole, bytes;
    struct pl_base64_image coded;
    size_t len;
    pl_image_init(&whole);
    pl_image_init(&bytes);
    pl_image_feed(&whole, data, size);
    for (size_t i = 0; i < size; i++) pl_image_feed(&bytes, data + i, 1);
    same(&whole, &bytes);
    char *text = encode(data, size, &len);
    pl_base64_image_init(&coded);
    for (size_t i = 0; i < len; i += 7) pl_base64_image_feed(&coded, text + i, len - i < 7 ? len - i : 7);
    pl_base64_image_end(&coded);
    same(&whole, &coded.image);
    free(text);
    return 0;
}
