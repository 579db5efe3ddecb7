/* base/user.h - users by name: looked up once, at a start (the look-up may ask a network), and become.
 */
#ifndef PL_BASE_USER_H
#define PL_BASE_USER_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct pl_user {
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256]; /* "/" when nobody knows it */
};

/* A name or a number each; `group` NULL: the user's own. PL_E_CONFIG: no such one. */
bool pl_user_find(const char *user, const char *group, struct pl_user *out, struct pl_err *err);
/* For good, with the user's other groups; HOME, USER and LOGNAME follow. Nothing to do when we are that user
 * already. Needs root otherwise. */
bool pl_user_become(const struct pl_user *u, struct pl_err *err);
#endif
