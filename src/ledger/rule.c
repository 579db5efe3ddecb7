#include "ledger/rule.h"

#include <math.h>
#include <string.h>

#define Z_SUSPECT   2.576 /* 99 %, two-sided */
#define Z_LATE      1.645 /* 95 %, one-sided */
#define RATIO_WHOLE 0.8   /* late slope by early slope: over the whole history */
#define RATIO_PART  0.85  /* the same over a part of it */
#define RATIO_CLEAR 0.95  /* below it, when the intervals of both slopes are apart as well */
#define QUARTER     0.5   /* last quarter's slope by the largest before */
#define RISES       10
#define FALL        0.35 /* of the growth */
#define WANDER      0.15
#define FEW_RISES   6 /* so few are steps */
#define ONSET       0.1
#define SHAPE_LEAST (8.0 * 1024 * 1024) /* smaller ups and downs have no shape */

enum { AGE_MORE = 1500, AGREE = 2, PART_BUCKETS = 12 };

static const char *const shape_names[] = { "flat", "steps", "sawtooth", "cycle", "line" };
const char *pl_shape_name(enum pl_shape s) {
    return (unsigned)s < PL_SHAPE_COUNT ? shape_names[s] : "unknown";
}

/* --- is it a line? */

static bool slows(const struct pl_trend *t, double ratio) {
    if (t->late.mid < ratio * t->early.mid) return true;
    return t->late.high < t->early.low && t->late.mid < RATIO_CLEAR * t->early.mid;
}

/* Bytes that are growth. */
static double least_of(const struct pl_rule *r) { return r->least > 0 ? r->least : PL_RULE_GROWTH; }

static bool is_line(const struct pl_trend *t, double ratio, double least) {
    double late_buckets = t->n - t->n / 2;
    return t->all.z > Z_SUSPECT && t->all.low * t->n >= least && t->late.z > Z_LATE &&
           t->late.mid * late_buckets >= least / 4 && !slows(t, ratio) &&
           t->last_quarter >= QUARTER * t->first_quarters && t->rises >= RISES &&
           t->fall <= FALL * t->growth && t->wander <= WANDER * t->growth;
}

/* Buckets before the growth began: up to the last value that is near the lowest one. */
static uint32_t onset(const double *v, uint32_t n) {
    double base = v[0];
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++) base = fmin(base, v[i]);
    for (uint32_t i = 0; i < n; i++)
        if (v[i] <= base + ONSET * (v[n - 1] - base)) at = i;
    return at;
}

/* `t`: of the whole; becomes that of the part that is a line. */
static bool lasts(const double *v, uint32_t n, uint32_t began, double least, struct pl_trend *t) {
    if (is_line(t, RATIO_WHOLE, least)) return true;
    const uint32_t from[] = { n / 4, n / 2, began };
    double rises = t->rises;
    for (int i = 0; i < 3; i++) {
        if (n - from[i] < PART_BUCKETS) continue;
        pl_trend_of(v + from[i], n - from[i], t);
        if (rises < t->rises) t->rises = rises; /* see look() */
        if (is_line(t, RATIO_PART, least)) return true;
    }
    return false;
}

/* Three times as old as at the suspicion, and 1,500 requests older. A cycle hides the first suspicion, and a
 * trend that is left when it was taken out is clearer: half of that. */
static bool old_enough(const struct pl_rule *r, uint64_t age, uint64_t began) {
    double since = (double)age - (double)began;
    double then = r->suspect_age > began ? (double)(r->suspect_age - began) : 0;
    return since >= (r->cycle > 0 ? 1.5 : 3.0) * then && since >= then + AGE_MORE;
}

/* --- shape */

static enum pl_shape shape_of(const struct pl_rule *r, const struct pl_trend *t) {
    bool rose = t->growth >= SHAPE_LEAST && t->growth > t->fall;
    if (r->state == PL_RULE_SUSPECTED || r->state == PL_RULE_CONFIRMED)
        return t->rises < FEW_RISES ? PL_SHAPE_STEPS : PL_SHAPE_LINE;
    if (r->cycle >= SHAPE_LEAST / 2) return PL_SHAPE_CYCLE;
    if (rose && t->rises < FEW_RISES) return PL_SHAPE_STEPS;
    if (t->fall >= SHAPE_LEAST && t->rises >= 2) return PL_SHAPE_SAWTOOTH;
    return PL_SHAPE_FLAT;
}

/* --- a look */

static void rate_is(struct pl_rule *r, const struct pl_slope *s) {
    double width = (double)r->floor.width;
    r->low = s->low / width;
    r->slope = s->mid / width;
    r->high = s->high / width;
}

static void judge(struct pl_rule *r, const double *v, uint32_t n) {
    const struct pl_trend *t = &r->trend;
    uint64_t age = r->seen - PL_RULE_WARM_UP, width = r->floor.width;
    if (t->all.z <= Z_SUSPECT || t->all.low * n < least_of(r)) {
        r->suspect_age = 0;
        r->agreed = 0;
        r->state = PL_RULE_STABLE;
        return;
    }
    if (r->suspect_age == 0) {
        r->suspect_age = age;
        r->suspected_at = r->seen;
    }
    struct pl_trend part = *t;
    uint32_t began = onset(v, n);
    bool line = lasts(v, n, began, least_of(r), &part);
    if (line) rate_is(r, &part.all);
    if (r->state == PL_RULE_CONFIRMED && t->last_quarter >= r->confirmed_slope * (double)width / 2) return;
    r->state = PL_RULE_SUSPECTED;
    r->agreed = line && old_enough(r, age, began * width) ? r->agreed + 1 : 0;
    if (r->agreed < AGREE) return;
    r->state = PL_RULE_CONFIRMED;
    r->confirmed_slope = r->slope;
    if (r->confirmed_at == 0) r->confirmed_at = r->seen;
}

static void look(struct pl_rule *r) {
    double v[PL_FLOOR_BUCKETS];
    uint32_t n = r->floor.count;
    memcpy(v, r->floor.at, sizeof v);
    r->cycle = pl_trend_take_cycle(v, n);
    struct pl_trend *t = &r->trend, raw;
    pl_trend_of(v, n, t);
    pl_trend_of(r->floor.at, n, &raw);
    t->rises = raw.rises; /* a smooth cycle would hide that they are few */
    /* What fills up slows down: its last half is what goes on. */
    bool apart = t->late.high < t->all.low || t->late.low > t->all.high;
    rate_is(r, apart ? &t->late : &t->all);
    r->growth = t->growth;
    judge(r, v, n);
    r->shape = shape_of(r, &raw);
}

bool pl_rule_add(struct pl_rule *r, double bytes, uint64_t requests) {
    if (requests == 0) requests = 1;
    if (r->seen == 0) r->first = bytes;
    r->seen += requests;
    if (r->seen <= PL_RULE_WARM_UP) {
        pl_floor_add(&r->early, bytes, requests);
        return false;
    }
    if (r->look_at == 0) r->look_at = (r->seen / PL_RULE_EVERY + 1) * PL_RULE_EVERY;
    pl_floor_add(&r->floor, bytes, requests);
    if (r->seen < r->look_at || r->floor.count < PL_RULE_BUCKETS) return false;
    r->look_at = (r->seen / PL_RULE_EVERY + 1) * PL_RULE_EVERY;
    look(r);
    return true;
}

uint64_t pl_rule_missing(const struct pl_rule *r) {
    if (r->state != PL_RULE_WARMING) return 0;
    uint64_t width = r->floor.width != 0 ? r->floor.width : PL_FLOOR_FIRST_WIDTH;
    uint64_t least = PL_RULE_WARM_UP + PL_RULE_BUCKETS * width;
    uint64_t at = (least + PL_RULE_EVERY - 1) / PL_RULE_EVERY * PL_RULE_EVERY;
    if (r->look_at > at) at = r->look_at;
    return at > r->seen ? at - r->seen : 1;
}

/* The first bucket from which on nothing is below `level`. */
static uint32_t above_from(const struct pl_floor *f, double level) {
    uint32_t i = f->count;
    while (i > 0 && f->at[i - 1] >= level) i--;
    return i;
}

bool pl_rule_settled(const struct pl_rule *r, double least, uint64_t *requests) {
    if (r->state != PL_RULE_STABLE) return false;
    const struct pl_trend *t = &r->trend;
    double last = pl_floor_last(&r->floor), rise = last - r->first;
    if (rise < least || t->late.z > Z_LATE || t->fall > rise / 2) return false;
    if (t->growth >= rise / 2 && t->rises < FEW_RISES) return false; /* a step */
    double level = last - rise / 20;
    uint32_t i = above_from(&r->floor, level);
    *requests = PL_RULE_WARM_UP + i * r->floor.width;
    if (i > 0) return true;
    i = above_from(&r->early, level);
    *requests = i * r->early.width;
    if (*requests == 0) *requests = 1;
    return true;
}

/* --- long lives */

void pl_history_steady(struct pl_history *h, double least) { h->whole.least = h->part.least = least; }

bool pl_history_add(struct pl_history *h, double bytes, uint64_t requests) {
    bool looked = pl_rule_add(&h->whole, bytes, requests);
    if (h->whole.seen < PL_HISTORY_LONG) return looked;
    if (h->part.seen >= PL_HISTORY_PART && h->part.state == PL_RULE_STABLE)
        h->part = (struct pl_rule){ .least = h->whole.least };
    return pl_rule_add(&h->part, bytes, requests) || looked;
}

const struct pl_rule *pl_history_rule(const struct pl_history *h) {
    bool late = h->part.state == PL_RULE_CONFIRMED && h->whole.state != PL_RULE_CONFIRMED;
    return late ? &h->part : &h->whole;
}

uint64_t pl_history_before(const struct pl_history *h) {
    return pl_history_rule(h) == &h->part ? h->whole.seen - h->part.seen : 0;
}
