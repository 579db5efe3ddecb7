/* ask.h - a request's JSON as a plain value: what is asked for, checked, with the place of what is wrong.
 *
 * OpenAI's names, and llama-server's for samplers. Pure: bytes in, a value out; nothing here knows the model
 * but the size of its vocabulary. Unknown names are ignored as OpenAI does; what would change the answer and
 * is not understood here is an error, never ignored.
 */
#ifndef PL_LLAMA_ASK_H
#define PL_LLAMA_ASK_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/reasons.h"
#include "llama/text.h"
#include "sampler.h"

enum { PL_LLM_MESSAGES = 1024, PL_LLM_CHOICES = 8, PL_LLM_INPUTS = 256 };

enum pl_llm_route { PL_LLM_CHAT, PL_LLM_COMPLETION, PL_LLM_EMBEDDING, PL_LLM_TOKENIZE, PL_LLM_DETOKENIZE };

/* A text, or tokens. Borrowed from the request's JSON. */
struct pl_llm_input {
    const char *text;
    size_t text_len;
    const json_t *tokens; /* array of integers, checked; NULL: text */
};

struct pl_llm_ask {
    json_t *root;      /* owned: what everything below borrows from */
    const char *model; /* NULL: not said */
    /* chat */
    struct llama_chat_message messages[PL_LLM_MESSAGES];
    char *joined[PL_LLM_MESSAGES]; /* owned contents that came in parts */
    size_t message_count;
    /* completion, embedding, tokenize */
    struct pl_llm_input inputs[PL_LLM_INPUTS];
    size_t input_count;
    bool add_special, with_pieces; /* tokenize */

    bool stream, include_usage, ignore_eos, echo;
    int max_tokens; /* 0: not said */
    int n, logprobs /* -1: none */;
    const char *stops[PL_LLM_STOPS];
    size_t stop_lens[PL_LLM_STOPS], stop_count;
    struct pl_llm_sampling sampling;
    char *grammar; /* owned GBNF, or NULL */
    bool base64;   /* embedding */
};

/* What is wrong, for the client. */
struct pl_llm_fault {
    uint16_t status;
    const char *code;      /* of http/write.h, or NULL for the status' usual one */
    enum pl_reason reason; /* it is refused for load, and why; NONE: it is not */
    char message[320];
};

/* False and fault. Free in either case. */
bool pl_llm_ask_read(enum pl_llm_route route, const char *body, size_t len, int32_t vocabulary,
                     struct pl_llm_ask *a, struct pl_llm_fault *f);
void pl_llm_ask_free(struct pl_llm_ask *a);
#endif
