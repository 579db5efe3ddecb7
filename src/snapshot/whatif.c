#include "snapshot/whatif.h"

#include <string.h>

static const double LEAST_GAIN = 0.02;
static const uint64_t MOST_CAPACITY = PL_REPLAY_ENDLESS;

const char *const pl_whatif_candidates[] = {
    "",
    "expandable_segments:True",
    "expandable_segments:True,large_segment_size_mb:12",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.95",
    NULL,
};

bool pl_whatif_is_bad_mix(const struct pl_alloc_conf *c) {
    return c->expandable && c->max_split != PL_ALLOC_UNLIMITED;
}

static struct pl_replay_plan plan_for(const struct pl_whatif *w, const struct pl_alloc_conf *conf) {
    struct pl_replay_plan p = { .s = w->s,
                                .lives = w->lives,
                                .conf = *conf,
                                .other = w->other,
                                .cache_calls = w->baseline->cache_calls,
                                .cache_call_count = w->baseline->cache_call_count };
    p.conf.order_by_age = w->fidelity->order_by_age;
    p.capacity = w->capacity > 0 ? w->capacity : MOST_CAPACITY;
    return p;
}

/* 1: every allocation succeeds (and none needs a retry), 0: not, -1: no memory. */
static int completes(struct pl_replay_plan *p, uint64_t capacity, bool calm, struct pl_err *err) {
    struct pl_replay_result r;
    p->capacity = capacity;
    p->stop_at_oom = true;
    p->stop_at_retry = calm;
    if (!pl_replay(p, &r, err)) return -1;
    return !r.start_failed && r.first_oom == PL_SNAP_NONE && !(calm && r.stats.retries > 0);
}

/* Doubling, then halving the distance. Below `least` (live bytes) nothing fits; at `most` (the peak on an
 * endless device) everything does, without a retry: no need to try those. */
static bool smallest(struct pl_replay_plan *p, uint64_t least, uint64_t most, bool calm, uint64_t *out,
                     struct pl_err *err) {
    uint64_t low = 0, high = PL_WHATIF_STEP;
    int ok;
    *out = 0;
    while ((ok = high < least ? 0 : high >= most ? 1 : completes(p, high, calm, err)) == 0) {
        low = high;
        high *= 2;
        if (high > MOST_CAPACITY) return true;
    }
    while (ok >= 0 && high - low > PL_WHATIF_STEP) {
        uint64_t middle = (low + high) / 2 / PL_WHATIF_STEP * PL_WHATIF_STEP;
        ok = middle < least ? 0 : middle >= most ? 1 : completes(p, middle, calm, err);
        if (ok > 0)
            high = middle;
        else
            low = middle;
    }
    *out = high;
    return ok >= 0;
}

/* Smaller ones near the result that do, too; larger ones that do not. */
static bool look_around(struct pl_replay_plan *p, struct pl_whatif_row *row, struct pl_err *err) {
    uint64_t found = row->min_capacity;
    for (uint64_t i = 1; i <= PL_WHATIF_NEIGHBOURS; i++) {
        int below = found > i * PL_WHATIF_STEP ? completes(p, found - i * PL_WHATIF_STEP, false, err) : 0;
        int above = completes(p, found + i * PL_WHATIF_STEP, false, err);
        if (below < 0 || above < 0) return false;
        row->uneven |= below > 0 || above == 0;
    }
    return true;
}

static bool find_capacities(const struct pl_whatif *w, struct pl_replay_plan p, struct pl_whatif_row *row,
                            struct pl_err *err) {
    struct pl_replay_result endless;
    p.capacity = MOST_CAPACITY;
    if (!pl_replay(&p, &endless, err)) return false;
    uint64_t least = endless.stats.peak_allocated / 2 + w->other,
             most = endless.stats.peak_reserved + w->other;
    if (p.conf.fraction < 1.0 || p.conf.gc > 0) most = UINT64_MAX; /* a limit moves with the capacity */
    if (!smallest(&p, least, most, false, &row->min_capacity, err) ||
        !smallest(&p, least, most, true, &row->min_calm, err))
        return false;
    return row->min_capacity == 0 || look_around(&p, row, err);
}

bool pl_whatif_row(const struct pl_whatif *w, const char *text, const struct pl_alloc_conf *given,
                   struct pl_whatif_row *row, struct pl_err *err) {
    struct pl_alloc_conf conf;
    struct pl_replay_result other_way;
    *row = (struct pl_whatif_row){ .conf = text };
    pl_alloc_conf_init(&conf);
    if (given != NULL)
        conf = *given;
    else if (!pl_alloc_conf_parse(&conf, text, err))
        return false;
    struct pl_replay_plan p = plan_for(w, &conf);
    if (!pl_replay(&p, &row->run, err)) return false;
    row->low_peak = row->high_peak = row->run.stats.peak_reserved;
    if (!p.conf.order_by_age) { /* ties fall by addresses, and those are the driver's: both directions bound
                                   them */
        p.falling = true;
        if (!pl_replay(&p, &other_way, err)) return false;
        p.falling = false;
        if (other_way.stats.peak_reserved < row->low_peak) row->low_peak = other_way.stats.peak_reserved;
        if (other_way.stats.peak_reserved > row->high_peak) row->high_peak = other_way.stats.peak_reserved;
    }
    return !w->bisect || find_capacities(w, p, row, err);
}

static bool may_advise(const struct pl_whatif_row *r, enum pl_whatif_advice by) {
    struct pl_alloc_conf c;
    struct pl_err err;
    pl_alloc_conf_init(&c);
    if (!pl_alloc_conf_parse(&c, r->conf, &err) || c.async) return false;
    if (pl_whatif_is_bad_mix(&c)) return false;
    if (c.gc > 0 && c.fraction >= 1.0) return false; /* does nothing */
    if (c.gc > 0 && by == PL_ADVICE_CALM)
        return false; /* its cudaFree waits for the device just as a retry does */
    return r->run.first_oom == PL_SNAP_NONE && !r->run.start_failed;
}

bool pl_whatif_saves(const struct pl_whatif *w, const struct pl_whatif_row *r) {
    return r->run.first_oom == PL_SNAP_NONE && !r->run.start_failed &&
           r->run.would_fit == w->lives->counts[PL_SNAP_OOM];
}

static uint64_t figure(const struct pl_whatif *w, const struct pl_whatif_row *r, enum pl_whatif_advice by) {
    if (by == PL_ADVICE_CALM) return r->min_calm;
    if (by == PL_ADVICE_PEAK || !w->bisect) return r->high_peak;
    return r->uneven ? 0 : r->min_capacity;
}

static size_t choose_by(const struct pl_whatif *w, const struct pl_whatif_row *rows, size_t count, size_t now,
                        enum pl_whatif_advice by) {
    double error = w->fidelity->off > LEAST_GAIN ? w->fidelity->off : LEAST_GAIN;
    bool rescue = by == PL_ADVICE_RESCUE;
    uint64_t best_figure = UINT64_MAX, is = figure(w, &rows[now], by);
    if (by == PL_ADVICE_CAPACITY) is = rows[now].min_capacity; /* also where it is uneven */
    size_t best = now;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = figure(w, &rows[i], by);
        if (i == now || x == 0 || !may_advise(&rows[i], by) || x >= best_figure) continue;
        if (rescue ? !pl_whatif_saves(w, &rows[i]) : is > 0 && (double)x > (double)is * (1 - error)) continue;
        best = i;
        best_figure = x;
    }
    return best;
}

size_t pl_whatif_choose(const struct pl_whatif *w, const struct pl_whatif_row *rows, size_t count, size_t now,
                        enum pl_whatif_advice *by) {
    enum pl_whatif_advice order[3] = { PL_ADVICE_RESCUE, w->bisect ? PL_ADVICE_CAPACITY : PL_ADVICE_PEAK,
                                       PL_ADVICE_CALM };
    size_t best = now;
    for (size_t i = pl_whatif_saves(w, &rows[now]) ? 1 : 0; i < (w->bisect ? 3u : 2u) && best == now; i++)
        best = choose_by(w, rows, count, now, *by = order[i]);
    return best;
}
