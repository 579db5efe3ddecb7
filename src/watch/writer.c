#include "watch/writer.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32.h"
#include "watch/host.h"

/* What every item begins with. */
struct item {
    uint32_t crc, word;
    uint64_t seq;
};

/* `copy` is the caller's own, of `size` bytes; its seq and crc are made here. */
static void publish(struct pl_watch_writer *w, size_t at, void *copy, size_t size) {
    struct item *from = copy, *to = (struct item *)(void *)(w->at + at);
    uint64_t next = (to->seq | 1) + 1; /* ours alone to write */
    from->seq = next;
    from->crc = pl_crc32((const uint8_t *)copy + sizeof from->crc, size - sizeof from->crc);
    __atomic_store_n(&to->seq, next - 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* odd before the first new byte */
    to->crc = from->crc;
    to->word = from->word;
    memcpy(to + 1, from + 1, size - sizeof *from);
    __atomic_store_n(&to->seq, next, __ATOMIC_RELEASE);
}

void pl_watch_put_driver(struct pl_watch_writer *w, const struct pl_watch_driver *d) {
    struct pl_watch_driver copy = *d;
    publish(w, PL_WATCH_DRIVER_AT, &copy, sizeof copy);
}

void pl_watch_put_host(struct pl_watch_writer *w, const struct pl_watch_host *h) {
    struct pl_watch_host copy = *h;
    publish(w, PL_WATCH_HOST_AT, &copy, sizeof copy);
}

void pl_watch_put_gpu(struct pl_watch_writer *w, uint32_t i, const struct pl_watch_gpu *g) {
    struct pl_watch_gpu copy = *g;
    publish(w, PL_WATCH_GPUS_AT + i * sizeof copy, &copy, sizeof copy);
}

void pl_watch_put_worker(struct pl_watch_writer *w, uint32_t i, const struct pl_watch_worker *p) {
    struct pl_watch_worker copy = *p;
    publish(w, PL_WATCH_WORKERS_AT + i * sizeof copy, &copy, sizeof copy);
}

struct pl_watch_beat *pl_watch_beat(struct pl_watch_writer *w) {
    return (struct pl_watch_beat *)(void *)(w->at + PL_WATCH_BEAT_AT);
}

bool pl_watch_writer_open(struct pl_watch_writer *w, int fd, uint64_t generation, uint64_t boot) {
    struct stat st;
    if (fstat(fd, &st) == -1) return false;
    w->bytes = (size_t)st.st_size;
    if (w->bytes < PL_WATCH_BYTES) return false;
    w->at = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (w->at == MAP_FAILED) return false;
    struct pl_watch_head h = {
        .major = PL_WATCH_MAJOR,
        .minor = PL_WATCH_MINOR,
        .head_bytes = sizeof h,
        .total_bytes = w->bytes,
        .kind = PL_PAGE_WATCH,
        .writer_pid = (uint32_t)getpid(),
        .writer_start = pl_host_start("/proc", getpid()),
        .generation = generation,
        .boot = boot,
        .beat = { PL_WATCH_BEAT_AT, sizeof(struct pl_watch_beat), 1, 0 },
        .driver = { PL_WATCH_DRIVER_AT, sizeof(struct pl_watch_driver), 1, 0 },
        .host = { PL_WATCH_HOST_AT, sizeof(struct pl_watch_host), 1, 0 },
        .workers = { PL_WATCH_WORKERS_AT, sizeof(struct pl_watch_worker), PL_WATCH_WORKERS, 0 },
        .gpus = { PL_WATCH_GPUS_AT, sizeof(struct pl_watch_gpu), PL_WATCH_GPUS, 0 },
    };
    size_t from = offsetof(struct pl_watch_head, head_bytes);
    h.crc = pl_crc32((const uint8_t *)&h + from, sizeof h - from);
    memcpy(w->at, &h, sizeof h);
    __atomic_store_n((uint32_t *)(void *)w->at, PL_PAGE_MAGIC, __ATOMIC_RELEASE);
    return true;
}
