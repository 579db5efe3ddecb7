/* cli/client_tls.h - a verb that talks to an admin port over TLS: --admin https://HOST:PORT. The server's
 * certificate is checked against the system's authorities, or those of $SSL_CERT_FILE, and against HOST. */
#ifndef PL_CLI_CLIENT_TLS_H
#define PL_CLI_CLIENT_TLS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct pl_client_tls;
/* `fd`: connected and blocking, borrowed. NULL and err. */
struct pl_client_tls *pl_client_tls_open(int fd, const char *host, struct pl_err *err);
bool pl_client_tls_send(struct pl_client_tls *t, const char *bytes, size_t len);
ssize_t pl_client_tls_recv(struct pl_client_tls *t, char *bytes, size_t room); /* 0: the end; -1: broken */
void pl_client_tls_close(struct pl_client_tls *t);                             /* NULL is allowed */
#endif
