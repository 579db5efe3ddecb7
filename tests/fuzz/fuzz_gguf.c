/* fuzz_gguf.c - the head of a GGUF file. What is accepted must be plannable without a number that wrapped,
 * and reading must not depend on how much of the file was there at first.
 *
 * USES plan model base
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA = 32 << 20 };
static struct pl_model m;
static struct pl_weights w;
static struct pl_plan p;

static void plan(struct pl_arena *a) {
    struct pl_err err;
    struct pl_buf text;
    struct pl_ask ask = { .engine = PL_ENGINE_LLAMA, .target = "m" };
    PL_ASSERT(pl_gpu_parse("h100x2", &ask.gpu, &err));
    if (!pl_plan_make(&ask, &m, &w, a, &p, &err)) return;
    PL_ASSERT(p.longest <= PL_MODEL_TOKENS);
    pl_buf_init(&text, 0);
    PL_ASSERT(pl_plan_show(&p, true, a, &text) && pl_plan_show_json(&p, true, a, &text) &&
              pl_plan_show_yaml(&p, &text));
    pl_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    struct pl_arena a;
    pl_arena_init(&a, ARENA);
    memset(&w, 0, sizeof w);
    /* the file is larger than its head, as most are */
    uint64_t file = (uint64_t)size + (1 << 20);
    enum pl_gguf_result whole = pl_gguf_read((const char *)data, size, file, &a, &m, &w, &err);
    if (whole == PL_GGUF_BAD) PL_ASSERT(err.msg[0] != '\0');
    if (whole == PL_GGUF_OK) {
        PL_ASSERT(m.layers > 0 && m.layers <= PL_MODEL_LAYERS && m.cache_count <= 2 * PL_MODEL_LAYERS);
        plan(&a);
        struct pl_weights half = { 0 };
        struct pl_model none;
        enum pl_gguf_result r = pl_gguf_read((const char *)data, size / 2, file, &a, &none, &half, &err);
        PL_ASSERT(r != PL_GGUF_OK || half.total == w.total);
    }
    pl_arena_free(&a);
    return 0;
}
