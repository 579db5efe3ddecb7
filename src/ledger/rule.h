/* ledger/rule.h - a line, or something that settles: the judgement of one floor series.
 *
 * *Suspected*: a significant trend whose lower bound amounts to PL_RULE_GROWTH. *Confirmed*: two looks in a
 * row agree that the growth is a line, and it is old enough beside the age of the first suspicion, both
 * counted from where it began. A line does not slow down (compared are the halves of the whole history, of
 * its last three quarters, of its last half: one must pass), is not made of a few steps, does not fall back,
 * does not wander. A regular cycle is taken out first. Growth that slows down is never confirmed, however
 * long it goes on. Measured on random series: tests/unit/ledger/test_marks.c, docs/verdicts.md.
 */
#ifndef PL_LEDGER_RULE_H
#define PL_LEDGER_RULE_H
#include <stdbool.h>

#include "ledger/floor.h"
#include "ledger/trend.h"

enum {
    PL_RULE_WARM_UP = 300, /* requests that are not looked at */
    PL_RULE_EVERY = 250,   /* requests from one look to the next */
    PL_RULE_BUCKETS = 24,  /* fewer are not judged */
};
#define PL_RULE_GROWTH (24.0 * 1024 * 1024) /* bytes; less is no growth */

enum pl_rule_state { PL_RULE_WARMING, PL_RULE_STABLE, PL_RULE_SUSPECTED, PL_RULE_CONFIRMED };
/* Closed: surface 8.6. */
enum pl_shape {
    PL_SHAPE_FLAT,
    PL_SHAPE_STEPS,
    PL_SHAPE_SAWTOOTH,
    PL_SHAPE_CYCLE,
    PL_SHAPE_LINE,
    PL_SHAPE_COUNT
};
const char *pl_shape_name(enum pl_shape s);

/* Zero it before the first use. Bytes are doubles: exact up to 2^53. */
struct pl_rule {
    struct pl_floor early; /* of the warm-up */
    struct pl_floor floor; /* since then */
    double least;          /* bytes that are growth; 0: PL_RULE_GROWTH */
    double first;          /* the first sample of all */
    uint64_t seen;         /* requests, the warm-up included */
    uint64_t look_at;      /* seen at the next look */
    enum pl_rule_state state;
    enum pl_shape shape;
    uint64_t suspect_age;    /* since the warm-up, of the suspicion that stands; 0: none */
    uint64_t suspected_at;   /* seen at it; kept when it passes */
    uint64_t confirmed_at;   /* seen at it; kept when it passes. 0: it never was */
    uint32_t agreed;         /* looks in a row that found a line */
    double confirmed_slope;  /* per request */
    double low, slope, high; /* per request: of the whole, or of its last half when that rises apart */
    double growth;           /* since the warm-up */
    double cycle;            /* amplitude of what was taken out */
    struct pl_trend trend;   /* of the last look */
};

/* One sample that stands for `requests` (>= 1) of them. True: it was looked at anew. */
bool pl_rule_add(struct pl_rule *r, double bytes, uint64_t requests);
/* Requests that are missing until the first look, about; 0 when it was. */
uint64_t pl_rule_missing(const struct pl_rule *r);
/* Where a growth that is over came to rest: true when it rose by at least `least` bytes since the first
 * sample, no trend is left in the second half of the history, and it was no single step after the warm-up.
 * `requests`: how many it took, about. */
bool pl_rule_settled(const struct pl_rule *r, double least, uint64_t *requests);

/* A rule over the whole life, and one over its last part: over millions of requests a leak that begins late
 * would vanish in one bucket. The second one begins anew every PL_HISTORY_PART requests, unless it suspects
 * something. Zero it before the first use. */
enum { PL_HISTORY_LONG = 8192, PL_HISTORY_PART = 16384 };
struct pl_history {
    struct pl_rule whole, part;
};
/* The same input again and again, one request at a time, has little noise: less than PL_RULE_GROWTH is growth
 * there. Before the first sample. */
void pl_history_steady(struct pl_history *h, double least);
bool pl_history_add(struct pl_history *h, double bytes, uint64_t requests);
/* The whole, unless the part alone is confirmed: what a short part suspects may be the hour of the day. */
const struct pl_rule *pl_history_rule(const struct pl_history *h);
/* Requests before the part began, to be added to its figures; 0 for the whole. */
uint64_t pl_history_before(const struct pl_history *h);
#endif
