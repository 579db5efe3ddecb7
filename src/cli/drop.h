/* cli/drop.h - `user:` and `group:`: what needs root is done, the instance's folders are given to the user,
 * and everything from here on (keeper, main, workers) runs as it. */
#ifndef PL_CLI_DROP_H
#define PL_CLI_DROP_H
#include "config/config.h"

/* `user` and `workers.user` against each other and against who we are. PL_E_CONFIG. */
bool pl_drop_check(const struct pl_config *c, struct pl_err *err);
/* Nothing without `user`. `run` and `state` ("": none) are made if need be; sockets that listen are given
 * away, too. */
bool pl_drop_rights(const struct pl_config *c, const char *run, const char *state, struct pl_err *err);
/* `workers.user`: the run folder lets the workers through to what is theirs in it, and nobody may list it. */
bool pl_drop_let_workers_through(const char *run, struct pl_err *err);
#endif
