#include "admit/kv.h"

#include <stdlib.h>
#include <string.h>

enum { QUANTILE_PCT = 95 };
static const double cached_weight = 1.0 / 32, step_up = 1.05, step_down = 0.95;
static const double times_least = 0.5, times_most = 8;

static int by_size(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void pl_answers_learn(struct pl_answers *a, uint64_t tokens, uint64_t prompt, uint64_t cached) {
    uint32_t sorted[PL_ANSWERS_WINDOW];
    a->at[a->seen++ % PL_ANSWERS_WINDOW] = tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
    if (prompt > 0 && cached <= prompt)
        a->cached_share += ((double)cached / (double)prompt - a->cached_share) * cached_weight;
    /* not at every answer: sorting is the dear part, and a quantile of hundreds does not move with one */
    if (a->seen < PL_ANSWERS_KNOWN || (a->seen > PL_ANSWERS_WINDOW && a->seen % 16 != 0)) return;
    size_t n = a->seen < PL_ANSWERS_WINDOW ? (size_t)a->seen : PL_ANSWERS_WINDOW;
    memcpy(sorted, a->at, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_size);
    a->expect = sorted[(n - 1) * QUANTILE_PCT / 100];
    if (a->expect == 0) a->expect = 1;
}

uint64_t pl_answers_expect(const struct pl_answers *a) {
    return a != NULL && a->expect > 0 ? a->expect : PL_ANSWER_UNKNOWN;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Of one answer to one prompt. */
static uint64_t answer_tokens(const struct pl_kv_demand *d, const struct pl_answers *a) {
    uint64_t each = d->prompt / (d->prompts > 0 ? d->prompts : 1);
    uint64_t room = d->context == 0 ? UINT64_MAX : d->context > each ? d->context - each : 0;
    if (d->worst) return least(d->asked, room);
    return least(least(d->asked, room), pl_answers_expect(a));
}

uint64_t pl_kv_tokens(const struct pl_kv_demand *d, const struct pl_answers *a) {
    uint64_t prompts = d->prompts > 0 ? d->prompts : 1, answers = d->answers > 0 ? d->answers : 1;
    uint64_t block = d->block > 0 ? d->block : 1, out = answer_tokens(d, a), all, round;
    double share = a != NULL && !d->worst ? a->cached_share : 0;
    uint64_t prompt = share > 0 && share <= 1 ? d->prompt - (uint64_t)((double)d->prompt * share) : d->prompt;
    if (__builtin_mul_overflow(prompts, answers, &all) || __builtin_mul_overflow(all, out, &all) ||
        __builtin_add_overflow(all, prompt, &all) || __builtin_add_overflow(all, block - 1, &round))
        return UINT64_MAX;
    return round / block * block;
}

enum pl_pace_move pl_pace_take(struct pl_pace *p, const struct pl_pace_look *l, uint64_t now_ms) {
    double before = pl_pace_times(p);
    if (p->seen_ms == 0 || l->preemptions < p->preemptions) { /* the first, or it began anew */
        p->preemptions = l->preemptions;
        p->seen_ms = now_ms;
        return PL_PACE_STAYS;
    }
    if (now_ms - p->seen_ms < PL_PACE_EVERY_MS) return PL_PACE_STAYS;
    uint64_t preempted = l->preemptions - p->preemptions;
    p->preemptions = l->preemptions;
    p->seen_ms = now_ms;
    p->times = before;
    if (preempted * 4 > l->running || l->waiting > 2 + l->running / 8)
        p->times = before * step_down;
    else if (l->short_here && l->waiting == 0)
        p->times = before * step_up;
    if (p->times < times_least) p->times = times_least;
    if (p->times > times_most) p->times = times_most;
    return p->times > before ? PL_PACE_UP : p->times < before ? PL_PACE_DOWN : PL_PACE_STAYS;
}
