/* door/quota.h - what one key has used of its limits: requests and tokens a minute, and how many at a time.
 *
 * Both rates are buckets that hold one minute's worth and fill evenly, so a quiet key may use its minute at
 * once. Tokens are known only when a reply tells them, so they are taken afterwards: a key whose bucket is
 * empty waits until it is not, and one long answer may be owed for. Pure: the time comes from outside.
 */
#ifndef PL_DOOR_QUOTA_H
#define PL_DOOR_QUOTA_H
#include "door/keys.h"

struct pl_quota {
    double requests, tokens; /* left in the buckets; tokens may be below 0 */
    uint64_t seen_ms;        /* until when they are filled; 0: not used yet, so full */
    int64_t running;         /* begun and not done */
};

enum pl_quota_answer { PL_QUOTA_OK, PL_QUOTA_CONCURRENCY, PL_QUOTA_REQUESTS, PL_QUOTA_TOKENS };

/* OK: counted as running; pl_quota_done follows exactly once. Otherwise nothing is taken, and
 * *retry_after_ms says when to come back (1 s for CONCURRENCY: nobody knows). Limits may be other ones at
 * each call. */
enum pl_quota_answer pl_quota_take(struct pl_quota *q, const struct pl_key_row *limits, uint64_t now_ms,
                                   uint64_t *retry_after_ms);
/* Whatever the limits say. */
void pl_quota_take_anyway(struct pl_quota *q);
void pl_quota_done(struct pl_quota *q);
void pl_quota_spend(struct pl_quota *q, const struct pl_key_row *limits, uint64_t tokens, uint64_t now_ms);
#endif
