/* gateway/llm.c - requests to LLM engines in bytes of their KV cache, and what the engines tell of that
 * cache.
 *
 * The pure half is admit/kv.h. Workers of a service are taken to be alike: of what they tell differently, the
 * smaller counts. Prompts that are still to be computed are bounded apart from the cache, to STEPS_AHEAD of
 * the engine's steps (or one whole context): that keeps it busy, and what waits does so here, in turn.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gateway/inspect.h"
#include "gateway/models.h"

enum {
    STEPS_AHEAD = 4,
    SEEN_COMPUTED_MS = 100, /* sent so long before the engine said that nobody waits */
    TELL_SHARE = 10,        /* budget.changed is logged when the pace has moved by a tenth */
    GROW_SHARE = 4,         /* an answer longer than charged: a quarter more at a time */
    LEAST_OF_FALLBACK = 8,  /* an estimate not calibrated may be so many times too large */
};
static const double surely = 1.35; /* a calibrated one so many times, see docs/admission.md */

/* --- what is charged */

enum charge { CHARGE_NONE, CHARGE_EXPECTED, CHARGE_WORST };
static enum charge charge_of(const struct pl_gate *gate) {
    if (!pl_gate_is_llm(gate)) return CHARGE_NONE;
    switch (gate->service->config->memory_charge) {
    case PL_CFG_MEMORY_CHARGE_WORST:
        return CHARGE_WORST;
    case PL_CFG_MEMORY_CHARGE_EXPECTED:
        return CHARGE_EXPECTED;
    case PL_CFG_MEMORY_CHARGE_AUTO:
        break;
    default:
        return CHARGE_NONE;
    }
    switch (pl_engine_of(gate->service->config)->overcommit) {
    case PL_OVERCOMMIT_PREEMPTS:
        return CHARGE_EXPECTED;
    case PL_OVERCOMMIT_KILLS:
        return CHARGE_WORST;
    default:
        return CHARGE_NONE;
    }
}

uint64_t pl_llm_full(const struct pl_gate *gate) {
    enum charge how = charge_of(gate);
    if (how == CHARGE_NONE || gate->llm.bytes_per_token <= 0) return 0;
    double times = how == CHARGE_EXPECTED ? pl_pace_times(&gate->llm.pace) : 1;
    return (uint64_t)((double)gate->llm.kv_bytes * times);
}

/* Routes that make no answer: the prompt is all. False: it is none of the model's work at all. */
static bool makes_work(const struct pl_request *r, bool *answers) {
    static const char *const without[] = { "embed", "rerank", "score", "classify", "pool" };
    const struct pl_http_head *h = pl_conn_head(r->conn);
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    *answers = true;
    if (memmem(path.at, path.len, "tokenize", 8) != NULL) return false;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (memmem(path.at, path.len, without[i], strlen(without[i])) != NULL) *answers = false;
    return true;
}

static uint64_t largest_asked(const struct pl_json_facts *f) {
    return f->n.value > f->best_of.value ? f->n.value : f->best_of.value;
}

/* Tokens of what is kept of a request's own demand. */
static uint64_t tokens_of(struct pl_request *r, enum charge how, bool answers) {
    struct pl_inspect *i = r->inspect;
    const struct pl_json_asked *max = &i->asked.max_tokens;
    const struct pl_model *m = pl_model_find(r->gate, pl_model_name(r));
    struct pl_kv_demand d = { .prompt = i->input.most,
                              .prompts = i->asked.prompts > 0 ? i->asked.prompts : 1,
                              .answers = largest_asked(&i->asked),
                              .asked = max->there && !max->unbounded ? max->value : UINT64_MAX,
                              .context = r->gate->llm.context,
                              .block = r->gate->llm.block,
                              .worst = how == CHARGE_WORST };
    if (i->clamped != 0) d.asked = i->clamped;
    if (!answers) d.asked = 0;
    uint64_t all = pl_kv_tokens(&d, m != NULL ? &m->answers : NULL);
    if (answers && how == CHARGE_EXPECTED && all > d.prompt) i->out_charged = all - d.prompt;
    return all;
}

uint64_t pl_llm_cost(struct pl_request *r) {
    const struct pl_llm *l = &r->gate->llm;
    enum charge how = charge_of(r->gate);
    bool answers;
    r->entry.prefill = 0;
    if (r->inspect != NULL) r->inspect->out_charged = 0;
    if (how == CHARGE_NONE || l->bytes_per_token <= 0 || r->inspect == NULL || !r->inspect->json ||
        !r->inspect->counts || !makes_work(r, &answers))
        return 0;
    r->entry.prefill = r->inspect->input.tokens;
    double bytes = (double)tokens_of(r, how, answers) * l->bytes_per_token;
    uint64_t full = pl_llm_full(r->gate);
    if (how == CHARGE_EXPECTED && bytes > (double)full)
        return full; /* it takes what there is, and goes alone */
    return bytes < 0x1p63 ? (uint64_t)ceil(bytes) : UINT64_MAX;
}

/* --- what fits the context */

static uint64_t surely_at_least(const struct pl_inspect *i) {
    uint64_t tokens = i->input.tokens, prompts = i->asked.prompts;
    if (i->input.source == PL_TOKENS_CALIBRATED) tokens = (uint64_t)((double)tokens / surely);
    if (i->input.source == PL_TOKENS_FALLBACK) tokens /= LEAST_OF_FALLBACK;
    return prompts > 1 ? tokens / prompts : tokens;
}

static bool too_long(struct pl_request *r, uint64_t prompt, uint64_t asked) {
    unsigned long long context = r->gate->llm.context;
    char text[300];
    if (asked == 0)
        snprintf(
            text, sizeof text,
            "This model's maximum context length is %llu tokens, and the prompt has at least %llu. Please "
            "reduce the length of the prompt",
            context, (unsigned long long)prompt);
    else
        snprintf(text, sizeof text,
                 "This model's maximum context length is %llu tokens. The prompt has at least %llu, and "
                 "max_tokens is %llu. Please reduce the length of the prompt or of the answer",
                 context, (unsigned long long)prompt, (unsigned long long)asked);
    return pl_inspect_judge(r, PL_REASON_CONTEXT_LENGTH, NULL, text);
}

bool pl_llm_fits_context(struct pl_request *r) {
    const struct pl_service_config *c = r->gate->service->config;
    const struct pl_json_asked *max = &r->inspect->asked.max_tokens;
    uint64_t context = r->gate->llm.context, prompt = surely_at_least(r->inspect);
    bool answers;
    if (context == 0 || !makes_work(r, &answers)) return true;
    if (prompt >= context + !answers) return too_long(r, prompt, 0);
    if (!answers || !max->there || max->unbounded || max->value <= context - prompt) return true;
    uint64_t room = r->inspect->input.most < context ? context - r->inspect->input.most : 1;
    if (c->openai_over_limit == PL_CFG_OPENAI_OVER_LIMIT_CLAMP && c->mode != PL_CFG_MODE_OBSERVE &&
        pl_inspect_clamp(r, room))
        return true;
    return too_long(r, prompt, max->value);
}

/* --- as it goes on */

void pl_llm_first_byte(struct pl_request *r) {
    if (pl_admit_prefilled(&r->gate->admit, &r->entry)) pl_queue_pump(r->gate);
}

void pl_llm_streamed(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    uint64_t made =
        i->usage.completion_tokens > i->usage.pieces ? i->usage.completion_tokens : i->usage.pieces;
    if (i->out_charged == 0 || made <= i->out_charged || r->entry.charged == 0) return;
    uint64_t more = made - i->out_charged + made / GROW_SHARE + 1;
    double bytes = (double)more * r->gate->llm.bytes_per_token;
    i->out_charged += more;
    if (bytes < (double)(UINT64_MAX / 2 - r->entry.charged))
        pl_admit_recharge(&r->gate->admit, &r->entry, r->entry.charged + (uint64_t)bytes);
}

/* --- what engines tell */

static void smaller(uint64_t *into, uint64_t value) {
    if (value != 0 && (*into == 0 || value < *into)) *into = value;
}

struct told {
    struct pl_llm llm;
    struct pl_pace_look look;
    uint64_t step;
    unsigned workers;
};

static void add_worker(struct told *t, const struct pl_engine_facts *f) {
    uint64_t kv_bytes = f->kv_tokens > 0 ? f->kv_bytes : 0;
    smaller(&t->llm.context, f->context_tokens);
    smaller(&t->llm.kv_bytes, kv_bytes);
    smaller(&t->step, f->step_tokens);
    if (f->block_tokens > t->llm.block) t->llm.block = f->block_tokens;
    double each = kv_bytes > 0 ? (double)kv_bytes / (double)f->kv_tokens : 0;
    if (each > t->llm.bytes_per_token) t->llm.bytes_per_token = each;
    t->look.running += f->running;
    t->look.waiting += f->waiting;
    t->look.preemptions += f->preemptions;
    t->workers++;
}

/* Prompts of plain answers, of which nothing is seen until they are whole. */
static void look_at_prompts(struct pl_worker *w, uint64_t now) {
    struct pl_berth *b = w->pool;
    const struct pl_engine_facts *f = pl_worker_engine(w);
    if (b == NULL || f->waiting > 0) return;
    for (struct pl_request *r = b->exchanges; r != NULL; r = r->next)
        if (r->sent_ms + SEEN_COMPUTED_MS <= now) pl_admit_prefilled(&b->gate->admit, &r->entry);
}

static void set_pace(struct pl_gate *gate, struct told *t, uint64_t now) {
    struct pl_llm *l = &gate->llm;
    const struct pl_admit *a = &gate->admit;
    t->look.short_here = a->queued > 0 && a->bytes_short && !a->prefill_short;
    enum pl_pace_move move = pl_pace_take(&l->pace, &t->look, now);
    double times = pl_pace_times(&l->pace), told = l->told_times > 0 ? l->told_times : 1;
    if (move == PL_PACE_STAYS || fabs(times - told) * TELL_SHARE < told) return;
    uint64_t from = (uint64_t)((double)l->kv_bytes * told);
    l->told_times = times;
    pl_budget_limits(gate);
    for (unsigned i = 0; i < gate->place_count; i++)
        pl_budget_changed(gate, i, from, times < told ? "preemption" : "recovery");
}

void pl_llm_told(struct pl_worker *w, struct pl_gate *gate) {
    struct pl_llm *l = &gate->llm;
    struct told t = { 0 };
    uint64_t now = pl_gateway_now(gate->g), before = pl_llm_full(gate);
    for (const struct pl_worker *each = gate->service->workers; each != NULL; each = each->next) {
        const struct pl_engine_facts *f = each->routable ? pl_worker_engine(each) : NULL;
        if (f != NULL) add_worker(&t, f);
    }
    if (t.workers == 0) return; /* what is known holds until others tell something else */
    l->context = t.llm.context;
    l->block = t.llm.block;
    l->kv_bytes = t.llm.kv_bytes;
    l->bytes_per_token = t.llm.bytes_per_token;
    uint64_t ahead = t.step * STEPS_AHEAD > l->context ? t.step * STEPS_AHEAD : l->context;
    pl_admit_set_prefill(&gate->admit, charge_of(gate) != CHARGE_NONE && t.step > 0 ? ahead * t.workers : 0);
    look_at_prompts(w, now);
    pl_boot_check(w, gate);
    if (charge_of(gate) == CHARGE_EXPECTED && l->kv_bytes > 0) set_pace(gate, &t, now);
    if (pl_llm_full(gate) != before) pl_budget_limits(gate);
    pl_queue_pump(gate);
}
