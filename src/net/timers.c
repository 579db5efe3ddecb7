#include "net/timers.h"

#include <stdlib.h>

#include "net/stalls.h"

/* A slot holds every timer whose due tick is this slot modulo the wheel's size; those of a later round stay
 * in it when the hand passes. `full` has a bit for each slot that holds something. `hand` is the first tick
 * not yet served. */
struct pl_timers {
    uv_timer_t uv;
    uv_loop_t *loop;
    const struct pl_clock *clock;
    uint64_t hand;
    uint64_t armed_tick; /* when the uv_timer will look again; UINT64_MAX: never */
    bool advancing;
    uint64_t full[PL_TIMER_SLOTS / 64];
    struct pl_timer *slot[PL_TIMER_SLOTS];
};

enum { SLOT_MASK = PL_TIMER_SLOTS - 1 };
_Static_assert((PL_TIMER_SLOTS & SLOT_MASK) == 0 && PL_TIMER_SLOTS % 64 == 0, "the wheel is a power of two");

/* Rounded up: never early. */
static uint64_t tick_of(uint64_t due_ms) { return (due_ms + PL_TIMER_TICK_MS - 1) / PL_TIMER_TICK_MS; }

static void link_in(struct pl_timer **at, struct pl_timer *t) {
    t->next = *at;
    t->at = at;
    if (t->next != NULL) t->next->at = &t->next;
    *at = t;
}

static void unlink_it(struct pl_timer *t) {
    *t->at = t->next;
    if (t->next != NULL) t->next->at = t->at;
    t->next = NULL;
    t->at = NULL;
}

/* The first tick from `hand` on whose slot holds something (perhaps only for a later round), or UINT64_MAX.
 */
static uint64_t next_full(const struct pl_timers *w) {
    for (unsigned ahead = 0; ahead < PL_TIMER_SLOTS;) {
        unsigned s = (unsigned)(w->hand + ahead) & SLOT_MASK;
        uint64_t bits = w->full[s / 64] >> (s % 64);
        if (bits != 0) return w->hand + ahead + (unsigned)__builtin_ctzll(bits);
        ahead += 64 - s % 64;
    }
    return UINT64_MAX;
}

static void on_uv(uv_timer_t *timer) {
    struct pl_timers *w = timer->data;
    w->armed_tick = UINT64_MAX;
    pl_stalls_enter("net.timers");
    pl_timers_advance(w, pl_now_ms(w->clock));
}

static void arm(struct pl_timers *w, uint64_t tick, uint64_t now_ms) {
    if (w->loop == NULL || w->advancing || tick >= w->armed_tick) return;
    uint64_t due_ms = tick * PL_TIMER_TICK_MS;
    w->armed_tick = tick;
    uv_update_time(w->loop); /* uv_timer counts from the loop's idea of now, which may be a long turn old */
    uv_timer_start(&w->uv, on_uv, due_ms > now_ms ? due_ms - now_ms : 0, 0);
}

struct pl_timers *pl_timers_create(uv_loop_t *loop, const struct pl_clock *clock) {
    struct pl_timers *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->loop = loop;
    w->clock = clock;
    w->hand = pl_now_ms(clock) / PL_TIMER_TICK_MS;
    w->armed_tick = UINT64_MAX;
    if (loop != NULL) {
        uv_timer_init(loop, &w->uv);
        w->uv.data = w;
    }
    return w;
}

static void on_closed(uv_handle_t *handle) { free(handle->data); }

void pl_timers_destroy(struct pl_timers *w) {
    if (w == NULL) return;
    for (unsigned s = 0; s < PL_TIMER_SLOTS; s++)
        while (w->slot[s] != NULL) unlink_it(w->slot[s]);
    if (w->loop != NULL)
        uv_close((uv_handle_t *)&w->uv, on_closed);
    else
        free(w);
}

uint64_t pl_timers_now(const struct pl_timers *w) { return pl_now_ms(w->clock); }

void pl_timer_start(struct pl_timers *w, struct pl_timer *t, uint64_t after_ms, pl_timer_fire *fire) {
    if (t->at != NULL) unlink_it(t);
    uint64_t now_ms = pl_now_ms(w->clock);
    t->due_ms = now_ms + after_ms;
    t->fire = fire;
    uint64_t tick = tick_of(t->due_ms);
    if (tick < w->hand) tick = w->hand;
    unsigned s = (unsigned)tick & SLOT_MASK;
    link_in(&w->slot[s], t);
    w->full[s / 64] |= (uint64_t)1 << (s % 64);
    arm(w, tick, now_ms);
}

void pl_timer_stop(struct pl_timer *t) {
    if (t->at != NULL) unlink_it(t); /* the slot's bit stays; the hand clears it in passing */
}

/* Serves one slot: what is due fires, what belongs to a later round stays. The list is moved aside first, so
 * that timers started by a fire function wait for the next turn. */
static void serve(struct pl_timers *w, unsigned s, uint64_t now_ms) {
    struct pl_timer *rest = NULL;
    if (w->slot[s] != NULL) {
        rest = w->slot[s];
        rest->at = &rest;
        w->slot[s] = NULL;
    }
    w->full[s / 64] &= ~((uint64_t)1 << (s % 64));
    while (rest != NULL) {
        struct pl_timer *t = rest;
        unlink_it(t);
        if (t->due_ms <= now_ms) {
            t->fire(t);
            continue;
        }
        link_in(&w->slot[s], t);
        w->full[s / 64] |= (uint64_t)1 << (s % 64);
    }
}

void pl_timers_advance(struct pl_timers *w, uint64_t now_ms) {
    uint64_t end = now_ms / PL_TIMER_TICK_MS; /* ticks up to this one are over */
    w->advancing = true;
    uint64_t first = w->hand;
    for (uint64_t tick = next_full(w); tick <= end && tick - first < PL_TIMER_SLOTS; tick = next_full(w)) {
        w->hand = tick + 1;
        serve(w, (unsigned)tick & SLOT_MASK, now_ms);
    }
    if (w->hand <= end) w->hand = end + 1;
    w->advancing = false;
    uint64_t next = next_full(w);
    if (next != UINT64_MAX) arm(w, next, now_ms);
}
