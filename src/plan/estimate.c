/* estimate.c - what cannot be known before a boot. Each number says what it was compared with. */
#include "model/num.h"
#include "plan/inside.h"

uint32_t pl_default_seqs(enum pl_gpu_class c) { return c == PL_GPU_SMALL ? 256 : 1024; }

/* Peak of one step: three rows of hidden and MLP width for each token of the step, or the logits of every
 * sequence in 16 bit and twice in 32. The first gives 2.06 GiB for Llama-3.1-8B at 20,000 tokens, where
 * vllm#10517 shows 2.07. A vision tower runs on as many images as a step has room for: with it gemma-3-4b at
 * 16,384 tokens comes to 9.2 GiB, where vllm#21489 shows 9.96. */
struct pl_term pl_estimate_activation(const struct pl_plan *p) {
    const struct pl_model *m = p->model;
    uint64_t inner = m->intermediate, tokens = p->ask.batched;
    if (m->experts != 0) {
        uint64_t active = pl_add(pl_mul(m->experts_used, m->moe_intermediate),
                                 pl_mul(m->shared_experts, m->moe_intermediate));
        inner = m->dense_layers != 0 ? pl_max(inner, active) : active;
    }
    if (inner == 0) inner = 4 * (uint64_t)m->hidden;
    uint64_t text = pl_mul(pl_mul(tokens, 6), pl_add(m->hidden, inner / p->ask.tp));
    uint64_t logits = pl_mul(pl_mul(pl_default_seqs(p->ask.gpu.class), m->vocab), 10), vision = 0;
    struct pl_term t = { .bytes = pl_max(text, logits),
                         .source = "estimate",
                         .note = "one step of the largest batch; 0.4 to 2.1 GiB seen for text models" };
    if (m->vision.present) {
        const struct pl_vision *v = &m->vision;
        bool known =
            v->image != 0 && v->patch != 0 && v->hidden != 0 && v->intermediate != 0 && v->image_tokens != 0;
        uint64_t patches = known ? (uint64_t)(v->image / v->patch) * (v->image / v->patch) : 0;
        uint64_t images = known ? pl_max(tokens / v->image_tokens, 1) : 0;
        vision = known ? pl_mul(pl_mul(pl_mul(images, patches), 6), (uint64_t)v->hidden + v->intermediate)
                       : 2 * PL_GIB;
        t.note = known ? "text and images of the largest batch; 9.96 GiB seen for a 4B model"
                       : "images: 2 GiB guessed, up to 10 GiB seen; limit them and measure";
    }
    t.bytes = pl_add(t.bytes, vision);
    return t;
}

struct pl_term pl_estimate_graphs(const struct pl_plan *p) {
    if (p->ask.eager) return (struct pl_term){ .bytes = 0, .source = "rule", .note = "off: --enforce-eager" };
    return (struct pl_term){ .bytes = PL_GIB, .source = "guess", .note = "0.65 to 2.5 GiB seen" };
}

struct pl_term pl_estimate_non_torch(const struct pl_plan *p) {
    if (p->ask.tp > 1 || p->ask.dp > 1)
        return (struct pl_term){ .bytes = PL_GIB,
                                 .source = "guess",
                                 .note = "CUDA context and NCCL; grows with the cards, several GiB seen" };
    return (struct pl_term){ .bytes = PL_GIB / 2,
                             .source = "guess",
                             .note = "CUDA context and libraries; 0.07 to 0.6 GiB seen" };
}
