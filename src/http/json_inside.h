/* http/json_inside.h - between the grammar (json_scan.c) and the meaning of what it finds (json_meaning.c).
 */
#ifndef PL_HTTP_JSON_INSIDE_H
#define PL_HTTP_JSON_INSIDE_H
#include "http/image.h"
#include "http/json_number.h"
#include "http/json_scan.h"

/* Keys that mean something. KEY(SYMBOL, "text") */
/* clang-format off */
#define PL_JSON_KEYS(X)                                                                                     \
    X(MODEL, "model")                           X(STREAM, "stream")                                         \
    X(STREAM_OPTIONS, "stream_options")         X(INCLUDE_USAGE, "include_usage")                           \
    X(MAX_TOKENS, "max_tokens")                 X(MAX_COMPLETION_TOKENS, "max_completion_tokens")           \
    X(MAX_OUTPUT_TOKENS, "max_output_tokens")   X(MAX_NEW_TOKENS, "max_new_tokens")                         \
    X(N_PREDICT, "n_predict")                   X(NUM_PREDICT, "num_predict")                               \
    X(N, "n")                                   X(BEST_OF, "best_of")                                       \
    X(PARAMETERS, "parameters")                 X(SAMPLING_PARAMS, "sampling_params")                       \
    X(OPTIONS, "options")                       X(PROMPT, "prompt")                                         \
    X(INPUT, "input")                           X(INPUTS, "inputs")                                         \
    X(INPUT_IDS, "input_ids")                   X(TOOLS, "tools")                                           \
    X(FUNCTIONS, "functions")                   X(DOCUMENTS, "documents")                                   \
    X(RESPONSE_FORMAT, "response_format")       X(GUIDED_JSON, "guided_json")                               \
    X(GUIDED_GRAMMAR, "guided_grammar")         X(STRUCTURED_OUTPUTS, "structured_outputs")                 \
    X(GRAMMAR, "grammar")                       X(JSON_SCHEMA, "json_schema")                               \
    X(USER, "user")                             X(METADATA, "metadata")                                     \
    X(URL, "url")                               X(IMAGE_URL, "image_url")                                   \
    X(IMAGE, "image")                           X(IMAGES, "images")                                         \
    X(DATA, "data")                             X(FILE_DATA, "file_data")                                   \
    X(USAGE, "usage")                           X(ERROR, "error")                                           \
    X(PROMPT_TOKENS, "prompt_tokens")           X(INPUT_TOKENS, "input_tokens")                             \
    X(COMPLETION_TOKENS, "completion_tokens")   X(OUTPUT_TOKENS, "output_tokens")                           \
    X(CACHED_TOKENS, "cached_tokens")           X(RESPONSE, "response")                                     \
    X(MESSAGE, "message")                       X(CHOICES, "choices")                                       \
    X(INDEX, "index")                           X(FINISH_REASON, "finish_reason")
/* clang-format on */
enum pl_json_key {
    PL_KEY_OTHER,
#define X(sym, text) PL_KEY_##sym,
    PL_JSON_KEYS(X)
#undef X
};

enum { PL_JSON_TOKEN = 160 };

enum pl_json_sniff { PL_SNIFF_OPEN, PL_SNIFF_TEXT, PL_SNIFF_DATA_HEAD, PL_SNIFF_BASE64, PL_SNIFF_BLOB };

struct pl_json_level {
    uint32_t items;   /* values so far, of an array */
    uint8_t key;      /* under which it stands, or its array does */
    bool object, ids; /* ids: numbers of it were counted as a prompt */
};

struct pl_json_scan {
    struct pl_json_facts facts;
    bool count_text;
    uint8_t state; /* of the grammar */
    uint8_t key;   /* enum pl_json_key: of the value that comes or is here */
    uint8_t top;   /* of depth 1 */
    bool in_key;   /* the string is one */
    bool raw;      /* below `top`, structure counts too */
    uint32_t depth, depth_most;
    uint64_t offset;
    /* the string or word that is being read */
    uint8_t sniff;                  /* enum pl_json_sniff */
    uint16_t high, unit;            /* surrogates; \uXXXX so far */
    uint8_t unit_digits, utf8_need; /* bytes of a sequence still to come */
    uint8_t utf8_low, utf8_high;    /* what the next of them may be */
    uint32_t model_len;
    bool model_over;
    uint64_t token_whole; /* bytes; those that fit are in `token` */
    char token[PL_JSON_TOKEN];
    struct pl_json_number number;
    uint64_t number_at;
    uint32_t number_len;
    struct pl_base64_image image;
    struct pl_json_level levels[];
};

static inline struct pl_json_level *pl_json_top(struct pl_json_scan *s) { return &s->levels[s->depth]; }

/* json_meaning.c */
enum pl_json_key pl_json_key_of(const char *text, size_t len);
void pl_json_scan_value_begins(struct pl_json_scan *s); /* any value, before it; counts it for its array */
void pl_json_scan_text(struct pl_json_scan *s, const char *bytes,
                       size_t len); /* of a value, escapes undone */
void pl_json_scan_text_end(struct pl_json_scan *s);
void pl_json_scan_word(struct pl_json_scan *s); /* true, false, null and the like: in `token` */
void pl_json_scan_number_end(struct pl_json_scan *s);
bool pl_json_scan_is_raw(const struct pl_json_scan *s); /* by its `top` */
void pl_json_scan_add(struct pl_json_scan *s, const char *bytes, size_t len);
/* Structure and keys that a tokenizer sees too, or whose size alone matters. */
static inline void pl_json_scan_raw(struct pl_json_scan *s, const char *bytes, size_t len) {
    if (s->raw && s->depth > 1) pl_json_scan_add(s, bytes, len);
}

#endif
