/* crew.c - the crew as a whole: made, started (adopt what is there, act on the difference), asked, stopped.
 */
#include "crew/crew.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "crew/accounts.h"
#include "crew/devices.h"
#include "crew/last_life.h"
#include "crew/more.h"
#include "crew/tail.h"
#include "crew/zygote.h"

struct pl_crew *pl_crew_create(const struct pl_crew_options *o, struct pl_err *err) {
    struct pl_crew *c = calloc(1, sizeof *c);
    size_t n = o->app->config->service_count;
    if (c == NULL) goto out_of_memory;
    c->app = o->app;
    c->link = o->link;
    c->welcome = o->welcome;
    c->run_dir = o->run_dir;
    c->worker_user = o->worker_user;
    c->state_dir = o->state_dir;
    c->cache_dir = o->cache_dir;
    c->python_path = o->python_path;
    c->watch_path = o->watch_path;
    c->llama_path = o->llama_path;
    c->on_stopped = o->on_stopped;
    c->on_action = o->on_action;
    c->on_report = o->on_report;
    c->on_keeper_news = o->on_keeper_news;
    c->ctx = o->ctx;
    c->services = calloc(n, sizeof *c->services);
    if (c->services == NULL) goto out_of_memory;
    for (size_t i = 0; i < n; i++) {
        struct pl_service *s = &c->services[i];
        s->crew = c;
        s->config = &c->app->config->services[i];
        s->index = (uint32_t)i;
        s->kind = pl_kind_of(s->config);
        s->described = s->kind != PL_KIND_PYTHON; /* nobody will: what is configured is all there is */
        s->more = calloc(1, sizeof *s->more);
        if (s->more == NULL) goto out_of_memory;
        pl_guard_init(s);
        pl_explain_init(s);
        pl_zygote_init(s);
        s->more->slots = calloc(1, sizeof *s->more->slots);
        if (s->more->slots == NULL) goto out_of_memory;
        s->more->slot_room = 1;
        if (!pl_depend_register(s)) goto out_of_memory;
        c->service_count = i + 1;
        if (s->kind == PL_KIND_REMOTE && !pl_remote_open(s, err)) return NULL;
    }
    pl_ports_init(&c->ports, pl_places_range(), (unsigned)getpid());
    return c;
out_of_memory:
    PL_FAIL(err, PL_E_NOMEM, "out of memory");
    return NULL; /* main ends now: nothing is freed one by one */
}

/* --- adoption */

/* "INDEX.SLOT[:PORT] name" or "INDEX.SLOT.NUMBER id", as spawn.c writes it. */
static struct pl_service *owner_of(struct pl_crew *c, const char *name, uint32_t *slot) {
    unsigned index, place, number;
    int count = sscanf(name, "%u.%u.%u", &index, &place, &number);
    if (count < 2 || index >= c->service_count || place == 0 || place > 4096) return NULL;
    *slot = place;
    return count == 2 ? &c->services[index] : pl_depend_of(&c->services[index], number);
}

void pl_crew_signal(struct pl_crew *c, uint64_t generation, int signal, uint64_t kill_ms) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_SIGNAL, sizeof m.signal, 0);
    m.signal.generation = generation;
    m.signal.signal = (uint32_t)signal;
    m.signal.kill_ms = (uint32_t)kill_ms;
    pl_link_order(c->link, &m, NULL, NULL);
}

/* What nobody here knows, or what was on its way out, ends. */
static void end_stranger(struct pl_crew *c, uint64_t generation) {
    pl_crew_signal(c, generation, SIGTERM, 5000);
}

static void forget_stranger(struct pl_crew *c, uint64_t generation) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_FORGET, sizeof m.forget, 0);
    m.forget.generation = generation;
    pl_link_order(c->link, &m, NULL, NULL);
}

static void adopt(struct pl_crew *c, struct pl_wire_item *item, int page_fd, int ring_fd, int control_fd) {
    uint32_t slot = 0;
    if (pl_ahead_is(item)) { /* the one that waited for it is gone too */
        close(page_fd);
        close(ring_fd);
        end_stranger(c, item->generation);
        if (item->exit.state == PL_GEN_GONE) forget_stranger(c, item->generation);
        return;
    }
    if (pl_zygote_is(item)) {
        pl_zygote_adopt(c, item, page_fd, ring_fd);
        return;
    }
    if (pl_watcher_is(item)) {
        pl_watcher_adopt(c, item, page_fd, ring_fd);
        return;
    }
    struct pl_service *s = owner_of(c, item->name, &slot);
    struct pl_worker *w = s != NULL ? pl_life_new(s, slot) : NULL;
    if (w == NULL) {
        close(page_fd);
        close(ring_fd);
        if (control_fd != -1) close(control_fd);
        end_stranger(c, item->generation);
        return;
    }
    struct pl_worker_more *o = w->more;
    uint64_t now = pl_crew_now(c);
    w->generation = item->generation;
    w->pid = (pid_t)item->exit.pid;
    o->adopted = true;
    if (item->exit.exec_errno == 0) o->way = item->exit.exec_step;
    const char *id = item->socket_name[0] == 'w' && item->socket_name[1] == '/' ? item->socket_name + 2 : "";
    pl_places_adopt(w, item);
    if (pl_depend_is(s)) id = strchr(item->name, ' ') != NULL ? strchr(item->name, ' ') + 1 : "";
    snprintf(o->id, sizeof o->id, "%s", id);
    o->time.spawned = now - item->age_ms;
    o->start_until_ms = now + pl_start_timeout_ms(0);
    bool ready = pl_note_read(w, item->note, item->note_bytes);
    const struct pl_replacement *r = &s->more->replacement;
    bool handed_over =
        r->active && !r->waiting && r->way == PL_REPLACE_HANDOVER && r->from_generation == w->generation;
    if (handed_over) o->replaced = false; /* it drains, and its slot is its own until it is gone */
    o->ordered = item->stopping;
    pl_spawn_shared(w, page_fd, ring_fd);
    if (control_fd != -1) pl_control_open(w, control_fd);
    pl_life_feed(w, PL_WEV_START);
    if (item->exit.state == PL_GEN_EXITED || item->exit.state == PL_GEN_GONE) {
        pl_life_exited(w, &item->exit);
        if (item->exit.state == PL_GEN_GONE) pl_life_gone(w, &item->exit);
        return;
    }
    if (item->stopping) {
        pl_life_feed(w, PL_WEV_STOP);
        return;
    }
    struct pl_page_counters p; /* it has gone on counting since the note was left */
    if (pl_page_counters(&w->page, &p) && p.ended > w->served) w->served = p.ended;
    if (ready) {
        /* It is warm and its proof is fresh enough to serve at once: fed what it had already seen. */
        o->says_ready = true;
        w->state = PL_WORKER_WARMING;
        pl_life_feed(w, PL_WEV_WARMED);
        if (o->replaced || handed_over) pl_life_feed(w, PL_WEV_REPLACE);
    } else {
        /* What has told about itself may wait for `go`, and a second one does no harm. The tick says it: a
         * description that the last main did not read comes first. */
        pl_life_feed(w, PL_WEV_SPAWNED);
        if (pl_page_counters(&w->page, &p) && p.imported_ms != 0) pl_depend_told(w);
    }
}

static int held_control(struct pl_crew *c, struct pl_held_list *held, uint64_t generation) {
    char name[PL_WIRE_NAME_BYTES];
    (void)c;
    snprintf(name, sizeof name, "ctl:%llu", (unsigned long long)generation);
    return pl_held_take(held, name);
}

static void take_descriptions(struct pl_crew *c, struct pl_held_list *held) {
    for (size_t i = 0; i < c->service_count; i++) {
        struct pl_service *s = &c->services[i];
        char name[PL_WIRE_NAME_BYTES];
        struct pl_err err;
        struct pl_buf text;
        snprintf(name, sizeof name, "deployed:%zu", i);
        int fd = pl_held_take(held, name);
        s->more->deployed = fd != -1;
        if (fd != -1) close(fd);
        pl_fallback_adopt(s, held);
        snprintf(name, sizeof name, "desc:%zu", i);
        fd = pl_held_take(held, name);
        if (fd == -1) continue;
        pl_buf_init(&text, PL_DESCRIBE_BYTES + 1);
        if (pl_held_read(fd, &text)) s->more->description = pl_description_parse(text.data, text.len, &err);
        pl_buf_free(&text);
        if (s->more->description == NULL) continue;
        pl_description_apply(s->more->description, c->app->config, i, NULL, 0);
        s->described = true;
        c->hooks.described(c->hooks.ctx, s);
        pl_depend_take(s, held);
    }
}

/* --- the loop's side */

struct pl_worker *pl_crew_by_generation(struct pl_crew *c, uint64_t generation) {
    for (size_t i = 0; i < c->every_count && generation != 0; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->generation == generation) return w;
    return NULL;
}

void pl_crew_news(struct pl_crew *c, struct pl_wire_message *m) {
    struct pl_worker *w = NULL;
    bool withdrawn = m->head.kind == PL_WIRE_WITHDRAWN;
    bool of_generation = withdrawn || (m->head.kind >= PL_WIRE_RUNNING && m->head.kind <= PL_WIRE_STUCK);
    if (of_generation && c->left) {
        pl_crew_watch(c, &m->exit);
        return;
    }
    if (of_generation && c->resting) {
        pl_crew_keep_news(c, m);
        return;
    }
    if (withdrawn) return; /* by us */
    if (of_generation && (pl_watcher_news(c, m) || pl_zygote_news(c, m) || pl_ahead_news(c, m))) return;
    switch (m->head.kind) {
    case PL_WIRE_RUNNING:
        w = pl_crew_by_generation(c, m->exit.generation);
        if (w == NULL) break;
        pl_spawn_running(w, &m->exit);
        pl_life_feed(w, PL_WEV_SPAWNED);
        break;
    case PL_WIRE_EXITED:
        w = pl_crew_by_generation(c, m->exit.generation);
        if (w != NULL) pl_life_exited(w, &m->exit);
        break;
    case PL_WIRE_GONE:
        w = pl_crew_by_generation(c, m->exit.generation);
        if (w != NULL) pl_life_gone(w, &m->exit);
        if (w == NULL) forget_stranger(c, m->exit.generation);
        break;
    case PL_WIRE_STUCK:
        w = pl_crew_by_generation(c, m->exit.generation);
        if (w == NULL) break;
        pl_log(c->app->log, PL_ERROR, "worker.stuck", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_INT("pid", w->pid),
               F_STR("remedy",
                     "SIGKILL had no effect for 30 s: look for a driver fault, or a debugger that holds it"));
        pl_life_feed(w, PL_WEV_UNREAPED);
        pl_life_stuck(w);
        break;
    default:
        if (c->on_keeper_news != NULL) c->on_keeper_news(c->ctx, m);
        break;
    }
}

static void on_news(void *ctx, struct pl_wire_message *m) { pl_crew_news(ctx, m); }

static bool all_gone(const struct pl_crew *c) {
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (w->state != PL_WORKER_STUCK) return false;
    return true;
}

/* Dependencies go when nobody is left that calls them. */
static void stop_workers(struct pl_crew *c) {
    for (size_t i = 0; i < c->every_count; i++) {
        const struct pl_service *s = c->every[i];
        if (pl_depend_is(s) && !pl_depend_may_stop(s)) continue;
        for (struct pl_worker *w = s->workers, *next; w != NULL; w = next) {
            next = w->next;
            bool waits = w->state == PL_WORKER_BACKOFF || w->state == PL_WORKER_FAILED;
            if (waits || w->state < PL_WORKER_STOPPING) pl_life_feed(w, PL_WEV_STOP);
        }
    }
}

static void on_tick(uv_timer_t *t) {
    struct pl_crew *c = t->data;
    uint64_t now = pl_crew_now(c);
    pl_watcher_tick(c, now);
    pl_devices_tick(c, now);
    pl_zygote_tick(c, now);
    pl_ahead_tick(c, now);
    pl_planned_tick(c, now);
    pl_life_tick(c, now);
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) pl_accounts_take(w, now);
    if (now - c->metered_ms >= 1000) {
        c->metered_ms = now;
        pl_meters_tick(c, now);
        pl_devices_meters(c, now);
        pl_guard_tick(c, now);
        pl_last_life_tick(c, now);
    }
    if (c->stopping) stop_workers(c);
    if (c->stopping && !c->stopped && all_gone(c)) {
        c->stopped = true;
        c->on_stopped(c->ctx);
    }
}

void pl_crew_run(struct pl_crew *c) { uv_timer_start(&c->tick, on_tick, PL_CREW_TICK_MS, PL_CREW_TICK_MS); }

bool pl_crew_start(struct pl_crew *c, const struct pl_crew_hooks *hooks, struct pl_held_list *held,
                   struct pl_err *err) {
    static struct pl_wire_message q, a;
    struct pl_wire_item *items = NULL;
    int(*fds)[2] = NULL;
    size_t count = 0;
    uint64_t after = 0;
    c->hooks = *hooks;
    if (!pl_spawn_give_folders(c, err)) return false;
    for (;;) {
        struct pl_err end;
        pl_wire_init(&q, PL_WIRE_LIST, sizeof q.list, 0);
        q.list.what = PL_LIST_GENERATIONS;
        q.list.after = after;
        if (!pl_link_ask(c->link, &q, PL_WIRE_ITEM, &a, &end)) break;
        after = a.item.generation;
        struct pl_wire_item *more = realloc(items, (count + 1) * sizeof *items);
        int(*more_fds)[2] = realloc(fds, (count + 1) * sizeof *fds);
        if (more != NULL) items = more;
        if (more_fds != NULL) fds = more_fds;
        if (more == NULL || more_fds == NULL || a.fd_count != 2) {
            pl_wire_close_fds(&a);
            continue;
        }
        items[count] = a.item;
        fds[count][0] = a.fds[0];
        fds[count][1] = a.fds[1];
        count++;
    }
    if (!pl_link_run(c->link, c->app->loop, on_news, c, err)) return false;
    take_descriptions(c, held);
    for (size_t i = 0; i < c->service_count; i++) pl_kept_load(&c->services[i], held);
    for (size_t i = 0; i < c->service_count; i++) pl_host_room_load(&c->services[i]);
    c->adopting =
        true; /* one that is GONE must not be followed by a start: its successor may be next in line */
    for (size_t i = 0; i < count; i++)
        adopt(c, &items[i], fds[i][0], fds[i][1], held_control(c, held, items[i].generation));
    c->adopting = false;
    free(fds);
    size_t workers = 0;
    for (size_t i = 0; i < count; i++) workers += items[i].generation < PL_WIRE_FIRST_ASIDE;
    free(items);
    if (workers > 0) pl_log(c->app->log, PL_INFO, "main.adopted", F_INT("workers", workers));
    pl_host_begin(c);
    pl_last_life_begin(c);
    for (size_t i = 0; i < c->every_count; i++) {
        pl_replace_resume(c->every[i]);
        pl_life_ready_changed(c->every[i]);
        pl_life_tend(c->every[i], pl_crew_now(c));
    }
    pl_watcher_start(c);
    uv_timer_init(c->app->loop, &c->tick);
    c->tick.data = c;
    pl_crew_run(c);
    return true;
}

void pl_crew_reconfigured(struct pl_crew *c) {
    PL_ASSERT(c->app->config->service_count == c->service_count);
    for (size_t i = 0; i < c->service_count; i++) {
        c->services[i].config = &c->app->config->services[i];
        pl_depend_reconfigured(&c->services[i]);
        pl_kept_reapply(&c->services[i]); /* what an operator said outlives a reload */
    }
    pl_watcher_reconfigured(c);
}

void pl_crew_stop(struct pl_crew *c) {
    c->stopping = true;
    stop_workers(c);
}

void pl_crew_close(struct pl_crew *c) {
    uv_timer_stop(&c->tick);
    pl_planned_close(c);
}

/* --- questions */

size_t pl_crew_service_count(const struct pl_crew *c) { return c->service_count; }
struct pl_service *pl_crew_service(struct pl_crew *c, size_t i) {
    return &c->services[i];
}

struct pl_service *pl_crew_find(struct pl_crew *c, const char *name, size_t len) {
    for (size_t i = 0; i < c->every_count; i++) {
        const char *id = c->every[i]->config->id;
        if (strlen(id) == len && memcmp(id, name, len) == 0) return c->every[i];
    }
    return NULL;
}

struct pl_worker *pl_service_pick(struct pl_service *s) {
    struct pl_worker *best = NULL;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && (best == NULL || w->in_flight < best->in_flight)) best = w;
    return best;
}

uint32_t pl_crew_streams(const struct pl_crew *c) {
    uint32_t count = 0;
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) count += w->streams;
    return count;
}

uint32_t pl_service_ready_count(const struct pl_service *s) {
    uint32_t count = 0;
    if (pl_depend_failed(s)) return 0;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) count += w->routable;
    return count;
}

bool pl_service_lasts(const struct pl_service *s) {
    if (pl_depend_failed(s)) return false;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && !w->withdrawn) return true;
    return false;
}

bool pl_service_failed(const struct pl_service *s) {
    bool any = false;
    if (pl_depend_failed(s)) return true;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->state == PL_WORKER_GONE) continue;
        if (w->state != PL_WORKER_FAILED) return false;
        any = true;
    }
    return any;
}

uint64_t pl_service_boot_left_ms(const struct pl_service *s, uint64_t now_ms) {
    uint64_t least = 0;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        uint64_t left = 0;
        if (w->state >= PL_WORKER_SPAWNING && w->state < PL_WORKER_READY)
            left = pl_boot_left_ms(s->boot_ms, now_ms - w->more->time.spawned);
        else if (w->state == PL_WORKER_READY && w->more->unready_ms != 0)
            left = pl_boot_left_ms(s->boot_ms, now_ms - w->more->unready_ms);
        else if (w->state == PL_WORKER_BACKOFF && s->more->slots[w->slot - 1].retry_at_ms > now_ms)
            left = s->more->slots[w->slot - 1].retry_at_ms - now_ms + s->boot_ms;
        if (left != 0 && (least == 0 || left < least)) least = left;
    }
    return least != 0 ? least : s->boot_ms;
}

/* --- the gateway's counts */

void pl_worker_begin(struct pl_worker *w) {
    uint64_t now = pl_crew_now(w->service->crew);
    w->in_flight++;
    pl_guard_busy(w->service, 1, now);
    if (w->more->time.first_request != 0) return;
    w->more->time.first_request = now;
    w->more->time.first_began_us = pl_now_us();
}

static uint64_t first_took_us(const struct pl_worker *w, uint64_t now) {
    const struct pl_timeline *t = &w->more->time;
    uint64_t us = t->first_began_us != 0 ? pl_now_us() - t->first_began_us : (now - t->first_request) * 1000;
    return us != 0 ? us : 1; /* 0 would say that there was none */
}

void pl_worker_end(struct pl_worker *w, bool ok) {
    PL_ASSERT(w->in_flight > 0);
    uint64_t now = pl_crew_now(w->service->crew);
    w->in_flight--;
    w->served++;
    pl_guard_busy(w->service, -1, now);
    if (ok) {
        w->more->proof_ms = w->more->real_ms = now;
        pl_silence_sign(&w->more->silence);
    }
    if (ok && !w->more->first_told) {
        w->more->first_told = true;
        w->more->time.first_request_us = first_took_us(w, now);
        double took_s = (double)w->more->time.first_request_us / 1e6;
        pl_series_set(
            pl_series(w->service->crew->app->metrics, PL_M_FIRST_REQUEST_SECONDS, w->service->config->id),
            took_s);
        if (!w->more->adopted)
            pl_log(w->service->crew->app->log, PL_INFO, "worker.first_request",
                   F_STR("service", w->service->config->id), F_INT("worker", w->slot),
                   F_INT("generation", w->generation), F_REAL("took_ms", took_s * 1000));
    }
    if (w->state == PL_WORKER_DRAINING && pl_life_drained(w)) pl_life_feed(w, PL_WEV_DRAINED);
}

void pl_worker_zombies(struct pl_worker *w, int change) {
    w->more->zombies += change;
    PL_ASSERT(w->more->zombies >= 0);
}

void pl_worker_refused(struct pl_worker *w) { pl_probe_lost(w); }
