/* plan/kv.h - KV cache of vLLM 0.32, exactly: pages, groups, the pool, what one request needs.
 *
 *   page           bytes of one layer for one block of `block` tokens, on one rank
 *   group          layers that share a block table; every group takes its blocks from one pool
 *   bytes_per_block = max over groups of the sum of its pages (of a pipeline stage: of its own layers)
 *   need(L)        = bytes_per_block * sum over groups of blocks(L)
 *   fits           = need <= avail - bytes_per_block: one block is never given out
 *   T              = tokens in flight: max_num_batched_tokens * concurrent batches
 *
 * Source: vllm 0.32.0, v1/kv_cache_interface.py and v1/core/kv_cache_utils.py, as docs/plan.md tells; checked
 * against what its own classes return. Values are per rank: tensor parallelism is applied by pl_kv_layers().
 */
#ifndef PL_PLAN_KV_H
#define PL_PLAN_KV_H
#include "model/model.h"

enum pl_kv_kind {
    PL_KV_FULL,
    PL_KV_MLA,
    PL_KV_SLIDING,
    PL_KV_CHUNKED,
    PL_KV_STATE,
    PL_KV_CROSS,
    PL_KV_ENCODER
};
struct pl_kv_layer {
    enum pl_kv_kind kind;
    uint32_t layer;                      /* of the model: decides the pipeline stage */
    uint64_t heads;                      /* KV heads of this rank */
    uint64_t head_k, head_v, dtype_bits; /* told apart when layers are grouped */
    uint64_t cell_bytes;                 /* of one head (MLA: of the row) and token */
    uint64_t window;                     /* SLIDING, CHUNKED: tokens */
    uint64_t state_bytes;                /* STATE */
    bool aligned;                        /* STATE: prefix caching is on, one block more */
    uint64_t spec;                       /* STATE: speculative blocks */
};

/* Number formats of a KV cache. */
struct pl_kv_type {
    const char *name;
    uint32_t bits;       /* of an element */
    uint32_t cell_extra; /* bytes a head and token on top */
    uint32_t mla_row;    /* whole row of an MLA layer in bytes; 0: elements * bits */
    bool provisional;    /* read in the source, no vector */
};
/* NULL: no such type, `err` lists them. */
const struct pl_kv_type *pl_kv_type(const char *name, struct pl_err *err);

struct pl_kv_options {
    uint32_t tp;
    const struct pl_kv_type *type;
    bool prefix_caching;
    uint32_t spec;  /* speculative tokens */
    uint32_t block; /* 0: the engine's default */
};
/* The caches of a model as one rank has them; `block` becomes the block size (raised for hybrids and MLA). */
bool pl_kv_layers(const struct pl_model *m, const struct pl_kv_options *o, struct pl_arena *arena,
                  struct pl_kv_layer **out, size_t *count, uint64_t *block, struct pl_err *err);
/* One recurrent state of a rank. */
uint64_t pl_kv_state_bytes(const struct pl_state *s, uint32_t tp, uint32_t spec);

struct pl_kv_member {
    uint32_t layer;
    uint64_t page;
};
struct pl_kv_group {
    struct pl_kv_member *members;
    size_t count;
    struct pl_kv_layer first; /* all of a group need the same blocks */
    uint64_t block;           /* tokens */
};
struct pl_kv_groups {
    struct pl_kv_group *at;
    size_t count;
};
bool pl_kv_group(const struct pl_kv_layer *layers, size_t count, uint64_t block, struct pl_arena *arena,
                 struct pl_kv_groups *out, struct pl_err *err);
/* Pool bytes of one block, of the layers from..to-1. 0: they keep no cache. */
uint64_t pl_kv_block_bytes(const struct pl_kv_groups *g, uint32_t from, uint32_t to);
struct pl_kv_load {
    uint64_t max_len, in_flight; /* tokens */
    uint64_t dcp, encoder_len;   /* 1; 0 */
};
/* Blocks of one request, all groups. */
uint64_t pl_kv_blocks(const struct pl_kv_groups *g, struct pl_kv_load l);

struct pl_kv_plan {
    uint64_t bytes_per_block, blocks_per_request, need, blocks, tokens, capacity;
    double concurrency; /* as vLLM prints it: the null block counts */
    bool fits;
};
struct pl_kv_plan pl_kv_plan(uint64_t bytes_per_block, uint64_t blocks_per_request, uint64_t max_len,
                             uint64_t avail_bytes);
/* The longest max_len up to `limit` that fits; 0: none. */
uint64_t pl_kv_longest(const struct pl_kv_groups *g, uint64_t bytes_per_block, struct pl_kv_load l,
                       uint64_t avail_bytes, uint64_t limit);
/* Bytes that one token more costs a long request (full and latent layers only), of the layers from..to-1. */
uint64_t pl_kv_token_bytes(const struct pl_kv_groups *g, uint32_t from, uint32_t to);
#endif
