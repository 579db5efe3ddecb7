/* fuzz_zygote.c - any bytes as a zygote's page: what is told is text that fits, and nothing behind the page
 * is read.
 *
 * USES sample base
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/wire.h"
#include "sample/zygote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_text(const char *text, size_t room) {
    size_t n = strnlen(text, room);
    PL_ASSERT(n < room);
    for (size_t i = 0; i < n; i++) PL_ASSERT((unsigned char)text[i] >= ' ' && text[i] != 0x7f);
}

static void read_it(const uint8_t *data, size_t size, bool good_magic) {
    const uint32_t magic = PL_ZYGOTE_MAGIC;
    struct pl_zygote_page page;
    uint8_t *exact = malloc(size > 0 ? size : 1); /* a sanitizer sees one byte too many */
    PL_ASSERT(exact != NULL);
    if (size > 0) memcpy(exact, data, size);
    if (good_magic && size >= sizeof magic) memcpy(exact, &magic, sizeof magic);
    bool is = pl_zygote_read(exact, size, &page);
    PL_ASSERT(is == (page.state != PL_ZYGOTE_NOTHING));
    is_text(page.reason, sizeof page.reason);
    is_text(page.module, sizeof page.module);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > PL_ZYGOTE_PAGE_BYTES) return 0;
    read_it(data, size, false);
    read_it(data, size, true);
    return 0;
}
