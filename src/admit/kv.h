/* admit/kv.h - how much of an LLM engine's KV cache a request will hold, and how full the cache may be made.
 *
 * A prompt's tokens are known as admit/tokens.h knows them; how long an answer will be is learnt: what is
 * expected of one is the 95 % quantile of the latest answers. Where a full cache kills, the worst case is
 * charged. Where it only makes the engine compute again (preemption), charges are a guess at how much work
 * may be in the engine at once, and the budget follows what it then does: see pl_pace. Pure.
 */
#ifndef PL_ADMIT_KV_H
#define PL_ADMIT_KV_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_ANSWERS_WINDOW = 256,
    PL_ANSWERS_KNOWN = 20, /* answers before what is expected is learnt */
    PL_ANSWER_UNKNOWN = 512,
};

/* Tokens of the latest answers of one model. */
struct pl_answers {
    uint32_t at[PL_ANSWERS_WINDOW];
    uint64_t seen;
    uint32_t expect;     /* their 95 % quantile; 0: not known yet */
    double cached_share; /* of prompts: found in the engine's prefix cache; a running mean */
};
void pl_answers_learn(struct pl_answers *a, uint64_t tokens, uint64_t prompt, uint64_t cached);
/* Of one answer that nothing bounds. */
uint64_t pl_answers_expect(const struct pl_answers *a);

struct pl_kv_demand {
    uint64_t prompt;  /* tokens of all prompts together */
    uint64_t prompts; /* at least 1 */
    uint64_t answers; /* of each prompt, at least 1 */
    uint64_t asked;   /* max_tokens; UINT64_MAX: no bound was asked for */
    uint64_t context; /* of the engine, for prompt and answer; 0: not known */
    uint64_t block;   /* tokens of a block; 0 counts as 1 */
    bool worst;       /* the longest answer that may come, and nothing is in the cache */
};
/* Tokens of the cache; UINT64_MAX: out of all proportion. `a` NULL: nothing is known of the model. */
uint64_t pl_kv_tokens(const struct pl_kv_demand *d, const struct pl_answers *a);

/* How much may be charged in front of an engine that preempts, as a multiple of its cache.
 *
 * What is charged of a request is what it holds at its end, and of many at once most are not at theirs; how
 * far the sum lies above what is really held depends on the mix. So the multiple is found, so that the engine
 * is never short of work and yet has little in its own queue: up a twentieth while requests wait here and
 * nobody waits there; down a twentieth when more wait there than two and an eighth of those that run (who was
 * preempted waits, too), or when a quarter of those was preempted since the last look. Between half and eight
 * times. */
struct pl_pace {
    double times; /* 0: not begun, which is 1 */
    uint64_t preemptions, seen_ms;
};
enum { PL_PACE_EVERY_MS = 200 };
struct pl_pace_look {
    uint64_t running, waiting, preemptions;
    bool short_here; /* somebody waits here for bytes, and for nothing else */
};
enum pl_pace_move { PL_PACE_STAYS, PL_PACE_UP, PL_PACE_DOWN };
enum pl_pace_move pl_pace_take(struct pl_pace *p, const struct pl_pace_look *l, uint64_t now_ms);
static inline double pl_pace_times(const struct pl_pace *p) { return p->times > 0 ? p->times : 1; }
#endif
