#include "sample/watch.h"

#include <string.h>

#include "base/crc32.h"

enum { MAX_STRIDE = 4096, MAX_HEAD = 4096, MAX_ITEMS = 1024, TRIES = 4 };

/* What every item begins with. */
struct item {
    uint32_t crc, word;
    uint64_t seq;
};

static uint64_t load64(const uint8_t *at) {
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static bool fits(const struct pl_watch_page *p, const struct pl_page_block *b, size_t least, const char *name,
                 struct pl_err *err) {
    bool shape = b->at % 64 == 0 && b->stride % 64 == 0 && b->stride >= least && b->stride <= MAX_STRIDE &&
                 b->count > 0 && b->count <= MAX_ITEMS;
    if (shape && (uint64_t)b->at + (uint64_t)b->stride * b->count <= p->bytes) return true;
    return PL_FAIL(err, PL_E_WORKER, "watch page: %s at byte %u: %u items of %u bytes", name, b->at, b->count,
                   b->stride);
}

static bool head_is_whole(const struct pl_watch_page *p, const struct pl_watch_head *h) {
    uint8_t copy[MAX_HEAD];
    size_t from = offsetof(struct pl_watch_head, head_bytes);
    memcpy(copy, p->at, h->head_bytes);
    memcpy(copy, h, sizeof *h); /* what was judged is what is believed */
    return pl_crc32(copy + from, h->head_bytes - from) == h->crc;
}

static bool understand(struct pl_watch_page *p, struct pl_err *err) {
    struct pl_watch_head h;
    if (p->open || p->at == NULL) return true;
    p->bad = true;
    if (p->bytes < sizeof h || ((uintptr_t)p->at & 7) != 0)
        return PL_FAIL(err, PL_E_WORKER, "watch page: %zu bytes are too few", p->bytes);
    if (__atomic_load_n((const uint32_t *)(const void *)p->at, __ATOMIC_ACQUIRE) == 0)
        return p->bad = false, true;
    memcpy(&h, p->at, sizeof h);
    if (h.magic != PL_PAGE_MAGIC || h.kind != PL_PAGE_WATCH || h.major != PL_WATCH_MAJOR)
        return PL_FAIL(err, PL_E_WORKER, "watch page: magic %08x, kind %u, version %u.%u; we read %u",
                       h.magic, h.kind, h.major, h.minor, PL_WATCH_MAJOR);
    if (h.head_bytes < sizeof h || h.head_bytes > MAX_HEAD || h.head_bytes > p->bytes ||
        h.total_bytes != p->bytes)
        return PL_FAIL(err, PL_E_WORKER, "watch page: header of %u bytes, page of %llu", h.head_bytes,
                       (unsigned long long)h.total_bytes);
    if (!head_is_whole(p, &h)) return p->bad = false, true;
    if (!fits(p, &h.beat, sizeof(struct pl_watch_beat), "beat", err) ||
        !fits(p, &h.driver, sizeof(struct pl_watch_driver), "driver", err) ||
        !fits(p, &h.host, sizeof(struct pl_watch_host), "host", err) ||
        !fits(p, &h.gpus, sizeof(struct pl_watch_gpu), "gpus", err) ||
        !fits(p, &h.workers, sizeof(struct pl_watch_worker), "workers", err))
        return false;
    p->beat = h.beat;
    p->driver = h.driver;
    p->host = h.host;
    p->gpus = h.gpus;
    p->workers = h.workers;
    p->bad = false;
    p->open = true;
    return true;
}

bool pl_watch_open(struct pl_watch_page *p, const void *at, size_t bytes, struct pl_err *err) {
    *p = (struct pl_watch_page){ .at = at, .bytes = bytes };
    return understand(p, err);
}

static bool readable(struct pl_watch_page *p) {
    struct pl_err ignored;
    return p->at != NULL && !p->bad && understand(p, &ignored) && p->open;
}

/* The whole stride counts for the CRC; `size` bytes of it are ours. */
static bool copy_item(struct pl_watch_page *p, const struct pl_page_block *b, uint32_t i, void *out,
                      size_t size) {
    uint64_t copy[MAX_STRIDE / sizeof(uint64_t)];
    if (!readable(p) || i >= b->count) return false;
    const uint8_t *at = p->at + b->at + (size_t)i * b->stride;
    for (int turn = 0; turn < TRIES; turn++) {
        uint64_t seq = load64(at + offsetof(struct item, seq));
        if (seq == 0) return false;
        if (seq % 2 != 0) continue;
        memcpy(copy, at, b->stride);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        struct item head;
        memcpy(&head, copy, sizeof head);
        if (load64(at + offsetof(struct item, seq)) != seq || head.seq != seq) continue;
        const uint8_t *from = (const uint8_t *)copy + sizeof head.crc;
        if (pl_crc32(from, b->stride - sizeof head.crc) != head.crc) continue;
        memcpy(out, copy, size);
        return true;
    }
    return false;
}

/* Printable, and ended. */
static void clean(char *text, size_t room) {
    text[room - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e) *c = '?';
}

bool pl_watch_read_beat(struct pl_watch_page *p, struct pl_watch_beat *out) {
    if (!readable(p)) return false;
    const uint8_t *at = p->at + p->beat.at;
    *out = (struct pl_watch_beat){ .host_ms = load64(at + offsetof(struct pl_watch_beat, host_ms)),
                                   .device_ms = load64(at + offsetof(struct pl_watch_beat, device_ms)),
                                   .asked_ms = load64(at + offsetof(struct pl_watch_beat, asked_ms)) };
    uint64_t pair = load64(at + offsetof(struct pl_watch_beat, asked_gpu));
    memcpy(&out->asked_gpu, &pair, sizeof pair);
    return true;
}

bool pl_watch_read_driver(struct pl_watch_page *p, struct pl_watch_driver *out) {
    if (!readable(p) || !copy_item(p, &p->driver, 0, out, sizeof *out)) return false;
    clean(out->version, sizeof out->version);
    clean(out->text, sizeof out->text);
    if (out->state < PL_WATCH_DRIVER_NONE || out->state > PL_WATCH_DRIVER_RUNS) return false;
    if (out->state != PL_WATCH_DRIVER_RUNS) out->gpus = 0;
    if (out->gpus > p->gpus.count) out->gpus = p->gpus.count;
    if (out->gpus > PL_WATCH_GPUS) out->gpus = PL_WATCH_GPUS;
    return true;
}

bool pl_watch_read_host(struct pl_watch_page *p, struct pl_watch_host *out) {
    if (!readable(p) || !copy_item(p, &p->host, 0, out, sizeof *out)) return false;
    if (out->workers > p->workers.count) out->workers = p->workers.count;
    return true;
}

bool pl_watch_read_worker(struct pl_watch_page *p, uint32_t i, struct pl_watch_worker *out) {
    return readable(p) && copy_item(p, &p->workers, i, out, sizeof *out);
}

static uint64_t at_most(uint64_t value, uint64_t most) { return value <= most ? value : PL_WATCH_UNKNOWN; }

bool pl_watch_read_gpu(struct pl_watch_page *p, uint32_t i, struct pl_watch_gpu *out) {
    static const uint64_t pebibyte = UINT64_C(1) << 50;
    if (!readable(p) || !copy_item(p, &p->gpus, i, out, sizeof *out)) return false;
    clean(out->uuid, sizeof out->uuid);
    clean(out->name, sizeof out->name);
    out->total = at_most(out->total, pebibyte);
    out->used = at_most(out->used, out->total != PL_WATCH_UNKNOWN ? out->total : pebibyte);
    out->free = at_most(out->free, out->total != PL_WATCH_UNKNOWN ? out->total : pebibyte);
    out->utilization = at_most(out->utilization, 100);
    out->memory_activity = at_most(out->memory_activity, 100);
    out->celsius = at_most(out->celsius, 1000);
    out->milliwatts = at_most(out->milliwatts, 100000000);
    if (out->process_count > PL_WATCH_PROCESSES) out->process_count = PL_WATCH_PROCESSES;
    for (uint32_t k = 0; k < out->process_count; k++)
        out->processes[k].bytes = at_most(out->processes[k].bytes, pebibyte);
    return true;
}

const char *pl_watch_call_name(uint32_t call) {
    static const char *const names[] = {
#define X(sym, name) name,
        PL_WATCH_CALLS(X)
#undef X
    };
    return call < sizeof names / sizeof *names ? names[call] : "";
}
