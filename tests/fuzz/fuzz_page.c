/* fuzz_page.c - any bytes as a worker's page: header, counters, both rings, devices, host, engine, tags.
 * USES sample base
 * Exercises src/sample/page.c. The first byte: bit 0 signs the header, bit 1 declares every record's CRC
 * good. The next two pick the id and the mark to ask for; the rest is the page. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "plimsoll/shm.h"
#include "sample/page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign_head(uint8_t *page, size_t bytes) {
    struct pl_page_head h;
    size_t from = offsetof(struct pl_page_head, head_bytes);
    if (bytes < sizeof h) return;
    memcpy(&h, page, sizeof h);
    h.magic = PL_PAGE_MAGIC;
    h.major = PL_PAGE_MAJOR;
    h.head_bytes = sizeof h;
    h.total_bytes = bytes;
    h.crc = pl_crc32((const uint8_t *)&h + from, sizeof h - from);
    memcpy(page, &h, sizeof h);
}

static void sign_records(uint8_t *page, size_t bytes, const struct pl_page_ring *r) {
    for (size_t at = r->at, i = 0; i <= r->mask && at + r->stride <= bytes; i++, at += r->stride) {
        uint32_t crc = pl_crc32(page + at + sizeof crc, r->stride - sizeof crc);
        memcpy(page + at, &crc, sizeof crc);
    }
}

static void read_memory(struct pl_page *p, uint64_t cursor) {
    static struct pl_page_record records[64];
    struct pl_page_device_now device;
    struct pl_page_host_now host;
    struct pl_page_engine_now engine;
    char text[PL_PAGE_TAG_ROOM];
    uint64_t lost = 0;
    while (pl_page_take_ends(p, &cursor, records, 64, &lost) == 64) {
    }
    for (uint32_t i = 0; i < pl_page_devices(p); i++) pl_page_device(p, i, &device);
    pl_page_host(p, &host);
    pl_page_engine(p, &engine);
    for (uint32_t i = 0; pl_page_tag(p, i, text); i++) {
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_page p;
    struct pl_page_counters c = { 0 };
    struct pl_page_end e;
    struct pl_err err;
    if (size < 3) return 0;
    size_t bytes = size - 3;
    uint8_t *page = malloc(bytes > 0 ? bytes : 1);
    if (page == NULL) return 0;
    memcpy(page, data + 3, bytes);
    if ((data[0] & 1) != 0) sign_head(page, bytes);
    if (pl_page_open(&p, page, bytes, &err) && p.open && (data[0] & 2) != 0) {
        sign_records(page, bytes, &p.begins);
        sign_records(page, bytes, &p.ends);
    }
    pl_page_counters(&p, &c);
    pl_page_began(&p, data[1], c.begun - data[2]);
    pl_page_ended(&p, data[1], c.ended - data[2], &e);
    read_memory(&p, c.ended - data[2]);
    free(page);
    return 0;
}
