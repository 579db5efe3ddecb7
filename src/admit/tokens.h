/* admit/tokens.h - how many tokens a prompt will be, without a tokenizer: counts of byte classes, weighted by
 * recursive least squares that learns from usage.prompt_tokens of finished requests. One for each model.
 *
 * Recursive least squares on the relative error (features and target divided by the true count), forgetting
 * 0.999; then the 99 % quantile of true/estimated over the last requests is what to multiply by so that one
 * in a hundred is charged too little. Method and figures: docs/admission.md. Pure.
 */
#ifndef PL_ADMIT_TOKENS_H
#define PL_ADMIT_TOKENS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text_count.h"

enum {
    PL_TOKEN_FEATURES = 13,
    PL_TOKEN_WINDOW = 512,
    PL_TOKEN_KNOWN = 20, /* true counts before the estimate is trusted */
};

/* How a count came about; names in metrics and logs. */
#define PL_TOKEN_SOURCES(X) X(EXACT, "exact") X(CALIBRATED, "calibrated") X(FALLBACK, "fallback")
enum pl_token_source {
#define X(sym, name) PL_TOKENS_##sym,
    PL_TOKEN_SOURCES(X)
#undef X
        PL_TOKENS_SOURCE_COUNT
};
const char *pl_token_source_name(enum pl_token_source s);

struct pl_tokens {
    double weight[PL_TOKEN_FEATURES];
    double covariance[PL_TOKEN_FEATURES][PL_TOKEN_FEATURES];
    float ratio[PL_TOKEN_WINDOW]; /* true / estimated of the latest requests */
    uint64_t seen;                /* true counts, in all its life */
    uint64_t ratios;              /* of them since it was made or restored: those in `ratio` */
    double factor;                /* to multiply by */
    double error;                 /* median of |estimated / true - 1|; 0: not known */
};

struct pl_token_count {
    uint64_t tokens; /* most likely */
    uint64_t most;   /* to charge: more in one of a hundred requests */
    enum pl_token_source source;
};

void pl_tokens_init(struct pl_tokens *t);
/* `ids`: tokens that were given as such, beside the text. */
struct pl_token_count pl_tokens_estimate(const struct pl_tokens *t, const struct pl_text_counts *text,
                                         uint64_t ids);
/* `tokens`: what the engine counted. False: it cannot be the count of this text, and nothing was learnt. */
bool pl_tokens_learn(struct pl_tokens *t, const struct pl_text_counts *text, uint64_t tokens);
/* After weights, covariance, factor and seen were restored: false if they are no estimator (not finite, or
 * out of all proportion); it begins anew then. */
bool pl_tokens_check(struct pl_tokens *t);
#endif
