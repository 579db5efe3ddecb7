/* gateway/budget.c - room admit keeps the bytes; here its places meet workers and their devices, and deaths
 * for want of memory.
 *
 * A place is what workers share: the GPUs that `gpus` gives them, or the host. Workers of one place are
 * charged together, whichever of them has the request; a worker over several GPUs is charged on each alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/look.h"
#include "crew/room.h"
#include "gateway/inspect.h"
#include "plimsoll/shm.h"
#include "worker/devices.h"

#define ON_HOST "host"

/* --- how much there is */

static bool is_measured(const struct pl_gate *gate) {
    return gate->service->config->memory_budget_bytes == PL_CFG_AUTO;
}

static bool tells_memory(const struct pl_gate *gate) {
    struct pl_page_counters c;
    for (struct pl_worker *w = gate->service->workers; w != NULL; w = w->next)
        if (pl_page_counters(&w->page, &c) && (c.features & PL_PAGE_F_MEMORY) != 0) return true;
    return false;
}

/* A measured budget is for those whose requests come and go with their memory. An engine that takes it all at
 * its start tells its own. */
static bool may_measure(const struct pl_gate *gate) {
    const struct pl_service_config *c = gate->service->config;
    if (gate->service->kind != PL_KIND_PYTHON && pl_engine_of(c)->llm) return false;
    return c->memory_charge != PL_CFG_MEMORY_CHARGE_NONE &&
           (c->memory_per_request_bytes > 0 || tells_memory(gate));
}

/* Device total - foreign - fixed - margin; 0: not known. The margin takes at most half of what is left, so
 * that a device that weights fill serves on; one that is full leaves one byte, not none. */
static uint64_t measured(const struct pl_gate *gate, struct pl_gate_place *p) {
    struct pl_room room;
    p->total = p->foreign = p->fixed = p->margin = 0;
    if (!may_measure(gate) || !pl_look_room(gate->g->o.crew, p->name, &room)) return 0;
    p->total = room.total;
    p->foreign = room.foreign;
    p->fixed = room.fixed;
    uint64_t bp = (uint64_t)gate->service->config->memory_margin_bp, taken = p->foreign + p->fixed;
    uint64_t left = taken < room.total ? room.total - taken : 0;
    p->margin = room.total / 10000 * bp + room.total % 10000 * bp / 10000;
    if (p->margin > left / 2) p->margin = left / 2;
    return left > p->margin ? left - p->margin : 1;
}

static uint64_t full_of(struct pl_gate *gate, unsigned place) {
    int64_t bytes = gate->service->config->memory_budget_bytes;
    if (bytes > 0) return (uint64_t)bytes;
    if (!is_measured(gate)) return 0;
    uint64_t told = pl_llm_full(gate);
    return told > 0 ? told : measured(gate, &gate->places[place]);
}

bool pl_budget_counts(const struct pl_gate *gate) {
    for (unsigned i = 0; i < gate->place_count; i++)
        if (gate->admit.places[i].full > 0) return true;
    return false;
}

bool pl_budget_only_alone(const struct pl_gate *gate, uint64_t bytes) {
    bool more = false;
    for (unsigned i = 0; i < gate->place_count; i++) {
        const struct pl_budget *b = &gate->admit.places[i];
        if (b->full == 0) continue;
        if (bytes <= pl_budget_most(b)) return false;
        more |= bytes <= b->full + gate->places[i].margin;
    }
    return more;
}

/* --- services that share a device: what is measured is there once, for all of them. Each is told what the
 * others' charges change by, so that a request costs a look at each of them, and not at each pair. */

static bool share_a_device(const char *a, const char *b) {
    for (const char *at = a; *at != '\0';) {
        size_t len = strcspn(at, ",");
        for (const char *other = b; *other != '\0';) {
            size_t n = strcspn(other, ",");
            if (n == len && memcmp(at, other, n) == 0) return true;
            other += n + (other[n] == ',');
        }
        at += len + (at[len] == ',');
    }
    return false;
}

/* Of a place that is new, or measured only now. */
static void add_up_others(struct pl_gate *gate, unsigned place) {
    uint64_t sum = 0;
    for (size_t i = 0; is_measured(gate) && i < gate->g->gate_count; i++) {
        const struct pl_gate *other = &gate->g->gates[i];
        for (unsigned k = 0; other != gate && k < other->place_count; k++)
            if (share_a_device(gate->places[place].name, other->places[k].name))
                sum += other->places[k].shared;
    }
    gate->admit.places[place].others = sum;
}

static void tell_change(struct pl_gate *other, const char *name, uint64_t was, uint64_t now) {
    for (unsigned k = 0; is_measured(other) && k < other->place_count; k++) {
        if (!share_a_device(name, other->places[k].name)) continue;
        other->admit.places[k].others += now - was; /* `was` is in it */
        other->roomier |= now < was;
    }
}

static void share(struct pl_gate *gate) {
    struct pl_gateway *g = gate->g;
    bool less = false;
    for (unsigned i = 0; g->gate_count > 1 && i < gate->place_count; i++) {
        uint64_t was = gate->places[i].shared, now = gate->admit.places[i].charged;
        gate->places[i].shared = now;
        less |= now < was;
        for (size_t k = 0; now != was && k < g->gate_count; k++)
            if (&g->gates[k] != gate) tell_change(&g->gates[k], gate->places[i].name, was, now);
    }
    /* only now: their requests may change what is charged here */
    for (size_t k = 0; less && k < g->gate_count; k++) {
        if (!g->gates[k].roomier) continue;
        g->gates[k].roomier = false;
        pl_queue_pump(&g->gates[k]);
    }
}

/* --- places */

unsigned pl_budget_place(struct pl_gate *gate, const char *name) {
    for (unsigned i = 0; i < gate->place_count; i++)
        if (strncmp(gate->places[i].name, name, PL_PLACE_NAME - 1) == 0) return i;
    if (gate->place_count == PL_ADMIT_PLACES)
        return PL_ADMIT_PLACES - 1; /* the last one stands for the rest */
    unsigned i = gate->place_count++;
    snprintf(gate->places[i].name, PL_PLACE_NAME, "%s", name);
    pl_admit_set_budget(&gate->admit, i, full_of(gate, i));
    add_up_others(gate, i);
    return i;
}

static unsigned place_of(struct pl_gate *gate, struct pl_worker *w) {
    char devices[PL_DEVICES_TEXT];
    struct pl_err err;
    bool told = false;
    uint8_t *known = &gate->place_of[w->slot < PL_PLACE_SLOTS ? w->slot : 0];
    if (*known == 0) {
        bool ok = pl_devices_of(gate->service->config, getenv("CUDA_VISIBLE_DEVICES"), w->slot, devices,
                                &told, &err);
        if (!ok || !told) pl_look_places(w, devices); /* it may use what there is: what does it? */
        const char *name = devices[0] != '\0' ? devices : ON_HOST;
        *known = (uint8_t)(pl_budget_place(gate, name) + 1);
    }
    return *known - 1u;
}

unsigned pl_budget_of(struct pl_gate *gate, struct pl_worker *w) { return place_of(gate, w); }

/* --- what the gateway asks */

uint64_t pl_budget_cost(struct pl_request *r) {
    int64_t each = r->gate->service->config->memory_per_request_bytes;
    uint64_t times = 1;
    if (each <= 0) return pl_llm_cost(r);
    if (r->inspect != NULL && r->inspect->json) {
        const struct pl_json_facts *f = &r->inspect->asked;
        uint64_t answers = f->n.value > f->best_of.value ? f->n.value : f->best_of.value;
        if (f->prompts > 1) times = f->prompts;
        if (answers > 1 && __builtin_mul_overflow(times, answers, &times)) return UINT64_MAX;
    }
    uint64_t cost;
    return __builtin_mul_overflow((uint64_t)each, times, &cost) ? UINT64_MAX : cost;
}

uint32_t pl_budget_ready(struct pl_gate *gate) {
    uint32_t places = 0;
    if (!is_measured(gate) && gate->service->config->memory_budget_bytes <= 0) return 0;
    for (struct pl_worker *w = gate->service->workers; w != NULL; w = w->next)
        if (w->routable && !pl_look_out_of_service(w)) places |= UINT32_C(1) << place_of(gate, w);
    return places;
}

uint64_t pl_budget_workers(struct pl_gate *gate, unsigned place) {
    uint64_t n = 0;
    for (struct pl_worker *w = gate->service->workers; w != NULL; w = w->next)
        n += w->routable && place_of(gate, w) == place;
    return n;
}

struct pl_worker *pl_budget_pick(struct pl_request *r) {
    struct pl_worker *best = NULL;
    bool anywhere = r->entry.charged == 0;
    for (struct pl_worker *w = r->gate->service->workers; w != NULL; w = w->next)
        if (w->routable && (anywhere || place_of(r->gate, w) == r->entry.place) &&
            !pl_look_out_of_service(w) && (best == NULL || w->in_flight < best->in_flight))
            best = w;
    return best != NULL || !anywhere ? best : pl_service_pick(r->gate->service);
}

/* --- what is told */

static void make_series(struct pl_gate *gate, struct pl_gate_place *p) {
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *id = gate->service->config->id;
    static const char *const down[] = { "oom", "retries", "neighbour", "preemption", "plan" };
    static const char *const up[] = { "recovery", "neighbour", "plan" };
    p->bytes = pl_series(m, PL_M_BUDGET_BYTES, id, p->name);
    p->charged = pl_series(m, PL_M_BUDGET_CHARGED_BYTES, id, p->name);
    p->free = pl_series(m, PL_M_BUDGET_FREE_BYTES, id, p->name);
    p->orphan = pl_series(m, PL_M_BUDGET_ORPHAN_BYTES, id, p->name);
    gate->budget_ratio = pl_series(m, PL_M_BUDGET_USED_RATIO, id);
    for (size_t i = 0; i < sizeof down / sizeof down[0]; i++)
        pl_series(m, PL_M_BUDGET_CHANGES_TOTAL, id, "down", down[i]);
    pl_series(m, PL_M_CHARGE_CORRECTIONS_TOTAL, id);
    pl_series(m, PL_M_CHARGE_CORRECTION_BYTES_TOTAL, id);
    for (size_t i = 0; i < sizeof up / sizeof up[0]; i++)
        pl_series(m, PL_M_BUDGET_CHANGES_TOTAL, id, "up", up[i]);
}

void pl_budget_tell(struct pl_gate *gate) {
    double most = 0;
    if (gate->budget_ratio == NULL && !pl_budget_counts(gate)) return;
    share(gate);
    for (unsigned i = 0; i < gate->place_count; i++) {
        const struct pl_budget *b = &gate->admit.places[i];
        struct pl_gate_place *p = &gate->places[i];
        if (b->full == 0) continue;
        if (p->bytes == NULL) make_series(gate, p);
        pl_series_set(p->bytes, (double)b->bytes);
        pl_series_set(p->charged, (double)b->charged);
        pl_series_set(p->free, (double)pl_budget_free(b));
        pl_series_set(p->orphan, (double)b->orphans);
        double ratio = b->bytes > 0 ? (double)b->charged / (double)b->bytes : 0;
        if (ratio > most) most = ratio;
    }
    if (gate->budget_ratio != NULL) pl_series_set(gate->budget_ratio, most);
}

void pl_budget_changed(struct pl_gate *gate, unsigned place, uint64_t from, const char *reason) {
    const struct pl_budget *b = &gate->admit.places[place];
    const char *id = gate->service->config->id;
    bool down = b->bytes < from;
    pl_series_add(
        pl_series(gate->g->o.app->metrics, PL_M_BUDGET_CHANGES_TOTAL, id, down ? "down" : "up", reason), 1);
    pl_log(gate->g->o.app->log, down ? PL_WARN : PL_INFO, "budget.changed", F_STR("service", id),
           F_STR("gpu", gate->places[place].name), F_INT("from_bytes", from), F_INT("to_bytes", b->bytes),
           F_STR("reason", reason));
    gate->learnt.changed = true;
    pl_budget_tell(gate);
}

/* Where memory.alarm is raised: of what others leave of the device. */
static uint64_t alarm_of(const struct pl_gate *gate, const struct pl_gate_place *p) {
    uint64_t limit = p->total > p->foreign ? p->total - p->foreign : 0;
    return limit / 10000 * (uint64_t)gate->service->config->memory_alarm_bp;
}

bool pl_gateway_budget(const struct pl_gateway *g, const struct pl_service *s, size_t index,
                       struct pl_gateway_budget *out) {
    const struct pl_gate *gate = &g->gates[s->index];
    unsigned place = 0;
    for (size_t seen = 0; place < gate->place_count; place++)
        if (gate->admit.places[place].full > 0 && seen++ == index) break;
    if (place >= gate->place_count) return false;
    index = place;
    const struct pl_budget *b = &gate->admit.places[index];
    *out = (struct pl_gateway_budget){ .gpu = gate->places[index].name,
                                       .full_bytes = b->full,
                                       .budget_bytes = b->bytes,
                                       .charged_bytes = b->charged,
                                       .orphan_bytes = b->orphans,
                                       .foreign_bytes = gate->places[index].foreign,
                                       .fixed_bytes = gate->places[index].fixed,
                                       .margin_bytes = gate->places[index].margin,
                                       .kept_bytes = b->kept,
                                       .alarm_bytes = alarm_of(gate, &gate->places[index]),
                                       .requests = b->requests,
                                       .free_bytes = pl_budget_free(b) };
    return true;
}

/* --- what happens */

/* It is measured every second: worth a word is a sixteenth, whoever made it. */
static void tell_measure(struct pl_gate *gate, unsigned place) {
    struct pl_gate_place *p = &gate->places[place];
    uint64_t now = gate->admit.places[place].bytes, was = p->told;
    uint64_t moved = now > was ? now - was : was - now;
    uint64_t by_others =
        p->foreign > p->told_foreign ? p->foreign - p->told_foreign : p->told_foreign - p->foreign;
    if (was != 0 && moved < was / 16) return;
    p->told = now;
    p->told_foreign = p->foreign;
    if (was != 0 && now != was)
        pl_budget_changed(gate, place, was, by_others > moved / 2 ? "neighbour" : "plan");
}

/* What moves by less than a hundredth moves nothing. True: there is more room. */
static bool measure(struct pl_gate *gate) {
    bool more = false;
    if (!is_measured(gate)) return false;
    pl_budget_ready(gate); /* makes places of workers that are new */
    for (unsigned i = 0; i < gate->place_count; i++) {
        uint64_t was = gate->admit.places[i].full, full = full_of(gate, i);
        uint64_t change = full > was ? full - was : was - full;
        if (full == 0 && was != 0 && pl_budget_workers(gate, i) > 0) continue; /* not known for a moment */
        if (was != 0 && full != 0 && change < was / 100) continue;
        if (change == 0) continue;
        pl_admit_set_budget(&gate->admit, i, full);
        uint64_t left =
            full + gate->places[i].margin; /* a leak may have eaten what would fit once it is gone */
        if (left > gate->admit.places[i].ever) gate->admit.places[i].ever = left;
        tell_measure(gate, i);
        more |= full > was;
    }
    return more;
}

void pl_budget_limits(struct pl_gate *gate) {
    memset(gate->place_of, 0, sizeof gate->place_of); /* what a slot gets may have changed with `gpus` */
    pl_budget_ready(gate);                            /* makes places, as soon as there is a worker */
    for (unsigned i = 0; i < gate->place_count; i++) {
        if (!is_measured(gate)) pl_admit_set_budget(&gate->admit, i, full_of(gate, i));
        add_up_others(gate, i);
    }
    pl_budget_shared(gate);
    measure(gate);
    pl_budget_tell(gate);
}

uint64_t pl_budget_charged(struct pl_gate *gate, struct pl_worker *w) {
    int64_t running = 0;
    for (unsigned i = 0; i < gate->place_count; i++) running += gate->admit.places[i].requests;
    if (running != gate->admit.running) return UINT64_MAX;
    return gate->admit.places[place_of(gate, w)].charged;
}

uint64_t pl_budget_charged_to(const struct pl_gateway *g, const struct pl_worker *w) {
    const struct pl_berth *b = w->pool;
    uint64_t sum = pl_orphans_charged(g, w);
    if (b == NULL) return sum;
    for (const struct pl_request *r = b->exchanges; r != NULL; r = r->next) sum += r->entry.charged;
    for (const struct pl_request *r = g->zombies; r != NULL; r = r->next)
        if (r->berth == b) sum += r->entry.charged;
    return sum;
}

/* What has been measured must have room for; what is set by hand, or an engine's own, no worker eats. */
static uint64_t needed(const struct pl_gate *gate) {
    uint64_t bytes = pl_ordinary_bytes(&gate->ordinary), kept = 0;
    if (bytes == 0 || !is_measured(gate) || pl_llm_full(gate) > 0) return 0;
    for (unsigned i = 0; i < gate->place_count; i++)
        if (gate->admit.places[i].kept > kept) kept = gate->admit.places[i].kept;
    return bytes + kept;
}

void pl_budget_measure(struct pl_gateway *g) {
    for (size_t i = 0; i < g->gate_count; i++) {
        struct pl_gate *gate = &g->gates[i];
        pl_room_needs(gate->service, needed(gate));
        if (!is_measured(gate) || gate->g->draining) continue;
        memset(gate->place_of, 0, sizeof gate->place_of); /* which devices it uses may be known only now */
        if (measure(gate)) pl_queue_pump(gate);
        pl_budget_tell(gate);
    }
}

void pl_budget_shared(struct pl_gate *gate) {
    uint64_t each = pl_peaks_shared(&gate->peaks);
    for (unsigned i = 0; i < gate->place_count; i++)
        gate->admit.places[i].kept = each > 0 ? each * pl_budget_workers(gate, i) : 0;
}

void pl_budget_death(struct pl_worker *w, struct pl_gate *gate) {
    const char *sentence, *cause = pl_look_cause(w, &sentence);
    unsigned i = pl_budget_counts(gate) ? place_of(gate, w) : PL_ADMIT_NOWHERE;
    bool of_host = i != PL_ADMIT_NOWHERE && strcmp(gate->places[i].name, ON_HOST) == 0;
    if (i == PL_ADMIT_NOWHERE || cause == NULL) return;
    if (strcmp(cause, "gpu_out_of_memory") != 0 && !(of_host && strcmp(cause, "killed_by_kernel_oom") == 0))
        return;
    struct pl_budget *b = &gate->admit.places[i];
    uint64_t from = b->bytes;
    if (!pl_budget_oom(b, pl_gateway_now(gate->g))) return;
    pl_budget_changed(gate, i, from, "oom");
    pl_learnt_save(gate);
}

void pl_budget_short(struct pl_worker *w, struct pl_gate *gate, bool oom) {
    if (!pl_budget_counts(gate)) return;
    unsigned i = place_of(gate, w);
    struct pl_budget *b = &gate->admit.places[i];
    uint64_t from = b->bytes, now = pl_gateway_now(gate->g);
    if (b->full == 0 || !(oom ? pl_budget_oom(b, now) : pl_budget_retries(b, now))) return;
    pl_budget_changed(gate, i, from, oom ? "oom" : "retries");
    pl_learnt_save(gate);
}

void pl_budget_reconcile(struct pl_gate *gate) {
    const char *id = gate->service->config->id;
    for (unsigned i = 0; i < gate->place_count; i++) {
        struct pl_budget *b = &gate->admit.places[i];
        if (b->charged == 0) continue;
        pl_series_add(pl_series(gate->g->o.app->metrics, PL_M_CHARGE_CORRECTIONS_TOTAL, id), 1);
        pl_series_add(pl_series(gate->g->o.app->metrics, PL_M_CHARGE_CORRECTION_BYTES_TOTAL, id),
                      (double)b->charged);
        pl_log(gate->g->o.app->log, PL_WARN, "budget.corrected", F_STR("service", id),
               F_STR("gpu", gate->places[i].name), F_INT("bytes", b->charged));
        b->charged = b->orphans = 0;
    }
}

void pl_budget_pass_time(struct pl_gate *gate) {
    bool more = false;
    for (unsigned i = 0; i < gate->place_count; i++) {
        struct pl_budget *b = &gate->admit.places[i];
        uint64_t from = b->bytes;
        if (!pl_budget_pass(b, pl_gateway_now(gate->g))) continue;
        pl_budget_changed(gate, i, from, "recovery");
        more = true;
    }
    if (more) pl_queue_pump(gate);
}
