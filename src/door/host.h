/* door/host.h - is a Host header one by which people really reach us?
 *
 * A page in a browser can have its own name point at our address (DNS rebinding) and is then of our origin,
 * as far as the browser knows. Its requests still carry that name. So a name counts only when nobody else can
 * own it: an IP address, localhost, the host that we listen on, the name of this machine.
 */
#ifndef PL_DOOR_HOST_H
#define PL_DOOR_HOST_H
#include <stdbool.h>
#include <stddef.h>

/* `host` as sent, its port does not matter. `own` and `machine` may be NULL or "". */
bool pl_host_is_known(const char *host, size_t len, const char *own, const char *machine);
#endif
