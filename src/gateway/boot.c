/* gateway/boot.c - what an engine's memory has become, against what its command asks for, the plan made of it
 * before it started, and the last boot with the same command. An engine takes what it finds free: a neighbour
 * on the device, or a compile cache that was cold, costs capacity in silence until the next restart
 * (vllm#54122). Judged by worker/boot.h; here it is told, and kept for the next boot. */
#include <stdio.h>
#include <string.h>

#include "gateway/inside.h"

enum { MOST_FIELDS = 20 };

struct fields {
    struct pl_field at[MOST_FIELDS];
    size_t count;
};

static void add(struct fields *f, struct pl_field one) {
    if (f->count < MOST_FIELDS) f->at[f->count++] = one;
}

static void add_bytes(struct fields *f, const char *name, struct pl_boot_bytes b) {
    if (b.known) add(f, F_INT(name, b.bytes));
}

/* --- metrics */

/* What is not known any more, of another command say, has no series. */
static void set(struct pl_gate *gate, const char *part, const char *state, struct pl_boot_bytes b) {
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *labels[] = { gate->service->config->id, part, state };
    if (b.known)
        pl_series_set(pl_metrics_get(m, PL_M_PLAN_BYTES, labels, 3), (double)b.bytes);
    else
        pl_metrics_drop(m, PL_M_PLAN_BYTES, labels, 3);
}

static void set_side(struct pl_gate *gate, const char *state, const struct pl_boot_side *side) {
    for (int p = 0; p < PL_BOOT_PARTS; p++)
        set(gate, pl_boot_part_name((enum pl_boot_part)p), state, side->part[p]);
}

static void set_planned(struct pl_gate *gate, const struct pl_boot_start *s) {
    bool made = s->plan != NULL && s->plan->made;
    uint64_t margin = made ? s->plan->margin_bytes : 0;
    for (int p = 0; p < PL_BOOT_PARTS; p++) {
        struct pl_boot_bytes planned = { .known = false };
        pl_boot_planned(s, (enum pl_boot_part)p, &planned);
        set(gate, pl_boot_part_name((enum pl_boot_part)p), "planned", planned);
    }
    set(gate, "margin", "planned", (struct pl_boot_bytes){ .known = margin > 0, .bytes = margin });
}

/* --- events */

static const char *against_word(enum pl_boot_against a) {
    static const char *const words[] = { [PL_BOOT_NOTHING] = "nothing",
                                         [PL_BOOT_COMMAND] = "command",
                                         [PL_BOOT_LAST] = "last",
                                         [PL_BOOT_PLAN] = "plan" };
    return words[a];
}

static struct fields begin(const struct pl_gate *gate, const struct pl_worker *w) {
    struct fields f = { .count = 0 };
    add(&f, F_STR("service", gate->service->config->id));
    add(&f, F_INT("worker", w->slot));
    add(&f, F_INT("generation", w->generation));
    return f;
}

static void tell(struct pl_gate *gate, const struct pl_worker *w, const struct pl_engine_facts *e,
                 const struct pl_boot_start *s, const struct pl_boot_verdict *v) {
    struct fields f = begin(gate, w);
    struct pl_boot_bytes planned = { .known = false };
    pl_boot_planned(s, PL_BOOT_KV, &planned);
    add_bytes(&f, "planned_bytes", planned);
    add_bytes(&f, "actual_bytes", s->now.part[PL_BOOT_KV]);
    if (s->last != NULL) add_bytes(&f, "last_bytes", s->last->part[PL_BOOT_KV]);
    if (s->now.kv_tokens > 0) add(&f, F_INT("capacity", s->now.kv_tokens / e->context_tokens));
    add(&f, F_INT("length", e->context_tokens));
    add(&f, F_STR("against", against_word(v->against)));
    add_bytes(&f, "weights_bytes", s->now.part[PL_BOOT_WEIGHTS]);
    add_bytes(&f, "activation_bytes", s->now.part[PL_BOOT_ACTIVATION]);
    add_bytes(&f, "graphs_bytes", s->now.part[PL_BOOT_GRAPHS]);
    add_bytes(&f, "non_torch_bytes", s->now.part[PL_BOOT_NON_TORCH]);
    if (e->plan_failed != 0) add(&f, F_INT("plan_status", e->plan_failed));
    if (e->auto_from_tokens > 0) add(&f, F_INT("context_from", e->auto_from_tokens));
    if (e->auto_to_tokens > 0) add(&f, F_INT("context_to", e->auto_to_tokens));
    if (s->persisted_bytes > 0) add(&f, F_INT("stored_bytes", s->persisted_bytes));
    pl_log_emit(gate->g->o.app->log, PL_INFO, "plan.checked", f.at, f.count);
}

static void tell_drift(struct pl_gate *gate, const struct pl_worker *w, const struct pl_boot_verdict *v,
                       const struct pl_boot_drift *d) {
    struct fields f = begin(gate, w);
    add(&f, F_REAL("ratio", d->ratio));
    add(&f, F_STR("component", pl_boot_part_name(d->part)));
    if (d->from > 0) add(&f, F_INT(d->against == PL_BOOT_LAST ? "last_bytes" : "planned_bytes", d->from));
    if (d->to > 0) add(&f, F_INT("actual_bytes", d->to));
    add(&f, F_REAL("kv_ratio", v->kv_ratio));
    add(&f, F_STR("against", against_word(d->against)));
    add(&f, F_STR("likely", d->likely));
    pl_log_emit(gate->g->o.app->log, PL_WARN, "plan.drift", f.at, f.count);
}

/* --- once a generation */

/* Once its cache, its context and its plan, if one is being made, are known. */
static bool is_due(const struct pl_worker *w, const struct pl_boot *b, const struct pl_engine_facts *f) {
    return f != NULL && w->generation != 0 && w->generation > b->checked && f->context_tokens != 0 &&
           !f->plan_waits && (f->boot.now.kv_tokens != 0 || f->boot.now.part[PL_BOOT_KV].known);
}

/* The same command, on a device of the same size as far as both are known. */
static bool is_like(const struct pl_boot *b, const struct pl_engine_facts *f) {
    uint64_t then = b->last.total_bytes, now = f->boot.now.total_bytes;
    return b->command == f->command_hash && (then == 0 || now == 0 || then == now);
}

static void set_figures(struct pl_gate *gate) {
    const struct pl_boot *b = &gate->llm.boot;
    struct pl_metrics *m = gate->g->o.app->metrics;
    const char *id = gate->service->config->id;
    char length[24];
    set_side(gate, "actual", &b->last);
    pl_series_set(pl_series(m, PL_M_PLAN_DRIFT_RATIO, id), b->ratio);
    if (b->last.kv_tokens == 0 || b->length == 0) return;
    snprintf(length, sizeof length, "%llu", (unsigned long long)b->length);
    pl_series_set(pl_series(m, PL_M_PLAN_CAPACITY_REQUESTS, id, length),
                  (double)(b->last.kv_tokens / b->length));
}

/* Of the context that the last boot had. */
static void drop_capacity(struct pl_gate *gate) {
    char length[24];
    snprintf(length, sizeof length, "%llu", (unsigned long long)gate->llm.boot.length);
    const char *labels[] = { gate->service->config->id, length };
    pl_metrics_drop(gate->g->o.app->metrics, PL_M_PLAN_CAPACITY_REQUESTS, labels, 2);
}

void pl_boot_check(struct pl_worker *w, struct pl_gate *gate) {
    static const struct pl_boot_side nothing = { .kv_tokens = 0 };
    const struct pl_engine_facts *f = pl_worker_engine(w);
    struct pl_boot *b = &gate->llm.boot;
    if (!is_due(w, b, f)) return;
    struct pl_boot_start s = f->boot;
    struct pl_boot_side last = b->last;
    struct pl_boot_verdict v;
    s.last = is_like(b, f) ? &last : NULL;
    pl_boot_judge(&s, &v);
    tell(gate, w, f, &s, &v);
    for (unsigned i = 0; i < v.count; i++) tell_drift(gate, w, &v, &v.drifts[i]);
    if (b->length != f->context_tokens) drop_capacity(gate);
    *b = (struct pl_boot){ .last = s.now,
                           .command = f->command_hash,
                           .checked = w->generation,
                           .ratio = v.kv_ratio,
                           .length = f->context_tokens };
    set_planned(gate, &s);
    set_side(gate, "last", s.last != NULL ? s.last : &nothing);
    set_figures(gate);
    gate->learnt.changed = true;
    pl_learnt_save(gate);
}

void pl_boot_restored(struct pl_gate *gate) {
    if (gate->llm.boot.checked > 0) set_figures(gate);
}

bool pl_gateway_plan(const struct pl_gateway *g, const struct pl_service *s, struct pl_gateway_plan *out) {
    const struct pl_boot *b = &g->gates[s->index].llm.boot;
    *out = (struct pl_gateway_plan){ .drift_ratio = b->ratio,
                                     .capacity_requests = b->length > 0 ? b->last.kv_tokens / b->length : 0,
                                     .length = b->length };
    return b->checked > 0;
}
