#include "admit/budget.h"

enum { LEAST_SHARE = 16, STEP_SHARE = 50 };

static uint64_t least_of(const struct pl_budget *b) { return b->full / LEAST_SHARE; }

static void settle(struct pl_budget *b) {
    uint64_t least = least_of(b);
    b->bytes = b->full;
    if (b->taught == 0 || b->taught >= b->full) return;
    b->bytes = b->taught > least ? b->taught : least;
}

void pl_budget_set(struct pl_budget *b, uint64_t full) {
    b->full = full;
    settle(b);
}

static bool is_told_again(const struct pl_budget *b, uint64_t now_ms) {
    return b->oom_ms != 0 && now_ms - b->oom_ms < PL_BUDGET_ONE_MS;
}

static bool lower(struct pl_budget *b, uint64_t to, uint64_t now_ms) {
    uint64_t was = b->bytes;
    b->oom_ms = now_ms;
    b->quiet_ms = b->quiet_ms == 0 ? PL_BUDGET_QUIET_MS : b->quiet_ms * 2;
    if (b->quiet_ms > PL_BUDGET_QUIET_MOST_MS) b->quiet_ms = PL_BUDGET_QUIET_MOST_MS;
    b->next_ms = now_ms + b->quiet_ms;
    if (to < least_of(b)) to = least_of(b);
    if (to >= was) return false;
    b->taught = to;
    settle(b);
    return true;
}

bool pl_budget_oom(struct pl_budget *b, uint64_t now_ms) {
    uint64_t held = b->charged > 0 && b->charged < b->bytes ? b->charged : b->bytes;
    return !is_told_again(b, now_ms) && lower(b, held / 10 * 9, now_ms);
}

bool pl_budget_retries(struct pl_budget *b, uint64_t now_ms) {
    return !is_told_again(b, now_ms) && lower(b, b->bytes / 20 * 19, now_ms);
}

bool pl_budget_pass(struct pl_budget *b, uint64_t now_ms) {
    if (b->bytes >= b->full || now_ms < b->next_ms) return false;
    uint64_t step = b->full / STEP_SHARE + 1;
    b->next_ms = now_ms + PL_BUDGET_STEP_MS;
    b->taught = b->full - b->bytes > step ? b->bytes + step : 0;
    settle(b);
    return true;
}

void pl_budget_restore(struct pl_budget *b, uint64_t bytes, uint64_t quiet_ms, uint64_t now_ms) {
    if (bytes == 0 || quiet_ms == 0 || b->taught != 0) return;
    b->taught = bytes;
    b->quiet_ms = quiet_ms < PL_BUDGET_QUIET_MOST_MS ? quiet_ms : PL_BUDGET_QUIET_MOST_MS;
    b->next_ms = now_ms + b->quiet_ms;
    settle(b);
}
