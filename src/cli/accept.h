/* cli/accept.h - the configuration as it is accepted: from file, environment, target and flags, checked, with
 * what only the machine can tell filled in (interpreter, folders). */
#ifndef PL_CLI_ACCEPT_H
#define PL_CLI_ACCEPT_H
#include "cli/args.h"
#include "config/config.h"

/* NULL with err. `target` may be NULL (the file's services). Warnings stay in the configuration.
 * `need_services`: no service at all is a usage error. */
struct pl_config *pl_accept(const struct pl_args *args, const char *target, bool need_services,
                            struct pl_err *err);
/* The file that was or would be read: -c, ./plimsoll.yaml, /etc/plimsoll/plimsoll.yaml; NULL = none there. */
const char *pl_accept_file(const struct pl_args *args);
/* The same without what the machine must have: a missing interpreter is then doctor's to tell. */
struct pl_config *pl_accept_for_doctor(const struct pl_args *args, const char *target, struct pl_err *err);
/* Reads file and environment only, for verbs that look for a running server. */
struct pl_config *pl_accept_quietly(const struct pl_args *args, struct pl_err *err);
#endif
