#include "ledger/ledger.h"

#include <math.h>
#include <string.h>

#define OOM_SLACK (16.0 * 1024 * 1024)

enum { MINUTE_MS = 60000, LOST_MAX = 1000000000 };

static const char *const verdict_names[] = {
#define VERDICT(sym, name, bad, text) name,
#include "ledger/verdicts.def"
#undef VERDICT
};
static const char *const verdict_texts[] = {
#define VERDICT(sym, name, bad, text) text,
#include "ledger/verdicts.def"
#undef VERDICT
};
static const bool verdict_bad[] = {
#define VERDICT(sym, name, bad, text) bad,
#include "ledger/verdicts.def"
#undef VERDICT
};
static const char *const scope_names[] = { "gpu0", "gpu1", "gpu2", "gpu3", "gpu4",
                                           "gpu5", "gpu6", "gpu7", "host" };

const char *pl_verdict_name(enum pl_verdict v) {
    return (unsigned)v < PL_VERDICT_COUNT ? verdict_names[v] : "unknown";
}
const char *pl_verdict_text(enum pl_verdict v) {
    return (unsigned)v < PL_VERDICT_COUNT ? verdict_texts[v] : "";
}
bool pl_verdict_is_bad(enum pl_verdict v) { return (unsigned)v < PL_VERDICT_COUNT && verdict_bad[v]; }
const char *pl_ledger_scope_name(int scope) {
    return scope >= 0 && scope < PL_LEDGER_SCOPES ? scope_names[scope] : "unknown";
}

void pl_ledger_start(struct pl_ledger *l) {
    memset(l, 0, sizeof *l);
    pl_tags_start(&l->tags);
}

void pl_ledger_steady(struct pl_ledger *l, double least) {
    for (int i = 0; i < PL_LEDGER_GPUS; i++) pl_history_steady(&l->gpu[i].allocated, least);
}

/* --- rows */

static bool absurd(const struct pl_ledger_row *r) {
    return r->gpu >= PL_LEDGER_GPUS || r->before > PL_LEDGER_ABSURD || r->after > PL_LEDGER_ABSURD ||
           r->reserved > PL_LEDGER_ABSURD || r->peak > PL_LEDGER_ABSURD;
}

/* True the first time. */
static bool new_tag(struct pl_ledger *l, uint16_t tag) {
    uint64_t bit = 1ull << (tag % 64), *word = &l->seen_tags[tag / 64];
    if (*word & bit) return false;
    *word |= bit;
    l->shapes++;
    return true;
}

static void note_reserved(struct pl_ledger_gpu *g, const struct pl_ledger_row *r, bool fresh, bool record) {
    if (!g->seen) g->reserved_first = r->reserved;
    if (g->seen && r->reserved > g->reserved) {
        uint64_t rise = r->reserved - g->reserved;
        g->reserved_rise += rise;
        g->reserved_rises++;
        if (fresh || record) g->shape_rise += rise;
    }
    g->reserved = r->reserved;
}

static void note_peak(struct pl_ledger *l, struct pl_ledger_gpu *g, const struct pl_ledger_row *r,
                      bool *record) {
    *record = false;
    if (r->at_ms - g->minute_ms >= MINUTE_MS || r->at_ms < g->minute_ms) {
        g->minute_peak[1] = r->at_ms - g->minute_ms < 2 * MINUTE_MS ? g->minute_peak[0] : 0;
        g->minute_peak[0] = 0;
        g->minute_ms = r->at_ms;
    }
    if (r->peak > g->minute_peak[0]) g->minute_peak[0] = r->peak;
    if (!r->peak_exact || r->peak <= r->before) return;
    uint64_t above = r->peak - r->before;
    if (above > g->peak_record) {
        g->peak_record = above;
        *record = true;
    }
    int k = 0;
    for (uint32_t most = 1; k < PL_LEDGER_BATCHES - 1 && r->batch > most; k++) most *= 2;
    l->batch[k].requests++;
    if (above > l->batch[k].peak_bytes) l->batch[k].peak_bytes = above;
}

/* `before`: what was allocated when the failed request began, others' tensors included. */
static void note_oom(struct pl_ledger_oom *o, const struct pl_ledger_row *r) {
    double slack = o->floor / 20 > OOM_SLACK ? o->floor / 20 : OOM_SLACK;
    if (r->oom && o->state == PL_AFTER_OOM_CALM) {
        *o = (struct pl_ledger_oom){ .state = PL_AFTER_OOM_WATCHED,
                                     .floor = (double)r->before,
                                     .left = PL_AFTER_OOM_REQUESTS };
        return;
    }
    if (o->state == PL_AFTER_OOM_CALM) return;
    if ((double)r->after <= o->floor + slack)
        o->state = PL_AFTER_OOM_CALM;
    else if (o->state == PL_AFTER_OOM_WATCHED && --o->left == 0)
        o->state = PL_AFTER_OOM_STUCK;
}

static bool row_of_device(struct pl_ledger *l, const struct pl_ledger_row *r) {
    struct pl_ledger_gpu *g = &l->gpu[r->gpu];
    bool fresh = new_tag(l, r->tag), record;
    note_peak(l, g, r, &record);
    note_reserved(g, r, fresh, record);
    bool own = r->quiet && l->chained && l->chained_gpu == r->gpu;
    double change = own ? (double)r->after - (double)g->after : 0;
    uint64_t peak = r->peak_exact && r->peak > r->before ? r->peak - r->before : 0;
    pl_tags_add(&l->tags, r->tag, r->failed, (double)r->after, own, change, peak);
    note_oom(&l->oom, r);
    /* What was there before it began may be less than what it left: a reply that is not gone yet. */
    uint64_t floor = g->seen && r->before < r->after ? r->before : r->after;
    bool looked = pl_history_add(&g->allocated, (double)floor, g->seen ? 1 + l->untold : 1);
    l->untold = 0;
    /* What the first request leaves is its own, unless it was the one that loaded the model. */
    if (!g->seen && r->before > 0) g->allocated.whole.first = (double)r->before;
    g->seen = true;
    g->after = r->after;
    l->chained = r->quiet;
    l->chained_gpu = r->gpu;
    return looked;
}

static bool host_is(struct pl_ledger *l, uint64_t bytes) {
    uint64_t requests = l->requests - l->host_at;
    if (bytes == 0 || requests == 0) return false;
    if (bytes > PL_LEDGER_ABSURD) {
        l->bad_rows++;
        return false;
    }
    l->host_bytes = bytes;
    l->host_at = l->requests;
    return pl_history_add(&l->host, (double)bytes, requests);
}

bool pl_ledger_row(struct pl_ledger *l, const struct pl_ledger_row *r) {
    l->requests++;
    if (r->host_bytes != 0) l->host_by_rows = true;
    bool looked = host_is(l, r->host_bytes);
    if (!r->known) {
        l->chained = false;
        l->untold++;
        pl_tags_count(&l->tags, r->tag, r->failed);
        return looked;
    }
    if (absurd(r)) {
        l->bad_rows++;
        l->chained = false;
        pl_tags_broken(&l->tags);
        return looked;
    }
    return row_of_device(l, r) || looked;
}

void pl_ledger_lost(struct pl_ledger *l, uint64_t rows) {
    if (rows == 0) return;
    if (rows > LOST_MAX) rows = LOST_MAX;
    l->requests += rows;
    l->lost += rows;
    l->chained = false;
    pl_tags_broken(&l->tags);
    for (int i = 0; i < PL_LEDGER_GPUS; i++) {
        struct pl_ledger_gpu *g = &l->gpu[i];
        if (g->seen) pl_history_add(&g->allocated, (double)g->after, rows);
    }
}

/* --- samples */

/* A counter that went back began anew: what it shows now is new. */
static uint64_t counted(uint64_t *last, uint64_t now, bool first) {
    uint64_t more = first ? 0 : now >= *last ? now - *last : now;
    *last = now;
    return more;
}

static bool sample_of_device(struct pl_ledger *l, struct pl_ledger_gpu *g, const struct pl_ledger_sample *s,
                             int i, uint64_t requests) {
    uint64_t process = s->gpu[i].process;
    if (s->gpu[i].total > PL_LEDGER_ABSURD || s->gpu[i].used > PL_LEDGER_ABSURD ||
        process > PL_LEDGER_ABSURD) {
        l->bad_rows++;
        return false;
    }
    g->total = s->gpu[i].total;
    g->used = s->gpu[i].used;
    g->process = process;
    g->inactive_split = s->gpu[i].inactive_split;
    l->new_retries += counted(&g->retries, s->gpu[i].retries, !g->counted);
    l->new_ooms += counted(&g->ooms, s->gpu[i].ooms, !g->counted);
    g->counted = true;
    if (process == 0 || requests == 0) return false;
    double outside = process > g->reserved ? (double)(process - g->reserved) : 0;
    return pl_history_add(&g->outside, outside, requests);
}

bool pl_ledger_sample(struct pl_ledger *l, const struct pl_ledger_sample *s) {
    bool looked = false;
    uint64_t requests = l->requests - l->rest_at;
    pl_rate_add(&l->rate, l->requests - l->rated, s->at_ms);
    l->rated = l->requests;
    l->holders = s->holders;
    l->holders_ok = s->holders_ok;
    l->host_max = s->host_max;
    l->host_others = s->host_others;
    for (int i = 0; i < PL_LEDGER_GPUS; i++)
        looked = sample_of_device(l, &l->gpu[i], s, i, requests) || looked;
    l->rest_at = l->requests;
    if (!l->host_by_rows) looked = host_is(l, s->host_bytes) || looked;
    return looked;
}

void pl_ledger_take_counts(struct pl_ledger *l, uint64_t *retries, uint64_t *ooms) {
    *retries = l->new_retries;
    *ooms = l->new_ooms;
    l->new_retries = l->new_ooms = 0;
}

uint64_t pl_ledger_peak(const struct pl_ledger *l, int gpu) {
    const uint64_t *p = l->gpu[gpu].minute_peak;
    return p[0] > p[1] ? p[0] : p[1];
}

/* --- limits */

uint64_t pl_ledger_limit(const struct pl_ledger *l, int scope) {
    uint64_t total, others = 0;
    if (scope == PL_LEDGER_HOST) {
        total = l->host_max;
        others = l->host_others;
    } else {
        const struct pl_ledger_gpu *g = &l->gpu[scope];
        uint64_t mine = g->process > g->reserved ? g->process : g->reserved;
        total = g->total;
        if (g->used > mine) others = g->used - mine;
        if (g->process > g->reserved) others += g->process - g->reserved; /* contexts, libraries */
    }
    return total > others ? total - others : 0;
}

uint64_t pl_ledger_releasable(const struct pl_ledger *l, int gpu) {
    const struct pl_ledger_gpu *g = &l->gpu[gpu];
    uint64_t kept = g->after + g->inactive_split;
    return g->reserved > kept ? g->reserved - kept : 0;
}

void pl_ledger_forecast(const struct pl_ledger *l, int scope, uint32_t margin, struct pl_forecast *out) {
    bool host = scope == PL_LEDGER_HOST;
    const struct pl_ledger_gpu *g = host ? NULL : &l->gpu[scope];
    const struct pl_rule *r = pl_history_rule(host ? &l->host : &g->allocated);
    const struct pl_rule *rest = host ? r : pl_history_rule(&g->outside);
    bool outside = r->state < PL_RULE_SUSPECTED && rest->state >= PL_RULE_SUSPECTED;
    if (outside) r = rest;
    struct pl_forecast_case c = {
        .capacity = (double)pl_ledger_limit(l, scope),
        .floor = pl_floor_last(&r->floor),
        .headroom = host ? 0 : (double)g->peak_record,
        .reserved = host ? (double)l->host_bytes : (double)g->reserved,
        .margin_pct100 = margin,
        .per_s = pl_rate_per_s(&l->rate),
    };
    if (r->state >= PL_RULE_SUSPECTED) {
        c.low = r->low;
        c.slope = r->slope;
        c.high = r->high;
    }
    if (outside) c.capacity += c.floor; /* it is one of the others, there */
    pl_forecast_of(&c, out);
}
