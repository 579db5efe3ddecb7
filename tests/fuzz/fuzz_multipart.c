/* fuzz_multipart.c - a form read whole and byte by byte has the same images.
 *
 * USES base http
 *
 * The first line is the content type, the rest the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = memchr(data, '\n', size);
    struct pl_multipart whole, bytes;
    size_t n = line != NULL ? (size_t)(line - data) : size;
    bool can = pl_multipart_init(&whole, (const char *)data, n);
    PL_ASSERT(pl_multipart_init(&bytes, (const char *)data, n) == can);
    if (!can || line == NULL) return 0;
    size_t len = size - n - 1;
    char *body = malloc(len > 0 ? len : 1);
    PL_ASSERT(body != NULL);
    memcpy(body, line + 1, len);
    pl_multipart_feed(&whole, body, len);
    for (size_t i = 0; i < len; i++) pl_multipart_feed(&bytes, body + i, 1);
    pl_multipart_end(&whole);
    pl_multipart_end(&bytes);
    PL_ASSERT(whole.images == bytes.images && whole.images_unread == bytes.images_unread);
    PL_ASSERT(whole.image_pixels == bytes.image_pixels && whole.stage == bytes.stage);
    free(body);
    return 0;
}
