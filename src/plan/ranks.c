/* ranks.c - how weights and layers are spread over cards. */
#include "model/num.h"
#include "plan/inside.h"

enum { VOCAB_PAD = 64 };

void pl_stage(uint32_t layers, uint32_t n, uint32_t i, uint32_t *from, uint32_t *to) {
    uint32_t each = layers / n, left = layers % n, at = 0;
    for (uint32_t k = 0; k <= i; k++) {
        *from = at;
        /* left-over layers: one each to the stages n-2, n-3 ... (the last also has the head) */
        at += each + (n > 1 && k + 1 < n && n - 2 - k < left ? 1 : 0);
        if (n == 1) at = layers;
    }
    *to = at;
}

/* Share of the matrices that stays when they are stored in fewer bits: 8 bit is a byte a value (scales of a
 * row are below 0.1 % and left out); 4 bit in groups of 128 has a 16-bit scale and a 4-bit zero point for
 * each: 0.51953125 bytes a value. */
static uint64_t quantised(const struct pl_weights *w, uint32_t bits, uint64_t bytes, uint64_t all) {
    if (bits == 0 || w->matrices == 0 || all == 0) return bytes;
    uint64_t then =
        bits == 8 ? w->matrix_values : (uint64_t)((unsigned __int128)w->matrix_values * 133 / 256);
    if (then >= w->matrices) return bytes;
    return (uint64_t)((unsigned __int128)bytes * (all - pl_min(all, w->matrices - then)) / all);
}

static uint64_t divided(uint64_t bytes, uint64_t by) { return pl_cdiv(bytes, by); }

static uint64_t padded_rows(uint64_t bytes, uint32_t vocab) {
    if (vocab == 0 || bytes == 0 || bytes % vocab != 0) return bytes;
    return bytes / vocab * pl_round_up(vocab, VOCAB_PAD);
}

static uint64_t as_stored(const struct pl_plan *p, uint32_t stage) {
    const struct pl_weights *w = p->weights;
    uint64_t tp = p->ask.tp, kv_ways = pl_min(tp, pl_max(p->model->kv_heads, 1)), ep = pl_mul(tp, p->ask.dp),
             all = 0, sum = 0;
    bool last = stage + 1 == p->rank_count;
    if (w->origin == PL_WEIGHTS_FILES) return divided(w->total, tp * p->rank_count);
    for (uint32_t i = 0; i < w->layers; i++)
        all =
            pl_add(all, pl_add(w->layer[i].bytes[PL_WEIGHT_SHARDED],
                               pl_add(w->layer[i].bytes[PL_WEIGHT_KV], w->layer[i].bytes[PL_WEIGHT_EXPERT])));
    const struct pl_rank *r = &p->ranks[stage];
    for (uint32_t i = 0; i < w->layers; i++) {
        bool own = i < p->model->layers;
        if (own ? i < r->from || i >= r->to : !last || p->model->draft_layers != 0) continue;
        const uint64_t *b = w->layer[i].bytes;
        sum = pl_add(sum, divided(quantised(w, p->ask.weight_bits, b[PL_WEIGHT_SHARDED], all), tp));
        sum = pl_add(sum, divided(quantised(w, p->ask.weight_bits, b[PL_WEIGHT_KV], all), kv_ways));
        sum = pl_add(sum, divided(quantised(w, p->ask.weight_bits, b[PL_WEIGHT_EXPERT], all), ep));
        sum = pl_add(sum, b[PL_WEIGHT_REPLICATED]);
    }
    for (int c = 0; c < PL_WEIGHT_CLASSES; c++)
        sum = pl_add(sum, divided(w->rest.bytes[c], c == PL_WEIGHT_REPLICATED ? 1 : tp));
    if (p->ask.engine ==
        PL_ENGINE_LLAMA) { /* the embedding stays on the host; a tied one is copied for the head */
        if (last) sum = pl_add(sum, w->head != 0 ? w->head : w->embed);
        return sum;
    }
    uint64_t embed = padded_rows(w->embed, p->model->vocab), head = padded_rows(w->head, p->model->vocab);
    if (p->ask.engine == PL_ENGINE_TORCH) {
        embed = w->embed;
        head = w->head;
    }
    if (stage == 0) sum = pl_add(sum, pl_add(divided(embed, tp), w->vision));
    if (last) sum = pl_add(sum, divided(head != 0 || stage == 0 ? head : embed, tp));
    return sum;
}

/* vLLM and SGLang load a float32 checkpoint in 16 bit. */
bool pl_halves_float32(const struct pl_plan *p) {
    bool engine = p->ask.engine == PL_ENGINE_VLLM || p->ask.engine == PL_ENGINE_SGLANG;
    return engine && p->weights->by_dtype[PL_DTYPE_F32] > p->weights->total / 2 &&
           (p->model->dtype == PL_DTYPE_F32 || p->model->dtype == PL_DTYPE_UNKNOWN);
}

uint64_t pl_rank_weights(const struct pl_plan *p, uint32_t stage) {
    uint64_t bytes = as_stored(p, stage), all = p->weights->total;
    if (!pl_halves_float32(p) || p->ask.weight_bits != 0) return bytes;
    return (uint64_t)((unsigned __int128)bytes * (all - p->weights->by_dtype[PL_DTYPE_F32] / 2) / all);
}
