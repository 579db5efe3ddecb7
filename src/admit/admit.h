/* admit/admit.h - who may go to a worker now, who waits, who is refused and told when to come back.
 *
 * A count of running requests (max_concurrency), bytes at each place where workers run (admit/budget.h), and
 * a bounded queue by count and wait, higher ranks first and fair between flows (admit/line.h). The charge is
 * taken at arrival, in one place, and given back when the worker is really done; nothing here knows a socket
 * or a clock. An entry lives inside the request it stands for; every entry that was admitted or queued must
 * be released or withdrawn exactly once.
 */
#ifndef PL_ADMIT_ADMIT_H
#define PL_ADMIT_ADMIT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admit/budget.h"
#include "base/reasons.h"

struct pl_admit_limits {
    int64_t max_concurrency; /* whole service; <= 0: no limit */
    int64_t queue_requests;  /* 0: no queue */
    uint64_t max_wait_ms;
    bool observe; /* who could be given to a worker is: what would be done is only told */
};

/* What the crew says about the service's workers when a request arrives. */
struct pl_admit_supply {
    uint32_t ready;        /* workers that may be given a request now */
    bool was_ready;        /* it has been ready in this life: a gap, not a first start */
    bool failed;           /* FAILED or BACKOFF everywhere: nobody is on the way */
    bool draining;         /* the instance or the service takes nothing new */
    uint64_t boot_left_ms; /* expected until a worker is ready; 0 = unknown */
    bool handover;         /* the gap was opened on purpose: requests are held */
    uint64_t hold_ms;      /* for so long at most; takes the place of max_wait while it is open */
    uint32_t places;       /* where workers are ready: a bit for each of pl_admit.places; only for budgets */
    bool out_of_service;   /* workers are ready, and every one of them on a device that does not answer */
};

/* What a cost does to whom it belongs. */
enum pl_admit_hold {
    PL_ADMIT_STRICT, /* it must fit */
    PL_ADMIT_TOLD,   /* still learning: it is charged, and what would have been done is only told */
    PL_ADMIT_FREE,   /* charged, and never held back by it: all of them together would fit */
    PL_ADMIT_ALONE,  /* not known: runs when nobody else does, and is charged everything */
};

enum pl_admit_state { PL_ADMIT_OUTSIDE, PL_ADMIT_QUEUED, PL_ADMIT_RUNNING };
struct pl_admit_entry {
    struct pl_admit_entry *next, *prev; /* queue, oldest first */
    uint64_t arrived_ms, started_ms;
    uint64_t number; /* order of arrival; what the queue is sorted by */
    uint8_t state;   /* enum pl_admit_state; zero it before the first use */
    uint8_t place;   /* while it runs, and is charged: where */
    uint32_t flow;   /* set before pl_admit_arrive: whose it is; 0: nobody's in particular */
    uint8_t rank;    /* set before pl_admit_arrive: 0 to PL_ADMIT_RANKS - 1, higher ones go first */
    uint64_t cost;   /* set before pl_admit_arrive: bytes; 0: none */
    uint8_t hold;    /* set before pl_admit_arrive: enum pl_admit_hold */
    bool orphan;
    uint64_t charged;
    uint64_t
        prefill; /* set before pl_admit_arrive: prompt tokens that the engine is still to compute; 0: none */
    uint64_t prefill_held;
    uint64_t turn; /* inside, see line.h */
    struct pl_admit_entry *flow_next, *flow_prev;
};

enum {
    PL_ADMIT_RANKS = 3,
    PL_ADMIT_FLOWS = 256 * PL_ADMIT_RANKS,
    PL_ADMIT_PLACES = 32,
    PL_ADMIT_NOWHERE = 255
};
struct pl_admit_flow {
    struct pl_admit_entry *oldest, *newest; /* of those that wait */
    uint64_t finish;                        /* virtual time at which its last one ends */
};

struct pl_admit {
    struct pl_admit_limits limits;
    struct pl_admit_entry *oldest, *newest;
    int64_t running; /* admitted and not released: zombies included */
    int64_t queued;
    uint64_t arrivals;
    double drain_per_s;  /* served releases while every place was taken, see admit.c; 0 = not known */
    uint64_t seen_ms;    /* time before this is counted; 0 = none yet */
    uint64_t full_at_ms; /* when all places were last taken */
    uint64_t saturated_ms, served;
    bool saturated;                    /* all places were taken at some time in the millisecond seen_ms */
    bool held;                         /* a handover is open */
    uint64_t held_from_ms, held_to_ms; /* when it was opened; when the last one closed */
    uint64_t hold_ms, gap_left_ms;     /* of it, as last told */
    struct pl_budget places[PL_ADMIT_PLACES];
    bool bytes_short;                /* the next one found no room for its bytes, or for its prompt */
    bool prefill_short;              /* for its prompt */
    uint64_t prefill, prefill_limit; /* prompt tokens in work, and how many may be; limit 0: any number */
    bool alone_held; /* one ran alone and what it taught is not in yet: nobody else runs alone */
    int64_t orphans; /* of those that run: let in by a main that is dead */
    struct pl_admit_flow flows[PL_ADMIT_FLOWS];
    uint16_t active[PL_ADMIT_FLOWS], active_count; /* flows with somebody who waits */
    uint64_t turn;                                 /* virtual time */
};

enum pl_admit_verdict { PL_ADMIT_GO, PL_ADMIT_WAIT, PL_ADMIT_REFUSED };
struct pl_admit_refusal {
    enum pl_reason reason;
    uint64_t retry_after_ms; /* never 0; the header is whole seconds, rounded up */
};

void pl_admit_init(struct pl_admit *a, const struct pl_admit_limits *limits);
/* Live change of limits; lowered below use it never evicts. Call pl_admit_next after it. */
void pl_admit_set_limits(struct pl_admit *a, const struct pl_admit_limits *limits);
/* A place's budget, 0: none. A request is charged where most is free; where no place has a budget, bytes do
 * not count. Call pl_admit_next after it. */
void pl_admit_set_budget(struct pl_admit *a, unsigned place, uint64_t full);

/* Prompts that may be computed at once; one alone may be longer. Call pl_admit_next after it. */
void pl_admit_set_prefill(struct pl_admit *a, uint64_t limit);
/* The prompt of a running one has been computed. Call pl_admit_next after it. True: it was not known before.
 */
bool pl_admit_prefilled(struct pl_admit *a, struct pl_admit_entry *e);
/* A running one turns out to hold another number of bytes. The budget may be overrun by it. */
void pl_admit_recharge(struct pl_admit *a, struct pl_admit_entry *e, uint64_t bytes);

/* GO: running now. WAIT: in the queue. REFUSED: `why` is filled, the entry stays outside. With `observe` what
 * a limit would have refused is GO, and `why` is filled all the same (else its reason is NONE); those that
 * run above the limit stand for the queue then. Without a worker there is nothing to let through, and observe
 * changes nothing. No ready worker: a first start is refused (not_ready, Retry-After = remaining boot, 5 s
 * when nobody knows it); a gap waits in the queue if the boot is expected within max_wait (an unknown one
 * counts as such), else not_ready. A place in the queue is refused early (predicted_wait) only while the
 * drain rate is well known. A handover waits in the queue if its end is expected within the hold, else
 * `handover` with what is left of it. Never jumps the queue. Draining and failed services answer with the
 * remaining boot too: something else may be coming up. A cost above every place's whole budget can never fit
 * (context_length); one above what is left of them after an OOM is refused too (budget). */
enum pl_admit_verdict pl_admit_arrive(struct pl_admit *a, struct pl_admit_entry *e,
                                      const struct pl_admit_supply *s, uint64_t now_ms,
                                      struct pl_admit_refusal *why);
/* Whose turn it is in the queue, or NULL: its cost may be set anew before pl_admit_next. */
struct pl_admit_entry *pl_admit_head(const struct pl_admit *a);
/* One that a dead main let in and that a worker may still be at: runs, charged `bytes` at `place` (NOWHERE:
 * only counted). Ends with pl_admit_release. */
void pl_admit_adopt(struct pl_admit *a, struct pl_admit_entry *e, unsigned place, uint64_t bytes,
                    uint64_t now_ms);
/* The next one of the queue that may run now, made RUNNING; or NULL. Call until NULL after a release, a
 * worker that became ready, or a change of limits. `draining` does not hold back who was let in before: see
 * pl_admit_evict. */
struct pl_admit_entry *pl_admit_next(struct pl_admit *a, const struct pl_admit_supply *s, uint64_t now_ms);
/* The oldest that has waited max_wait, taken out (OUTSIDE); or NULL. `why` gets waited_too_long. While a
 * handover is open it is the hold that counts, and `handover`: from the opening for who waited already, and
 * at once for them when the gap will be longer than that. Held time is not counted again when it is over. */
struct pl_admit_entry *pl_admit_expired(struct pl_admit *a, uint64_t now_ms, struct pl_admit_refusal *why);
/* When pl_admit_expired should next be asked; 0 = never. */
uint64_t pl_admit_deadline(const struct pl_admit *a);
/* A running one is really done (its handler ended). `served`: it counts for the drain rate. */
void pl_admit_release(struct pl_admit *a, struct pl_admit_entry *e, bool served, uint64_t now_ms);
/* A queued one left by itself (client gone). */
void pl_admit_withdraw(struct pl_admit *a, struct pl_admit_entry *e);
/* A running one goes back to the front of the queue (its worker died before it began), among its like in the
 * order of arrival; keeps its arrival time, also for max_wait. May overfill the queue: it was let in once. */
void pl_admit_requeue(struct pl_admit *a, struct pl_admit_entry *e);
/* The service drains or has failed: takes the oldest queued one out, or NULL. */
struct pl_admit_entry *pl_admit_evict(struct pl_admit *a);
/* What a refused client should wait: (queued + 1) / drain rate, from 1 s to 1 h; 1 s while the rate is not
 * known. */
uint64_t pl_admit_retry_after(const struct pl_admit *a);
#endif
