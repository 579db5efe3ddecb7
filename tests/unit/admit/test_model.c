/* Random days against a reference that keeps everybody in one flat table and looks at all of it for every
 * answer. */
#include "admit/admit.h"

#include "unit.h"

enum { SEEDS = 4000, STEPS = 400, CROWD = 48 };

/* Where each of the crowd is, by the reference: its own words, its own order. */
struct person {
    struct pl_admit_entry entry;
    enum { OUT, IN_LINE, INSIDE } where;
    uint64_t ticket, came_ms;
    uint32_t entered, left; /* how often it was let in, and how often it came out again */
};

struct day {
    uint64_t random;
    struct pl_admit a;
    struct pl_admit_supply supply;
    struct person crowd[CROWD];
    uint64_t now, tickets;
    int64_t most_inside; /* running may exceed the limit only by what ran when the limit fell */
};

static uint32_t dice(struct day *d, uint32_t sides) {
    d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(d->random >> 33) % sides;
}

static int64_t count(const struct day *d, int where) {
    int64_t n = 0;
    for (int i = 0; i < CROWD; i++) n += (int)d->crowd[i].where == where;
    return n;
}

static struct person *first_in_line(struct day *d) {
    struct person *first = NULL;
    for (int i = 0; i < CROWD; i++) {
        struct person *p = &d->crowd[i];
        if (p->where == IN_LINE && (first == NULL || p->ticket < first->ticket)) first = p;
    }
    return first;
}

static struct person *anyone(struct day *d, int where) {
    int64_t n = count(d, where);
    if (n == 0) return NULL;
    int64_t k = dice(d, (uint32_t)n);
    for (int i = 0; i < CROWD; i++)
        if ((int)d->crowd[i].where == where && k-- == 0) return &d->crowd[i];
    return NULL;
}

static bool full(const struct day *d) {
    return d->a.limits.max_concurrency > 0 && count(d, INSIDE) >= d->a.limits.max_concurrency;
}

static void let_in(struct day *d, struct person *p) {
    p->where = INSIDE;
    if (d->most_inside < count(d, INSIDE)) d->most_inside = count(d, INSIDE);
}

/* What the reference says of an arrival; `wait` may still be refused by prediction. */
static enum pl_reason verdict(struct day *d, enum pl_admit_verdict *out) {
    const struct pl_admit_supply *s = &d->supply;
    const struct pl_admit_limits *l = &d->a.limits;
    *out = PL_ADMIT_REFUSED;
    if (s->draining) return PL_REASON_DRAINING;
    if (s->ready == 0) {
        if (s->failed || !s->was_ready || s->boot_left_ms > l->max_wait_ms) return PL_REASON_NOT_READY;
        if (l->queue_requests == 0) return PL_REASON_NOT_READY;
    } else if (count(d, IN_LINE) == 0 && !full(d)) {
        *out = PL_ADMIT_GO;
        return PL_REASON_NONE;
    }
    if (l->queue_requests == 0) return PL_REASON_CONCURRENCY;
    if (count(d, IN_LINE) >= l->queue_requests) return PL_REASON_QUEUE_FULL;
    *out = PL_ADMIT_WAIT;
    return PL_REASON_NONE;
}

static void arrival(struct day *d) {
    struct person *p = anyone(d, OUT);
    struct pl_admit_refusal why = { 0 };
    enum pl_admit_verdict want;
    if (p == NULL) return;
    enum pl_reason reason = verdict(d, &want);
    enum pl_admit_verdict got = pl_admit_arrive(&d->a, &p->entry, &d->supply, d->now, &why);
    if (got == PL_ADMIT_REFUSED && why.reason == PL_REASON_PREDICTED_WAIT) {
        int64_t free = d->a.limits.max_concurrency - count(d, INSIDE);
        double ahead = (double)(count(d, IN_LINE) + 1 - (free > 0 ? free : 0));
        double boot = d->supply.ready == 0 ? (double)d->supply.boot_left_ms : 0;
        assert_int_equal(want, PL_ADMIT_WAIT);
        assert_true(d->a.served >= 8 && d->a.limits.max_concurrency > 0);
        assert_true((ahead > 0 ? ahead * 1000 / d->a.drain_per_s : 0) + boot >
                    (double)d->a.limits.max_wait_ms);
        return;
    }
    assert_int_equal(got, want);
    if (got == PL_ADMIT_REFUSED) {
        assert_int_equal(why.reason, reason);
        assert_true(why.retry_after_ms > 0);
        return;
    }
    p->ticket = ++d->tickets;
    p->came_ms = d->now;
    p->entered++;
    p->where = IN_LINE;
    if (got == PL_ADMIT_GO) let_in(d, p);
}

static void pump(struct day *d) {
    for (;;) {
        struct person *p = first_in_line(d);
        bool may = p != NULL && d->supply.ready > 0 && !full(d);
        struct pl_admit_entry *e = pl_admit_next(&d->a, &d->supply, d->now);
        assert_ptr_equal(e, may ? &p->entry : NULL);
        if (!may) return;
        let_in(d, p);
    }
}

static void expire(struct day *d) {
    struct person *p = first_in_line(d);
    struct pl_admit_refusal why = { 0 };
    assert_int_equal(pl_admit_deadline(&d->a), p != NULL ? p->came_ms + d->a.limits.max_wait_ms : 0);
    bool due = p != NULL && d->now >= p->came_ms + d->a.limits.max_wait_ms;
    assert_ptr_equal(pl_admit_expired(&d->a, d->now, &why), due ? &p->entry : NULL);
    if (!due) return;
    assert_int_equal(why.reason, PL_REASON_WAITED_TOO_LONG);
    p->where = OUT;
    p->left++;
}

static void leave(struct day *d, struct person *p, bool served) {
    if (p->where == INSIDE)
        pl_admit_release(&d->a, &p->entry, served, d->now);
    else
        pl_admit_withdraw(&d->a, &p->entry);
    p->where = OUT;
    p->left++;
}

static void worker_dies(struct day *d) {
    for (int i = 0; i < CROWD; i++) {
        struct person *p = &d->crowd[i];
        if (p->where != INSIDE || dice(d, 2) == 0) continue;
        if (dice(d, 3) == 0) {
            leave(d, p, false);
        } else {
            pl_admit_requeue(&d->a, &p->entry);
            p->where = IN_LINE;
        }
    }
}

static void new_limits(struct day *d) {
    static const int64_t max[] = { -2, 0, 1, 2, 3, 8, 20 }, queue[] = { 0, 1, 2, 5, 40 };
    static const uint64_t wait[] = { 0, 50, 500, 10000 };
    struct pl_admit_limits l = { max[dice(d, 7)], queue[dice(d, 5)], wait[dice(d, 4)], false };
    pl_admit_set_limits(&d->a, &l);
    d->most_inside = count(d, INSIDE);
}

static void new_supply(struct day *d) {
    d->supply.ready = dice(d, 4) == 0 ? 0 : 1 + dice(d, 3);
    if (d->supply.ready > 0) d->supply.was_ready = true;
    d->supply.failed = dice(d, 12) == 0;
    d->supply.draining = dice(d, 12) == 0;
    d->supply.boot_left_ms = dice(d, 3) == 0 ? 0 : dice(d, 2000);
}

static void step(struct day *d) {
    struct person *p;
    d->now += dice(d, 4) == 0 ? dice(d, 200) : dice(d, 3);
    switch (dice(d, 16)) {
    default:
        arrival(d);
        break;
    case 0:
    case 1:
    case 2:
    case 3:
        if ((p = anyone(d, INSIDE)) != NULL) leave(d, p, dice(d, 8) != 0);
        if (dice(d, 8) != 0) pump(d); /* sometimes it is forgotten: the order must hold all the same */
        break;
    case 4:
        if ((p = anyone(d, IN_LINE)) != NULL) leave(d, p, false);
        break;
    case 5:
        expire(d);
        break;
    case 6:
        if (dice(d, 8) == 0) worker_dies(d);
        break;
    case 7:
        if (dice(d, 8) == 0) new_limits(d);
        break;
    case 8:
        if (dice(d, 4) == 0) new_supply(d);
        break;
    case 9:
        if (dice(d, 20) == 0) {
            p = first_in_line(d);
            assert_ptr_equal(pl_admit_evict(&d->a), p != NULL ? &p->entry : NULL);
            if (p != NULL) p->where = OUT, p->left++;
        }
        break;
    }
}

static void check(const struct day *d) {
    int64_t queued = 0, max = d->a.limits.max_concurrency;
    uint64_t last = 0;
    assert_int_equal(d->a.running, count(d, INSIDE));
    assert_int_equal(d->a.queued, count(d, IN_LINE));
    for (const struct pl_admit_entry *e = d->a.oldest, *before = NULL; e != NULL; before = e, e = e->next) {
        assert_ptr_equal(e->prev, before);
        assert_true(e->number > last);
        last = e->number;
        queued++;
    }
    assert_int_equal(queued, d->a.queued);
    if (max > 0) assert_true(d->a.running <= max || d->a.running <= d->most_inside);
    for (int i = 0; i < CROWD; i++) {
        const struct person *p = &d->crowd[i];
        assert_int_equal(p->entry.state, p->where == OUT       ? PL_ADMIT_OUTSIDE
                                         : p->where == IN_LINE ? PL_ADMIT_QUEUED
                                                               : PL_ADMIT_RUNNING);
        assert_int_equal(p->entered - p->left, p->where != OUT);
    }
}

TEST(random_days_agree_with_the_naive_reference) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        static struct day d;
        d = (struct day){ .random = seed * 0x9e3779b97f4a7c15u, .now = 1 };
        pl_admit_init(&d.a, &(struct pl_admit_limits){ 1, 1, 1, false });
        new_limits(&d);
        new_supply(&d);
        for (int i = 0; i < STEPS; i++) {
            step(&d);
            check(&d);
        }
        for (int i = 0; i < CROWD; i++)
            if (d.crowd[i].where != OUT) leave(&d, &d.crowd[i], true);
        check(&d);
        assert_int_equal(d.a.running + d.a.queued, 0);
        assert_null(d.a.oldest);
        assert_null(d.a.newest);
    }
}

RUN(cmocka_unit_test(random_days_agree_with_the_naive_reference))
