/* Which of the eleven words it is: the worst that is certain, then what is suspected, then what is over. */
#include <string.h>

#include "ledger/ledger.h"

#define KIB            1024.0
#define MIB            (1024.0 * 1024)
#define SETTLED_DEVICE (16 * KIB)     /* less that stayed is no cache */
#define SETTLED_LATER  PL_RULE_GROWTH /* the same for host memory and for the rest of the process */
#define RESERVED_RISE  (16 * MIB)     /* less is the allocator's own first segments */
#define SHAPES         4              /* fewer tags are no variety of shapes */
#define RISES          3              /* fewer are no trend, unless new shapes made them */
#define PREALLOCATED   0.6            /* of the device */

static bool grows(struct pl_ledger_verdict *v, const struct pl_history *h, int scope, enum pl_verdict word) {
    const struct pl_rule *r = pl_history_rule(h);
    v->word = word;
    v->scope = scope;
    v->confirmed = r->state == PL_RULE_CONFIRMED;
    v->shape = r->shape;
    v->has_shape = true;
    v->bytes_per_request = r->slope;
    v->low = r->low;
    v->high = r->high;
    v->since_requests = pl_history_before(h) + r->suspected_at;
    v->growth_bytes = r->growth;
    v->level_bytes = pl_floor_last(&r->floor);
    return true;
}

/* The steepest series of one kind over all devices. */
static const struct pl_history *worst(const struct pl_ledger *l, bool outside, enum pl_rule_state state,
                                      int *scope) {
    const struct pl_history *found = NULL;
    for (int i = 0; i < PL_LEDGER_GPUS; i++) {
        const struct pl_history *h = outside ? &l->gpu[i].outside : &l->gpu[i].allocated;
        const struct pl_rule *r = pl_history_rule(h);
        if (r->state != state || (found != NULL && pl_history_rule(found)->slope >= r->slope)) continue;
        found = h;
        *scope = i;
    }
    return found;
}

static bool certain(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    int scope = PL_LEDGER_HOST;
    const struct pl_history *h = worst(l, false, PL_RULE_CONFIRMED, &scope);
    if (h != NULL) return grows(v, h, scope, PL_VERDICT_LEAK);
    h = worst(l, true, PL_RULE_CONFIRMED, &scope);
    if (h != NULL) return grows(v, h, scope, PL_VERDICT_OUTSIDE_PYTORCH);
    if (pl_history_rule(&l->host)->state != PL_RULE_CONFIRMED) return false;
    return grows(v, &l->host, scope, PL_VERDICT_HOST_LEAK);
}

/* A few steps with flats between them are no growth: what was loaded was loaded. */
static bool suspected(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    int scope = PL_LEDGER_HOST;
    const struct pl_history *h = worst(l, false, PL_RULE_SUSPECTED, &scope);
    if (h == NULL) h = worst(l, true, PL_RULE_SUSPECTED, &scope);
    if (h == NULL) h = &l->host;
    const struct pl_rule *r = pl_history_rule(h);
    if (r->state != PL_RULE_SUSPECTED) return false;
    if (r->shape == PL_SHAPE_STEPS && r->trend.last_quarter <= 0) return false;
    return grows(v, h, scope, PL_VERDICT_GROWING);
}

static bool duplicated(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    if (l->holders_ok == 0 || l->holders <= l->holders_ok) return false;
    v->word = PL_VERDICT_DUPLICATE_LOAD;
    if (v->scope == PL_LEDGER_HOST) v->scope = 0; /* its children have it, not the worker itself */
    v->confirmed = true;
    v->copies = l->holders;
    return true;
}

/* Allocated is flat and reserved is not. Its rises need no long history: each one is for good. */
static bool reserves(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    for (int i = 0; i < PL_LEDGER_GPUS; i++) {
        const struct pl_ledger_gpu *g = &l->gpu[i];
        const struct pl_rule *r = &g->allocated.whole;
        if (!g->seen || r->state == PL_RULE_WARMING) continue;
        double stays = (double)g->reserved - (double)g->reserved_first;
        double live = pl_floor_last(&r->floor) - r->first;
        if (live > 0) stays -= live;
        if (stays < RESERVED_RISE || stays < (double)g->reserved / 20) continue;
        bool shapes = l->shapes >= SHAPES && g->shape_rise * 2 >= g->reserved_rise;
        if (!shapes && g->reserved_rises < RISES) continue;
        v->word = shapes ? PL_VERDICT_DYNAMIC_SHAPES : PL_VERDICT_FRAGMENTATION;
        v->scope = i;
        v->growth_bytes = stays;
        v->level_bytes = (double)g->reserved;
        return true;
    }
    return false;
}

static bool settled(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    for (int i = 0; i < PL_LEDGER_SCOPES; i++) {
        bool host = i == PL_LEDGER_HOST;
        const struct pl_rule *r = host ? &l->host.whole : &l->gpu[i].allocated.whole;
        if (!pl_rule_settled(r, host ? SETTLED_LATER : SETTLED_DEVICE, &v->since_requests)) continue;
        /* An interpreter's first requests always take some host memory: only what was once suspected. */
        if (host && r->suspected_at == 0) continue;
        v->word = PL_VERDICT_CACHE;
        v->scope = i;
        v->shape = PL_SHAPE_FLAT;
        v->has_shape = true;
        v->growth_bytes = pl_floor_last(&r->floor) - r->first;
        v->level_bytes = pl_floor_last(&r->floor);
        return true;
    }
    return false;
}

static bool taken_at_start(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    for (int i = 0; i < PL_LEDGER_GPUS; i++) {
        const struct pl_ledger_gpu *g = &l->gpu[i];
        uint64_t has = g->process > g->reserved ? g->process : g->reserved;
        if (g->total == 0 || (double)has < PREALLOCATED * (double)g->total) continue;
        v->word = PL_VERDICT_PREALLOCATED;
        v->scope = i;
        v->level_bytes = (double)has;
        return true;
    }
    return false;
}

/* The device of the worker comes first; a worker that has none is judged by its host memory. */
static const struct pl_rule *main_series(const struct pl_ledger *l, int *scope) {
    const struct pl_rule *found = NULL;
    for (int i = PL_LEDGER_GPUS - 1; i >= 0; i--)
        if (l->gpu[i].seen) {
            found = &l->gpu[i].allocated.whole;
            *scope = i;
        }
    if (found != NULL) return found;
    *scope = PL_LEDGER_HOST;
    return &l->host.whole;
}

void pl_ledger_verdict(const struct pl_ledger *l, struct pl_ledger_verdict *v) {
    memset(v, 0, sizeof *v);
    v->requests = l->requests;
    const struct pl_rule *r = main_series(l, &v->scope);
    v->level_bytes = pl_floor_last(&r->floor);
    if (certain(l, v) || duplicated(l, v) || suspected(l, v)) return;
    if (r->state == PL_RULE_WARMING) {
        if (taken_at_start(l, v)) return;
        v->word = PL_VERDICT_WARMING;
        v->missing = pl_rule_missing(r);
        return;
    }
    if (reserves(l, v) || settled(l, v) || taken_at_start(l, v)) return;
    v->word = PL_VERDICT_STABLE;
    v->shape = r->shape == PL_SHAPE_LINE ? PL_SHAPE_FLAT : r->shape;
    v->has_shape = true;
    v->growth_bytes = r->growth;
}
