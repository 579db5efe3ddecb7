/* sample/watch.h - reads the page of watch (base/watch_page.h) as foreign bytes.
 *
 * The header is judged once; an item is copied out and accepted only when its sequence did not move and its
 * CRC agrees, in a bounded number of tries. Counts are bounded, texts are ended, and what does not fit
 * together (more used than there is) is not known. Zeros are "not yet".
 */
#ifndef PL_SAMPLE_WATCH_H
#define PL_SAMPLE_WATCH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/watch_page.h"

struct pl_watch_page {
    const uint8_t *at; /* mapped read-only by the caller; NULL: no page */
    size_t bytes;
    bool open, bad;
    struct pl_page_block beat, driver, host, gpus, workers;
};

/* False with err: not a page of watch that we can read. True and nothing there yet: ask again. */
bool pl_watch_open(struct pl_watch_page *p, const void *at, size_t bytes, struct pl_err *err);
/* False: nothing to read, or it is being written all the time. */
bool pl_watch_read_beat(struct pl_watch_page *p, struct pl_watch_beat *out);
bool pl_watch_read_driver(struct pl_watch_page *p,
                          struct pl_watch_driver *out);                      /* gpus at most PL_WATCH_GPUS */
bool pl_watch_read_host(struct pl_watch_page *p, struct pl_watch_host *out); /* workers bounded too */
bool pl_watch_read_gpu(struct pl_watch_page *p, uint32_t i, struct pl_watch_gpu *out);
bool pl_watch_read_worker(struct pl_watch_page *p, uint32_t i, struct pl_watch_worker *out);
const char *pl_watch_call_name(uint32_t call); /* "" for nothing and for a number that is none */
#endif
