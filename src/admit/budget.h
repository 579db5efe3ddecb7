/* admit/budget.h - bytes of a place (a GPU, a group of them, the host) that running requests may hold
 * together.
 *
 * After an out-of-memory it is lowered to nine tenths of what was charged then, when the allocator had to
 * empty its cache to go on to nineteen twentieths of what it was; what is told within PL_BUDGET_ONE_MS is one
 * shortage. It comes back slowly:
 * nothing for a quiet time that doubles with every OOM (10 minutes to a day), then a fiftieth of the whole a
 * minute. What is charged is never taken back by that; it only leaves no room until enough has ended. Pure.
 */
#ifndef PL_ADMIT_BUDGET_H
#define PL_ADMIT_BUDGET_H
#include <stdbool.h>
#include <stdint.h>

enum {
    PL_BUDGET_QUIET_MS = 600000,
    PL_BUDGET_QUIET_MOST_MS = 86400000,
    PL_BUDGET_STEP_MS = 60000,
    PL_BUDGET_ONE_MS = 3000,
};

struct pl_budget {
    uint64_t full;     /* as configured or measured; 0: no budget */
    uint64_t ever;     /* the most that there was at any time: what is more can never fit */
    uint64_t bytes;    /* now: full, or what an OOM has taught */
    uint64_t taught;   /* that; 0: nothing. Outlives what `full` becomes meanwhile */
    uint64_t charged;  /* by those who run, orphans included; may be over `bytes` */
    uint32_t requests; /* that are charged */
    uint64_t orphans;  /* of them: let in by a main that is dead */
    uint64_t others;   /* charged by others who share the place */
    uint64_t kept;     /* kept back for what requests share */
    uint64_t oom_ms;   /* when it was last lowered: one shortage is told by many */
    uint64_t quiet_ms; /* how long nothing may happen before it grows; 0: no OOM yet */
    uint64_t next_ms;  /* when it may grow next */
};

/* For those of this service, when nobody runs. */
static inline uint64_t pl_budget_most(const struct pl_budget *b) {
    return b->kept < b->bytes ? b->bytes - b->kept : 0;
}
static inline uint64_t pl_budget_free(const struct pl_budget *b) {
    uint64_t most = pl_budget_most(b), taken = b->charged + b->others;
    return taken < most ? most - taken : 0;
}
/* Another whole. What an OOM has taught stays. */
void pl_budget_set(struct pl_budget *b, uint64_t full);
/* There was no memory for what runs now. False: it cannot go lower. */
bool pl_budget_oom(struct pl_budget *b, uint64_t now_ms);
/* The allocator had to empty its cache to go on: a twentieth less. False: as above, or it has just been
 * lowered. */
bool pl_budget_retries(struct pl_budget *b, uint64_t now_ms);
/* True: it has grown. */
bool pl_budget_pass(struct pl_budget *b, uint64_t now_ms);
/* What an earlier life learnt. */
void pl_budget_restore(struct pl_budget *b, uint64_t bytes, uint64_t quiet_ms, uint64_t now_ms);
#endif
