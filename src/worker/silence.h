/* worker/silence.h - busy is not dead: how long a worker has given no sign of life although it should have.
 *
 * A sign is a change of its page's progress counter, an answer to a probe, an answered request. Time counts
 * only while something is owed (a request in its hands, or a probe under way), and only in steps of at most
 * PL_SILENCE_STEP_MS: when main itself did not run, its worker's silence proves nothing. Two probes must have
 * stayed without an answer: a long handler on a worker that nobody asks is no hang.
 */
#ifndef PL_WORKER_SILENCE_H
#define PL_WORKER_SILENCE_H
#include <stdbool.h>
#include <stdint.h>

enum { PL_SILENCE_STEP_MS = 2000, PL_SILENCE_PROBES = 2 };
struct pl_silence {
    uint64_t progress; /* last seen */
    uint64_t seen_ms;  /* last look */
    uint64_t silent_ms;
    uint32_t unanswered; /* probes in a row */
};
/* Any answer. */
void pl_silence_sign(struct pl_silence *s);
/* A probe got none in its time. */
void pl_silence_unanswered(struct pl_silence *s);
/* One look. `progress` of the page, or 0 without one. Returns how long it has been silent, ms; 0 while it is
 * not certain. */
uint64_t pl_silence_look(struct pl_silence *s, uint64_t progress, bool owes, uint64_t now_ms);
/* The same without looking. */
uint64_t pl_silence_ms(const struct pl_silence *s);
#endif
