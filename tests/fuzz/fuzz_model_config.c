/* fuzz_model_config.c - a config.json. What is accepted is planned on every engine and shown; nothing may
 * wrap or trap.
 *
 * USES plan model base
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA = 64 << 20 };
static struct pl_model m;
static struct pl_weights w;
static struct pl_plan p;

static void plan(enum pl_engine engine, const char *gpu, struct pl_arena *a) {
    struct pl_err err;
    struct pl_buf text;
    struct pl_ask ask = { .engine = engine, .target = "m" };
    struct pl_arena_mark mark = pl_arena_mark(a);
    PL_ASSERT(pl_gpu_parse(gpu, &ask.gpu, &err));
    if (pl_plan_make(&ask, &m, &w, a, &p, &err)) {
        PL_ASSERT(!p.fits || p.need <= ask.gpu.total_bytes);
        pl_buf_init(&text, 0);
        PL_ASSERT(pl_plan_show(&p, true, a, &text) && pl_plan_show_json(&p, true, a, &text) &&
                  pl_plan_show_flags(&p, &text));
        pl_buf_free(&text);
    }
    pl_arena_rollback(a, mark);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    struct pl_arena a;
    if (size > 1 << 14) return 0;
    pl_arena_init(&a, ARENA);
    if (pl_model_read_config((const char *)data, size, &a, &m, &err)) {
        pl_model_read_generation(&m, (const char *)data, size);
        pl_model_read_quant(&m, (const char *)data, size);
        memset(&w, 0, sizeof w);
        if (!pl_weights_from_model(&w, &m, &err)) pl_weights_add_file(&w, 1 << 30);
        static const char *const gpus[PL_ENGINES] = { "h100x2", "l4", "t4x3", "b200" };
        enum pl_engine engine =
            (enum pl_engine)(size % PL_ENGINES); /* one a run: they are slow beside the reading */
        plan(engine, gpus[engine], &a);
    } else {
        PL_ASSERT(err.msg[0] != '\0');
    }
    pl_arena_free(&a);
    return 0;
}
