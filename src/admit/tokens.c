#include "admit/tokens.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUANTILES_EVERY = 16 };

static const double FORGET = 0.999;
static const double TRACE_MOST = 2000;
static const double WIDEST = 1e12; /* of a weight or a covariance */

const char *pl_token_source_name(enum pl_token_source s) {
    static const char *const names[] = {
#define X(sym, name) name,
        PL_TOKEN_SOURCES(X)
#undef X
    };
    return names[s];
}

static void features(const struct pl_text_counts *c, double x[PL_TOKEN_FEATURES]) {
    x[0] = 1;
    x[1] = (double)c->words;
    x[2] = (double)c->letters / 4;
    x[3] = (double)c->digits / 3;
    x[4] = (double)c->puncts;
    x[5] = (double)c->punct_runs;
    x[6] = (double)c->space_runs;
    x[7] = (double)c->two;
    x[8] = (double)c->three;
    x[9] = (double)c->cjk;
    x[10] = (double)c->hangul;
    x[11] = (double)c->four;
    /* what none of the others counts: white space inside runs, control bytes, bytes that begin nothing */
    x[12] = (double)c->bytes / 16;
}

static void open_up(struct pl_tokens *t) {
    memset(t->covariance, 0, sizeof t->covariance);
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) t->covariance[i][i] = 10;
}

void pl_tokens_init(struct pl_tokens *t) {
    static const double prior[PL_TOKEN_FEATURES] = { 8, 1, 0.15, 1, 0.5, 0.3, 0.1, 0.6, 1, 0.8, 0.8, 2, 0 };
    *t = (struct pl_tokens){ .factor = 1 };
    memcpy(t->weight, prior, sizeof prior);
    open_up(t);
}

static double weigh(const struct pl_tokens *t, const double x[PL_TOKEN_FEATURES], uint64_t bytes) {
    double y = 0, least = (double)bytes / 32;
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) y += x[i] * t->weight[i];
    if (y < least) y = least; /* a text unlike all before: weights may cancel out */
    return y > 1 ? y : 1;
}

static uint64_t whole(double tokens) { return tokens < 1e15 ? (uint64_t)ceil(tokens) : (uint64_t)1e15; }

struct pl_token_count pl_tokens_estimate(const struct pl_tokens *t, const struct pl_text_counts *text,
                                         uint64_t ids) {
    double x[PL_TOKEN_FEATURES], tokens;
    struct pl_token_count c = { 0 };
    if (text->bytes == 0 && ids != 0) return (struct pl_token_count){ ids, ids, PL_TOKENS_EXACT };
    features(text, x);
    tokens = weigh(t, x, text->bytes);
    c.tokens = whole(tokens) + ids;
    c.source = t->seen >= PL_TOKEN_KNOWN ? PL_TOKENS_CALIBRATED : PL_TOKENS_FALLBACK;
    /* Two bytes a token are fewer than any language needs with the vocabularies of today. */
    c.most = c.source == PL_TOKENS_CALIBRATED ? whole(tokens * t->factor) + ids : text->bytes / 2 + 32 + ids;
    return c;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void update_quantiles(struct pl_tokens *t) {
    float sorted[PL_TOKEN_WINDOW];
    size_t n = t->ratios < PL_TOKEN_WINDOW ? (size_t)t->ratios : PL_TOKEN_WINDOW;
    if (n < PL_TOKEN_KNOWN || (t->ratios % QUANTILES_EVERY != 0 && n != PL_TOKEN_KNOWN)) return;
    memcpy(sorted, t->ratio, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], by_value);
    t->factor = sorted[(n * 99 + 99) / 100 - 1] > 1 ? (double)sorted[(n * 99 + 99) / 100 - 1] : 1;
    for (size_t i = 0; i < n; i++) sorted[i] = fabsf(1 / sorted[i] - 1);
    qsort(sorted, n, sizeof sorted[0], by_value);
    t->error = (double)sorted[n / 2];
}

/* A token is a byte at least, apart from what a chat template adds, and not a page of text. */
static bool can_be(const struct pl_text_counts *text, uint64_t tokens) {
    return tokens > 0 && tokens <= 2 * text->bytes + 4096 && tokens >= text->bytes / 256;
}

/* Forgetting opens up what a service never sees, without end: past a point nothing is forgotten. */
static double forgetting(const struct pl_tokens *t) {
    double trace = 0;
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) trace += t->covariance[i][i];
    return trace < TRACE_MOST ? FORGET : 1;
}

bool pl_tokens_learn(struct pl_tokens *t, const struct pl_text_counts *text, uint64_t tokens) {
    double x[PL_TOKEN_FEATURES], px[PL_TOKEN_FEATURES], y = (double)tokens, predicted = 0;
    double forget = forgetting(t), denominator = forget;
    bool sound = true;
    if (!can_be(text, tokens)) return false;
    features(text, x);
    t->ratio[t->ratios++ % PL_TOKEN_WINDOW] = (float)(y / weigh(t, x, text->bytes));
    t->seen++;
    update_quantiles(t);
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) x[i] /= y;
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) {
        px[i] = 0;
        for (size_t k = 0; k < PL_TOKEN_FEATURES; k++) px[i] += t->covariance[i][k] * x[k];
        denominator += x[i] * px[i];
        predicted += x[i] * t->weight[i];
    }
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) t->weight[i] += px[i] / denominator * (1 - predicted);
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) {
        for (size_t k = i; k < PL_TOKEN_FEATURES; k++)
            t->covariance[i][k] = t->covariance[k][i] =
                (t->covariance[i][k] - px[i] * px[k] / denominator) / forget;
        sound = sound && t->covariance[i][i] > 0;
    }
    if (!sound) open_up(t); /* rounding has eaten it up */
    return true;
}

static bool is_sane(double v) { return isfinite(v) && fabs(v) < WIDEST; }

bool pl_tokens_check(struct pl_tokens *t) {
    bool sane = t->factor >= 1 && t->factor < 100 && t->error >= 0 && is_sane(t->error);
    for (size_t i = 0; i < PL_TOKEN_FEATURES; i++) {
        sane = sane && is_sane(t->weight[i]) && t->covariance[i][i] > 0;
        for (size_t k = 0; k < PL_TOKEN_FEATURES; k++) sane = sane && is_sane(t->covariance[i][k]);
    }
    if (!sane) pl_tokens_init(t);
    return sane;
}
