#include "sample/gpu.h"

/* A card's own bookkeeping moves a little when a process goes. */
static const uint64_t slack = UINT64_C(64) << 20;

uint64_t pl_gpu_process_bytes(const struct pl_watch_gpu *g, uint32_t leader) {
    uint64_t sum = 0;
    if ((g->flags & PL_WATCH_GPU_PROCESSES) == 0) return PL_WATCH_UNKNOWN;
    for (uint32_t i = 0; i < g->process_count; i++) {
        const struct pl_watch_process *p = &g->processes[i];
        if (leader != 0 && p->leader != leader) continue;
        if (p->bytes == PL_WATCH_UNKNOWN || __builtin_add_overflow(sum, p->bytes, &sum))
            return PL_WATCH_UNKNOWN;
    }
    return sum;
}

static bool any_of_ours(const struct pl_watch_gpu *g) {
    for (uint32_t i = 0; i < g->process_count; i++)
        if (g->processes[i].leader != 0) return true;
    return false;
}

bool pl_gpu_believes(const struct pl_watch_gpu *g, bool workers_run) {
    return (g->flags & PL_WATCH_GPU_PROCESSES) != 0 && (any_of_ours(g) || !workers_run);
}

uint64_t pl_gpu_foreign(const struct pl_watch_gpu *g, bool workers_run, uint64_t base) {
    uint64_t ours = 0;
    if (g->used == PL_WATCH_UNKNOWN) return PL_WATCH_UNKNOWN;
    if (!workers_run && !any_of_ours(g)) return g->used;
    if (!pl_gpu_believes(g, workers_run)) return base;
    for (uint32_t i = 0; i < g->process_count; i++)
        if (g->processes[i].leader != 0 && __builtin_add_overflow(ours, g->processes[i].bytes, &ours))
            return PL_WATCH_UNKNOWN;
    return g->used > ours ? g->used - ours : 0;
}

bool pl_gpu_throttled(uint64_t bits) { return (bits & (0x8 | 0x20 | 0x40 | 0x80)) != 0; }

uint64_t pl_gpu_notable(const struct pl_watch_gpu *g) {
    static const uint64_t least = UINT64_C(256) << 20;
    return g->total != PL_WATCH_UNKNOWN && g->total / 100 > least ? g->total / 100 : least;
}

/* Used, less what processes are listed with. */
static uint64_t apart(const struct pl_watch_gpu *g) {
    uint64_t listed = pl_gpu_process_bytes(g, 0);
    if (listed == PL_WATCH_UNKNOWN || g->used == PL_WATCH_UNKNOWN) return PL_WATCH_UNKNOWN;
    return g->used > listed ? g->used - listed : 0;
}

bool pl_gpu_hold_take(const struct pl_watch_gpu *g, uint32_t leader, struct pl_gpu_hold *out) {
    uint64_t bytes = pl_gpu_process_bytes(g, leader), rest = apart(g);
    *out = (struct pl_gpu_hold){ 0 };
    if (leader == 0 || bytes == PL_WATCH_UNKNOWN || bytes == 0 || rest == PL_WATCH_UNKNOWN) return false;
    out->bytes = bytes;
    out->apart = rest;
    for (uint32_t i = 0; i < g->process_count && out->pid_count < PL_GPU_HOLD_PIDS; i++)
        if (g->processes[i].leader == leader) out->pids[out->pid_count++] = g->processes[i].pid;
    return true;
}

uint64_t pl_gpu_hold_left(const struct pl_gpu_hold *h, const struct pl_watch_gpu *g) {
    uint64_t listed = 0, rest = apart(g);
    if (rest == PL_WATCH_UNKNOWN) return PL_WATCH_UNKNOWN;
    for (uint32_t i = 0; i < g->process_count; i++)
        for (uint32_t k = 0; k < h->pid_count; k++)
            if (g->processes[i].pid == h->pids[k]) listed += g->processes[i].bytes;
    if (listed > 0) return listed;
    uint64_t more = rest > h->apart ? rest - h->apart : 0;
    uint64_t enough = h->bytes / 2 > slack ? h->bytes / 2 : slack;
    return more >= enough ? more : 0;
}
