#include "worker/warmup.h"

#include <string.h>

enum { WINDOW = PL_WARMUP_WINDOW, NEAR_US = 500 };

/* Of up to four values; of an even number the mean of the middle two. */
static uint64_t median(const uint64_t *values, uint32_t count) {
    uint64_t sorted[WINDOW];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i;
        for (; k > 0 && sorted[k - 1] > values[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = values[i];
    }
    if (count == 0) return 0;
    uint64_t low = sorted[(count - 1) / 2], high = sorted[count / 2];
    return low + (high - low) / 2;
}

static bool flat(const struct pl_warmup *w) {
    if (w->round < 2 * WINDOW) return false;
    /* Every request of the round lies at its number modulo 8, so the two windows are found by where the ring
     * stands. */
    uint64_t before[WINDOW], latest[WINDOW];
    for (uint32_t i = 0; i < WINDOW; i++) {
        before[i] = w->cost_us[(w->round + i) % (2 * WINDOW)];
        latest[i] = w->cost_us[(w->round + WINDOW + i) % (2 * WINDOW)];
    }
    uint64_t old = median(before, WINDOW), now = median(latest, WINDOW);
    uint64_t slack = now / 4 > NEAR_US ? now / 4 : NEAR_US;
    return old <= now || old - now <= slack;
}

void pl_warmup_start(struct pl_warmup *w, uint32_t max, uint64_t max_time_ms, bool until_flat,
                     uint64_t now_ms) {
    *w = (struct pl_warmup){
        .max = max, .max_time_ms = max_time_ms, .until_flat = until_flat, .started_ms = now_ms
    };
}

void pl_warmup_next_round(struct pl_warmup *w) {
    w->round = 0;
    memset(w->cost_us, 0, sizeof w->cost_us);
    memset(w->wall_us, 0, sizeof w->wall_us);
}

enum pl_warmup_next pl_warmup_took(struct pl_warmup *w, uint64_t cost_us, uint64_t wall_us, uint64_t now_ms) {
    w->cost_us[w->round % (2 * WINDOW)] = cost_us;
    w->wall_us[w->round % WINDOW] = wall_us;
    w->round++;
    if (w->done++ == 0) w->first_us = wall_us;
    w->settled_us = median(w->wall_us, w->round < WINDOW ? w->round : WINDOW);
    if (flat(w)) return PL_WARMUP_FLAT;
    if (!w->until_flat || w->done >= w->max) return PL_WARMUP_BOUND;
    uint64_t age_ms = now_ms > w->started_ms ? now_ms - w->started_ms : 0;
    return age_ms >= w->max_time_ms ? PL_WARMUP_BOUND : PL_WARMUP_AGAIN;
}
