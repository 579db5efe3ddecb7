/* tests/support/page_writer.h - writes a worker's page as python/plimsoll/page.py does, and lets a test write
 * it wrongly. */
#ifndef PL_TESTS_PAGE_WRITER_H
#define PL_TESTS_PAGE_WRITER_H
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32.h"
#include "plimsoll/shm.h"

union page_memory {
    uint8_t bytes[PL_PAGE_BYTES];
    struct pl_page_head head;
    uint64_t align;
};

static inline struct pl_page_counts *page_counts(union page_memory *m) {
    return (struct pl_page_counts *)(void *)(m->bytes + PL_PAGE_COUNTERS_AT);
}

static inline struct pl_page_begin_record *page_begin_slot(union page_memory *m, uint64_t n) {
    return (struct pl_page_begin_record *)(void *)(m->bytes + PL_PAGE_BEGINS_AT) + n % PL_PAGE_RECORDS;
}

static inline struct pl_page_end_record *page_end_slot(union page_memory *m, uint64_t n) {
    return (struct pl_page_end_record *)(void *)(m->bytes + PL_PAGE_ENDS_AT) + n % PL_PAGE_RECORDS;
}

static inline void page_sign_head(struct pl_page_head *h) {
    size_t from = offsetof(struct pl_page_head, head_bytes);
    h->crc = pl_crc32((const uint8_t *)h + from, sizeof *h - from);
}

static inline void page_write_head(union page_memory *m) {
    memset(m, 0, sizeof *m);
    m->head = (struct pl_page_head){
        .magic = PL_PAGE_MAGIC,
        .major = PL_PAGE_MAJOR,
        .minor = PL_PAGE_MINOR,
        .head_bytes = sizeof m->head,
        .total_bytes = sizeof *m,
        .kind = PL_PAGE_WORKER,
        .counters = { PL_PAGE_COUNTERS_AT, sizeof(struct pl_page_counts), 1, 0 },
        .begins = { PL_PAGE_BEGINS_AT, sizeof(struct pl_page_begin_record), PL_PAGE_RECORDS, 0 },
        .ends = { PL_PAGE_ENDS_AT, sizeof(struct pl_page_end_record), PL_PAGE_RECORDS, 0 },
        .devices = { PL_PAGE_DEVICES_AT, sizeof(struct pl_page_device), PL_PAGE_DEVICES, 0 },
        .host = { PL_PAGE_HOST_AT, sizeof(struct pl_page_host), 1, 0 },
        .engine = { PL_PAGE_ENGINE_AT, sizeof(struct pl_page_engine), 1, 0 },
        .tags = { PL_PAGE_TAGS_AT, sizeof(struct pl_page_tag), PL_PAGE_TAGS, 0 },
    };
    page_sign_head(&m->head);
    page_counts(m)->features = PL_PAGE_F_RECORDS;
}

/* The record itself, without the counter that publishes it. */
static inline void page_fill_begin(union page_memory *m, uint64_t n, uint64_t id) {
    struct pl_page_begin_record *r = page_begin_slot(m, n);
    memset(r, 0, sizeof *r);
    r->seq = 2 * n + 2;
    r->id = id;
    r->crc = pl_crc32((const uint8_t *)r + sizeof r->crc, sizeof *r - sizeof r->crc);
}

static inline void page_begin(union page_memory *m, uint64_t id) {
    uint64_t n = page_counts(m)->begun;
    page_fill_begin(m, n, id);
    page_counts(m)->begun = n + 1;
}

/* Publishes an end record; number and CRC are filled in. */
static inline void page_end_as(union page_memory *m, struct pl_page_end_record r) {
    uint64_t n = page_counts(m)->ended;
    r.seq = 2 * n + 2;
    r.crc = pl_crc32((const uint8_t *)&r + sizeof r.crc, sizeof r - sizeof r.crc);
    *page_end_slot(m, n) = r;
    page_counts(m)->ended = n + 1;
}

static inline void page_end(union page_memory *m, uint64_t id, uint32_t outcome, const char *error_class) {
    struct pl_page_end_record r = { .id = id, .duration_us = 1500, .outcome = outcome };
    for (size_t i = 0; i < sizeof r.error_class && error_class[i] != 0; i++)
        r.error_class[i] = error_class[i];
    page_end_as(m, r);
}

static inline struct pl_page_device *page_device(union page_memory *m, uint32_t i) {
    return (struct pl_page_device *)(void *)(m->bytes + PL_PAGE_DEVICES_AT) + i;
}

static inline struct pl_page_host *page_host(union page_memory *m) {
    return (struct pl_page_host *)(void *)(m->bytes + PL_PAGE_HOST_AT);
}

static inline struct pl_page_engine *page_engine(union page_memory *m) {
    return (struct pl_page_engine *)(void *)(m->bytes + PL_PAGE_ENGINE_AT);
}

static inline struct pl_page_tag *page_tag(union page_memory *m, uint32_t i) {
    return (struct pl_page_tag *)(void *)(m->bytes + PL_PAGE_TAGS_AT) + i;
}

static inline void page_write_tag(union page_memory *m, uint32_t i, const char *text) {
    struct pl_page_tag *t = page_tag(m, i);
    memset(t->text, 0, sizeof t->text);
    for (size_t k = 0; k < sizeof t->text && text[k] != 0; k++) t->text[k] = text[k];
    t->crc = pl_crc32((const uint8_t *)t->text, sizeof t->text);
}
#endif
