#include "crew/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/look.h"
#include "crew/shelf.h"
#include "sample/zygote.h"
#include "worker/recipe.h"

enum {
    RING_BYTES = 65536,
    STOP_MS = 2000,
    ARENA_BYTES = 4 << 20,
    WORTH_MS = 300, /* imports that take less CPU are not worth a process */
    PATIENCE_MS = 30000,
    BACKOFF_MS = 30000,
    BACKOFF_MOST_MS = 3600000,
    RELAX_MS = 60000, /* after memory was short */
    REFUSALS = 3,
    RECORD_BYTES = 1 << 20
};

struct pl_zygote {
    uint64_t generation; /* 0: there is none */
    pid_t pid;
    uint64_t family; /* of the workers it is for */
    bool spawning, ending, asking, told;
    uint64_t started_ms, ready_ms, retry_at_ms,
        not_of_before_ms; /* a record is made by a worker spawned later */
    uint32_t failures, refusals;
    struct pl_ring ring;
    const void *page;
    size_t page_bytes;
    struct pl_zygote_page now;
    uint64_t pss; /* with its standby; 0: not known */
    /* the record, if it was made in this life */
    char *record;
    size_t record_len;
    uint64_t record_family;
    uint64_t given_up; /* family that it does not work for, or is not worth it */
    char reason[240], module[120];
    bool would_told;
};

static struct pl_logger *log_of(const struct pl_service *s) { return s->crew->app->log; }

static const char *const ways[] = { "standby", "fork", "exec", "refused" };

const char *pl_way_name(uint32_t way) {
    return way == PL_WAY_STANDBY ? ways[0] : way == PL_WAY_FORK ? ways[1] : ways[2];
}

void pl_zygote_init(const struct pl_service *s) {
    struct pl_metrics *m = s->crew->app->metrics;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        pl_series(m, PL_M_ZYGOTE_SPAWNS_TOTAL, s->config->id, ways[i]);
    pl_series(m, PL_M_WOULD_TOTAL, s->config->id, "stop_zygote", "pressure");
}

void pl_zygote_counted(const struct pl_worker *w) {
    const struct pl_service *s = w->service;
    if (s->kind != PL_KIND_PYTHON) return;
    const char *way = w->more->way == PL_WAY_REFUSED ? "refused" : pl_way_name(w->more->way);
    pl_series_add(pl_series(s->crew->app->metrics, PL_M_ZYGOTE_SPAWNS_TOTAL, s->config->id, way), 1);
}

static struct pl_zygote *zygote_of(struct pl_service *s) {
    if (s->more->zygote == NULL) s->more->zygote = calloc(1, sizeof *s->more->zygote);
    return s->more->zygote;
}

/* --- its page */

static void drop_page(struct pl_zygote *z) {
    if (z->page != NULL) munmap((void *)(uintptr_t)z->page, z->page_bytes);
    z->page = NULL;
    pl_ring_close(&z->ring);
    z->now = (struct pl_zygote_page){ .state = PL_ZYGOTE_NOTHING };
}

static void take_page(struct pl_zygote *z, int page_fd, int ring_fd) {
    PL_AUTO_FD int page = page_fd;
    PL_AUTO_FD int ring = ring_fd;
    struct stat st;
    drop_page(z);
    if (!pl_ring_open(&z->ring, ring)) z->ring = (struct pl_ring){ 0 };
    if (fstat(page, &st) != 0 || st.st_size <= 0) return;
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, page, 0);
    if (at == MAP_FAILED) return;
    z->page = at;
    z->page_bytes = (size_t)st.st_size;
}

/* --- its end */

static void send_signal(struct pl_service *s, int signal, uint32_t kill_ms) {
    pl_crew_signal(s->crew, s->more->zygote->generation, signal, kill_ms);
}

static void end_it(struct pl_service *s) {
    struct pl_zygote *z = s->more->zygote;
    if (z->generation == 0 || z->ending) return;
    z->ending = true;
    send_signal(s, SIGTERM, STOP_MS);
}

static void stop(struct pl_service *s, const char *reason) {
    struct pl_zygote *z = s->more->zygote;
    if (z->ending) return;
    pl_log(log_of(s), PL_INFO, "zygote.stopped", F_STR("service", s->config->id), F_STR("reason", reason));
    snprintf(z->reason, sizeof z->reason, "%s", reason);
    z->module[0] = '\0';
    end_it(s);
}

static bool record_path(const struct pl_crew *c, uint64_t family, char *out, size_t room) {
    if (c->state_dir == NULL) return false;
    int n = snprintf(out, room, "%s/zygote/%016llx.json", c->state_dir, (unsigned long long)family);
    return n > 0 && (size_t)n < room;
}

/* One that was made in this life is of a worker that is still there: the next has to come first. */
static void drop_record(struct pl_service *s) {
    struct pl_zygote *z = s->more->zygote;
    char path[512];
    if (z->record != NULL) z->not_of_before_ms = z->started_ms;
    free(z->record);
    z->record = NULL;
    if (record_path(s->crew, z->family, path, sizeof path)) unlink(path);
}

static void refused(struct pl_service *s, const char *reason, const char *module) {
    struct pl_zygote *z = s->more->zygote;
    z->told = true;
    snprintf(z->reason, sizeof z->reason, "%s", reason);
    snprintf(z->module, sizeof z->module, "%s", module);
    if (++z->refusals >= REFUSALS) z->given_up = z->family;
    pl_log(log_of(s), PL_INFO, "zygote.refused", F_STR("service", s->config->id), F_STR("reason", reason),
           F_STR("module", module));
    drop_record(s);
    end_it(s);
}

void pl_zygote_unfit(struct pl_worker *w, const char *reason) {
    struct pl_service *s = w->service;
    struct pl_zygote *z = s->more->zygote;
    w->more->way = PL_WAY_EXEC;
    if (z == NULL || z->generation == 0 || z->ending || z->family != w->more->family) return;
    refused(s, reason, "");
}

static void ended(struct pl_service *s, const struct pl_wire_exit *e) {
    struct pl_zygote *z = s->more->zygote;
    char how[80];
    uint64_t now = pl_crew_now(s->crew);
    pl_zygote_read(z->page, z->page_bytes, &z->now);
    if (z->now.state == PL_ZYGOTE_REFUSED && !z->told) refused(s, z->now.reason, z->now.module);
    if (z->ending || s->crew->stopping) return;
    z->failures++;
    z->retry_at_ms = now + pl_backoff_ms(BACKOFF_MS, BACKOFF_MOST_MS, z->failures);
    if (e->exec_errno != 0)
        snprintf(how, sizeof how, "could not be run: %s", strerror((int)e->exec_errno));
    else if (WIFSIGNALED(e->status))
        snprintf(how, sizeof how, "ended by SIG%s", sigabbrev_np(WTERMSIG(e->status)));
    else
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(e->status));
    snprintf(z->reason, sizeof z->reason, "%s", how);
    pl_log(log_of(s), PL_INFO, "zygote.stopped", F_STR("service", s->config->id), F_STR("reason", how));
}

static void gone(struct pl_service *s) {
    struct pl_zygote *z = s->more->zygote;
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_FORGET, sizeof m.forget, 0);
    m.forget.generation = z->generation;
    pl_link_order(s->crew->link, &m, NULL, NULL);
    drop_page(z);
    z->generation = 0;
    z->pid = 0;
    z->pss = 0;
    z->ending = false;
    pl_series_set(pl_series(s->crew->app->metrics, PL_M_ZYGOTE_PSS_BYTES, s->config->id), 0);
}

bool pl_zygote_news(struct pl_crew *c, const struct pl_wire_message *m) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_zygote *z = c->every[i]->more->zygote;
        if (z == NULL || z->generation == 0 || z->generation != m->exit.generation) continue;
        if (m->head.kind == PL_WIRE_EXITED) ended(c->every[i], &m->exit);
        if (m->head.kind == PL_WIRE_GONE) gone(c->every[i]);
        return true;
    }
    return false;
}

/* --- the record */

/* {"ok":true,"record":"...","modules":1157,"cpu_ms":760}; what "record" holds is between the launcher and the
 * zygote. */
static void on_imports(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    struct pl_service *s = ctx;
    struct pl_zygote *z = s->more->zygote;
    json_t *said = line != NULL && len <= RECORD_BYTES ? json_loadb(line, len, 0, NULL) : NULL;
    const json_t *record = json_object_get(said, "record");
    json_int_t cpu_ms = json_integer_value(json_object_get(said, "cpu_ms"));
    z->asking = false;
    if (!json_is_string(record)) {
        z->retry_at_ms = pl_crew_now(s->crew) + pl_backoff_ms(BACKOFF_MS, BACKOFF_MOST_MS, ++z->failures);
    } else if (cpu_ms < WORTH_MS) {
        z->given_up = w->more->family;
        snprintf(z->reason, sizeof z->reason, "imports take only %lld ms", (long long)cpu_ms);
    } else {
        json_t *doc =
            json_pack("{s:i,s:s,s:s,s:O,s:I,s:O}", "v", 1, "kind", "zygote", "service", s->config->id,
                      "modules", json_object_get(said, "modules"), "cpu_ms", cpu_ms, "record", record);
        free(z->record);
        z->record = doc != NULL ? json_dumps(doc, JSON_COMPACT) : NULL;
        z->record_len = z->record != NULL ? strlen(z->record) : 0;
        z->record_family = w->more->family;
        json_decref(doc);
        char name[32];
        snprintf(name, sizeof name, "%016llx.json", (unsigned long long)z->record_family);
        if (z->record != NULL) pl_shelf_write(s->crew, "zygote", name, z->record);
    }
    json_decref(said);
}

/* Descriptor of the record of this family, or -1. */
static int open_record(const struct pl_crew *c, const struct pl_zygote *z, uint64_t family) {
    char path[512];
    if (z->record != NULL && z->record_family == family)
        return pl_memfd_of("plimsoll-record", z->record, z->record_len);
    if (!record_path(c, family, path, sizeof path)) return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* --- its start */

static void name_of(const struct pl_service *s, char out[PL_WIRE_NAME_BYTES]) {
    if (pl_depend_is(s))
        snprintf(out, PL_WIRE_NAME_BYTES, "zygote %u.%u", s->index, s->more->apart->number);
    else
        snprintf(out, PL_WIRE_NAME_BYTES, "zygote %u", s->index);
}

static void on_spawned(void *ctx, struct pl_wire_message *reply) {
    struct pl_service *s = ctx;
    struct pl_zygote *z = s->more->zygote;
    z->spawning = false;
    if (reply->head.kind != PL_WIRE_SPAWNED || reply->fd_count != 2) {
        z->retry_at_ms = pl_crew_now(s->crew) + pl_backoff_ms(BACKOFF_MS, BACKOFF_MOST_MS, ++z->failures);
        return;
    }
    reply->fd_count = 0;
    z->generation = reply->spawned.generation;
    z->pid = (pid_t)reply->spawned.pid;
    take_page(z, reply->fds[0], reply->fds[1]);
}

/* Its own folders: what a library has read when it was imported stays valid for all its workers. */
static bool zygote_recipe(struct pl_service *s, struct pl_arena *a, struct pl_recipe *r, uint64_t *family,
                          struct pl_err *err) {
    char id[PL_CREW_ID_BYTES];
    if (pl_depend_is(s))
        snprintf(id, sizeof id, "z%u-%u", s->index, s->more->apart->number);
    else
        snprintf(id, sizeof id, "z%u", s->index);
    const struct pl_spawn_place place = { .id = id, .slot = 1 };
    if (!pl_spawn_build(s, &place, a, r, err)) return false;
    *family = pl_recipe_family(r);
    return pl_recipe_zygote(r, &s->config->zygote_preload, a, err);
}

static void start(struct pl_service *s, const struct pl_recipe *r, int record, uint64_t now) {
    struct pl_zygote *z = s->more->zygote;
    struct pl_wire_message m;
    struct pl_err err;
    PL_AUTO_FD int recipe = pl_spawn_recipe(r, &err);
    pl_wire_init(&m, PL_WIRE_SPAWN, sizeof m.spawn, 0);
    pl_spawn_as_worker(s, &m);
    m.spawn.recipe_hash = z->family;
    m.spawn.flags |= PL_SPAWN_ASIDE | PL_SPAWN_ZYGOTE | PL_SPAWN_LISTENER;
    m.spawn.page_bytes = PL_ZYGOTE_PAGE_BYTES;
    m.spawn.ring_bytes = RING_BYTES;
    m.spawn.stop_ms = STOP_MS;
    name_of(s, m.spawn.name);
    m.fds[0] = recipe;
    m.fds[1] = record; /* in the listener's place */
    m.fd_count = 2;
    z->started_ms = now;
    z->ready_ms = 0;
    z->told = z->ending = z->would_told = false;
    z->reason[0] = z->module[0] = '\0';
    z->spawning = recipe != -1 && pl_link_order(s->crew->link, &m, on_spawned, s);
    if (!z->spawning) z->retry_at_ms = now + pl_backoff_ms(BACKOFF_MS, BACKOFF_MOST_MS, ++z->failures);
}

/* All places have been filled for long enough. `can_tell`: a worker that can make a record, or NULL: a forked
 * one has more than it has imported. */
static bool settled(const struct pl_service *s, uint64_t now, struct pl_worker **can_tell) {
    *can_tell = NULL;
    uint32_t ready = 0;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->state != PL_WORKER_READY && w->state < PL_WORKER_STOPPING)
            return false; /* one is on its way */
        if (w->state != PL_WORKER_READY) continue;
        if (now - w->more->ready_from_ms < (uint64_t)s->config->zygote_after_ms) return false;
        ready++;
        bool fit = w->more->way == PL_WAY_EXEC || w->more->way == PL_WAY_REFUSED;
        if (fit && w->more->time.spawned >= s->more->zygote->not_of_before_ms) *can_tell = w;
    }
    return ready > 0 && ready >= pl_life_slots(s) && !s->more->replacement.active;
}

static bool is_wanted(const struct pl_service *s) {
    return s->kind == PL_KIND_PYTHON && !s->more->as_command && s->described &&
           s->config->zygote_use == PL_CFG_ZYGOTE_USE_AUTO && !s->crew->stopping &&
           s->crew->python_path != NULL;
}

/* The newest worker is of another family: its configuration has changed since. */
static bool outdated(const struct pl_service *s, uint64_t family) {
    const struct pl_worker *newest = NULL;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->state == PL_WORKER_READY) newest = w;
    return newest != NULL && newest->more->family != 0 && newest->more->family != family;
}

/* `w`: who can make a record, or NULL. */
static void begin(struct pl_service *s, struct pl_worker *w, uint64_t now) {
    struct pl_zygote *z = s->more->zygote;
    struct pl_arena arena;
    struct pl_recipe recipe;
    struct pl_err err;
    uint64_t family = 0;
    pl_arena_init(&arena, ARENA_BYTES);
    if (!zygote_recipe(s, &arena, &recipe, &family, &err)) {
        z->retry_at_ms = now + BACKOFF_MOST_MS;
    } else if (family == z->given_up || outdated(s, family)) {
        z->retry_at_ms = now + BACKOFF_MS; /* it does not work, or a new generation is to come */
    } else {
        if (w != NULL) w->more->family = family; /* an adopted worker's was not known */
        if (family != z->family) z->refusals = 0;
        z->family = family;
        PL_AUTO_FD int record = open_record(s->crew, z, family);
        if (record != -1)
            start(s, &recipe, record, now);
        else if (w != NULL)
            z->asking = pl_control_ask(w, "imports", NULL, PATIENCE_MS, on_imports, s);
        if (record == -1 && !z->asking) z->retry_at_ms = now + BACKOFF_MS;
    }
    pl_arena_free(&arena);
}

/* --- its life */

static void hear(struct pl_service *s, uint64_t now) {
    struct pl_zygote *z = s->more->zygote;
    char waste[4096];
    enum pl_zygote_state was = z->now.state;
    if (z->ring.head != NULL) /* what libraries print when they are imported */
        while (pl_ring_read(&z->ring, waste, sizeof waste) > 0) continue;
    pl_zygote_read(z->page, z->page_bytes, &z->now);
    if (z->now.state == was) return;
    if (z->now.state == PL_ZYGOTE_READY) {
        z->failures = 0;
        if (z->ready_ms == 0) z->ready_ms = now;
        pl_log(log_of(s), PL_INFO, "zygote.ready", F_STR("service", s->config->id), F_INT("pid", z->pid),
               F_INT("modules", z->now.modules), F_INT("took_ms", z->now.took_ms));
    }
    if (z->now.state == PL_ZYGOTE_REFUSED && !z->told) refused(s, z->now.reason, z->now.module);
}

/* Memory is short: it goes before a worker has to. */
static void under_pressure(struct pl_service *s, uint64_t now) {
    struct pl_zygote *z = s->more->zygote;
    z->retry_at_ms = now + RELAX_MS;
    if (z->generation == 0 || z->ending) return;
    if (s->config->mode != PL_CFG_MODE_OBSERVE) {
        stop(s, "pressure");
    } else if (!z->would_told) {
        z->would_told = true;
        pl_service_would(s, "stop_zygote", "pressure");
        pl_log(log_of(s), PL_INFO, "would.stop_zygote", F_STR("service", s->config->id),
               F_STR("reason", "pressure"));
    }
}

static void tend(struct pl_service *s, uint64_t now) {
    struct pl_zygote *z = s->more->zygote;
    if (z->generation != 0) {
        hear(s, now);
        if (!is_wanted(s))
            stop(s, "off");
        else if (outdated(s, z->family))
            stop(s, "outdated");
        else if (z->ready_ms != 0 && now - z->ready_ms >= (uint64_t)s->config->zygote_max_age_ms)
            stop(s, "age");
    }
    if (pl_host_pressed(s->crew)) under_pressure(s, now);
    if (z->generation != 0 || z->spawning || z->asking || now < z->retry_at_ms || !is_wanted(s)) return;
    struct pl_worker *can_tell;
    if (settled(s, now, &can_tell)) begin(s, can_tell, now);
}

void pl_zygote_tick(struct pl_crew *c, uint64_t now) {
    if (c->stopping) return;
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        if (s->more->zygote == NULL && (!is_wanted(s) || zygote_of(s) == NULL)) continue;
        tend(s, now);
    }
}

uint64_t pl_zygote_for(const struct pl_worker *w, uint64_t family) {
    struct pl_service *s = w->service;
    const struct pl_zygote *z = s->more->zygote;
    if (z == NULL || z->generation == 0 || z->ending || z->family != family || !is_wanted(s)) return 0;
    /* What could not be started is tried without it. */
    if (pl_life_slot(s, w->slot)->failed_starts > 0) return 0;
    return z->now.state == PL_ZYGOTE_READY ? z->generation : 0;
}

bool pl_zygote_seen(struct pl_crew *c, uint32_t pid, uint64_t pss) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        struct pl_zygote *z = s->more->zygote;
        if (z == NULL || z->generation == 0 || (uint32_t)z->pid != pid) continue;
        z->pss = pss;
        pl_series_set(pl_series(c->app->metrics, PL_M_ZYGOTE_PSS_BYTES, s->config->id), (double)pss);
        return true;
    }
    return false;
}

/* --- adoption */

bool pl_zygote_is(const struct pl_wire_item *item) { return strncmp(item->name, "zygote ", 7) == 0; }

static struct pl_service *owner_of(struct pl_crew *c, const char *name) {
    unsigned index, number;
    int count = sscanf(name, "zygote %u.%u", &index, &number);
    if (count < 1 || index >= c->service_count) return NULL;
    return count == 1 ? &c->services[index] : pl_depend_of(&c->services[index], number);
}

void pl_zygote_adopt(struct pl_crew *c, const struct pl_wire_item *item, int page_fd, int ring_fd) {
    struct pl_service *s = owner_of(c, item->name);
    struct pl_zygote *z = s != NULL ? zygote_of(s) : NULL;
    if (z == NULL || z->generation != 0) { /* nobody's: it ends, and with it its standby */
        close(page_fd);
        close(ring_fd);
        pl_crew_signal(c, item->generation, SIGKILL, 0);
        return;
    }
    z->generation = item->generation;
    z->pid = (pid_t)item->exit.pid;
    z->family = item->recipe_hash;
    z->started_ms = pl_crew_now(c) - item->age_ms;
    z->ending = item->stopping != 0;
    take_page(z, page_fd, ring_fd);
    pl_zygote_read(z->page, z->page_bytes, &z->now);
    z->ready_ms = z->now.state == PL_ZYGOTE_READY ? z->started_ms : 0;
    if (item->exit.state == PL_GEN_EXITED || item->exit.state == PL_GEN_GONE) ended(s, &item->exit);
    if (item->exit.state == PL_GEN_GONE) gone(s);
}

/* --- for people */

bool pl_look_zygote(const struct pl_service *s, uint64_t now, struct pl_look_zygote *out) {
    const struct pl_zygote *z = s->more->zygote;
    if (s->kind != PL_KIND_PYTHON || s->more->as_command) return false;
    *out = (struct pl_look_zygote){ .state = "waiting", .reason = "", .module = "" };
    if (s->config->zygote_use != PL_CFG_ZYGOTE_USE_AUTO) {
        out->state = "off";
        return true;
    }
    if (z == NULL) return true;
    out->reason = z->reason;
    out->module = z->module;
    if (z->generation != 0 && !z->ending) {
        out->state = z->now.state == PL_ZYGOTE_READY ? "ready" : "starting";
        out->pid = z->pid;
        out->modules = z->now.modules;
        out->pss = z->pss;
        out->age_ms = now - z->started_ms;
    } else if (z->told || z->given_up != 0) {
        out->state = "refused";
    }
    return true;
}
