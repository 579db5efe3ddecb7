#include "ship/size.h"

#include <math.h>
#include <string.h>

enum {
    LEAST_BUDGET_S = 60,
    GUESSED_BOOT_S = 120, /* unmeasured: margin 3 makes six minutes of it */
    GUESSED_STOP_S = 10,
    GUESSED_PULL_S = 120,
    GUESSED_SCHEDULE_S = 5,
    DEFAULT_DEADLINE_S = 600
};
static const uint64_t MIB = 1 << 20, GUESSED_MAIN = 64ull << 20, GUESSED_WORKER_CPU = 1ull << 30,
                      GUESSED_WORKER_GPU = 6ull << 30;

static uint32_t up_to(double value, uint32_t step) { return (uint32_t)(ceil(value / step) * step); }
static double between(double x, double least, double most) { return x < least ? least : x > most ? most : x; }

static void start(const struct pl_measured *m, struct pl_size *s) {
    for (uint32_t i = 0; i < m->boot_count; i++)
        if (m->boots_s[i] > s->boot_s) s->boot_s = m->boots_s[i];
    s->boot_known = m->boot_count > 0;
    if (!s->boot_known) s->boot_s = GUESSED_BOOT_S;
    s->margin = m->cold_boot && m->boot_count >= 3 ? 1.5 : 3.0;
    double budget = fmax(LEAST_BUDGET_S, ceil(s->boot_s * s->margin));
    s->start_period_s = (uint32_t)between(floor(s->boot_s / 40), 1, 5);
    s->start_failures = (uint32_t)ceil(budget / s->start_period_s);
    s->start_budget_s = s->start_failures * s->start_period_s;
    s->start_timeout_s = s->start_budget_s - 10; /* our own reason comes before the kubelet's kill */
}

static void end(const struct pl_measured *m, enum pl_front front, struct pl_size *s) {
    static const uint32_t delay_s[] = { 5, 15, 30 };
    s->pre_stop_s = delay_s[front];
    s->drain_s = (uint32_t)ceil(m->longest_request_s + m->queue_max_wait_s);
    s->stop_known = m->worker_stop_s > 0;
    s->worker_stop_s = s->stop_known ? (uint32_t)ceil(m->worker_stop_s) : GUESSED_STOP_S;
    s->grace_s = up_to(s->pre_stop_s + s->drain_s + s->worker_stop_s + 5.0, 5);
}

uint64_t pl_size_peak(const struct pl_measured *m, const struct pl_size_ask *ask) {
    uint64_t guess = ask->gpus > 0 ? GUESSED_WORKER_GPU : GUESSED_WORKER_CPU;
    uint64_t steady = m->worker_steady_bytes > 0 ? m->worker_steady_bytes : guess;
    uint64_t load = m->worker_load_peak_bytes > 0 ? m->worker_load_peak_bytes : steady;
    uint64_t n = ask->workers > 0 ? ask->workers : 1;
    uint64_t workers = ask->overlap ? n * steady + load : (n - 1) * steady + (load > steady ? load : steady);
    return (m->main_bytes > 0 ? m->main_bytes : GUESSED_MAIN) + workers + m->shm_peak_bytes;
}

static void memory(const struct pl_measured *m, const struct pl_size_ask *ask, struct pl_size *s) {
    s->host_known = m->worker_steady_bytes > 0 && m->worker_load_peak_bytes > 0;
    s->peak_bytes = pl_size_peak(m, ask);
    double cache = ask->keep_weights_cached ? (double)m->weights_bytes : 0;
    s->memory_mib = (uint32_t)(ceil((1.2 * (double)s->peak_bytes + cache) / (256.0 * (double)MIB)) * 256);
    s->shm_mib = (uint32_t)(ceil(2.0 * (double)m->shm_peak_bytes / (256.0 * (double)MIB)) * 256);
    s->shm_guessed = !m->shm_known && ask->gpus > 0;
    if (s->shm_guessed) {
        s->shm_mib = 1024 * ask->gpus;
        s->memory_mib += s->shm_mib; /* it counts against the limit */
    }
}

static void cpu(const struct pl_measured *m, const struct pl_size_ask *ask, struct pl_size *s) {
    s->cpu_known = m->cpu_p95 > 0;
    double cores = fmax(0.5, ceil(1.5 * m->cpu_p95 * 2) / 2) + ask->gpus;
    if (ask->guaranteed) cores = ceil(cores);
    s->cpu_millis = (uint32_t)(cores * 1000);
}

void pl_ship_size(const struct pl_measured *m, const struct pl_size_ask *ask, struct pl_size *out) {
    *out = (struct pl_size){ 0 };
    start(m, out);
    end(m, ask->front, out);
    memory(m, ask, out);
    cpu(m, ask, out);
    double schedule = m->schedule_s > 0 ? m->schedule_s : GUESSED_SCHEDULE_S;
    double pull = m->pull_s > 0 ? m->pull_s : GUESSED_PULL_S;
    out->deadline_s = (uint32_t)fmax(DEFAULT_DEADLINE_S, ceil(1.5 * (schedule + pull + out->start_budget_s)));
    out->scale_up_s = (uint32_t)between(ceil(out->boot_s + schedule), 15, 1800);
    out->scale_down_s = (uint32_t)between(ceil(10 * out->boot_s), 300, 3600);
    out->scale_down_period_s = (uint32_t)between(ceil(3 * out->boot_s), 120, 900);
}

enum pl_strategy pl_size_strategy(const struct pl_size_ask *ask) {
    if (ask->spare_gpu || ask->gpus == 0) return PL_STRATEGY_SURGE;
    return ask->replicas == 1 ? PL_STRATEGY_RECREATE : PL_STRATEGY_ONE_DOWN;
}
