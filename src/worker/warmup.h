/* worker/warmup.h - when is a worker warm: repeated until latency is flat. Fresh BentoML and PyTorch workers
 * needed 8 to 12 requests by this rule.
 *
 * After request n >= 8, with windows of 4: flat when median(n-7..n-4) <= max(1.25 * median(n-3..n),
 * median(n-3..n) + 0.5 ms). Judged on the worker's CPU time: a busy machine does not prolong it. Bounded by
 * count and time. One round per sample, since lazy work is per shape; every sample is sent at least once,
 * whatever the bounds say: a declared one that fails must be seen.
 */
#ifndef PL_WORKER_WARMUP_H
#define PL_WORKER_WARMUP_H
#include <stdbool.h>
#include <stdint.h>

enum { PL_WARMUP_WINDOW = 4 };
struct pl_warmup {
    uint32_t max;         /* requests in all rounds; 0: one each and no more */
    uint64_t max_time_ms; /* in all */
    bool until_flat;      /* false: one each and no more */
    uint64_t started_ms;
    uint32_t done;  /* in all */
    uint32_t round; /* in this round */
    uint64_t cost_us[2 * PL_WARMUP_WINDOW],
        wall_us[PL_WARMUP_WINDOW]; /* the latest of this round, as rings */
    uint64_t first_us, settled_us; /* wall: of the very first; median of the last four of the last round */
};
/* AGAIN: the same sample once more. Else this round is over, because its latency is FLAT or because a BOUND
 * is reached: go on with pl_warmup_next_round and the next sample, if there is one. */
enum pl_warmup_next { PL_WARMUP_AGAIN, PL_WARMUP_FLAT, PL_WARMUP_BOUND };

void pl_warmup_start(struct pl_warmup *w, uint32_t max, uint64_t max_time_ms, bool until_flat,
                     uint64_t now_ms);
void pl_warmup_next_round(struct pl_warmup *w);
/* One request is answered: its cost in the worker's CPU microseconds (or wall, where CPU is unknown) and its
 * wall time. */
enum pl_warmup_next pl_warmup_took(struct pl_warmup *w, uint64_t cost_us, uint64_t wall_us, uint64_t now_ms);
#endif
