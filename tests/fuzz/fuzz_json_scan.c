/* fuzz_json_scan.c - a body read whole, in two and byte by byte tells the same; what a real parser takes, we
 * take, and see as deep and as long as it is.
 *
 * USES base http config
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEPTH = 20 };

/* Pieces are copied, so that a sanitizer sees a read or a kept pointer beyond them. */
static void feed_copy(struct pl_json_scan *s, const uint8_t *data, size_t len) {
    char *exact = malloc(len > 0 ? len : 1);
    PL_ASSERT(exact != NULL);
    for (size_t i = 0; i < len; i++) exact[i] = (char)data[i];
    pl_json_scan_feed(s, exact, len);
    free(exact);
}

/* Whether the two may stand for one another: a piece that was refused ends the reading, wherever it was cut.
 */
static void same(const struct pl_json_scan *a, const struct pl_json_scan *b) {
    PL_ASSERT(pl_json_scan_offset(a) == pl_json_scan_offset(b));
    PL_ASSERT(memcmp(pl_json_scan_facts(a), pl_json_scan_facts(b), sizeof(struct pl_json_facts)) == 0);
}

static void measure(const json_t *v, uint32_t level, uint32_t *depth, uint64_t *items) {
    const char *key;
    json_t *child;
    size_t i;
    if (!json_is_object(v) && !json_is_array(v)) return;
    if (level > *depth) *depth = level;
    if (json_array_size(v) > *items) *items = json_array_size(v);
    json_object_foreach((json_t *)(uintptr_t)v, key, child) measure(child, level + 1, depth, items);
    json_array_foreach(v, i, child) measure(child, level + 1, depth, items);
}

static void against_jansson(const struct pl_json_scan *s, enum pl_json_state state, const uint8_t *data,
                            size_t size) {
    const struct pl_json_facts *f = pl_json_scan_facts(s);
    uint32_t depth = 0;
    uint64_t items = 0;
    if (memchr(data, 0, size) != NULL) return; /* it passes over NUL bytes */
    json_t *v = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (v == NULL) return;
    measure(v, 1, &depth, &items);
    json_decref(v);
    PL_ASSERT(!f->bad_utf8);
    PL_ASSERT(state == (depth > DEPTH ? PL_JSON_TOO_DEEP : PL_JSON_WHOLE) || state == PL_JSON_TOO_DEEP);
    if (state == PL_JSON_WHOLE) PL_ASSERT(f->depth >= depth && f->array_items >= items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_json_scan *whole = pl_json_scan_create(DEPTH, true), *other = pl_json_scan_create(DEPTH, true);
    PL_ASSERT(whole != NULL && other != NULL);
    feed_copy(whole, data, size);
    enum pl_json_state state = pl_json_scan_end(whole);
    size_t stride = size / 100 + 1;
    for (size_t cut = 0; cut < size; cut += stride) {
        pl_json_scan_reset(other);
        feed_copy(other, data, cut);
        feed_copy(other, data + cut, size - cut);
        PL_ASSERT(pl_json_scan_end(other) == state);
        same(whole, other);
    }
    pl_json_scan_reset(other);
    for (size_t i = 0; i < size; i++) feed_copy(other, data + i, 1);
    PL_ASSERT(pl_json_scan_end(other) == state);
    same(whole, other);
    against_jansson(whole, state, data, size);
    pl_json_scan_destroy(whole);
    pl_json_scan_destroy(other);
    return 0;
}
