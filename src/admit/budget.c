#include "admit/budget.h"

enum { LEAST_SHARE = 16, STEP_SHARE = 50 };

static uint64_t least_of(const struct pl_budget *b) { return b->full / LEAST_SHARE; }

void pl_budget_set(struct pl_budget *b, uint64_t full) {
    bool lowered = b->bytes < b->full;
    b->full = full;
    if (!lowered || b->bytes > full) b->bytes = full;
    if (b->bytes < least_of(b)) b->bytes = least_of(b);
}

bool pl_budget_oom(struct pl_budget *b, uint64_t now_ms) {
    uint64_t held = b->charged > 0 && b->charged < b->bytes ? b->charged : b->bytes, to = held / 10 * 9;
    b->quiet_ms = b->quiet_ms == 0 ? PL_BUDGET_QUIET_MS : b->quiet_ms * 2;
    if (b->quiet_ms > PL_BUDGET_QUIET_MOST_MS) b->quiet_ms = PL_BUDGET_QUIET_MOST_MS;
    b->next_ms = now_ms + b->quiet_ms;
    if (to < least_of(b)) to = least_of(b);
    if (to >= b->bytes) return false;
    b->bytes = to;
    return true;
}

bool pl_budget_pass(struct pl_budget *b, uint64_t now_ms) {
    if (b->bytes >= b->full || now_ms < b->next_ms) return false;
    uint64_t step = b->full / STEP_SHARE + 1;
    b->next_ms = now_ms + PL_BUDGET_STEP_MS;
    b->bytes = b->full - b->bytes > step ? b->bytes + step : b->full;
    return true;
}

void pl_budget_restore(struct pl_budget *b, uint64_t bytes, uint64_t quiet_ms, uint64_t now_ms) {
    if (bytes >= b->full || quiet_ms == 0) return;
    b->bytes = bytes > least_of(b) ? bytes : least_of(b);
    b->quiet_ms = quiet_ms < PL_BUDGET_QUIET_MOST_MS ? quiet_ms : PL_BUDGET_QUIET_MOST_MS;
    b->next_ms = now_ms + b->quiet_ms;
}
