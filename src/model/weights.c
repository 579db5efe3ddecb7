/* weights.c - how a tensor is spread, told by its name; and the sum a configuration implies when there is no
 * file. */
#include "model/weights.h"

#include <string.h>

#include "model/num.h"

static bool has(const char *name, size_t len, const char *part) {
    return memmem(name, len, part, strlen(part)) != NULL;
}

/* The number behind "layers.", "h.", "blk." or "blocks."; UINT32_MAX: outside of the layers. */
static uint32_t layer_of(const char *name, size_t len) {
    static const char *const marks[] = { "layers.", "blk.", ".h.", "blocks.", "layer." };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = memmem(name, len, marks[i], strlen(marks[i]));
        if (at == NULL) continue;
        uint32_t n = 0;
        const char *end = name + len, *digit = at + strlen(marks[i]), *from = digit;
        while (digit < end && *digit >= '0' && *digit <= '9' && n < PL_MODEL_LAYERS)
            n = n * 10 + (uint32_t)(*digit++ - '0');
        if (digit > from && n < PL_MODEL_LAYERS) return n;
    }
    return UINT32_MAX;
}

static bool is_vision(const char *name, size_t len) {
    static const char *const parts[] = { "vision_tower", "vision_model", "visual.", "multi_modal_projector",
                                         "vision_embed", "mm_projector", "v.blk." };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has(name, len, parts[i])) return true;
    return false;
}

static enum pl_weight_class class_of(const char *name, size_t len, unsigned dims) {
    static const char *const replicated[] = {
        "norm",    "router",       "mlp.gate.",     "kv_a_proj", "q_a_proj",
        "indexer", "ffn_gate_inp", "attn_kv_a_mqa", "attn_q_a",  "block_sparse_moe.gate."
    };
    static const char *const kv[] = { ".k_proj.", ".v_proj.", "attn_k.", "attn_v." };
    if (has(name, len, ".experts.") || has(name, len, "_exps.")) return PL_WEIGHT_EXPERT;
    for (size_t i = 0; i < sizeof replicated / sizeof *replicated; i++)
        if (has(name, len, replicated[i])) return PL_WEIGHT_REPLICATED;
    for (size_t i = 0; i < sizeof kv / sizeof *kv; i++)
        if (has(name, len, kv[i])) return PL_WEIGHT_KV;
    return dims < 2 ? PL_WEIGHT_REPLICATED : PL_WEIGHT_SHARDED;
}

void pl_weights_add(struct pl_weights *w, const char *name, size_t len, enum pl_dtype dtype, uint64_t values,
                    uint64_t bytes, unsigned dims) {
    uint32_t layer = layer_of(name, len);
    w->total = pl_add(w->total, bytes);
    w->tensors++;
    w->by_dtype[dtype] = pl_add(w->by_dtype[dtype], bytes);
    if (is_vision(name, len)) {
        w->vision = pl_add(w->vision, bytes);
    } else if (layer != UINT32_MAX) {
        enum pl_weight_class class = class_of(name, len, dims);
        struct pl_weight_part *part = &w->layer[layer];
        part->bytes[class] = pl_add(part->bytes[class], bytes);
        if (layer >= w->layers) w->layers = layer + 1;
        unsigned bits = pl_dtype_bits(dtype);
        if (dims >= 2 && class != PL_WEIGHT_REPLICATED &&
            (dtype == PL_DTYPE_F16 || dtype == PL_DTYPE_BF16 || bits == 32) && dtype != PL_DTYPE_I32 &&
            dtype != PL_DTYPE_U32) {
            w->matrices = pl_add(w->matrices, bytes);
            w->matrix_values = pl_add(w->matrix_values, values);
        }
    } else if (has(name, len, "embed_tokens") || has(name, len, "token_embd") || has(name, len, "wte.") ||
               has(name, len, "word_embeddings") || has(name, len, "tok_embeddings")) {
        w->embed = pl_add(w->embed, bytes);
    } else if (has(name, len, "lm_head") || has(name, len, "embed_out") ||
               (len >= 7 && memcmp(name, "output.", 7) == 0)) {
        w->head = pl_add(w->head, bytes);
    } else {
        enum pl_weight_class class = class_of(name, len, dims);
        w->rest.bytes[class] = pl_add(w->rest.bytes[class], bytes);
    }
}

void pl_weights_add_file(struct pl_weights *w, uint64_t file_bytes) {
    if (w->origin == PL_WEIGHTS_NONE) w->origin = PL_WEIGHTS_FILES;
    w->files++;
    w->largest_file = pl_max(w->largest_file, file_bytes);
    w->total = pl_add(w->total, file_bytes);
    w->rest.bytes[PL_WEIGHT_SHARDED] = pl_add(w->rest.bytes[PL_WEIGHT_SHARDED], file_bytes);
}

/* --- from the geometry */

struct sums {
    uint64_t sharded, kv, replicated, experts;
};

static void attention(const struct pl_model *m, const struct pl_cache *c, struct sums *s) {
    uint64_t h = m->hidden, heads = m->heads;
    if (c->kind == PL_CACHE_MLA) {
        uint64_t q_head = (uint64_t)m->nope_dim + m->rope_dim;
        s->replicated = pl_add(s->replicated, pl_mul(h, m->kv_lora + m->rope_dim));
        if (m->q_lora != 0) s->replicated = pl_add(s->replicated, pl_mul(h, m->q_lora));
        s->sharded = pl_add(s->sharded, pl_mul(m->q_lora != 0 ? m->q_lora : h, pl_mul(heads, q_head)));
        s->sharded = pl_add(s->sharded, pl_add(pl_mul(m->kv_lora, pl_mul(heads, m->nope_dim + m->head_v)),
                                               pl_mul(pl_mul(heads, m->head_v), h)));
        return;
    }
    s->sharded = pl_add(s->sharded, pl_mul(2 * h, pl_mul(heads, c->head_k)));
    s->kv = pl_add(s->kv, pl_mul(h, pl_mul(c->kv_heads, (uint64_t)c->head_k + c->head_v)));
}

static void state(const struct pl_model *m, struct sums *s) {
    const struct pl_state *t = &m->state;
    uint64_t h = m->hidden, inner = t->inner != 0 ? t->inner : pl_mul(t->heads, t->head_dim);
    uint64_t in = t->kind == PL_STATE_MAMBA1 || t->kind == PL_STATE_CONV
                      ? 2 * inner
                      : 2 * inner + pl_mul(2 * (uint64_t)t->groups, t->state) + 2 * (uint64_t)t->heads;
    if (t->kind == PL_STATE_KDA || t->kind == PL_STATE_LIGHTNING) in = 4 * inner;
    s->sharded = pl_add(s->sharded, pl_add(pl_mul(h, in), pl_mul(inner, h)));
}

static bool is_dense(const struct pl_model *m, uint32_t layer) {
    return m->experts == 0 || layer < m->dense_layers || (layer + 1) % m->moe_every != 0;
}

static void mlp(const struct pl_model *m, uint32_t layer, struct sums *s) {
    uint64_t h = m->hidden, times = m->gated ? 3 : 2;
    if (is_dense(m, layer)) {
        s->sharded = pl_add(s->sharded, pl_mul(times, pl_mul(h, m->intermediate)));
        return;
    }
    uint64_t shared =
        m->shared_intermediate != 0 ? m->shared_intermediate : pl_mul(m->shared_experts, m->moe_intermediate);
    s->experts = pl_add(s->experts, pl_mul(pl_mul(times, m->experts), pl_mul(h, m->moe_intermediate)));
    s->sharded = pl_add(s->sharded, pl_mul(times, pl_mul(h, shared)));
    s->replicated = pl_add(s->replicated, pl_mul(h, m->experts));
}

bool pl_weights_from_model(struct pl_weights *w, const struct pl_model *m, struct pl_err *err) {
    uint64_t bits = m->dtype != PL_DTYPE_UNKNOWN ? pl_dtype_bits(m->dtype) : 16;
    bool no_mlp = m->intermediate == 0 && !(m->experts != 0 && m->moe_intermediate != 0);
    if (m->vocab == 0 || no_mlp) {
        PL_FAIL(err, PL_E_CONFIG,
                "the weights have no size: there are no weight files and the configuration has no %s",
                m->vocab == 0 ? "vocab_size" : "intermediate_size");
        return pl_err_hint(err, "give the folder with the .safetensors files; only their headers are read");
    }
    *w = (struct pl_weights){ .origin = PL_WEIGHTS_FORMULA };
    enum pl_dtype dtype = m->dtype != PL_DTYPE_UNKNOWN ? m->dtype : PL_DTYPE_BF16;
    uint64_t embed = pl_mul(pl_mul(m->vocab, m->hidden), bits) / 8;
    w->embed = embed;
    w->head = m->tied ? 0 : embed;
    w->rest.bytes[PL_WEIGHT_REPLICATED] = pl_mul(m->hidden, bits) / 8;
    w->total = pl_add(pl_add(w->embed, w->head), w->rest.bytes[PL_WEIGHT_REPLICATED]);
    if (m->vision.present) { /* four matrices of attention and two of an MLP in each layer of the tower */
        uint64_t h = m->vision.hidden, each = pl_add(pl_mul(4 * h, h), pl_mul(2 * h, m->vision.intermediate));
        w->vision = pl_mul(pl_mul(m->vision.layers, each), bits) / 8;
        w->total = pl_add(w->total, w->vision);
    }
    w->layers = m->layers;
    for (uint32_t i = 0; i < m->layers; i++) {
        struct sums s = { .replicated = 2 * (uint64_t)m->hidden };
        bool any = false;
        for (size_t k = 0; k < m->cache_count; k++) {
            if (m->caches[k].layer != i || m->caches[k].kind == PL_CACHE_INDEX) continue;
            any = true;
            if (m->caches[k].kind == PL_CACHE_STATE)
                state(m, &s);
            else
                attention(m, &m->caches[k], &s);
        }
        struct pl_cache heads = { .kv_heads = m->kv_heads, .head_k = m->head_k, .head_v = m->head_v };
        if (m->cache_count == 0) attention(m, &heads, &s); /* an encoder has heads, it keeps nothing */
        if (strcmp(m->arch, "nemotron_h") != 0 || !any) mlp(m, i, &s);
        uint64_t matrices = pl_add(pl_add(s.sharded, s.kv), s.experts),
                 matrix_bits = m->quant_bits != 0 ? m->quant_bits : bits;
        struct pl_weight_part *p = &w->layer[i];
        p->bytes[PL_WEIGHT_SHARDED] = pl_mul(s.sharded, matrix_bits) / 8;
        p->bytes[PL_WEIGHT_KV] = pl_mul(s.kv, matrix_bits) / 8;
        p->bytes[PL_WEIGHT_EXPERT] = pl_mul(s.experts, matrix_bits) / 8;
        p->bytes[PL_WEIGHT_REPLICATED] = pl_mul(s.replicated, bits) / 8;
        if (m->quant_bits == 0) {
            w->matrices = pl_add(w->matrices, pl_mul(matrices, bits) / 8);
            w->matrix_values = pl_add(w->matrix_values, matrices);
        }
        for (int c = 0; c < PL_WEIGHT_CLASSES; c++) w->total = pl_add(w->total, p->bytes[c]);
    }
    w->by_dtype[dtype] = w->total;
    if (w->total >= UINT64_C(1) << 56)
        return PL_FAIL(err, PL_E_CONFIG, "the sizes in the configuration are too large for any model");
    return true;
}
