#include "crew/shelf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/tree.h"
#include "crew/more.h"

struct putting {
    uv_work_t work;
    char *folder, *path, *from, *text; /* folder NULL: there is no state folder */
    char problem[400];
    uint64_t bytes;
    pl_shelf_done *done;
    void *ctx;
};

static void fail(struct putting *p, const char *what, const char *path) {
    snprintf(p->problem, sizeof p->problem, "%s %.256s: %s", what, path, strerror(errno));
}

static bool write_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n == -1 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static bool copy(int from, int to) {
    char piece[65536];
    for (;;) {
        ssize_t n = read(from, piece, sizeof piece);
        if (n == -1 && errno == EINTR) continue;
        if (n <= 0) return n == 0;
        if (!write_all(to, piece, (size_t)n)) return false;
    }
}

static bool write_file(struct putting *p) {
    PL_AUTO_FD int fd = open(p->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1) return false;
    PL_AUTO_FD int from = p->from != NULL ? open(p->from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    bool ok = p->from != NULL ? from != -1 && copy(from, fd) : write_all(fd, p->text, strlen(p->text));
    if (!ok) {
        int error = errno;
        unlink(p->path);
        errno = error;
    }
    return ok;
}

/* Names sort by time: the oldest go, and with a snapshot what was said about it. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}
static int is_kept(const struct dirent *e) {
    return e->d_name[0] != '.' && strstr(e->d_name, PL_SHELF_REPORT) == NULL;
}

static void prune(const char *folder) {
    struct dirent **list;
    int n = scandir(folder, &list, is_kept, by_name);
    if (n == -1) return;
    PL_AUTO_FD int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < n; i++) {
        char report[sizeof list[i]->d_name + sizeof PL_SHELF_REPORT];
        snprintf(report, sizeof report, "%s" PL_SHELF_REPORT, list[i]->d_name);
        if (at != -1 && i < n - PL_SHELF_KEPT) {
            unlinkat(at, list[i]->d_name, 0);
            unlinkat(at, report, 0);
        }
        free(list[i]);
    }
    free(list);
}

static void put_now(uv_work_t *work) {
    struct putting *p = work->data;
    struct stat st;
    if (p->folder == NULL) {
        snprintf(p->problem, sizeof p->problem, "there is no state folder to keep it in: set state_dir");
    } else if (!pl_tree_make(p->folder)) {
        fail(p, "make", p->folder);
    } else if (p->from == NULL || rename(p->from, p->path) != 0) {
        if (!write_file(p)) fail(p, "write", p->path);
    }
    if (p->from != NULL) unlink(p->from); /* moved already, or of no use */
    if (p->problem[0] != '\0') return;
    if (stat(p->path, &st) == 0) p->bytes = (uint64_t)st.st_size;
    prune(p->folder);
}

static void release(struct putting *p) {
    free(p->folder);
    free(p->path);
    free(p->from);
    free(p->text);
    free(p);
}

static void put_done(uv_work_t *work, int status) {
    struct putting *p = work->data;
    (void)status;
    p->done(p->ctx, p->path, p->bytes, p->problem[0] != '\0' ? p->problem : NULL);
    release(p);
}

static bool put(struct pl_crew *c, const char *kind, const char *name, const char *text, const char *from,
                pl_shelf_done *done, void *ctx) {
    struct putting *p = calloc(1, sizeof *p);
    if (p == NULL) return false;
    p->done = done;
    p->ctx = ctx;
    p->work.data = p;
    bool ok = c->state_dir == NULL || asprintf(&p->folder, "%s/%s", c->state_dir, kind) != -1;
    ok = ok && asprintf(&p->path, "%s/%s", p->folder != NULL ? p->folder : "", name) != -1;
    if (ok && text != NULL) ok = (p->text = strdup(text)) != NULL;
    if (ok && from != NULL) ok = (p->from = strdup(from)) != NULL;
    if (ok && uv_queue_work(c->app->loop, &p->work, put_now, put_done) == 0) return true;
    release(p);
    return false;
}

bool pl_shelf_keep(struct pl_crew *c, const char *kind, const char *name, const char *text,
                   pl_shelf_done *done, void *ctx) {
    return put(c, kind, name, text, NULL, done, ctx);
}

bool pl_shelf_move(struct pl_crew *c, const char *kind, const char *name, const char *from,
                   pl_shelf_done *done, void *ctx) {
    return put(c, kind, name, NULL, from, done, ctx);
}

/* --- one that takes the place of the one before */

/* True: there was one too many, the one written the longest ago, and it is gone. */
static bool drop_oldest(int folder) {
    char oldest[sizeof((struct dirent *)0)->d_name] = "";
    struct timespec when = { 0 };
    struct stat st;
    int count = 0, own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own != -1 ? fdopendir(own) : NULL;
    if (dir == NULL) {
        if (own != -1) close(own);
        return false;
    }
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] == '.' || fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1) continue;
        bool older = st.st_mtim.tv_sec != when.tv_sec ? st.st_mtim.tv_sec < when.tv_sec
                                                      : st.st_mtim.tv_nsec < when.tv_nsec;
        if (count++ > 0 && !older) continue;
        when = st.st_mtim;
        memcpy(oldest, e->d_name, strlen(e->d_name) + 1);
    }
    closedir(dir);
    return count > PL_SHELF_PAGES && unlinkat(folder, oldest, 0) == 0;
}

static void write_now(uv_work_t *work) {
    struct putting *p = work->data;
    char *final = p->path, *draft = NULL;
    if (!pl_tree_make(p->folder) || asprintf(&draft, "%s.new", final) == -1) return;
    unlink(draft);
    p->path = draft;
    if (!write_file(p) || rename(draft, final) != 0)
        unlink(draft); /* a full disk costs what it told, and no more */
    p->path = final;
    free(draft);
    PL_AUTO_FD int folder = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (folder != -1 && drop_oldest(folder)) continue;
}

static void written(uv_work_t *work, int status) {
    (void)status;
    release(work->data);
}

void pl_shelf_write(struct pl_crew *c, const char *kind, const char *name, const char *text) {
    struct putting *p = c->state_dir != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) return;
    p->work.data = p;
    bool ok = asprintf(&p->folder, "%s/%s", c->state_dir, kind) != -1;
    ok = ok && asprintf(&p->path, "%s/%s", p->folder, name) != -1 && (p->text = strdup(text)) != NULL;
    if (!ok || uv_queue_work(c->app->loop, &p->work, write_now, written) != 0) release(p);
}
