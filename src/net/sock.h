/* net/sock.h - one stream socket: reads into a shared buffer, writes at once where the kernel takes it and
 * queues the rest.
 *
 * The base of a client's connection (net/server.h) and of a worker's (net/upstream.h): both embed it first.
 * What does not go out at once is copied into one growing buffer, so that many small pieces cost their bytes
 * and no more; whoever fills it looks at pl_sock_full and stops, so that the buffer stays bounded. Nothing is
 * called back from inside pl_sock_send or pl_sock_close.
 */
#ifndef PL_NET_SOCK_H
#define PL_NET_SOCK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "net/tls.h"

enum {
    PL_SOCK_HIGH_BYTES = 65536, /* queued; the kernel holds as much again and more */
    PL_SOCK_READ_BYTES = 65536,
};

struct pl_sock;
struct pl_sock_calls {
    void (*bytes)(struct pl_sock *s, const char *data, size_t len); /* borrowed during the call */
    /* The peer ended (orderly: end of file) or the connection broke. Called once; nothing is read any more.
     */
    void (*ended)(struct pl_sock *s, bool orderly);
    void (*drained)(struct pl_sock *s); /* something was queued, and all of it is written now */
    void (*freed)(struct pl_sock *s);   /* after pl_sock_close: the memory is yours again */
};

struct pl_sock_write;
struct pl_sock_session; /* sock_tls.c */
struct pl_sock {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } u;
    const struct pl_sock_calls *calls;
    struct pl_sock_write *writing; /* handed to libuv */
    struct pl_sock_session *tls;   /* NULL: bytes go as they are */
    struct pl_buf next;            /* follows when that is written */
    uint64_t given;                /* bytes ever given to pl_sock_send, before they are encrypted */
    uint32_t magic;
    bool reading;  /* is wanted */
    bool watching; /* for bytes on the wire */
    bool closing, broken, ended;
    uint32_t
        read_most; /* bytes a read: fewer where what comes may have to be kept; PL_SOCK_READ_BYTES at first */
};

/* Takes `fd`. False: it could not be opened; pl_sock_close still has to be called. */
bool pl_sock_open(struct pl_sock *s, uv_loop_t *loop, int fd, bool tcp, const struct pl_sock_calls *calls);
/* Right after opening it: the peer speaks TLS first. `plain_ok`: or does not. False: no memory. A ref of
 * `tls` is kept; `desk` is borrowed. */
bool pl_sock_secure(struct pl_sock *s, struct pl_tls *tls, struct pl_tls_desk *desk, bool plain_ok);
bool pl_sock_is_secure(const struct pl_sock *s); /* and the handshake is done */
/* Why it ended: no TLS, not one that we speak, or without the certificate that is asked for. */
bool pl_sock_broke_tls(const struct pl_sock *s);
void pl_sock_read(struct pl_sock *s, bool yes);
/* False: the connection is broken or closing, nothing will arrive; `ended` follows from the loop. */
bool pl_sock_send(struct pl_sock *s, const uv_buf_t *parts, unsigned count);
/* Half-closes the writing side; only when nothing is queued. */
void pl_sock_shut(struct pl_sock *s);
/* What is queued is dropped. Idempotent. */
void pl_sock_close(struct pl_sock *s);

size_t pl_sock_queued(const struct pl_sock *s);
static inline bool pl_sock_full(const struct pl_sock *s) { return pl_sock_queued(s) > PL_SOCK_HIGH_BYTES; }
int pl_sock_fd(const struct pl_sock *s); /* borrowed; -1 when closed */
#endif
