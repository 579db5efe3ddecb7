/* base/clock.h - time comes from outside, so that a test can be the clock.
 *
 * Everything that decides takes `now_ms` (monotonic milliseconds) as a value; only the rim asks a pl_clock.
 * Wall time is for logs and documents only.
 */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H
#include <stddef.h>
#include <stdint.h>

struct pl_clock {
    uint64_t (*now_ms)(void *ctx);  /* monotonic */
    uint64_t (*wall_ms)(void *ctx); /* since 1970-01-01 UTC */
    void *ctx;
};

/* The machine's own clocks. */
extern const struct pl_clock pl_clock_system;

static inline uint64_t pl_now_ms(const struct pl_clock *c) { return c->now_ms(c->ctx); }
static inline uint64_t pl_wall_ms(const struct pl_clock *c) { return c->wall_ms(c->ctx); }

/* Monotonic microseconds, for durations that are reported and never decided upon. */
uint64_t pl_now_us(void);

enum { PL_TIME_TEXT = 32 };
/* RFC 3339 UTC with milliseconds: 2026-11-30T14:02:11.207Z. Returns `out`. */
const char *pl_time_rfc3339(uint64_t wall_ms, char out[PL_TIME_TEXT]);
#endif
