/* gateway/board.c - the charge board (admit/board.h) where requests are: what goes to a worker is on it, and
 * what a dead main left there counts on. An orphan ends with its end record, with a worker that has had
 * nothing in hand for a second, with the worker, when its own main takes it off the board (it lives on in an
 * upgrade), or, where the worker has no page that tells, when it is as old as memory.settle.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ring.h"
#include "gateway/inside.h"

struct pl_orphan {
    struct pl_admit_entry entry;
    struct pl_orphan *next;
    struct pl_gate *gate;
    struct pl_worker *worker;
    struct pl_charge charge;
    uint32_t slot;
    uint64_t busy_ms; /* the worker had something in hand */
};

static uint64_t settle_ms(const struct pl_service_config *c) {
    return (uint64_t)(c->memory_settle_ms != PL_CFG_AUTO ? c->memory_settle_ms : c->traffic_timeout_ms);
}

/* --- what is sent */

void pl_board_sent(struct pl_request *r) {
    const struct pl_worker *w = r->berth->worker;
    if (r->g->board.at == NULL || w->generation == 0) return;
    const struct pl_charge c = { .generation = w->generation,
                                 .id = r->id,
                                 .bytes = r->entry.charged,
                                 .deadline_ms = r->sent_ms + settle_ms(r->gate->service->config),
                                 .since_ended = r->since_ended };
    r->slot = pl_board_put(&r->g->board, &c) + 1;
}

void pl_board_done(struct pl_request *r) {
    if (r->slot != 0) pl_board_drop(&r->g->board, r->slot - 1);
    r->slot = 0;
}

/* --- what was left */

static void on_tick(struct pl_timer *t);

static void watch(struct pl_gateway *g) {
    if (g->orphans != NULL) pl_timer_start(g->o.timers, &g->orphan_timer, PL_ZOMBIE_TICK_MS, on_tick);
}

static bool is_over(struct pl_gateway *g, struct pl_orphan *o, uint64_t now) {
    struct pl_page_counters c;
    struct pl_page_end end;
    if (pl_board_is_gone(&g->board, o->slot, &o->charge) || o->worker->exited) return true;
    if (!pl_page_counters(&o->worker->page, &c)) return now >= o->charge.deadline_ms;
    if (pl_page_ended(&o->worker->page, o->charge.id, o->charge.since_ended, &end) != PL_SEEN_NO) return true;
    if (c.in_flight != 0) o->busy_ms = now;
    return now - o->busy_ms >= PL_ZOMBIE_QUIET_MS;
}

static void end(struct pl_gateway *g, struct pl_orphan **at) {
    struct pl_orphan *o = *at;
    *at = o->next;
    if (!pl_board_is_gone(&g->board, o->slot, &o->charge)) pl_board_drop(&g->board, o->slot);
    pl_admit_release(&o->gate->admit, &o->entry, false, pl_gateway_now(g));
    pl_budget_tell(o->gate);
    struct pl_gate *gate = o->gate;
    free(o);
    pl_queue_pump(gate);
}

static void look(struct pl_gateway *g, const struct pl_worker *gone) {
    uint64_t now = pl_gateway_now(g);
    for (struct pl_orphan **at = &g->orphans; *at != NULL;)
        if ((*at)->worker == gone || is_over(g, *at, now))
            end(g, at);
        else
            at = &(*at)->next;
}

static void on_tick(struct pl_timer *t) {
    struct pl_gateway *g = PL_TIMER_OWNER(t, struct pl_gateway, orphan_timer);
    look(g, NULL);
    watch(g);
}

void pl_board_gone(struct pl_gateway *g, const struct pl_worker *w) { look(g, w); }

static struct pl_worker *worker_of(struct pl_gateway *g, uint64_t generation) {
    for (size_t i = 0; i < g->gate_count; i++)
        for (struct pl_worker *w = g->gates[i].service->workers; w != NULL; w = w->next)
            if (w->generation == generation && !w->exited) return w;
    return NULL;
}

uint64_t pl_orphans_charged(const struct pl_gateway *g, const struct pl_worker *w) {
    uint64_t sum = 0;
    for (const struct pl_orphan *o = g->orphans; o != NULL; o = o->next)
        if (o->worker == w) sum += o->entry.charged;
    return sum;
}

static bool adopt(struct pl_gateway *g, uint32_t slot, const struct pl_charge *c) {
    struct pl_worker *w = worker_of(g, c->generation);
    struct pl_orphan *o = w != NULL ? calloc(1, sizeof *o) : NULL;
    uint64_t now = pl_gateway_now(g);
    if (o == NULL || c->bytes > PL_PEAKS_MOST || !pl_board_adopt(&g->board, slot)) {
        if (w == NULL) pl_board_drop(&g->board, slot); /* the worker is gone, and so is its request */
        free(o);
        return false;
    }
    o->gate = pl_gate_of(g, w->service);
    o->worker = w;
    o->charge = *c;
    uint64_t latest = now + settle_ms(w->service->config);
    if (o->charge.deadline_ms > latest) o->charge.deadline_ms = latest;
    o->slot = slot;
    o->busy_ms = now;
    o->next = g->orphans;
    g->orphans = o;
    pl_admit_adopt(&o->gate->admit, &o->entry, pl_budget_of(o->gate, w), c->bytes, now);
    pl_budget_tell(o->gate);
    return true;
}

/* A main of an upgrade is not dead: it will take its own off the board as they end. */
static void take_over(struct pl_gateway *g) {
    uint32_t from = 0, slot;
    struct pl_charge c;
    uint64_t count = 0, bytes = 0;
    while (pl_board_next(&g->board, &from, &slot, &c)) {
        if (!adopt(g, slot, &c)) continue;
        count++;
        bytes += c.bytes;
    }
    if (count > 0)
        pl_log(g->o.app->log, PL_INFO, "budget.orphans", F_INT("count", count), F_INT("bytes", bytes));
    watch(g);
}

int pl_gateway_board(struct pl_gateway *g, int held) {
    int fd = held != -1 ? held : pl_memfd_create("plimsoll-board", PL_BOARD_BYTES);
    if (fd == -1) return -1;
    if (lseek(fd, 0, SEEK_END) != PL_BOARD_BYTES) { /* of another version */
        close(fd);
        return held != -1 ? pl_gateway_board(g, -1) : -1;
    }
    void *at = mmap(NULL, PL_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || !pl_board_open(&g->board, at, g->o.app->boot)) {
        if (at != MAP_FAILED) munmap(at, PL_BOARD_BYTES);
        close(fd);
        return held != -1 ? pl_gateway_board(g, -1) : -1;
    }
    if (held != -1) take_over(g);
    return fd;
}

void pl_board_close(struct pl_gateway *g) {
    pl_timer_stop(&g->orphan_timer);
    for (struct pl_orphan *o = g->orphans, *next; o != NULL; o = next) {
        next = o->next;
        free(o);
    }
    g->orphans = NULL;
    if (g->board.at != NULL) munmap(g->board.at, PL_BOARD_BYTES);
    g->board.at = NULL;
}
