#include "crew/caches.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tree.h"
#include "crew/more.h"

enum { FOLDER_BYTES = 600, MOST_FILES = 200000, MOST_DEPTH = 12 };

const char *pl_caches_name(enum pl_cache c) {
    static const char *const names[] = { "triton", "inductor", "cuda", "vllm" };
    return names[c];
}

const struct pl_caches *pl_look_caches(const struct pl_service *s) {
    return s->more->caches.known ? &s->more->caches : NULL;
}

/* --- before the start */

/* Workers of another user own what they compile and pass through what lies above it. */
static bool make(const struct pl_crew *c, const char *folder, const char *kind) {
    char path[FOLDER_BYTES + 16];
    const struct pl_user *u = c->worker_user;
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    if (!pl_tree_make(path)) return false;
    if (u == NULL) return true;
    snprintf(path, sizeof path, "%s/jit", c->cache_dir);
    return chmod(c->cache_dir, 0711) == 0 && chmod(path, 0711) == 0 && chmod(folder, 0711) == 0 &&
           snprintf(path, sizeof path, "%s/%s", folder, kind) > 0 && lchown(path, u->uid, u->gid) == 0;
}

static bool is_empty(const char *folder, const char *kind) {
    char path[FOLDER_BYTES + 16];
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    DIR *d = opendir(path);
    bool empty = true;
    if (d == NULL) return true;
    for (struct dirent *e; empty && (e = readdir(d)) != NULL;)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return empty;
}

void pl_caches_prepare(struct pl_service *s, uint32_t slot, char *out, unsigned room) {
    const struct pl_crew *c = s->crew;
    bool ok = true, empty = true;
    out[0] = '\0';
    if (c->cache_dir == NULL || s->kind == PL_KIND_REMOTE) return;
    snprintf(out, room, "%s/jit/%s", c->cache_dir, s->config->id);
    for (int i = 0; ok && i < PL_CACHES; i++) {
        ok = make(c, out, pl_caches_name((enum pl_cache)i));
        empty = empty && is_empty(out, pl_caches_name((enum pl_cache)i));
    }
    s->more->caches.empty = ok && empty;
    if (ok) return;
    if (!s->more->caches.told)
        pl_log(c->app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
               F_INT("worker", slot), F_STR("feature", "jit caches"), F_STR("reason", strerror(errno)),
               F_STR("folder", out));
    s->more->caches.told = true;
    out[0] = '\0';
}

/* --- afterwards: how much there is, counted beside the loop */

struct counting {
    uv_work_t work;
    struct pl_service *service;
    uint32_t slot;
    uint64_t generation;
    bool was_empty;
    char folder[FOLDER_BYTES];
    uint64_t left; /* files that are still looked at */
    uint64_t files[PL_CACHES], bytes[PL_CACHES];
};

static void count_in(struct counting *k, int kind, int fd, int depth) {
    DIR *d = fdopendir(fd);
    struct stat st;
    if (d == NULL) {
        close(fd);
        return;
    }
    for (struct dirent *e; k->left > 0 && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (S_ISDIR(st.st_mode)) {
            int inner = depth < MOST_DEPTH ? pl_tree_open(dirfd(d), e->d_name) : -1;
            if (inner != -1) count_in(k, kind, inner, depth + 1);
            continue;
        }
        k->left--;
        k->files[kind]++;
        k->bytes[kind] += (uint64_t)st.st_size;
    }
    closedir(d);
}

static void count_now(uv_work_t *work) {
    struct counting *k = work->data;
    int folder = pl_tree_open(AT_FDCWD, k->folder);
    for (int i = 0; folder != -1 && i < PL_CACHES; i++) {
        int fd = pl_tree_open(folder, pl_caches_name((enum pl_cache)i));
        if (fd != -1) count_in(k, i, fd, 0);
    }
    if (folder != -1) close(folder);
}

static void counted(uv_work_t *work, int status) {
    struct counting *k = work->data;
    struct pl_service *s = k->service;
    struct pl_caches *caches = &s->more->caches;
    struct pl_metrics *m = s->crew->app->metrics;
    uint64_t files = 0, bytes = 0;
    (void)status;
    for (int i = 0; i < PL_CACHES; i++) {
        files += caches->files[i] = k->files[i];
        bytes += caches->bytes[i] = k->bytes[i];
        pl_series_set(pl_series(m, PL_M_JIT_CACHE_BYTES, s->config->id, pl_caches_name((enum pl_cache)i)),
                      (double)k->bytes[i]);
    }
    caches->known = true;
    caches->cold = k->was_empty && files > 0;
    pl_series_set(pl_series(m, PL_M_JIT_CACHE_COLD, s->config->id), caches->cold);
    if (caches->cold)
        pl_log(s->crew->app->log, PL_INFO, "worker.cold_cache", F_STR("service", s->config->id),
               F_INT("worker", k->slot), F_INT("generation", k->generation), F_INT("files", files),
               F_INT("bytes", bytes),
               F_STR("remedy",
                     "this start has compiled; restart it once and the next one only loads what is there"));
    free(k);
}

void pl_caches_ready(struct pl_worker *w) {
    struct pl_service *s = w->service;
    const struct pl_crew *c = s->crew;
    struct counting *k = c->cache_dir != NULL && s->kind != PL_KIND_REMOTE ? calloc(1, sizeof *k) : NULL;
    if (k == NULL) return;
    k->service = s;
    k->slot = w->slot;
    k->generation = w->generation;
    k->was_empty = w->more->cache_empty;
    k->left = MOST_FILES;
    k->work.data = k;
    snprintf(k->folder, sizeof k->folder, "%s/jit/%s", c->cache_dir, s->config->id);
    if (uv_queue_work(c->app->loop, &k->work, count_now, counted) != 0) free(k);
}
