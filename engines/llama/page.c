#include "llama/page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/crc32.h"
#include "plimsoll/shm.h"
#include "sample/proc.h"

static uint64_t own_start(void) {
    char text[1024];
    struct pl_proc_stat stat;
    PL_AUTO_FILE FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f != NULL ? fread(text, 1, sizeof text, f) : 0;
    return n > 0 && pl_proc_read_stat(text, n, &stat) ? stat.start_ticks : 0;
}

static struct pl_page_counts *counts(const struct pl_llm_page *p) {
    return (struct pl_page_counts *)(void *)(p->at + PL_PAGE_COUNTERS_AT);
}

static void store(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static void add(uint64_t *at, uint64_t more) { store(at, *at + more); } /* ours alone to write */

static void write_head(struct pl_llm_page *p, const char *generation) {
    unsigned long long boot = 0, number = 0;
    if (generation == NULL || sscanf(generation, "%llx.%llu", &boot, &number) != 2) boot = number = 0;
    struct pl_page_head h = {
        .major = PL_PAGE_MAJOR,
        .minor = PL_PAGE_MINOR,
        .head_bytes = sizeof h,
        .total_bytes = p->bytes,
        .kind = PL_PAGE_WORKER,
        .writer_pid = (uint32_t)getpid(),
        .writer_start = own_start(),
        .generation = number,
        .boot = boot,
        .counters = { PL_PAGE_COUNTERS_AT, sizeof(struct pl_page_counts), 1, 0 },
        .begins = { PL_PAGE_BEGINS_AT, sizeof(struct pl_page_begin_record), PL_PAGE_RECORDS, 0 },
        .ends = { PL_PAGE_ENDS_AT, sizeof(struct pl_page_end_record), PL_PAGE_RECORDS, 0 },
        .engine = { PL_PAGE_ENGINE_AT, sizeof(struct pl_page_engine), 1, 0 },
    };
    size_t from = offsetof(struct pl_page_head, head_bytes);
    h.crc = pl_crc32((const uint8_t *)&h + from, sizeof h - from);
    counts(p)->features = PL_PAGE_F_RECORDS;
    memcpy(p->at, &h, sizeof h);
    __atomic_store_n((uint32_t *)(void *)p->at, PL_PAGE_MAGIC, __ATOMIC_RELEASE);
}

bool pl_llm_page_open(struct pl_llm_page *p, int fd, const char *generation, struct pl_err *err) {
    struct stat st = { .st_size = PL_PAGE_BYTES };
    *p = (struct pl_llm_page){ 0 };
    if (fd != -1 && fstat(fd, &st) == -1) return PL_FAIL_SYS(err, errno, "page: descriptor %d", fd);
    if (st.st_size < (off_t)PL_PAGE_BYTES)
        return PL_FAIL(err, PL_E_USAGE, "page: descriptor %d: %lld bytes, %u are needed", fd,
                       (long long)st.st_size, PL_PAGE_BYTES);
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
                    fd == -1 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return PL_FAIL_SYS(err, errno, "page: map descriptor %d", fd);
    *p = (struct pl_llm_page){ .at = at, .bytes = (size_t)st.st_size };
    write_head(p, generation);
    return true;
}

void pl_llm_page_close(struct pl_llm_page *p) {
    if (p->at != NULL) munmap(p->at, p->bytes);
    *p = (struct pl_llm_page){ 0 };
}

void pl_llm_page_progress(struct pl_llm_page *p) { add(&counts(p)->progress, 1); }
void pl_llm_page_loaded(struct pl_llm_page *p, uint64_t now_ms) { store(&counts(p)->loaded_ms, now_ms); }

/* Record number n of a ring: odd sequence, fields, even sequence, and only then the counter. Both kinds of
 * record begin with crc, flags, seq. */
static void publish(uint8_t *slot, void *record, size_t size, uint64_t n, uint64_t *counter) {
    struct pl_page_begin_record *from = record, *to = (struct pl_page_begin_record *)(void *)slot;
    from->seq = 2 * n + 2;
    from->crc = pl_crc32((const uint8_t *)record + sizeof from->crc, size - sizeof from->crc);
    __atomic_store_n(&to->seq, 2 * n + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* odd before the first new byte */
    to->crc = from->crc;
    to->flags = from->flags;
    memcpy(&to->id, &from->id, size - offsetof(struct pl_page_begin_record, id));
    store(&to->seq, from->seq);
    store(counter, n + 1);
}

uint64_t pl_llm_page_begin(struct pl_llm_page *p, uint64_t id, bool stream, uint64_t now_us) {
    struct pl_page_counts *c = counts(p);
    uint64_t n = c->begun;
    struct pl_page_begin_record r = {
        .flags = (stream ? PL_RECORD_STREAM : 0) | (c->in_flight == 0 ? PL_RECORD_ALONE : 0),
        .id = id,
        .at_us = now_us,
        .thread = (uint32_t)syscall(SYS_gettid),
        .in_flight = (uint32_t)c->in_flight + 1,
        .route = PL_NO_ROUTE,
        .tag = PL_NO_TAG,
    };
    if (c->serving_ms == 0) store(&c->serving_ms, now_us / 1000);
    add(&c->in_flight, 1);
    publish(p->at + PL_PAGE_BEGINS_AT + n % PL_PAGE_RECORDS * sizeof r, &r, sizeof r, n, &c->begun);
    pl_llm_page_progress(p);
    return n + 1;
}

/* Alone: nobody else was there when it began, and nobody has begun since. */
static uint32_t end_flags(const struct pl_llm_page *p, const struct pl_llm_page_end *e, uint64_t left) {
    const struct pl_page_begin_record *b;
    if (e->begun == 0) return PL_RECORD_UNBEGUN;
    b = (const struct pl_page_begin_record *)(const void *)(p->at + PL_PAGE_BEGINS_AT) +
        (e->begun - 1) % PL_PAGE_RECORDS;
    bool alone = counts(p)->begun == e->begun && (b->flags & PL_RECORD_ALONE) != 0;
    return (uint32_t)(alone ? PL_RECORD_ALONE : PL_RECORD_OVERLAPPED) | (left == 0 ? PL_RECORD_QUIESCENT : 0);
}

void pl_llm_page_end(struct pl_llm_page *p, const struct pl_llm_page_end *e, uint64_t now_us) {
    struct pl_page_counts *c = counts(p);
    uint64_t n = c->ended, left = c->in_flight - (e->begun != 0);
    struct pl_page_end_record r = {
        .flags = end_flags(p, e, left) | (e->stream ? PL_RECORD_STREAM : 0),
        .id = e->id,
        .at_us = now_us,
        .duration_us = e->begun != 0 ? now_us - e->begun_us : 0,
        .thread = (uint32_t)syscall(SYS_gettid),
        .in_flight = (uint32_t)left,
        .route = PL_NO_ROUTE,
        .status = e->status,
        .outcome = e->status == 0                  ? PL_OUTCOME_CANCELLED
                   : e->status >= 500 || !e->whole ? PL_OUTCOME_ERROR
                   : e->status >= 400              ? PL_OUTCOME_CLIENT_ERROR
                                                   : PL_OUTCOME_OK,
        .tag = PL_NO_TAG,
        .input_bytes = e->input_bytes,
        .begun = e->begun,
    };
    if (r.outcome == PL_OUTCOME_ERROR) add(&c->errors, 1);
    store(&c->in_flight, left);
    publish(p->at + PL_PAGE_ENDS_AT + n % PL_PAGE_RECORDS * sizeof r, &r, sizeof r, n, &c->ended);
    pl_llm_page_progress(p);
}

void pl_llm_page_engine(struct pl_llm_page *p, const struct pl_llm_page_engine *e, uint64_t now_us) {
    struct pl_page_engine *to = (struct pl_page_engine *)(void *)(p->at + PL_PAGE_ENGINE_AT);
    store(&to->cells, e->cells);
    store(&to->cells_used, e->used);
    store(&to->cells_reserved, e->reserved);
    store(&to->cells_cached, e->cached);
    store(&to->cells_parked, e->parked);
    store(&to->weights, e->weights);
    store(&to->kv, e->kv);
    store(&to->compute, e->compute);
    store(&to->output, e->output);
    store(&to->tokens_in, e->tokens_in);
    store(&to->tokens_out, e->tokens_out);
    store(&to->preemptions, e->preemptions);
    store(&to->steps_us, (uint64_t)(e->steps_s * 1e6));
    for (size_t i = 0; i < PL_PAGE_STEPS; i++) store(&to->steps[i], e->steps[i]);
    store(&to->sampled_us, now_us);
}
