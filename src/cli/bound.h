/* cli/bound.h - listening sockets as texts, and the admin socket in the run folder. */
#ifndef PL_CLI_BOUND_H
#define PL_CLI_BOUND_H
#include <stddef.h>

#include "base/err.h"
#include "config/config.h"

/* "0.0.0.0:3000", "[::]:3000", "unix:/run/x.sock": what the socket is really bound to. */
void pl_bound_text(int fd, char *out, size_t room);
/* A listening socket for an address of the configuration. -1 with err: taken, not allowed, no such host. */
int pl_bound_open(const struct pl_address *a, struct pl_err *err);
/* Makes and binds run_dir/NAME, mode 0600. -1 with err. */
int pl_bound_socket(const char *run_dir, const char *name, struct pl_err *err);
/* As the configuration names it: localhost, 127.x or ::1. */
bool pl_bound_is_loopback(const char *host);
#endif
