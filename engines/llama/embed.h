/* embed.h - embeddings: a second context on the same weights, one input at a time. */
#ifndef PL_LLAMA_EMBED_H
#define PL_LLAMA_EMBED_H
#include "llama/model.h"

struct pl_llm_embedder {
    struct llama_context *ctx;
    struct llama_batch batch;
    uint32_t longest; /* tokens of an input */
    int32_t width;    /* floats of a vector */
};
bool pl_llm_embedder_open(struct pl_llm_embedder *e, const struct pl_llm_model *m,
                          const struct pl_llm_options *o, struct pl_err *err);
void pl_llm_embedder_close(struct pl_llm_embedder *e);
/* Borrowed until the next call; NULL: computing failed. */
const float *pl_llm_embed(struct pl_llm_embedder *e, const llama_token *tokens, int count);
#endif
