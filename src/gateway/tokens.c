/* gateway/tokens.c - prompts in tokens: estimated when a body is complete, learnt from the usage of replies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gateway/inspect.h"
#include "gateway/models.h"

const char *pl_model_name(const struct pl_request *r) {
    const char *name = r->inspect->asked.model;
    return name[0] != '\0' ? name : PL_MODEL_UNNAMED;
}

struct pl_model *pl_model_find(const struct pl_gate *gate, const char *name) {
    for (size_t i = 0; i < gate->learnt.count; i++)
        if (strcmp(gate->learnt.at[i]->name, name) == 0) return gate->learnt.at[i];
    return gate->learnt.count == PL_GATE_MODELS ? gate->learnt.at[PL_GATE_MODELS - 1] : NULL;
}

static void make_series(struct pl_gate *gate, struct pl_model *m) {
    struct pl_metrics *all = gate->g->o.app->metrics;
    const char *id = gate->service->config->id, *exact = pl_token_source_name(PL_TOKENS_EXACT);
    for (unsigned i = 0; i < PL_TOKENS_SOURCE_COUNT; i++)
        m->input[i] = pl_series(all, PL_M_TOKENS_TOTAL, id, m->name, "input",
                                pl_token_source_name((enum pl_token_source)i));
    m->output = pl_series(all, PL_M_TOKENS_TOTAL, id, m->name, "output", exact);
    m->cached = pl_series(all, PL_M_TOKENS_TOTAL, id, m->name, "cached", exact);
}

struct pl_model *pl_model_of(struct pl_gate *gate, const char *name) {
    struct pl_model *m = pl_model_find(gate, name);
    if (m != NULL) return m;
    m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    snprintf(m->name, sizeof m->name, "%s", gate->learnt.count == PL_GATE_MODELS - 1 ? "other" : name);
    pl_tokens_init(&m->tokens);
    make_series(gate, m);
    gate->learnt.at[gate->learnt.count++] = m;
    return m;
}

/* --- the request */

bool pl_tokens_arrive(struct pl_request *r) {
    static struct pl_tokens untaught;
    struct pl_inspect *i = r->inspect;
    const struct pl_service_config *c = r->gate->service->config;
    const struct pl_model *m = pl_model_find(r->gate, pl_model_name(r));
    char text[200];
    if (untaught.factor == 0) pl_tokens_init(&untaught);
    i->input = pl_tokens_estimate(m != NULL ? &m->tokens : &untaught, &i->asked.text, i->asked.prompt_ids);
    if (c->limits_input_tokens <= 0 || i->input.tokens <= (uint64_t)c->limits_input_tokens)
        return pl_llm_fits_context(r);
    if (c->mode == PL_CFG_MODE_OBSERVE) {
        if (!i->told) pl_refuse_would(r, PL_REASON_CONTEXT_LENGTH, 0);
        i->told = true;
        return true;
    }
    snprintf(text, sizeof text, "the prompt has %s%llu tokens, more than limits.input_tokens, %lld",
             i->input.source == PL_TOKENS_EXACT ? "" : "about ", (unsigned long long)i->input.tokens,
             (long long)c->limits_input_tokens);
    pl_refuse_as(r, PL_REASON_CONTEXT_LENGTH, NULL, text);
    return false;
}

/* --- the reply */

void pl_tokens_expect(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL) return;
    i->counts = i->counts && i->json && i->scan != NULL;
    i->usage = (struct pl_usage){ 0 };
    i->reading = false;
    i->good_to = NULL;
}

static bool is_type(const struct pl_http_head *h, const char *type) {
    const struct pl_http_header *f = pl_http_find(h, PL_HF_CONTENT_TYPE);
    size_t n = strlen(type);
    return f != NULL && f->value_len >= n && strncasecmp(pl_http_at(h, f->value), type, n) == 0;
}

void pl_tokens_reply(struct pl_request *r, const char *bytes, size_t len) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL || !i->counts) return;
    if (!i->reading) {
        const struct pl_http_head *h = pl_upstream_head(r->up);
        bool events = is_type(h, "text/event-stream");
        if (h->status != 200 || pl_http_find(h, PL_HF_CONTENT_ENCODING) != NULL ||
            (!events && !is_type(h, "application/json"))) {
            i->counts = false;
            return;
        }
        pl_usage_begin(&i->usage, i->scan, events);
        i->reading = true;
    }
    pl_usage_feed(&i->usage, bytes, len);
    pl_llm_streamed(r);
}

/* The engine's count is one of this text alone: no images, no tokens that came as numbers. */
static bool is_lesson(const struct pl_json_facts *f) {
    return f->images == 0 && f->images_remote == 0 && f->prompt_ids == 0 && !f->bad_utf8;
}

void pl_model_learn(struct pl_gate *gate, struct pl_model *m, const struct pl_text_counts *text,
                    uint64_t tokens) {
    bool known = m->tokens.seen >= PL_TOKEN_KNOWN;
    if (!pl_tokens_learn(&m->tokens, text, tokens)) return;
    gate->learnt.changed = true;
    if (m->tokens.error > 0) {
        if (m->error == NULL)
            m->error = pl_series(gate->g->o.app->metrics, PL_M_TOKEN_ESTIMATE_ERROR_RATIO,
                                 gate->service->config->id, m->name);
        pl_series_set(m->error, m->tokens.error);
    }
    if (!known && m->tokens.seen >= PL_TOKEN_KNOWN) pl_learnt_save(gate);
}

/* How long an answer was. Without usage, its events are fewer than its tokens, and not by much. */
static void learn_length(struct pl_request *r, struct pl_model *m) {
    const struct pl_usage *u = &r->inspect->usage;
    uint64_t tokens = u->completion_tokens > 0 ? u->completion_tokens : u->events ? u->pieces : 0;
    uint64_t answers = u->answers > 0 ? u->answers : 1;
    if (tokens / answers > 0)
        pl_answers_learn(&m->answers, tokens / answers, u->prompt_tokens, u->cached_tokens);
}

void pl_tokens_read_end(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    if (i != NULL && i->reading && i->usage.scan != NULL) pl_usage_end(&i->usage);
}

void pl_tokens_done(struct pl_request *r) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL || !i->reading) return;
    pl_tokens_read_end(r);
    if (i->usage.error) return;
    if (i->usage.told) pl_keys_tokens(r, i->usage.prompt_tokens + i->usage.completion_tokens);
    bool told = i->usage.told && i->usage.prompt_tokens > 0;
    if (!told && is_lesson(&i->asked)) pl_calibrate(r);
    struct pl_model *m =
        told ? pl_model_of(r->gate, pl_model_name(r)) : pl_model_find(r->gate, pl_model_name(r));
    if (m == NULL) return;
    learn_length(r, m);
    if (!told) {
        pl_series_add(m->input[i->input.source], (double)i->input.tokens);
        return;
    }
    pl_series_add(m->input[PL_TOKENS_EXACT], (double)i->usage.prompt_tokens);
    pl_series_add(m->output, (double)i->usage.completion_tokens);
    pl_series_add(m->cached, (double)i->usage.cached_tokens);
    if (is_lesson(&i->asked)) pl_model_learn(r->gate, m, &i->asked.text, i->usage.prompt_tokens);
}

struct pl_tokens_seen pl_tokens_seen(const struct pl_request *r) {
    const struct pl_inspect *i = r->inspect;
    if (i == NULL || !i->json) return (struct pl_tokens_seen){ 0 };
    bool told = i->usage.told && i->usage.prompt_tokens > 0;
    return (struct pl_tokens_seen){ .model = i->asked.model[0] != '\0' ? i->asked.model : NULL,
                                    .input = told ? i->usage.prompt_tokens : i->input.tokens,
                                    .output = i->usage.completion_tokens };
}
