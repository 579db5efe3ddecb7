#include "cli/drop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/tree.h"
#include "base/user.h"
#include "cli/paths.h"

static bool wrap(const struct pl_config *c, const char *key, struct pl_err *err) {
    const char *place = "";
    pl_config_origin(c, PL_CFG_INSTANCE, key, &place);
    return pl_err_wrap(err, "%s%s%s", place, place[0] != '\0' ? ": " : "", key);
}

static bool fail(const struct pl_config *c, const char *key, const char *what, struct pl_err *err) {
    PL_FAIL(err, PL_E_CONFIG, "%s", what);
    return wrap(c, key, err);
}

bool pl_drop_check(const struct pl_config *c, struct pl_err *err) {
    struct pl_user u;
    if (c->group != NULL && c->user == NULL) return fail(c, "group", "has no effect without user", err);
    if (c->user != NULL && !pl_user_find(c->user, c->group, &u, err)) return wrap(c, "user", err);
    if (c->user != NULL && geteuid() != 0 && geteuid() != u.uid)
        return fail(c, "user", "only root can become another user", err);
    if (c->workers_user == NULL) return true;
    if (!pl_user_find(c->workers_user, NULL, &u, err)) return wrap(c, "workers.user", err);
    if (c->user != NULL)
        return fail(c, "workers.user", "with user, the workers are that user's: leave one of the two out",
                    err);
    return geteuid() == 0 || fail(c, "workers.user", "only root can start workers as another user", err);
}

/* The folder is there, is one, and is the user's, whom its parents of ours let through. */
static bool give_folder(const char *path, const struct pl_user *u, struct pl_err *err) {
    struct stat st;
    if (mkdir(path, 0700) == -1 && errno != EEXIST) return PL_FAIL_SYS(err, errno, "make %s", path);
    PL_AUTO_FD int fd = pl_tree_open(AT_FDCWD, path);
    if (fd == -1 || fstat(fd, &st) == -1) return PL_FAIL_SYS(err, errno, "open the folder %s", path);
    if (st.st_uid != 0 && st.st_uid != u->uid)
        return PL_FAIL(err, PL_E_SYS, "the folder %s belongs to uid %u", path, (unsigned)st.st_uid);
    if (fchown(fd, u->uid, u->gid) == -1) return PL_FAIL_SYS(err, errno, "give %s to %s", path, u->name);
    return true;
}

/* /run/plimsoll and /var/lib/plimsoll were made for us alone; they hold nothing but folders of instances. */
static void let_through(const char *path) {
    static const char *const parents[] = { "/run/plimsoll", "/var/lib/plimsoll" };
    struct stat st;
    for (size_t i = 0; i < sizeof parents / sizeof parents[0]; i++) {
        size_t n = strlen(parents[i]);
        if (strncmp(path, parents[i], n) != 0 || path[n] != '/') continue;
        if (lstat(parents[i], &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
            chmod(parents[i], (st.st_mode & 07777) | 0011);
    }
}

bool pl_drop_let_workers_through(const char *run, struct pl_err *err) {
    let_through(run);
    if (mkdir(run, 0711) == -1 && errno != EEXIST) return PL_FAIL_SYS(err, errno, "make %s", run);
    PL_AUTO_FD int fd = pl_tree_open(AT_FDCWD, run);
    if (fd == -1 || fchmod(fd, 0711) == -1) return PL_FAIL_SYS(err, errno, "open the folder %s", run);
    return true;
}

bool pl_drop_rights(const struct pl_config *c, const char *run, const char *state, struct pl_err *err) {
    struct pl_user u;
    if (c->user == NULL) return true;
    if (!pl_user_find(c->user, c->group, &u, err)) return wrap(c, "user", err);
    if (geteuid() == 0 && u.uid != 0) {
        let_through(run);
        let_through(state);
        if (!give_folder(run, &u, err) || (state[0] != '\0' && !give_folder(state, &u, err))) return false;
        for (size_t i = 0; i < c->listen.count; i++)
            if (c->listen.at[i].kind == PL_ADDRESS_UNIX && lchown(c->listen.at[i].path, u.uid, u.gid) == -1)
                return PL_FAIL_SYS(err, errno, "give %s to %s", c->listen.at[i].path, u.name);
    }
    return pl_user_become(&u, err) || wrap(c, "user", err);
}
