/* engine.c - what an LLM engine tells of itself: its models and how much context they take (/v1/models, asked
 * once it is READY), its KV cache and its load (/metrics, with every scrape). Foreign words, each with
 * limits.
 *
 * Where an engine says how many tokens its cache holds but not how many bytes that is, a token counts as
 * NOMINAL_BYTES: shares of the budget are right then, its bytes are not. */
#include <jansson.h>
#include <string.h>

#include "crew/more.h"
#include "sample/engine.h"
#include "worker/flags.h"

enum {
    REPLY_BYTES = 1 << 20,
    AGAIN_MS = 5000,
    RENEW_MS = 30000,
    TIMES_OF_PROBE = 5,
    STEP_TOKENS = 8192,      /* vLLM's and SGLang's own default on large cards */
    NOMINAL_BYTES = 1 << 17, /* fp16, 32 layers, 8 heads of 128: a model of 8 billion weights */
};
#define TOKENS_MOST UINT64_C(1000000000000)

bool pl_engine_is_llm(const struct pl_service *s) {
    return s->kind != PL_KIND_PYTHON && pl_engine_of(s->config)->llm;
}

const struct pl_engine_facts *pl_worker_engine(const struct pl_worker *w) {
    return pl_engine_is_llm(w->service) ? &w->more->engine : NULL;
}

const char *pl_service_model(const struct pl_service *s) {
    const struct pl_strings *routed = &s->config->route_models;
    if (s->more->model[0] != '\0') return s->more->model;
    return routed->count > 0 ? routed->at[0] : s->config->id;
}

static void tell(struct pl_worker *w) {
    const struct pl_crew *c = w->service->crew;
    if (c->hooks.engine_told != NULL) c->hooks.engine_told(c->hooks.ctx, w);
}

/* --- its models */

static uint64_t tokens_of(const json_t *value) {
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : 0;
    return n > 0 && (uint64_t)n <= TOKENS_MOST ? (uint64_t)n : 0;
}

/* vLLM and SGLang: max_model_len. llama-server: meta.n_ctx, where it has it. */
static uint64_t context_of(const json_t *model) {
    uint64_t n = tokens_of(json_object_get(model, "max_model_len"));
    return n != 0 ? n : tokens_of(json_object_get(json_object_get(model, "meta"), "n_ctx"));
}

static void take_models(struct pl_worker *w, const json_t *all) {
    struct pl_engine_facts *f = &w->more->engine;
    size_t i;
    json_t *one;
    f->model_count = 0;
    f->context_tokens = 0;
    json_array_foreach(json_object_get(all, "data"), i, one) {
        const char *name = json_string_value(json_object_get(one, "id"));
        size_t len = name != NULL ? strlen(name) : 0;
        uint64_t context = context_of(one);
        if (f->model_count == PL_ENGINE_MODELS || len == 0 || len >= PL_ENGINE_MODEL_NAME) continue;
        memcpy(f->models[f->model_count++], name, len + 1);
        if (context > f->context_tokens) f->context_tokens = context; /* adapters share their base's */
    }
    if (f->model_count > 0) memcpy(w->service->more->model, f->models[0], sizeof f->models[0]);
}

static void on_models(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    w->more->naming = NULL;
    w->more->name_at_ms = pl_crew_now(w->service->crew) + AGAIN_MS;
    if (!reply->answered || reply->status != 200) return;
    json_t *all = json_loadb(reply->body, reply->body_len, JSON_REJECT_DUPLICATES, NULL);
    if (all != NULL) {
        take_models(w, all);
        json_decref(w->more->models);
        w->more->models = json_incref(json_object_get(all, "data"));
        w->more->name_at_ms = pl_crew_now(w->service->crew) + RENEW_MS; /* adapters come and go */
        tell(w);
    }
    json_decref(all);
}

void pl_engine_tick(struct pl_worker *w, uint64_t now) {
    struct pl_worker_more *o = w->more;
    char path[PL_PROBE_PATH_BYTES];
    if (!pl_engine_is_llm(w->service) || w->state != PL_WORKER_READY || o->naming != NULL ||
        now < o->name_at_ms)
        return;
    const struct pl_ask_question q = {
        .to = &w->to,
        .host = pl_remote_host(w->service),
        .method = "GET",
        .target = pl_probe_path(w, "/v1/models", path, sizeof path),
        .headers = "x-plimsoll-warmup: 1\r\n",
        .reply_cap = REPLY_BYTES,
        .timeout_ms = (uint64_t)w->service->config->probe_timeout_ms * TIMES_OF_PROBE,
    };
    o->naming = pl_ask_start(w->service->crew->app->loop, &q, on_models, w);
}

void pl_engine_stop(struct pl_worker *w) {
    if (w->more->naming != NULL) pl_ask_cancel(w->more->naming);
    w->more->naming = NULL;
    json_decref(w->more->models);
    w->more->models = NULL;
}

const json_t *pl_worker_models(const struct pl_worker *w) { return w->more->models; }

/* --- its cache and its load */

static uint64_t known(uint64_t value) { return value != PL_ENGINE_UNKNOWN ? value : 0; }

static uint64_t mix(uint64_t h, const char *text) { /* FNV-1a, the NUL that separates included */
    do h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    while (*text++ != '\0');
    return h;
}

uint64_t pl_engine_hash(const struct pl_service_config *s) {
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < s->command.count; i++) h = mix(h, s->command.at[i]);
    for (size_t i = 0; i < s->engine_args.count; i++)
        h = mix(mix(h, s->engine_args.at[i].key), s->engine_args.at[i].value);
    return h;
}

/* What the plan and its own lines say of its start. */
static void take_boot(struct pl_worker *w, const struct pl_engine_load *load) {
    struct pl_engine_facts *f = &w->more->engine;
    const struct pl_engine_boot *said = &w->more->words.boot;
    struct pl_boot_start *b = &f->boot;
    memcpy(b->now.part, said->part, sizeof b->now.part);
    memcpy(b->now.version, said->version, sizeof b->now.version);
    b->now.kv_tokens = f->kv_tokens != 0 ? f->kv_tokens : said->kv_tokens;
    b->now.total_bytes = said->total.bytes;
    if (load->kv_bytes != PL_ENGINE_UNKNOWN && load->kv_bytes > 0) /* to the byte, where its lines round */
        b->now.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = true, .bytes = load->kv_bytes };
    b->kv_blocks = known(load->kv_blocks);
    b->block_tokens = f->block_tokens;
    b->graphs_estimated = said->graphs_estimated;
    b->persisted_bytes = said->persisted_bytes;
    b->asked_kv_bytes = f->planned_kv_bytes;
    b->cold = w->more->cache_empty;
    b->plan = pl_planned_of(w);
    f->plan_waits = pl_planned_waits(w);
    f->plan_failed = pl_planned_failed(w);
    f->auto_from_tokens = said->auto_from;
    f->auto_to_tokens = said->auto_to;
}

void pl_engine_scraped(struct pl_worker *w, const char *text, size_t len) {
    struct pl_engine_load load;
    struct pl_engine_facts *f = &w->more->engine;
    const struct pl_service_config *s = w->service->config;
    if (!pl_engine_load_read(text, len, &load)) return;
    if (load.kv_bytes != PL_ENGINE_UNKNOWN) w->more->words.kv_bytes = load.kv_bytes;
    if (!pl_engine_is_llm(w->service)) return;
    uint64_t step = pl_flag_number(s, "--max-num-batched-tokens|--chunked-prefill-size");
    f->step_tokens = step != 0 && step <= TOKENS_MOST ? step : STEP_TOKENS;
    f->planned_kv_bytes = pl_flag_number(s, "--kv-cache-memory-bytes|--kv-cache-memory");
    f->command_hash = pl_engine_hash(s);
    f->kv_tokens = known(load.kv_tokens);
    if (f->kv_tokens > TOKENS_MOST) f->kv_tokens = 0;
    f->block_tokens = known(load.block_tokens);
    f->kv_bytes = w->more->words.kv_bytes != 0 ? w->more->words.kv_bytes : f->kv_tokens * NOMINAL_BYTES;
    f->kv_used_ratio = load.kv_used_ratio;
    f->running = known(load.running);
    f->waiting = known(load.waiting);
    f->preemptions = known(load.preemptions);
    f->told_ms = pl_crew_now(w->service->crew);
    take_boot(w, &load);
    tell(w);
}

void pl_engine_planned(struct pl_service *s) {
    if (s->crew->resting) return;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->state != PL_WORKER_READY || w->more->engine.told_ms == 0) continue;
        w->more->engine.boot.plan = pl_planned_of(w);
        w->more->engine.plan_waits = pl_planned_waits(w);
        w->more->engine.plan_failed = pl_planned_failed(w);
        tell(w);
    }
}
