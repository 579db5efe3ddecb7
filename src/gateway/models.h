/* gateway/models.h - what was learnt about each model of a service: how its prompts become tokens. */
#ifndef PL_GATEWAY_MODELS_H
#define PL_GATEWAY_MODELS_H
#include "admit/kv.h"
#include "admit/tokens.h"
#include "gateway/inside.h"
#include "http/json_scan.h"

#define PL_MODEL_UNNAMED "default" /* the label of requests that name no model */

struct pl_model {
    char name[PL_JSON_MODEL_MOST + 1];
    struct pl_tokens tokens;
    struct pl_answers answers;
    struct pl_series *input[PL_TOKENS_SOURCE_COUNT], *output, *cached, *error;
};

/* The engine has counted this text. */
void pl_model_learn(struct pl_gate *gate, struct pl_model *m, const struct pl_text_counts *text,
                    uint64_t tokens);
/* Under which name a request's model is kept. */
const char *pl_model_name(const struct pl_request *r);
/* NULL: nothing is known about it. */
struct pl_model *pl_model_find(const struct pl_gate *gate, const char *name);
/* Made at need; when there are PL_GATE_MODELS, the last one stands for all others. NULL without memory. Only
 * for names that a worker has answered to: clients can say any. */
struct pl_model *pl_model_of(struct pl_gate *gate, const char *name);
#endif
