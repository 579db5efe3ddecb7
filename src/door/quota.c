#include "door/quota.h"

enum { MINUTE_MS = 60000, RETRY_UNKNOWN_MS = 1000 };

static double filled(double left, int64_t per_minute, uint64_t passed_ms) {
    double most = (double)per_minute, now = left + most * (double)passed_ms / MINUTE_MS;
    return now < most ? now : most;
}

static void fill(struct pl_quota *q, const struct pl_key_row *l, uint64_t now_ms) {
    if (q->seen_ms == 0) {
        q->requests = (double)l->requests_per_minute;
        q->tokens = (double)l->tokens_per_minute;
    } else if (now_ms > q->seen_ms) {
        q->requests = filled(q->requests, l->requests_per_minute, now_ms - q->seen_ms);
        q->tokens = filled(q->tokens, l->tokens_per_minute, now_ms - q->seen_ms);
    }
    q->seen_ms = now_ms != 0 ? now_ms : 1;
}

/* Until `missing` have come in, rounded up. */
static uint64_t wait_ms(double missing, int64_t per_minute) {
    return (uint64_t)(missing * MINUTE_MS / (double)per_minute) + 1;
}

enum pl_quota_answer pl_quota_take(struct pl_quota *q, const struct pl_key_row *l, uint64_t now_ms,
                                   uint64_t *retry_after_ms) {
    fill(q, l, now_ms);
    *retry_after_ms = RETRY_UNKNOWN_MS;
    if (l->max_concurrency > 0 && q->running >= l->max_concurrency) return PL_QUOTA_CONCURRENCY;
    if (l->tokens_per_minute > 0 && q->tokens <= 0) {
        *retry_after_ms = wait_ms(-q->tokens, l->tokens_per_minute);
        return PL_QUOTA_TOKENS;
    }
    if (l->requests_per_minute > 0 && q->requests < 1) {
        *retry_after_ms = wait_ms(1 - q->requests, l->requests_per_minute);
        return PL_QUOTA_REQUESTS;
    }
    if (l->requests_per_minute > 0) q->requests -= 1;
    q->running++;
    return PL_QUOTA_OK;
}

void pl_quota_take_anyway(struct pl_quota *q) { q->running++; }
void pl_quota_done(struct pl_quota *q) { q->running--; }

void pl_quota_spend(struct pl_quota *q, const struct pl_key_row *l, uint64_t tokens, uint64_t now_ms) {
    fill(q, l, now_ms);
    if (l->tokens_per_minute > 0) q->tokens -= (double)tokens;
}
