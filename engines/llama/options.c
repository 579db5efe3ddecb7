#include "llama/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL = 1,
    FD,
    CTX,
    PARALLEL,
    BATCH,
    UBATCH,
    THREADS,
    LAYERS,
    SPLIT,
    TENSORS,
    MAIN,
    TYPE_K,
    TYPE_V,
    FLASH,
    SWA,
    EMBED,
    ADMISSION,
    SHARING,
    TEMPLATE,
    SYSTEM,
    ALIAS,
    QUEUE,
    WAIT,
    MAX_TOKENS,
    MEMORY,
    VERBOSE,
    MEASURE
};

static const struct option words[] = {
    { "model", 1, NULL, MODEL },         { "fd", 1, NULL, FD },
    { "ctx-size", 1, NULL, CTX },        { "parallel", 1, NULL, PARALLEL },
    { "batch-size", 1, NULL, BATCH },    { "ubatch-size", 1, NULL, UBATCH },
    { "threads", 1, NULL, THREADS },     { "n-gpu-layers", 1, NULL, LAYERS },
    { "split-mode", 1, NULL, SPLIT },    { "tensor-split", 1, NULL, TENSORS },
    { "main-gpu", 1, NULL, MAIN },       { "cache-type-k", 1, NULL, TYPE_K },
    { "cache-type-v", 1, NULL, TYPE_V }, { "flash-attn", 1, NULL, FLASH },
    { "swa-full", 0, NULL, SWA },        { "embeddings", 0, NULL, EMBED },
    { "admission", 1, NULL, ADMISSION }, { "prefix-sharing", 1, NULL, SHARING },
    { "template", 1, NULL, TEMPLATE },   { "system-default", 1, NULL, SYSTEM },
    { "alias", 1, NULL, ALIAS },         { "queue", 1, NULL, QUEUE },
    { "max-wait-ms", 1, NULL, WAIT },    { "max-tokens", 1, NULL, MAX_TOKENS },
    { "memory-limit", 1, NULL, MEMORY }, { "verbose", 0, NULL, VERBOSE },
    { "measure", 0, NULL, MEASURE },     { NULL, 0, NULL, 0 },
};

/* A choice by its word; the answer stands beside it. */
struct choice {
    const char *word;
    int means;
};

static bool chosen(const struct choice *list, const char *flag, const char *text, int *out,
                   struct pl_err *err) {
    for (const struct choice *c = list; c->word != NULL; c++)
        if (strcmp(c->word, text) == 0) {
            *out = c->means;
            return true;
        }
    PL_FAIL(err, PL_E_USAGE, "--%s %s: not a value it can have", flag, text);
    return pl_err_hint(err, "one of %s, %s …", list[0].word, list[1].word);
}

static bool number(const char *flag, const char *text, uint64_t low, uint64_t high, uint64_t *out,
                   struct pl_err *err) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || n < low || n > high)
        return PL_FAIL(err, PL_E_USAGE, "--%s %s: a number from %llu to %llu", flag, text,
                       (unsigned long long)low, (unsigned long long)high);
    *out = n;
    return true;
}

/* Number formats a KV cache can have in llama.cpp. */
static const struct choice types[] = {
    { "f16", GGML_TYPE_F16 },       { "q8_0", GGML_TYPE_Q8_0 },
    { "f32", GGML_TYPE_F32 },       { "bf16", GGML_TYPE_BF16 },
    { "q4_0", GGML_TYPE_Q4_0 },     { "q4_1", GGML_TYPE_Q4_1 },
    { "q5_0", GGML_TYPE_Q5_0 },     { "q5_1", GGML_TYPE_Q5_1 },
    { "iq4_nl", GGML_TYPE_IQ4_NL }, { NULL, 0 },
};
static const struct choice splits[] = { { "layer", LLAMA_SPLIT_MODE_LAYER },
                                        { "row", LLAMA_SPLIT_MODE_ROW },
                                        { "none", LLAMA_SPLIT_MODE_NONE },
                                        { NULL, 0 } };
static const struct choice flashes[] = { { "auto", LLAMA_FLASH_ATTN_TYPE_AUTO },
                                         { "on", LLAMA_FLASH_ATTN_TYPE_ENABLED },
                                         { "off", LLAMA_FLASH_ATTN_TYPE_DISABLED },
                                         { NULL, 0 } };
static const struct choice admissions[] = { { "worst", 0 }, { "optimistic", 1 }, { NULL, 0 } };
static const struct choice switches[] = {
    { "on", 1 }, { "off", 0 }, { "true", 1 }, { "false", 0 }, { NULL, 0 }
};

static bool tensor_split(const char *text, struct pl_llm_options *o, struct pl_err *err) {
    size_t count = 0, most = sizeof o->tensor_split / sizeof o->tensor_split[0];
    for (const char *at = text; count < most; at++) {
        char *end;
        float part = strtof(at, &end);
        if (end == at || part < 0 || (*end != ',' && *end != '\0')) break;
        o->tensor_split[count++] = part;
        at = end;
        if (*end == '\0') {
            o->has_tensor_split = true;
            return true;
        }
    }
    return PL_FAIL(err, PL_E_USAGE, "--tensor-split %s: at most %zu numbers with commas between", text, most);
}

static bool take(int word, const char *flag, struct pl_llm_options *o, struct pl_err *err) {
    uint64_t n = 0;
    int means = 0;
    switch (word) {
    case MODEL:
        o->model = optarg;
        return true;
    case TEMPLATE:
        o->template_name = optarg;
        return true;
    case SYSTEM:
        o->system_default = optarg;
        return true;
    case ALIAS:
        o->aliases = optarg;
        return true;
    case SWA:
        o->swa_full = true;
        return true;
    case EMBED:
        o->embeddings = true;
        return true;
    case VERBOSE:
        o->verbose = true;
        return true;
    case MEASURE:
        o->measure = true;
        return true;
    case TENSORS:
        return tensor_split(optarg, o, err);
    case SPLIT:
        if (!chosen(splits, flag, optarg, &means, err)) return false;
        o->split_mode = (enum llama_split_mode)means;
        return true;
    case FLASH:
        if (!chosen(flashes, flag, optarg, &means, err)) return false;
        o->flash_attn = (enum llama_flash_attn_type)means;
        return true;
    case TYPE_K:
    case TYPE_V:
        if (!chosen(types, flag, optarg, &means, err)) return false;
        *(word == TYPE_K ? &o->cache_type_k : &o->cache_type_v) = (enum ggml_type)means;
        return true;
    case ADMISSION:
    case SHARING:
        if (!chosen(word == ADMISSION ? admissions : switches, flag, optarg, &means, err)) return false;
        *(word == ADMISSION ? &o->optimistic : &o->prefix_sharing) = means != 0;
        return true;
    case MEMORY:
        return number(flag, optarg, 0, UINT64_MAX, &o->memory_limit, err);
    default:
        break;
    }
    if (!number(flag, optarg, word == BATCH || word == UBATCH ? 1 : 0, 1000000000, &n, err)) return false;
    switch (word) {
    case FD:
        o->listener = (int)n;
        break;
    case CTX:
        o->ctx_size = (uint32_t)n;
        break;
    case PARALLEL:
        o->parallel = (uint32_t)n;
        break;
    case BATCH:
        o->batch_size = (uint32_t)n;
        break;
    case UBATCH:
        o->ubatch_size = (uint32_t)n;
        break;
    case THREADS:
        o->threads = (uint32_t)n;
        break;
    case LAYERS:
        o->n_gpu_layers = (int32_t)n;
        break;
    case MAIN:
        o->main_gpu = (int32_t)n;
        break;
    case WAIT:
        o->max_wait_s = (double)n / 1000;
        break;
    case QUEUE:
        o->queue = (uint32_t)n;
        break;
    default:
        o->max_tokens = (uint32_t)n;
        break;
    }
    return true;
}

bool pl_llm_options(int argc, char **argv, struct pl_llm_options *o, struct pl_err *err) {
    *o = (struct pl_llm_options){ .listener = -1,
                                  .batch_size = 2048,
                                  .ubatch_size = 512,
                                  .n_gpu_layers = -1,
                                  .split_mode = LLAMA_SPLIT_MODE_LAYER,
                                  .cache_type_k = GGML_TYPE_F16,
                                  .cache_type_v = GGML_TYPE_F16,
                                  .flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO,
                                  .prefix_sharing = true,
                                  .queue = 256 };
    opterr = 0;
    for (int at = 0, word; (word = getopt_long(argc, argv, "", words, &at)) != -1;) {
        if (word == '?')
            return PL_FAIL(err, PL_E_USAGE, "%s: no such option, or its value is missing", argv[optind - 1]);
        if (!take(word, words[at].name, o, err)) return false;
    }
    if (optind < argc) return PL_FAIL(err, PL_E_USAGE, "%s: what is that for", argv[optind]);
    if (o->model == NULL) return PL_FAIL(err, PL_E_USAGE, "--model FILE.gguf is missing");
    if (o->listener == -1 && !o->measure)
        return PL_FAIL(err, PL_E_USAGE, "--fd N, the listening socket, is missing");
    if (o->parallel > llama_max_parallel_sequences() - PL_LLM_SPARE_SEQUENCES)
        return PL_FAIL(err, PL_E_USAGE,
                       "--parallel %u: llama.cpp has at most %zu sequences, %d of them are for beginnings",
                       o->parallel, llama_max_parallel_sequences(), PL_LLM_SPARE_SEQUENCES);
    return true;
}
