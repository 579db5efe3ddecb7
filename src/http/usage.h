/* http/usage.h - how many tokens a reply says it used, read in passing from JSON or a stream of events.
 *
 * Looks for `"usage": {...}` and in it for total_tokens, or else for prompt_tokens and completion_tokens (or
 * input_tokens and output_tokens). Inside a JSON string every quote is escaped, so what a model writes cannot
 * be taken for it. A stream may tell several times, each time of all so far: the last one counts. Pure;
 * pieces may be cut anywhere; nothing is kept but a few words.
 */
#ifndef PL_HTTP_USAGE_H
#define PL_HTTP_USAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_USAGE_WORD = 20, PL_USAGE_DEPTH = 16 };

struct pl_http_usage {
    uint64_t total, parts;  /* of the object at hand */
    uint64_t tokens, value; /* tokens: of the last whole object */
    uint8_t state, matched, depth, word_len;
    bool in_string, escaped, has_total, has_parts, known; /* known: `tokens` means something */
    char word[PL_USAGE_WORD];
};
/* Zero it before the first piece. */
void pl_http_usage_feed(struct pl_http_usage *u, const char *bytes, size_t len);
#endif
