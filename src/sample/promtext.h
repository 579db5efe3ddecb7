/* sample/promtext.h - the /metrics texts of several workers, merged into one page.
 *
 * Reads Prometheus text 0.0.4 and, tolerantly, OpenMetrics 1.0 as foreign bytes; writes 0.0.4. Names, types
 * and values stay as they were; every sample gets the label `worker` (its own `worker` becomes
 * `exported_worker`, as Prometheus itself does it), and `service` when more than one service is on the page.
 * A family stands once, with the HELP and TYPE it was first seen with, in first-seen order. A line that is
 * not understood is skipped and counted, never passed on.
 */
#ifndef PL_SAMPLE_PROMTEXT_H
#define PL_SAMPLE_PROMTEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What one page may hold; past a bound lines are skipped. A line over PL_PROMTEXT_LINE bytes is garbage. */
enum {
    PL_PROMTEXT_BYTES = 16 << 20,
    PL_PROMTEXT_FAMILIES = 4096,
    PL_PROMTEXT_LINES = 500000,
    PL_PROMTEXT_LINE = 32768,
    PL_PROMTEXT_LABELS = 64,
    PL_PROMTEXT_NAME = 256, /* of a family or a label */
    PL_PROMTEXT_HELP = 1024,
};

struct pl_promtext;
struct pl_promtext *pl_promtext_create(void); /* NULL without memory */
void pl_promtext_destroy(struct pl_promtext *p);

/* Adds one worker's text. Add each slot of a service once a page. `service` NULL: no such label; the same for
 * worker 0, a text that speaks for all workers of its service. */
void pl_promtext_add(struct pl_promtext *p, const char *service, uint32_t worker, const char *text,
                     size_t len);
/* Lines that were skipped since the last clear: garbage, over a bound, or of another type than their family
 * has. */
size_t pl_promtext_skipped(const struct pl_promtext *p);

/* Appends the page. Families that `is_ours` claims are left out and remembered as clashes. False: `out` is
 * full, nothing was appended. */
typedef bool pl_promtext_is_ours(const char *family, size_t len);
bool pl_promtext_render(struct pl_promtext *p, struct pl_buf *out, pl_promtext_is_ours *is_ours);
/* The name of a family that was left out and has not been told yet, or NULL: each name comes once in the life
 * of `p`. Borrowed until the next call. */
const char *pl_promtext_clash(struct pl_promtext *p);

/* Starts the next page; what was told about clashes is kept. */
void pl_promtext_clear(struct pl_promtext *p);
#endif
