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
#include "gateway/inspect.h"
#include "worker/devices.h"

#define ON_HOST "host"

static uint64_t full_of(const struct pl_gate *gate) {
    int64_t bytes = gate->service->config->memory_budget_bytes;
    return bytes > 0 ? (uint64_t)bytes : pl_llm_full(gate);
}

unsigned pl_budget_place(struct pl_gate *gate, const char *name) {
    for (unsigned i = 0; i < gate->place_count; i++)
        if (strncmp(gate->places[i].name, name, PL_PLACE_NAME - 1) == 0) return i;
    if (gate->place_count == PL_ADMIT_PLACES)
        return PL_ADMIT_PLACES - 1; /* the last one stands for the rest */
    unsigned i = gate->place_count++;
    snprintf(gate->places[i].name, PL_PLACE_NAME, "%s", name);
    pl_admit_set_budget(&gate->admit, i, full_of(gate));
    return i;
}

static unsigned place_of(struct pl_gate *gate, const struct pl_worker *w) {
    char devices[PL_DEVICES_TEXT];
    struct pl_err err;
    bool told = false;
    uint8_t *known = &gate->place_of[w->slot < PL_PLACE_SLOTS ? w->slot : 0];
    if (*known == 0) {
        bool ok = pl_devices_of(gate->service->config, getenv("CUDA_VISIBLE_DEVICES"), w->slot, devices,
                                &told, &err);
        const char *name = ok && told && devices[0] != '\0' ? devices : ON_HOST;
        *known = (uint8_t)(pl_budget_place(gate, name) + 1);
    }
    return *known - 1u;
}

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
    if (full_of(gate) == 0) return 0;
    for (struct pl_worker *w = gate->service->workers; w != NULL; w = w->next)
        if (w->routable) places |= UINT32_C(1) << place_of(gate, w);
    return places;
}

struct pl_worker *pl_budget_pick(struct pl_request *r) {
    struct pl_worker *best = NULL;
    if (r->entry.charged == 0) return pl_service_pick(r->gate->service);
    for (struct pl_worker *w = r->gate->service->workers; w != NULL; w = w->next)
        if (w->routable && place_of(r->gate, w) == r->entry.place &&
            (best == NULL || w->in_flight < best->in_flight))
            best = w;
    return best;
}

/* --- what is told */

static void make_series(struct pl_gate *gate, struct pl_gate_place *p) {
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *id = gate->service->config->id;
    static const char *const down[] = { "oom", "retries", "neighbour", "preemption", "plan" };
    p->bytes = pl_series(m, PL_M_BUDGET_BYTES, id, p->name);
    p->charged = pl_series(m, PL_M_BUDGET_CHARGED_BYTES, id, p->name);
    p->free = pl_series(m, PL_M_BUDGET_FREE_BYTES, id, p->name);
    gate->budget_ratio = pl_series(m, PL_M_BUDGET_USED_RATIO, id);
    for (size_t i = 0; i < sizeof down / sizeof down[0]; i++)
        pl_series(m, PL_M_BUDGET_CHANGES_TOTAL, id, "down", down[i]);
    pl_series(m, PL_M_BUDGET_CHANGES_TOTAL, id, "up", "recovery");
}

void pl_budget_tell(struct pl_gate *gate) {
    double most = 0;
    if (full_of(gate) == 0 && gate->budget_ratio == NULL) return;
    if (gate->place_count == 0) pl_budget_ready(gate); /* makes them, as soon as there is a worker */
    for (unsigned i = 0; i < gate->place_count; i++) {
        const struct pl_budget *b = &gate->admit.places[i];
        struct pl_gate_place *p = &gate->places[i];
        if (b->full == 0) continue;
        if (p->bytes == NULL) make_series(gate, p);
        pl_series_set(p->bytes, (double)b->bytes);
        pl_series_set(p->charged, (double)b->charged);
        pl_series_set(p->free, (double)pl_budget_free(b));
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

bool pl_gateway_budget(const struct pl_gateway *g, const struct pl_service *s, size_t index,
                       struct pl_gateway_budget *out) {
    const struct pl_gate *gate = &g->gates[s->index];
    if (index >= gate->place_count || gate->admit.places[index].full == 0) return false;
    const struct pl_budget *b = &gate->admit.places[index];
    *out = (struct pl_gateway_budget){ .gpu = gate->places[index].name,
                                       .full_bytes = b->full,
                                       .budget_bytes = b->bytes,
                                       .charged_bytes = b->charged,
                                       .free_bytes = pl_budget_free(b) };
    return true;
}

/* --- what happens */

void pl_budget_limits(struct pl_gate *gate) {
    memset(gate->place_of, 0, sizeof gate->place_of); /* what a slot gets may have changed with `gpus` */
    for (unsigned i = 0; i < gate->place_count; i++) pl_admit_set_budget(&gate->admit, i, full_of(gate));
    pl_budget_tell(gate);
}

void pl_budget_death(struct pl_worker *w, struct pl_gate *gate) {
    const char *sentence, *cause = pl_look_cause(w, &sentence);
    unsigned i = full_of(gate) > 0 ? place_of(gate, w) : PL_ADMIT_NOWHERE;
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
