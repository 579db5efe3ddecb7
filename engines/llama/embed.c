#include "llama/embed.h"

enum { LONGEST = 2048 };

bool pl_llm_embedder_open(struct pl_llm_embedder *e, const struct pl_llm_model *m,
                          const struct pl_llm_options *o, struct pl_err *err) {
    struct llama_context_params p = llama_context_default_params();
    *e =
        (struct pl_llm_embedder){ .longest = m->trained != 0 && m->trained < LONGEST ? m->trained : LONGEST };
    p.n_ctx = p.n_batch = p.n_ubatch = e->longest; /* models that look both ways need an input in one piece */
    p.n_seq_max = 1; /* more than one with MEAN pooling ends the process on causal models (llama.cpp 0.5.0) */
    p.n_outputs_max = 0; /* every token is an output */
    p.n_threads = p.n_threads_batch = (int32_t)o->threads;
    p.embeddings = true;
    p.pooling_type = LLAMA_POOLING_TYPE_UNSPECIFIED; /* the model's own */
    e->ctx = llama_init_from_model(m->model, p);
    if (e->ctx != NULL && llama_pooling_type(e->ctx) ==
                              LLAMA_POOLING_TYPE_NONE) { /* a model for text: the mean of its tokens */
        llama_free(e->ctx);
        p.pooling_type = LLAMA_POOLING_TYPE_MEAN;
        e->ctx = llama_init_from_model(m->model, p);
    }
    if (e->ctx == NULL)
        return PL_FAIL(err, PL_E_CONFIG, "%s: no context for embeddings could be made", o->model);
    e->width = llama_model_n_embd(m->model);
    e->batch = llama_batch_init((int32_t)e->longest, 0, 1);
    if (e->batch.token != NULL) return true;
    pl_llm_embedder_close(e);
    return PL_FAIL(err, PL_E_NOMEM, "%s: embeddings: out of memory", o->model);
}

void pl_llm_embedder_close(struct pl_llm_embedder *e) {
    if (e->batch.token != NULL) llama_batch_free(e->batch);
    if (e->ctx != NULL) llama_free(e->ctx);
    *e = (struct pl_llm_embedder){ 0 };
}

const float *pl_llm_embed(struct pl_llm_embedder *e, const llama_token *tokens, int count) {
    llama_memory_t memory = llama_get_memory(e->ctx);
    if (memory != NULL) llama_memory_clear(memory, true);
    e->batch.n_tokens = count;
    for (int i = 0; i < count; i++) {
        e->batch.token[i] = tokens[i];
        e->batch.pos[i] = i;
        e->batch.n_seq_id[i] = 1;
        e->batch.seq_id[i][0] = 0;
        e->batch.logits[i] = 1;
    }
    return llama_decode(e->ctx, e->batch) == 0 ? llama_get_embeddings_seq(e->ctx, 0) : NULL;
}
