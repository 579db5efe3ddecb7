/* answer.h - what a client gets: JSON documents and event streams in OpenAI's shapes. Texts only; nothing is
 * sent here. */
#ifndef PL_LLAMA_ANSWER_H
#define PL_LLAMA_ANSWER_H
#include <stdint.h>

#include "base/buf.h"
#include "llama/ask.h"
#include "llama/sched.h"
#include "sampler.h"

/* What stands at the head of every document of one reply. */
struct pl_llm_answer {
    bool chat;
    char id[40];
    uint64_t created; /* seconds since 1970 */
    const char *model;
};

struct pl_llm_usage {
    int prompt, cached, out;
};

/* One piece of choice `index` for a stream; `logprobs` is JSON or empty; `why` NULL: it goes on. `first`:
 * with the role. */
void pl_llm_add_chunk(struct pl_buf *b, const struct pl_llm_answer *a, int index, bool first,
                      const char *text, size_t len, const struct pl_buf *logprobs, const char *why);
void pl_llm_add_usage_chunk(struct pl_buf *b, const struct pl_llm_answer *a, const struct pl_llm_usage *u);

struct pl_llm_choice_text {
    const struct pl_buf *text, *logprobs;
    const char *why;
};
void pl_llm_add_document(struct pl_buf *b, const struct pl_llm_answer *a,
                         const struct pl_llm_choice_text *choices, size_t count,
                         const struct pl_llm_usage *u);

/* One token's entry in the list `logprobs`, which begins empty. Chat's shape on both routes, as llama-server
 * has it. */
void pl_llm_add_chances(struct pl_buf *logprobs, const struct llama_vocab *v, const struct pl_llm_chances *c);

void pl_llm_add_embedding(struct pl_buf *b, size_t index, const float *values, int32_t count, bool base64);
const char *pl_llm_end_word(enum pl_llm_end why);
#endif
