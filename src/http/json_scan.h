/* http/json_scan.h - reads a JSON body as it comes for what admission must know: what is asked for, how much
 * text there is, how long arrays, how large images are.
 *
 * Constant memory whatever the body; nothing is kept but a few numbers and the name of the model. What is
 * found does not depend on how the bytes were cut. The grammar is RFC 8259, with what Python's decoder takes
 * beside it (NaN, Infinity, a byte order mark, lone surrogates), since workers are written in Python: what
 * they would read, we must have read. Keys are compared with their escapes undone. Keys that come twice: the
 * larger demand counts.
 */
#ifndef PL_HTTP_JSON_SCAN_H
#define PL_HTTP_JSON_SCAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text_count.h"

enum { PL_JSON_MODEL_MOST = 128, PL_JSON_DEPTH_MOST = 512, PL_JSON_ERROR_MOST = 160 };
#define PL_JSON_ASKED_MOST UINT64_C(1000000000000) /* numbers above it count as it */

enum pl_json_state {
    PL_JSON_MORE,  /* so far it is JSON */
    PL_JSON_WHOLE, /* a value and nothing behind it */
    PL_JSON_MALFORMED,
    PL_JSON_TOO_DEEP,
};

/* A number somebody asked for. A negative one asks for no bound, as engines take -1. */
struct pl_json_asked {
    uint64_t value; /* rounded up */
    bool there, unbounded;
    /* Where its digits stand in the body, when it came once and as a plain whole number: times 1, len > 0. */
    uint32_t times, len;
    uint64_t at;
};

struct pl_json_facts {
    /* a request */
    char model[PL_JSON_MODEL_MOST + 1]; /* the last one; "" = none, or longer than that */
    bool stream, include_usage, has_stream_options;
    struct pl_json_asked max_tokens; /* by any of its names */
    struct pl_json_asked n, best_of;
    uint64_t prompts;           /* texts or token lists in `prompt` or `input` */
    uint64_t prompt_ids;        /* tokens given as numbers: an exact count */
    uint64_t tools_bytes;       /* of tools and functions, raw */
    uint64_t format_bytes;      /* of response_format and its like, raw */
    struct pl_text_counts text; /* what a tokenizer will see, tools included; zeros unless asked for */
    uint64_t array_items;       /* of the longest array */
    uint32_t depth;             /* deepest level */
    /* images: data: URLs, and texts that are an image in base64 */
    uint64_t images, image_pixels, image_pixels_all; /* image_pixels: of the largest */
    uint64_t images_unread;                          /* said to be an image, and its size cannot be read */
    uint64_t images_remote;                          /* http URLs where an image belongs */
    bool bad_utf8;
    /* a reply */
    bool has_usage, has_error;
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    uint64_t choices;                           /* answers, or pieces of them, in `choices` */
    uint64_t choice_index;                      /* the largest that was told */
    uint64_t finished;                          /* of the choices: those with a finish_reason */
    uint64_t aborted;                           /* of the finished: those that the engine gave up */
    char error_message[PL_JSON_ERROR_MOST + 1]; /* of `error`, its begin; "" = none */
};

struct pl_json_scan;
/* `depth`: levels allowed, 1 to PL_JSON_DEPTH_MOST. `text`: count it (the dear part). NULL without memory. */
struct pl_json_scan *pl_json_scan_create(uint32_t depth, bool text);
/* Ready for another text, as if it had just been made so; false: it was made for another depth. */
bool pl_json_scan_again(struct pl_json_scan *s, uint32_t depth, bool text);
void pl_json_scan_destroy(struct pl_json_scan *s); /* NULL is allowed */
/* For another body. */
void pl_json_scan_reset(struct pl_json_scan *s);
/* After MALFORMED and TOO_DEEP nothing more is read. */
enum pl_json_state pl_json_scan_feed(struct pl_json_scan *s, const char *bytes, size_t len);
/* No more comes: WHOLE, MALFORMED or TOO_DEEP. */
enum pl_json_state pl_json_scan_end(struct pl_json_scan *s);
/* Of what was read so far. Borrowed until the next call. */
const struct pl_json_facts *pl_json_scan_facts(const struct pl_json_scan *s);
/* Bytes read up to and with the one that was wrong. */
uint64_t pl_json_scan_offset(const struct pl_json_scan *s);
#endif
