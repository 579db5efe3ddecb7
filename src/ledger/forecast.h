/* ledger/forecast.h - when a floor will meet its limit.
 *
 * limit = capacity - what others use - what the largest request needs above the floor - a share of reserved
 * that fragmentation may keep (memory.forecast_margin). Rate of requests: mean over the last ten minutes,
 * falling off exponentially. The range is that of the slope's interval.
 */
#ifndef PL_LEDGER_FORECAST_H
#define PL_LEDGER_FORECAST_H
#include <stdbool.h>
#include <stdint.h>

enum { PL_RATE_WINDOW_MS = 600000 };
/* Zero it before the first use. */
struct pl_rate {
    uint64_t from_ms, seen_ms;
    double per_ms;
};
/* `requests` came since the last call. A clock that stands or goes back adds nothing but the requests. */
void pl_rate_add(struct pl_rate *r, uint64_t requests, uint64_t now_ms);
double pl_rate_per_s(const struct pl_rate *r);

struct pl_forecast_case {
    double capacity, others; /* bytes; capacity 0: not known */
    double floor, headroom;  /* headroom: peak of the largest request above the floor */
    double reserved;
    uint32_t margin_pct100;  /* memory.forecast_margin, hundredths of a percent */
    double low, slope, high; /* bytes per request */
    double per_s;
};
/* Requests and seconds until the limit; HUGE_VAL: never at this slope. high_* come from the lowest slope. */
struct pl_forecast {
    bool is;      /* there is one: a limit is known, and the slope's middle is positive */
    double limit; /* for the floor, bytes */
    double requests, low_requests, high_requests;
    double seconds, low_s, high_s; /* HUGE_VAL without traffic too */
};
void pl_forecast_of(const struct pl_forecast_case *c, struct pl_forecast *out);
#endif
