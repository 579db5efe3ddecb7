#include "admit/line.h"

enum { FLOWS_OF_RANK = PL_ADMIT_FLOWS / PL_ADMIT_RANKS };

/* The same key at two ranks is two flows. */
static uint16_t index_of(const struct pl_admit_entry *e) {
    unsigned rank = e->rank < PL_ADMIT_RANKS ? e->rank : PL_ADMIT_RANKS - 1;
    return (uint16_t)(rank * FLOWS_OF_RANK + e->flow % FLOWS_OF_RANK);
}

static struct pl_admit_flow *flow_of(struct pl_admit *a, const struct pl_admit_entry *e) {
    return &a->flows[index_of(e)];
}

void pl_line_stamp(struct pl_admit *a, struct pl_admit_entry *e) {
    struct pl_admit_flow *f = flow_of(a, e);
    e->turn = f->finish > a->turn ? f->finish : a->turn;
    f->finish = e->turn + (e->cost > 0 ? e->cost : 1);
}

void pl_line_served(struct pl_admit *a, const struct pl_admit_entry *e) {
    if (e->turn > a->turn) a->turn = e->turn;
}

static void put_in_flow(struct pl_admit *a, struct pl_admit_entry *e) {
    struct pl_admit_flow *f = flow_of(a, e);
    struct pl_admit_entry *after = f->newest;
    /* Who comes back arrived before everybody else of the flow, other returners apart: this is short. */
    while (after != NULL && after->number > e->number) after = after->flow_prev;
    e->flow_prev = after;
    e->flow_next = after != NULL ? after->flow_next : f->oldest;
    *(e->flow_prev != NULL ? &e->flow_prev->flow_next : &f->oldest) = e;
    *(e->flow_next != NULL ? &e->flow_next->flow_prev : &f->newest) = e;
    if (f->oldest == f->newest) a->active[a->active_count++] = index_of(e);
}

static void take_from_flow(struct pl_admit *a, struct pl_admit_entry *e) {
    struct pl_admit_flow *f = flow_of(a, e);
    *(e->flow_prev != NULL ? &e->flow_prev->flow_next : &f->oldest) = e->flow_next;
    *(e->flow_next != NULL ? &e->flow_next->flow_prev : &f->newest) = e->flow_prev;
    e->flow_next = e->flow_prev = NULL;
    if (f->oldest != NULL) return;
    uint16_t index = index_of(e), i = 0;
    while (a->active[i] != index) i++;
    a->active[i] = a->active[--a->active_count];
}

void pl_line_put(struct pl_admit *a, struct pl_admit_entry *e) {
    struct pl_admit_entry *at = NULL;
    if (a->newest != NULL && a->newest->number > e->number) {
        /* Everybody who ran arrived before everybody who waits, other returners apart: this loop is short. */
        at = a->oldest;
        while (at != NULL && at->number < e->number) at = at->next;
    }
    e->next = at;
    e->prev = at != NULL ? at->prev : a->newest;
    *(e->prev != NULL ? &e->prev->next : &a->oldest) = e;
    *(at != NULL ? &at->prev : &a->newest) = e;
    put_in_flow(a, e);
    e->state = PL_ADMIT_QUEUED;
    a->queued++;
}

void pl_line_take(struct pl_admit *a, struct pl_admit_entry *e) {
    *(e->prev != NULL ? &e->prev->next : &a->oldest) = e->next;
    *(e->next != NULL ? &e->next->prev : &a->newest) = e->prev;
    e->next = e->prev = NULL;
    take_from_flow(a, e);
    e->state = PL_ADMIT_OUTSIDE;
    a->queued--;
}

static bool goes_before(const struct pl_admit_entry *a, const struct pl_admit_entry *b) {
    if (a->rank != b->rank) return a->rank > b->rank;
    return a->turn != b->turn ? a->turn < b->turn : a->number < b->number;
}

struct pl_admit_entry *pl_line_first(const struct pl_admit *a) {
    struct pl_admit_entry *first = NULL;
    for (uint16_t i = 0; i < a->active_count; i++) {
        struct pl_admit_entry *e = a->flows[a->active[i]].oldest;
        if (first == NULL || goes_before(e, first)) first = e;
    }
    return first;
}
