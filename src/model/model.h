/* model/model.h - what a model is to somebody who plans memory: its layers by the cache they keep, its
 * weights by how they are spread over GPUs, and what the file did not say and was assumed.
 *
 * Pure: readers take bytes. Everything lives in the arena given. Counts are of the whole model, never of one
 * rank. Sources: Hugging Face config.json as vLLM 0.32 reads it, GGUF metadata as llama.cpp 0.5.0 reads it.
 */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    PL_MODEL_LAYERS = 1024,      /* more is refused */
    PL_MODEL_DIM = 1 << 24,      /* largest size of anything but the context */
    PL_MODEL_TOKENS = 1 << 30,   /* longest context */
    PL_CONFIG_BYTES = 16 << 20,  /* largest config.json */
    PL_HEADER_BYTES = 100 << 20, /* largest safetensors header: the format's own limit */
};

/* DTYPE(symbol, name in safetensors, name in config.json, bits) */
#define PL_DTYPES(X)                           \
    X(UNKNOWN, "", "", 0)                      \
    X(F64, "F64", "float64", 64)               \
    X(F32, "F32", "float32", 32)               \
    X(F16, "F16", "float16", 16)               \
    X(BF16, "BF16", "bfloat16", 16)            \
    X(F8_E4M3, "F8_E4M3", "float8_e4m3fn", 8)  \
    X(F8_E5M2, "F8_E5M2", "float8_e5m2", 8)    \
    X(F8_E8M0, "F8_E8M0", "float8_e8m0fnu", 8) \
    X(F4, "F4", "float4_e2m1fn_x2", 4)         \
    X(I64, "I64", "int64", 64)                 \
    X(I32, "I32", "int32", 32)                 \
    X(I16, "I16", "int16", 16)                 \
    X(I8, "I8", "int8", 8)                     \
    X(U64, "U64", "uint64", 64)                \
    X(U32, "U32", "uint32", 32)                \
    X(U16, "U16", "uint16", 16)                \
    X(U8, "U8", "uint8", 8)                    \
    X(BOOL, "BOOL", "bool", 8)                 \
    X(PACKED, "packed", "", 0) /* ggml block types */
enum pl_dtype {
#define X(sym, st, hf, bits) PL_DTYPE_##sym,
    PL_DTYPES(X)
#undef X
        PL_DTYPE_COUNT
};
/* By either name, case ignored, a leading "torch." too; UNKNOWN if there is none. */
enum pl_dtype pl_dtype_of(const char *name, size_t len);
unsigned pl_dtype_bits(enum pl_dtype d);

/* The caches a layer can keep. A layer may keep two (Falcon-H1: attention and state), or none. */
enum pl_cache_kind {
    PL_CACHE_FULL,
    PL_CACHE_SLIDING,
    PL_CACHE_CHUNKED,
    PL_CACHE_MLA,   /* one latent row a token, whatever the heads */
    PL_CACHE_INDEX, /* the sparse indexer beside MLA: bytes a token that no KV type changes */
    PL_CACHE_STATE, /* of fixed size for each request */
    PL_CACHE_CROSS, /* as long as the encoder's input */
    PL_CACHE_KINDS
};
const char *pl_cache_name(enum pl_cache_kind k); /* "full", "sliding", ... */
struct pl_cache {
    enum pl_cache_kind kind;
    uint32_t layer;          /* 0 .. layers - 1 */
    uint32_t kv_heads;       /* of the model */
    uint32_t head_k, head_v; /* elements */
    uint32_t window;         /* SLIDING, CHUNKED: tokens */
    uint32_t row;            /* MLA: elements of the latent row. INDEX: bytes */
};

/* The recurrent state; all such layers of a model have the same. GDN's value heads are `heads`, its key heads
 * `groups`, its key size `state`: then one pair of formulas holds for Mamba-2 and gated delta nets alike. */
enum pl_state_kind {
    PL_STATE_NONE,
    PL_STATE_GDN,
    PL_STATE_MAMBA2,
    PL_STATE_MAMBA1,
    PL_STATE_KDA,
    PL_STATE_CONV,
    PL_STATE_LIGHTNING
};
struct pl_state {
    enum pl_state_kind kind;
    uint32_t conv;  /* kernel size */
    uint32_t inner; /* elements: heads * head_dim, or d_inner */
    uint32_t groups, heads, head_dim, state;
    uint32_t conv_bytes, state_bytes; /* of one element */
};

struct pl_vision {
    bool present;
    uint32_t image, patch, hidden, intermediate,
        layers;            /* pixels, pixels, elements; 0 = the file does not say */
    uint32_t image_tokens; /* tokens of one image after pooling */
};

struct pl_note {
    struct pl_note *next;
    const char *text;
};
struct pl_model {
    const char *arch;   /* model_type or general.architecture */
    const char *origin; /* "config.json", "GGUF" */
    uint32_t layers, hidden, heads, kv_heads, head_k, head_v;
    uint32_t context; /* longest, 0 = not said */
    uint32_t vocab, intermediate;
    uint32_t experts, experts_used, moe_intermediate, shared_experts, dense_layers, moe_every;
    uint32_t shared_intermediate;
    uint32_t q_lora, kv_lora, rope_dim, nope_dim; /* MLA */
    uint32_t draft_layers;   /* behind the model's own, for speculative decoding: not loaded without it */
    uint32_t encoder_tokens; /* cross attention */
    uint32_t max_new_tokens; /* generation_config.json; 0 = not said */
    bool tied, gated;        /* head = embedding; three matrices in an MLP */
    enum pl_dtype dtype;     /* UNKNOWN = not said */
    const char *quant;       /* "awq", "gptq", "fp8" ...; NULL = none */
    unsigned quant_bits;     /* of most weights; 0 = not quantised or not known */
    struct pl_cache *caches;
    size_t cache_count;
    struct pl_state state;
    struct pl_vision vision;
    bool provisional; /* a rule was guessed: the notes say which */
    struct pl_note *notes, **notes_end;
    struct pl_arena *arena;
};
void pl_model_init(struct pl_model *m, struct pl_arena *arena);
/* A copy for messages: at most 64 bytes, what a terminal would obey replaced by '?'. NULL: no memory. */
const char *pl_model_word(struct pl_arena *arena, const char *text, size_t len);
void pl_model_note(struct pl_model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* false: no room in the arena, or more caches than a model can have. */
bool pl_model_add_cache(struct pl_model *m, struct pl_cache c, struct pl_err *err);
/* How many caches of this kind. */
size_t pl_model_count(const struct pl_model *m, enum pl_cache_kind k);

/* config.json. An architecture that is not known is read by the generic rules, and a note says so. */
bool pl_model_read_config(const char *text, size_t len, struct pl_arena *arena, struct pl_model *out,
                          struct pl_err *err);
/* What the files beside it add: generation_config.json (max_new_tokens), hf_quant_config.json or
 * quantize_config.json. Wrong ones leave a note and change nothing. */
void pl_model_read_generation(struct pl_model *m, const char *text, size_t len);
void pl_model_read_quant(struct pl_model *m, const char *text, size_t len);
#endif
