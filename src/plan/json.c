/* json.c - the plan as one JSON document (kind "plan"). A figure that is not known is absent. */
#include <inttypes.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

static bool text(struct pl_buf *b, const char *key, const char *value) {
    return pl_buf_addf(b, "\"%s\":", key) && pl_buf_add_json(b, value, strlen(value));
}
static bool number(struct pl_buf *b, const char *key, uint64_t n) {
    return pl_buf_addf(b, "\"%s\":%" PRIu64, key, n);
}
static bool more(struct pl_buf *b) { return pl_buf_adds(b, ","); }
static const char *truth(bool yes) { return yes ? "true" : "false"; }

static bool terms(const struct pl_plan *p, struct pl_buf *b) {
    bool ok = pl_buf_adds(b, "\"budget\":{"), any = false;
    for (int i = 0; i < PL_PARTS && ok; i++) {
        if (p->terms[i].source == NULL) continue;
        ok = (!any || more(b)) &&
             pl_buf_addf(b, "\"%s\":{\"bytes\":%" PRIu64 ",", pl_component_name((enum pl_component)i),
                         p->terms[i].bytes) &&
             text(b, "source", p->terms[i].source) && more(b) && text(b, "note", p->terms[i].note) &&
             pl_buf_adds(b, "}");
        any = true;
    }
    return ok && pl_buf_adds(b, "}");
}

static bool ranks(const struct pl_plan *p, struct pl_buf *b) {
    bool ok = pl_buf_adds(b, "\"ranks\":[");
    for (size_t i = 0; i < p->rank_count && ok; i++) {
        const struct pl_rank *r = &p->ranks[i];
        ok = pl_buf_addf(b, "%s{\"from\":%u,\"to\":%u,\"weights_bytes\":%" PRIu64 ",\"kv_bytes\":%" PRIu64 "",
                         i != 0 ? "," : "", r->from, r->to, r->weights, r->avail);
        if (p->ask.engine == PL_ENGINE_VLLM)
            ok = ok && pl_buf_addf(b, ",\"block_bytes\":%" PRIu64, r->block_bytes);
        ok = ok && pl_buf_adds(b, "}");
    }
    return ok && pl_buf_adds(b, "]");
}

static bool changes(const struct pl_plan *p, struct pl_arena *arena, struct pl_buf *b) {
    struct pl_change c[PL_CHANGES];
    size_t n = pl_plan_changes(p, arena, c);
    bool ok = pl_buf_adds(b, "\"changes\":[");
    for (size_t i = 0; i < n && ok; i++)
        ok = pl_buf_adds(b, i != 0 ? ",{" : "{") && text(b, "what", c[i].what) && more(b) &&
             text(b, "flag", c[i].flag) && more(b) && text(b, "price", c[i].price) &&
             pl_buf_addf(b,
                         ",\"fits\":%s,\"capacity\":%" PRIu64 ",\"capacity_max_len\":%" PRIu64
                         ",\"longest\":%" PRIu64 ",\"cards\":%u}",
                         truth(c[i].fits), c[i].capacity, c[i].capacity_max, c[i].longest, c[i].cards);
    return ok && pl_buf_adds(b, "]");
}

static bool strategy_list(const struct pl_plan *p, struct pl_arena *arena, struct pl_buf *b) {
    struct pl_strategy s[PL_STRATEGIES];
    size_t n = pl_plan_strategies(p, arena, s);
    bool ok = pl_buf_adds(b, ",\"strategies\":[");
    for (size_t i = 0; i < n && ok; i++)
        ok = pl_buf_adds(b, i != 0 ? ",{" : "{") && text(b, "name", s[i].name) &&
             pl_buf_addf(b,
                         ",\"pool_bytes\":%" PRIu64 ",\"concurrency\":%" PRIu64 ",\"wasted_bytes\":%" PRIu64
                         ",\"busy_ratio\":%.3f,",
                         s[i].pool, s[i].concurrency, s[i].wasted, (double)s[i].busy / PL_SHARES) &&
             text(b, "price", s[i].price) && pl_buf_adds(b, "}");
    return ok && pl_buf_adds(b, "]");
}

static bool flag_list(const struct pl_plan *p, struct pl_buf *b) {
    struct pl_command c;
    pl_plan_command(p, &c);
    bool ok = pl_buf_adds(b, "\"flags\":[");
    for (size_t i = 0; i < c.count && ok; i++) {
        ok = pl_buf_adds(b, i != 0 ? ",{" : "{") && text(b, "flag", c.flags[i].flag);
        if (c.flags[i].value[0] != '\0') ok = ok && more(b) && text(b, "value", c.flags[i].value);
        ok = ok && more(b) && text(b, "rule", c.flags[i].rule) && pl_buf_adds(b, "}");
    }
    return ok && pl_buf_adds(b, "]");
}

static bool expected(const struct pl_plan *p, struct pl_buf *b) {
    bool ok = pl_buf_adds(b, "\"expect\":[");
    for (size_t i = 0; i < p->ask.expect_count && ok; i++) {
        const struct pl_expect *e = &p->ask.expect[i];
        ok = pl_buf_addf(b, "%s{\"in\":%" PRIu64 ",\"out\":%" PRIu64 ",\"share\":%.3f}", i != 0 ? "," : "",
                         e->in, e->out, (double)e->share / PL_SHARES);
    }
    return ok && pl_buf_addf(b, "],\"expect_assumed\":%s", truth(p->expect_assumed));
}

static bool capacity(const struct pl_plan *p, struct pl_buf *b) {
    bool ok = pl_buf_adds(b, "\"capacity\":[");
    uint64_t lengths[2] = { p->max_len, p->expect_len };
    bool any = false;
    for (size_t i = 0; i < 2 && ok; i++) {
        uint64_t n = pl_plan_capacity(p, lengths[i]);
        if (i == 1 && lengths[1] == lengths[0]) break;
        if (n == UINT64_MAX) continue;
        ok = pl_buf_addf(b,
                         "%s{\"length\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"request_bytes\":%" PRIu64 "}",
                         any ? "," : "", lengths[i], n, pl_plan_request_bytes(p, lengths[i]));
        any = true;
    }
    return ok && pl_buf_adds(b, "]");
}

static bool measured(const struct pl_plan *p, struct pl_buf *b) {
    const struct pl_measured *m = &p->measured;
    if (!p->has_measured) return true;
    bool ok = pl_buf_adds(b, "\"measured\":{");
    if (m->why_not != NULL) return ok && text(b, "why_not", m->why_not) && pl_buf_adds(b, "},");
    return ok && text(b, "llama_cpp", m->version) && more(b) && number(b, "cells", m->cells) && more(b) &&
           number(b, "parallel", m->parallel) && more(b) && number(b, "weights_bytes", m->weights) &&
           more(b) && number(b, "kv_bytes", m->kv) && more(b) && number(b, "state_bytes", m->state) &&
           more(b) && number(b, "compute_bytes", m->compute) && more(b) &&
           number(b, "output_bytes", m->output) && more(b) && number(b, "kv_planned_bytes", p->measured_kv) &&
           pl_buf_addf(b, ",\"drift_ratio\":%.3f},", (double)p->measured_off / PL_SHARES);
}

bool pl_plan_show_json(const struct pl_plan *p, bool strategies, struct pl_arena *arena, struct pl_buf *b) {
    const struct pl_ask *a = &p->ask;
    bool ok = pl_buf_adds(b, "{\"v\":1,\"kind\":\"plan\",") && text(b, "model", a->target) && more(b) &&
              text(b, "architecture", p->model->arch) && more(b) &&
              text(b, "engine", pl_plan_engine_name(a->engine)) && more(b) && text(b, "gpu", a->gpu.name) &&
              more(b) && number(b, "total_bytes", a->gpu.total_bytes) && more(b) &&
              text(b, "total_source", a->gpu.source) &&
              pl_buf_addf(b, ",\"cards\":%u,\"tp\":%u,\"pp\":%u,\"dp\":%u,\"utilization_ratio\":%.3f,",
                          p->cards, a->tp, a->pp, a->dp, (double)a->utilization / PL_SHARES);
    ok = ok && number(b, "weights_total_bytes", p->weights->total) &&
         pl_buf_addf(b, ",\"fits\":%s,\"provisional\":%s,", truth(p->fits), truth(p->provisional)) &&
         text(b, "binds", p->binds) && more(b) && number(b, "max_len", p->max_len) && more(b) &&
         number(b, "longest", p->longest) && more(b) && number(b, "request_bytes", p->need) && more(b) &&
         number(b, "token_bytes", pl_plan_token_bytes(p)) && more(b);
    if (a->engine == PL_ENGINE_VLLM)
        ok = ok && number(b, "block_tokens", p->block) && more(b) && number(b, "groups", p->groups.count) &&
             more(b) && number(b, "tokens_in_flight", p->in_flight) && more(b);
    if (a->engine == PL_ENGINE_LLAMA)
        ok = ok && number(b, "ctx_size", p->ctx) && more(b) && number(b, "parallel", p->parallel) &&
             more(b) && measured(p, b);
    if (p->capacity != UINT64_MAX) ok = ok && number(b, "capacity_expected", p->capacity) && more(b);
    ok = ok && expected(p, b) && more(b) && capacity(p, b) && more(b) && terms(p, b) && more(b) &&
         ranks(p, b) && more(b) && changes(p, arena, b) && more(b) && flag_list(p, b);
    if (strategies) ok = ok && strategy_list(p, arena, b);
    ok = ok && pl_buf_adds(b, ",\"notes\":[");
    for (const struct pl_note *n = p->model->notes; n != NULL && ok; n = n->next)
        ok = (n == p->model->notes || more(b)) && pl_buf_add_json(b, n->text, strlen(n->text));
    return ok && pl_buf_adds(b, "]}\n") && !arena->refused;
}
