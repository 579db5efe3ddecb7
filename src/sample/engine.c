#include "sample/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample/promline.h"

enum { NUMBER_BYTES = 40, LINES = 100000 };

enum figure { RATIO, RUNNING, WAITING, PREEMPTIONS, KV_TOKENS, INFO };
static const struct {
    const char *name;
    enum figure figure;
} families[] = {
    { "vllm:num_requests_running", RUNNING },
    { "vllm:num_requests_waiting", WAITING },
    { "vllm:num_preemptions_total", PREEMPTIONS },
    { "vllm:kv_cache_usage_perc", RATIO },
    { "vllm:gpu_cache_usage_perc", RATIO }, /* until 0.9 */
    { "vllm:cache_config_info", INFO },
    { "sglang:num_running_reqs", RUNNING },
    { "sglang:num_queue_reqs", WAITING },
    { "sglang:token_usage", RATIO },
    { "sglang:max_total_num_tokens", KV_TOKENS },
    { "sglang:cache_config_info", INFO },
    { "llamacpp:requests_processing", RUNNING },
    { "llamacpp:requests_deferred", WAITING },
    { "llamacpp:kv_cache_usage_ratio", RATIO },
};

static bool is_number(struct pl_promword w, double *out) {
    char text[NUMBER_BYTES], *end;
    if (w.len == 0 || w.len >= sizeof text) return false;
    memcpy(text, w.at, w.len);
    text[w.len] = '\0';
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out) && *out >= 0;
}

/* A count that a double can hold exactly. */
static uint64_t count_of(struct pl_promword w) {
    double value;
    return is_number(w, &value) && value <= 9007199254740992.0 ? (uint64_t)value : PL_ENGINE_UNKNOWN;
}

static uint64_t label(const struct pl_promline *l, const char *name) {
    const struct pl_promlabel *found = pl_promline_label(l, name, strlen(name));
    return found != NULL ? count_of(found->value) : PL_ENGINE_UNKNOWN;
}

static void add(uint64_t *sum, uint64_t more) {
    if (more == PL_ENGINE_UNKNOWN) return;
    *sum = *sum == PL_ENGINE_UNKNOWN ? more : *sum + more;
}

static void largest(uint64_t *most, uint64_t value) {
    if (value != PL_ENGINE_UNKNOWN && (*most == PL_ENGINE_UNKNOWN || value > *most)) *most = value;
}

/* vLLM's and SGLang's words for the same. */
static void take_info(struct pl_engine_load *o, const struct pl_promline *l) {
    largest(&o->kv_bytes, label(l, "kv_cache_memory_bytes"));
    largest(&o->block_tokens, label(l, "block_size"));
    largest(&o->block_tokens, label(l, "page_size"));
    add(&o->kv_blocks, label(l, "num_gpu_blocks"));
    add(&o->kv_blocks, label(l, "num_pages"));
    add(&o->kv_tokens, label(l, "kv_cache_size_tokens"));
}

static void take(struct pl_engine_load *o, enum figure figure, const struct pl_promline *l) {
    double value;
    switch (figure) {
    case RATIO:
        if (is_number(l->value, &value) && value <= 1 && value > o->kv_used_ratio) o->kv_used_ratio = value;
        break;
    case RUNNING:
        add(&o->running, count_of(l->value));
        break;
    case WAITING:
        add(&o->waiting, count_of(l->value));
        break;
    case PREEMPTIONS:
        add(&o->preemptions, count_of(l->value));
        break;
    case KV_TOKENS:
        add(&o->kv_tokens, count_of(l->value));
        break;
    case INFO:
        take_info(o, l);
        break;
    }
}

static bool read_line(struct pl_engine_load *o, const char *line, size_t len) {
    struct pl_promline l;
    size_t name = pl_prom_name_length(line, len);
    for (size_t i = 0; name > 0 && i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].name) != name || memcmp(families[i].name, line, name) != 0) continue;
        if (len > PL_PROMTEXT_LINE || !pl_promline_parse(&l, line, len)) return false;
        take(o, families[i].figure, &l);
        return true;
    }
    return false;
}

bool pl_engine_load_read(const char *text, size_t len, struct pl_engine_load *out) {
    const uint64_t unknown = PL_ENGINE_UNKNOWN;
    bool any = false;
    unsigned lines = 0;
    *out = (struct pl_engine_load){ -1, unknown, unknown, unknown, unknown, unknown, unknown, unknown };
    for (const char *at = text, *end = text + len; at < end && lines < LINES; lines++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        if (*at != '#' && read_line(out, at, (size_t)(stop - at))) any = true;
        at = stop + 1;
    }
    bool has_blocks = out->kv_blocks != unknown && out->block_tokens != unknown;
    uint64_t tokens;
    if (out->kv_tokens == unknown && has_blocks &&
        !__builtin_mul_overflow(out->kv_blocks, out->block_tokens, &tokens))
        out->kv_tokens = tokens;
    return any;
}
