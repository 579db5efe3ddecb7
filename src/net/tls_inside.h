/* net/tls_inside.h - between tls.c, sock_tls.c and sock.c only. */
#ifndef PL_NET_TLS_INSIDE_H
#define PL_NET_TLS_INSIDE_H
#include <openssl/ssl.h>

#include "net/sock.h"
#include "net/tls.h"

/* tls.c: a new server side, or NULL without memory. */
SSL *pl_tls_server_side(struct pl_tls *t);

/* sock_tls.c, for sock.c: the socket has a session. */
void pl_sock_tls_read(struct pl_sock *s, const char *data, size_t len); /* what came off the wire */
bool pl_sock_tls_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count);
void pl_sock_tls_wanted(struct pl_sock *s);      /* reading was asked for again */
bool pl_sock_tls_waits(const struct pl_sock *s); /* for its turn: nothing more is to be read meanwhile */
void pl_sock_tls_goodbye(struct pl_sock *s);     /* close_notify, if it can be said */
void pl_sock_tls_leave(struct pl_sock *s);       /* the socket closes: out of every queue */
void pl_sock_tls_free(struct pl_sock *s);

/* sock.c, for sock_tls.c */
bool pl_sock_raw_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count);
void pl_sock_raw_cut(struct pl_sock *s);   /* nothing can be sent any more; `ended` follows from the loop */
void pl_sock_raw_watch(struct pl_sock *s); /* reads or not, as is wanted and possible now */
void pl_sock_raw_end(struct pl_sock *s, bool orderly);
#endif
