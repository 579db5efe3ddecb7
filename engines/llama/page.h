/* page.h - writes the worker's page (plimsoll/shm.h): a record before a request is begun and one when it is
 * over, so that a death is judged and a charge is given back at the right moment; cells, tokens, bytes and
 * step times, so that nobody has to ask for them. One thread writes. Without a descriptor everything goes
 * into memory that nobody reads. */
#ifndef PL_LLAMA_PAGE_H
#define PL_LLAMA_PAGE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/metrics.h"

struct pl_llm_page {
    uint8_t *at; /* mapped; owned */
    size_t bytes;
};

/* What is said of one request that is over. */
struct pl_llm_page_end {
    uint64_t id;       /* x-plimsoll-id; 0: it had none */
    uint64_t begun;    /* what pl_llm_page_begin gave; 0: it was refused before */
    uint64_t begun_us; /* CLOCK_MONOTONIC */
    uint64_t input_bytes;
    uint16_t status; /* 0: none was sent, the client left */
    bool stream;
    bool whole; /* a stream that ended in order, or any other answer */
};

struct pl_llm_page_engine {
    uint64_t cells, used, reserved, cached, parked;
    uint64_t weights, kv, compute, output; /* bytes */
    uint64_t tokens_in, tokens_out, preemptions;
    const uint64_t *steps; /* PL_METRIC_BUCKETS of them */
    double steps_s;
};

/* `generation` is the text of PLIMSOLL_GENERATION, or NULL. */
bool pl_llm_page_open(struct pl_llm_page *p, int fd, const char *generation, struct pl_err *err);
void pl_llm_page_close(struct pl_llm_page *p);
void pl_llm_page_progress(struct pl_llm_page *p);
void pl_llm_page_loaded(struct pl_llm_page *p, uint64_t now_ms);
/* Its number, from 1. */
uint64_t pl_llm_page_begin(struct pl_llm_page *p, uint64_t id, bool stream, uint64_t now_us);
void pl_llm_page_end(struct pl_llm_page *p, const struct pl_llm_page_end *e, uint64_t now_us);
void pl_llm_page_engine(struct pl_llm_page *p, const struct pl_llm_page_engine *e, uint64_t now_us);
#endif
