/* strategies.c - the same requests on the same card, served in six ways. The pool is card * utilization -
 * weights: activation and context live in what is kept free, alike for all. docs/plan.md computes an example
 * by hand. */
#include "model/num.h"
#include "plan/inside.h"

struct traffic {
    uint64_t mean_in_use; /* bytes of a mean request at its end, in one piece */
    uint64_t mean_out, most_out;
};

static struct traffic traffic_of(const struct pl_plan *p) {
    struct traffic t = { 0, 0, 0 };
    uint64_t bytes = 0, out = 0, shares = 0;
    for (size_t i = 0; i < p->ask.expect_count; i++) {
        const struct pl_expect *e = &p->ask.expect[i];
        bytes = pl_add(bytes, pl_mul(pl_piece_bytes(p, &p->ranks[p->least], e->in + e->out), e->share));
        out += e->out * e->share;
        shares += e->share;
        t.most_out = pl_max(t.most_out, e->out);
    }
    t.mean_in_use = bytes / pl_max(shares, 1);
    t.mean_out = out / pl_max(shares, 1);
    return t;
}

static uint64_t pool_of(const struct pl_plan *p) {
    return pl_less(
        p->ask.gpu.total_bytes,
        pl_add(pl_add(p->terms[PL_PART_MARGIN].bytes, p->ask.gpu.foreign_bytes), p->ranks[p->least].weights));
}

static struct pl_strategy in_pieces(const struct pl_plan *p, const char *name, uint32_t busy,
                                    const char *price) {
    uint64_t piece = pl_piece_bytes(p, &p->ranks[p->least], p->max_len);
    struct pl_strategy s = { .name = name, .price = price, .pool = pool_of(p), .busy = busy };
    s.concurrency = piece == 0 ? 0 : s.pool / piece;
    s.wasted = pl_less(piece, traffic_of(p).mean_in_use);
    return s;
}

static struct pl_strategy in_pages(const struct pl_plan *p, const char *name, const char *price) {
    const struct pl_rank *r = &p->ranks[p->least];
    struct pl_strategy s = { .name = name, .price = price, .pool = pool_of(p), .busy = PL_SHARES };
    uint64_t blocks = 0, shares = 0;
    for (size_t i = 0; i < p->ask.expect_count; i++) {
        const struct pl_expect *e = &p->ask.expect[i];
        struct pl_kv_load l = { .max_len = e->in + e->out,
                                .in_flight = p->in_flight,
                                .dcp = 1,
                                .encoder_len = p->model->encoder_tokens };
        blocks = pl_add(blocks, pl_mul(pl_kv_blocks(&p->groups, l), e->share));
        shares += e->share;
    }
    if (blocks == 0 || r->block_bytes == 0) return s;
    s.concurrency = pl_mul(pl_less(s.pool / r->block_bytes, 1), shares) / blocks;
    s.wasted = pl_less(pl_mul(r->block_bytes, blocks) / shares, traffic_of(p).mean_in_use);
    return s;
}

size_t pl_plan_strategies(const struct pl_plan *p, struct pl_arena *arena,
                          struct pl_strategy out[PL_STRATEGIES]) {
    static const struct {
        const char *name, *price, *kv;
        uint32_t bits;
    } paged[] = {
        { "paged KV", "an engine with paged attention; long requests are preempted when the pool is full",
          NULL, 0 },
        { "paged KV in fp8", "a little quality", "fp8", 0 },
        { "paged KV, INT8 weights", "little quality; INT8 or FP8 kernels", NULL, 8 },
        { "paged KV, INT4 weights", "some quality; slower at large batches", NULL, 4 },
    };
    struct pl_plan v;
    struct pl_err err = { 0 };
    struct pl_ask ask = p->ask;
    size_t count = 0;
    ask.engine = PL_ENGINE_VLLM;
    ask.max_len = p->max_len;
    if (p->ask.engine == PL_ENGINE_LLAMA) {
        ask.kv = NULL;
        ask.tp = 0;
        ask.pp = 0;
    }
    if (!pl_plan_make(&ask, p->model, p->weights, arena, &v, &err)) return 0;
    struct traffic t = traffic_of(&v);
    uint32_t busy = t.most_out == 0 ? PL_SHARES : (uint32_t)(t.mean_out * PL_SHARES / t.most_out);
    out[count++] =
        in_pieces(&v, "static batching", busy, "a batch ends with its longest answer; the others wait");
    out[count++] =
        in_pieces(&v, "continuous batching", PL_SHARES, "a scheduler that admits and retires at every step");
    for (size_t i = 0; i < sizeof paged / sizeof *paged; i++) {
        struct pl_ask a = ask;
        struct pl_arena_mark mark = pl_arena_mark(arena);
        bool quantised_already = p->model->quant != NULL || p->weights->matrices == 0;
        if (paged[i].bits != 0 && quantised_already) continue;
        if (paged[i].kv != NULL && v.kv_type->bits != 16) continue;
        if (paged[i].kv != NULL) a.kv = paged[i].kv;
        a.weight_bits = paged[i].bits;
        if (pl_plan_make(&a, p->model, p->weights, arena, &v, &err))
            out[count++] = in_pages(&v, paged[i].name, paged[i].price);
        pl_arena_rollback(arena, mark);
    }
    return count;
}
