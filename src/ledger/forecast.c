#include "ledger/forecast.h"

#include <math.h>
#include <string.h>

void pl_rate_add(struct pl_rate *r, uint64_t requests, uint64_t now_ms) {
    if (r->seen_ms == 0) {
        r->seen_ms = r->from_ms = now_ms;
        return; /* how long these took to come is not known */
    }
    if (now_ms <= r->seen_ms) {
        r->per_ms += (double)requests / PL_RATE_WINDOW_MS;
        return;
    }
    double passed = (double)(now_ms - r->seen_ms), kept = exp(-passed / PL_RATE_WINDOW_MS);
    r->per_ms = r->per_ms * kept + (double)requests / passed * (1 - kept);
    r->seen_ms = now_ms;
}

/* A young mean is short of what lies before it began. */
double pl_rate_per_s(const struct pl_rate *r) {
    double age = (double)(r->seen_ms - r->from_ms);
    double weight = 1 - exp(-age / PL_RATE_WINDOW_MS);
    return weight > 0 ? r->per_ms / weight * 1000 : 0;
}

static double until(double room, double slope) {
    if (room <= 0) return 0;
    return slope > 0 ? room / slope : HUGE_VAL;
}

void pl_forecast_of(const struct pl_forecast_case *c, struct pl_forecast *out) {
    memset(out, 0, sizeof *out);
    out->requests = out->low_requests = out->high_requests = HUGE_VAL;
    out->seconds = out->low_s = out->high_s = HUGE_VAL;
    if (c->capacity <= 0) return;
    out->limit = fmax(0, c->capacity - c->others - c->headroom - c->reserved * c->margin_pct100 / 10000);
    if (!(c->slope > 0)) return;
    double room = out->limit - c->floor;
    out->is = true;
    out->requests = until(room, c->slope);
    out->low_requests = until(room, c->high);
    out->high_requests = until(room, c->low);
    if (room <= 0) out->seconds = out->low_s = out->high_s = 0;
    if (!(c->per_s > 0) || room <= 0) return;
    out->seconds = out->requests / c->per_s;
    out->low_s = out->low_requests / c->per_s;
    out->high_s = out->high_requests / c->per_s;
}
