/* fuzz_usage.c - a reply read whole and byte by byte has used the same, and no less than a real parser finds
 * in its `usage`; where that finds none, nothing was used.
 *
 * USES base http config
 */
#include <jansson.h>
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

enum { DEPTH = 20 };

/* Whether a member is called so, anywhere. */
static bool has_usage(const json_t *v, unsigned level, unsigned *deepest) {
    const char *key;
    json_t *child;
    size_t i;
    bool found = json_object_get(v, "usage") != NULL;
    if (level > *deepest && (json_is_object(v) || json_is_array(v))) *deepest = level;
    json_object_foreach((json_t *)(uintptr_t)v, key, child) found |= has_usage(child, level + 1, deepest);
    json_array_foreach(v, i, child) found |= has_usage(child, level + 1, deepest);
    return found;
}

static uint64_t at_least(const json_t *usage, const char *key) {
    json_int_t n = json_integer_value(json_object_get(usage, key));
    uint64_t count = n > 0 ? (uint64_t)n : 0;
    return count < PL_JSON_ASKED_MOST ? count : PL_JSON_ASKED_MOST;
}

static void against_jansson(const struct pl_usage *u, const uint8_t *data, size_t size) {
    json_t *v = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    const json_t *usage = json_object_get(v, "usage");
    unsigned deepest = 0;
    bool has = has_usage(v, 1, &deepest);
    if (json_is_object(usage) && deepest <= DEPTH) {
        PL_ASSERT(u->told);
        PL_ASSERT(u->prompt_tokens >= at_least(usage, "prompt_tokens"));
        PL_ASSERT(u->completion_tokens >= at_least(usage, "completion_tokens"));
    }
    if (v != NULL && !has) PL_ASSERT(!u->told && u->prompt_tokens == 0 && u->completion_tokens == 0);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_json_scan *s = pl_json_scan_create(DEPTH, false);
    PL_ASSERT(s != NULL);
    for (int events = 0; events < 2; events++) {
        struct pl_usage whole = read_it(s, data, size, events, size + 1);
        if (events == 0) against_jansson(&whole, data, size);
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
