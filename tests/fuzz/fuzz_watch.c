/* A page that says it is watch's: 64 KiB at most, mapped as it came.
 *
 * USES sample base
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "sample/gpu.h"
#include "sample/watch.h"

/* The header's own CRC is made right, so that what it says is judged. */
static void seal(uint8_t *at, size_t size) {
    struct pl_watch_head *h = (struct pl_watch_head *)(void *)at;
    size_t from = offsetof(struct pl_watch_head, head_bytes);
    if (size < sizeof *h) return;
    h->magic = PL_PAGE_MAGIC;
    h->total_bytes = size;
    if (h->head_bytes >= sizeof *h && h->head_bytes <= size)
        h->crc = pl_crc32(at + from, h->head_bytes - from);
}

/* And so is that of every item of a block, where it fits. */
static void seal_block(uint8_t *at, size_t size, const struct pl_page_block *b) {
    for (uint32_t i = 0; i < b->count && i < 4; i++) {
        uint64_t from = (uint64_t)b->at + (uint64_t)b->stride * i;
        if (b->stride < 16 || from % 8 != 0 || from + b->stride > size) return;
        uint32_t crc = pl_crc32(at + from + 4, b->stride - 4);
        memcpy(at + from, &crc, sizeof crc);
    }
}

static void read_all(struct pl_watch_page *p) {
    struct pl_watch_driver d;
    struct pl_watch_host h;
    struct pl_watch_gpu g;
    struct pl_watch_worker w;
    struct pl_watch_beat b;
    struct pl_gpu_hold hold;
    pl_watch_read_beat(p, &b);
    if (pl_watch_read_driver(p, &d) && (d.gpus > PL_WATCH_GPUS || strlen(d.text) >= sizeof d.text)) abort();
    if (pl_watch_read_host(p, &h) && h.workers > p->workers.count) abort();
    for (uint32_t i = 0; i < 4; i++) {
        pl_watch_read_worker(p, i, &w);
        if (!pl_watch_read_gpu(p, i, &g)) continue;
        if (g.process_count > PL_WATCH_PROCESSES || strlen(g.uuid) >= sizeof g.uuid) abort();
        if (g.used != PL_WATCH_UNKNOWN && g.total != PL_WATCH_UNKNOWN && g.used > g.total) abort();
        uint64_t foreign = pl_gpu_foreign(&g, true, PL_WATCH_UNKNOWN);
        if (foreign != PL_WATCH_UNKNOWN && foreign > g.used) abort();
        if (pl_gpu_hold_take(&g, 812, &hold)) pl_gpu_hold_left(&hold, &g);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_watch_page p;
    struct pl_err err = { 0 };
    if (size > 65536) size = 65536;
    uint8_t *at = aligned_alloc(64, size / 64 * 64 + 64);
    if (at == NULL) abort();
    if (size > 0) memcpy(at, data, size);
    if (!pl_watch_open(&p, at, size, &err) && err.msg[0] == '\0') abort();
    read_all(&p);
    seal(at, size);
    if (pl_watch_open(&p, at, size, &err) && p.open) {
        seal_block(at, size, &p.driver);
        seal_block(at, size, &p.host);
        seal_block(at, size, &p.gpus);
        seal_block(at, size, &p.workers);
        read_all(&p);
    }
    free(at);
    return 0;
}
