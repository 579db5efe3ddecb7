/* cli/client.h - verbs that talk to a running server: finding it, and one blocking HTTP exchange. */
#ifndef PL_CLI_CLIENT_H
#define PL_CLI_CLIENT_H
#include <jansson.h>

#include "base/buf.h"
#include "cli/verbs.h"

struct pl_client_tls;
struct pl_client {
    int fd;
    struct pl_client_tls *tls; /* of the exchange under way, or NULL */
    char token[4096];          /* shown over TCP; "": none */
    char where[256]; /* "unix:/run/plimsoll/default/admin.sock", "127.0.0.1:3001" or "https://host:3001" */
};

/* Over TCP the token of --token-file or $PLIMSOLL_TOKEN_FILE is shown.
 * --admin, $PLIMSOLL_ADMIN, the file's run_dir, then sockets in the run folders. Not found: PL_E_SYS;
 * several: PL_E_USAGE with their names. */
bool pl_client_find(const struct pl_cli *cli, struct pl_client *c, struct pl_err *err);
/* One exchange on a connection of its own. `status` 0 and err: it did not work. The body ends with NUL in
 * `out`. */
bool pl_client_ask(struct pl_client *c, const char *method, const char *target, const char *body, int *status,
                   struct pl_buf *out, struct pl_err *err);
/* A document that the server has there, for json_decref. NULL with err: it did not answer, or with an error
 * of its own. */
json_t *pl_client_document(struct pl_client *c, const char *target, struct pl_err *err);
/* As pl_client_ask, the body handed on as it comes, for things that go on. `each` returns false to stop. */
typedef bool pl_client_piece(void *ctx, const char *bytes, size_t len);
bool pl_client_stream(struct pl_client *c, const char *target, int *status, pl_client_piece *each, void *ctx,
                      struct pl_err *err);
/* An error document of the server as an error of ours. */
void pl_client_error(const struct pl_client *c, int status, const struct pl_buf *body, struct pl_err *err);
/* Orders something: true when the server took it, with its `reply` (for json_decref; may be NULL) in it. */
bool pl_client_order(struct pl_client *c, const char *target, const json_t *order, json_t **reply,
                     struct pl_err *err);
#endif
