#include "worker/boot_plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine.h"
#include "worker/flags.h"

enum { WORD_BYTES = 160 };

/* What an engine calls what a plan asks for. "": it has no such flag. */
struct names {
    enum pl_cfg_engine word;
    const char *engine; /* as `plimsoll plan` calls it */
    const char *model, *length, *dtype, *tp, *pp, *dp, *share, *step, *eager;
};
static const struct names known[] = {
    { PL_CFG_ENGINE_VLLM, "vllm", "--model", "--max-model-len", "--kv-cache-dtype",
      "--tensor-parallel-size|-tp", "--pipeline-parallel-size|-pp", "--data-parallel-size|-dp",
      "--gpu-memory-utilization", "--max-num-batched-tokens", "--enforce-eager" },
    { PL_CFG_ENGINE_SGLANG, "sglang", "--model-path|--model", "--context-length", "--kv-cache-dtype",
      "--tensor-parallel-size|--tp-size|--tp", "--pipeline-parallel-size|--pp-size",
      "--data-parallel-size|--dp-size|--dp", "--mem-fraction-static", "--chunked-prefill-size",
      "--disable-cuda-graph" },
    { PL_CFG_ENGINE_LLAMA_SERVER, "llama.cpp", "--model|-m", "--ctx-size|-c", "--cache-type-k|-ctk", "", "",
      "", "", "", "" },
};

static const struct names *names_of(const struct pl_service_config *s) {
    if (pl_kind_of(s) != PL_KIND_COMMAND) return NULL;
    const struct pl_engine *e = pl_engine_of(s);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].word == e->word) return &known[i];
    return NULL;
}

const char *pl_boot_plan_model(const struct pl_service_config *s) {
    const struct names *n = names_of(s);
    const char *flag = n != NULL ? pl_flag_text(s, n->model) : NULL;
    if (n == NULL || flag != NULL) return flag;
    const struct pl_engine *e = pl_engine_of(s);
    for (size_t i = 1; e->verb != NULL && e->verb[0] != '\0' && i + 1 < s->command.count; i++)
        if (strcmp(s->command.at[i], e->verb) == 0)
            return s->command.at[i + 1][0] != '-' ? s->command.at[i + 1] : NULL; /* vllm serve MODEL */
    return NULL;
}

/* --- words */

struct list {
    const char **at;
    size_t count;
    struct pl_arena *arena;
    bool failed;
};

static void add(struct list *l, const char *word) {
    if (word == NULL || l->count + 1 >= PL_BOOT_PLAN_WORDS)
        l->failed = true;
    else
        l->at[l->count++] = word;
}

static void add_text(struct list *l, const char *flag, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add_text(struct list *l, const char *flag, const char *fmt, ...) {
    char text[WORD_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add(l, flag);
    add(l, n > 0 && n < WORD_BYTES ? pl_arena_strndup(l->arena, text, (size_t)n) : NULL);
}

static uint64_t number(const struct pl_service_config *s, const char *names) {
    return names[0] != '\0' ? pl_flag_number(s, names) : 0;
}

/* A share between 1 % and all; what cannot be is left to the plan's default. */
static double share_of(const struct pl_service_config *s, const struct names *n) {
    const char *text = n->share[0] != '\0' ? pl_flag_text(s, n->share) : NULL;
    char *end = NULL;
    double share = text != NULL ? strtod(text, &end) : 0;
    if (text != NULL && *end == '\0' && share >= 0.01 && share <= 1) return share;
    return strcmp(n->engine, "vllm") == 0 ? 0.92 : 0;
}

static void add_length(struct list *l, const struct pl_service_config *s, const struct names *n) {
    const char *text = pl_flag_text(s, n->length);
    uint64_t length = pl_flag_number(s, n->length);
    if (length > 0)
        add_text(l, "--max-len", "%" PRIu64, length);
    else if (text != NULL && (strcmp(text, "auto") == 0 || strcmp(text, "-1") == 0))
        add_text(l, "--max-len", "auto");
}

static void add_dtype(struct list *l, const struct pl_service_config *s, const struct names *n) {
    const char *text = pl_flag_text(s, n->dtype);
    if (text == NULL || strcmp(text, "auto") == 0) return;
    add_text(l, "--kv", "%s",
             strcmp(text, "bfloat16") == 0  ? "bf16"
             : strcmp(text, "float16") == 0 ? "f16"
                                            : text);
}

static void add_cards(struct list *l, const struct pl_service_config *s, const struct names *n,
                      const struct pl_boot_device *d) {
    uint64_t each[3] = { number(s, n->tp), number(s, n->pp), number(s, n->dp) }, cards = 1;
    static const char *const flags[3] = { "--tp", "--pp", "--dp" };
    for (int i = 0; i < 3; i++) {
        if (each[i] == 0) each[i] = 1;
        if (each[i] > 4096 || (cards *= each[i]) > 4096) l->failed = true;
    }
    /* with a count behind it, so that an x in a product's name is none */
    add_text(l, "--gpu", "%.60s:%" PRIu64 "KiBx%" PRIu64, d->product != NULL ? d->product : "host",
             d->total_bytes >> 10, cards);
    for (int i = 0; i < 3; i++) add_text(l, flags[i], "%" PRIu64, each[i]);
}

bool pl_boot_plan_words(const struct pl_service_config *s, const char *model, const struct pl_boot_device *d,
                        struct pl_arena *arena, const char *words[PL_BOOT_PLAN_WORDS]) {
    struct list l = { .at = words, .arena = arena };
    const struct names *n = names_of(s);
    if (n == NULL || d->total_bytes == 0) return false;
    add(&l, "plan");
    add(&l, pl_arena_strndup(arena, model, strlen(model)));
    add(&l, "--json");
    add_text(&l, "--engine", "%s", n->engine);
    add_cards(&l, s, n, d);
    add_length(&l, s, n);
    add_dtype(&l, s, n);
    double share = share_of(s, n);
    if (share > 0) add_text(&l, "--utilization", "%.3f", share);
    uint64_t step = number(s, n->step);
    if (step > 0) add_text(&l, "--batched-tokens", "%" PRIu64, step);
    if (n->eager[0] != '\0' && pl_flag_switch(s, n->eager)) add(&l, "--eager");
    words[l.count] = NULL;
    return !l.failed;
}
