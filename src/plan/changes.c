/* changes.c - the same plan with one thing changed at a time. */
#include <stdio.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

struct list {
    const struct pl_plan *p;
    struct pl_arena *arena;
    struct pl_change *out;
    size_t count;
};

static struct pl_change *try(struct list *l, const struct pl_ask *ask) {
    struct pl_plan changed;
    struct pl_err err = { 0 };
    struct pl_arena_mark mark = pl_arena_mark(l->arena);
    struct pl_change *c = NULL;
    bool made =
        l->count < PL_CHANGES && pl_plan_make(ask, l->p->model, l->p->weights, l->arena, &changed, &err);
    if (made && changed.capacity != UINT64_MAX) { /* a model without a cache has nothing to gain */
        c = &l->out[l->count++];
        *c = (struct pl_change){ .fits = changed.fits,
                                 .capacity = changed.capacity,
                                 .capacity_max = changed.capacity_max,
                                 .longest = changed.longest,
                                 .cards = changed.cards };
    }
    pl_arena_rollback(l->arena, mark);
    return c;
}
#define SAY(c, what_, flag_, ...)                            \
    do {                                                     \
        snprintf((c)->what, sizeof(c)->what, "%s", what_);   \
        snprintf((c)->flag, sizeof(c)->flag, "%s", flag_);   \
        snprintf((c)->price, sizeof(c)->price, __VA_ARGS__); \
    } while (0)

static void smaller_kv(struct list *l) {
    struct pl_ask a = l->p->ask;
    if (a.engine == PL_ENGINE_TORCH) return;
    bool llama = a.engine == PL_ENGINE_LLAMA;
    if (llama ? strcmp(a.kv, "f16") != 0 : l->p->kv_type->bits != 16) return;
    bool states = pl_model_count(l->p->model, PL_CACHE_STATE) != 0;
    a.kv = llama ? "q8_0" : "fp8";
    struct pl_change *c = try(l, &a);
    if (c != NULL)
        SAY(c, llama ? "KV in q8_0" : "KV in fp8", llama ? "--kv q8_0" : "--kv fp8", "%s",
            states ? "a little quality; the recurrent state stays as it is"
                   : "a little quality; check yours");
}

static void shorter(struct list *l) {
    struct pl_ask a = l->p->ask;
    a.max_len = !l->p->fits && l->p->longest != 0 && l->p->longest < l->p->max_len ? l->p->longest
                                                                                   : l->p->max_len / 2;
    if (a.max_len < 256) return;
    a.longest = false;
    struct pl_change *c = try(l, &a);
    if (c == NULL) return;
    char flag[64];
    snprintf(flag, sizeof flag, "--max-len %llu", (unsigned long long)a.max_len);
    SAY(c, "shorter context", flag, "longer requests are refused");
}

static void fewer_batched(struct list *l) {
    struct pl_ask a = l->p->ask;
    if (a.engine != PL_ENGINE_VLLM || a.batched <= 2048) return;
    a.batched = 2048;
    struct pl_change *c = try(l, &a);
    if (c != NULL)
        SAY(c, "fewer tokens a step", "--batched-tokens 2048",
            "longer time to the first token of long prompts");
}

static void fewer_bits(struct list *l, uint32_t bits) {
    struct pl_ask a = l->p->ask;
    if (l->p->weights->matrices == 0 || l->p->model->quant != NULL || a.engine == PL_ENGINE_LLAMA ||
        a.weight_bits != 0)
        return;
    a.weight_bits = bits;
    struct pl_change *c = try(l, &a);
    if (c == NULL) return;
    if (bits == 8)
        SAY(c, "8-bit weights", "another checkpoint", "little quality; FP8 or INT8 kernels of the card");
    else
        SAY(c, "4-bit weights", "another checkpoint", "some quality: check yours; AWQ or GPTQ");
}

static void more_cards(struct list *l) {
    struct pl_ask a = l->p->ask;
    if (a.engine == PL_ENGINE_TORCH) return;
    a.gpu.count *= 2;
    if (a.engine == PL_ENGINE_LLAMA)
        a.pp *= 2;
    else
        a.tp *= 2;
    struct pl_change *c = try(l, &a);
    if (c == NULL) return;
    char flag[64];
    if (a.engine == PL_ENGINE_LLAMA)
        snprintf(flag, sizeof flag, "--gpu %sx%u", a.gpu.name, a.gpu.count);
    else
        snprintf(flag, sizeof flag, "--gpu %sx%u --tp %u", a.gpu.name, a.gpu.count, a.tp);
    bool repeated = l->p->model->kv_lora != 0 || l->p->model->kv_heads < a.tp;
    SAY(c, a.engine == PL_ENGINE_LLAMA ? "twice the cards" : "TP twice", flag, "%s",
        a.engine == PL_ENGINE_LLAMA ? "twice the cards; one works at a time"
        : repeated                  ? "twice the cards; KV is repeated, only weights are divided"
                                    : "twice the cards; some time a step for their exchange");
}

/* The next larger card, and the smallest that fits when that does not. MIG slices are left out. */
static void other_card(struct list *l) {
    uint64_t mine = l->p->ask.gpu.total_bytes, at = mine, mib;
    for (int tries = 0; tries < 8; tries++) {
        const char *best = NULL, *name;
        uint64_t least = UINT64_MAX;
        for (size_t i = 0; (name = pl_gpu_name(i, &mib)) != NULL; i++) {
            if (strstr(name, "gb") != NULL || mib << 20 <= at + at / 20 || mib << 20 >= least) continue;
            least = mib << 20;
            best = name;
        }
        if (best == NULL) return;
        struct pl_ask a = l->p->ask;
        struct pl_err err;
        uint32_t count = a.gpu.count;
        at = least;
        if (!pl_gpu_parse(best, &a.gpu, &err)) return;
        a.gpu.count = count;
        struct pl_change *c = try(l, &a);
        if (c == NULL) return;
        char flag[64], what[64];
        snprintf(flag, sizeof flag, count > 1 ? "--gpu %sx%u" : "--gpu %s", best, count);
        snprintf(what, sizeof what, "another card: %s", best);
        SAY(c, what, flag, "its price");
        if (c->fits) return;
        l->count--; /* only the first that fits is worth a line */
    }
}

size_t pl_plan_changes(const struct pl_plan *p, struct pl_arena *arena, struct pl_change out[PL_CHANGES]) {
    struct list l = { .p = p, .arena = arena, .out = out };
    smaller_kv(&l);
    shorter(&l);
    fewer_batched(&l);
    fewer_bits(&l, 8);
    fewer_bits(&l, 4);
    more_cards(&l);
    other_card(&l);
    return l.count;
}
