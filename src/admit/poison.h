/* admit/poison.h - requests that kill workers. A fingerprint that was in a handler at two deaths within ten
 * minutes is poison: it is refused for ten minutes, so that the retries of one client do not take worker
 * after worker. One that was answered since is none: it only stood beside what killed the worker, as
 * a request that everybody sends does.
 *
 * Pure: a small table, the oldest entry makes room. A death counts once for a fingerprint, however many such
 * requests were in hand.
 */
#ifndef PL_ADMIT_POISON_H
#define PL_ADMIT_POISON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_POISON_ENTRIES = 64, PL_POISON_DEATHS = 2, PL_POISON_WINDOW_MS = 600000 };

struct pl_suspect {
    uint64_t fingerprint;
    uint64_t first_ms, last_ms; /* of the deaths that count */
    uint64_t generation;        /* of the last of them */
    uint32_t deaths;            /* 0: free */
};
struct pl_poison {
    struct pl_suspect at[PL_POISON_ENTRIES];
    size_t count;
};

/* Of a request: its method and target, query and all, and its whole body. */
uint64_t pl_poison_fingerprint(unsigned method, const char *target, size_t target_len, const void *body,
                               size_t body_len);
/* Such a request was in a handler when `generation` died. True: it has just become poison. */
bool pl_poison_death(struct pl_poison *p, uint64_t fingerprint, uint64_t generation, uint64_t now_ms);
/* A worker has answered such a request: nothing is held against it any more. */
void pl_poison_answered(struct pl_poison *p, uint64_t fingerprint);
/* How long it is refused still, ms; 0: it may go. */
uint64_t pl_poison_left_ms(const struct pl_poison *p, uint64_t fingerprint, uint64_t now_ms);
uint32_t pl_poison_deaths(const struct pl_poison *p, uint64_t fingerprint);
/* New code, or a new configuration: nothing is held against anybody. */
void pl_poison_forget(struct pl_poison *p);
#endif
