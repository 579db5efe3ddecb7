/* fit.c - the plan: defaults, ranks, budget, capacity. */
#include <stdio.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

enum { UTILIZATION = 850, DEFAULT_CONTEXT = 4096, LLAMA_SEQUENCES = 256, LLAMA_SLOTS = 64, LLAMA_PAD = 256 };

/* --- the wish, with every default */

static bool spread(struct pl_ask *a, const struct pl_model *m, struct pl_err *err) {
    uint32_t cards = a->gpu.count;
    if (a->dp == 0) a->dp = 1;
    if (a->engine == PL_ENGINE_LLAMA) { /* layers, not heads, are spread */
        if (a->tp > 1)
            return PL_FAIL(err, PL_E_USAGE,
                           "--tp: llama.cpp spreads layers over the cards of --gpu; there is nothing to set");
        a->tp = 1;
        if (a->pp == 0) a->pp = cards;
    }
    if (a->pp == 0) a->pp = 1;
    if (a->pp > PL_STAGES || a->pp > m->layers)
        return PL_FAIL(err, PL_E_USAGE, "--pp %u: %u layers, at most %d stages", a->pp, m->layers, PL_STAGES);
    if (a->tp == 0) a->tp = (uint32_t)pl_max(cards / pl_min((uint64_t)a->pp * a->dp, UINT32_MAX), 1);
    if (a->engine == PL_ENGINE_TORCH && (a->tp > 1 || a->pp > 1)) {
        PL_FAIL(err, PL_E_USAGE, "plain PyTorch is planned for one card");
        return pl_err_hint(err, "--gpu with one card, or another --engine");
    }
    if (pl_mul(pl_mul(a->tp, a->pp), a->dp) > cards) {
        PL_FAIL(err, PL_E_USAGE, "TP %u x PP %u x DP %u needs %llu cards, --gpu names %u", a->tp, a->pp,
                a->dp, (unsigned long long)pl_mul(pl_mul(a->tp, a->pp), a->dp), cards);
        return pl_err_hint(err, "--gpu %sx%llu", a->gpu.name,
                           (unsigned long long)pl_mul(pl_mul(a->tp, a->pp), a->dp));
    }
    if (m->heads > 1 && m->heads % a->tp != 0) {
        PL_FAIL(err, PL_E_USAGE, "%u attention heads cannot be divided over %u cards", m->heads, a->tp);
        return pl_err_hint(err, "--tp must divide %u; --pp spreads layers", m->heads);
    }
    if (m->kv_lora == 0 && m->kv_heads % a->tp != 0 && a->tp % m->kv_heads != 0) {
        PL_FAIL(err, PL_E_USAGE, "%u KV heads can be neither divided over %u cards nor repeated", m->kv_heads,
                a->tp);
        return pl_err_hint(err, "--tp must divide %u or be a multiple of it", m->kv_heads);
    }
    return true;
}

static void assume_expect(struct pl_plan *p) {
    struct pl_ask *a = &p->ask;
    uint64_t out = p->model->max_new_tokens != 0 ? p->model->max_new_tokens : 500;
    p->expect_assumed = a->expect_count == 0;
    if (p->expect_assumed) {
        out = pl_max(pl_min(out, p->max_len / 4), 1);
        a->expect[0] =
            (struct pl_expect){ .in = pl_min(2000, p->max_len - out), .out = out, .share = PL_SHARES };
        a->expect_count = 1;
    }
    uint64_t sum = 0, shares = 0;
    for (size_t i = 0; i < a->expect_count; i++) {
        sum += (a->expect[i].in + a->expect[i].out) * a->expect[i].share;
        shares += a->expect[i].share;
    }
    p->expect_len = pl_max(sum / pl_max(shares, 1), 1);
}

static bool settle(struct pl_plan *p, struct pl_err *err) {
    struct pl_ask *a = &p->ask;
    const struct pl_model *m = p->model;
    static const uint64_t batched[] = { [PL_GPU_SMALL] = 2048, [PL_GPU_HOPPER] = 8192, [PL_GPU_BIG] = 16384 };
    if (a->utilization == 0) a->utilization = UTILIZATION;
    if (a->batched == 0) a->batched = batched[a->gpu.class];
    if (a->kv == NULL) a->kv = a->engine == PL_ENGINE_LLAMA ? "f16" : "auto";
    if (a->gpu.count == 0) a->gpu.count = 1;
    if (!spread(a, m, err)) return false;
    p->cards = a->tp * a->pp * a->dp;
    p->max_len = a->max_len != 0 ? a->max_len : m->context != 0 ? m->context : DEFAULT_CONTEXT;
    if (m->context != 0 && p->max_len > m->context) {
        PL_FAIL(err, PL_E_USAGE, "--max-len %llu: the model was made for %u tokens",
                (unsigned long long)p->max_len, m->context);
        return pl_err_hint(err, "engines refuse more; a longer rope_scaling belongs into config.json");
    }
    if (a->engine == PL_ENGINE_LLAMA) {
        if (pl_ggml_row(a->kv, 32) == UINT64_MAX) {
            PL_FAIL(err, PL_E_USAGE,
                    "--kv %.20s: llama.cpp keeps KV as f32 f16 bf16 q8_0 q5_1 q5_0 q4_1 q4_0 iq4_nl", a->kv);
            return pl_err_hint(err, "q8_0 is the usual smaller one");
        }
    } else if ((p->kv_type = pl_kv_type(a->kv, err)) == NULL) {
        return false;
    }
    if (a->engine == PL_ENGINE_TORCH && p->kv_type->bits != 16)
        return PL_FAIL(err, PL_E_USAGE, "--kv %.20s: plain PyTorch keeps KV in 16 bits", a->kv);
    assume_expect(p);
    for (size_t i = 0; i < a->expect_count; i++)
        if (!a->longest && a->expect[i].in + a->expect[i].out > p->max_len) {
            PL_FAIL(err, PL_E_USAGE, "requests of %llu tokens are expected, but the longest allowed is %llu",
                    (unsigned long long)(a->expect[i].in + a->expect[i].out), (unsigned long long)p->max_len);
            return pl_err_hint(err, "--max-len or --expect");
        }
    return true;
}

/* --- budget */

static struct pl_term margin(const struct pl_plan *p) {
    uint64_t total = p->ask.gpu.total_bytes;
    uint64_t used = (uint64_t)(((unsigned __int128)total * p->ask.utilization + PL_SHARES - 1) / PL_SHARES);
    return (struct pl_term){ .bytes = pl_less(total, used),
                             .source = "rule",
                             .note = "kept free of every term above: 1 - utilization" };
}

static void fixed_terms(struct pl_plan *p) {
    struct pl_term *t = p->terms;
    t[PL_PART_MARGIN] = margin(p);
    t[PL_PART_FOREIGN] = (struct pl_term){ .bytes = p->ask.gpu.foreign_bytes,
                                           .source = "measured",
                                           .note = "held by others on this card now" };
    switch (p->ask.engine) {
    case PL_ENGINE_VLLM:
    case PL_ENGINE_SGLANG:
        t[PL_PART_ACTIVATION] = pl_estimate_activation(p);
        t[PL_PART_GRAPHS] = pl_estimate_graphs(p);
        t[PL_PART_NON_TORCH] = pl_estimate_non_torch(p);
        break;
    case PL_ENGINE_LLAMA:
        t[PL_PART_NON_TORCH] =
            (struct pl_term){ .bytes = 400 * PL_MIB, .source = "guess", .note = "CUDA context and cuBLAS" };
        break;
    case PL_ENGINE_TORCH: /* the margin stands for everything that is neither weights nor KV */
        t[PL_PART_MARGIN].note = "kept free: activation, fragmentation, CUDA context";
        break;
    case PL_ENGINES:
        break;
    }
}

/* What the fixed part of a card takes. SGLang's fraction is of weights and KV alone: the rest has to fit into
 * what it leaves. */
static uint64_t fixed_bytes(const struct pl_plan *p) {
    const struct pl_term *t = p->terms;
    uint64_t inside =
        pl_add(pl_add(t[PL_PART_ACTIVATION].bytes, t[PL_PART_GRAPHS].bytes), t[PL_PART_NON_TORCH].bytes);
    uint64_t margin_bytes = pl_add(t[PL_PART_MARGIN].bytes, t[PL_PART_FOREIGN].bytes);
    if (p->ask.engine == PL_ENGINE_SGLANG)
        return pl_max(margin_bytes, pl_add(inside, t[PL_PART_FOREIGN].bytes));
    return pl_add(inside, margin_bytes);
}

static bool part_of(const struct pl_model *m, struct pl_rank *r, struct pl_arena *arena) {
    struct pl_model *part = pl_arena_alloc(arena, sizeof *part);
    if (part == NULL) return false;
    *part = *m;
    part->caches = pl_arena_alloc(arena, (m->cache_count + 1) * sizeof *part->caches);
    part->cache_count = 0;
    if (part->caches == NULL) return false;
    for (size_t i = 0; i < m->cache_count; i++)
        if (m->caches[i].layer >= r->from && m->caches[i].layer < r->to)
            part->caches[part->cache_count++] = m->caches[i];
    r->part = part;
    return true;
}

static bool make_ranks(struct pl_plan *p, struct pl_arena *arena, struct pl_err *err) {
    uint64_t fixed = fixed_bytes(p), total = p->ask.gpu.total_bytes;
    p->rank_count = p->ask.pp;
    for (uint32_t i = 0; i < p->rank_count; i++)
        pl_stage(p->model->layers, p->ask.pp, i, &p->ranks[i].from, &p->ranks[i].to);
    for (uint32_t i = 0; i < p->rank_count; i++) {
        struct pl_rank *r = &p->ranks[i];
        r->weights = pl_rank_weights(p, i);
        r->avail = pl_less(total, pl_add(fixed, r->weights));
        r->short_of_weights = pl_add(fixed, r->weights) >= total;
        if (p->ask.engine == PL_ENGINE_VLLM) r->block_bytes = pl_kv_block_bytes(&p->groups, r->from, r->to);
        if (p->ask.engine == PL_ENGINE_LLAMA && !part_of(p->model, r, arena))
            return PL_FAIL(err, PL_E_NOMEM, "no memory for the plan");
    }
    return true;
}

static bool make_groups(struct pl_plan *p, struct pl_arena *arena, struct pl_err *err) {
    struct pl_kv_options o = { .tp = p->ask.tp, .type = p->kv_type, .prefix_caching = true };
    struct pl_kv_layer *layers;
    size_t count;
    if (!pl_kv_layers(p->model, &o, arena, &layers, &count, &p->block, err)) return false;
    if (!pl_kv_group(layers, count, p->block, arena, &p->groups, err)) return false;
    uint64_t batches = p->ask.pp == 1 ? 2 : p->ask.pp + 1; /* asynchronous scheduling is on by default */
    p->in_flight = pl_mul(batches, p->ask.batched);
    return true;
}

/* --- requests */

static struct pl_kv_load load(const struct pl_plan *p, uint64_t len) {
    return (struct pl_kv_load){
        .max_len = len, .in_flight = p->in_flight, .dcp = 1, .encoder_len = p->model->encoder_tokens
    };
}

static uint64_t llama_capacity(const struct pl_plan *p, const struct pl_rank *r, uint64_t len) {
    uint64_t low = 1, high = LLAMA_SEQUENCES, best = 0;
    while (low <= high) {
        uint64_t n = low + (high - low) / 2;
        if (pl_llama_dynamic(p, r, pl_round_up(pl_mul(n, len), LLAMA_PAD), n) <= r->avail) {
            best = n;
            low = n + 1;
        } else {
            high = n - 1;
        }
    }
    return best;
}

static uint64_t rank_capacity(const struct pl_plan *p, const struct pl_rank *r, uint64_t len) {
    if (r->short_of_weights) return 0;
    switch (p->ask.engine) {
    case PL_ENGINE_VLLM:
        return pl_kv_plan(r->block_bytes, pl_kv_blocks(&p->groups, load(p, len)), len, r->avail).capacity;
    case PL_ENGINE_SGLANG:
        return pl_sglang_capacity(p, r, len);
    case PL_ENGINE_LLAMA:
        return llama_capacity(p, r, len);
    case PL_ENGINE_TORCH: {
        uint64_t each = pl_piece_bytes(p, r, len);
        return each == 0 ? UINT64_MAX : r->avail / each;
    }
    case PL_ENGINES:
        break;
    }
    return 0;
}

uint64_t pl_plan_capacity(const struct pl_plan *p, uint64_t len) {
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < p->rank_count; i++) least = pl_min(least, rank_capacity(p, &p->ranks[i], len));
    return least == UINT64_MAX ? UINT64_MAX : pl_mul(least, p->ask.dp);
}

/* Of a mixture vLLM's blocks are averaged; the other engines are asked at the mean length. */
static uint64_t mixed_capacity(const struct pl_plan *p) {
    if (p->ask.engine != PL_ENGINE_VLLM) return pl_plan_capacity(p, p->expect_len);
    uint64_t least = UINT64_MAX, blocks = 0, shares = 0;
    for (size_t k = 0; k < p->ask.expect_count; k++) {
        const struct pl_expect *e = &p->ask.expect[k];
        blocks = pl_add(blocks, pl_mul(pl_kv_blocks(&p->groups, load(p, e->in + e->out)), e->share));
        shares += e->share;
    }
    for (size_t i = 0; i < p->rank_count; i++) {
        const struct pl_rank *r = &p->ranks[i];
        if (r->short_of_weights) return 0;
        if (r->block_bytes == 0 || blocks == 0) continue;
        least = pl_min(least, pl_mul(pl_less(r->avail / r->block_bytes, 1), shares) / blocks);
    }
    return least == UINT64_MAX ? UINT64_MAX : pl_mul(least, p->ask.dp);
}

uint64_t pl_plan_request_bytes(const struct pl_plan *p, uint64_t len) {
    const struct pl_rank *r = &p->ranks[p->least];
    if (p->ask.engine == PL_ENGINE_VLLM)
        return pl_mul(r->block_bytes, pl_kv_blocks(&p->groups, load(p, len)));
    if (p->ask.engine != PL_ENGINE_LLAMA) return pl_piece_bytes(p, r, len);
    struct pl_llama o = { .n_ctx = pl_round_up(len, LLAMA_PAD),
                          .n_seq = 1,
                          .n_ubatch = 512,
                          .n_outputs = 512,
                          .type_k = p->ask.kv,
                          .type_v = p->ask.kv };
    struct pl_llama_bytes b = pl_llama_bytes(r->part, &o);
    return pl_add(b.kv, b.state);
}

uint64_t pl_plan_token_bytes(const struct pl_plan *p) {
    const struct pl_rank *r = &p->ranks[p->least];
    if (p->ask.engine == PL_ENGINE_VLLM) return pl_kv_token_bytes(&p->groups, r->from, r->to);
    uint64_t far = PL_MODEL_TOKENS / 2; /* beyond every window */
    return pl_less(pl_plan_request_bytes(p, far + LLAMA_PAD), pl_plan_request_bytes(p, far)) / LLAMA_PAD;
}

static bool fits_at(const struct pl_plan *p, uint64_t len) {
    for (size_t i = 0; i < p->rank_count; i++) {
        const struct pl_rank *r = &p->ranks[i];
        if (r->short_of_weights) return false;
        if (p->ask.engine == PL_ENGINE_VLLM) {
            if (!pl_kv_plan(r->block_bytes, pl_kv_blocks(&p->groups, load(p, len)), len, r->avail).fits)
                return false;
        } else if (rank_capacity(p, r, len) == 0) {
            return false;
        }
    }
    return true;
}

static uint64_t longest(const struct pl_plan *p, uint64_t limit) {
    uint64_t low = 1, high = limit, best = 0;
    while (low <= high) {
        uint64_t mid = low + (high - low) / 2;
        if (fits_at(p, mid)) {
            best = mid;
            low = mid + 1;
        } else {
            high = mid - 1;
        }
    }
    return best;
}

/* The rank with the fewest requests, of equals the one with the least room. */
static void find_least(struct pl_plan *p) {
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < p->rank_count; i++) {
        uint64_t n = rank_capacity(p, &p->ranks[i], p->max_len);
        if (i > 0 && (n > best || (n == best && p->ranks[i].avail >= p->ranks[p->least].avail))) continue;
        best = n;
        p->least = i;
    }
}

/* llama.cpp: slots and cells to start it with; its compute buffer depends on them. */
static void choose_slots(struct pl_plan *p) {
    uint64_t most = pl_max(pl_min(pl_plan_capacity(p, p->expect_len), LLAMA_SLOTS), 1);
    p->parallel = p->ask.concurrency != 0 ? pl_min(p->ask.concurrency, LLAMA_SEQUENCES) : most;
    const struct pl_rank *r = &p->ranks[p->least];
    uint64_t low = pl_cdiv(p->max_len, LLAMA_PAD),
             high = pl_max(low, pl_cdiv(pl_mul(p->parallel, p->expect_len), LLAMA_PAD)), best = low;
    while (low <= high) { /* the most cells, in pads, that still fit */
        uint64_t mid = low + (high - low) / 2;
        if (pl_llama_dynamic(p, r, mid * LLAMA_PAD, p->parallel) <= r->avail) {
            best = mid;
            low = mid + 1;
        } else {
            high = mid - 1;
        }
    }
    p->ctx = best * LLAMA_PAD;
    while (p->parallel > 1 && pl_llama_dynamic(p, r, p->ctx, p->parallel) > r->avail) p->parallel--;
    struct pl_llama o = { .n_ctx = p->ctx,
                          .n_seq = p->parallel,
                          .n_ubatch = 512,
                          .n_outputs = 512,
                          .type_k = p->ask.kv,
                          .type_v = p->ask.kv };
    p->terms[PL_PART_ACTIVATION] =
        (struct pl_term){ .bytes = pl_llama_bytes(r->part, &o).compute,
                          .source = "formula",
                          .note = "compute buffer; within 5 % on a CPU, not checked on a GPU" };
}

static const char *what_binds(const struct pl_plan *p) {
    for (size_t i = 0; i < p->rank_count; i++)
        if (p->ranks[i].short_of_weights) return "weights";
    if (!fits_at(p, p->max_len)) return "length";
    if (p->ask.concurrency != 0 && p->capacity < p->ask.concurrency) return "concurrency";
    return "kv";
}

static void finish(struct pl_plan *p) {
    static const char *const origins[] = { [PL_WEIGHTS_NONE] = "guess",
                                           [PL_WEIGHTS_HEADER] = "header",
                                           [PL_WEIGHTS_FILES] = "file sizes",
                                           [PL_WEIGHTS_FORMULA] = "formula" };
    static const char *const notes[] = { [PL_WEIGHTS_NONE] = "",
                                         [PL_WEIGHTS_HEADER] = "as stored; an engine may repack them",
                                         [PL_WEIGHTS_FILES] = "files that are not read: their sizes",
                                         [PL_WEIGHTS_FORMULA] =
                                             "from the configuration: no weight files at hand" };
    uint64_t limit = p->model->context != 0 ? p->model->context : p->max_len;
    p->longest = longest(p, limit);
    if (p->ask.longest && p->longest != 0) p->max_len = p->longest;
    p->fits = fits_at(p, p->max_len);
    p->capacity_max = pl_plan_capacity(p, p->max_len);
    p->capacity = mixed_capacity(p);
    if (p->ask.concurrency != 0 && p->capacity < p->ask.concurrency) p->fits = false;
    find_least(p);
    p->need = pl_plan_request_bytes(p, p->max_len);
    p->binds = what_binds(p);
    p->terms[PL_PART_WEIGHTS] =
        (struct pl_term){ .bytes = p->ranks[p->least].weights,
                          .source = p->ask.weight_bits != 0 ? "formula" : origins[p->weights->origin],
                          .note = notes[p->weights->origin] };
    if (pl_halves_float32(p) && p->ask.weight_bits == 0)
        p->terms[PL_PART_WEIGHTS].note = "stored in float32, loaded in 16 bit";
    if (p->ask.engine == PL_ENGINE_LLAMA) choose_slots(p);
    uint64_t used = 0;
    for (int i = 0; i < PL_PART_KV; i++)
        if (p->ask.engine != PL_ENGINE_SGLANG ||
            (i != PL_PART_ACTIVATION && i != PL_PART_GRAPHS && i != PL_PART_NON_TORCH))
            used = pl_add(used, p->terms[i].bytes);
    p->terms[PL_PART_KV] =
        (struct pl_term){ .bytes = p->ask.engine == PL_ENGINE_LLAMA ? pl_less(p->ask.gpu.total_bytes, used)
                                                                    : p->ranks[p->least].avail,
                          .source = "difference",
                          .note = "what is left for KV" };
    p->provisional = p->model->provisional || (p->kv_type != NULL && p->kv_type->provisional);
}

bool pl_plan_make(const struct pl_ask *ask, const struct pl_model *m, const struct pl_weights *w,
                  struct pl_arena *arena, struct pl_plan *out, struct pl_err *err) {
    *out = (struct pl_plan){ .ask = *ask, .model = m, .weights = w };
    if (!settle(out, err)) return false;
    fixed_terms(out);
    if (out->ask.engine ==
        PL_ENGINE_SGLANG) { /* the fraction leaves room for the other terms, or is lowered until it does */
        struct pl_term *t = out->terms;
        uint64_t rest =
            pl_add(pl_add(t[PL_PART_ACTIVATION].bytes, t[PL_PART_GRAPHS].bytes), t[PL_PART_NON_TORCH].bytes);
        uint64_t total = pl_max(out->ask.gpu.total_bytes, 1);
        if (rest > t[PL_PART_MARGIN].bytes && rest < total) {
            out->ask.utilization = (uint32_t)((unsigned __int128)(total - rest) * PL_SHARES / total);
            t[PL_PART_MARGIN] = margin(out);
        }
        t[PL_PART_MARGIN].note = "outside of --mem-fraction-static: activation, graphs and context live here";
    }
    if (out->ask.engine == PL_ENGINE_VLLM && !make_groups(out, arena, err)) return false;
    if (!make_ranks(out, arena, err)) return false;
    finish(out);
    if (out->need == UINT64_MAX || w->total == UINT64_MAX)
        return PL_FAIL(err, PL_E_CONFIG, "the sizes in the file are too large for any model");
    /* What was tried without memory looked as if it did not fit. */
    return !arena->refused || PL_FAIL(err, PL_E_NOMEM, "no memory to plan with");
}

int pl_plan_status(const struct pl_plan *p) { return p->fits ? 0 : 1; }
