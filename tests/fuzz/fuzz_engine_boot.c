/* What a worker printed while it started, a line at a time: what an engine says of its memory.
 *
 * USES sample base
 */
#include <stdlib.h>
#include <string.h>

#include "sample/engine_boot.h"

#define MOST (UINT64_C(1) << 50)

static void check_bytes(struct pl_boot_bytes b) {
    if (!b.known && (b.bytes != 0 || b.off != 0)) abort();
    if (b.bytes > MOST) abort();
}

static void check(const struct pl_engine_boot *b) {
    for (int i = 0; i < PL_BOOT_PARTS; i++) {
        check_bytes(b->part[i]);
        if (pl_boot_part_name((enum pl_boot_part)i)[0] == '\0') abort();
    }
    check_bytes(b->graphs_estimated);
    check_bytes(b->consumed);
    check_bytes(b->free);
    check_bytes(b->total);
    if (b->kv_tokens > UINT64_C(1000000000000) || b->context_tokens > UINT64_C(1000000000000)) abort();
    if (b->persisted_bytes >= MOST) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_engine_boot b = { .kv_tokens = 0 };
    char *text = malloc(size > 0 ? size : 1); /* so that a read past its end is seen */
    if (text == NULL) abort();
    if (size > 0) memcpy(text, data, size);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end != NULL ? (size_t)(end - (text + at)) : size - at;
        char *line = malloc(len > 0 ? len : 1);
        if (line == NULL) abort();
        memcpy(line, text + at, len);
        pl_engine_boot_line(&b, line, len);
        free(line);
        check(&b);
        at += len + 1;
    }
    free(text);
    return 0;
}
