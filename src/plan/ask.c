/* ask.c - the words of a wish: engine, expected lengths; the names of what a plan is made of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/inside.h"

static const char *const engines[PL_ENGINES] = { "vllm", "sglang", "llama.cpp", "torch" };

const char *pl_engine_name(enum pl_engine e) { return engines[e]; }

bool pl_engine_parse(const char *text, enum pl_engine *out, struct pl_err *err) {
    if (strcmp(text, "llama") == 0 || strcmp(text, "llama-server") == 0) text = "llama.cpp";
    for (int i = 0; i < PL_ENGINES; i++)
        if (strcmp(engines[i], text) == 0) return *out = (enum pl_engine)i, true;
    PL_FAIL(err, PL_E_USAGE, "no engine is called '%.40s'", text);
    return pl_err_hint(err, "vllm, sglang, llama.cpp or torch");
}

const char *pl_component_name(enum pl_component c) {
    static const char *const names[PL_PARTS] = { "weights", "activation", "graphs", "non_torch",
                                                 "foreign", "margin",     "kv" };
    return names[c];
}

static bool tokens(const char **at, uint64_t *out) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    unsigned long long n = strtoull(*at, &end, 10);
    if (n > PL_MODEL_TOKENS) return false;
    *out = n;
    *at = end;
    return true;
}

static bool bad_expect(const char *text, struct pl_err *err) {
    PL_FAIL(err, PL_E_USAGE, "--expect '%.60s': tokens in and out are wanted", text);
    return pl_err_hint(err, "2000+500, or with shares that make 100%%: 300+100:70%%,2000+500:30%%");
}

bool pl_expect_parse(const char *text, struct pl_expect out[PL_EXPECTS], size_t *count, struct pl_err *err) {
    const char *at = text;
    uint64_t sum = 0;
    size_t with_share = 0;
    for (*count = 0; *count < PL_EXPECTS; at++) {
        struct pl_expect *e = &out[*count];
        *e = (struct pl_expect){ .share = PL_SHARES };
        if (!tokens(&at, &e->in) || *at++ != '+' || !tokens(&at, &e->out) || e->in + e->out == 0)
            return bad_expect(text, err);
        if (*at == ':') {
            char *end;
            double share = strtod(++at, &end);
            if (end == at || !(share > 0 && share <= 100)) return bad_expect(text, err);
            if (*end == '%') {
                share /= 100;
                end++;
            }
            if (!(share <= 1)) return bad_expect(text, err);
            e->share = (uint32_t)(share * PL_SHARES + 0.5);
            at = end;
            with_share++;
        }
        sum += e->share;
        ++*count;
        if (*at == '\0') break;
        if (*at != ',') return bad_expect(text, err);
    }
    if (*at != '\0') return PL_FAIL(err, PL_E_USAGE, "--expect: more than %d kinds of request", PL_EXPECTS);
    if ((*count > 1 && with_share != *count) || sum < PL_SHARES - *count || sum > PL_SHARES + *count)
        return bad_expect(text, err);
    return true;
}

const char *pl_bytes_text(char text[24], uint64_t bytes) {
    if (bytes == UINT64_MAX) return snprintf(text, 24, "too large"), text;
    if (bytes >= UINT64_C(1) << 30)
        snprintf(text, 24, "%.3f GiB", (double)bytes / (double)(UINT64_C(1) << 30));
    else if (bytes >= UINT64_C(1) << 20)
        snprintf(text, 24, "%.2f MiB", (double)bytes / (double)(UINT64_C(1) << 20));
    else if (bytes >= 1024)
        snprintf(text, 24, "%.2f KiB", (double)bytes / 1024);
    else
        snprintf(text, 24, "%llu B", (unsigned long long)bytes);
    return text;
}
