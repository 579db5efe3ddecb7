/* text.h - the text of an answer as it may be shown: whole characters, and nothing of a stop string.
 *
 * Tokens are pieces of bytes: a character may be spread over several, and a stop string may begin in one and
 * end in another. Bytes that may still become either are held back. Bytes that are no UTF-8 leave as U+FFFD.
 */
#ifndef PL_LLAMA_TEXT_H
#define PL_LLAMA_TEXT_H
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { PL_LLM_STOPS = 8, PL_LLM_STOP_BYTES = 256 };

struct pl_llm_text {
    char *stops[PL_LLM_STOPS]; /* owned copies */
    size_t stop_count;
    struct pl_buf held;
    bool stopped;
};

void pl_llm_text_init(struct pl_llm_text *t);
/* False: too many, too long, empty, or no memory. */
bool pl_llm_text_stop(struct pl_llm_text *t, const char *stop, size_t len);
/* Appends to `out` what may be shown now. True: a stop string is complete; it and what follows are dropped.
 */
bool pl_llm_text_push(struct pl_llm_text *t, const char *bytes, size_t len, struct pl_buf *out);
/* The answer is over: what was held back for nothing. */
void pl_llm_text_end(struct pl_llm_text *t, struct pl_buf *out);
void pl_llm_text_free(struct pl_llm_text *t);
#endif
