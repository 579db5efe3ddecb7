/* pools.c - the engines without vLLM's blocks: plain PyTorch (one piece a request), SGLang (a pool of
 * tokens), llama.cpp (cells). */
#include "model/num.h"
#include "plan/inside.h"

static uint64_t cell(const struct pl_plan *p, const struct pl_cache *c) {
    uint64_t bits = p->kv_type->bits, heads = pl_max(1, c->kv_heads / p->ask.tp);
    bool torch = p->ask.engine == PL_ENGINE_TORCH;
    if (c->kind == PL_CACHE_INDEX) return torch ? 0 : c->row;
    if (c->kind == PL_CACHE_MLA) {
        if (!torch) return p->kv_type->mla_row != 0 ? p->kv_type->mla_row : pl_cdiv(pl_mul(c->row, bits), 8);
        const struct pl_model *m = p->model; /* transformers caches the expanded heads */
        return pl_mul(m->heads, (uint64_t)m->nope_dim + m->rope_dim + m->head_v) * bits / 8;
    }
    return pl_mul(heads,
                  pl_add(pl_cdiv(pl_mul((uint64_t)c->head_k + c->head_v, bits), 8), p->kv_type->cell_extra));
}

/* Bytes a token of the layers that keep every token, of those that keep a window, the widest window, and
 * bytes a request. */
struct shape {
    uint64_t full, sliding, window, fixed;
};
static struct shape shape_of(const struct pl_plan *p, const struct pl_rank *r) {
    struct shape s = { 0, 0, 0, 0 };
    for (size_t i = 0; i < p->model->cache_count; i++) {
        const struct pl_cache *c = &p->model->caches[i];
        if (c->layer < r->from || c->layer >= r->to) continue;
        if (c->kind == PL_CACHE_STATE) {
            s.fixed = pl_add(s.fixed, pl_kv_state_bytes(&p->model->state, p->ask.tp, 0));
        } else if (c->kind == PL_CACHE_CROSS) {
            s.fixed = pl_add(s.fixed, pl_mul(cell(p, c), p->model->encoder_tokens));
        } else if (c->kind == PL_CACHE_SLIDING || c->kind == PL_CACHE_CHUNKED) {
            s.sliding = pl_add(s.sliding, cell(p, c));
            s.window = pl_max(s.window, c->window);
        } else {
            s.full = pl_add(s.full, cell(p, c));
        }
    }
    return s;
}

uint64_t pl_piece_bytes(const struct pl_plan *p, const struct pl_rank *r, uint64_t len) {
    struct shape s = shape_of(p, r);
    return pl_add(s.fixed, pl_add(pl_mul(s.full, len), pl_mul(s.sliding, pl_min(len, s.window))));
}

/* Two pools when some layers slide: --swa-full-tokens-ratio 0.8 of the tokens for those. */
uint64_t pl_sglang_capacity(const struct pl_plan *p, const struct pl_rank *r, uint64_t len) {
    struct shape s = shape_of(p, r);
    if (s.full == 0 || s.sliding == 0 || s.fixed != 0) {
        uint64_t each = pl_piece_bytes(p, r, len);
        return each == 0 ? UINT64_MAX : r->avail / each;
    }
    uint64_t tokens = r->avail / pl_add(s.full, s.sliding * 4 / 5 + 1);
    return pl_min(tokens / pl_max(len, 1), tokens * 4 / 5 / pl_max(pl_min(len, s.window), 1));
}

uint64_t pl_llama_dynamic(const struct pl_plan *p, const struct pl_rank *r, uint64_t cells, uint64_t seqs) {
    const char *type = p->ask.kv;
    struct pl_llama o = {
        .n_ctx = cells, .n_seq = seqs, .n_ubatch = 512, .n_outputs = 512, .type_k = type, .type_v = type
    };
    struct pl_llama_bytes b = pl_llama_bytes(r->part, &o);
    return pl_add(pl_add(b.kv, b.state), b.compute);
}
