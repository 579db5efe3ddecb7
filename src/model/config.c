/* config.c - a Hugging Face config.json. Names and their order as vLLM 0.32 tries them; see docs/plan.md. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/inside.h"
#include "model/num.h"

#define KEYS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

bool pl_read_fail(struct reader *r, const char *fmt, ...) {
    char text[200];
    va_list ap;
    if (r->failed) return false;
    r->failed = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return PL_FAIL(r->err, PL_E_CONFIG, "%s", text);
}

json_t *pl_json_first(json_t *object, const char *const *keys, const char **found) {
    for (; *keys != NULL; keys++) {
        json_t *v = json_object_get(object, *keys);
        if (v == NULL || json_is_null(v)) continue;
        if (found != NULL) *found = *keys;
        return v;
    }
    return NULL;
}

uint32_t pl_read_any(struct reader *r, const char *const *keys, uint32_t most, uint32_t none) {
    const char *key = NULL;
    json_t *v = pl_json_first(r->cfg, keys, &key);
    if (v == NULL || r->failed) return none;
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!(d >= 0 && d <= (double)most) || d != (double)(uint32_t)d) {
        pl_read_fail(r, "%s is not a whole number from 0 to %u", key, most);
        return none;
    }
    return (uint32_t)d;
}
uint32_t pl_read_count(struct reader *r, const char *key, uint32_t none) {
    return pl_read_any(r, KEYS(key), PL_MODEL_DIM, none);
}

const char *pl_read_text(struct reader *r, json_t *object, const char *key) {
    json_t *v = json_object_get(object, key);
    return json_is_string(v) ? pl_model_word(r->m->arena, json_string_value(v), json_string_length(v)) : NULL;
}
bool pl_read_flag(json_t *object, const char *key, bool none) {
    json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_is_true(v) : none;
}

/* --- parts */

static void read_dtype(struct reader *r) {
    json_t *places[] = { r->cfg, r->root, json_object_get(r->root, "vision_config") };
    for (size_t i = 0; i < 3; i++) {
        json_t *v = pl_json_first(places[i], KEYS("dtype", "torch_dtype"), NULL);
        if (!json_is_string(v)) continue;
        r->m->dtype = pl_dtype_of(json_string_value(v), json_string_length(v));
        if (r->m->dtype != PL_DTYPE_UNKNOWN) return;
    }
}

static unsigned bits_of_method(const char *method, json_t *q) {
    json_t *bits = pl_json_first(q, KEYS("bits", "w_bit", "weight_bits"), NULL);
    if (json_is_integer(bits) && json_integer_value(bits) > 0 && json_integer_value(bits) <= 16)
        return (unsigned)json_integer_value(bits);
    if (strstr(method, "fp8") != NULL || strstr(method, "FP8") != NULL || strstr(method, "int8") != NULL)
        return 8;
    if (strstr(method, "awq") != NULL || strstr(method, "gptq") != NULL || strstr(method, "fp4") != NULL ||
        strstr(method, "FP4") != NULL)
        return 4;
    if (strcmp(method, "bitsandbytes") == 0) return pl_read_flag(q, "load_in_4bit", false) ? 4 : 8;
    if (strcmp(method, "compressed-tensors") == 0) {
        json_t *groups = json_object_get(q, "config_groups"), *group;
        const char *name;
        json_object_foreach(groups, name, group) {
            json_t *n = json_object_get(json_object_get(group, "weights"), "num_bits");
            if (json_is_integer(n) && json_integer_value(n) > 0 && json_integer_value(n) <= 16)
                return (unsigned)json_integer_value(n);
        }
    }
    return 0;
}

static void read_quant(struct pl_model *m, json_t *q) {
    json_t *method = pl_json_first(q, KEYS("quant_method", "quant_algo"), NULL);
    if (method == NULL) method = json_object_get(json_object_get(q, "quantization"), "quant_algo");
    if (!json_is_string(method)) return;
    m->quant = pl_model_word(m->arena, json_string_value(method), json_string_length(method));
    if (m->quant == NULL) return;
    m->quant_bits = bits_of_method(m->quant, q);
    if (m->quant_bits == 0)
        pl_model_note(m, "quantisation '%.40s' is not known: weights from the file headers only", m->quant);
}

static void read_experts(struct reader *r) {
    struct pl_model *m = r->m;
    m->experts = pl_read_any(
        r, KEYS("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"), PL_MODEL_DIM, 0);
    if (m->experts == 0) return;
    m->experts_used = pl_read_any(r,
                                  KEYS("num_experts_per_tok", "moe_topk", "num_experts_per_token",
                                       "top_k_experts", "experts_per_token", "moe_k"),
                                  PL_MODEL_DIM, 1);
    m->moe_intermediate =
        pl_read_any(r, KEYS("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size"),
                    PL_MODEL_DIM, m->intermediate);
    m->shared_experts =
        pl_read_any(r, KEYS("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), 4096, 0);
    m->shared_intermediate =
        pl_read_any(r, KEYS("shared_expert_intermediate_size", "shared_intermediate_size"), PL_MODEL_DIM, 0);
    m->dense_layers = pl_read_any(r, KEYS("first_k_dense_replace", "num_dense_layers"), PL_MODEL_LAYERS, 0);
    m->moe_every = pl_read_any(
        r, KEYS("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period"),
        PL_MODEL_LAYERS, 1);
    if (m->moe_every == 0) m->moe_every = 1;
    if (m->experts_used > m->experts)
        pl_read_fail(r, "num_experts_per_tok is %u, but there are %u experts", m->experts_used, m->experts);
}

static void read_vision(struct reader *r) {
    struct pl_vision *v = &r->m->vision;
    json_t *cfg = json_object_get(r->root, "vision_config"), *keep = r->cfg, *root = r->root;
    if (!json_is_object(cfg)) return;
    v->present = true;
    r->cfg = cfg;
    bool failed = r->failed;
    struct pl_err err = *r->err;
    v->image = pl_read_any(r, KEYS("image_size"), 1 << 16, 0);
    v->patch = pl_read_any(r, KEYS("patch_size"), 1 << 16, 0);
    v->hidden = pl_read_any(r, KEYS("hidden_size", "embed_dim"), PL_MODEL_DIM, 0);
    v->intermediate = pl_read_any(r, KEYS("intermediate_size"), PL_MODEL_DIM, 0);
    v->layers = pl_read_any(r, KEYS("num_hidden_layers", "depth"), PL_MODEL_LAYERS, 0);
    r->cfg = root;
    v->image_tokens = pl_read_any(r, KEYS("mm_tokens_per_image", "image_seq_length"), 1 << 20, 0);
    r->cfg = keep;
    if (r->failed && !failed) { /* a tower that is not understood does not stop the plan of the text model */
        pl_model_note(r->m, "vision_config: %.120s", r->err->msg);
        r->failed = false;
        *r->err = err;
    }
}

static uint32_t context_of(struct reader *r) {
    static const char *const keys[] = {
        "max_position_embeddings", "n_positions",         "max_seq_len",    "seq_length",
        "max_target_positions",    "max_sequence_length", "max_seq_length", "seq_len"
    };
    uint32_t least = 0, wins = pl_read_any(r, KEYS("model_max_length"), PL_MODEL_TOKENS, 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint32_t n = pl_read_any(r, KEYS(keys[i]), PL_MODEL_TOKENS, 0);
        if (n != 0 && (least == 0 || n < least)) least = n;
    }
    if (wins != 0) return wins;
    json_t *rope = pl_json_first(r->cfg, KEYS("rope_scaling", "rope_parameters"), NULL);
    json_t *factor = json_object_get(rope, "factor"),
           *type = pl_json_first(rope, KEYS("rope_type", "type"), NULL);
    json_t *old = json_object_get(rope, "original_max_position_embeddings");
    const char *word = json_is_string(type) ? json_string_value(type) : "";
    /* llama3 and longrope already say the longer length; yarn says the original one beside it. */
    if (least == 0 || !json_is_number(factor) || strcmp(word, "llama3") == 0 ||
        strcmp(word, "longrope") == 0 || strcmp(word, "su") == 0 || strcmp(word, "mrope") == 0 ||
        strcmp(word, "default") == 0)
        return least;
    double base = strcmp(word, "yarn") == 0 && json_is_number(old) ? json_number_value(old) : least;
    double longer = base * json_number_value(factor);
    if (!(longer >= 1 && longer <= PL_MODEL_TOKENS)) return least;
    return (uint32_t)longer;
}

static void read_heads(struct reader *r) {
    struct pl_model *m = r->m;
    m->heads = pl_read_any(r, KEYS("num_attention_heads", "n_head", "n_heads", "num_heads"), PL_MODEL_DIM, 0);
    bool said = m->heads != 0;
    if (!said) m->heads = 1;
    m->kv_heads = pl_read_any(r,
                              KEYS("n_head_kv", "num_kv_heads", "num_key_value_heads",
                                   "multi_query_group_num", "num_attention_groups"),
                              PL_MODEL_DIM, 0);
    json_t *attn = json_object_get(r->cfg, "attn_config"), *dbrx = json_object_get(attn, "kv_n_heads");
    if (m->kv_heads == 0 && json_is_integer(dbrx) && json_integer_value(dbrx) > 0 &&
        json_integer_value(dbrx) < PL_MODEL_DIM)
        m->kv_heads = (uint32_t)json_integer_value(dbrx);
    if (strcmp(m->arch, "falcon") == 0 && pl_read_flag(r->cfg, "multi_query", false) &&
        !pl_read_flag(r->cfg, "new_decoder_architecture", false))
        m->kv_heads = 1;
    if (m->kv_heads == 0) m->kv_heads = m->heads;
    if (said && m->kv_heads > m->heads)
        pl_read_fail(r, "num_key_value_heads is %u, but num_attention_heads is %u", m->kv_heads, m->heads);
    m->head_k =
        pl_read_any(r, KEYS("head_dim", "hidden_size_per_head", "attention_head_dim"), PL_MODEL_DIM, 0);
    if (m->head_k == 0 && said && m->hidden % m->heads != 0)
        pl_model_note(m, "hidden_size %u is no multiple of %u heads and there is no head_dim: %u assumed",
                      m->hidden, m->heads, m->hidden / m->heads);
    if (m->head_k == 0) m->head_k = m->hidden / m->heads;
    m->head_v = pl_read_any(r, KEYS("v_head_dim"), PL_MODEL_DIM, m->head_k);
}

/* --- caches */

static bool add_attention(struct reader *r, uint32_t layer, enum pl_cache_kind kind, uint32_t window) {
    const struct pl_model *m = r->m;
    struct pl_cache c = { .kind = kind,
                          .layer = layer,
                          .kv_heads = m->kv_heads,
                          .head_k = m->head_k,
                          .head_v = m->head_v,
                          .window = window };
    if (m->kv_lora != 0)
        c = (struct pl_cache){
            .kind = PL_CACHE_MLA, .layer = layer, .kv_heads = 1, .row = m->kv_lora + m->rope_dim
        };
    return pl_model_add_cache(r->m, c, r->err) || (r->failed = true, false);
}

static bool add_caches(struct reader *r, const enum word *words) {
    struct pl_model *m = r->m;
    uint32_t window = pl_read_any(r, KEYS("sliding_window", "sliding_window_size", "attention_window_size"),
                                  PL_MODEL_TOKENS, 0);
    uint32_t chunk = pl_read_any(r, KEYS("attention_chunk_size"), PL_MODEL_TOKENS, 0);
    uint32_t indexed = pl_read_count(r, "index_head_dim", 0);
    uint32_t shared = pl_read_any(r, KEYS("num_kv_shared_layers"), PL_MODEL_LAYERS, 0);
    if (shared >= m->layers && shared != 0)
        return pl_read_fail(r, "num_kv_shared_layers is %u of %u layers", shared, m->layers);
    if (json_object_get(r->cfg, "cross_attention_layers") != NULL) {
        m->provisional = true;
        pl_model_note(m, "cross_attention_layers are planned as if they kept every token");
    }
    for (uint32_t i = 0; i < m->layers && !r->failed; i++) {
        bool keeps = i < m->layers - shared; /* the last ones use an earlier layer's cache */
        if (words[i] == WORD_SLIDING && window == 0)
            return pl_read_fail(r, "layer %u slides, but there is no sliding_window", i);
        if (words[i] == WORD_CHUNKED && chunk == 0)
            return pl_read_fail(r, "layer %u is chunked, but there is no attention_chunk_size", i);
        if (keeps && (words[i] == WORD_FULL || words[i] == WORD_BOTH)) add_attention(r, i, PL_CACHE_FULL, 0);
        if (keeps && words[i] == WORD_SLIDING) add_attention(r, i, PL_CACHE_SLIDING, window);
        if (keeps && words[i] == WORD_CHUNKED) add_attention(r, i, PL_CACHE_CHUNKED, chunk);
        if (words[i] == WORD_LINEAR || words[i] == WORD_CONV || words[i] == WORD_BOTH)
            r->failed |=
                !pl_model_add_cache(m, (struct pl_cache){ .kind = PL_CACHE_STATE, .layer = i }, r->err);
    }
    for (uint32_t i = 0; i < m->layers && indexed != 0 && m->kv_lora != 0 && !r->failed;
         i++) /* 132 bytes for 128 elements */
        r->failed |= !pl_model_add_cache(
            m, (struct pl_cache){ .kind = PL_CACHE_INDEX, .layer = i, .row = indexed + indexed / 128 * 4 },
            r->err);
    return !r->failed;
}

static bool add_cross(struct reader *r) {
    struct pl_model *m = r->m;
    if (!pl_read_flag(r->root, "is_encoder_decoder", false)) return true;
    m->encoder_tokens = pl_read_any(r, KEYS("max_source_positions"), PL_MODEL_TOKENS, m->context);
    pl_model_note(m, "encoder-decoder: a cross-attention cache of %u tokens in every decoder layer",
                  m->encoder_tokens);
    m->provisional = true;
    for (uint32_t i = 0; i < m->layers; i++)
        if (!add_attention(r, i, PL_CACHE_CROSS, 0)) return false;
    return true;
}

static void say_unknown(struct pl_model *m) {
    static const char *const known[] = {
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_5",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt_oss",
        "llama4",
        "llama4_text",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "glm4",
        "glm4_moe",
        "falcon",
        "falcon_h1",
        "bamba",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "nemotron_h",
        "jamba",
        "lfm2",
        "zamba2",
        "phi",
        "phi3",
        "gpt2",
        "gpt_neox",
        "gptj",
        "opt",
        "bloom",
        "mpt",
        "dbrx",
        "olmo",
        "olmo2",
        "olmoe",
        "starcoder2",
        "cohere",
        "cohere2",
        "internlm2",
        "baichuan",
        "chatglm",
        "stablelm",
        "exaone",
        "minicpm",
        "whisper",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3_vl",
        "llava",
        "mllama",
        "mistral3",
        "smollm3",
        "ernie4_5",
        "ernie4_5_moe",
        "seed_oss",
        "kimi_linear",
        "minimax",
        "qwen3_5_moe",
        "longcat_flash",
        "bert",
        "roberta",
        "xlm-roberta",
        "modernbert",
        "minimax_text_01",
        "gemma3n_text",
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], m->arch) == 0) return;
    m->provisional = true;
    pl_model_note(m,
                  "architecture '%.40s' is not known: planned by the generic rules (one key and one value "
                  "row a layer, KV head and token)",
                  m->arch[0] != '\0' ? m->arch : "(none)");
}

static bool read_all(struct reader *r) {
    struct pl_model *m = r->m;
    enum word words[PL_MODEL_LAYERS];
    const char *arch = pl_read_text(r, r->cfg, "model_type");
    if (arch == NULL) arch = pl_read_text(r, r->root, "model_type");
    m->arch = arch != NULL ? arch : "";
    m->layers =
        pl_read_any(r, KEYS("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"),
                    PL_MODEL_LAYERS, 0);
    if (m->layers == 0 && !r->failed) {
        pl_read_fail(r, "num_hidden_layers is missing: this is not the configuration of a language model");
        return pl_err_hint(r->err, "give the config.json beside the weights");
    }
    m->hidden = pl_read_any(r, KEYS("hidden_size", "n_embd", "d_model", "dim"), PL_MODEL_DIM, 0);
    if (m->hidden == 0) return pl_read_fail(r, "hidden_size is missing");
    read_heads(r);
    m->context = context_of(r);
    m->vocab = pl_read_count(r, "vocab_size", 0);
    m->intermediate =
        pl_read_any(r, KEYS("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "decoder_ffn_dim"),
                    PL_MODEL_DIM, 0);
    m->kv_lora = pl_read_count(r, "kv_lora_rank", 0);
    m->q_lora = pl_read_count(r, "q_lora_rank", 0);
    m->rope_dim = pl_read_count(r, "qk_rope_head_dim", 0);
    m->nope_dim = pl_read_count(r, "qk_nope_head_dim", 0);
    if (m->kv_lora != 0 && m->rope_dim == 0) return pl_read_fail(r, "kv_lora_rank without qk_rope_head_dim");
    m->tied = pl_read_flag(r->cfg, "tie_word_embeddings",
                           pl_read_flag(r->root, "tie_word_embeddings", strncmp(m->arch, "gemma", 5) == 0));
    m->gated = strcmp(m->arch, "gpt2") != 0 && strcmp(m->arch, "gpt_neox") != 0 &&
               strcmp(m->arch, "opt") != 0 && strcmp(m->arch, "bloom") != 0 &&
               strcmp(m->arch, "falcon") != 0 && strcmp(m->arch, "starcoder2") != 0 &&
               strcmp(m->arch, "phi") != 0 && strcmp(m->arch, "gptj") != 0 &&
               strcmp(m->arch, "nemotron_h") != 0;
    m->draft_layers =
        pl_read_any(r, KEYS("num_nextn_predict_layers", "mtp_num_hidden_layers"), PL_MODEL_LAYERS, 0);
    read_experts(r);
    read_dtype(r);
    read_vision(r);
    json_t *q = pl_json_first(r->root, KEYS("quantization_config", "compression_config"), NULL);
    if (q == NULL) q = json_object_get(r->cfg, "quantization_config");
    read_quant(m, q);
    if (r->failed) return false;
    if (!pl_read_words(r, words)) return false;
    for (uint32_t i = 0; i < m->layers; i++)
        if (words[i] == WORD_LINEAR || words[i] == WORD_CONV || words[i] == WORD_BOTH) {
            if (!pl_read_state(r)) return false;
            break;
        }
    if (!add_caches(r, words) || !add_cross(r)) return false;
    if (json_object_get(r->cfg, "block_configs") != NULL) {
        pl_read_fail(r, "block_configs: layers that differ from each other are not understood yet");
        return pl_err_hint(r->err, "a plan for this model would be a guess");
    }
    if (m->context == 0) pl_model_note(m, "no context length in the file: 4096 tokens assumed, --max-len N");
    say_unknown(m);
    return !r->failed;
}

static json_t *parse(const char *text, size_t len, struct pl_err *err) {
    json_error_t at;
    if (len > PL_CONFIG_BYTES) {
        PL_FAIL(err, PL_E_TOO_LARGE, "%zu bytes of JSON, more than the %d that a configuration may have", len,
                PL_CONFIG_BYTES);
        return NULL;
    }
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    if (root == NULL && at.text[0] == '\0') /* jansson has no words for it */
        PL_FAIL(err, PL_E_NOMEM, "no memory to read it");
    else if (root == NULL)
        PL_FAIL(err, PL_E_CONFIG, "%d:%d: %s", at.line, at.column, at.text);
    else if (!json_is_object(root))
        PL_FAIL(err, PL_E_CONFIG, "1:1: an object is expected");
    else
        return root;
    json_decref(root);
    return NULL;
}

bool pl_model_read_config(const char *text, size_t len, struct pl_arena *arena, struct pl_model *out,
                          struct pl_err *err) {
    json_t *root = parse(text, len, err);
    pl_model_init(out, arena);
    if (root == NULL) return false;
    struct reader r = { .root = root, .cfg = root, .m = out, .err = err };
    json_t *inner = pl_json_first(root, KEYS("text_config", "llm_config", "language_config"), NULL);
    if (json_is_object(inner)) r.cfg = inner;
    out->origin = "config.json";
    bool ok = read_all(&r);
    json_decref(root);
    if (ok && arena->refused) return PL_FAIL(err, PL_E_NOMEM, "no memory for the model"); /* a note is lost */
    return ok;
}

void pl_model_read_generation(struct pl_model *m, const char *text, size_t len) {
    struct pl_err err = { 0 };
    json_t *root = parse(text, len, &err);
    if (root == NULL) {
        pl_model_note(m, "generation_config.json is not used: %.120s", err.msg);
        return;
    }
    json_t *n = json_object_get(root, "max_new_tokens");
    if (json_is_integer(n) && json_integer_value(n) > 0 && json_integer_value(n) < PL_MODEL_TOKENS)
        m->max_new_tokens = (uint32_t)json_integer_value(n);
    json_decref(root);
}

void pl_model_read_quant(struct pl_model *m, const char *text, size_t len) {
    struct pl_err err = { 0 };
    json_t *root = parse(text, len, &err);
    if (root == NULL) {
        pl_model_note(m, "the quantisation file is not used: %.120s", err.msg);
        return;
    }
    if (m->quant == NULL) read_quant(m, root);
    if (m->quant == NULL &&
        json_is_integer(json_object_get(root, "bits"))) { /* quantize_config.json of old GPTQ files */
        m->quant = "gptq";
        m->quant_bits = bits_of_method("gptq", root);
    }
    json_decref(root);
}
