/* spawn.c - one generation comes to be: its listener, its folders, its recipe, the order to the keeper. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/tree.h"
#include "crew/zygote.h"
#include "plimsoll/shm.h"
#include "worker/devices.h"
#include "worker/recipe.h"

extern char **environ;

enum {
    RECIPE_ARENA_BYTES = 4 << 20,
    UPSTREAM_KEEP_ALIVE_S = 3600, /* uvicorn keeps connections longer than our pool ever does */
};

/* To the workers' user, if they have one of their own. */
static bool give(const struct pl_crew *c, const char *path, struct pl_err *err) {
    const struct pl_user *u = c->worker_user;
    if (u == NULL || lchown(path, u->uid, u->gid) == 0) return true;
    return PL_FAIL_SYS(err, errno, "give %s to %s", path, u->name);
}

bool pl_spawn_give_folders(const struct pl_crew *c, struct pl_err *err) {
    static const struct {
        const char *name;
        bool theirs; /* else they pass through to their own */
    } folders[] = { { "w", true }, { "snap", true }, { "prom", false }, { "tmp", false } };
    char path[160];
    for (size_t i = 0; c->worker_user != NULL && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", c->run_dir, folders[i].name);
        if (folders[i].theirs && !give(c, path, err)) return false;
        if (!folders[i].theirs && chmod(path, 0711) == -1) return PL_FAIL_SYS(err, errno, "chmod %s", path);
    }
    return true;
}

int pl_spawn_listen(const struct pl_crew *c, const char *path, struct pl_err *err) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t n = strlen(path);
    if (n >= sizeof address.sun_path) {
        PL_FAIL(err, PL_E_SYS, "socket path %s is longer than %zu bytes", path, sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd != -1 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 2048) == 0) {
        if (give(c, path, err)) return fd;
        close(fd);
        return -1;
    }
    PL_FAIL_SYS(err, errno, "listen on %s", path);
    if (fd != -1) close(fd);
    return -1;
}

static bool make_folder(char *path, size_t room, const struct pl_crew *c, const char *kind, const char *id,
                        struct pl_err *err) {
    snprintf(path, room, "%s/%s/%s", c->run_dir, kind, id);
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return give(c, path, err);
    return PL_FAIL_SYS(err, errno, "make %s", path);
}

int pl_spawn_recipe(const struct pl_recipe *r, struct pl_err *err) {
    struct pl_buf text;
    struct pl_recipe_head head = { .argc = r->argc, .envc = r->envc };
    pl_buf_init(&text, (size_t)1 << 20);
    bool ok = pl_buf_add(&text, &head, sizeof head) && pl_buf_add(&text, r->folder, strlen(r->folder) + 1);
    for (uint32_t i = 0; ok && i < r->argc; i++) ok = pl_buf_add(&text, r->argv[i], strlen(r->argv[i]) + 1);
    for (uint32_t i = 0; ok && i < r->envc; i++) ok = pl_buf_add(&text, r->envp[i], strlen(r->envp[i]) + 1);
    int fd = ok ? pl_memfd_of("plimsoll-recipe", text.data, text.len) : -1;
    if (!ok)
        PL_FAIL(err, PL_E_TOO_LARGE, "argv and environment of the worker are over 1 MiB");
    else if (fd == -1)
        PL_FAIL_SYS(err, errno, "recipe of the worker");
    pl_buf_free(&text);
    return fd;
}

/* The worker's page is mapped read-only; sizes are checked once, in sample/page.c. */
void pl_spawn_shared(struct pl_worker *w, int page_fd, int ring_fd) {
    struct stat st;
    struct pl_err err;
    PL_AUTO_FD int page = page_fd;
    PL_AUTO_FD int ring = ring_fd;
    if (w->service->kind == PL_KIND_COMMAND && page != -1) w->more->page_fd = fcntl(page, F_DUPFD_CLOEXEC, 3);
    if (fstat(page, &st) == 0 && st.st_size > 0) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, page, 0);
        if (at != MAP_FAILED) {
            w->more->page_bytes = (size_t)st.st_size;
            if (!pl_page_open(&w->page, at, (size_t)st.st_size, &err))
                pl_log(w->service->crew->app->log, PL_WARN, "worker.degraded",
                       F_STR("service", w->service->config->id), F_STR("worker", pl_worker_label(w)),
                       F_STR("feature", "page"), F_STR("reason", err.msg));
        }
    }
    if (!pl_ring_open(&w->more->ring, ring)) w->more->ring = (struct pl_ring){ 0 };
}

static void never_spawned(struct pl_worker *w);

static void tell_spawned(struct pl_worker *w) {
    w->more->spawn_told = true;
    pl_zygote_counted(w);
    pl_log(w->service->crew->app->log, PL_INFO, "worker.spawned", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_INT("pid", w->pid),
           F_STR("way", pl_way_name(w->more->way)));
}

void pl_spawn_running(struct pl_worker *w, const struct pl_wire_exit *e) {
    if (e->exec_errno != 0) return;
    w->pid = (pid_t)e->pid;
    w->more->way = e->exec_step;
    if (!w->more->spawn_told && !w->more->adopted && w->pid != 0) tell_spawned(w);
}

static void on_spawned(void *ctx, struct pl_wire_message *reply) {
    struct pl_worker *w = ctx;
    struct pl_crew *c = w->service->crew;
    if (reply->head.kind != PL_WIRE_SPAWNED || reply->fd_count != 2) {
        int error = reply->head.kind == PL_WIRE_REFUSED ? (int)reply->refused.error : EPROTO;
        snprintf(w->more->problem, sizeof w->more->problem, "the keeper refused: %s", strerror(error));
        never_spawned(w);
        return;
    }
    w->generation = reply->spawned.generation;
    w->pid = (pid_t)reply->spawned.pid;
    reply->fd_count = 0;
    pl_spawn_shared(w, reply->fds[0], reply->fds[1]);
    if (w->more->control != NULL) {
        char name[PL_WIRE_NAME_BYTES];
        uv_os_fd_t fd;
        snprintf(name, sizeof name, "ctl:%llu", (unsigned long long)w->generation);
        if (uv_fileno((uv_handle_t *)w->more->control, &fd) == 0) pl_hold(c, name, fd);
    }
    if (w->pid != 0 && w->more->zygote_asked == 0) tell_spawned(w);
    if (w->state == PL_WORKER_STOPPING) pl_life_order_stop(w); /* it was told to stop before it was there */
}

/* Which GPUs: of main's own environment, which bounds them. */
static bool choose_devices(const struct pl_service *s, uint32_t slot, char out[PL_DEVICES_TEXT],
                           const char **gpus, struct pl_err *err) {
    bool told;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!pl_devices_of(s->config, visible, slot, out, &told, err)) return false;
    *gpus = told ? out : NULL;
    return true;
}

bool pl_spawn_build(struct pl_service *service, const struct pl_spawn_place *place, struct pl_arena *a,
                    struct pl_recipe *r, struct pl_err *err) {
    static char prom[160], tmp[160], agents[160], devices[PL_DEVICES_TEXT], jit[512];
    struct pl_crew *c = service->crew;
    const struct pl_service_config *s = service->config;
    const char *gpus = NULL;
    snprintf(agents, sizeof agents, "%s/agents.sock", c->run_dir);
    const struct pl_apart *apart = service->more->apart;
    /* Who answers on a shared socket cannot be chosen, so each answers for all: one folder, as in BentoML. */
    const char *metrics = apart != NULL ? strrchr(apart->socket_path, '/') + 1 : place->id;
    if (!make_folder(prom, sizeof prom, c, "prom", metrics, err)) return false;
    if (!make_folder(tmp, sizeof tmp, c, "tmp", place->id, err)) return false;
    if (!choose_devices(service, place->slot, devices, &gpus, err)) return false;
    pl_caches_prepare(service, place->slot, jit, sizeof jit);
    const struct pl_user *u = c->worker_user;
    const struct pl_recipe_facts facts = {
        .user = u != NULL ? u->name : NULL,
        .home = u != NULL ? u->home : NULL,
        .python = s->python,
        .python_path = c->python_path,
        .folder = s->working_dir,
        .ident = s->run,
        .prom_dir = prom,
        .tmp_dir = tmp,
        .jit_dir = jit[0] != '\0' ? jit : NULL,
        .gpus = gpus,
        .socket = place->socket,
        .port = place->port,
        .engine = c->llama_path,
        .legacy_ident = service->more->as_command ? s->run : NULL,
        .agents = agents,
        .dependency = apart != NULL ? apart->name : NULL,
        .worker = place->slot,
        .keep_alive_s = UPSTREAM_KEEP_ALIVE_S,
        .graceful_stop_s = (pl_life_patience_ms(service) + 999) / 1000,
    };
    if (service->kind == PL_KIND_COMMAND)
        return pl_recipe_command(c->app->config, s, &facts, environ, a, r, err);
    if (service->kind == PL_KIND_LLAMA) return pl_recipe_llama(c->app->config, s, &facts, environ, a, r, err);
    return pl_recipe_python(c->app->config, s, &facts, environ, a, r, err);
}

void pl_spawn_as_worker(const struct pl_service *s, struct pl_wire_message *m) {
    const struct pl_user *u = s->crew->worker_user;
    if (u != NULL) {
        m->spawn.flags |= PL_SPAWN_USER;
        m->spawn.uid = u->uid;
        m->spawn.gid = u->gid;
    }
    m->spawn.stop_signal = SIGTERM;
    m->spawn.stop_ms = (uint32_t)s->config->stop_timeout_ms;
    m->spawn.oom_score_adj = (int32_t)s->config->oom_score_adj;
}

static void fill_order(struct pl_worker *w, const struct pl_recipe *r, struct pl_wire_message *m) {
    const struct pl_service_config *s = w->service->config;
    pl_wire_init(m, PL_WIRE_SPAWN, sizeof m->spawn, 0);
    m->spawn.recipe_hash = pl_recipe_hash(r);
    m->spawn.flags = w->service->kind == PL_KIND_PYTHON  ? PL_SPAWN_LISTENER | PL_SPAWN_CONTROL
                     : w->service->kind == PL_KIND_LLAMA ? PL_SPAWN_LISTENER
                                                         : 0;
    pl_spawn_as_worker(w->service, m);
    m->spawn.page_bytes = PL_PAGE_BYTES;
    m->spawn.ring_bytes = PL_CREW_RING_BYTES;
    m->spawn.zygote = w->more->zygote_asked = pl_zygote_for(w, w->more->family);
    /* Who it is, for a main that dies before it leaves a note: index, slot and port; the rest is for people.
     * Of a dependency: index, slot, number, and the name of its folders, since its socket is not its own. */
    const struct pl_apart *apart = w->service->more->apart;
    if (apart != NULL) {
        m->spawn.stop_rank = apart->rank;
        snprintf(m->spawn.name, sizeof m->spawn.name, "%u.%u.%u %.15s", w->service->index, w->slot,
                 apart->number, w->more->id);
        return;
    }
    snprintf(m->spawn.name, sizeof m->spawn.name, "%u.%u:%u %.20s", w->service->index, w->slot,
             pl_places_port(w), s->id);
    snprintf(m->spawn.socket_name, sizeof m->spawn.socket_name, "w/%s", w->more->id);
}

/* What only our own workers are given: a listener, and the launcher a control socket. The listener exists
 * before the worker: a probe written into it waits there. Our copy is closed at once, so that a dead worker
 * refuses. */
static bool open_sockets(struct pl_worker *w, struct pl_wire_message *m, int *listener, int *theirs,
                         struct pl_err *err) {
    int pair[2];
    bool python = w->service->kind == PL_KIND_PYTHON;
    if (!python && w->service->kind != PL_KIND_LLAMA) return true;
    const struct pl_apart *apart = w->service->more->apart;
    if (apart == NULL) *listener = pl_spawn_listen(w->service->crew, w->to.at.un.sun_path, err);
    if (apart == NULL && *listener == -1) return false;
    if (!python) {
        m->fds[1] = *listener;
        m->fd_count = 2;
        return true;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == -1)
        return PL_FAIL_SYS(err, errno, "control socket");
    *theirs = pair[1];
    if (!pl_control_open(w, pair[0])) return PL_FAIL(err, PL_E_NOMEM, "control socket: out of memory");
    m->fds[1] = apart != NULL ? apart->listener : *listener; /* of a dependency: the one that all share */
    m->fds[2] = *theirs;
    m->fd_count = 3;
    return true;
}

static bool build(struct pl_worker *w, struct pl_arena *a, struct pl_recipe *r, struct pl_err *err) {
    const struct pl_spawn_place place = { .id = w->more->id,
                                          .slot = w->slot,
                                          .socket = pl_dial_is_tcp(&w->to) ? NULL : w->to.at.un.sun_path,
                                          .port = pl_places_port(w) };
    bool ok = pl_spawn_build(w->service, &place, a, r, err);
    w->more->cache_empty = w->service->more->caches.empty;
    return ok;
}

/* What is really executed, with what the preset has added. */
static void tell_command(const struct pl_worker *w, const struct pl_recipe *r) {
    char words[1000];
    pl_recipe_say(r, words, sizeof words);
    pl_log(w->service->crew->app->log, PL_INFO, "worker.command", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_STR("message", words));
}

bool pl_spawn(struct pl_worker *w, struct pl_err *err) {
    struct pl_crew *c = w->service->crew;
    struct pl_arena arena;
    struct pl_recipe recipe;
    struct pl_wire_message m;
    if (w->service->kind == PL_KIND_REMOTE) {
        w->more->time.spawned = pl_crew_now(c);
        pl_remote_start(w);
        return true;
    }
    snprintf(w->more->id, sizeof w->more->id, "%llx-%llx", (unsigned long long)c->welcome.main_id,
             (unsigned long long)++c->sequence);
    pl_arena_init(&arena, RECIPE_ARENA_BYTES);
    bool ok = pl_places_choose(w, err) && build(w, &arena, &recipe, err);
    if (ok && w->service->kind == PL_KIND_COMMAND) tell_command(w, &recipe);
    PL_AUTO_FD int recipe_fd = ok ? pl_spawn_recipe(&recipe, err) : -1;
    PL_AUTO_FD int listener = -1;
    PL_AUTO_FD int theirs = -1;
    ok = ok && recipe_fd != -1;
    if (ok && w->service->kind == PL_KIND_PYTHON) w->more->family = pl_recipe_family(&recipe);
    if (ok && !w->more->waits_ahead && pl_ahead_must_wait(w)) {
        w->more->waits_ahead = true; /* and is made anew then: things may have changed */
        w->more->time.spawned = pl_crew_now(c);
        pl_arena_free(&arena);
        return true;
    }
    w->more->waits_ahead = false;
    if (ok) fill_order(w, &recipe, &m);
    pl_arena_free(&arena);
    if (!ok) return false;
    m.fds[0] = recipe_fd;
    m.fd_count = 1;
    if (!open_sockets(w, &m, &listener, &theirs, err)) return false;
    w->more->time.spawned = pl_crew_now(c);
    if (!pl_link_order(c->link, &m, on_spawned, w))
        return PL_FAIL(err, PL_E_NOMEM, "order a spawn: out of memory");
    return true;
}

static void never_spawned(struct pl_worker *w) {
    const struct pl_wire_exit e = { 0 };
    w->more->never_spawned = true;
    pl_life_exited(w, &e);
    pl_life_gone(w, &e);
}

void pl_spawn_go_on(struct pl_worker *w) {
    struct pl_err err;
    if (!w->more->waits_ahead) return;
    if (w->state == PL_WORKER_SPAWNING && pl_spawn(w, &err)) return;
    w->more->waits_ahead = false;
    if (w->state == PL_WORKER_SPAWNING) snprintf(w->more->problem, sizeof w->more->problem, "%s", err.msg);
    never_spawned(w); /* or it was told to stop meanwhile */
}

/* --- its folders go when it is gone: a big TMPDIR must not hold up the loop */

struct cleaning {
    uv_work_t work;
    int run_fd;
    char id[PL_CREW_ID_BYTES];
};

static void clean_now(uv_work_t *work) {
    struct cleaning *k = work->data;
    static const char *const kinds[] = { "prom", "tmp" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int fd = pl_tree_open(k->run_fd, kinds[i]);
        if (fd == -1) continue;
        pl_tree_remove(fd, k->id);
        close(fd);
    }
}

static void cleaned(uv_work_t *work, int status) {
    struct cleaning *k = work->data;
    (void)status;
    close(k->run_fd);
    free(k);
}

void pl_spawn_clean(struct pl_worker *w) {
    struct pl_crew *c = w->service->crew;
    struct cleaning *k = calloc(1, sizeof *k);
    if (k == NULL) return; /* the keeper empties the run folder at its end */
    k->run_fd = open(c->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(k->id, w->more->id, sizeof k->id);
    k->work.data = k;
    if (k->run_fd == -1 || uv_queue_work(c->app->loop, &k->work, clean_now, cleaned) != 0) {
        if (k->run_fd != -1) close(k->run_fd);
        free(k);
    }
}
