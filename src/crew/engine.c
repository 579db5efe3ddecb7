/* engine.c - what an LLM engine tells of itself: its models and how much context they take (/v1/models, asked
 * once it is READY), its KV cache and its load (/metrics, with every scrape). Foreign words, each with
 * limits.
 *
 * Where an engine says how many tokens its cache holds but not how many bytes that is, a token counts as
 * NOMINAL_BYTES: shares of the budget are right then, its bytes are not. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "crew/more.h"
#include "sample/engine.h"

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

/* "--flag N", "--flag=N" of the command, or `flag: N` of engine_args; NULL: it is not there. */
static const char *flag_text(const struct pl_service_config *s, const char *flag, const char *key) {
    size_t n = strlen(flag);
    const char *text = NULL;
    for (size_t i = 1; i < s->command.count; i++) {
        const char *word = s->command.at[i];
        if (strncmp(word, flag, n) != 0) continue;
        if (word[n] == '=') text = word + n + 1;
        if (word[n] == '\0' && i + 1 < s->command.count) text = s->command.at[i + 1];
    }
    for (size_t i = 0; i < s->engine_args.count; i++)
        if (strcmp(s->engine_args.at[i].key, key) == 0) text = s->engine_args.at[i].value;
    return text;
}

/* A whole number, as vLLM reads it: 16M is 2^24, 16m 16,000,000. 0: it is none. */
static uint64_t flag_number(const struct pl_service_config *s, const char *flag, const char *key) {
    static const char units[] = "kmgtKMGT";
    const char *text = flag_text(s, flag, key);
    char *end = NULL;
    uint64_t value = text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0,
             times = 1;
    const char *unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        size_t power = (size_t)(unit - units) % 4 + 1;
        for (size_t i = 0; i < power; i++) times *= unit - units < 4 ? 1000 : 1024;
        end++;
    }
    if (end == NULL || *end != '\0' || __builtin_mul_overflow(value, times, &value)) return 0;
    return value <= INT64_MAX ? value : 0;
}

static uint64_t mix(uint64_t h, const char *text) { /* FNV-1a, the NUL that separates included */
    do h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    while (*text++ != '\0');
    return h;
}

static uint64_t hash_of(const struct pl_service_config *s) {
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < s->command.count; i++) h = mix(h, s->command.at[i]);
    for (size_t i = 0; i < s->engine_args.count; i++)
        h = mix(mix(h, s->engine_args.at[i].key), s->engine_args.at[i].value);
    return h;
}

void pl_engine_scraped(struct pl_worker *w, const char *text, size_t len) {
    struct pl_engine_load load;
    struct pl_engine_facts *f = &w->more->engine;
    const struct pl_service_config *s = w->service->config;
    if (!pl_engine_load_read(text, len, &load)) return;
    if (load.kv_bytes != PL_ENGINE_UNKNOWN) w->more->words.kv_bytes = load.kv_bytes;
    if (!pl_engine_is_llm(w->service)) return;
    uint64_t step = flag_number(s, "--max-num-batched-tokens", "max_num_batched_tokens");
    if (step == 0) step = flag_number(s, "--chunked-prefill-size", "chunked_prefill_size");
    f->step_tokens = step != 0 && step <= TOKENS_MOST ? step : STEP_TOKENS;
    f->planned_kv_bytes = flag_number(s, "--kv-cache-memory-bytes", "kv_cache_memory_bytes");
    f->command_hash = hash_of(s);
    f->kv_tokens = known(load.kv_tokens);
    if (f->kv_tokens > TOKENS_MOST) f->kv_tokens = 0;
    f->block_tokens = known(load.block_tokens);
    f->kv_bytes = w->more->words.kv_bytes != 0 ? w->more->words.kv_bytes : f->kv_tokens * NOMINAL_BYTES;
    f->kv_used_ratio = load.kv_used_ratio;
    f->running = known(load.running);
    f->waiting = known(load.waiting);
    f->preemptions = known(load.preemptions);
    f->told_ms = pl_crew_now(w->service->crew);
    tell(w);
}
