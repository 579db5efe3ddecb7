/* gguf_model.c - what a GGUF file's keys say about the caches of its layers, as llama.cpp 0.5.0 reads them.
 */
#include <string.h>

#include "model/gguf.h"
#include "model/num.h"

static bool ends(struct pl_gguf_text t, struct pl_gguf_text arch, const char *tail) {
    size_t n = strlen(tail);
    return t.len == arch.len + n && memcmp(t.at, arch.at, arch.len) == 0 &&
           memcmp(t.at + arch.len, tail, n) == 0;
}

static bool to_count(double d, uint32_t *out) {
    if (!(d >= 0 && d <= PL_MODEL_TOKENS) || d != (double)(uint32_t)d) return false;
    *out = (uint32_t)d;
    return true;
}

static void keep(struct pl_gguf_keys *k, struct pl_gguf_list *l, const char *name,
                 const struct pl_gguf_value *v) {
    *l = (struct pl_gguf_list){ .there = true };
    if (v->kind == PL_GGUF_NUMBER && to_count(v->number, &l->at[0])) return;
    if (v->kind == PL_GGUF_LIST && v->count > 0) {
        l->count = (uint32_t)v->count;
        for (uint32_t i = 0; i < l->count; i++)
            if (!to_count(v->list[i], &l->at[i])) k->bad = name;
        return;
    }
    k->bad = name;
}

/* The architecture comes first in every file that llama.cpp's own tools wrote; a key before it is compared by
 * its tail only when it is known, so such a file misses keys and is refused for want of a block count. */
void pl_gguf_key(struct pl_gguf_keys *k, struct pl_gguf_text name, const struct pl_gguf_value *v) {
    static const char arch[] = "general.architecture", tokens[] = "tokenizer.ggml.tokens";
    if (name.len == sizeof arch - 1 && memcmp(name.at, arch, name.len) == 0 && v->kind == PL_GGUF_TEXT)
        k->arch = v->text;
    if (name.len == sizeof tokens - 1 && memcmp(name.at, tokens, name.len) == 0) k->tokens = v->count;
    if (k->arch.len == 0) return;
#define KEY(field, tail)                   \
    if (ends(name, k->arch, tail)) {       \
        keep(k, &k->field, &(tail)[1], v); \
        return;                            \
    }
    PL_GGUF_KEYS(KEY)
#undef KEY
}

static uint32_t at(const struct pl_gguf_list *l, uint32_t layer, uint32_t none) {
    if (!l->there) return none;
    if (l->count == 0) return l->at[0];
    return layer < l->count ? l->at[layer] : none;
}

/* llama.cpp's own pattern of an architecture whose file does not say one; 0: none of its layers slide.
 * `first`: the layer that does not slide is the first of each run, else the last. */
static uint32_t usual_pattern(const char *arch, bool *first) {
    static const struct {
        const char *arch;
        uint32_t pattern;
        bool first;
    } usual[] = { { "gemma2", 2, false },     { "gemma3", 6, false },      { "gemma3n", 5, false },
                  { "gpt-oss", 2, false },    { "cohere2", 4, false },     { "llama4", 4, false },
                  { "exaone4", 4, false },    { "olmo2", 4, false },       { "afmoe", 4, false },
                  { "exaone-moe", 4, false }, { "plamo3", 8, false },      { "cohere2moe", 4, true },
                  { "laguna", 4, true },      { "smallthinker", 4, true }, { "modern-bert", 3, true } };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i].arch, arch) == 0) return *first = usual[i].first, usual[i].pattern;
    return 0;
}

static bool slides(const struct pl_gguf_keys *k, const char *arch, uint32_t layer) {
    bool first = false;
    uint32_t n = usual_pattern(arch, &first);
    if (k->pattern.there && k->pattern.count != 0) return at(&k->pattern, layer, 0) != 0;
    if (k->pattern.there && (n != 0 || k->pattern.at[0] != 0))
        n = k->pattern.at[0] != 0 ? k->pattern.at[0] : 1;
    if (n == 0) return false;
    return first ? layer % n != 0 : layer % n < n - 1;
}

static bool recurrent(const struct pl_gguf_keys *k, const char *arch, uint32_t layer) {
    if (!k->ssm_inner.there && !k->shortconv.there && !k->kda_head.there) return false;
    if (k->recurrent.there) return at(&k->recurrent, layer, 0) != 0;
    uint32_t n = k->full_interval.there ? k->full_interval.at[0] : strncmp(arch, "qwen3", 5) == 0 ? 4 : 0;
    if (n != 0) return (layer + 1) % n != 0;
    if (strcmp(arch, "falcon-h1") == 0) return true;
    bool no_heads = k->heads_kv.there && k->heads_kv.count != 0 ? at(&k->heads_kv, layer, 1) == 0
                                                                : strncmp(arch, "mamba", 5) == 0;
    if (strncmp(arch, "nemotron_h", 10) == 0) return no_heads && at(&k->feed_forward, layer, 0) == 0;
    return no_heads;
}

static void read_state(const struct pl_gguf_keys *k, struct pl_model *m) {
    m->state = (struct pl_state){ .kind = PL_STATE_MAMBA2,
                                  .conv = at(&k->ssm_conv, 0, 0),
                                  .inner = at(&k->ssm_inner, 0, 0),
                                  .groups = at(&k->ssm_groups, 0, 0),
                                  .heads = at(&k->ssm_rank, 0, 0),
                                  .state = at(&k->ssm_state, 0, 0),
                                  .conv_bytes = 4,
                                  .state_bytes = 4 };
    if (m->state.heads != 0) m->state.head_dim = m->state.inner / m->state.heads;
    if (k->shortconv.there)
        m->state = (struct pl_state){ .kind = PL_STATE_CONV,
                                      .conv = k->shortconv.at[0],
                                      .inner = m->hidden,
                                      .conv_bytes = 4,
                                      .state_bytes = 4 };
    if (k->kda_head.there)
        m->state = (struct pl_state){ .kind = PL_STATE_KDA,
                                      .conv = at(&k->ssm_conv, 0, 4),
                                      .heads = m->heads,
                                      .head_dim = k->kda_head.at[0],
                                      .conv_bytes = 4,
                                      .state_bytes = 4 };
}

static bool add_layer(const struct pl_gguf_keys *k, struct pl_model *m, uint32_t i, struct pl_err *err) {
    bool state = recurrent(k, m->arch, i), both = strcmp(m->arch, "falcon-h1") == 0;
    uint32_t kv = at(&k->heads_kv, i, at(&k->heads, i, m->heads));
    if (state && !pl_model_add_cache(m, (struct pl_cache){ .kind = PL_CACHE_STATE, .layer = i }, err))
        return false;
    if ((state && !both) || kv == 0) return true;
    uint32_t shared = at(&k->shared_kv, 0, 0);
    if (shared != 0 && i >= m->layers - pl_min(shared, m->layers))
        return true; /* uses an earlier layer's cache */
    struct pl_cache c = { .kind = PL_CACHE_FULL,
                          .layer = i,
                          .kv_heads = kv,
                          .head_k = at(&k->key_length, i, m->head_k),
                          .head_v = at(&k->value_length, i, m->head_v) };
    uint32_t window = at(&k->window, i, 0);
    if (k->kv_lora_rank.there && k->key_length_mla.there) {
        c = (struct pl_cache){
            .kind = PL_CACHE_MLA, .layer = i, .kv_heads = 1, .row = at(&k->key_length, i, m->head_k)
        };
    } else if (slides(k, m->arch, i) && (window != 0 || strcmp(m->arch, "llama4") == 0)) {
        bool chunked = strcmp(m->arch, "llama4") == 0;
        c.kind = chunked ? PL_CACHE_CHUNKED : PL_CACHE_SLIDING;
        c.window = chunked ? at(&k->chunk, 0, window != 0 ? window : 8192) : window;
        c.head_k = at(&k->key_length_swa, i, c.head_k);
        c.head_v = at(&k->value_length_swa, i, c.head_v);
    }
    if (!pl_model_add_cache(m, c, err)) return false;
    if (k->indexer.there && c.kind == PL_CACHE_MLA) /* llama.cpp keeps it in 16 bit */
        return pl_model_add_cache(
            m, (struct pl_cache){ .kind = PL_CACHE_INDEX, .layer = i, .row = 2 * at(&k->indexer, 0, 0) },
            err);
    return true;
}

static uint32_t most(const struct pl_gguf_list *l, uint32_t none) {
    uint32_t n = l->there ? l->at[0] : none;
    for (uint32_t i = 1; l->there && i < l->count; i++) n = l->at[i] > n ? l->at[i] : n;
    return n;
}

bool pl_gguf_model(const struct pl_gguf_keys *k, struct pl_model *m, struct pl_arena *arena,
                   struct pl_err *err) {
    pl_model_init(m, arena);
    m->origin = "GGUF";
    if (k->arch.len == 0)
        return PL_FAIL(err, PL_E_CONFIG, "GGUF: general.architecture is missing or not the first key");
    m->arch = pl_model_word(arena, k->arch.at, k->arch.len);
    if (m->arch == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the model");
    if (k->bad != NULL) return PL_FAIL(err, PL_E_CONFIG, "GGUF: %s has a value that cannot be", k->bad);
    m->layers = at(&k->block_count, 0, 0);
    m->hidden = at(&k->embedding_length, 0, 0);
    m->heads = most(&k->heads, 0);
    if (m->layers == 0 || m->layers > PL_MODEL_LAYERS || m->hidden == 0 || m->hidden > PL_MODEL_DIM) {
        PL_FAIL(err, PL_E_CONFIG, "GGUF: %s is missing or cannot be",
                m->layers == 0 || m->layers > PL_MODEL_LAYERS ? "block_count" : "embedding_length");
        return pl_err_hint(
            err, "the first part of a split file has the keys; a projector (mmproj) or adapter is no model");
    }
    if (m->heads == 0) {
        m->heads = 1;
        pl_model_note(m, "no attention.head_count: one head assumed");
    }
    m->head_k = most(&k->key_length, m->hidden / m->heads);
    m->head_v = most(&k->value_length, m->hidden / m->heads);
    m->kv_heads = most(&k->heads_kv, m->heads);
    if (m->heads > PL_MODEL_DIM || m->kv_heads > PL_MODEL_DIM || m->head_k > PL_MODEL_DIM ||
        m->head_v > PL_MODEL_DIM || most(&k->ssm_inner, 0) > PL_MODEL_DIM ||
        most(&k->ssm_state, 0) > PL_MODEL_DIM || most(&k->ssm_groups, 0) > PL_MODEL_DIM)
        return PL_FAIL(err, PL_E_CONFIG, "GGUF: a size is too large for any model");
    m->context = at(&k->context_length, 0, 0);
    m->vocab = at(&k->vocab_size, 0, (uint32_t)pl_min(k->tokens, PL_MODEL_DIM));
    m->intermediate = most(&k->feed_forward, 0);
    m->experts = at(&k->experts, 0, 0);
    m->experts_used = at(&k->experts_used, 0, 0);
    m->kv_lora = at(&k->kv_lora_rank, 0, 0);
    m->rope_dim = at(&k->rope_dims, 0, 0);
    m->dtype = PL_DTYPE_F16;
    read_state(k, m);
    for (uint32_t i = 0; i < m->layers; i++)
        if (!add_layer(k, m, i, err)) return false;
    if (k->wkv_head.there) {
        m->provisional = true;
        pl_model_note(m, "RWKV state is not planned: use llama.cpp's own numbers");
    }
    if (k->window.there && usual_pattern(m->arch, &(bool){ false }) == 0 && !k->pattern.there)
        pl_model_note(
            m, "a sliding window of %u, but no pattern: llama.cpp keeps full caches for this architecture",
            k->window.at[0]);
    if (m->kv_lora != 0) {
        m->provisional = true;
        pl_model_note(m,
                      "latent attention in llama.cpp: one row of %u elements a token and layer, not checked "
                      "against a run",
                      m->head_k);
    }
    return true;
}
