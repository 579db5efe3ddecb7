/* model/gguf.h - between gguf.c, which reads bytes, and gguf_model.c, which knows what the keys mean. */
#ifndef PL_MODEL_GGUF_H
#define PL_MODEL_GGUF_H
#include "model/weights.h"

enum pl_gguf_type {
    PL_GGUF_UINT8,
    PL_GGUF_INT8,
    PL_GGUF_UINT16,
    PL_GGUF_INT16,
    PL_GGUF_UINT32,
    PL_GGUF_INT32,
    PL_GGUF_FLOAT32,
    PL_GGUF_BOOL,
    PL_GGUF_STRING,
    PL_GGUF_ARRAY,
    PL_GGUF_UINT64,
    PL_GGUF_INT64,
    PL_GGUF_FLOAT64
};
struct pl_gguf_text {
    const char *at; /* borrowed from the file's bytes */
    size_t len;
};
enum pl_gguf_kind { PL_GGUF_NOTHING, PL_GGUF_NUMBER, PL_GGUF_TEXT, PL_GGUF_LIST };
struct pl_gguf_value {
    enum pl_gguf_kind kind; /* NOTHING: a list that was stepped over; `count` still tells its length */
    double number;
    struct pl_gguf_text text;
    uint64_t count;
    double list[PL_MODEL_LAYERS];
};
struct pl_gguf {
    const char *bytes;
    size_t len, at;
    uint64_t file_bytes, data_end;
    struct pl_err *err;
    enum pl_gguf_result state;
};

/* The keys that matter, each once: KEY(field, "name behind the architecture") */
#define PL_GGUF_KEYS(KEY)                                \
    KEY(block_count, ".block_count")                     \
    KEY(context_length, ".context_length")               \
    KEY(embedding_length, ".embedding_length")           \
    KEY(feed_forward, ".feed_forward_length")            \
    KEY(vocab_size, ".vocab_size")                       \
    KEY(heads, ".attention.head_count")                  \
    KEY(heads_kv, ".attention.head_count_kv")            \
    KEY(key_length, ".attention.key_length")             \
    KEY(value_length, ".attention.value_length")         \
    KEY(key_length_mla, ".attention.key_length_mla")     \
    KEY(value_length_mla, ".attention.value_length_mla") \
    KEY(kv_lora_rank, ".attention.kv_lora_rank")         \
    KEY(rope_dims, ".rope.dimension_count")              \
    KEY(window, ".attention.sliding_window")             \
    KEY(pattern, ".attention.sliding_window_pattern")    \
    KEY(key_length_swa, ".attention.key_length_swa")     \
    KEY(value_length_swa, ".attention.value_length_swa") \
    KEY(shared_kv, ".attention.shared_kv_layers")        \
    KEY(recurrent, ".attention.recurrent_layers")        \
    KEY(full_interval, ".full_attention_interval")       \
    KEY(indexer, ".attention.indexer.key_length")        \
    KEY(ssm_conv, ".ssm.conv_kernel")                    \
    KEY(ssm_inner, ".ssm.inner_size")                    \
    KEY(ssm_state, ".ssm.state_size")                    \
    KEY(ssm_rank, ".ssm.time_step_rank")                 \
    KEY(ssm_groups, ".ssm.group_count")                  \
    KEY(shortconv, ".shortconv.l_cache")                 \
    KEY(kda_head, ".kda.head_dim")                       \
    KEY(wkv_head, ".wkv.head_size")                      \
    KEY(experts, ".expert_count")                        \
    KEY(experts_used, ".expert_used_count")              \
    KEY(chunk, ".attention.chunk_size")
struct pl_gguf_list {
    bool there;
    uint32_t count; /* 0: one number for every layer */
    uint32_t at[PL_MODEL_LAYERS];
};
struct pl_gguf_keys {
    struct pl_gguf_text arch;
    uint64_t tokens; /* entries of tokenizer.ggml.tokens */
#define KEY(field, name) struct pl_gguf_list field;
    PL_GGUF_KEYS(KEY)
#undef KEY
    const char *bad;             /* a key whose value cannot be */
    struct pl_gguf_value *value; /* room for the one that is being read */
};
void pl_gguf_key(struct pl_gguf_keys *k, struct pl_gguf_text name, const struct pl_gguf_value *v);
bool pl_gguf_model(const struct pl_gguf_keys *k, struct pl_model *m, struct pl_arena *arena,
                   struct pl_err *err);
#endif
