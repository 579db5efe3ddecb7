/* host.c - host memory: of the workers and of our own memory group, as the watch process sees it; what the
 * kernel has killed; and what follows for the way of a replacement. */
#include "watch/host.h"
#include "crew/devices.h"
#include "crew/look.h"
#include "crew/zygote.h"
#include "sample/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A kill whose victim is not one of our workers is told when none of them was missing so long after it. */
enum { NOBODYS_MS = 10000, PRESSED_PCT = 90, RELAXED_PCT = 85 };
static const struct pl_host_roots machine = { .proc = "/proc", .cgroup = "/sys/fs/cgroup" };

struct pl_host {
    struct pl_watch_host group; /* at_ms 0: not seen yet */
    bool kills_known, pressed, reads_workers;
    uint64_t kills, whole_kills; /* accounted for */
    uint64_t kill_seen_ms;       /* one is there that nobody accounts for; 0: none */
};

static struct pl_host *host_of(struct pl_crew *c) {
    if (c->host == NULL) c->host = calloc(1, sizeof *c->host);
    return c->host;
}

/* Kills of an earlier life are nobody's any more. */
void pl_host_begin(struct pl_crew *c) {
    struct pl_host *h = host_of(c);
    if (h != NULL) h->kills_known = pl_host_kills(&machine, "self", &h->kills, &h->whole_kills);
}

void pl_host_count_from(struct pl_crew *c, uint64_t kills) {
    struct pl_host *h = host_of(c);
    if (h != NULL && h->kills_known && kills < h->kills) h->kills = kills;
}

void pl_host_now(const struct pl_crew *c, struct pl_watch_host *out) {
    if (c->host != NULL && c->host->group.at_ms != 0)
        *out = c->host->group;
    else
        pl_host_group(&machine, "self", out);
}

/* --- what the kernel has killed */

static void tell_kill(const struct pl_crew *c, uint64_t count, const char *victim) {
    pl_log(c->app->log, PL_ERROR, "host.oom_kill", F_INT("count", count), F_STR("victim", victim));
}

void pl_host_death(struct pl_worker *w, struct pl_death_group *out) {
    struct pl_crew *c = w->service->crew;
    struct pl_host *h = host_of(c);
    uint64_t kills, whole;
    *out = (struct pl_death_group){ .current = PL_PROC_UNKNOWN,
                                    .max = PL_PROC_UNKNOWN,
                                    .peak = PL_PROC_UNKNOWN };
    if (h == NULL) return;
    if (h->group.at_ms != 0) {
        out->current = h->group.current;
        out->max = h->group.limit;
        out->peak = h->group.peak;
    }
    if (!h->kills_known || !pl_host_kills(&machine, "self", &kills, &whole)) return;
    out->known = true;
    out->oom_kills = kills > h->kills ? kills - h->kills : 0;
    out->group_kills = whole > h->whole_kills ? whole - h->whole_kills : 0;
    h->kills = kills;
    h->whole_kills = whole;
    h->kill_seen_ms = 0;
    if (out->oom_kills == 0) return;
    struct pl_watch_host now; /* the peak of the last sample is older than what it died of */
    pl_host_group(&machine, "self", &now);
    if (now.peak != PL_WATCH_UNKNOWN) out->peak = now.peak;
    char victim[96];
    snprintf(victim, sizeof victim, "%.60s/%u", w->service->config->id, w->slot);
    tell_kill(c, out->oom_kills, victim);
}

static void look_for_kills(struct pl_crew *c, struct pl_host *h, uint64_t now) {
    const struct pl_watch_host *g = &h->group;
    if (!h->kills_known || g->events_oom_kill == PL_WATCH_UNKNOWN || g->events_oom_kill <= h->kills) return;
    if (h->kill_seen_ms == 0) h->kill_seen_ms = now;
    if (now - h->kill_seen_ms < NOBODYS_MS) return;
    tell_kill(c, g->events_oom_kill - h->kills, "none of the workers");
    h->kills = g->events_oom_kill;
    h->kill_seen_ms = 0;
}

/* --- the group */

/* Without what the kernel can take back at once: file pages, but not those of shared memory. */
static uint64_t in_use(const struct pl_watch_host *g) {
    if (g->current == PL_WATCH_UNKNOWN) return PL_WATCH_UNKNOWN;
    uint64_t file = g->file != PL_WATCH_UNKNOWN ? g->file : 0;
    uint64_t shared = g->shmem != PL_WATCH_UNKNOWN ? g->shmem : 0;
    uint64_t reclaimable = file > shared ? file - shared : 0;
    return g->current > reclaimable ? g->current - reclaimable : 0;
}

static void look_for_pressure(const struct pl_crew *c, struct pl_host *h) {
    const struct pl_watch_host *g = &h->group;
    uint64_t used = in_use(g);
    if (used == PL_WATCH_UNKNOWN || g->limit == PL_WATCH_UNKNOWN || g->limit < 100) return;
    uint64_t percent = used / (g->limit / 100);
    if (percent < RELAXED_PCT) h->pressed = false;
    if (percent < PRESSED_PCT || h->pressed) return;
    h->pressed = true;
    pl_log(c->app->log, PL_WARN, "host.pressure", F_INT("current_bytes", used), F_INT("max_bytes", g->limit));
}

static void meter_group(const struct pl_crew *c, const struct pl_watch_host *g) {
    const struct {
        const char *kind;
        uint64_t value;
    } kinds[] = { { "current", g->current }, { "max", g->limit },     { "anon", g->anon },
                  { "shmem", g->shmem },     { "kernel", g->kernel }, { "file", g->file } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].value != PL_WATCH_UNKNOWN)
            pl_series_set(pl_series(c->app->metrics, PL_M_CGROUP_MEMORY_BYTES, kinds[i].kind),
                          (double)kinds[i].value);
        else
            pl_metrics_drop(c->app->metrics, PL_M_CGROUP_MEMORY_BYTES, &kinds[i].kind, 1);
}

/* --- the workers */

static struct pl_worker *worker_with(const struct pl_crew *c, pid_t pid) {
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->pid == pid && pl_worker_has_process(w->state) && w->state <= PL_WORKER_READY) return w;
    return NULL;
}

static void record(const struct pl_worker *w) {
    const struct pl_host_use *u = &w->more->host;
    struct pl_look_host l;
    if (!pl_look_host(w, &l)) return;
    struct pl_record_sample row = pl_record_sample_of("host");
    row.service = w->service->config->id;
    row.worker = w->slot;
    row.generation = w->generation;
    row.rss = (int64_t)u->rss;
    row.anon = (int64_t)u->anon;
    row.swap = (int64_t)u->swap;
    if (l.limit != 0) row.limit = (int64_t)l.limit;
    row.in_flight = w->in_flight;
    row.requests = (int64_t)w->served;
    pl_record_sample(w->service->crew->app->record, &row);
}

/* What the worker itself says of its devices. */
static void record_devices(struct pl_worker *w, uint64_t now) {
    struct pl_look_device d;
    for (uint32_t i = 0; i < PL_LOOK_DEVICES; i++) {
        if (!pl_look_device(w, i, now, &d)) continue;
        struct pl_record_sample row = pl_record_sample_of(d.scope);
        row.service = w->service->config->id;
        row.worker = w->slot;
        row.generation = w->generation;
        row.allocated = (int64_t)d.allocated;
        row.reserved = (int64_t)d.reserved;
        row.peak = (int64_t)d.peak;
        if (d.limit != 0) row.limit = (int64_t)d.limit;
        pl_record_sample(w->service->crew->app->record, &row);
    }
}

static void take_worker(struct pl_worker *w, const struct pl_watch_worker *p, uint64_t now) {
    if (w->more->host.seen_ms == 0 && !w->more->adopted) {
        w->service->more->new_bytes = p->anon + p->swap;
        pl_kept_save(w->service);
    }
    w->more->host = (struct pl_host_use){
        .anon = p->anon, .swap = p->swap, .rss = p->rss, .pss = p->pss, .seen_ms = p->at_ms
    };
    record(w);
    record_devices(w, now);
}

static void meter_own(const struct pl_crew *c, const char *process, pid_t pid) {
    struct pl_watch_worker sum = { 0 };
    bool known = pid > 0 && pl_host_add(machine.proc, pid, &sum);
    const struct {
        const char *kind;
        uint64_t value;
    } kinds[] = { { "rss", sum.rss }, { "anon", sum.anon }, { "swap", sum.swap } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *const labels[] = { process, kinds[i].kind };
        if (known)
            pl_series_set(pl_metrics_get(c->app->metrics, PL_M_OWN_MEMORY_BYTES, labels, 2),
                          (double)kinds[i].value);
        else
            pl_metrics_drop(c->app->metrics, PL_M_OWN_MEMORY_BYTES, labels, 2);
    }
}

/* Read here and not by watch: three small texts that touch no disk, and true while watch is silent, too. */
void pl_host_own(const struct pl_crew *c) {
    meter_own(c, "main", getpid());
    meter_own(c, "keeper", (pid_t)c->welcome.keeper_pid);
    meter_own(c, "watch", c->devices != NULL ? c->devices->pid : 0);
}

void pl_host_tick(struct pl_crew *c, uint64_t now) {
    struct pl_host *h = host_of(c);
    struct pl_watch_host g;
    if (h == NULL || c->devices == NULL || !pl_watch_read_host(&c->devices->page, &g)) return;
    if (g.at_ms == h->group.at_ms || g.at_ms > now) return;
    h->group = g;
    for (uint32_t i = 0; i < g.workers; i++) {
        struct pl_watch_worker p;
        if (!pl_watch_read_worker(&c->devices->page, i, &p)) continue;
        if (p.pid != 0 && pl_zygote_seen(c, p.pid, p.pss != PL_PROC_UNKNOWN ? p.pss : p.rss)) continue;
        struct pl_worker *w = p.pid != 0 ? worker_with(c, (pid_t)p.pid) : NULL;
        if (w != NULL) h->reads_workers = true;
        if (w != NULL && w->state < PL_WORKER_READY) pl_host_room_seen(w, p.anon, p.swap, p.rss, p.pss);
        if (w != NULL && w->state == PL_WORKER_READY) take_worker(w, &p, now);
    }
    meter_group(c, &h->group);
    look_for_pressure(c, h);
    look_for_kills(c, h, now);
}

bool pl_host_pressed(const struct pl_crew *c) { return c->host != NULL && c->host->pressed; }

uint64_t pl_host_in_use(const struct pl_crew *c) {
    uint64_t used = c->host != NULL && c->host->group.at_ms != 0 ? in_use(&c->host->group) : 0;
    return used != PL_WATCH_UNKNOWN ? used : 0;
}

uint64_t pl_host_limit(const struct pl_crew *c) {
    const struct pl_host *h = c->host;
    return h != NULL && h->group.at_ms != 0 && h->group.limit != PL_WATCH_UNKNOWN ? h->group.limit : 0;
}

enum pl_replace_way pl_host_way(const struct pl_service *s) {
    const struct pl_crew *c = s->crew;
    if (pl_service_fixed(s)) return PL_REPLACE_HANDOVER; /* one port, one worker */
    struct pl_replace_room room = { .max = pl_host_limit(c), .need = s->more->new_bytes };
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (pl_worker_has_process(w->state)) room.used += w->more->host.anon + w->more->host.swap;
    return pl_replace_way_of(s->config->replace_mode, &room);
}

static uint32_t all_workers(const struct pl_crew *c) {
    uint32_t n = 0;
    for (size_t i = 0; i < c->every_count; i++) n += pl_life_slots(c->every[i]);
    return n;
}

bool pl_look_host(const struct pl_worker *w, struct pl_look_host *out) {
    const struct pl_host_use *u = &w->more->host;
    const struct pl_crew *c = w->service->crew;
    if (u->seen_ms == 0) return false;
    *out = (struct pl_look_host){ .rss = u->rss,
                                  .pss = u->pss != PL_PROC_UNKNOWN ? u->pss : 0,
                                  .limit = pl_host_limit_bytes(w->service->config->replace_host_rss,
                                                               pl_host_limit(c), all_workers(c)) };
    return true;
}

bool pl_look_reads_host(const struct pl_service *s) {
    const struct pl_host *h = s->crew->host;
    return s->kind != PL_KIND_REMOTE && h != NULL && h->reads_workers;
}
