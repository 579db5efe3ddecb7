/* snippets.c - what to paste: the engine's command, a service of plimsoll.yaml, memory of a pod. */
#include <stdio.h>
#include <string.h>

#include "model/num.h"
#include "plan/inside.h"

/* A word for sh: quoted unless it is plain. */
static bool shell_word(struct pl_buf *b, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
    if (text[0] != '\0' && text[strspn(text, plain)] == '\0') return pl_buf_adds(b, text);
    bool ok = pl_buf_adds(b, "'");
    for (; *text != '\0' && ok; text++) ok = *text == '\'' ? pl_buf_adds(b, "'\\''") : pl_buf_add(b, text, 1);
    return ok && pl_buf_adds(b, "'");
}

bool pl_plan_show_flags(const struct pl_plan *p, struct pl_buf *b) {
    struct pl_command c;
    bool ok = true;
    pl_plan_command(p, &c);
    for (size_t i = 0; i < c.count && ok; i++) {
        char left[96];
        snprintf(left, sizeof left, "%s%s%s", c.flags[i].flag, c.flags[i].value[0] != '\0' ? " " : "",
                 c.flags[i].value);
        ok = pl_buf_addf(b, "# %-34s %s\n", left, c.flags[i].rule);
    }
    for (size_t i = 0; c.env[i] != NULL && ok; i++) ok = pl_buf_adds(b, c.env[i]) && pl_buf_adds(b, " ");
    for (size_t i = 0; c.program[i] != NULL && ok; i++)
        ok = pl_buf_addf(b, "%s%s", i != 0 ? " " : "", c.program[i]);
    if (c.model_flag != NULL) ok = ok && pl_buf_addf(b, " %s", c.model_flag);
    ok = ok && pl_buf_adds(b, " ") && shell_word(b, p->ask.target);
    for (size_t i = 0; i < c.count && ok; i++)
        ok = pl_buf_addf(b, " %s%s%s", c.flags[i].flag, c.flags[i].value[0] != '\0' ? " " : "",
                         c.flags[i].value);
    return ok && pl_buf_adds(b, "\n");
}

/* A service's name from the target: the last part of the path, made to fit [a-z0-9-]{1,40}. */
static void service_name(const char *target, char out[41]) {
    size_t len = strlen(target), n = 0;
    while (len > 1 && target[len - 1] == '/') len--;
    size_t from = len;
    while (from > 0 && target[from - 1] != '/') from--;
    for (; from < len && n < 40; from++) {
        char c = target[from];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) c = '-';
        if (c != '-' || (n > 0 && out[n - 1] != '-')) out[n++] = c;
    }
    while (n > 0 && out[n - 1] == '-') n--;
    if (n == 0) out[n++] = 'm';
    out[n] = '\0';
}

static bool yaml_engine(const struct pl_plan *p, struct pl_buf *b) {
    struct pl_command c;
    pl_plan_command(p, &c);
    bool vllm = p->ask.engine == PL_ENGINE_VLLM, ok = pl_buf_adds(b, "    command: [");
    for (size_t i = 0; c.program[i] != NULL && ok; i++) ok = pl_buf_addf(b, "%s, ", c.program[i]);
    if (c.model_flag != NULL) ok = ok && pl_buf_addf(b, "%s, ", c.model_flag);
    ok = ok && pl_buf_add_json(b, p->ask.target, strlen(p->ask.target));
    ok = ok && pl_buf_addf(b, ", --host, 127.0.0.1, --port, \"{port}\"]\n    engine: %s\n    engine_args:\n",
                           vllm ? "vllm" : "sglang");
    for (size_t i = 0; i < c.count && ok; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", c.flags[i].flag + 2);
        for (char *s = name; *s != '\0'; s++)
            if (*s == '-') *s = '_';
        ok = pl_buf_addf(b, "      %s: %s\n", name, c.flags[i].value[0] != '\0' ? c.flags[i].value : "true");
    }
    ok = ok && pl_buf_adds(b, "    env: {");
    for (size_t i = 0; c.env[i] != NULL && ok; i++) {
        const char *equals = strchr(c.env[i], '=');
        ok = pl_buf_addf(b, "%s%.*s: \"%s\"", i != 0 ? ", " : "", (int)(equals - c.env[i]), c.env[i],
                         equals + 1);
    }
    return ok && pl_buf_adds(b, "}\n");
}

bool pl_plan_show_yaml(const struct pl_plan *p, struct pl_buf *b) {
    char name[41];
    service_name(p->ask.target, name);
    uint64_t in = 0, out = 0, at_once = pl_max(p->capacity, 1);
    for (size_t i = 0; i < p->ask.expect_count; i++) {
        in = pl_max(in, p->ask.expect[i].in);
        out = pl_max(out, p->ask.expect[i].out);
    }
    bool ok = pl_buf_addf(b, "services:\n  %s:\n", name);
    if (p->ask.engine == PL_ENGINE_LLAMA) {
        ok = ok && pl_buf_adds(b, "    model: ") && pl_buf_add_json(b, p->ask.target, strlen(p->ask.target));
        ok = ok &&
             pl_buf_addf(
                 b, "\n    llama: {ctx_size: %llu, parallel: %llu, cache_type_k: %s, cache_type_v: %s}\n",
                 (unsigned long long)p->ctx, (unsigned long long)p->parallel, p->ask.kv, p->ask.kv);
        at_once = p->parallel;
    } else if (p->ask.engine == PL_ENGINE_TORCH) {
        ok = ok && pl_buf_adds(b, "    run: service:Service # yours\n");
    } else {
        ok = ok && yaml_engine(p, b);
    }
    ok = ok && pl_buf_addf(b, "    gpus_per_worker: %u\n", p->cards);
    if (p->capacity != UINT64_MAX)
        ok = ok && pl_buf_addf(b, "    traffic: {max_concurrency: %llu}\n",
                               (unsigned long long)pl_min(at_once, 100000));
    if (!p->expect_assumed)
        ok = ok && pl_buf_addf(b, "    limits: {input_tokens: %llu}\n    plan: {expect: %llu+%llu}\n",
                               (unsigned long long)pl_less(p->max_len, 1), (unsigned long long)in,
                               (unsigned long long)out);
    return ok && pl_buf_addf(b, "    memory: {margin: %u%%, alarm: 90%%}\n",
                             (PL_SHARES - p->ask.utilization + 9) / 10);
}

bool pl_plan_show_k8s(const struct pl_plan *p, struct pl_buf *b) {
    const struct pl_weights *w = p->weights;
    bool llama = p->ask.engine == PL_ENGINE_LLAMA, torch = p->ask.engine == PL_ENGINE_TORCH;
    uint64_t cards = p->cards,
             python = llama   ? 0
                      : torch ? 1
                              : 2 + cards,
             shm = llama || torch ? 0 : cards * PL_GIB;
    uint64_t load = w->origin == PL_WEIGHTS_HEADER ? (llama ? w->embed : w->largest_file) : w->total;
    uint64_t peak = pl_add(pl_add(python * PL_GIB, cards * 3 * PL_GIB), pl_add(load, shm));
    uint64_t limit = pl_round_up(pl_add(peak, peak / 5), 256 * PL_MIB) / PL_MIB;
    char text[24];
    bool ok = pl_buf_addf(
        b,
        "# provisional: measure the peak over load, warm-up and one replacement, then x 1.2\n"
        "# %llu GiB of Python processes + 3 GiB of CUDA host memory a card + %s while loading + %llu GiB "
        "shared memory, x 1.2\n",
        (unsigned long long)python, pl_bytes_text(text, load), (unsigned long long)(shm / PL_GIB));
    ok = ok &&
         pl_buf_addf(
             b, "resources:\n  requests: {memory: %lluMi}\n  limits: {memory: %lluMi, nvidia.com/gpu: %u}\n",
             (unsigned long long)limit, (unsigned long long)limit, p->cards);
    if (shm != 0)
        ok = ok && pl_buf_addf(b,
                               "# volumes: the default of 64 MB is too small; it counts toward the limit\n- "
                               "name: shm\n  emptyDir: {medium: Memory, sizeLimit: %lluMi}\n",
                               (unsigned long long)(shm / PL_MIB));
    return ok;
}
