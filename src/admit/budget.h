/* admit/budget.h - bytes of a place (a GPU, a group of them, the host) that running requests may hold
 * together.
 *
 * After an out-of-memory it is lowered to nine tenths of what was charged then, and comes back slowly:
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
};

struct pl_budget {
    uint64_t full;     /* as configured or measured; 0: no budget */
    uint64_t bytes;    /* now: at most full */
    uint64_t charged;  /* by those who run; may be over `bytes` */
    uint64_t quiet_ms; /* how long nothing may happen before it grows; 0: no OOM yet */
    uint64_t next_ms;  /* when it may grow next */
};

static inline uint64_t pl_budget_free(const struct pl_budget *b) {
    return b->charged < b->bytes ? b->bytes - b->charged : 0;
}
/* Another whole. What an OOM has taught stays. */
void pl_budget_set(struct pl_budget *b, uint64_t full);
/* There was no memory for what runs now. False: it cannot go lower. */
bool pl_budget_oom(struct pl_budget *b, uint64_t now_ms);
/* True: it has grown. */
bool pl_budget_pass(struct pl_budget *b, uint64_t now_ms);
/* What an earlier life learnt: `bytes` of the whole it had then. */
void pl_budget_restore(struct pl_budget *b, uint64_t bytes, uint64_t quiet_ms, uint64_t now_ms);
#endif
