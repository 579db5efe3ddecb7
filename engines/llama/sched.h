/* sched.h - continuous batching over one context: who is in the next step, and whose cells are whose.
 *
 * A job waits, runs (it has a sequence), perhaps is parked (its cells lie in host memory), and is done. A
 * cell holds one token of one or more sequences. What is promised: worst       a job starts when prompt +
 * max_tokens cells are free for it: once started it always ends. optimistic  a job starts when its prompt and
 * a little more are free. When the pool runs out, the youngest job is parked and comes back later. Nobody is
 * failed. First come, first served; the oldest running job is never parked, so the pool always drains.
 *
 * Beginnings: the sequence of a finished job may stay as a *kept* one; a later prompt that begins alike
 * shares its cells and computes the rest. Kept cells are counted once, apart from jobs'; they are given up,
 * the least recently used first, before anybody waits for cells.
 *
 * One thread. Times are seconds of a monotonic clock that the caller passes in.
 */
#ifndef PL_LLAMA_SCHED_H
#define PL_LLAMA_SCHED_H
#include "llama/model.h"
#include "sampler.h"

enum pl_llm_end {
    PL_LLM_END_STOP,
    PL_LLM_END_LENGTH,
    PL_LLM_END_DEAD_END, /* the grammar allows nothing */
    PL_LLM_END_LATE,     /* it waited longer than it may, and was never begun */
    PL_LLM_END_FAILED
};

struct pl_llm_job_options {
    llama_token *prompt; /* taken, also when submit refuses */
    int prompt_count;
    int max_tokens; /* at least 1 */
    bool ignore_eos;
    int logprobs;                   /* -1: none; else how many of the likeliest */
    struct pl_llm_sampler *sampler; /* taken */
    void *user;
};

struct pl_llm_job;

struct pl_llm_calls {
    /* A token of the answer. True: it is complete (a stop string). */
    bool (*token)(void *user, llama_token t, const struct pl_llm_chances *chances);
    /* Over; the job is gone after this. `cached`: tokens of the prompt that were not computed. */
    void (*done)(void *user, enum pl_llm_end why, int prompt, int cached, int out);
};

/* Counters since the start, and what is now. */
struct pl_llm_stats {
    uint64_t steps, prompt_tokens, cached_tokens, out_tokens, done, cancelled, refused;
    uint64_t parked_ever, no_cell; /* no_cell: llama.cpp found no room where we promised it; stays 0 */
    uint32_t running, waiting, parked;
    uint32_t cells_used, cells_reserved, cells_kept, cells_parked;
    uint64_t parked_bytes;
};

struct pl_llm_sched;
struct pl_llm_sched *pl_llm_sched_create(struct pl_llm_model *m, const struct pl_llm_options *o,
                                         uint32_t parallel, const struct pl_llm_calls *calls);
void pl_llm_sched_free(struct pl_llm_sched *s);

/* TOO_SLOW: by what jobs took lately it would wait longer than it may. */
enum pl_llm_submitted { PL_LLM_TAKEN, PL_LLM_TOO_LONG, PL_LLM_QUEUE_FULL, PL_LLM_TOO_SLOW, PL_LLM_NO_MEMORY };
enum pl_llm_submitted pl_llm_submit(struct pl_llm_sched *s, const struct pl_llm_job_options *o, double now,
                                    struct pl_llm_job **out);
/* The client is gone: no more calls for this job. */
void pl_llm_cancel(struct pl_llm_sched *s, struct pl_llm_job *j);
bool pl_llm_idle(const struct pl_llm_sched *s);
/* One step. False: the context cannot go on (computing failed); every job was ended as FAILED. `took` is the
 * time of the step before, by which the share of prompts is set; 0: there was none. */
bool pl_llm_step(struct pl_llm_sched *s, double now, double took);
const struct pl_llm_stats *pl_llm_stats(struct pl_llm_sched *s);
/* Seconds until a place may be free, by what jobs took lately; at least 1. */
unsigned pl_llm_retry_after(const struct pl_llm_sched *s);
#endif
