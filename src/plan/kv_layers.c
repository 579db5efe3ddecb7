/* kv_layers.c - from a model's caches to what one rank of vLLM keeps: heads divided or repeated, number
 * formats, recurrent state, and the block size that a hybrid is raised to. */
#include <string.h>

#include "model/num.h"
#include "plan/kv.h"

enum { USUAL_BLOCK = 16, MLA_BLOCK = 64, MLA_HYBRID_ALIGN = 128 };

static const struct pl_kv_type types[] = {
    { "auto", 16, 0, 0, false },
    { "bf16", 16, 0, 0, false },
    { "fp16", 16, 0, 0, false },
    { "f16", 16, 0, 0, false },
    { "bfloat16", 16, 0, 0, false },
    { "float16", 16, 0, 0, false },
    { "fp8", 8, 0, 0, false },
    { "fp8_e4m3", 8, 0, 0, false },
    { "fp8_e5m2", 8, 0, 0, false },
    { "fp8_ds_mla", 8, 0, 656, false }, /* 512 fp8 + 4 scales of 4 + 64 of 2 */
    { "nvfp4_ds_mla", 4, 0, 352, true },
    { "int8_per_token_head", 8, 8, 0, true }, /* two scales of 4 a head and token */
    { "fp8_per_token_head", 8, 8, 0, true },
    { "int4_per_token_head", 4, 8, 0, true },
};

const struct pl_kv_type *pl_kv_type(const char *name, struct pl_err *err) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    PL_FAIL(err, PL_E_USAGE, "--kv: no number format of a KV cache is called '%.40s'", name);
    pl_err_hint(err, "auto bf16 fp16 fp8 fp8_e4m3 fp8_e5m2 fp8_ds_mla nvfp4_ds_mla int8_per_token_head; "
                     "llama.cpp: f16 q8_0 q5_1 q5_0 q4_1 q4_0");
    return NULL;
}

uint64_t pl_kv_state_bytes(const struct pl_state *s, uint32_t tp, uint32_t spec) {
    uint64_t rows = (s->conv > 0 ? s->conv - 1 : 0) + spec, groups = s->groups, heads = s->heads, cells = 0,
             values = 0;
    switch (s->kind) {
    case PL_STATE_GDN:
    case PL_STATE_MAMBA2:
        if (s->kind == PL_STATE_MAMBA2 && groups % tp != 0) groups = tp; /* raised until each rank has one */
        cells = (s->inner + 2 * pl_mul(groups, s->state)) / tp;
        values = pl_mul(pl_mul(heads / tp, s->head_dim), s->state);
        break;
    case PL_STATE_MAMBA1:
        rows = s->conv > 0 ? s->conv - 1 : 0;
        cells = s->inner / tp;
        values = pl_mul(s->inner / tp, s->state);
        break;
    case PL_STATE_KDA:
        cells = 3 * pl_mul(heads, s->head_dim) / tp;
        values = pl_mul(heads / tp, pl_mul(s->head_dim, s->head_dim));
        break;
    case PL_STATE_CONV:
        rows = s->conv > 0 ? s->conv - 1 : 0;
        cells = s->inner / tp;
        break;
    case PL_STATE_LIGHTNING:
        rows = 0;
        values = pl_mul(heads / tp, pl_mul(s->head_dim, s->head_dim));
        break;
    case PL_STATE_NONE:
        break;
    }
    return pl_add(pl_mul(pl_mul(cells, rows), s->conv_bytes), pl_mul(values, s->state_bytes));
}

static struct pl_kv_layer attention(const struct pl_cache *c, const struct pl_kv_options *o) {
    static const enum pl_kv_kind kinds[PL_CACHE_KINDS] = {
        [PL_CACHE_FULL] = PL_KV_FULL, [PL_CACHE_SLIDING] = PL_KV_SLIDING, [PL_CACHE_CHUNKED] = PL_KV_CHUNKED,
        [PL_CACHE_MLA] = PL_KV_MLA,   [PL_CACHE_INDEX] = PL_KV_MLA,       [PL_CACHE_CROSS] = PL_KV_CROSS
    };
    struct pl_kv_layer l = { .kind = kinds[c->kind],
                             .layer = c->layer,
                             .heads = 1,
                             .window = pl_max(c->window, 1),
                             .dtype_bits = o->type->bits };
    if (c->kind == PL_CACHE_INDEX) {
        l.cell_bytes = c->row;
    } else if (c->kind == PL_CACHE_MLA) {
        l.cell_bytes = o->type->mla_row != 0 ? o->type->mla_row : pl_cdiv(pl_mul(c->row, o->type->bits), 8);
    } else {
        l.heads = pl_max(1, c->kv_heads / o->tp);
        l.head_k = c->head_k;
        l.head_v = c->head_v;
        l.cell_bytes =
            pl_add(pl_cdiv(pl_mul((uint64_t)c->head_k + c->head_v, o->type->bits), 8), o->type->cell_extra);
    }
    return l;
}

bool pl_kv_layers(const struct pl_model *m, const struct pl_kv_options *o, struct pl_arena *arena,
                  struct pl_kv_layer **out, size_t *count, uint64_t *block, struct pl_err *err) {
    struct pl_kv_layer *l = pl_arena_alloc(arena, (m->cache_count + 1) * sizeof *l);
    uint64_t state = pl_kv_state_bytes(&m->state, o->tp, o->spec), token = 0;
    bool any_state = false, mla = false;
    if (l == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the layers");
    for (size_t i = 0; i < m->cache_count; i++) {
        const struct pl_cache *c = &m->caches[i];
        if (c->kind == PL_CACHE_STATE) {
            l[i] = (struct pl_kv_layer){ .kind = PL_KV_STATE,
                                         .layer = c->layer,
                                         .state_bytes = state,
                                         .aligned = o->prefix_caching,
                                         .spec = o->spec };
            any_state = true;
            continue;
        }
        l[i] = attention(c, o);
        mla |= c->kind == PL_CACHE_MLA;
        if (c->kind != PL_CACHE_INDEX) token = pl_max(token, pl_mul(l[i].heads, l[i].cell_bytes));
    }
    *out = l;
    *count = m->cache_count;
    *block = o->block != 0 ? o->block : mla ? MLA_BLOCK : USUAL_BLOCK;
    if (any_state && token != 0) { /* until one page of attention holds one state */
        uint64_t align = mla ? pl_max(*block, MLA_HYBRID_ALIGN) : *block;
        if (state == UINT64_MAX || token == UINT64_MAX)
            return PL_FAIL(err, PL_E_CONFIG, "the recurrent state is too large for any model");
        *block = pl_mul(align, pl_cdiv(state, pl_mul(align, token)));
        if (*block == 0) *block = align;
    }
    return true;
}
