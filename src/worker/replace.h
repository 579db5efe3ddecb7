/* worker/replace.h - which worker is replaced, by whose right, in what way, and how long nobody serves.
 *
 * Pure rules. The reasons are one table with what each may do (surface: 8.2); the crew brings facts of one
 * moment (struct pl_replace_case) and gets a verdict. The prediction of a gap is the sum of what was measured
 * before: draining, stopping, booting; a part that takes longer than expected is thought to last half as long
 * again, so that the figure grows with the delay instead of standing at zero.
 */
#ifndef PL_WORKER_REPLACE_H
#define PL_WORKER_REPLACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

/* X(SYMBOL, "name", least mode in which it acts, the same when death is near, bits of PL_REPLACE_RULE)
 * LISTED: only if replace.when names it. OURS: nobody asked for it, so the cap per hour and the length of the
 * gap hold it back. START: what starts a worker in an empty place; no decision is made about it. */
enum pl_replace_rule { PL_REPLACE_LISTED = 1, PL_REPLACE_OURS = 2, PL_REPLACE_START = 4 };
/* clang-format off */
#define PL_REPLACE_REASONS(X) \
    X(LEAK,         "leak",         ENFORCE, GUARD,   PL_REPLACE_LISTED | PL_REPLACE_OURS) \
    X(FORECAST,     "forecast",     ENFORCE, GUARD,   PL_REPLACE_LISTED | PL_REPLACE_OURS) \
    X(BUDGET,       "budget",       GUARD,   GUARD,   PL_REPLACE_LISTED | PL_REPLACE_OURS) \
    X(HOST_RSS,     "host_rss",     GUARD,   GUARD,   PL_REPLACE_LISTED | PL_REPLACE_OURS) \
    X(HANG,         "hang",         GUARD,   GUARD,   PL_REPLACE_LISTED | PL_REPLACE_OURS) \
    X(MAX_REQUESTS, "max_requests", GUARD,   GUARD,   PL_REPLACE_OURS) \
    X(OOM,          "oom",          GUARD,   GUARD,   PL_REPLACE_OURS) \
    X(OPERATOR,     "operator",     OBSERVE, OBSERVE, 0) \
    X(GENERATION,   "generation",   OBSERVE, OBSERVE, 0) \
    X(ROLLBACK,     "rollback",     OBSERVE, OBSERVE, 0) \
    X(CRASH,        "crash",        OBSERVE, OBSERVE, PL_REPLACE_START)
/* clang-format on */
enum pl_replace_reason {
#define X(sym, ...) PL_REPLACE_FOR_##sym,
    PL_REPLACE_REASONS(X)
#undef X
        PL_REPLACE_REASON_COUNT
};
const char *pl_replace_reason_name(enum pl_replace_reason r); /* "unknown" for a number that is none */
/* Index of a name, or PL_REPLACE_REASON_COUNT. */
enum pl_replace_reason pl_replace_reason_of(const char *name);
bool pl_replace_is(enum pl_replace_reason r, enum pl_replace_rule rule);
/* Whether replace.when lets it be a reason at all. */
bool pl_replace_listed(enum pl_replace_reason r, const struct pl_strings *when);

/* OVERLAP: the successor beside the old one. HANDOVER: after it. RESTART: nothing was left to hand over from.
 */
enum pl_replace_way { PL_REPLACE_OVERLAP, PL_REPLACE_HANDOVER, PL_REPLACE_RESTART };
const char *pl_replace_way_name(enum pl_replace_way w);
/* Host memory as far as it is known, bytes; 0 = not known. */
struct pl_replace_room {
    uint64_t max;  /* of the memory group */
    uint64_t used; /* by all workers */
    uint64_t need; /* of one when it was new */
};
/* `auto` overlaps unless host memory for two is known to be short. Of devices: pl_replace_way_now (crew). */
enum pl_replace_way pl_replace_way_of(enum pl_cfg_replace_mode mode, const struct pl_replace_room *room);

/* --- the verdict */

struct pl_replace_case {
    enum pl_replace_reason reason;
    enum pl_cfg_mode mode; /* of the service */
    enum pl_replace_way way;
    bool under_way;       /* another replacement of this service is */
    bool device_busy;     /* another one is on a device this worker uses */
    bool silent;          /* the worker answers nothing: nothing is lost by ending it */
    bool now;             /* the operator does not want to wait for a quiet moment */
    bool flowing;         /* requests would come into the gap */
    uint64_t gap_ms;      /* nobody would serve for so long; 0: somebody does, always */
    uint64_t hold_ms;     /* and so long requests may be held */
    uint64_t boot_ms;     /* measured; 0 = not yet */
    uint64_t forecast_ms; /* until it dies by itself; UINT64_MAX: no forecast */
    uint32_t in_hour, max_per_hour;
};
/* GO. WOULD: `mode` keeps it from being done, nothing else does. HELD: not now, see `why`. NOT: both keep it.
 */
enum pl_replace_verdict { PL_REPLACE_GO, PL_REPLACE_WOULD, PL_REPLACE_HELD, PL_REPLACE_NOT };
/* Closed: surface, event worker.replace_held. */
enum pl_replace_held { PL_HELD_BY_CAP, PL_HELD_BY_DEVICE, PL_HELD_BY_GAP, PL_HELD_BY_OTHER };
const char *pl_replace_held_name(enum pl_replace_held h);
/* `why` is filled with HELD only. Death is near: it is forecast within two boots; then neither the mode of
 * `guard` nor the length of the gap holds it back. */
enum pl_replace_verdict pl_replace_judge(const struct pl_replace_case *c, enum pl_replace_held *why);

/* --- the gap */

/* Expected parts of a gap, ms. boot 0 = never measured: nothing is predicted. */
struct pl_gap {
    uint64_t drain_ms, stop_ms, boot_ms;
};
enum pl_gap_phase { PL_GAP_DRAIN, PL_GAP_STOP, PL_GAP_BOOT };
/* All of it; 0 = unknown. */
uint64_t pl_gap_expected_ms(const struct pl_gap *g);
/* What is left when `phase` is `age_ms` old; 0 = unknown, else at least 1 s, as a client should be told. */
uint64_t pl_gap_left_ms(const struct pl_gap *g, enum pl_gap_phase phase, uint64_t age_ms);
/* replace.hold in ms: auto is one and a half boots, at most 60 s. */
uint64_t pl_hold_ms(int64_t configured_ms, uint64_t boot_ms);
/* How long a drain will last: the mean time in a handler, if somebody is in one, at most `limit_ms`. */
uint64_t pl_drain_expected_ms(uint32_t in_flight, uint64_t mean_ms, uint64_t limit_ms);
/* Will a request come within the next `gap_ms`? One is here now, or the last one came that lately. */
bool pl_is_flowing(uint32_t in_flight, uint64_t since_last_ms, uint64_t gap_ms);

/* --- limits of one worker */

/* The number of requests after which this worker goes: max plus what its seed makes of the jitter (auto: a
 * tenth of max), so that workers started together do not go together. 0 = never. */
uint64_t pl_max_requests_of(int64_t max_requests, int64_t jitter, uint64_t seed);
/* replace.host_rss in bytes: a share is of memory_max / workers. 0 = no limit is known. */
uint64_t pl_host_limit_bytes(struct pl_amount a, uint64_t memory_max_bytes, uint32_t workers);
/* liveness.silent_after, and never less than two timeouts. */
uint64_t pl_silent_after_ms(int64_t silent_after_ms, int64_t timeout_ms);

/* --- the cap: times of the replacements of the last hour. Kept over a restart of main, as it is. */
enum { PL_HOUR_TIMES = 64 };
struct pl_hour {
    uint64_t at_ms[PL_HOUR_TIMES]; /* CLOCK_MONOTONIC: goes on when main is another one. 0 = free */
    uint32_t next;
};
void pl_hour_add(struct pl_hour *h, uint64_t now_ms);
uint32_t pl_hour_count(const struct pl_hour *h, uint64_t now_ms);
/* When fewer than `max` will be in the last hour; 0: they are, or max is 0 and they never will. */
uint64_t pl_hour_free_at_ms(const struct pl_hour *h, uint32_t max, uint64_t now_ms);
#endif
