/* fuzz_promtext.c - whatever a worker calls its metrics: the page that comes out reads as the same page
 * again.
 *
 * USES base sample
 *
 * Property: nothing is skipped on the second reading, and it has as many samples and families as the first.
 * It holds for texts that stay inside the bounds on labels and names when the page has added its own, so
 * larger ones are not tried. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sample/promtext.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool nothing_is_ours(const char *family, size_t len) { return (void)family, (void)len, false; }

static size_t lines_of(const struct pl_buf *b, bool comments) {
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        if ((i == 0 || b->data[i - 1] == '\n') && (b->data[i] == '#') == comments) n++;
    return n;
}

enum { MOST_BYTES = 2048, MOST_LABELS = PL_PROMTEXT_LABELS - 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t labels = 0;
    for (size_t i = 0; i < size; i++) labels += data[i] == '=';
    if (size > MOST_BYTES || labels > MOST_LABELS) return 0;
    struct pl_promtext *first = pl_promtext_create(), *again = pl_promtext_create();
    struct pl_buf once, twice;
    size_t half = size / 2;
    PL_ASSERT(first != NULL && again != NULL);
    pl_buf_init(&once, 0);
    pl_buf_init(&twice, 0);
    pl_promtext_add(first, NULL, 1, (const char *)data, half);
    pl_promtext_add(first, NULL, 2, (const char *)data + half, size - half);
    pl_promtext_add(first, "chat", 1, (const char *)data, size);
    PL_ASSERT(pl_promtext_render(first, &once, nothing_is_ours));
    pl_promtext_add(again, NULL, 3, once.data, once.len);
    PL_ASSERT(pl_promtext_skipped(again) == 0);
    PL_ASSERT(pl_promtext_render(again, &twice, nothing_is_ours));
    PL_ASSERT(lines_of(&once, false) == lines_of(&twice, false));
    PL_ASSERT(lines_of(&once, true) == lines_of(&twice, true));
    pl_buf_free(&once);
    pl_buf_free(&twice);
    pl_promtext_destroy(first);
    pl_promtext_destroy(again);
    return 0;
}
