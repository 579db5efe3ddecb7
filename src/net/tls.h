/* net/tls.h - TLS towards clients: certificates as they are in force, and the desk where handshakes wait
 * their turn.
 *
 * OpenSSL over memory, so that libuv keeps the sockets (net/sock_tls.c). A pl_tls is made once from texts,
 * beside the loop (it may take a millisecond or more), and never changes: new certificates are a new pl_tls,
 * and connections keep the one they began with. TLS 1.2 with forward secrecy and authenticated ciphers only,
 * and 1.3; no compression, no renegotiation; ALPN http/1.1.
 */
#ifndef PL_NET_TLS_H
#define PL_NET_TLS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"

struct pl_tls;

struct pl_tls_text {
    const char *place; /* file, for messages */
    const char *bytes;
    size_t len;
};
enum pl_tls_clients { PL_TLS_CLIENTS_ANY, PL_TLS_CLIENTS_MAY, PL_TLS_CLIENTS_MUST }; /* show a certificate */

struct pl_tls_pair {
    struct pl_tls_text certificate, key; /* PEM; the chain behind the certificate */
};
struct pl_tls_options {
    const struct pl_tls_pair *pairs; /* the first one is for who names no host, or one of none */
    size_t pair_count;
    const char *password;           /* of the keys, or NULL */
    struct pl_tls_text authorities; /* PEM; empty: none */
    enum pl_tls_clients clients;
    bool only_1_3;
};
/* NULL and err: PL_E_CONFIG, with the file and what is wrong with it. Thread-safe. */
struct pl_tls *pl_tls_create(const struct pl_tls_options *o, struct pl_err *err);
struct pl_tls *pl_tls_ref(struct pl_tls *t); /* NULL is allowed, in all three */
void pl_tls_unref(struct pl_tls *t);
/* Seconds since 1970 at which the first of the certificates is over. */
int64_t pl_tls_not_after_s(const struct pl_tls *t);

/* Handshakes cost a hundred times what a request does. So in one turn of the loop only a few steps of them
 * are done, and a crowd that connects anew does not hold up who is connected. One desk a server. */
enum { PL_TLS_STEPS_A_TURN = 4 };
struct pl_tls_desk;
struct pl_tls_desk *pl_tls_desk_create(uv_loop_t *loop);
/* When no connection uses it any more; freed by the loop. NULL is allowed. */
void pl_tls_desk_destroy(struct pl_tls_desk *d);
#endif
