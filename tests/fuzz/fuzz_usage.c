/* fuzz_usage.c - a reply read whole and byte by byte has used the same.
 *
 * USES base http
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pl_usage read_it(struct pl_json_scan *s, const uint8_t *data, size_t size, bool events,
                               size_t step) {
    struct pl_usage u;
    pl_usage_begin(&u, s, events);
    for (size_t i = 0; i < size; i += step) {
        size_t n = size - i < step ? size - i : step;
        char *exact = malloc(n);
        PL_ASSERT(exact != NULL);
        memcpy(exact, data + i, n);
        pl_usage_feed(&u, exact, n);
        free(exact);
    }
    pl_usage_end(&u);
    return u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_json_scan *s = pl_json_scan_create(20, false);
    PL_ASSERT(s != NULL);
    for (int events = 0; events < 2; events++) {
        struct pl_usage whole = read_it(s, data, size, events, size + 1);
        for (size_t step = 1; step < 20; step += 6) {
            struct pl_usage parts = read_it(s, data, size, events, step);
            PL_ASSERT(whole.told == parts.told && whole.error == parts.error);
            PL_ASSERT(whole.prompt_tokens == parts.prompt_tokens &&
                      whole.cached_tokens == parts.cached_tokens);
            PL_ASSERT(whole.completion_tokens == parts.completion_tokens);
        }
    }
    pl_json_scan_destroy(s);
    return 0;
}
