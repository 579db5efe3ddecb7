/* layers.c - which kind each layer of a config.json is, and how large a recurrent state. */
#include <string.h>

#include "model/inside.h"
#include "model/num.h"

#define KEYS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

static const struct {
    const char *name;
    enum word word;
} names[] = {
    { "full_attention", WORD_FULL },
    { "attention", WORD_FULL },
    { "sliding_attention", WORD_SLIDING },
    { "chunked_attention", WORD_CHUNKED },
    { "linear_attention", WORD_LINEAR },
    { "mamba", WORD_LINEAR },
    { "mamba2", WORD_LINEAR },
    { "hybrid", WORD_BOTH },
    { "conv", WORD_CONV },
    { "mlp", WORD_NONE },
    { "moe", WORD_NONE },
    { "local_attention", WORD_SLIDING },
};

static const char *shown(struct reader *r, const char *word) {
    const char *copy = pl_model_word(r->m->arena, word, strlen(word));
    return copy != NULL ? copy : "";
}

static bool from_list(struct reader *r, json_t *list, const char *key, enum word *words) {
    if (json_array_size(list) != r->m->layers)
        return pl_read_fail(r, "%s has %zu entries, but there are %u layers", key, json_array_size(list),
                            r->m->layers);
    for (uint32_t i = 0; i < r->m->layers; i++) {
        json_t *v = json_array_get(list, i);
        const char *word = json_is_string(v) ? json_string_value(v) : "";
        size_t k = 0;
        while (k < sizeof names / sizeof *names && strcmp(names[k].name, word) != 0) k++;
        if (k == sizeof names / sizeof *names)
            return pl_read_fail(r, "%s[%u]: '%.40s' is no kind of layer that is understood", key, i,
                                shown(r, word));
        words[i] = names[k].word;
        if (words[i] == WORD_BOTH && strcmp(r->m->arch, "zamba2") != 0 &&
            strcmp(r->m->arch, "falcon_h1") != 0)
            pl_model_note(r->m, "layer %u is called 'hybrid': taken as attention beside a state", i);
    }
    return true;
}

static bool from_pattern(struct reader *r, const char *pattern, enum word *words) {
    if (strlen(pattern) != r->m->layers)
        return pl_read_fail(r, "hybrid_override_pattern has %zu letters, but there are %u layers",
                            strlen(pattern), r->m->layers);
    for (uint32_t i = 0; i < r->m->layers; i++) {
        const char *at = strchr("M*-E", pattern[i]);
        if (at == NULL)
            return pl_read_fail(r, "hybrid_override_pattern: letter %u is not one of M * - E", i + 1);
        words[i] = pattern[i] == 'M' ? WORD_LINEAR : pattern[i] == '*' ? WORD_FULL : WORD_NONE;
    }
    return true;
}

static void fill(struct reader *r, enum word *words, enum word w) {
    for (uint32_t i = 0; i < r->m->layers; i++) words[i] = w;
}

/* Indexes of the attention layers; the others are `other`. */
static bool from_indexes(struct reader *r, json_t *list, const char *key, enum word other, enum word *words) {
    fill(r, words, other);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        json_int_t at = json_is_integer(v) ? json_integer_value(v) : -1;
        if (at < 0 || at >= (json_int_t)r->m->layers)
            return pl_read_fail(r, "%s[%zu] is no layer of 0 to %u", key, i, r->m->layers - 1);
        words[at] = WORD_FULL;
    }
    return true;
}

static bool from_rope(struct reader *r, enum word *words) { /* Llama-4: 1 = has rotary embeddings = chunked */
    json_t *list = json_object_get(r->cfg, "no_rope_layers");
    bool given = json_array_size(list) > 0;
    if (given && json_array_size(list) != r->m->layers)
        return pl_read_fail(r, "no_rope_layers has %zu entries, but there are %u layers",
                            json_array_size(list), r->m->layers);
    if (!given)
        pl_model_note(r->m, "no no_rope_layers: three layers of four taken as chunked, as Llama-4 has it");
    for (uint32_t i = 0; i < r->m->layers; i++) {
        bool rope = given ? json_integer_value(json_array_get(list, i)) != 0 : (i + 1) % 4 != 0;
        words[i] = rope ? WORD_CHUNKED : WORD_FULL;
    }
    return true;
}

/* Architectures by name that no list in the file describes. true: `words` are filled, or the reader has
 * failed. */
static bool from_arch(struct reader *r, enum word *words) {
    static const char *const encoders[] = { "bert",       "roberta",    "xlm-roberta", "distilbert",
                                            "modernbert", "deberta-v2", "nomic_bert",  "electra" };
    static const char *const stateful[] = { "mamba", "mamba2", "falcon_mamba", "rwkv",
                                            "rwkv5", "rwkv6",  "rwkv7" };
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (strcmp(encoders[i], r->m->arch) == 0) {
            pl_model_note(r->m, "an encoder: it keeps no KV, only its weights and one batch count");
            return fill(r, words, WORD_NONE), true;
        }
    for (size_t i = 0; i < sizeof stateful / sizeof *stateful; i++)
        if (strcmp(stateful[i], r->m->arch) == 0) {
            pl_read_fail(r, "model_type '%s': a model without attention is not planned", stateful[i]);
            return pl_err_hint(r->err, "hybrids with attention are"), true;
        }
    if (strcmp(r->m->arch, "falcon_h1") == 0) return fill(r, words, WORD_BOTH), true;
    return false;
}

/* Kimi Linear counts its attention layers from 1; MiniMax has 1 for attention and 0 for lightning. */
static bool from_special(struct reader *r, enum word *words) {
    json_t *kimi = json_object_get(json_object_get(r->cfg, "linear_attn_config"), "full_attn_layers"), *v;
    json_t *minimax = json_object_get(r->cfg, "attn_type_list");
    size_t i;
    if (json_is_array(minimax)) {
        if (json_array_size(minimax) != r->m->layers)
            return pl_read_fail(r, "attn_type_list has %zu entries, but there are %u layers",
                                json_array_size(minimax), r->m->layers),
                   true;
        json_array_foreach(minimax, i, v) words[i] = json_integer_value(v) != 0 ? WORD_FULL : WORD_LINEAR;
        return true;
    }
    if (!json_is_array(kimi)) return false;
    fill(r, words, WORD_LINEAR);
    json_array_foreach(kimi, i, v) {
        json_int_t at = json_is_integer(v) ? json_integer_value(v) : 0;
        if (at < 1 || at > (json_int_t)r->m->layers)
            return pl_read_fail(r, "full_attn_layers[%zu] is no layer of 1 to %u", i, r->m->layers), true;
        words[at - 1] = WORD_FULL;
    }
    return true;
}

bool pl_read_words(struct reader *r, enum word *words) {
    struct pl_model *m = r->m;
    json_t *cfg = r->cfg, *v;
    const char *key = NULL;
    uint32_t n;
    if (from_arch(r, words)) return !r->failed;
    if ((v = pl_json_first(cfg, KEYS("layer_types", "layers_block_type"), &key)) != NULL && json_is_array(v))
        return from_list(r, v, key, words);
    if (from_special(r, words)) return !r->failed;
    if (json_is_string(v = json_object_get(cfg, "hybrid_override_pattern")))
        return from_pattern(r, json_string_value(v), words);
    if ((n = pl_read_count(r, "full_attention_interval", 0)) != 0) {
        for (uint32_t i = 0; i < m->layers; i++) words[i] = (i + 1) % n != 0 ? WORD_LINEAR : WORD_FULL;
        return true;
    }
    if ((n = pl_read_count(r, "attn_layer_period", 0)) != 0) {
        uint32_t offset = pl_read_count(r, "attn_layer_offset", 0);
        for (uint32_t i = 0; i < m->layers; i++) words[i] = i % n == offset ? WORD_FULL : WORD_LINEAR;
        return true;
    }
    if (json_is_array(v = json_object_get(cfg, "attn_layer_indices")))
        return from_indexes(r, v, "attn_layer_indices", WORD_LINEAR, words);
    if (json_is_array(v = json_object_get(cfg, "full_attn_idxs")))
        return from_indexes(r, v, "full_attn_idxs", WORD_CONV, words);
    if (strncmp(m->arch, "gemma3", 6) == 0 || strcmp(m->arch, "gemma2") == 0 ||
        strcmp(m->arch, "cohere2") == 0) {
        uint32_t usual = strcmp(m->arch, "gemma2") == 0 ? 2 : strcmp(m->arch, "cohere2") == 0 ? 4 : 6;
        n = pl_read_count(r, "sliding_window_pattern", usual);
        if (n == 0) return pl_read_fail(r, "sliding_window_pattern is 0");
        for (uint32_t i = 0; i < m->layers; i++) words[i] = (i + 1) % n != 0 ? WORD_SLIDING : WORD_FULL;
        return true;
    }
    if (strcmp(m->arch, "gpt_oss") == 0) {
        for (uint32_t i = 0; i < m->layers; i++) words[i] = i % 2 != 0 ? WORD_FULL : WORD_SLIDING;
        return true;
    }
    if (strncmp(m->arch, "llama4", 6) == 0) return from_rope(r, words);
    n = pl_read_any(r, KEYS("sliding_window"), PL_MODEL_TOKENS, 0);
    if (n == 0 || !pl_read_flag(cfg, "use_sliding_window", true))
        return fill(r, words, WORD_FULL), !r->failed;
    fill(r, words, WORD_SLIDING);
    uint32_t from = strncmp(m->arch, "qwen2", 5) == 0 ? pl_read_count(r, "max_window_layers", 0)
                                                      : 0; /* those below keep all */
    for (uint32_t i = 0; i < m->layers && i < from; i++) words[i] = WORD_FULL;
    return !r->failed;
}

/* --- recurrent state */

static uint32_t element_bytes(struct reader *r, uint32_t none) {
    json_t *v = pl_json_first(r->cfg, KEYS("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), NULL);
    if (!json_is_string(v)) return none;
    unsigned bits = pl_dtype_bits(pl_dtype_of(json_string_value(v), json_string_length(v)));
    return bits >= 8 ? bits / 8 : none;
}

static bool missing(struct reader *r, const char *what) {
    pl_read_fail(r, "recurrent layers, but %s", what);
    return pl_err_hint(r->err, "without it the state of a request has no size");
}

static uint32_t expanded(struct reader *r) {
    json_t *v = pl_json_first(r->cfg, KEYS("mamba_expand", "expand"), NULL);
    double times = json_is_number(v) ? json_number_value(v) : 2, inner = times * r->m->hidden;
    return inner > 0 && inner <= PL_MODEL_DIM ? (uint32_t)inner : 0;
}

bool pl_read_state(struct reader *r) {
    struct pl_state *s = &r->m->state;
    *s = (struct pl_state){ .conv_bytes = 2, .state_bytes = element_bytes(r, 2) };
    json_t *kda = json_object_get(r->cfg, "linear_attn_config");
    if (json_is_object(kda)) { /* Kimi Linear */
        json_t *keep = r->cfg;
        r->cfg = kda;
        *s = (struct pl_state){ .kind = PL_STATE_KDA,
                                .conv = pl_read_count(r, "short_conv_kernel_size", 4),
                                .heads = pl_read_count(r, "num_heads", 0),
                                .head_dim = pl_read_count(r, "head_dim", 0),
                                .conv_bytes = 2,
                                .state_bytes = 4 };
        r->cfg = keep;
        return s->heads != 0 && s->head_dim != 0
                   ? !r->failed
                   : missing(r, "linear_attn_config has no num_heads or head_dim");
    }
    if (pl_read_count(r, "linear_num_value_heads", 0) != 0) {
        uint32_t v_dim = pl_read_count(r, "linear_value_head_dim", 0);
        s->kind = PL_STATE_GDN;
        s->heads = pl_read_count(r, "linear_num_value_heads", 0);
        s->groups = pl_read_count(r, "linear_num_key_heads", s->heads);
        s->state = pl_read_count(r, "linear_key_head_dim", 0);
        s->head_dim = v_dim;
        s->conv = pl_read_count(r, "linear_conv_kernel_dim", 4);
        s->inner = (uint32_t)pl_min(pl_mul(s->heads, v_dim), UINT32_MAX);
        return s->state != 0 && v_dim != 0
                   ? !r->failed
                   : missing(r, "linear_key_head_dim or linear_value_head_dim is missing");
    }
    if ((s->heads = pl_read_any(r, KEYS("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), PL_MODEL_DIM,
                                0)) != 0) {
        json_t *dim = pl_json_first(r->cfg, KEYS("mamba_d_head", "mamba_head_dim", "mamba_headdim"), NULL);
        s->kind = PL_STATE_MAMBA2;
        s->inner = pl_read_count(r, "mamba_d_ssm", 0);
        if (s->inner == 0) s->inner = expanded(r);
        s->head_dim =
            json_is_integer(dim)
                ? pl_read_any(r, KEYS("mamba_d_head", "mamba_head_dim", "mamba_headdim"), PL_MODEL_DIM, 0)
                : s->inner / s->heads;
        if (strcmp(r->m->arch, "nemotron_h") == 0)
            s->inner = (uint32_t)pl_min(pl_mul(s->heads, s->head_dim), UINT32_MAX);
        s->groups = pl_read_any(r, KEYS("mamba_n_groups", "n_groups", "mamba_ngroups"), PL_MODEL_DIM, 1);
        s->state = pl_read_any(r, KEYS("mamba_d_state", "ssm_state_size"), PL_MODEL_DIM, 0);
        s->conv = pl_read_any(r, KEYS("mamba_d_conv", "conv_kernel"), PL_MODEL_DIM, 4);
        return s->state != 0 && s->head_dim != 0 ? !r->failed
                                                 : missing(r, "mamba_d_state or mamba_d_head is missing");
    }
    if ((s->conv = pl_read_count(r, "conv_L_cache", 0)) != 0) {
        s->kind = PL_STATE_CONV;
        s->inner = r->m->hidden;
        return !r->failed;
    }
    if ((s->state = pl_read_count(r, "mamba_d_state", 0)) != 0) {
        s->kind = PL_STATE_MAMBA1;
        s->inner = expanded(r);
        s->conv = pl_read_count(r, "mamba_d_conv", 4);
        return !r->failed;
    }
    if (strncmp(r->m->arch, "minimax", 7) == 0) {
        *s = (struct pl_state){
            .kind = PL_STATE_LIGHTNING, .heads = r->m->heads, .head_dim = r->m->head_k, .state_bytes = 4
        };
        return true;
    }
    return missing(r, "of no kind that is understood (gated delta net, Mamba-1, Mamba-2, Kimi delta, short "
                      "convolution, lightning)");
}
