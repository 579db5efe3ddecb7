#include "sample/page.h"

#include <string.h>

#include "base/buf.h"
#include "base/crc32.h"
#include "plimsoll/shm.h"

enum {
    /* what version 1.0 wrote, and the least that is understood */
    END_LEAST = offsetof(struct pl_page_end_record, input_bytes),
    MAX_SLOTS = 4096, /* bounds the time of one search */
    MAX_STRIDE = 512,
    MAX_HEAD = 4096,
    TRIES = 4 /* a live writer is done with a record in microseconds */
};

static uint64_t load64(const uint8_t *at) {
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static uint32_t load32(const uint8_t *at) {
    return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static bool block_fits(const struct pl_page *p, const struct pl_page_block *b, size_t least, const char *name,
                       struct pl_err *err) {
    if (b->at % 64 != 0 || b->stride < least || b->stride > MAX_STRIDE || b->stride % 64 != 0)
        return PL_FAIL(err, PL_E_WORKER, "page: %s at byte %u with items of %u bytes", name, b->at,
                       b->stride);
    if (b->count == 0 || b->count > MAX_SLOTS || (b->count & (b->count - 1)) != 0)
        return PL_FAIL(err, PL_E_WORKER, "page: %s has %u items", name, b->count);
    if ((uint64_t)b->at + (uint64_t)b->stride * b->count > p->bytes)
        return PL_FAIL(err, PL_E_WORKER, "page: %s ends behind the page", name);
    return true;
}

/* A block that came with minor 1: an older writer does not have it. */
static bool newer_block(const struct pl_page *p, const struct pl_page_block *b, size_t least,
                        const char *name, struct pl_page_block_at *out, struct pl_err *err) {
    *out = (struct pl_page_block_at){ 0 };
    if (b->count == 0) return true;
    if (!block_fits(p, b, least, name, err)) return false;
    *out = (struct pl_page_block_at){ .at = b->at, .stride = b->stride, .count = b->count };
    return true;
}

static struct pl_page_ring ring_of(const struct pl_page_block *b) {
    return (struct pl_page_ring){ .at = b->at, .stride = b->stride, .mask = b->count - 1 };
}

/* The CRC covers the whole header, so that one half written is "not yet" and not a lie. */
static bool head_is_whole(const struct pl_page *p, const struct pl_page_head *h) {
    uint8_t copy[MAX_HEAD];
    size_t from = offsetof(struct pl_page_head, head_bytes);
    memcpy(copy, p->at, h->head_bytes);
    memcpy(copy, h, sizeof *h); /* what was judged is what is believed */
    return pl_crc32(copy + from, h->head_bytes - from) == h->crc;
}

static bool understand(struct pl_page *p, struct pl_err *err) {
    struct pl_page_head h;
    if (p->open || p->at == NULL) return true;
    p->bad = true;
    if (p->bytes < sizeof h || ((uintptr_t)p->at & 7) != 0)
        return PL_FAIL(err, PL_E_WORKER, "page: %zu bytes are too few", p->bytes);
    if (load32(p->at) == 0) return p->bad = false, true; /* not yet */
    memcpy(&h, p->at, sizeof h);
    if (h.magic != PL_PAGE_MAGIC) return PL_FAIL(err, PL_E_WORKER, "page: magic %08x", h.magic);
    if (h.major != PL_PAGE_MAJOR)
        return PL_FAIL(err, PL_E_WORKER, "page: version %u.%u, we read %u", h.major, h.minor, PL_PAGE_MAJOR);
    if (h.head_bytes < sizeof h || h.head_bytes > MAX_HEAD || h.head_bytes > p->bytes)
        return PL_FAIL(err, PL_E_WORKER, "page: header of %u bytes", h.head_bytes);
    if (!head_is_whole(p, &h)) return p->bad = false, true;
    if (h.total_bytes != p->bytes || h.kind != PL_PAGE_WORKER)
        return PL_FAIL(err, PL_E_WORKER, "page: kind %u, %llu bytes, expected %zu", h.kind,
                       (unsigned long long)h.total_bytes, p->bytes);
    if (!block_fits(p, &h.counters, sizeof(struct pl_page_counts), "counters", err) ||
        !block_fits(p, &h.begins, sizeof(struct pl_page_begin_record), "begin ring", err) ||
        !block_fits(p, &h.ends, END_LEAST, "end ring", err) ||
        !newer_block(p, &h.devices, sizeof(struct pl_page_device), "devices", &p->devices, err) ||
        !newer_block(p, &h.host, sizeof(struct pl_page_host), "host", &p->host, err) ||
        !newer_block(p, &h.engine, sizeof(struct pl_page_engine), "engine", &p->engine, err) ||
        !newer_block(p, &h.tags, sizeof(struct pl_page_tag), "tags", &p->tags, err))
        return false;
    p->counters_at = h.counters.at;
    p->begins = ring_of(&h.begins);
    p->ends = ring_of(&h.ends);
    p->bad = false;
    p->open = true;
    return true;
}

bool pl_page_open(struct pl_page *p, const void *at, size_t bytes, struct pl_err *err) {
    *p = (struct pl_page){ .at = at, .bytes = bytes };
    return understand(p, err);
}

/* A worker can punch a hole into its page: zeros where a header was mean that there is no page any more. */
static bool readable(struct pl_page *p) {
    struct pl_err ignored;
    if (p->at == NULL || p->bad || !understand(p, &ignored)) return false;
    return p->open && load32(p->at) == PL_PAGE_MAGIC;
}

#define COUNTER(p, field) load64((p)->at + (p)->counters_at + offsetof(struct pl_page_counts, field))

static uint32_t clamp32(uint64_t v) { return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v; }

bool pl_page_counters(struct pl_page *p, struct pl_page_counters *out) {
    if (!readable(p)) return false;
    *out = (struct pl_page_counters){
        .progress = COUNTER(p, progress),
        .in_flight = clamp32(COUNTER(p, in_flight)),
        .zombies = clamp32(COUNTER(p, zombies)),
        .tasks = clamp32(COUNTER(p, tasks)),
        .begun = COUNTER(p, begun),
        .ended = COUNTER(p, ended),
        .errors = COUNTER(p, errors),
        .imported_ms = COUNTER(p, imported_ms),
        .loaded_ms = COUNTER(p, loaded_ms),
        .serving_ms = COUNTER(p, serving_ms),
        .features = (uint32_t)COUNTER(p, features),
        .ooms = COUNTER(p, ooms),
        .untagged = COUNTER(p, untagged),
    };
    return true;
}

enum slot {
    SLOT_GOOD,
    SLOT_EARLIER /* not written so far */,
    SLOT_BUSY,
    SLOT_LOST /* overwritten, or damaged */
};

/* Both kinds of record begin alike. */
_Static_assert(offsetof(struct pl_page_begin_record, seq) == offsetof(struct pl_page_end_record, seq), "seq");
_Static_assert(offsetof(struct pl_page_begin_record, id) == offsetof(struct pl_page_end_record, id), "id");

static enum slot read_slot(const struct pl_page *p, const struct pl_page_ring *r, uint64_t n, uint8_t *copy) {
    const uint8_t *at = p->at + r->at + (size_t)(n & r->mask) * r->stride;
    const uint64_t writing = 2 * n + 1, written = 2 * n + 2;
    enum slot last = SLOT_LOST;
    for (int i = 0; i < TRIES; i++) {
        uint64_t seq = load64(at + offsetof(struct pl_page_begin_record, seq));
        if (seq < writing) return SLOT_EARLIER;
        if (seq > written) return SLOT_LOST;
        last = seq == writing ? SLOT_BUSY : SLOT_LOST;
        if (seq == writing) continue;
        memcpy(copy, at, r->stride);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (load64(at + offsetof(struct pl_page_begin_record, seq)) != written) continue;
        uint32_t crc;
        memcpy(&crc, copy, sizeof crc);
        if (pl_crc32(copy + sizeof crc, r->stride - sizeof crc) == crc) return SLOT_GOOD;
    }
    return last;
}

/* Looks for `id` in the records from number `since` on, newest first. `counter` is where the ring's length
 * stands. */
static enum pl_page_seen find(const struct pl_page *p, const struct pl_page_ring *r, const uint8_t *counter,
                              uint64_t id, uint64_t since, uint8_t *copy) {
    const uint64_t now = load64(counter);
    bool sure = now - since <= r->mask; /* false also when the counter went backwards */
    uint64_t first = sure ? since : now - r->mask;
    for (uint64_t k = 0; k <= now - first; k++) {
        uint64_t found, n = now - k;
        enum slot s = read_slot(p, r, n, copy);
        /* number `now` is not published: it may be there all the same, complete, when the worker died just
         * then */
        bool unpublished = n == now && (s == SLOT_EARLIER || s == SLOT_BUSY);
        if (s != SLOT_GOOD && !unpublished) sure = false;
        if (s != SLOT_GOOD) continue;
        memcpy(&found, copy + offsetof(struct pl_page_begin_record, id), sizeof found);
        if (found == id) return PL_SEEN_YES;
    }
    return sure && load64(counter) - since <= r->mask ? PL_SEEN_NO : PL_SEEN_UNKNOWN;
}

/* Without records of every request their absence proves nothing. */
static bool keeps_records(struct pl_page *p) {
    return readable(p) && (COUNTER(p, features) & PL_PAGE_F_RECORDS) != 0;
}

enum pl_page_seen pl_page_began(struct pl_page *p, uint64_t id, uint64_t since_begun) {
    uint8_t copy[MAX_STRIDE];
    if (id == 0 || !keeps_records(p)) return PL_SEEN_UNKNOWN;
    const uint8_t *counter = p->at + p->counters_at + offsetof(struct pl_page_counts, begun);
    return find(p, &p->begins, counter, id, since_begun, copy);
}

enum pl_page_seen pl_page_ended(struct pl_page *p, uint64_t id, uint64_t since_ended,
                                struct pl_page_end *out) {
    uint8_t copy[MAX_STRIDE] = { 0 };
    struct pl_page_end_record e;
    if (id == 0 || !keeps_records(p)) return PL_SEEN_UNKNOWN;
    const uint8_t *counter = p->at + p->counters_at + offsetof(struct pl_page_counts, ended);
    enum pl_page_seen seen = find(p, &p->ends, counter, id, since_ended, copy);
    if (seen != PL_SEEN_YES || out == NULL) return seen;
    memcpy(&e, copy, sizeof e);
    *out = (struct pl_page_end){ .id = e.id, .duration_us = e.duration_us, .outcome = e.outcome };
    memcpy(out->error_class, e.error_class, sizeof e.error_class);
    return seen;
}

static struct pl_page_record record_of(const struct pl_page *p, uint64_t n, const uint8_t *copy) {
    struct pl_page_end_record e;
    memcpy(&e, copy, sizeof e);
    struct pl_page_record out = {
        .n = n,
        .id = e.id,
        .at_us = e.at_us,
        .duration_us = e.duration_us,
        .flags = e.flags,
        .outcome = e.outcome,
        .thread = e.thread,
        .in_flight = e.in_flight,
        .batch = e.batch,
        .route = e.route,
        .status = e.status,
        .tag = p->tags.count == 0 ? PL_NO_TAG : e.tag,
        .device = e.device,
        .allocated_before = e.allocated_before,
        .allocated = e.allocated,
        .reserved = e.reserved,
        .peak = e.peak,
        .input_bytes = e.input_bytes,
        .host_anon = e.host_anon,
        .begun = e.begun,
    };
    memcpy(out.error_class, e.error_class, sizeof e.error_class);
    return out;
}

size_t pl_page_take_ends(struct pl_page *p, uint64_t *cursor, struct pl_page_record *out, size_t room,
                         uint64_t *lost) {
    uint8_t copy[MAX_STRIDE] = { 0 }; /* what is behind the stride reads 0 */
    size_t taken = 0;
    if (!readable(p)) return 0;
    const uint64_t now = COUNTER(p, ended);
    if (*cursor > now) *cursor = now;
    if (now - *cursor > (uint64_t)p->ends.mask + 1) {
        uint64_t oldest = now - p->ends.mask - 1;
        *lost += oldest - *cursor;
        *cursor = oldest;
    }
    for (; *cursor < now && taken < room; ++*cursor) {
        if (read_slot(p, &p->ends, *cursor, copy) == SLOT_GOOD)
            out[taken++] = record_of(p, *cursor, copy);
        else
            ++*lost;
    }
    return taken;
}

uint32_t pl_page_devices(struct pl_page *p) { return readable(p) ? p->devices.count : 0; }

/* Where item `i` of a block lies, or NULL. */
static const uint8_t *item(struct pl_page *p, const struct pl_page_block_at *b, uint32_t i) {
    return readable(p) && i < b->count ? p->at + b->at + (size_t)i * b->stride : NULL;
}

#define WORD(at, type, field) load64((at) + offsetof(struct type, field))

bool pl_page_device(struct pl_page *p, uint32_t i, struct pl_page_device_now *out) {
    const uint8_t *at = item(p, &p->devices, i);
    *out = (struct pl_page_device_now){ 0 };
    if (at == NULL || WORD(at, pl_page_device, sampled_us) == 0) return false;
    *out = (struct pl_page_device_now){
        .index = load32(at + offsetof(struct pl_page_device, index)),
        .sampled_us = WORD(at, pl_page_device, sampled_us),
        .allocated = WORD(at, pl_page_device, allocated),
        .reserved = WORD(at, pl_page_device, reserved),
        .active = WORD(at, pl_page_device, active),
        .peak = WORD(at, pl_page_device, peak),
        .inactive_split = WORD(at, pl_page_device, inactive_split),
        .total = WORD(at, pl_page_device, total),
        .retries = WORD(at, pl_page_device, retries),
        .ooms = WORD(at, pl_page_device, ooms),
    };
    uint8_t uuid[sizeof out->uuid] = { 0 };
    memcpy(uuid, at + offsetof(struct pl_page_device, uuid), sizeof uuid - 1);
    for (size_t k = 0; uuid[k] > ' ' && uuid[k] < 0x7f; k++) out->uuid[k] = (char)uuid[k];
    return true;
}

bool pl_page_host(struct pl_page *p, struct pl_page_host_now *out) {
    const uint8_t *at = item(p, &p->host, 0);
    *out = (struct pl_page_host_now){ 0 };
    if (at == NULL || WORD(at, pl_page_host, sampled_us) == 0) return false;
    *out = (struct pl_page_host_now){
        .sampled_us = WORD(at, pl_page_host, sampled_us),
        .anon = WORD(at, pl_page_host, anon),
        .swap = WORD(at, pl_page_host, swap),
        .rss = WORD(at, pl_page_host, rss),
        .threads = WORD(at, pl_page_host, threads),
        .python_blocks = WORD(at, pl_page_host, python_blocks),
        .gc_objects = WORD(at, pl_page_host, gc_objects),
    };
    return true;
}

bool pl_page_engine(struct pl_page *p, struct pl_page_engine_now *out) {
    const uint8_t *at = item(p, &p->engine, 0);
    *out = (struct pl_page_engine_now){ 0 };
    if (at == NULL || WORD(at, pl_page_engine, sampled_us) == 0) return false;
    *out = (struct pl_page_engine_now){
        .sampled_us = WORD(at, pl_page_engine, sampled_us),
        .cells = WORD(at, pl_page_engine, cells),
        .cells_used = WORD(at, pl_page_engine, cells_used),
        .cells_reserved = WORD(at, pl_page_engine, cells_reserved),
        .cells_cached = WORD(at, pl_page_engine, cells_cached),
        .cells_parked = WORD(at, pl_page_engine, cells_parked),
        .weights = WORD(at, pl_page_engine, weights),
        .compute = WORD(at, pl_page_engine, compute),
        .output = WORD(at, pl_page_engine, output),
        .tokens_in = WORD(at, pl_page_engine, tokens_in),
        .tokens_out = WORD(at, pl_page_engine, tokens_out),
        .kv = WORD(at, pl_page_engine, kv),
        .preemptions = WORD(at, pl_page_engine, preemptions),
        .steps_us = WORD(at, pl_page_engine, steps_us),
    };
    for (size_t i = 0; i < PL_PAGE_STEPS; i++)
        out->steps[i] = load64(at + offsetof(struct pl_page_engine, steps) + i * sizeof(uint64_t));
    return true;
}

bool pl_page_tag(struct pl_page *p, uint32_t i, char text[PL_PAGE_TAG_ROOM]) {
    const uint8_t *at = item(p, &p->tags, i);
    uint8_t copy[PL_PAGE_TAG_TEXT + 1] = { 0 };
    text[0] = 0;
    if (at == NULL) return false;
    uint32_t crc = load32(at + offsetof(struct pl_page_tag, crc));
    memcpy(copy, at + offsetof(struct pl_page_tag, text), PL_PAGE_TAG_TEXT);
    if (copy[0] == 0 || pl_crc32(copy, PL_PAGE_TAG_TEXT) != crc) return false;
    size_t length = strlen((const char *)copy), k = 0;
    while (k < length) {
        size_t wide = pl_utf8_length(copy + k, length - k);
        bool c1 = wide == 2 && copy[k] == 0xc2 && copy[k + 1] < 0xa0;
        if (wide == 0 || c1) {
            bool plain = !c1 && copy[k] >= ' ' && copy[k] < 0x7f;
            text[k] = plain ? (char)copy[k] : '?';
            k++;
            continue;
        }
        memcpy(text + k, copy + k, wide);
        k += wide;
    }
    text[length] = 0;
    return true;
}
