/* plan/inside.h - between the files of this room. */
#ifndef PL_PLAN_INSIDE_H
#define PL_PLAN_INSIDE_H
#include "plan/plan.h"

/* Layers from..to-1 of stage `i` of `n`: even, what is left over goes to the stages before the last (vLLM).
 */
void pl_stage(uint32_t layers, uint32_t n, uint32_t i, uint32_t *from, uint32_t *to);
/* Weights of one card of a stage. */
uint64_t pl_rank_weights(const struct pl_plan *p, uint32_t stage);
bool pl_halves_float32(const struct pl_plan *p);
/* Estimates, with their source and note. */
struct pl_term pl_estimate_activation(const struct pl_plan *p);
struct pl_term pl_estimate_graphs(const struct pl_plan *p);
struct pl_term pl_estimate_non_torch(const struct pl_plan *p);
uint32_t pl_default_seqs(enum pl_gpu_class c);
/* Bytes of one request in an engine that keeps it in one piece (plain PyTorch), and in SGLang's pools, per
 * card. */
uint64_t pl_piece_bytes(const struct pl_plan *p, const struct pl_rank *r, uint64_t len);
/* Tokens-first view of a rank for SGLang. */
uint64_t pl_sglang_capacity(const struct pl_plan *p, const struct pl_rank *r, uint64_t len);
/* Everything of llama.cpp that grows with context and sequences. */
uint64_t pl_llama_dynamic(const struct pl_plan *p, const struct pl_rank *r, uint64_t cells, uint64_t seqs);
#endif
