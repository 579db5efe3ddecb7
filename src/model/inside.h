/* model/inside.h - what the readers of config.json share. A `struct reader` goes on after the first mistake,
 * which is the one that is told: getters return 0 from then on. */
#ifndef PL_MODEL_INSIDE_H
#define PL_MODEL_INSIDE_H
#include <jansson.h>

#include "model/model.h"

struct reader {
    json_t *root, *cfg; /* cfg: text_config where there is one */
    struct pl_model *m;
    struct pl_err *err;
    bool failed;
};
/* The first key of a NULL-ended list that is there and not null; its name goes into `found` (may be NULL). */
json_t *pl_json_first(json_t *object, const char *const *keys, const char **found);
/* A count from 0 to `most`; `none` when no key is there. Anything else than a whole number in range is a
 * mistake. */
uint32_t pl_read_any(struct reader *r, const char *const *keys, uint32_t most, uint32_t none);
uint32_t pl_read_count(struct reader *r, const char *key, uint32_t none);
const char *pl_read_text(struct reader *r, json_t *object, const char *key); /* NULL: not there or no text */
bool pl_read_flag(json_t *object, const char *key, bool none);
bool pl_read_fail(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The kind of each layer, in model order. */
enum word { WORD_FULL, WORD_SLIDING, WORD_CHUNKED, WORD_LINEAR, WORD_BOTH, WORD_CONV, WORD_NONE };
bool pl_read_words(struct reader *r, enum word *words);
/* m->state, once `m` has hidden and heads. */
bool pl_read_state(struct reader *r);
#endif
