/* gateway/boot.c - what an engine's KV cache has become, against what its command asked for and against the
 * last boot with the same command. An engine takes what it finds free: a neighbour on the device, or a
 * compile cache that was cold, costs capacity in silence until the next restart (vllm#54122). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gateway/inside.h"

static const double drifts_at = 0.05;

static const char *likely(bool against_plan, double ratio) {
    if (against_plan)
        return ratio < 0 ? "the engine found less memory free than --kv-cache-memory-bytes asks for"
                         : "the engine was told in another way as well: look at its own lines";
    return ratio < 0 ? "less was free on the device when it started: another process, or a first boot whose "
                       "compile cache "
                       "was cold; a restart may bring it back"
                     : "more was free on the device than at the last boot: a process has gone, or its "
                       "compile cache is "
                       "warm by now";
}

static void set(struct pl_gate *gate, const char *state, uint64_t bytes) {
    if (bytes == 0) return;
    pl_series_set(pl_series(gate->g->o.app->metrics, PL_M_PLAN_BYTES, gate->service->config->id, "kv", state),
                  (double)bytes);
}

struct fields {
    struct pl_field at[12];
    size_t count;
};

static void add(struct fields *f, struct pl_field one) { f->at[f->count++] = one; }

static struct fields bytes_of(const struct pl_gate *gate, const struct pl_worker *w,
                              const struct pl_engine_facts *e, uint64_t last) {
    struct fields f = { .count = 0 };
    add(&f, F_STR("service", gate->service->config->id));
    add(&f, F_INT("worker", w->slot));
    add(&f, F_INT("generation", w->generation));
    if (e->planned_kv_bytes > 0) add(&f, F_INT("planned_bytes", e->planned_kv_bytes));
    add(&f, F_INT("actual_bytes", e->kv_bytes));
    if (last > 0) add(&f, F_INT("last_bytes", last));
    return f;
}

static void tell(struct pl_gate *gate, const struct pl_worker *w, const struct pl_engine_facts *e,
                 uint64_t last) {
    struct fields f = bytes_of(gate, w, e, last);
    char length[24];
    uint64_t capacity = e->kv_tokens / e->context_tokens;
    set(gate, "planned", e->planned_kv_bytes);
    set(gate, "actual", e->kv_bytes);
    set(gate, "last", last);
    add(&f, F_INT("capacity", capacity));
    add(&f, F_INT("length", e->context_tokens));
    pl_log_emit(gate->g->o.app->log, PL_INFO, "plan.checked", f.at, f.count);
    snprintf(length, sizeof length, "%llu", (unsigned long long)e->context_tokens);
    pl_series_set(
        pl_series(gate->g->o.app->metrics, PL_M_PLAN_CAPACITY_REQUESTS, gate->service->config->id, length),
        (double)capacity);
}

static void tell_drift(struct pl_gate *gate, const struct pl_worker *w, const struct pl_engine_facts *e,
                       uint64_t last, double ratio) {
    struct fields f = bytes_of(gate, w, e, last);
    add(&f, F_REAL("ratio", ratio));
    add(&f, F_STR("component", "kv"));
    add(&f, F_STR("likely", likely(e->planned_kv_bytes > 0, ratio)));
    pl_log_emit(gate->g->o.app->log, PL_WARN, "plan.drift", f.at, f.count);
}

void pl_boot_check(struct pl_worker *w, struct pl_gate *gate) {
    const struct pl_engine_facts *f = pl_worker_engine(w);
    struct pl_boot *b = &gate->llm.boot;
    /* once a generation, when both its cache and its context are known */
    if (f == NULL || w->generation == 0 || w->generation <= b->checked || f->kv_tokens == 0 ||
        f->context_tokens == 0)
        return;
    uint64_t last = b->command == f->command_hash ? b->kv_bytes : 0;
    uint64_t against = f->planned_kv_bytes > 0 ? f->planned_kv_bytes : last;
    double ratio = against > 0 ? (double)f->kv_bytes / (double)against - 1 : 0;
    tell(gate, w, f, last);
    pl_series_set(pl_series(gate->g->o.app->metrics, PL_M_PLAN_DRIFT_RATIO, gate->service->config->id),
                  ratio);
    if (fabs(ratio) > drifts_at) tell_drift(gate, w, f, last, ratio);
    b->checked = w->generation;
    b->kv_bytes = f->kv_bytes;
    b->command = f->command_hash;
    gate->learnt.changed = true;
    pl_learnt_save(gate);
}
