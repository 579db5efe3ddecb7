/* sample/promline.h - one sample line of Prometheus text, taken apart and checked.
 *
 *     name{label="value",…} value [timestamp] [# exemplar]
 *
 * Nothing is copied or unescaped: what is accepted may be written out again as it is. Accepted is what
 * Prometheus' own reader accepts: names of its alphabet, label values of valid UTF-8 with the escapes \\ \"
 * \n, a number, whole milliseconds. OpenMetrics' exemplars are cut off, its timestamps in seconds left out.
 */
#ifndef PL_SAMPLE_PROMLINE_H
#define PL_SAMPLE_PROMLINE_H
#include <stdbool.h>
#include <stddef.h>

#include "sample/promtext.h"

/* Bytes of the line, borrowed. */
struct pl_promword {
    const char *at;
    size_t len;
};
struct pl_promlabel {
    struct pl_promword name, value; /* the value as written between its quotes */
};
struct pl_promline {
    struct pl_promword name, value, timestamp; /* timestamp.len 0: none */
    struct pl_promlabel labels[PL_PROMTEXT_LABELS];
    size_t label_count;
};

/* False: not a sample. `line` has no newline. */
bool pl_promline_parse(struct pl_promline *out, const char *line, size_t len);
const struct pl_promlabel *pl_promline_label(const struct pl_promline *l, const char *name, size_t len);

/* The metric name at the start of `s`, at most PL_PROMTEXT_NAME bytes; 0 if there is none. */
size_t pl_prom_name_length(const char *s, size_t len);
bool pl_promword_is(struct pl_promword w, const char *text);
#endif
