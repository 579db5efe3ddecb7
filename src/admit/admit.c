/* The drain rate is what the service gives when it gives all it can: served releases divided by the time in
 * which every place was taken. Time with a free place says how much was asked for, not how much could be had,
 * so it does not count: a service that idled for an hour and is then flooded has not become slow. Both sums
 * are halved when they grow old, which makes a window of the last 10 to 20 saturated seconds, and of at least
 * 32 requests where they are slow. */
#include "admit/admit.h"

#include "admit/line.h"

enum {
    WELL_KNOWN = 8, /* releases before a rate may refuse anybody */
    HALVE_AT_SERVED = 64,
    HALVE_AT_MS = 20000,
    FORGET_AFTER_MS = 600000, /* without saturation */
    BOOT_UNKNOWN_MS = 5000,
    RETRY_LEAST_MS = 1000,
    RETRY_MOST_MS = 3600000
};

static bool count_full(const struct pl_admit *a) {
    return a->limits.max_concurrency > 0 && a->running >= a->limits.max_concurrency;
}

/* Somebody would run if there were room. */
static bool places_full(const struct pl_admit *a) {
    return count_full(a) || (a->bytes_short && a->queued > 0);
}

static void learn(struct pl_admit *a) {
    if (a->served >= HALVE_AT_SERVED && a->saturated_ms >= HALVE_AT_MS) {
        a->served /= 2;
        a->saturated_ms /= 2;
    }
    uint64_t ms = a->saturated_ms > 0 ? a->saturated_ms : 1;
    a->drain_per_s = (double)a->served * 1000.0 / (double)ms;
}

static void forget(struct pl_admit *a) {
    a->served = 0;
    a->saturated_ms = 0;
    a->drain_per_s = 0;
}

/* Every function that is told the time calls this before it changes anything. What ends within one moment was
 * worked on together: a release counts when all places were taken at the beginning of its moment or later in
 * it. */
static void pass_time(struct pl_admit *a, uint64_t now_ms) {
    uint64_t passed = a->seen_ms != 0 && now_ms > a->seen_ms ? now_ms - a->seen_ms : 0;
    if (passed == 0 && a->seen_ms != 0) return;
    a->seen_ms = now_ms;
    a->saturated = places_full(a);
    if (a->saturated) {
        a->saturated_ms += passed;
        a->full_at_ms = now_ms;
        learn(a);
    } else if (now_ms - a->full_at_ms >= FORGET_AFTER_MS) {
        forget(a);
    }
}

/* Both functions that are told the supply call this first. */
static void pass_gap(struct pl_admit *a, const struct pl_admit_supply *s, uint64_t now_ms) {
    bool held = s->handover && s->ready == 0;
    if (held && !a->held) a->held_from_ms = now_ms;
    if (!held && a->held) a->held_to_ms = now_ms;
    a->held = held;
    a->hold_ms = s->hold_ms;
    a->gap_left_ms = s->boot_left_ms;
}

/* --- bytes */

static bool counts_bytes(const struct pl_admit *a) {
    for (unsigned i = 0; i < PL_ADMIT_PLACES; i++)
        if (a->places[i].full > 0) return true;
    return false;
}

/* The largest budget: as it is now, or whole. */
static uint64_t most_bytes(const struct pl_admit *a, bool whole) {
    uint64_t most = 0;
    for (unsigned i = 0; i < PL_ADMIT_PLACES; i++) {
        const struct pl_budget *b = &a->places[i];
        uint64_t bytes = !whole ? pl_budget_most(b) : b->ever > b->full ? b->ever : b->full;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Where most is free among the places with a worker; NOWHERE: bytes do not count there. */
static unsigned roomiest(const struct pl_admit *a, uint32_t ready) {
    unsigned best = PL_ADMIT_NOWHERE;
    for (unsigned i = 0; i < PL_ADMIT_PLACES; i++) {
        const struct pl_budget *b = &a->places[i];
        if ((ready >> i & 1) == 0 || b->full == 0) continue;
        if (best == PL_ADMIT_NOWHERE || pl_budget_free(b) > pl_budget_free(&a->places[best])) best = i;
    }
    return best;
}

static bool prompt_fits(const struct pl_admit *a, const struct pl_admit_entry *e) {
    return a->prefill_limit == 0 || e->prefill == 0 || a->prefill == 0 ||
           (a->prefill < a->prefill_limit && e->prefill <= a->prefill_limit - a->prefill);
}

/* A ready place at which nobody runs. */
static unsigned empty_place(const struct pl_admit *a, uint32_t ready) {
    for (unsigned i = 0; i < PL_ADMIT_PLACES && !a->alone_held; i++)
        if ((ready >> i & 1) != 0 && a->places[i].full > 0 && a->places[i].charged == 0) return i;
    return PL_ADMIT_NOWHERE;
}

static bool room_for(const struct pl_admit *a, const struct pl_admit_entry *e, uint32_t ready) {
    if (!counts_bytes(a)) return true;
    if (e->hold == PL_ADMIT_ALONE)
        return roomiest(a, ready) == PL_ADMIT_NOWHERE || empty_place(a, ready) != PL_ADMIT_NOWHERE;
    if (e->cost == 0) return true;
    unsigned i = roomiest(a, ready);
    return i == PL_ADMIT_NOWHERE || pl_budget_free(&a->places[i]) >= e->cost;
}

static bool is_lenient(const struct pl_admit_entry *e) {
    return e->hold == PL_ADMIT_TOLD || e->hold == PL_ADMIT_FREE;
}

static bool bytes_fit(struct pl_admit *a, const struct pl_admit_entry *e, uint32_t ready) {
    a->prefill_short = !prompt_fits(a, e);
    return !a->prefill_short && (is_lenient(e) || room_for(a, e, ready));
}

static void charge(struct pl_admit *a, struct pl_admit_entry *e, uint32_t ready) {
    bool alone = e->hold == PL_ADMIT_ALONE;
    unsigned i = alone ? empty_place(a, ready) : PL_ADMIT_NOWHERE;
    if (i == PL_ADMIT_NOWHERE && (alone || e->cost > 0)) i = roomiest(a, ready);
    e->place = (uint8_t)i;
    e->charged = 0;
    e->prefill_held = e->prefill;
    a->prefill += e->prefill_held;
    if (i == PL_ADMIT_NOWHERE) return;
    uint64_t all = pl_budget_most(&a->places[i]);
    e->charged = !alone ? e->cost : all > 0 ? all : 1;
    a->places[i].charged += e->charged;
    a->places[i].requests++;
}

static void uncharge(struct pl_admit *a, struct pl_admit_entry *e) {
    if (e->place != PL_ADMIT_NOWHERE) a->places[e->place].requests--;
    if (e->charged > 0) a->places[e->place].charged -= e->charged;
    if (e->charged > 0 && e->orphan) a->places[e->place].orphans -= e->charged;
    if (e->orphan) a->orphans--;
    e->orphan = false;
    e->charged = 0;
    e->place = PL_ADMIT_NOWHERE;
    a->prefill -= e->prefill_held;
    e->prefill_held = 0;
    a->bytes_short = false; /* until somebody finds out anew */
}

void pl_admit_set_budget(struct pl_admit *a, unsigned place, uint64_t full) {
    pl_budget_set(&a->places[place], full);
    a->bytes_short = false;
}

void pl_admit_set_prefill(struct pl_admit *a, uint64_t limit) {
    if (a->prefill_limit == limit) return;
    a->prefill_limit = limit;
    a->bytes_short = false;
}

bool pl_admit_prefilled(struct pl_admit *a, struct pl_admit_entry *e) {
    if (e->state != PL_ADMIT_RUNNING || e->prefill_held == 0) return false;
    a->prefill -= e->prefill_held;
    e->prefill_held = 0;
    return true;
}

void pl_admit_recharge(struct pl_admit *a, struct pl_admit_entry *e, uint64_t bytes) {
    if (e->state != PL_ADMIT_RUNNING || e->charged == 0) return;
    struct pl_budget *b = &a->places[e->place];
    b->charged = b->charged - e->charged + bytes;
    e->charged = bytes;
}

static void run(struct pl_admit *a, struct pl_admit_entry *e, const struct pl_admit_supply *s,
                uint64_t now_ms) {
    e->state = PL_ADMIT_RUNNING;
    e->started_ms = now_ms;
    a->running++;
    charge(a, e, s->places);
    pl_line_served(a, e);
    if (places_full(a)) a->saturated = true;
}

void pl_admit_init(struct pl_admit *a, const struct pl_admit_limits *limits) {
    *a = (struct pl_admit){ .limits = *limits };
}

void pl_admit_set_limits(struct pl_admit *a, const struct pl_admit_limits *limits) {
    if (limits->max_concurrency != a->limits.max_concurrency) {
        forget(a); /* a rate holds for its number of places */
        a->saturated = false;
        a->seen_ms = 0;
    }
    a->limits = *limits;
}

/* Those that wait, and with `observe` those that run above the limit in their place. */
static int64_t in_line(const struct pl_admit *a) {
    int64_t above = a->limits.max_concurrency > 0 ? a->running - a->limits.max_concurrency : 0;
    return a->queued + (a->limits.observe && above > 0 ? above : 0);
}

uint64_t pl_admit_retry_after(const struct pl_admit *a) {
    if (a->drain_per_s <= 0) return RETRY_LEAST_MS;
    double ms = (double)(in_line(a) + 1) * 1000.0 / a->drain_per_s;
    if (ms >= (double)RETRY_MOST_MS) return RETRY_MOST_MS;
    return ms <= (double)RETRY_LEAST_MS ? RETRY_LEAST_MS : (uint64_t)ms;
}

static uint64_t boot_left(const struct pl_admit_supply *s) {
    return s->boot_left_ms != 0 ? s->boot_left_ms : BOOT_UNKNOWN_MS;
}

/* How long the next one in the queue would wait, in ms; 0 when that is not known well enough to refuse by it.
 */
static double predicted_wait(const struct pl_admit *a, const struct pl_admit_supply *s) {
    if ((a->limits.max_concurrency <= 0 && !a->bytes_short) || a->served < WELL_KNOWN || a->drain_per_s <= 0)
        return 0;
    int64_t free = a->limits.max_concurrency > a->running && !a->bytes_short
                       ? a->limits.max_concurrency - a->running
                       : 0;
    int64_t before = in_line(a) + 1 - free;
    double ms = before > 0 ? (double)before * 1000.0 / a->drain_per_s : 0;
    return ms + (s->ready == 0 && !a->held ? (double)s->boot_left_ms : 0);
}

static enum pl_admit_verdict refuse(struct pl_admit_refusal *why, enum pl_reason reason,
                                    uint64_t retry_after_ms) {
    *why = (struct pl_admit_refusal){ .reason = reason, .retry_after_ms = retry_after_ms };
    return PL_ADMIT_REFUSED;
}

/* Why the queue does not take one more; NONE: it does. */
static enum pl_reason queue_refuses(const struct pl_admit *a, const struct pl_admit_supply *s) {
    const struct pl_admit_limits *l = &a->limits;
    if (l->queue_requests <= 0)
        return a->bytes_short && !count_full(a) ? PL_REASON_BUDGET : PL_REASON_CONCURRENCY;
    if (in_line(a) >= l->queue_requests) return PL_REASON_QUEUE_FULL;
    return predicted_wait(a, s) > (double)l->max_wait_ms ? PL_REASON_PREDICTED_WAIT : PL_REASON_NONE;
}

/* Why a request that came into a gap is not held; NONE: it may wait. */
static enum pl_reason gap_refuses(const struct pl_admit *a, const struct pl_admit_supply *s) {
    const struct pl_admit_limits *l = &a->limits;
    if (a->held) {
        bool in_time = s->boot_left_ms != 0 && s->boot_left_ms <= s->hold_ms;
        return in_time && l->queue_requests > 0 ? PL_REASON_NONE : PL_REASON_HANDOVER;
    }
    bool never = s->failed || !s->was_ready || s->boot_left_ms > l->max_wait_ms || l->queue_requests <= 0;
    return never ? PL_REASON_NOT_READY : PL_REASON_NONE;
}

/* Why its bytes will never, or not for a long time, be there; NONE: they may be. */
static enum pl_reason bytes_refuse(const struct pl_admit *a, const struct pl_admit_entry *e) {
    if (e->cost == 0 || e->hold == PL_ADMIT_ALONE || e->hold == PL_ADMIT_FREE || !counts_bytes(a))
        return PL_REASON_NONE;
    if (e->cost > most_bytes(a, true)) return PL_REASON_CONTEXT_LENGTH;
    return e->cost > most_bytes(a, false) ? PL_REASON_BUDGET : PL_REASON_NONE;
}

enum pl_admit_verdict pl_admit_arrive(struct pl_admit *a, struct pl_admit_entry *e,
                                      const struct pl_admit_supply *s, uint64_t now_ms,
                                      struct pl_admit_refusal *why) {
    bool gap = s->ready == 0;
    pass_time(a, now_ms);
    pass_gap(a, s, now_ms);
    *why = (struct pl_admit_refusal){ .reason = PL_REASON_NONE };
    if (s->draining) return refuse(why, PL_REASON_DRAINING, boot_left(s));
    if (s->out_of_service) return refuse(why, PL_REASON_DEVICE_OUT_OF_SERVICE, boot_left(s));
    enum pl_reason reason = gap ? gap_refuses(a, s) : PL_REASON_NONE;
    if (reason != PL_REASON_NONE) return refuse(why, reason, boot_left(s));

    *e = (struct pl_admit_entry){ .arrived_ms = now_ms,
                                  .number = ++a->arrivals,
                                  .flow = e->flow,
                                  .rank = e->rank,
                                  .cost = e->cost,
                                  .hold = e->hold,
                                  .prefill = e->prefill,
                                  .place = PL_ADMIT_NOWHERE };
    bool lets = a->limits.observe && !gap;
    enum pl_reason never = bytes_refuse(a, e);
    if (gap && never == PL_REASON_BUDGET) never = PL_REASON_NONE; /* its worker's end may make room */
    if (never != PL_REASON_NONE) {
        refuse(why, never, pl_admit_retry_after(a));
        if (!lets && e->hold != PL_ADMIT_TOLD) return PL_ADMIT_REFUSED;
    }
    pl_line_stamp(a, e);
    if (!gap && a->queued == 0 && !count_full(a)) {
        if (e->hold == PL_ADMIT_TOLD && never == PL_REASON_NONE && !room_for(a, e, s->places))
            refuse(why, PL_REASON_BUDGET, pl_admit_retry_after(a));
        if (bytes_fit(a, e, s->places)) {
            run(a, e, s, now_ms);
            return PL_ADMIT_GO;
        }
        a->bytes_short = true;
    }
    uint64_t back_ms = pl_admit_retry_after(a);
    if (gap && back_ms < s->boot_left_ms) back_ms = s->boot_left_ms;
    reason = queue_refuses(a, s);
    if (reason != PL_REASON_NONE && never == PL_REASON_NONE) refuse(why, reason, back_ms);
    if (lets && a->queued == 0) {
        run(a, e, s, now_ms);
        return PL_ADMIT_GO;
    }
    if (reason != PL_REASON_NONE && !lets) return PL_ADMIT_REFUSED;
    pl_line_put(a, e);
    return PL_ADMIT_WAIT;
}

struct pl_admit_entry *pl_admit_head(const struct pl_admit *a) {
    return pl_line_first(a);
}

void pl_admit_adopt(struct pl_admit *a, struct pl_admit_entry *e, unsigned place, uint64_t bytes,
                    uint64_t now_ms) {
    pass_time(a, now_ms);
    *e = (struct pl_admit_entry){ .arrived_ms = now_ms,
                                  .started_ms = now_ms,
                                  .state = PL_ADMIT_RUNNING,
                                  .place = PL_ADMIT_NOWHERE,
                                  .orphan = true };
    a->running++;
    a->orphans++;
    if (place >= PL_ADMIT_PLACES) return;
    e->place = (uint8_t)place;
    e->cost = e->charged = bytes;
    a->places[place].requests++;
    a->places[place].charged += bytes;
    a->places[place].orphans += bytes;
    a->bytes_short = false;
}

struct pl_admit_entry *pl_admit_next(struct pl_admit *a, const struct pl_admit_supply *s, uint64_t now_ms) {
    struct pl_admit_entry *e = pl_line_first(a);
    pass_time(a, now_ms);
    pass_gap(a, s, now_ms);
    if (e == NULL || s->ready == 0 || s->out_of_service || (count_full(a) && !a->limits.observe)) return NULL;
    /* It waits at the head until there is room for it: smaller ones behind it would keep it out for ever. */
    a->bytes_short = !bytes_fit(a, e, s->places);
    if (a->bytes_short && !a->limits.observe) return NULL;
    pl_line_take(a, e);
    run(a, e, s, now_ms);
    return e;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Who waited when a gap was opened that is longer than the hold: nobody is kept for what cannot be kept. */
static bool is_hopeless(const struct pl_admit *a, const struct pl_admit_entry *e) {
    return a->held && e->arrived_ms <= a->held_from_ms && a->gap_left_ms > a->hold_ms;
}

struct pl_admit_entry *pl_admit_expired(struct pl_admit *a, uint64_t now_ms, struct pl_admit_refusal *why) {
    struct pl_admit_entry *e = a->oldest;
    pass_time(a, now_ms);
    if (e == NULL || (now_ms < pl_admit_deadline(a) && !is_hopeless(a, e))) return NULL;
    pl_line_take(a, e);
    if (a->held)
        refuse(why, PL_REASON_HANDOVER, a->gap_left_ms != 0 ? a->gap_left_ms : BOOT_UNKNOWN_MS);
    else
        refuse(why, PL_REASON_WAITED_TOO_LONG, pl_admit_retry_after(a));
    return e;
}

uint64_t pl_admit_deadline(const struct pl_admit *a) {
    const struct pl_admit_entry *e = a->oldest;
    /* The queue is in the order of arrival, so nobody behind the oldest is due earlier. */
    if (e == NULL) return 0;
    if (a->held) return later(e->arrived_ms, a->held_from_ms) + a->hold_ms;
    return later(e->arrived_ms, a->held_to_ms) + a->limits.max_wait_ms;
}

void pl_admit_release(struct pl_admit *a, struct pl_admit_entry *e, bool served, uint64_t now_ms) {
    if (e->state != PL_ADMIT_RUNNING) return;
    pass_time(a, now_ms);
    if (served && a->saturated) {
        a->served++;
        learn(a);
    }
    e->state = PL_ADMIT_OUTSIDE;
    a->running--;
    uncharge(a, e);
}

void pl_admit_withdraw(struct pl_admit *a, struct pl_admit_entry *e) {
    if (e->state == PL_ADMIT_QUEUED) pl_line_take(a, e);
}

void pl_admit_requeue(struct pl_admit *a, struct pl_admit_entry *e) {
    if (e->state != PL_ADMIT_RUNNING) return;
    a->running--;
    uncharge(a, e);
    pl_line_put(a, e);
}

struct pl_admit_entry *pl_admit_evict(struct pl_admit *a) {
    struct pl_admit_entry *e = a->oldest;
    if (e != NULL) pl_line_take(a, e);
    return e;
}
