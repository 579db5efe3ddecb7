/* devices.c - GPUs as main sees them through the page of watch: events, figures, and memory that must come
 * back before a worker counts as gone. A figure that is not known is absent. */
#include "crew/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/look.h"

enum { SILENT_LEAST_MS = 5000, SILENT_PERIODS = 5, RETURN_MS = 10000, BASE_MS = 100, XID_LATELY_MS = 60000 };

static struct pl_logger *log_of(const struct pl_crew *c) { return c->app->log; }

static const char *label_of(const struct pl_device *g, char out[16]) {
    snprintf(out, 16, "%u", g->now.index);
    return out;
}

/* --- figures */

static void meter(struct pl_crew *c, enum pl_metric id, const char *const *labels, size_t count,
                  uint64_t value, double unit) {
    if (value == PL_WATCH_UNKNOWN)
        pl_metrics_drop(c->app->metrics, id, labels, count);
    else
        pl_series_set(pl_metrics_get(c->app->metrics, id, labels, count), (double)value * unit);
}

static void meter_memory(struct pl_crew *c, const char *gpu, const struct pl_device *g, const char *kind,
                         uint64_t value) {
    meter(c, PL_M_GPU_MEMORY_BYTES, (const char *const[]){ gpu, g->now.uuid, kind }, 3, value, 1);
}

static void meter_device(struct pl_crew *c, const struct pl_device *g, bool known) {
    char gpu[16];
    label_of(g, gpu);
    const char *const labels[] = { gpu, g->now.uuid };
    const struct pl_watch_gpu *n = &g->now;
    const uint64_t unknown = PL_WATCH_UNKNOWN;
    uint64_t throttled = known && n->throttle != unknown ? pl_gpu_throttled(n->throttle) : unknown;
    meter_memory(c, gpu, g, "total", known ? n->total : unknown);
    meter_memory(c, gpu, g, "used", known ? n->used : unknown);
    meter_memory(c, gpu, g, "free", known ? n->free : unknown);
    meter_memory(c, gpu, g, "foreign", known ? g->foreign_now : unknown);
    meter(c, PL_M_GPU_UTILIZATION_RATIO, labels, 2, known ? n->utilization : unknown, 0.01);
    meter(c, PL_M_GPU_MEMORY_UTILIZATION_RATIO, labels, 2, known ? n->memory_activity : unknown, 0.01);
    meter(c, PL_M_GPU_TEMPERATURE_CELSIUS, labels, 2, known ? n->celsius : unknown, 1);
    meter(c, PL_M_GPU_POWER_WATTS, labels, 2, known ? n->milliwatts : unknown, 0.001);
    meter(c, PL_M_GPU_THROTTLED, labels, 2, throttled, 1);
    meter(c, PL_M_GPU_IN_SERVICE, labels, 2, !g->out, 1);
}

/* What is known of a worker's memory on one GPU; the rest of what its processes have is `other`. */
static void meter_components(struct pl_worker *w, const struct pl_device *g, bool known) {
    struct pl_crew *c = w->service->crew;
    char gpu[16];
    const char *service = w->service->config->id, *slot = pl_worker_label(w);
    label_of(g, gpu);
    uint64_t all = known ? pl_gpu_process_bytes(&g->now, (uint32_t)w->pid) : PL_WATCH_UNKNOWN;
    if (all == 0) all = PL_WATCH_UNKNOWN;
    uint64_t kv = w->more->words.kv_bytes, other = PL_WATCH_UNKNOWN;
    if (kv == 0 || all == PL_WATCH_UNKNOWN || kv > all) kv = PL_WATCH_UNKNOWN;
    if (all != PL_WATCH_UNKNOWN) other = kv != PL_WATCH_UNKNOWN ? all - kv : all;
    meter(c, PL_M_MEMORY_COMPONENT_BYTES, (const char *const[]){ service, slot, gpu, "kv" }, 4, kv, 1);
    meter(c, PL_M_MEMORY_COMPONENT_BYTES, (const char *const[]){ service, slot, gpu, "other" }, 4, other, 1);
}

static bool is_known(const struct pl_devices *d, const struct pl_device *g) { return !d->silent && !g->lost; }

void pl_devices_meters(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    if (d == NULL) return;
    for (uint32_t i = 0; i < d->count; i++) {
        bool known = is_known(d, &d->device[i]);
        meter_device(c, &d->device[i], known);
        for (size_t k = 0; k < c->every_count; k++)
            for (struct pl_worker *w = c->every[k]->workers; w != NULL; w = w->next)
                if (w->state == PL_WORKER_READY) meter_components(w, &d->device[i], known);
    }
    if (d->count > 0)
        pl_series_set(pl_series0(c->app->metrics, PL_M_DEVICE_SAMPLE_AGE_SECONDS),
                      now > d->device_ms ? (double)(now - d->device_ms) / 1000 : 0);
}

/* --- silence */

/* Of the device that does not answer, else of all: requests for them are not known to come back. */
static void out_of_service(struct pl_devices *d, uint32_t gpu) {
    for (uint32_t i = 0; i < d->count; i++)
        if (gpu == UINT32_MAX || d->device[i].now.index == gpu) d->device[i].out = true;
}

static void say_silent(struct pl_crew *c, const char *reason, uint32_t gpu) {
    struct pl_devices *d = c->devices;
    uint64_t now = pl_crew_now(c), age = d->device_ms != 0 && now > d->device_ms ? now - d->device_ms : 0;
    struct pl_field f[3] = { F_INT("age_ms", age), F_STR("reason", reason), F_INT("gpu", gpu) };
    if (d->silent) return;
    d->silent = true;
    d->silent_from_ms = now;
    pl_log_emit(log_of(c), PL_ERROR, "device.silent", f, gpu != UINT32_MAX ? 3 : 2);
}

void pl_devices_silent(struct pl_crew *c, const char *reason) { say_silent(c, reason, UINT32_MAX); }

static void look_for_silence(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    struct pl_watch_beat beat;
    char reason[160];
    uint64_t patience = d->period_ms * SILENT_PERIODS;
    if (patience < SILENT_LEAST_MS) patience = SILENT_LEAST_MS;
    if (d->silent || d->generation == 0 || d->ending) return;
    if (!pl_watch_read_beat(&d->page, &beat))
        beat = (struct pl_watch_beat){ 0 }; /* it has written nothing yet */
    uint64_t from = beat.device_ms > d->started_ms ? beat.device_ms : d->started_ms;
    if (now < from || now - from < patience) return;
    const char *call = pl_watch_call_name(beat.asked);
    if (call[0] == '\0' ||
        beat.host_ms + patience < now) { /* it is not the driver: both threads stand still */
        snprintf(reason, sizeof reason, "watch (pid %d) does not run", (int)d->pid);
        pl_devices_silent(c, reason);
        return;
    }
    snprintf(reason, sizeof reason, "%s does not return: look at dmesg", call);
    out_of_service(d, beat.asked_gpu);
    say_silent(c, reason, beat.asked_gpu);
}

static void look_for_life(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    if (!d->silent) return;
    d->silent = false;
    pl_log(log_of(c), PL_INFO, "device.back", F_INT("silent_ms", now - d->silent_from_ms));
}

/* --- one device, one sample */

static struct pl_device *device_of(struct pl_devices *d, const struct pl_watch_gpu *g) {
    for (uint32_t i = 0; i < d->count; i++)
        if (strcmp(d->device[i].now.uuid, g->uuid) == 0) return &d->device[i];
    if (d->count == PL_WATCH_GPUS || g->uuid[0] == '\0') return NULL;
    struct pl_device *new = &d->device[d->count++];
    *new = (struct pl_device){ .base = PL_WATCH_UNKNOWN,
                               .foreign = PL_WATCH_UNKNOWN,
                               .foreign_now = PL_WATCH_UNKNOWN };
    return new;
}

static void tell_found(struct pl_crew *c, struct pl_device *g) {
    if (g->told || g->now.total == PL_WATCH_UNKNOWN) return;
    g->told = true;
    pl_log(log_of(c), PL_INFO, "device.found", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid),
           F_STR("name", g->now.name), F_INT("total_bytes", g->now.total));
}

static void tell_lost(struct pl_crew *c, struct pl_device *g) {
    bool lost = g->now.total == PL_WATCH_UNKNOWN;
    char reason[80];
    if (lost == g->lost) return;
    g->lost = lost;
    if (!lost) {
        pl_log(log_of(c), PL_INFO, "device.back", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid));
        return;
    }
    if ((g->now.flags & PL_WATCH_GPU_LOST) != 0)
        snprintf(reason, sizeof reason, "it fell off the bus (NVML error %d)", g->now.error);
    else
        snprintf(reason, sizeof reason, "it does not tell its memory (NVML error %d)", g->now.error);
    pl_log(log_of(c), PL_ERROR, "device.lost", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid),
           F_STR("reason", reason));
}

/* Counted by watch since it has started: what another main has told is not told again. */
static void tell_xids(struct pl_crew *c, struct pl_device *g, bool quiet) {
    char gpu[16], number[16];
    for (int i = 0; i < PL_WATCH_XIDS; i++) {
        uint32_t xid = g->now.xids[i].xid, count = g->now.xids[i].count, known = 0;
        for (int k = 0; k < PL_WATCH_XIDS; k++)
            if (g->xids[k].xid == xid) known = g->xids[k].count;
        if (xid == 0 || count <= known) continue;
        snprintf(number, sizeof number, "%u", xid);
        pl_series_add(pl_series(c->app->metrics, PL_M_GPU_XID_TOTAL, label_of(g, gpu), g->now.uuid, number),
                      count - known);
        g->xid = xid;
        g->xid_ms = quiet ? 0 : g->now.at_ms;
        if (!quiet)
            pl_log(log_of(c), PL_ERROR, "device.xid", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid),
                   F_INT("xid", xid), F_INT("count", count - known));
    }
    for (int i = 0; i < PL_WATCH_XIDS; i++) {
        g->xids[i].xid = g->now.xids[i].xid;
        g->xids[i].count = g->now.xids[i].count;
    }
}

/* When the first of ours was started; 0: none runs. One that is on its way out counts until it is gone. */
static uint64_t first_spawn(const struct pl_crew *c) {
    uint64_t first = 0;
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (w->pid == 0 || w->more->let_go || w->more->keeper_gone) continue;
            if (first == 0 || w->more->time.spawned < first) first = w->more->time.spawned;
        }
    return first;
}

/* Somebody is on its way out: what it had counts as nobody's for a moment. */
static bool memory_is_coming_back(const struct pl_crew *c) {
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->exited && !w->more->keeper_gone && w->more->devices.count > 0) return true;
    return false;
}

static void tell_neighbour(struct pl_crew *c, struct pl_device *g) {
    uint64_t first = first_spawn(c);
    /* No program has memory on a GPU so soon after its start. */
    if (first == 0 || g->now.at_ms < first + BASE_MS) g->base = g->now.used;
    g->foreign_now = pl_gpu_foreign(&g->now, first != 0, g->base);
    if (g->foreign_now == PL_WATCH_UNKNOWN) return;
    g->foreign_now = g->foreign_now > g->kept ? g->foreign_now - g->kept : 0; /* it was ours */
    if (c->stopping || memory_is_coming_back(c)) {
        g->neighbour_seen = false;
        return;
    }
    uint64_t was = g->foreign != PL_WATCH_UNKNOWN ? g->foreign : 0;
    uint64_t change = g->foreign_now > was ? g->foreign_now - was : was - g->foreign_now;
    bool notable = change >= pl_gpu_notable(&g->now), seen = g->neighbour_seen;
    g->neighbour_seen = notable;
    /* Told at the second sample that shows it: one of ours may have died just now, and we are told in a
     * moment. */
    if (!notable || !seen) return;
    g->neighbour_seen = false;
    g->foreign = g->foreign_now;
    pl_log(log_of(c), PL_WARN, "device.neighbour", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid),
           F_INT("from_bytes", was), F_INT("to_bytes", g->foreign_now));
}

/* A worker that does not end holds what it has. */
static bool held_by_stuck(const struct pl_crew *c, const struct pl_device *g) {
    struct pl_gpu_hold h;
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->state == PL_WORKER_STUCK && w->pid > 0 && pl_gpu_hold_take(&g->now, (uint32_t)w->pid, &h))
                return true;
    return false;
}

static void judge_kept(struct pl_crew *c, struct pl_device *g) {
    if (g->kept == 0 || pl_gpu_hold_left(&g->kept_of, &g->now) != 0) return;
    g->kept = 0;
    pl_log(log_of(c), PL_INFO, "device.back", F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid));
}

static void remember_holds(struct pl_crew *c, const struct pl_devices *d) {
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (w->exited || w->pid == 0) continue;
            struct pl_worker_devices *mine = &w->more->devices;
            bool any = false;
            struct pl_worker_devices new = { .at_ms = d->device_ms };
            for (uint32_t k = 0; k < d->count && new.count < PL_CREW_WORKER_GPUS; k++) {
                if (!pl_gpu_hold_take(&d->device[k].now, (uint32_t)w->pid, &new.hold[new.count])) continue;
                new.device[new.count++] = k;
                any = true;
            }
            /* It may have died just now, and we are told in a moment: one empty sample forgets nothing. */
            if (!any && mine->count > 0 && !mine->missed) {
                mine->missed = true;
                continue;
            }
            *mine = new;
        }
}

/* The card as a whole, as its driver tells it. */
static void record_card(const struct pl_crew *c, const struct pl_device *g) {
    char scope[16];
    snprintf(scope, sizeof scope, "gpu%u", g->now.index);
    struct pl_record_sample row = pl_record_sample_of(scope);
    if (g->now.used != PL_WATCH_UNKNOWN) row.used = (int64_t)g->now.used;
    if (g->now.total != PL_WATCH_UNKNOWN) row.total = (int64_t)g->now.total;
    if (g->foreign_now != PL_WATCH_UNKNOWN) row.foreign = (int64_t)g->foreign_now;
    if (g->now.utilization != PL_WATCH_UNKNOWN) row.utilization = (double)g->now.utilization / 100;
    pl_record_sample(c->app->record, &row);
}

static void take_sample(struct pl_crew *c, const struct pl_watch_beat *beat) {
    struct pl_devices *d = c->devices;
    bool quiet = !d->fresh_watch;
    if (!pl_watch_read_driver(&d->page, &d->driver)) return;
    d->device_ms = beat->device_ms;
    for (uint32_t i = 0; i < d->driver.gpus; i++) {
        struct pl_watch_gpu sample;
        if (!pl_watch_read_gpu(&d->page, i, &sample)) continue;
        struct pl_device *g = device_of(d, &sample);
        if (g == NULL) continue;
        g->now = sample;
        tell_found(c, g);
        tell_lost(c, g);
        tell_xids(c, g, quiet);
        if (g->lost) {
            g->out = true;
            continue;
        }
        judge_kept(c, g);
        tell_neighbour(c, g);
        record_card(c, g);
        g->out = g->kept != 0 || held_by_stuck(c, g);
    }
    d->fresh_watch = true;
    remember_holds(c, d);
    pl_room_sampled(c);
}

void pl_devices_renewed(struct pl_crew *c) {
    struct pl_devices *d = c->devices;
    for (uint32_t i = 0; i < d->count; i++) memset(d->device[i].xids, 0, sizeof d->device[i].xids);
}

void pl_devices_tick(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    struct pl_watch_beat beat;
    if (d == NULL) return;
    if (pl_watch_read_beat(&d->page, &beat) && beat.device_ms != 0 && beat.device_ms != d->device_ms &&
        beat.device_ms <= now) {
        look_for_life(c, now);
        take_sample(c, &beat);
    }
    look_for_silence(c, now);
}

uint32_t pl_devices_xid(const struct pl_worker *w, uint64_t now) {
    const struct pl_devices *d = w->service->crew->devices;
    const struct pl_worker_devices *mine = &w->more->devices;
    for (uint32_t i = 0; d != NULL && i < mine->count; i++) {
        const struct pl_device *g = &d->device[mine->device[i]];
        if (g->xid_ms != 0 && now - g->xid_ms < XID_LATELY_MS) return g->xid;
    }
    return 0;
}

/* --- memory that must come back */

void pl_devices_exited(struct pl_worker *w) {
    if (w->more->devices.count > 0) pl_watcher_look_now(w->service->crew);
}

static void tell_kept(struct pl_worker *w, struct pl_device *g, const struct pl_gpu_hold *h, uint64_t left) {
    g->kept = left;
    g->kept_of = *h;
    g->out = true;
    pl_log(log_of(w->service->crew), PL_ERROR, "device.memory_not_returned",
           F_STR("service", w->service->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_INT("gpu", g->now.index), F_STR("uuid", g->now.uuid),
           F_INT("bytes", left));
}

bool pl_devices_returned(struct pl_worker *w, uint64_t now) {
    struct pl_crew *c = w->service->crew;
    struct pl_devices *d = c->devices;
    struct pl_worker_devices *mine = &w->more->devices;
    if (d == NULL || mine->count == 0 || c->stopping || d->silent) return true;
    if (mine->waits_from_ms == 0) {
        mine->waits_from_ms = now;
        pl_watcher_look_now(c);
    }
    bool late = now - mine->waits_from_ms >= RETURN_MS, all = true;
    for (uint32_t i = 0; i < mine->count; i++) {
        struct pl_device *g = &d->device[mine->device[i]];
        if (g->lost) continue;
        uint64_t left = g->now.at_ms >= mine->waits_from_ms ? pl_gpu_hold_left(&mine->hold[i], &g->now) : 1;
        if (left == 0 || left == PL_WATCH_UNKNOWN) continue;
        all = false;
        if (late && g->now.at_ms >= mine->waits_from_ms) tell_kept(w, g, &mine->hold[i], left);
    }
    return all || late;
}

/* --- for people */

size_t pl_look_gpus(const struct pl_crew *c, uint64_t now, struct pl_look_gpu *out, size_t room) {
    const struct pl_devices *d = c->devices;
    size_t n = 0;
    for (uint32_t i = 0; d != NULL && i < d->count && n < room; i++) {
        const struct pl_device *g = &d->device[i];
        bool known = is_known(d, g);
        out[n++] = (struct pl_look_gpu){ .gpu = g->now.index,
                                         .uuid = g->now.uuid,
                                         .name = g->now.name,
                                         .total = known ? g->now.total : PL_LOOK_UNKNOWN,
                                         .used = known ? g->now.used : PL_LOOK_UNKNOWN,
                                         .foreign = known ? g->foreign_now : PL_LOOK_UNKNOWN,
                                         .utilization_pct = known ? g->now.utilization : PL_LOOK_UNKNOWN,
                                         .in_service = !g->out,
                                         .sample_age_ms = now > d->device_ms ? now - d->device_ms : 0 };
    }
    return n;
}
