/* plan/llama.h - memory of llama.cpp: caches, recurrent state, compute and output buffers.
 *
 *   a cache        cells * sum over its layers of [ row(type_k, kv_heads * head_k) + row(type_v, kv_heads *
 * head_v) ] cells          n_ctx; of a sliding cache pad256(min(n_ctx, window * sequences + n_ubatch)) unless
 * swa_full compute buffer max( logits, masks + activations ), below
 *
 * Source: llama.cpp 0.5.0, commit 0c1e57098; caches checked byte for byte against its load logs. The compute
 * buffer is a formula fitted to logs of two models on a CPU build, within 5 %: provisional on a GPU. */
#ifndef PL_PLAN_LLAMA_H
#define PL_PLAN_LLAMA_H
#include "model/weights.h"

struct pl_llama {
    uint64_t n_ctx, n_seq;       /* cells of all sequences, sequences */
    uint64_t n_ubatch;           /* 512 */
    uint64_t n_outputs;          /* rows of logits in a batch: n_ubatch unless the program asks for less */
    const char *type_k, *type_v; /* "f16", "q8_0" ... */
    bool split;                  /* kv_unified = false: each sequence has n_ctx / n_seq cells */
    bool swa_full;               /* the library's default; llama-server's is off */
};
struct pl_llama_cache {
    uint64_t cells; /* of one stream */
    uint64_t layers, k_bytes, v_bytes;
};
/* The cache of full layers and the one of sliding and chunked layers; a missing one has 0 layers. */
void pl_llama_caches(const struct pl_model *m, const struct pl_llama *o, struct pl_llama_cache *full,
                     struct pl_llama_cache *sliding);
/* One layer, one sequence, f32. */
uint64_t pl_llama_state_bytes(const struct pl_state *s);
struct pl_llama_bytes {
    uint64_t kv, state, compute, output;
};
struct pl_llama_bytes pl_llama_bytes(const struct pl_model *m, const struct pl_llama *o);
#endif
