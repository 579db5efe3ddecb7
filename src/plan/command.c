/* command.c - the engine's command line that makes the plan true. Names and defaults: vLLM 0.32, SGLang
 * 004813e1, llama.cpp 0.5.0. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

enum { SHUTDOWN_S = 60 };

static void flag(struct pl_command *c, const char *name, const char *rule, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void flag(struct pl_command *c, const char *name, const char *rule, const char *fmt, ...) {
    va_list ap;
    if (c->count == PL_FLAGS) return;
    struct pl_engine_flag *f = &c->flags[c->count++];
    *f = (struct pl_engine_flag){ .flag = name, .rule = rule };
    va_start(ap, fmt);
    vsnprintf(f->value, sizeof f->value, fmt, ap);
    va_end(ap);
}

static unsigned long long running(const struct pl_plan *p) {
    uint64_t each = p->capacity / pl_max(p->ask.dp, 1);
    return pl_max(pl_min(each, pl_default_seqs(p->ask.gpu.class)), 1);
}

/* The share of the card that the engine is told: what others hold comes off it, or it would refuse to start.
 * Never rounded up. */
static const char *share(const struct pl_plan *p, char text[16]) {
    const struct pl_gpu *g = &p->ask.gpu;
    uint64_t foreign = pl_cdiv(pl_mul(g->foreign_bytes, PL_SHARES), pl_max(g->total_bytes, 1));
    unsigned of = (unsigned)pl_max(pl_less(p->ask.utilization, foreign), 1);
    if (of >= PL_SHARES)
        snprintf(text, 16, "1.00");
    else if (of % 10 == 0)
        snprintf(text, 16, "0.%02u", of / 10);
    else
        snprintf(text, 16, "0.%03u", of);
    return text;
}

static void vllm(const struct pl_plan *p, struct pl_command *c) {
    const struct pl_ask *a = &p->ask;
    char text[16];
    c->program[0] = "vllm";
    c->program[1] = "serve";
    c->env[0] = "VLLM_NO_USAGE_STATS=1";
    c->env[1] = "HF_HUB_OFFLINE=1";
    flag(c, "--gpu-memory-utilization",
         "share of the whole card; 0.85 to 0.90 leaves the margin, the default 0.92 does not", "%s",
         share(p, text));
    flag(c, "--max-model-len", "always a number: the default is whatever the model says", "%llu",
         (unsigned long long)p->max_len);
    flag(c, "--max-num-seqs", "requests of the expected length that fit; more would be preempted", "%llu",
         running(p));
    flag(c, "--max-num-batched-tokens", "tokens of one step: what activation and windows were planned with",
         "%llu", (unsigned long long)a->batched);
    if (a->tp > 1) flag(c, "--tensor-parallel-size", "cards that share every layer", "%u", a->tp);
    if (a->pp > 1) flag(c, "--pipeline-parallel-size", "cards one behind the other", "%u", a->pp);
    if (a->dp > 1) flag(c, "--data-parallel-size", "full copies", "%u", a->dp);
    if (a->dp > 1 && p->model->experts != 0)
        flag(c, "--enable-expert-parallel", "experts are spread over the copies", "%s", "");
    if (strcmp(a->gpu.product, "Tesla T4") == 0 && p->model->dtype == PL_DTYPE_BF16)
        flag(c, "--dtype", "this card has no bfloat16", "%s", "half");
    if (strcmp(a->kv, "auto") != 0)
        flag(c, "--kv-cache-dtype", "as asked for", "%s", strcmp(a->kv, "bf16") == 0 ? "bfloat16" : a->kv);
    if (a->eager)
        flag(c, "--enforce-eager", "no CUDA graphs: their memory goes to KV, each step costs more", "%s", "");
    flag(c, "--shutdown-timeout", "the default 0 loses requests at SIGTERM", "%d", SHUTDOWN_S);
    flag(c, "--enable-server-load-tracking", "so that the load can be read", "%s", "");
}

static void sglang(const struct pl_plan *p, struct pl_command *c) {
    const struct pl_ask *a = &p->ask;
    char text[16];
    static const char *const program[] = { "python3", "-m", "sglang.launch_server" };
    memcpy(c->program, program, sizeof program);
    c->model_flag = "--model-path";
    c->env[0] = "HF_HUB_OFFLINE=1";
    flag(c, "--mem-fraction-static", "weights and KV; the rest is for activation and graphs", "%s",
         share(p, text));
    flag(c, "--context-length", "always a number", "%llu", (unsigned long long)p->max_len);
    flag(c, "--max-running-requests", "requests of the expected length that fit; more would be retracted",
         "%llu", running(p));
    flag(c, "--chunked-prefill-size", "tokens of one step: what activation was planned with", "%llu",
         (unsigned long long)a->batched);
    if (a->tp > 1) flag(c, "--tp", "cards that share every layer", "%u", a->tp);
    if (a->pp > 1) flag(c, "--pp-size", "cards one behind the other", "%u", a->pp);
    if (a->dp > 1) flag(c, "--dp", "full copies", "%u", a->dp);
    if (p->kv_type->bits == 8)
        flag(c, "--kv-cache-dtype", "as asked for", "%s",
             strcmp(a->kv, "fp8_e5m2") == 0 ? "fp8_e5m2" : "fp8_e4m3");
    if (a->eager) flag(c, "--disable-cuda-graph", "their memory goes to KV, each step costs more", "%s", "");
    flag(c, "--enable-metrics", "so that pool and queue can be read", "%s", "");
}

static void llama(const struct pl_plan *p, struct pl_command *c) {
    c->program[0] = "llama-server";
    c->model_flag = "-m";
    c->env[0] = "GGML_NO_BACKTRACE=1";
    flag(c, "-c", "cells of all sequences together; the default is the trained context", "%llu",
         (unsigned long long)p->ctx);
    flag(c, "-np", "sequences; the default lets four slots share one context", "%llu",
         (unsigned long long)p->parallel);
    flag(c, "--kv-unified", "one pool for all sequences", "%s", "");
    flag(c, "-b", "the default, said so that it stays", "%d", 2048);
    flag(c, "-ub", "micro-batch that the compute buffer was planned with", "%d", 512);
    flag(c, "-ngl", "every layer on the card", "%d", 999);
    if (strcmp(p->ask.kv, "f16") != 0) {
        flag(c, "-ctk", "as asked for", "%s", p->ask.kv);
        flag(c, "-ctv", "as asked for", "%s", p->ask.kv);
        flag(c, "-fa", "a quantised value cache needs flash attention", "%s", "on");
    }
    if (p->cards > 1) flag(c, "--split-mode", "whole layers on each card", "%s", "layer");
    flag(c, "-cram", "the default keeps up to 8192 MiB of prompts in host memory", "%d", 0);
    flag(c, "--fit", "nothing is changed silently", "%s", "off");
    flag(c, "--metrics", "so that it can be watched", "%s", "");
}

void pl_plan_command(const struct pl_plan *p, struct pl_command *out) {
    *out = (struct pl_command){ .count = 0 };
    switch (p->ask.engine) {
    case PL_ENGINE_VLLM:
        vllm(p, out);
        break;
    case PL_ENGINE_SGLANG:
        sglang(p, out);
        break;
    case PL_ENGINE_LLAMA:
        llama(p, out);
        break;
    case PL_ENGINE_TORCH:
    case PL_ENGINES:
        break;
    }
}
