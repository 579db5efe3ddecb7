/* plan.c - `plimsoll plan MODEL`: flags to a wish, files to a model, and the answer in the form asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_files.h"
#include "cli/verbs.h"
#include "plan/plan.h"

enum { NO_GPU_STATUS = 4, CANNOT_JUDGE_STATUS = 4, NO_OUTPUT_STATUS = 5 };

static bool small_count(const struct pl_args *args, const char *name, uint32_t *out, struct pl_err *err) {
    uint64_t n = 0;
    if (!pl_args_count(args, name, 1, 4096, &n, err)) return false;
    *out = (uint32_t)n;
    return true;
}

static bool share_flag(const struct pl_args *args, uint32_t *out, struct pl_err *err) {
    const char *text = pl_args_value(args, "utilization");
    char *end;
    if (text == NULL) return true;
    double x = strtod(text, &end);
    if (*end == '%' && end[1] == '\0')
        x /= 100;
    else if (*end != '\0')
        x = -1;
    if (!(x >= 0.01 && x <= 1))
        return PL_FAIL(err, PL_E_USAGE, "--utilization: '%.40s' is no share; 0.85 or 85%% is meant", text);
    *out = (uint32_t)(x * PL_SHARES + 0.5);
    return true;
}

static bool read_ask(const struct pl_args *args, bool gguf, struct pl_ask *a, struct pl_err *err) {
    const char *engine = pl_args_value(args, "flags"), *len = pl_args_value(args, "max-len"),
               *expect = pl_args_value(args, "expect");
    if (engine == NULL) engine = pl_args_value(args, "engine");
    *a = (struct pl_ask){ .engine = gguf ? PL_ENGINE_LLAMA : PL_ENGINE_VLLM,
                          .kv = pl_args_value(args, "kv"),
                          .eager = pl_args_has(args, "eager") };
    if (engine != NULL && !pl_engine_parse(engine, &a->engine, err)) return false;
    if (pl_args_has(args, "flags") && a->engine == PL_ENGINE_TORCH)
        return PL_FAIL(err, PL_E_USAGE,
                       "--flags torch: plain PyTorch has no command line; --yaml writes its limits");
    if (len != NULL && strcmp(len, "auto") == 0)
        a->longest = true;
    else if (!pl_args_count(args, "max-len", 1, PL_MODEL_TOKENS, &a->max_len, err))
        return false;
    if (expect != NULL && !pl_expect_parse(expect, a->expect, &a->expect_count, err)) return false;
    return pl_args_count(args, "concurrency", 1, 1000000, &a->concurrency, err) &&
           small_count(args, "tp", &a->tp, err) && small_count(args, "pp", &a->pp, err) &&
           small_count(args, "dp", &a->dp, err) &&
           pl_args_count(args, "batched-tokens", 16, 1 << 24, &a->batched, err) &&
           share_flag(args, &a->utilization, err);
}

/* true with `*status` 0, or false with the exit status that the failure has. */
static bool read_gpu(const struct pl_args *args, struct pl_gpu *gpu, int *status, struct pl_err *err) {
    const char *text = pl_args_value(args, "gpu"), *gib = pl_args_value(args, "total-gib");
    char given[64];
    *status = 2;
    if (gib != NULL) {
        if (text != NULL) return PL_FAIL(err, PL_E_USAGE, "--gpu and --total-gib: one of them");
        snprintf(given, sizeof given, "card:%.32sGiB", gib);
        return pl_gpu_parse(given, gpu, err);
    }
    if (text != NULL && strcmp(text, "auto") != 0) return pl_gpu_parse(text, gpu, err);
    *status = NO_GPU_STATUS;
    return pl_plan_cards(gpu, err);
}

static bool answer(const struct pl_args *args, const struct pl_plan *p, struct pl_arena *arena,
                   struct pl_buf *out, struct pl_buf *aside) {
    bool flags = pl_args_has(args, "flags"), yaml = pl_args_has(args, "yaml"), k8s = pl_args_has(args, "k8s");
    bool strategies = pl_args_has(args, "strategies"), explain = pl_args_has(args, "explain");
    if (args->json) return pl_plan_show_json(p, strategies, arena, out);
    if ((flags || yaml || k8s) && !p->fits)
        return pl_plan_show(p, explain, arena, aside); /* nothing to paste that would not start */
    if (strategies) return pl_plan_show_strategies(p, arena, out);
    if (!flags && !yaml && !k8s) return pl_plan_show(p, explain, arena, out);
    return (!flags || pl_plan_show_flags(p, out)) && (!yaml || pl_plan_show_yaml(p, out)) &&
           (!k8s || pl_plan_show_k8s(p, out));
}

int pl_verb_plan(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_ask ask;
    struct pl_gpu gpu;
    struct pl_buf out, aside;
    int status = 0;
    bool too_few;
    const char *record = pl_args_value(&cli->args, "record");
    struct pl_plan_files *files = pl_arena_alloc(cli->arena, sizeof *files);
    struct pl_plan *plan = pl_arena_alloc(cli->arena, sizeof *plan);
    if (files == NULL || plan == NULL) {
        PL_FAIL(&err, PL_E_NOMEM, "no memory for a plan");
        return pl_cli_fail(cli, &err);
    }
    /* what was typed is checked before anything is opened */
    if (record != NULL && pl_args_has(&cli->args, "expect")) {
        PL_FAIL(&err, PL_E_USAGE, "--expect and --record: one of them says what requests there are");
        return pl_cli_fail(cli, &err);
    }
    if (!read_ask(&cli->args, false, &ask, &err)) return pl_cli_fail(cli, &err);
    if (!read_gpu(&cli->args, &gpu, &status, &err)) {
        pl_cli_fail(cli, &err);
        return status;
    }
    if (!pl_plan_read(cli->args.words.at[0], cli->arena, files, &err)) return pl_cli_fail(cli, &err);
    if (!read_ask(&cli->args, files->gguf, &ask, &err)) return pl_cli_fail(cli, &err);
    bool paste = pl_args_has(&cli->args, "flags") || pl_args_has(&cli->args, "yaml");
    if (paste && ask.engine == PL_ENGINE_LLAMA && !files->gguf) {
        PL_FAIL(&err, PL_E_USAGE, "%s is no GGUF: llama.cpp cannot be started with it", files->target);
        pl_err_hint(&err, "convert it, and plan the .gguf");
        return pl_cli_fail(cli, &err);
    }
    if (record != NULL && !pl_plan_record(record, ask.expect, &ask.expect_count, &too_few, &err)) {
        status = pl_cli_fail(cli, &err);
        return too_few ? CANNOT_JUDGE_STATUS : status;
    }
    ask.gpu = gpu;
    ask.target = files->target;
    if (!pl_plan_make(&ask, &files->model, &files->weights, cli->arena, plan, &err))
        return pl_cli_fail(cli, &err);
    if (files->gguf && ask.engine == PL_ENGINE_LLAMA && plan->rank_count == 1) {
        struct pl_measured measured;
        pl_plan_measure(files->target, plan, cli->arena, &measured);
        pl_plan_measured(plan, &measured);
    }
    pl_buf_init(&out, 0);
    pl_buf_init(&aside, 0);
    bool ok = answer(&cli->args, plan, cli->arena, &out, &aside);
    if (out.len != 0) ok = fwrite(out.data, 1, out.len, stdout) == out.len && ok;
    if (aside.len != 0) fwrite(aside.data, 1, aside.len, stderr);
    pl_buf_free(&out);
    pl_buf_free(&aside);
    return ok ? pl_plan_status(plan) : NO_OUTPUT_STATUS;
}
