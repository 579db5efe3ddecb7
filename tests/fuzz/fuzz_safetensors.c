/* fuzz_safetensors.c - first byte 'i': an index; else the file, header length in front. What is accepted must
 * add up: the parts are the whole, and the whole is no more than the file.
 *
 * USES model base
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pl_weights w;

static void index_of(const char *text, size_t len) {
    struct pl_arena a;
    struct pl_shards s;
    struct pl_err err = { 0 };
    pl_arena_init(&a, 4 << 20);
    if (pl_safetensors_index(text, len, &a, &s, &err))
        for (size_t i = 0; i < s.count; i++)
            PL_ASSERT(strchr(s.names[i], '/') == NULL && s.names[i][0] != '.');
    pl_arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    if (size > 0 && data[0] == 'i') {
        index_of((const char *)data + 1, size - 1);
        return 0;
    }
    memset(&w, 0, sizeof w);
    uint64_t file = (uint64_t)size + 4096;
    if (!pl_safetensors_add(&w, (const char *)data, size, file, &err)) {
        PL_ASSERT(err.msg[0] != '\0');
        return 0;
    }
    uint64_t sum = w.embed + w.head + w.vision;
    for (int c = 0; c < PL_WEIGHT_CLASSES; c++) {
        sum += w.rest.bytes[c];
        for (uint32_t i = 0; i < w.layers; i++) sum += w.layer[i].bytes[c];
    }
    PL_ASSERT(sum == w.total && w.total <= file);
    return 0;
}
