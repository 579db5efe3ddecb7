/* host.c - host memory of the workers, once a second on libuv's pool: file reads are not the loop's. Members
 * of a group are looked for every ten seconds; between that the ones we know are read. */
#include "crew/host_read.h"
#include "crew/look.h"
#include "crew/more.h"

#include <stdlib.h>

enum { WORKERS = 64, MEMBERS = 1024, LOOK_FOR_MEMBERS_EVERY = 10 };

struct pl_host {
    uv_work_t work;
    struct pl_crew *crew;
    bool busy;
    unsigned turn;
    uint64_t memory_max;
    size_t count, member_count;
    uint64_t generation[WORKERS];
    pid_t pid[WORKERS];
    struct pl_host_sum sum[WORKERS];
    struct pl_host_member members[MEMBERS]; /* of the workers as they were when we looked */
    pid_t leaders[WORKERS];
    size_t leader_count;
};

static const char proc_root[] = "/proc", cgroup_root[] = "/sys/fs/cgroup";

static void look(uv_work_t *work) {
    struct pl_host *h = work->data;
    if (h->turn++ % LOOK_FOR_MEMBERS_EVERY == 0) {
        h->memory_max = pl_host_limit(proc_root, cgroup_root, "self");
        h->leader_count = h->count;
        for (size_t i = 0; i < h->count; i++) h->leaders[i] = h->pid[i];
        h->member_count = pl_host_members(proc_root, h->leaders, h->leader_count, h->members, MEMBERS);
    }
    for (size_t i = 0; i < h->count; i++) {
        h->sum[i] = (struct pl_host_sum){ 0 };
        pl_host_add(proc_root, h->pid[i], &h->sum[i]);
        for (size_t k = 0; k < h->member_count; k++)
            if (h->leaders[h->members[k].leader] == h->pid[i] && pl_host_same(proc_root, &h->members[k]))
                pl_host_add(proc_root, h->members[k].pid, &h->sum[i]);
    }
}

static uint64_t memory_max(const struct pl_crew *c) { return c->host != NULL ? c->host->memory_max : 0; }

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

static void looked(uv_work_t *work, int status) {
    struct pl_host *h = work->data;
    uint64_t now = pl_crew_now(h->crew);
    (void)status;
    h->busy = false;
    for (size_t i = 0; i < h->count; i++) {
        struct pl_worker *w = pl_crew_by_generation(h->crew, h->generation[i]);
        if (w == NULL || !h->sum[i].known) continue;
        if (w->more->host.seen_ms == 0 && !w->more->adopted)
            w->service->more->new_bytes = h->sum[i].anon + h->sum[i].swap;
        w->more->host = (struct pl_host_use){
            .anon = h->sum[i].anon, .swap = h->sum[i].swap, .rss = h->sum[i].rss, .seen_ms = now
        };
        record(w);
    }
}

void pl_host_tick(struct pl_crew *c, uint64_t now) {
    (void)now;
    if (c->host == NULL) c->host = calloc(1, sizeof *c->host);
    struct pl_host *h = c->host;
    if (h == NULL || h->busy) return;
    h->crew = c;
    h->work.data = h;
    h->count = 0;
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL && h->count < WORKERS; w = w->next)
            if (w->state == PL_WORKER_READY && w->pid > 0) {
                h->generation[h->count] = w->generation;
                h->pid[h->count++] = w->pid;
            }
    if (h->count == 0) return;
    h->busy = uv_queue_work(c->app->loop, &h->work, look, looked) == 0;
}

enum pl_replace_way pl_host_way(const struct pl_service *s) {
    const struct pl_crew *c = s->crew;
    if (pl_service_fixed(s)) return PL_REPLACE_HANDOVER; /* one port, one worker */
    struct pl_replace_room room = { .max = memory_max(c), .need = s->more->new_bytes };
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
                                  .limit = pl_host_limit_bytes(w->service->config->replace_host_rss,
                                                               memory_max(c), all_workers(c)) };
    return true;
}
