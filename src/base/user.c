#include "base/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number that is none of the kernel's "no change". */
static bool is_number(const char *text, uint32_t *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || value >= UINT32_MAX) return false;
    *out = (uint32_t)value;
    return true;
}

static bool find_group(const char *name, gid_t *out, struct pl_err *err) {
    uint32_t number;
    if (is_number(name, &number)) {
        *out = number;
        return true;
    }
    const struct group *g = getgrnam(name);
    if (g == NULL) return PL_FAIL(err, PL_E_CONFIG, "there is no group '%.60s' here", name);
    *out = g->gr_gid;
    return true;
}

bool pl_user_find(const char *user, const char *group, struct pl_user *out, struct pl_err *err) {
    uint32_t number;
    bool numeric = is_number(user, &number);
    const struct passwd *p = numeric ? getpwuid(number) : getpwnam(user);
    if (p == NULL && !numeric) return PL_FAIL(err, PL_E_CONFIG, "there is no user '%.60s' here", user);
    if (p == NULL && group == NULL) {
        PL_FAIL(err, PL_E_CONFIG, "user %.20s has no name here, so its group is not known", user);
        return pl_err_hint(err, "set group, too");
    }
    *out = (struct pl_user){ .uid = p != NULL ? p->pw_uid : number, .gid = p != NULL ? p->pw_gid : 0 };
    snprintf(out->name, sizeof out->name, "%s", p != NULL ? p->pw_name : user);
    snprintf(out->home, sizeof out->home, "%s", p != NULL && p->pw_dir[0] == '/' ? p->pw_dir : "/");
    return group == NULL || find_group(group, &out->gid, err);
}

bool pl_user_become(const struct pl_user *u, struct pl_err *err) {
    bool is = getuid() == u->uid && geteuid() == u->uid && getgid() == u->gid && getegid() == u->gid;
    if (!is && geteuid() != 0) {
        PL_FAIL(err, PL_E_CONFIG, "only root can become user %s", u->name);
        return pl_err_hint(err, "start as root, or as that user and without this key");
    }
    if (!is && (initgroups(u->name, u->gid) == -1 || setgid(u->gid) == -1 || setuid(u->uid) == -1))
        return PL_FAIL_SYS(err, errno, "become user %s", u->name);
    if (u->uid != 0 && setuid(0) == 0) return PL_FAIL(err, PL_E_SYS, "root does not go away");
    setenv("HOME", u->home, 1);
    setenv("USER", u->name, 1);
    setenv("LOGNAME", u->name, 1);
    return true;
}
