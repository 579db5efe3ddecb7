/* sched_inside.h - the scheduler's own: jobs, kept beginnings and their cells. */
#ifndef PL_LLAMA_SCHED_INSIDE_H
#define PL_LLAMA_SCHED_INSIDE_H
#include "llama/sched.h"

/* A beginning that stays: `count` tokens in sequence `seq`. */
struct pl_llm_kept {
    bool used;
    llama_seq_id seq;
    llama_token *tokens; /* owned */
    int count;
    int pins;     /* running jobs that share its cells */
    uint64_t age; /* when it was last of use, by the scheduler's count */
};

struct pl_llm_job {
    struct pl_llm_job *next;
    struct pl_llm_job_options o;
    uint64_t id;
    llama_seq_id seq; /* -1: it waits or is parked */
    int past;         /* tokens that are in cells: computed, or shared */
    int shared;       /* of those: in cells of `kept` */
    struct pl_llm_kept *kept;
    int cached; /* tokens that were shared at the start, for usage */
    int out;
    double came, began; /* was submitted; got its sequence */
    int row;            /* of the batch, whose logits are for it; -1 */
    llama_token last;
    llama_token *said; /* what it generated, for keeping; owned */
    void *parked;      /* its cells' content; owned */
    size_t parked_bytes;
};

struct pl_llm_sched {
    struct pl_llm_model *m;
    const struct pl_llm_options *o;
    struct pl_llm_calls calls;
    struct pl_llm_job **run; /* by sequence; NULL: free or kept */
    struct pl_llm_job *head, *tail, *parked;
    struct pl_llm_kept kept[PL_LLM_SPARE_SEQUENCES];
    llama_token_data *room;
    uint32_t parallel;
    uint32_t own;      /* cells of running jobs, shared ones apart */
    uint32_t reserved; /* worst case of running jobs, shared ones apart */
    uint32_t held;     /* cells of kept beginnings */
    uint32_t chunk;    /* prompt tokens of a step while others generate */
    uint64_t next_id, clock;
    double now;
    double job_s; /* what a job takes, running mean */
    struct pl_llm_stats stats;
};

/* Cells that nobody counts on. */
uint32_t pl_llm_free_cells(const struct pl_llm_sched *s, uint32_t promised);

/* --- keep.c */
/* Gives the job the longest beginning that is there, in its new sequence. */
void pl_llm_share(struct pl_llm_sched *s, struct pl_llm_job *j);
void pl_llm_unshare(struct pl_llm_sched *s, struct pl_llm_job *j);
/* The job is over and its sequence may stay. True: it did, and is no longer the job's. */
bool pl_llm_keep(struct pl_llm_sched *s, struct pl_llm_job *j);
/* Gives up kept cells until `cells` are free besides `promised`. False: there are not as many. */
bool pl_llm_make_room(struct pl_llm_sched *s, uint32_t cells, uint32_t promised);
llama_seq_id pl_llm_free_sequence(struct pl_llm_sched *s);
void pl_llm_forget(struct pl_llm_sched *s, struct pl_llm_kept *k);
void pl_llm_forget_all(struct pl_llm_sched *s);
#endif
