/* show.c - a plan for people: a packing list, then what is left, then what would give more. */
#include <inttypes.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

static bool head(const struct pl_plan *p, struct pl_buf *b) {
    char total[24];
    const struct pl_ask *a = &p->ask;
    const struct pl_model *m = p->model;
    bool ok = pl_buf_addf(b, "%s on ", a->target);
    if (a->gpu.count > 1) ok = ok && pl_buf_addf(b, "%u x ", p->cards);
    ok = ok && pl_buf_addf(b, "%s (%s, %s), %s", a->gpu.name, pl_bytes_text(total, a->gpu.total_bytes),
                           a->gpu.source, pl_plan_engine_name(a->engine));
    if (a->tp > 1) ok = ok && pl_buf_addf(b, ", TP %u", a->tp);
    if (a->pp > 1 && a->engine != PL_ENGINE_LLAMA) ok = ok && pl_buf_addf(b, ", PP %u", a->pp);
    if (a->dp > 1) ok = ok && pl_buf_addf(b, ", DP %u", a->dp);
    ok = ok && pl_buf_addf(b, "\n%s: %u layers", m->arch[0] != '\0' ? m->arch : "model", m->layers);
    for (int k = 0; k < PL_CACHE_KINDS; k++) {
        size_t n = pl_model_count(m, (enum pl_cache_kind)k);
        if (n != 0) ok = ok && pl_buf_addf(b, ", %zu %s", n, pl_cache_name((enum pl_cache_kind)k));
    }
    if (m->kv_lora == 0 && m->head_k != 0 && m->cache_count != 0)
        ok = ok && pl_buf_addf(b, "; %u of %u heads keep KV, %u wide", m->kv_heads, m->heads, m->head_k);
    if (m->experts != 0) ok = ok && pl_buf_addf(b, "; %u experts, %u at a time", m->experts, m->experts_used);
    if (m->quant != NULL) ok = ok && pl_buf_addf(b, "; weights %s", m->quant);
    return ok && pl_buf_adds(b, "\n\n");
}

static bool row(struct pl_buf *b, const char *name, uint64_t bytes, const char *source, const char *note) {
    char text[24];
    return pl_buf_addf(b, "  %-14s %12s  %-10s %s\n", name, pl_bytes_text(text, bytes), source, note);
}

static bool packing_list(const struct pl_plan *p, struct pl_buf *b) {
    static const char *const names[PL_PARTS] = { "weights", "activation", "CUDA graphs", "not PyTorch's",
                                                 "others",  "margin",     "left for KV" };
    bool ok = pl_buf_addf(b, "%s\n", p->rank_count > 1 ? "on the card with least room" : "on each card");
    ok = ok && row(b, "card", p->ask.gpu.total_bytes, p->ask.gpu.product[0] != '\0' ? "table" : "given",
                   p->ask.gpu.product);
    for (int i = 0; i < PL_PARTS && ok; i++) {
        const struct pl_term *t = &p->terms[i];
        if (t->source == NULL || (t->bytes == 0 && i != PL_PART_KV)) continue;
        const char *name = p->ask.engine == PL_ENGINE_LLAMA && i == PL_PART_ACTIVATION ? "compute" : names[i];
        ok = row(b, name, t->bytes, t->source, t->note);
    }
    if (p->rank_count > 1)
        ok = ok && pl_buf_addf(b, "  (layers %u to %u of %u)\n", p->ranks[p->least].from,
                               p->ranks[p->least].to - 1, p->model->layers);
    return ok && pl_buf_adds(b, "\n");
}

static const char *requests(uint64_t n) { return n == 1 ? "request" : "requests"; }

static bool count_row(struct pl_buf *b, const struct pl_plan *p, uint64_t len, const char *why) {
    char text[24];
    uint64_t n = pl_plan_capacity(p, len);
    if (n == UINT64_MAX)
        return pl_buf_addf(b, "  %8s requests of %8" PRIu64 " tokens  %s\n", "any", len, why);
    return pl_buf_addf(b, "  %8" PRIu64 " %-8s of %8" PRIu64 " tokens  %10s each  %s\n", n, requests(n), len,
                       pl_bytes_text(text, pl_plan_request_bytes(p, len)), why);
}

static bool capacities(const struct pl_plan *p, struct pl_buf *b) {
    bool ok = pl_buf_addf(b, "at a time\n");
    for (uint64_t len = p->max_len; ok && len >= 512; len /= 4) {
        if (len != p->max_len && len < p->expect_len && p->expect_len < len * 4)
            ok = count_row(b, p, p->expect_len, "as expected");
        ok = ok && count_row(b, p, len, len == p->max_len ? "the longest allowed" : "");
        if (len / 4 < p->max_len / 300) break;
    }
    if (p->ask.expect_count > 1)
        ok = ok && pl_buf_addf(b, "  %8" PRIu64 " %s of the lengths given, %" PRIu64 " tokens on average\n",
                               p->capacity, requests(p->capacity), p->expect_len);
    else if (p->capacity != UINT64_MAX)
        ok = ok && pl_buf_addf(b, "  %8" PRIu64 " %s of %" PRIu64 "+%" PRIu64 " tokens%s\n", p->capacity,
                               requests(p->capacity), p->ask.expect[0].in, p->ask.expect[0].out,
                               p->expect_assumed ? " (assumed: --expect IN+OUT)" : "");
    char text[24];
    if (pl_plan_token_bytes(p) != 0)
        ok = ok && pl_buf_addf(b, "  one token more of a long request: %s\n",
                               pl_bytes_text(text, pl_plan_token_bytes(p)));
    if (p->ask.engine == PL_ENGINE_VLLM && p->ranks[p->least].block_bytes != 0)
        ok = ok && pl_buf_addf(b, "  blocks of %" PRIu64 " tokens, %zu group%s, %s a block\n", p->block,
                               p->groups.count, p->groups.count == 1 ? "" : "s",
                               pl_bytes_text(text, p->ranks[p->least].block_bytes));
    if (p->ask.engine == PL_ENGINE_LLAMA)
        ok = ok && pl_buf_addf(b, "  planned start: %" PRIu64 " cells, %" PRIu64 " sequences\n", p->ctx,
                               p->parallel);
    return ok && pl_buf_adds(b, "\n");
}

/* What a person who set these values should hear. */
static bool warnings(const struct pl_plan *p, struct pl_buf *b) {
    char text[24];
    bool ok = true;
    if (p->ask.engine == PL_ENGINE_LLAMA && strcmp(p->model->origin, "GGUF") != 0)
        ok = pl_buf_adds(
            b, "Weights are those of this checkpoint; llama.cpp runs a GGUF of it: plan that file.\n");
    if (p->ask.engine != PL_ENGINE_LLAMA && p->ask.utilization > 900)
        ok = pl_buf_addf(b, "Utilization %.2f leaves no guard: 0.85 to 0.90 is what lasts.\n",
                         (double)p->ask.utilization / PL_SHARES);
    if (p->ask.concurrency != 0 && p->ask.concurrency > p->capacity_max)
        ok = ok && pl_buf_addf(b,
                               "%" PRIu64 " is a cap, not what fits: so many requests of %" PRIu64
                               " tokens would need %s of KV%s.\n",
                               p->ask.concurrency, p->max_len,
                               pl_bytes_text(text, pl_mul(p->need, p->ask.concurrency)),
                               p->ask.engine == PL_ENGINE_VLLM || p->ask.engine == PL_ENGINE_SGLANG
                                   ? "; the engine would preempt"
                                   : "");
    return ok;
}

/* llama.cpp's own figures beside ours. */
static bool dry_run(const struct pl_plan *p, struct pl_buf *b) {
    const struct pl_measured *m = &p->measured;
    char text[4][24];
    if (!p->has_measured) return true;
    if (m->why_not != NULL) return pl_buf_addf(b, "no dry run, sizes are the formula's: %s\n\n", m->why_not);
    bool ok =
        pl_buf_addf(b,
                    "dry run of %" PRIu64 " cells, %" PRIu64 " sequences (llama.cpp %s; no weight is read)\n"
                    "  weights %s, KV %s, compute %s, output %s\n",
                    m->cells, m->parallel, m->version, pl_bytes_text(text[0], m->weights),
                    pl_bytes_text(text[1], pl_add(m->kv, m->state)), pl_bytes_text(text[2], m->compute),
                    pl_bytes_text(text[3], m->output));
    return ok &&
           pl_buf_addf(b, "  KV by the formula: %s, %.1f %% off%s\n\n",
                       pl_bytes_text(text[0], p->measured_kv), (double)p->measured_off * 100 / PL_SHARES,
                       p->measured_off > 15 ? ": llama.cpp's figure decides" : "");
}

static bool verdict(const struct pl_plan *p, struct pl_buf *b) {
    char need[24], left[24];
    bool ok;
    if (p->fits && p->capacity_max == UINT64_MAX)
        ok = pl_buf_adds(b, "It fits: no cache bounds the requests, only the batch does.\n");
    else if (p->fits)
        ok = pl_buf_addf(
            b,
            "It fits: %" PRIu64 " %s of %" PRIu64 " tokens at a time; room for KV is what ends first. %s\n",
            p->capacity_max, requests(p->capacity_max), p->max_len,
            p->provisional ? "Provisional: see the notes." : "Before a first boot this is an estimate.");
    else if (strcmp(p->binds, "weights") == 0)
        ok = pl_buf_addf(b, "It does not fit: weights and the fixed part leave nothing of %s.\n",
                         pl_bytes_text(left, p->ask.gpu.total_bytes));
    else if (strcmp(p->binds, "concurrency") == 0)
        ok = pl_buf_addf(b,
                         "It does not fit: %" PRIu64 " requests at a time were asked for, %" PRIu64 " fit.\n",
                         p->ask.concurrency, p->capacity);
    else
        ok = pl_buf_addf(b,
                         "It does not fit: one request of %" PRIu64
                         " tokens needs %s, %s is left; up to %" PRIu64 " tokens would fit.\n",
                         p->max_len, pl_bytes_text(need, p->need),
                         pl_bytes_text(left, p->terms[PL_PART_KV].bytes), p->longest);
    return ok && warnings(p, b) && pl_buf_adds(b, "\n");
}

static bool changes(const struct pl_plan *p, struct pl_arena *arena, struct pl_buf *b) {
    struct pl_change c[PL_CHANGES];
    size_t n = pl_plan_changes(p, arena, c);
    if (n == 0) return true;
    bool ok =
        pl_buf_addf(b, "%s\n  %-24s %-4s %11s %11s %9s %6s  %s\n", p->fits ? "for more" : "what would fit",
                    "change", "fits", "as expected", "of longest", "longest", "cards", "how, and its price");
    for (size_t i = 0; i < n && ok; i++)
        ok = pl_buf_addf(b, "  %-24s %-4s %11" PRIu64 " %11" PRIu64 " %9" PRIu64 " %6u  %s: %s\n", c[i].what,
                         c[i].fits ? "yes" : "no", c[i].capacity, c[i].capacity_max, c[i].longest, c[i].cards,
                         c[i].flag, c[i].price);
    return ok;
}

static bool formulas(const struct pl_plan *p, struct pl_buf *b) {
    const struct pl_model *m = p->model;
    uint64_t len = p->max_len, by_hidden = pl_mul(pl_mul(4 * (uint64_t)m->layers, m->hidden), len),
             by_heads = pl_mul(
                 pl_mul(2 * (uint64_t)m->layers, pl_mul(m->kv_heads, (uint64_t)m->head_k + m->head_v)), len);
    char text[24];
    bool ok = pl_buf_addf(b, "\nformulas for one request of %" PRIu64 " tokens, 16 bit, whole model\n", len);
    ok = ok &&
         pl_buf_addf(b, "  %10s  2 x layers x 2 (K, V) x hidden x 2 bytes x tokens: counts K and V twice\n",
                     pl_bytes_text(text, pl_mul(by_hidden, 2)));
    ok = ok && pl_buf_addf(
                   b, "  %10s  2 x layers x hidden x 2 bytes x tokens: right only when every head keeps KV\n",
                   pl_bytes_text(text, by_hidden));
    ok = ok && pl_buf_addf(b,
                           "  %10s  layers x KV heads x (K + V width) x 2 bytes x tokens: right when every "
                           "layer keeps every token\n",
                           pl_bytes_text(text, by_heads));
    return ok && pl_buf_addf(b, "  %10s  this plan, for the card that rules\n", pl_bytes_text(text, p->need));
}

bool pl_plan_show(const struct pl_plan *p, bool explain, struct pl_arena *arena, struct pl_buf *out) {
    bool ok = head(p, out) && packing_list(p, out) && capacities(p, out) && dry_run(p, out) &&
              verdict(p, out) && changes(p, arena, out);
    if (ok && explain) ok = formulas(p, out);
    for (const struct pl_note *n = p->model->notes; n != NULL && ok; n = n->next)
        ok = pl_buf_addf(out, "%snote: %s\n", n == p->model->notes ? "\n" : "", n->text);
    return ok && !arena->refused;
}

bool pl_plan_show_strategies(const struct pl_plan *p, struct pl_arena *arena, struct pl_buf *b) {
    struct pl_strategy s[PL_STRATEGIES];
    char pool[24], wasted[24];
    size_t n = pl_plan_strategies(p, arena, s);
    bool ok = pl_buf_addf(b,
                          "requests of %" PRIu64 " tokens on average, slots of %" PRIu64
                          " where a slot is one piece\n  %-24s %11s %9s %11s %6s  %s\n",
                          p->expect_len, p->max_len, "strategy", "pool", "requests", "unused each", "busy",
                          "price");
    for (size_t i = 0; i < n && ok; i++)
        ok = pl_buf_addf(b, "  %-24s %11s %9" PRIu64 " %11s %4u %%  %s\n", s[i].name,
                         pl_bytes_text(pool, s[i].pool), s[i].concurrency, pl_bytes_text(wasted, s[i].wasted),
                         s[i].busy / 10, s[i].price);
    return ok && !arena->refused;
}
