#include "ledger/policy.h"

#include <math.h>

#define SETTLES        500 /* hundredths of a percent of the limit below the mark */
#define WHOLE          10000
#define FRUITLESS_MOST 6 /* doublings */
#define BOOTS          3
#define BOOT_UNKNOWN   60000 /* ms */

enum pl_alarm_turn pl_alarm_look(struct pl_alarm *a, uint64_t peak, uint64_t limit, uint32_t mark) {
    if (limit == 0 || peak == 0) return PL_ALARM_NOTHING;
    double share = (double)peak / (double)limit * WHOLE;
    if (!a->on && share >= mark) {
        a->on = true;
        return PL_ALARM_RAISED;
    }
    if (a->on && share < (double)mark - SETTLES) {
        a->on = false;
        return PL_ALARM_SETTLED;
    }
    return PL_ALARM_NOTHING;
}

bool pl_forecast_is_news(struct pl_forecast_told *t, const struct pl_forecast *f) {
    if (!f->is || !isfinite(f->seconds)) {
        t->seconds = 0;
        return false;
    }
    double told = f->seconds > 1 ? f->seconds : 1;
    if (t->seconds != 0 && told > t->seconds / 2) return false;
    t->seconds = told;
    return true;
}

/* --- empty_cache */

static bool mark_reached(const struct pl_empty *e, const struct pl_empty_rule *rule,
                         const struct pl_ledger *l, int gpu) {
    const struct pl_ledger_gpu *g = &l->gpu[gpu];
    if (rule->reserved_over >= 0 && g->total > 0 &&
        (double)g->reserved * WHOLE >= (double)g->total * (double)rule->reserved_over)
        return true;
    return rule->every_requests > 0 && l->requests - e->asked_requests >= (uint64_t)rule->every_requests;
}

bool pl_empty_wanted(struct pl_empty *e, const struct pl_empty_rule *rule, const struct pl_ledger *l, int gpu,
                     uint64_t now_ms) {
    if (rule->reserved_over < 0 && rule->every_requests <= 0) return false;
    if (e->under_way || !l->gpu[gpu].seen || !mark_reached(e, rule, l, gpu)) return false;
    uint64_t interval = rule->min_interval_ms << e->fruitless;
    if (e->asked_ms != 0 && now_ms - e->asked_ms < interval) return false;
    uint64_t could = pl_ledger_releasable(l, gpu);
    if (could < PL_EMPTY_LEAST || could < l->gpu[gpu].reserved / 10) return false;
    e->asked_ms = now_ms;
    e->asked_requests = l->requests;
    e->expected = could;
    e->under_way = true;
    return true;
}

void pl_empty_done(struct pl_empty *e, uint64_t returned_bytes) {
    e->under_way = false;
    if (returned_bytes >= e->expected / 4)
        e->fruitless = 0;
    else if (e->fruitless < FRUITLESS_MOST)
        e->fruitless++;
}

/* --- again */

uint32_t pl_again_seen(const struct pl_again *a, const struct pl_ledger_verdict *v, uint64_t born_ms) {
    if (a->high <= 0 || born_ms < a->at_ms || v->low > a->high || v->high < a->low) return 0;
    return a->times + 1;
}

void pl_again_replaced(struct pl_again *a, const struct pl_ledger_verdict *v, uint64_t born_ms,
                       uint64_t now_ms) {
    uint32_t seen = pl_again_seen(a, v, born_ms);
    bool twin = a->high > 0 && born_ms < a->at_ms;
    /* The interval of a long series is narrow: a fifth of the rate is the same rate. */
    double margin = v->bytes_per_request / 5;
    a->low = v->low - margin;
    a->high = v->high + margin;
    a->times = twin ? a->times : seen;
    a->at_ms = now_ms;
}

struct pl_reasons pl_reasons_of(const struct pl_reasons_case *c) {
    struct pl_reasons out = { .forecast_ms = UINT64_MAX };
    const struct pl_ledger_verdict *v = c->verdict;
    out.leak = v->confirmed && c->again == 0 &&
               (v->word == PL_VERDICT_LEAK || v->word == PL_VERDICT_OUTSIDE_PYTORCH ||
                v->word == PL_VERDICT_HOST_LEAK);
    if (!c->forecast->is || !(c->forecast->low_s < 1e12)) return out;
    out.forecast_ms = (uint64_t)(c->forecast->low_s * 1000);
    uint64_t boot = c->boot_ms != 0 ? c->boot_ms : BOOT_UNKNOWN;
    out.forecast = out.forecast_ms < BOOTS * boot;
    return out;
}
