/* ahead.c - a service's big files are read into the page cache before a worker wants them: by `plimsoll hold
 * --once`, a child of the keeper like a worker, so that the memory is charged where the worker's would be.
 *
 * Which files: read_ahead.files, and what workers have had open or mapped while they loaded. When: by exec at
 * the spawn, since the imports take longer than the disk; with a zygote there is nothing to hide behind, so a
 * planned start waits until they are there (AHEAD_MS at most); after a crash nobody waits for anything. The
 * reader itself looks first what is in memory already, which costs no I/O.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/zygote.h"
#include "worker/recipe.h"

enum { FILES = 32, LEAST_BYTES = 64 << 20, AHEAD_MS = 15000, LOOK_EVERY_MS = 500, RING_BYTES = 65536 };

struct pl_ahead {
    char *files[FILES]; /* seen; owned */
    size_t count;
    uint64_t generation; /* of the reader; 0: none */
    bool spawning;
    uint64_t until_ms; /* whoever waits goes on then */
    struct pl_ring ring;
    struct pl_look_files *looking;
    uint64_t looked_ms;
};

static struct pl_ahead *ahead_of(struct pl_service *s) {
    if (s->more->ahead == NULL) s->more->ahead = calloc(1, sizeof *s->more->ahead);
    return s->more->ahead;
}

/* --- which files: a look at a process that loads, beside the loop */

struct pl_look_files {
    uv_work_t work;
    struct pl_service *service;
    pid_t pid;
    char *files[FILES];
    size_t count;
};

static bool is_big_file(const char *path) {
    struct stat st;
    size_t n = strlen(path);
    if (path[0] != '/' || strstr(path, ".so") != NULL || (n > 10 && strcmp(path + n - 10, " (deleted)") == 0))
        return false;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= LEAST_BYTES;
}

static void add_file(char **files, size_t *count, const char *path) {
    for (size_t i = 0; i < *count; i++)
        if (strcmp(files[i], path) == 0) return;
    char *copy = *count < FILES && is_big_file(path) ? strdup(path) : NULL;
    if (copy != NULL) files[(*count)++] = copy;
}

static void look_at_maps(struct pl_look_files *k) {
    char path[64], line[4500], last[4500] = "";
    snprintf(path, sizeof path, "/proc/%d/maps", (int)k->pid);
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *name = strchr(line, '/');
        if (name == NULL) continue;
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, last) == 0) continue; /* a file has several mappings in a row */
        snprintf(last, sizeof last, "%s", name);
        add_file(k->files, &k->count, name);
    }
}

static void look_at_fds(struct pl_look_files *k) {
    char path[64], name[64 + 256], target[4096];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)k->pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(name, sizeof name, "%s/%.200s", path, e->d_name);
        ssize_t n = readlink(name, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        add_file(k->files, &k->count, target);
    }
    if (d != NULL) closedir(d);
}

static void look_now(uv_work_t *work) {
    look_at_maps(work->data);
    look_at_fds(work->data);
}

static void looked(uv_work_t *work, int status) {
    struct pl_look_files *k = work->data;
    struct pl_ahead *a = k->service->more->ahead;
    (void)status;
    for (size_t i = 0; i < k->count; i++) {
        bool known = a->count == FILES;
        for (size_t n = 0; n < a->count; n++) known = known || strcmp(a->files[n], k->files[i]) == 0;
        if (known)
            free(k->files[i]);
        else
            a->files[a->count++] = k->files[i];
    }
    a->looking = NULL;
    free(k);
}

static void look(struct pl_worker *w, uint64_t now) {
    struct pl_ahead *a = ahead_of(w->service);
    if (a == NULL || a->looking != NULL || now - a->looked_ms < LOOK_EVERY_MS || w->pid <= 0) return;
    struct pl_look_files *k = calloc(1, sizeof *k);
    if (k == NULL) return;
    *k = (struct pl_look_files){ .work.data = k, .service = w->service, .pid = w->pid };
    a->looked_ms = now;
    a->looking = k;
    if (uv_queue_work(w->service->crew->app->loop, &k->work, look_now, looked) != 0) {
        a->looking = NULL;
        free(k);
    }
}

/* --- the reader */

static void go_on(struct pl_service *s) {
    s->more->ahead->until_ms = 0;
    for (struct pl_worker *w = s->workers, *next; w != NULL; w = next) {
        next = w->next;
        if (w->more->waits_ahead) pl_spawn_go_on(w);
    }
}

static void on_spawned(void *ctx, struct pl_wire_message *reply) {
    struct pl_service *s = ctx;
    struct pl_ahead *a = s->more->ahead;
    a->spawning = false;
    if (reply->head.kind != PL_WIRE_SPAWNED || reply->fd_count != 2) {
        go_on(s);
        return;
    }
    reply->fd_count = 0;
    a->generation = reply->spawned.generation;
    close(reply->fds[0]);
    if (!pl_ring_open(&a->ring, reply->fds[1])) a->ring = (struct pl_ring){ 0 };
    close(reply->fds[1]);
}

static bool start(struct pl_service *s) {
    struct pl_crew *c = s->crew;
    struct pl_ahead *a = s->more->ahead;
    const struct pl_strings *wanted = &s->config->read_ahead_files;
    char self[1024];
    char hold[] = "hold", once[] = "--once", *argv[FILES + 64] = { self, hold, once };
    char *envp[] = { NULL };
    uint32_t argc = 3;
    struct pl_wire_message m;
    struct pl_err err;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = '\0';
    for (size_t i = 0; i < wanted->count && argc + FILES < sizeof argv / sizeof *argv; i++)
        argv[argc++] = (char *)(uintptr_t)wanted->at[i];
    for (size_t i = 0; i < a->count && wanted->count == 0; i++) argv[argc++] = a->files[i];
    struct pl_recipe r = { .folder = s->config->working_dir != NULL ? s->config->working_dir : "/",
                           .argv = argv,
                           .envp = envp,
                           .argc = argc };
    PL_AUTO_FD int recipe = pl_spawn_recipe(&r, &err);
    pl_wire_init(&m, PL_WIRE_SPAWN, sizeof m.spawn, 0);
    pl_spawn_as_worker(s, &m);
    m.spawn.flags |= PL_SPAWN_ASIDE;
    m.spawn.page_bytes = 4096;
    m.spawn.ring_bytes = RING_BYTES;
    m.spawn.nice = 0;
    snprintf(m.spawn.name, sizeof m.spawn.name, "ahead %u", s->index);
    m.fds[0] = recipe;
    m.fd_count = 1;
    a->spawning = recipe != -1 && pl_link_order(c->link, &m, on_spawned, s);
    if (a->spawning) a->until_ms = pl_crew_now(c) + AHEAD_MS;
    return a->spawning;
}

static bool has_files(const struct pl_service *s) {
    return s->config->read_ahead_files.count > 0 || (s->more->ahead != NULL && s->more->ahead->count > 0);
}

void pl_ahead_begin(struct pl_service *s) {
    struct pl_ahead *a = ahead_of(s);
    if (a == NULL || a->generation != 0 || a->spawning || s->kind == PL_KIND_REMOTE || !has_files(s)) return;
    if (s->config->read_ahead_use == PL_CFG_READ_AHEAD_USE_AUTO) start(s);
}

bool pl_ahead_must_wait(struct pl_worker *w) {
    struct pl_service *s = w->service;
    bool crashed = pl_life_slot(s, w->slot)->down_since_ms != 0;
    bool forked = w->more->family != 0 && pl_zygote_for(w, w->more->family) != 0;
    if (crashed && forked) return false; /* it would only take the disk from the worker that is needed */
    pl_ahead_begin(s);
    const struct pl_ahead *a = s->more->ahead;
    return forked && a != NULL && (a->spawning || a->generation != 0) && a->until_ms != 0;
}

/* "read_ahead files=1 hot=0 failed=0 bytes=104857600 took_ms=40" */
static void tell(struct pl_service *s) {
    struct pl_ahead *a = s->more->ahead;
    char text[4096];
    unsigned files, hot, failed;
    unsigned long long bytes, took_ms;
    size_t n = a->ring.head != NULL ? pl_ring_read(&a->ring, text, sizeof text - 1) : 0;
    text[n] = '\0';
    const char *line = strstr(text, "read_ahead ");
    if (line == NULL || sscanf(line, "read_ahead files=%u hot=%u failed=%u bytes=%llu took_ms=%llu", &files,
                               &hot, &failed, &bytes, &took_ms) != 5)
        return;
    pl_log(s->crew->app->log, PL_INFO, "readahead.done", F_STR("service", s->config->id),
           F_INT("files", files), F_INT("hot", hot), F_INT("failed", failed), F_INT("bytes", bytes),
           F_INT("took_ms", took_ms));
}

bool pl_ahead_news(struct pl_crew *c, const struct pl_wire_message *m) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        struct pl_ahead *a = s->more->ahead;
        if (a == NULL || a->generation == 0 || a->generation != m->exit.generation) continue;
        if (m->head.kind != PL_WIRE_GONE) return true;
        struct pl_wire_message forget;
        tell(s);
        pl_ring_close(&a->ring);
        pl_wire_init(&forget, PL_WIRE_FORGET, sizeof forget.forget, 0);
        forget.forget.generation = a->generation;
        pl_link_order(c->link, &forget, NULL, NULL);
        a->generation = 0;
        go_on(s);
        return true;
    }
    return false;
}

void pl_ahead_tick(struct pl_crew *c, uint64_t now) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        struct pl_ahead *a = s->more->ahead;
        if (a != NULL && a->until_ms != 0 && now >= a->until_ms) go_on(s);
        if (s->config->read_ahead_use != PL_CFG_READ_AHEAD_USE_AUTO) continue;
        for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
            if ((w->state == PL_WORKER_LOADING || w->state == PL_WORKER_WARMING) && s->kind != PL_KIND_REMOTE)
                look(w, now);
    }
}

bool pl_ahead_is(const struct pl_wire_item *item) { return strncmp(item->name, "ahead ", 6) == 0; }
