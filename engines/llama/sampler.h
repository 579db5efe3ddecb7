/* sampler.h - from a row of logits to one token. */
#ifndef PL_LLAMA_SAMPLER_H
#define PL_LLAMA_SAMPLER_H
#include <llama.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_LLM_BIASES = 1024, PL_LLM_TOP = 20 };

/* llama-server's names, ranges and defaults (pl_llm_sampling_default). */
struct pl_llm_sampling {
    float temperature, top_p, min_p, typical_p, top_n_sigma;
    int32_t top_k;
    float repeat_penalty, frequency_penalty, presence_penalty;
    int32_t repeat_last_n;
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_penalty_last_n;
    float xtc_probability, xtc_threshold;
    int32_t mirostat;
    float mirostat_tau, mirostat_eta;
    uint32_t seed;
    llama_logit_bias *biases; /* owned by whoever owns this */
    int32_t bias_count;
};
void pl_llm_sampling_default(struct pl_llm_sampling *s);

struct pl_llm_chance {
    llama_token token;
    float logprob;
};
/* What the model thought before anybody's sampling parameters: the chosen token, and the likeliest. */
struct pl_llm_chances {
    struct pl_llm_chance chosen, top[PL_LLM_TOP];
    int top_count;
};

struct pl_llm_sampler;
/* `grammar`: GBNF that pl_llm_grammar_fault let pass, or NULL. NULL: the grammar does not parse, or no
 * memory. */
struct pl_llm_sampler *pl_llm_sampler_make(const struct llama_model *m, const struct pl_llm_sampling *s,
                                           const char *grammar);
void pl_llm_sampler_free(struct pl_llm_sampler *s);

/* The k likeliest, the likeliest first, of equals the first one; how many there are. Most requests want no
 * more of a vocabulary, and copying and sorting all of it is a share of the time of a small model. */
size_t pl_llm_shortlist(const float *logits, int32_t n, size_t k, llama_token_data *out);

/* One token of the row. `room` has space for the whole vocabulary and is scratch. LLAMA_TOKEN_NULL: the
 * grammar forbids every token. `chances` may be NULL; else top_count says how many are wanted. */
llama_token pl_llm_sample(struct pl_llm_sampler *s, const float *logits, int32_t vocabulary,
                          llama_token_data *room, struct pl_llm_chances *chances);
#endif
