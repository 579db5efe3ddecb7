/* ledger/policy.h - what is done about memory, one thing at a time: alarm, empty_cache, replacement.
 *
 * Pure decisions; the caller acts, and tells what came of it. Nothing here replaces a worker: it says when a
 * reason holds (leak, forecast, oom), the mode and the cap decide (worker/replace.h).
 */
#ifndef PL_LEDGER_POLICY_H
#define PL_LEDGER_POLICY_H
#include "ledger/ledger.h"

/* --- alarm: the peak against its limit, told when it rises over the mark, settled 5 % of the limit below it
 */

struct pl_alarm {
    bool on;
};
enum pl_alarm_turn { PL_ALARM_NOTHING, PL_ALARM_RAISED, PL_ALARM_SETTLED };
/* `mark`: memory.alarm, hundredths of a percent. A limit of 0 is not known: nothing. */
enum pl_alarm_turn pl_alarm_look(struct pl_alarm *a, uint64_t peak, uint64_t limit, uint32_t mark);

/* --- forecast: told when there is one, and again each time it has halved */

struct pl_forecast_told {
    double seconds; /* as last told; 0: none was */
};
bool pl_forecast_is_news(struct pl_forecast_told *t, const struct pl_forecast *f);

/* --- empty_cache: only with its key, only when the cache can be given back */

struct pl_empty_rule {
    int64_t reserved_over;  /* hundredths of a percent of the device; < 0: not set */
    int64_t every_requests; /* 0: not set */
    uint64_t min_interval_ms;
};
/* Zero it before the first use. */
struct pl_empty {
    uint64_t asked_ms, asked_requests;
    uint64_t expected;  /* bytes of the call under way or the last one */
    uint32_t fruitless; /* calls in a row that gave little back */
    bool under_way;
};
/* True: ask for it now (then pl_empty_done must follow). The key's mark is reached, at least PL_EMPTY_LEAST
 * and a tenth of what is reserved could be given back, and the last call is min_interval ago: twice that
 * after a call that gave back less than a quarter of what it should, then four times, up to 64 times. */
#define PL_EMPTY_LEAST (16ull * 1024 * 1024)
bool pl_empty_wanted(struct pl_empty *e, const struct pl_empty_rule *rule, const struct pl_ledger *l, int gpu,
                     uint64_t now_ms);
void pl_empty_done(struct pl_empty *e, uint64_t returned_bytes);

/* --- leaking again: a successor that leaks like the worker it took the place of */

/* Of a service. Zero it before the first use. */
struct pl_again {
    double low, high; /* bytes per request of the last leak that was answered by a replacement; 0: none */
    uint64_t at_ms;   /* when */
    uint32_t times;   /* it had come back so often then */
};
/* A leak was confirmed in a worker that was started at `born_ms`: how often it has come back. 0: it is the
 * first, or another one, or a twin of the worker that was replaced. */
uint32_t pl_again_seen(const struct pl_again *a, const struct pl_ledger_verdict *v, uint64_t born_ms);
/* That worker is replaced because of this verdict. */
void pl_again_replaced(struct pl_again *a, const struct pl_ledger_verdict *v, uint64_t born_ms,
                       uint64_t now_ms);

/* --- reasons to replace */

struct pl_reasons_case {
    const struct pl_ledger_verdict *verdict;
    const struct pl_forecast *forecast; /* the nearest of all scopes */
    uint32_t again;                     /* pl_again_seen */
    uint64_t boot_ms;                   /* load and warm-up, measured; 0: not yet */
};
struct pl_reasons {
    bool leak; /* by the verdict alone. A leak that came back is no reason by itself: the next worker would
                * leak as well, so it stays until the forecast says that it must go. */
    bool forecast;        /* the limit is nearer than three boots */
    uint64_t forecast_ms; /* the early end of its range; UINT64_MAX: none */
};
struct pl_reasons pl_reasons_of(const struct pl_reasons_case *c);
#endif
