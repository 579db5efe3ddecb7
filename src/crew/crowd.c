/* crowd.c - once a second, on each device: does what workers hold at rest leave room for one more ordinary
 * request? The rule is ledger/crowd.h, what an ordinary one takes the gateway says (pl_room_needs), and the
 * worker that has grown most is the one to go (replace.c). Where no replacement helps it is said once.
 */
#include <string.h>

#include "crew/devices.h"
#include "crew/look.h"
#include "crew/more.h"

enum {
    BEGINS = 3, /* looks with requests: what a worker takes by then, a new one would take at once as well */
    RISE_EVERY_MS = 5000,
    RISE_EVERY_MOST_MS = 60000,
    SURE_FULL = 2, /* looks in a row: memory that is on its way out may be there for a moment */
    SURE_LARGE = 5,
    CALM_MS = 60000, /* there is room again for so long: forgotten */
};

static struct pl_logger *log_of(const struct pl_crew *c) { return c->app->log; }

/* --- each worker */

static bool counts(const struct pl_worker *w) {
    return w->state == PL_WORKER_READY && w->service->kind != PL_KIND_REMOTE && w->more->room != NULL;
}

static uint64_t rise_every_ms(const struct pl_service *s) {
    uint64_t half = pl_crowd_replace_ms(s->boot_ms) / 2;
    return half < RISE_EVERY_MS ? RISE_EVERY_MS : half < RISE_EVERY_MOST_MS ? half : RISE_EVERY_MOST_MS;
}

/* A worker that another main has seen young was never new to us: what its like had will do. */
static void look_at_worker(struct pl_worker *w, uint32_t devices, uint64_t now) {
    bool learnt = false;
    struct pl_worker_room *r = w->more->room;
    struct pl_service_more *s = w->service->more;
    struct pl_crowded *o = &w->more->crowded;
    struct pl_page_counters p = { 0 };
    pl_page_counters(&w->page, &p);
    bool young = !w->more->adopted && o->began < BEGINS;
    for (uint32_t k = 0; k < devices; k++) {
        uint64_t held = pl_room_at_rest(w, k), pieces = pl_room_in_pieces(w, k);
        if (held == 0) continue;
        if (young && held > r->fresh[k]) r->fresh[k] = held;
        if ((young || !o->seen) && pieces > r->fresh_stuck[k]) r->fresh_stuck[k] = pieces;
        learnt = learnt || (young && s->fresh_bytes[k] != r->fresh[k]);
        if (young) s->fresh_bytes[k] = r->fresh[k];
        if (w->more->adopted) r->fresh[k] = s->fresh_bytes[k];
        pl_rise_add(&r->rise[k], held, rise_every_ms(w->service), now);
    }
    if (o->seen && p.ended != o->served && o->began < BEGINS) o->began++;
    o->seen = true;
    o->served = p.ended;
    if (learnt) pl_kept_save(w->service);
}

/* Free, and in pieces that it did not have when it was new: it is theirs who fit into them, and no ordinary
 * one is sure to. */
static uint64_t lost_in_pieces(const struct pl_worker *w, uint32_t k) {
    uint64_t now = pl_room_in_pieces(w, k), fresh = w->more->room->fresh_stuck[k];
    return now > fresh ? now - fresh : 0;
}

static uint64_t held_by(const struct pl_worker *w, uint32_t k) {
    return pl_room_now(w, k) + lost_in_pieces(w, k);
}

static uint64_t grown(const struct pl_worker *w, uint32_t k) {
    uint64_t held = held_by(w, k), fresh = w->more->room->fresh[k];
    return held > fresh ? held - fresh : 0;
}

/* READY until there was no room, of one that took the place of a worker that went for it. */
static uint64_t lived_ms(const struct pl_worker *w, uint64_t now) {
    uint64_t replaced = w->service->more->crowd_replaced_ms;
    if (replaced == 0 || w->more->adopted || w->more->time.spawned < replaced) return UINT64_MAX;
    uint64_t full = w->more->crowded.full_ms != 0 ? w->more->crowded.full_ms : now;
    return full > w->more->ready_from_ms ? full - w->more->ready_from_ms : 0;
}

static bool leaks(struct pl_worker *w) {
    struct pl_look_verdict v;
    return pl_look_verdict(w, &v) && v.confirmed && v.bytes_per_request > 0 && strcmp(v.scope, "host") != 0;
}

/* --- a device */

struct crowd {
    struct pl_service *asks;   /* whose ordinary request is the largest there; NULL: nobody tells */
    struct pl_worker *largest; /* has grown most */
};

static struct crowd crowd_on(struct pl_crew *c, uint32_t k) {
    struct crowd out = { 0 };
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (!counts(w) || pl_room_at_rest(w, k) == 0) continue;
            struct pl_service *s = w->service;
            uint64_t asked = out.asks != NULL ? out.asks->more->request_bytes : 0;
            if (s->more->request_bytes > asked) out.asks = s;
            if (out.largest == NULL || grown(w, k) > grown(out.largest, k)) out.largest = w;
        }
    return out;
}

static struct pl_crowd_case case_of(struct pl_crew *c, uint32_t k, const struct crowd *on, uint64_t now) {
    struct pl_room room;
    struct pl_worker *w = on->largest;
    const struct pl_service *s = w->service;
    uint64_t bp = (uint64_t)on->asks->config->memory_margin_bp, taken, beside = s->more->load_bytes[k];
    const struct pl_watch_gpu *g = &c->devices->device[k].now;
    pl_room_on(c, k, &room);
    bool told = g->used != PL_WATCH_UNKNOWN && g->used <= room.total;
    taken = room.foreign + room.fixed + lost_in_pieces(w, k);
    if (w->more->room->fresh[k] > beside) beside = w->more->room->fresh[k];
    return (struct pl_crowd_case){ .left = taken < room.total ? room.total - taken : 0,
                                   .unused = told ? room.total - g->used : UINT64_MAX,
                                   .margin = room.total / 10000 * bp + room.total % 10000 * bp / 10000,
                                   .request = on->asks->more->request_bytes,
                                   .held = held_by(w, k),
                                   .fresh = w->more->room->fresh[k],
                                   .beside = pl_host_way(s) == PL_REPLACE_OVERLAP ? beside : 0,
                                   .per_ms = pl_rise_per_ms(&w->more->room->rise[k]),
                                   .sure = s->more->crowd_sure || leaks(w),
                                   .believed = s->more->crowd_believed,
                                   .replace_ms = pl_crowd_replace_ms(s->boot_ms),
                                   .lived_ms = lived_ms(w, now) };
}

static const char large[] =
    "a new worker leaves no room either: a larger card, less beside it on this one, or requests "
    "that take less (limits, batch size); memory.margin is what is kept back";
static const char again[] =
    "its successor was soon as full, so that another one would be too: plimsoll explain names who "
    "holds it; a larger card, or a bound on what it keeps";

static void tell_no_help(struct pl_crew *c, uint32_t k, const struct crowd *on,
                         const struct pl_crowd_case *of, enum pl_crowd word) {
    struct pl_device *g = &c->devices->device[k];
    if (g->crowd_told) return;
    g->crowd_told = true;
    pl_log(log_of(c), PL_WARN, "budget.no_room", F_STR("service", on->asks->config->id),
           F_INT("worker", on->largest->slot), F_INT("generation", on->largest->generation),
           F_INT("gpu", g->now.index), F_STR("why", pl_crowd_name(word)), F_INT("request_bytes", of->request),
           F_INT("left_bytes", of->left), F_INT("fixed_bytes", of->held), F_INT("new_bytes", of->fresh),
           F_STR("remedy", word == PL_CROWD_AGAIN ? again : large));
}

static void replace(struct pl_worker *w, enum pl_crowd word, uint64_t now) {
    struct pl_service *s = w->service;
    const struct pl_replacement *r = &s->more->replacement;
    if (word == PL_CROWD_FULL) s->more->crowd_sure = true;
    pl_replace_propose(w, PL_REPLACE_FOR_BUDGET, 0);
    if (!r->active || r->reason != PL_REPLACE_FOR_BUDGET || r->from_generation != w->generation) return;
    s->more->crowd_replaced_ms = now;
    s->more->crowd_believed = true;
}

static void has_room(struct pl_crew *c, uint32_t k, struct pl_worker *w, uint64_t now) {
    struct pl_crowded *o = &w->more->crowded;
    c->devices->device[k].crowded = 0;
    if (o->room_ms == 0) o->room_ms = now;
    if (now - o->room_ms < CALM_MS) return;
    o->full_ms = 0;
    c->devices->device[k].crowd_told = false;
    pl_replace_settled(w, PL_REPLACE_FOR_BUDGET);
}

static void look_at_device(struct pl_crew *c, uint32_t k, uint64_t now) {
    struct pl_device *g = &c->devices->device[k];
    struct crowd on = crowd_on(c, k);
    if (on.asks == NULL || pl_room_in_motion(c, k)) {
        g->crowded = 0;
        return;
    }
    struct pl_crowd_case of = case_of(c, k, &on, now);
    struct pl_crowded *o = &on.largest->more->crowded;
    enum pl_crowd word = pl_crowd_judge(&of, &o->end_ms);
    if (word == PL_CROWD_ROOM) {
        has_room(c, k, on.largest, now);
        return;
    }
    if (o->full_ms == 0) o->full_ms = now;
    o->room_ms = 0;
    g->crowded++;
    if (word == PL_CROWD_SOON || (word == PL_CROWD_FULL && g->crowded >= SURE_FULL))
        replace(on.largest, word, now);
    else if (word != PL_CROWD_FULL && g->crowded >= SURE_LARGE)
        tell_no_help(c, k, &on, &of, word);
}

void pl_crowd_tick(struct pl_crew *c, uint64_t now) {
    const struct pl_devices *d = c->devices;
    if (d == NULL || d->silent) return;
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (counts(w)) look_at_worker(w, d->count, now);
    for (uint32_t k = 0; k < d->count; k++)
        if (d->device[k].now.at_ms != 0 && !d->device[k].lost && d->device[k].now.total != PL_WATCH_UNKNOWN)
            look_at_device(c, k, now);
}
