/* ledger/crowd.h - does what a worker holds at rest still leave room for one more ordinary request? A leak is
 * part of what a budget is measured without (crew/room.h), so it eats the budget before memory itself ends.
 *
 * Pure. The rule: a worker goes when an ordinary request does not fit at all, or when on its growth it will
 * not fit, margin and all, by the time that its successor serves; what a successor takes while both are there
 * counts, where it would have found room beside a new worker: of what is left, and of what nobody uses, since
 * no other process gets what a worker keeps for its requests. One that has come to rest while requests still
 * run, out of the margin, stays. It goes only where that helps: a new one must leave room, and the worker
 * itself must not be the successor of one that went for this and be as full soon after it was READY. A growth
 * may be a cache that fills and would have come to rest: until one was seen that did not, or the verdict is
 * certain, it is believed once, and only when the end is near.
 */
#ifndef PL_LEDGER_CROWD_H
#define PL_LEDGER_CROWD_H
#include <stdbool.h>
#include <stdint.h>

/* How fast a level rises, by three marks: the lesser of the rates between them, so that a step is no rise.
 * Zero it before the first use. */
struct pl_rise {
    uint64_t at_ms[3], bytes[3]; /* oldest first; at_ms 0: not yet */
};
/* Marks are `every_ms` apart at least. */
void pl_rise_add(struct pl_rise *r, uint64_t bytes, uint64_t every_ms, uint64_t now_ms);
/* Bytes a millisecond; 0: it does not rise, or it is not known yet. */
double pl_rise_per_ms(const struct pl_rise *r);

/* How long a replacement takes until requests are served without the old one, and news of it are here:
 * boot_ms 0: not measured. */
uint64_t pl_crowd_replace_ms(uint64_t boot_ms);

struct pl_crowd_case {
    uint64_t left;    /* of the device, now: for requests and their margin */
    uint64_t unused;  /* of the device, now, by nobody at all: less than left, since workers keep what their
                       * requests need; UINT64_MAX: not known */
    uint64_t margin;  /* kept back of it, but never more than half (gateway/budget.c) */
    uint64_t request; /* an ordinary one takes; 0: not known */
    uint64_t held, fresh; /* by the worker that has grown most, at rest: now, and when it had just begun */
    uint64_t beside;      /* what its successor takes while it is still there; 0: it comes after it */
    double per_ms;        /* held grows */
    bool sure;            /* that it does not come to rest: the verdict says so, or the one before has not */
    bool believed;        /* without that, one has already gone for its growth */
    uint64_t replace_ms;
    uint64_t lived_ms; /* READY until it first had no room, of a successor of one that went for this;
                        * UINT64_MAX: it is none */
};
enum pl_crowd {
    PL_CROWD_ROOM,
    PL_CROWD_SOON,  /* none when the successor would be there: it should be made now */
    PL_CROWD_FULL,  /* not even out of the margin, and a new worker would leave some */
    PL_CROWD_LARGE, /* none now, and a new worker leaves none either */
    PL_CROWD_AGAIN, /* none now or soon, and its successor would soon be as full */
};
const char *pl_crowd_name(enum pl_crowd c); /* "room", "soon", "full", "large", "again" */
/* *end_ms: until there is no room at this growth; 0: now, UINT64_MAX: it is not in sight. */
enum pl_crowd pl_crowd_judge(const struct pl_crowd_case *c, uint64_t *end_ms);
#endif
