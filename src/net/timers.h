/* net/timers.h - very many deadlines on one uv_timer: a hashed wheel.
 *
 * Start and stop are a few pointer writes, so that a request may set and drop several without anybody
 * noticing. A deadline never fires early; it may fire up to PL_TIMER_TICK_MS and a bit late. A timer costs
 * nothing while the loop is idle and nothing is due: the uv_timer sleeps until the next slot that holds
 * something.
 */
#ifndef PL_NET_TIMERS_H
#define PL_NET_TIMERS_H
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/clock.h"

enum { PL_TIMER_TICK_MS = 8, PL_TIMER_SLOTS = 1024 };

struct pl_timer;
typedef void pl_timer_fire(struct pl_timer *t);
/* Lives inside what it guards; zero it before the first use. */
struct pl_timer {
    struct pl_timer *next, **at; /* at: whoever points to us; NULL: not running */
    uint64_t due_ms;
    pl_timer_fire *fire;
};

struct pl_timers;
/* NULL without memory. `clock` is borrowed. `loop` NULL: only pl_timers_advance moves it (tests). */
struct pl_timers *pl_timers_create(uv_loop_t *loop, const struct pl_clock *clock);
/* Stops everything without firing; the memory goes when the loop has closed the handle. */
void pl_timers_destroy(struct pl_timers *w);

uint64_t pl_timers_now(const struct pl_timers *w);
/* (Re)starts: `fire` is called once, from the loop, at least `after_ms` from now. */
void pl_timer_start(struct pl_timers *w, struct pl_timer *t, uint64_t after_ms, pl_timer_fire *fire);
void pl_timer_stop(struct pl_timer *t);
static inline bool pl_timer_running(const struct pl_timer *t) { return t->at != 0; }

/* Fires all that is due at `now_ms`; a timer started or stopped by a fire function is treated as it should
 * be. */
void pl_timers_advance(struct pl_timers *w, uint64_t now_ms);
#define PL_TIMER_OWNER(t, type, member) ((type *)(void *)((char *)(t)-offsetof(type, member)))
#endif
