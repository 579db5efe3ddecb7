/* kv.c - groups, pool, fit. The order of steps is vLLM's; each has a vector in tests/data/plan. */
#include "plan/kv.h"

#include <string.h>

#include "model/num.h"

/* A layer with its own block size and padding, while pages are made equal. */
struct fitted {
    struct pl_kv_layer layer;
    uint64_t block, pad;
};

static uint64_t page_of(const struct fitted *f) {
    const struct pl_kv_layer *l = &f->layer;
    if (f->pad != 0) return f->pad;
    if (l->kind == PL_KV_STATE) return l->state_bytes;
    if (l->kind == PL_KV_ENCODER) return 0;
    return pl_mul(pl_mul(l->heads, f->block), l->cell_bytes);
}

/* Layers of one family need the same number of token slots and may share one group whatever their pages. */
static bool same_family(const struct pl_kv_layer *a, const struct pl_kv_layer *b) {
    bool all_a = a->kind == PL_KV_FULL || a->kind == PL_KV_MLA,
         all_b = b->kind == PL_KV_FULL || b->kind == PL_KV_MLA;
    if (all_a || all_b) return all_a && all_b;
    if (a->kind != b->kind) return false;
    if (a->kind == PL_KV_SLIDING || a->kind == PL_KV_CHUNKED) return a->window == b->window;
    if (a->kind == PL_KV_STATE)
        return a->state_bytes == b->state_bytes && a->spec == b->spec && a->aligned == b->aligned;
    return true;
}

static bool same_spec(const struct fitted *a, const struct fitted *b) {
    const struct pl_kv_layer *x = &a->layer, *y = &b->layer;
    return x->kind == y->kind && x->heads == y->heads && x->head_k == y->head_k && x->head_v == y->head_v &&
           x->dtype_bits == y->dtype_bits && x->cell_bytes == y->cell_bytes && x->window == y->window &&
           x->state_bytes == y->state_bytes && x->aligned == y->aligned && x->spec == y->spec &&
           a->block == b->block && a->pad == b->pad;
}

static bool equal_pages(struct fitted *f, size_t count, struct pl_err *err) {
    uint64_t top = 0;
    for (size_t i = 0; i < count; i++) top = pl_max(top, page_of(&f[i]));
    for (size_t i = 0; i < count; i++) {
        uint64_t page = page_of(&f[i]);
        if (page == top || page == 0) continue;
        if (f[i].layer.kind == PL_KV_STATE || (top % page != 0 && f[i].layer.kind != PL_KV_MLA)) {
            f[i].pad = top;
        } else if (top % page == 0) {
            f[i].block = pl_mul(f[i].block, top / page);
        } else {
            PL_FAIL(err, PL_E_CONFIG,
                    "the page of a latent layer (%llu bytes) cannot be padded to another layer's (%llu)",
                    (unsigned long long)page, (unsigned long long)top);
            return pl_err_hint(err,
                               "vLLM refuses such a model too, or falls back in a way that is not planned");
        }
    }
    return true;
}

static bool add_group(struct pl_kv_groups *out, const struct fitted *f, const size_t *bucket,
                      size_t bucket_count, size_t first, size_t step, struct pl_arena *arena,
                      struct pl_err *err) {
    struct pl_kv_group *g = &out->at[out->count++];
    size_t most = bucket_count / step + 1;
    *g = (struct pl_kv_group){ .members = pl_arena_alloc(arena, most * sizeof *g->members),
                               .first = f[bucket[first]].layer,
                               .block = f[bucket[first]].block };
    if (g->members == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the layers");
    for (size_t i = first; i < bucket_count; i += step)
        g->members[g->count++] =
            (struct pl_kv_member){ .layer = f[bucket[i]].layer.layer, .page = page_of(&f[bucket[i]]) };
    return true;
}

/* Fills `order` so that equal specs stand together in order of first appearance; `ends[b]` is where bucket b
 * ends. */
static size_t make_buckets(const struct fitted *f, size_t count, size_t *order, size_t *ends) {
    size_t buckets = 0, done = 0;
    for (size_t i = 0; i < count; i++) {
        bool seen = false;
        for (size_t b = 0; b < buckets && !seen; b++)
            seen = same_spec(&f[i], &f[order[b == 0 ? 0 : ends[b - 1]]]);
        if (seen) continue;
        for (size_t k = i; k < count; k++)
            if (same_spec(&f[i], &f[k])) order[done++] = k;
        ends[buckets++] = done;
    }
    return buckets;
}

bool pl_kv_group(const struct pl_kv_layer *layers, size_t count, uint64_t block, struct pl_arena *arena,
                 struct pl_kv_groups *out, struct pl_err *err) {
    size_t room = count + 1;
    struct fitted *f = pl_arena_alloc(arena, room * sizeof *f);
    size_t *order = pl_arena_alloc(arena, room * sizeof *order),
           *ends = pl_arena_alloc(arena, room * sizeof *ends);
    *out = (struct pl_kv_groups){ .at = pl_arena_alloc(arena, room * sizeof *out->at) };
    if (f == NULL || order == NULL || ends == NULL || out->at == NULL)
        return PL_FAIL(err, PL_E_NOMEM, "no memory for the layers");
    if (count == 0) return true;
    bool one = true;
    for (size_t i = 0; i < count; i++) {
        f[i] = (struct fitted){ .layer = layers[i], .block = block };
        order[i] = i;
        one = one && same_family(&layers[0], &layers[i]);
    }
    if (one) return add_group(out, f, order, count, 0, 1, arena, err);
    if (!equal_pages(f, count, err)) return false;
    size_t buckets = make_buckets(f, count, order, ends), least = count, most = 0;
    for (size_t b = 0; b < buckets; b++) {
        size_t n = ends[b] - (b == 0 ? 0 : ends[b - 1]);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    size_t size = 2 * most < 3 * least ? most : least;
    for (size_t b = 0; b < buckets; b++) {
        size_t from = b == 0 ? 0 : ends[b - 1], n = ends[b] - from, groups = (n + size - 1) / size;
        for (size_t g = 0; g < groups; g++)
            if (!add_group(out, f, order + from, n, g, groups, arena, err)) return false;
    }
    return true;
}

uint64_t pl_kv_block_bytes(const struct pl_kv_groups *g, uint32_t from, uint32_t to) {
    uint64_t most = 0;
    for (size_t i = 0; i < g->count; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < g->at[i].count; k++)
            if (g->at[i].members[k].layer >= from && g->at[i].members[k].layer < to)
                sum = pl_add(sum, g->at[i].members[k].page);
        most = pl_max(most, sum);
    }
    return most;
}

static uint64_t blocks_of(const struct pl_kv_layer *l, uint64_t block, struct pl_kv_load load) {
    switch (l->kind) {
    case PL_KV_FULL:
    case PL_KV_MLA:
        return pl_cdiv(pl_cdiv(load.max_len, load.dcp != 0 ? load.dcp : 1), block);
    case PL_KV_SLIDING:
        return pl_add(pl_cdiv(pl_min(pl_add(l->window - 1, load.in_flight), load.max_len), block), 1);
    case PL_KV_CHUNKED:
        return pl_cdiv(pl_min(pl_add(l->window, load.in_flight), load.max_len), block);
    case PL_KV_STATE:
        return (l->aligned ? 2 : 1) + l->spec;
    case PL_KV_CROSS:
        return pl_cdiv(load.encoder_len, block);
    case PL_KV_ENCODER:
        break;
    }
    return 0;
}

uint64_t pl_kv_blocks(const struct pl_kv_groups *g, struct pl_kv_load l) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->count; i++)
        sum = pl_add(sum, blocks_of(&g->at[i].first, pl_max(g->at[i].block, 1), l));
    return sum;
}

struct pl_kv_plan pl_kv_plan(uint64_t bytes_per_block, uint64_t blocks_per_request, uint64_t max_len,
                             uint64_t avail_bytes) {
    struct pl_kv_plan p = { .bytes_per_block = bytes_per_block,
                            .blocks_per_request = blocks_per_request,
                            .need = pl_mul(bytes_per_block, blocks_per_request) };
    if (bytes_per_block == 0 || blocks_per_request == 0) { /* a stage without a cache bounds nothing */
        p.fits = true;
        p.blocks = p.capacity = p.tokens = UINT64_MAX;
        return p;
    }
    p.blocks = avail_bytes / bytes_per_block;
    p.concurrency = (double)p.blocks / (double)blocks_per_request;
    double tokens = p.concurrency * (double)max_len;
    p.tokens = tokens < (double)(UINT64_C(1) << 62) ? (uint64_t)tokens : UINT64_C(1) << 62;
    p.capacity = pl_less(p.blocks, 1) / blocks_per_request;
    p.fits = avail_bytes >= bytes_per_block && p.need <= avail_bytes - bytes_per_block;
    return p;
}

uint64_t pl_kv_longest(const struct pl_kv_groups *g, uint64_t bytes_per_block, struct pl_kv_load l,
                       uint64_t avail_bytes, uint64_t limit) {
    uint64_t low = 1, high = limit, best = 0;
    while (low <= high) {
        l.max_len = low + (high - low) / 2;
        if (pl_kv_plan(bytes_per_block, pl_kv_blocks(g, l), l.max_len, avail_bytes).fits) {
            best = l.max_len;
            low = l.max_len + 1;
        } else {
            high = l.max_len - 1;
        }
    }
    return best;
}

uint64_t pl_kv_token_bytes(const struct pl_kv_groups *g, uint32_t from, uint32_t to) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (g->at[i].first.kind != PL_KV_FULL && g->at[i].first.kind != PL_KV_MLA) continue;
        for (size_t k = 0; k < g->at[i].count; k++)
            if (g->at[i].members[k].layer >= from && g->at[i].members[k].layer < to)
                sum = pl_add(sum, g->at[i].members[k].page / pl_max(g->at[i].block, 1));
    }
    return sum;
}
