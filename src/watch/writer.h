/* watch/writer.h - writes the page of base/watch_page.h. One writer for each item; the two threads of watch
 * share no item. */
#ifndef PL_WATCH_WRITER_H
#define PL_WATCH_WRITER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/watch_page.h"

struct pl_watch_writer {
    uint8_t *at; /* mapped, PL_WATCH_BYTES at least */
    size_t bytes;
};

/* Maps the page and writes its header, the magic last. False with errno. `generation` and `boot` as the
 * keeper tells them, 0 when it did not. */
bool pl_watch_writer_open(struct pl_watch_writer *w, int fd, uint64_t generation, uint64_t boot);
void pl_watch_put_driver(struct pl_watch_writer *w, const struct pl_watch_driver *d);
void pl_watch_put_host(struct pl_watch_writer *w, const struct pl_watch_host *h);
void pl_watch_put_gpu(struct pl_watch_writer *w, uint32_t i, const struct pl_watch_gpu *g);
void pl_watch_put_worker(struct pl_watch_writer *w, uint32_t i, const struct pl_watch_worker *p);
/* The counters: stored whole, one by one. */
struct pl_watch_beat *pl_watch_beat(struct pl_watch_writer *w);
static inline void pl_watch_store(uint64_t *at, uint64_t value) {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
#endif
