#include "plan/llama.h"

#include <string.h>

#include "model/num.h"

enum { PAD = 256 };

static uint64_t sliding_cells(uint64_t window, const struct pl_llama *o) {
    uint64_t all = o->split ? o->n_ctx / pl_max(o->n_seq, 1) : o->n_ctx;
    if (o->swa_full) return all;
    return pl_round_up(pl_min(all, pl_add(pl_mul(window, o->split ? 1 : o->n_seq), o->n_ubatch)), PAD);
}

static void rows_of(const struct pl_cache *c, const struct pl_llama *o, uint64_t *k, uint64_t *v) {
    *v = 0;
    if (c->kind == PL_CACHE_INDEX) {
        *k = c->row;
    } else if (c->kind == PL_CACHE_MLA) {
        *k = pl_ggml_row(o->type_k, c->row); /* the value is a part of the key's row */
    } else {
        *k = pl_ggml_row(o->type_k, pl_mul(c->kv_heads, c->head_k));
        *v = pl_ggml_row(o->type_v, pl_mul(c->kv_heads, c->head_v));
    }
}

void pl_llama_caches(const struct pl_model *m, const struct pl_llama *o, struct pl_llama_cache *full,
                     struct pl_llama_cache *sliding) {
    uint64_t streams = o->split ? pl_max(o->n_seq, 1) : 1, k = 0, v = 0;
    *full = (struct pl_llama_cache){ .cells = o->n_ctx / streams };
    *sliding = (struct pl_llama_cache){ .cells = 0 };
    for (size_t i = 0; i < m->cache_count; i++) {
        const struct pl_cache *c = &m->caches[i];
        struct pl_llama_cache *to = full;
        if (c->kind == PL_CACHE_STATE) continue;
        if (c->kind == PL_CACHE_SLIDING || c->kind == PL_CACHE_CHUNKED) {
            to = sliding;
            to->cells = sliding_cells(c->window, o);
        }
        const struct pl_cache *last = i > 0 ? &m->caches[i - 1] : NULL;
        bool again = last != NULL && last->kind == c->kind && last->kv_heads == c->kv_heads &&
                     last->head_k == c->head_k && last->head_v == c->head_v && last->row == c->row;
        if (!again) rows_of(c, o, &k, &v); /* most layers are like the one before */
        uint64_t cells = pl_mul(to->cells, streams);
        to->layers += c->kind != PL_CACHE_INDEX;
        to->k_bytes = pl_add(to->k_bytes, pl_mul(k, cells));
        to->v_bytes = pl_add(to->v_bytes, pl_mul(v, cells));
    }
}

uint64_t pl_llama_state_bytes(const struct pl_state *s) {
    uint64_t rows = s->conv > 0 ? s->conv - 1 : 0,
             square = pl_mul(pl_mul(s->head_dim, s->head_dim), s->heads);
    uint64_t r = pl_mul(rows, pl_add(s->inner, pl_mul(2 * (uint64_t)s->groups, s->state))),
             t = pl_mul(s->state, s->inner);
    if (s->kind == PL_STATE_CONV) t = 0;
    if (s->kind == PL_STATE_KDA) {
        r = pl_mul(3 * rows, pl_mul(s->heads, s->head_dim));
        t = square;
    }
    if (s->kind == PL_STATE_LIGHTNING) {
        r = 0;
        t = square;
    }
    return pl_mul(pl_add(r, t), 4);
}

/* Logits of every asked row and two hidden states; or a 16-bit mask for each cache, three rows of the MLP and
 * four hidden states of a micro-batch: whichever graph is larger. */
static uint64_t compute(const struct pl_model *m, const struct pl_llama *o, const struct pl_llama_cache *full,
                        const struct pl_llama_cache *sliding) {
    uint64_t ub = o->n_ubatch, inner = m->intermediate;
    if (m->experts != 0 && m->moe_intermediate != 0)
        inner = pl_max(inner, pl_mul(m->moe_intermediate, m->experts_used));
    uint64_t rows = pl_min(o->n_outputs, ub), hidden = pl_mul(pl_mul(ub, m->hidden), 4);
    uint64_t logits = pl_add(pl_mul(pl_mul(rows, m->vocab), 4), 2 * hidden);
    uint64_t masks = pl_mul(
        pl_add(full->layers != 0 ? full->cells : 0, sliding->layers != 0 ? sliding->cells : 0), 2 * ub);
    return pl_max(logits, pl_add(masks, pl_add(pl_mul(pl_mul(ub, inner), 12), pl_mul(hidden, 4))));
}

struct pl_llama_bytes pl_llama_bytes(const struct pl_model *m, const struct pl_llama *o) {
    struct pl_llama_cache full, sliding;
    pl_llama_caches(m, o, &full, &sliding);
    return (struct pl_llama_bytes){
        .kv = pl_add(pl_add(full.k_bytes, full.v_bytes), pl_add(sliding.k_bytes, sliding.v_bytes)),
        .state = pl_mul(pl_mul(pl_model_count(m, PL_CACHE_STATE), pl_llama_state_bytes(&m->state)), o->n_seq),
        .compute = compute(m, o, &full, &sliding),
        .output = pl_mul(pl_mul(o->n_seq, m->vocab), 4),
    };
}
