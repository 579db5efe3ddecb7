#include "keeper/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tree.h"

static const char *const subfolders[] = { "w", "prom", "tmp", "snap" };
enum { SUBFOLDERS = sizeof subfolders / sizeof *subfolders, MOST_TRIES = 16 };

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* --- removal --- */

static void remove_socket(int folder, const char *name) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode))
        unlinkat(folder, name, 0);
}

static void remove_sockets(const struct pl_run_folder *r) {
    int fd = pl_tree_open(r->fd, ".");
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        if (fd != -1) close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) remove_socket(dirfd(d), e->d_name);
    closedir(d);
}

static void clear(const struct pl_run_folder *r, const char *name) {
    int fd = pl_tree_open(r->fd, name);
    if (fd != -1) pl_tree_clear(fd);
}

bool pl_run_folder_socket_name_ok(const char *name) {
    if (strncmp(name, "w/", 2) == 0) name += 2;
    return name[0] != 0 && strchr(name, '/') == NULL && !is_dots(name);
}

void pl_run_folder_remove_socket(const struct pl_run_folder *r, const char *name) {
    remove_socket(r->fd, name);
}

/* --- opening --- */

static bool check_path(const char *path, struct pl_err *err) {
    size_t most = PL_RUN_PATH_BYTES - PL_RUN_SOCKET_BYTES;
    if (strlen(path) <= most) return true;
    return PL_FAIL(
        err, PL_E_SYS,
        "run folder %.120s is too long by %zu bytes for the sockets in it: name a shorter one with run_dir",
        path, strlen(path) - most);
}

static bool make_folder(const char *path, struct pl_err *err) {
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return true;
    int error = errno;
    if (error == ENOENT)
        return PL_FAIL(err, PL_E_SYS,
                       "run folder %s cannot be made, because the folder above it does not exist: make it",
                       path);
    return PL_FAIL(err, PL_E_SYS, "run folder %s cannot be made (%s): name another one with run_dir", path,
                   strerror(error));
}

static bool check_folder(const char *path, const struct stat *st, struct pl_err *err) {
    if (st->st_uid != geteuid())
        return PL_FAIL(err, PL_E_SYS,
                       "run folder %s belongs to uid %u and we are uid %u: name another one with run_dir",
                       path, (unsigned)st->st_uid, (unsigned)geteuid());
    mode_t mode = st->st_mode & 0777;
    if (mode != 0700 && mode != 0711) /* 0711: workers of another user pass through, and see nothing */
        return PL_FAIL(err, PL_E_SYS, "run folder %s has mode %04o and must be ours alone: chmod 700 %s",
                       path, (unsigned)st->st_mode & 07777U, path);
    return true;
}

static bool open_and_check(struct pl_run_folder *r, struct pl_err *err) {
    struct stat st;
    if (!make_folder(r->path, err)) return false;
    r->fd = pl_tree_open(AT_FDCWD, r->path);
    if (r->fd == -1 && (errno == ENOTDIR || errno == ELOOP))
        return PL_FAIL(err, PL_E_SYS,
                       "run folder %s is a symbolic link or no folder: name another one with run_dir",
                       r->path);
    if (r->fd == -1 && errno == ENOENT) return true; /* a keeper that ended has just removed it: once more */
    if (r->fd == -1 || fstat(r->fd, &st) == -1)
        return PL_FAIL(err, PL_E_SYS, "run folder %s cannot be opened (%s): name another one with run_dir",
                       r->path, strerror(errno));
    return check_folder(r->path, &st, err);
}

static bool locked_by_another(const struct pl_run_folder *r, int lock_fd, int error, struct pl_err *err) {
    char text[24] = "";
    if (error != EWOULDBLOCK)
        return PL_FAIL(err, PL_E_SYS, "run folder %s cannot be locked (%s): name another one with run_dir",
                       r->path, strerror(error));
    ssize_t n = pread(lock_fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0)
        return PL_FAIL(err, PL_E_SYS,
                       "run folder %s is in use by the keeper with pid %ld: stop that one or name another "
                       "folder with run_dir",
                       r->path, pid);
    return PL_FAIL(
        err, PL_E_SYS,
        "run folder %s is in use by another keeper: stop that one or name another folder with run_dir",
        r->path);
}

/* The lock file may have been unlinked between our open and our lock: then it is not the one that others will
 * see, and lock_fd stays -1. */
static bool lock(struct pl_run_folder *r, struct pl_err *err) {
    struct stat ours;
    struct stat named;
    int fd = openat(r->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1 && errno == ENOENT) return true; /* the folder was removed */
    if (fd == -1)
        return PL_FAIL(err, PL_E_SYS, "run folder %s is not writable (%s): name another one with run_dir",
                       r->path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == -1) {
        locked_by_another(r, fd, errno, err);
        close(fd);
        return false;
    }
    if (fstat(fd, &ours) == 0 && fstatat(r->fd, "lock", &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
        r->lock_fd = fd;
        return true;
    }
    close(fd);
    return true;
}

static void close_both(struct pl_run_folder *r) {
    if (r->lock_fd != -1) close(r->lock_fd);
    if (r->fd != -1) close(r->fd);
    r->fd = r->lock_fd = -1;
}

/* A subfolder that is none, or that somebody made, is made anew. */
static bool make_subfolder(const struct pl_run_folder *r, const char *name, struct pl_err *err) {
    if (mkdirat(r->fd, name, 0700) == 0) return true;
    int fd = errno == EEXIST ? pl_tree_open(r->fd, name) : -1;
    if (fd == -1 && (errno == ENOTDIR || errno == ELOOP) && unlinkat(r->fd, name, 0) == 0 &&
        mkdirat(r->fd, name, 0700) == 0)
        return true;
    if (fd == -1 || fchmod(fd, 0700) == -1) {
        int error = errno;
        if (fd != -1) close(fd);
        return PL_FAIL(err, PL_E_SYS, "run folder %s is not writable (%s: %s): name another one with run_dir",
                       r->path, name, strerror(error));
    }
    close(fd);
    clear(r, name);
    return true;
}

static bool prepare(struct pl_run_folder *r, struct pl_err *err) {
    char text[24];
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(r->lock_fd, 0) == -1 || pwrite(r->lock_fd, text, (size_t)length, 0) != length)
        return PL_FAIL(err, PL_E_SYS, "run folder %s is not writable (%s): name another one with run_dir",
                       r->path, strerror(errno));
    remove_sockets(r);
    for (size_t i = 0; i < SUBFOLDERS; i++)
        if (!make_subfolder(r, subfolders[i], err)) return false;
    return true;
}

bool pl_run_folder_open(struct pl_run_folder *r, const char *path, struct pl_err *err) {
    *r = (struct pl_run_folder){ .path = path, .fd = -1, .lock_fd = -1 };
    if (!check_path(path, err)) return false;
    for (int tries = 0; tries < MOST_TRIES; tries++) {
        bool good = open_and_check(r, err) && (r->fd == -1 || lock(r, err));
        if (good && r->lock_fd != -1) {
            if (prepare(r, err)) return true;
            pl_run_folder_close(r);
            return false;
        }
        close_both(r);
        if (!good) return false;
    }
    return PL_FAIL(err, PL_E_SYS,
                   "run folder %s is removed again and again by others: name another one with run_dir", path);
}

/* The lock goes last: whoever takes it finds nothing of ours. */
void pl_run_folder_close(struct pl_run_folder *r) {
    if (r->fd == -1) return;
    remove_sockets(r);
    for (size_t i = 0; i < SUBFOLDERS; i++) {
        clear(r, subfolders[i]);
        unlinkat(r->fd, subfolders[i], AT_REMOVEDIR);
    }
    unlinkat(r->fd, "lock", 0);
    rmdir(r->path);
    close_both(r);
}
