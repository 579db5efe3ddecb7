/* net/server.h - HTTP/1.1 towards clients: listeners, connections, one request at a time on each.
 *
 * The data port and the admin port are servers of their own. A connection hands its owner one request after
 * the other, in order: `request` when the head is whole, `body` as it comes, `body_end`; the next one is not
 * looked at before pl_conn_finish. Framing, keep-alive, 100-continue, time limits and refusals of what is no
 * HTTP are dealt with here.
 *
 * Rules: all calls are made on the loop. The owner answers each request with exactly one of: pl_conn_reply,
 * or pl_conn_start/pl_conn_send… and pl_conn_finish, or pl_conn_cut; unless `gone` was called for it first.
 * After any of these, the pointer means nothing to the owner. They may be called from inside `request`,
 * `body` and `body_end`.
 */
#ifndef PL_NET_SERVER_H
#define PL_NET_SERVER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/parser.h"
#include "http/write.h"
#include "net/timers.h"
#include "net/tls.h"

/* Borrowed by the server and read at every use: change them live. 0 = no limit where that makes sense. */
struct pl_server_limits {
    struct pl_http_limits http;
    uint64_t head_timeout_ms;  /* from the first byte (or the accept) to the whole head */
    uint64_t idle_timeout_ms;  /* between requests */
    uint64_t write_timeout_ms; /* the client takes nothing */
    uint64_t body_min_rate;    /* bytes/s of an upload that we wait for */
    uint64_t connections;
};

struct pl_conn;
struct pl_server;

struct pl_server_calls {
    void (*request)(void *ctx, struct pl_conn *c);
    void (*body)(void *ctx, struct pl_conn *c, const char *bytes, size_t len); /* or the tunnel's bytes */
    void (*body_end)(void *ctx, struct pl_conn *c);
    /* What pl_conn_send queued is written: go on if you stopped because of pl_conn_full. May be NULL. */
    void (*writable)(void *ctx, struct pl_conn *c);
    /* There are no descriptors left: give back those that are only kept for later. May be NULL. */
    void (*scarce)(void *ctx);
    /* The client left, or broke the protocol or a time limit, before the answer was finished. */
    void (*gone)(void *ctx, struct pl_conn *c);
};

enum { PL_SERVER_SPARE_FDS = 32 };

struct pl_server_options {
    uv_loop_t *loop;
    struct pl_timers *timers;
    struct pl_metrics *metrics;
    struct pl_logger *log;        /* or NULL */
    const struct pl_clock *clock; /* for Date; NULL: the machine's */
    const struct pl_server_limits *limits;
    const struct pl_server_calls *calls;
    void *ctx;
    /* Descriptors held back for the moment when there are no others; at most PL_SERVER_SPARE_FDS. Who accepts
     * the crowd gives them up to the process and stops accepting; a server that must answer even then
     * (`spare_own`) accepts with them. */
    unsigned spare_fds;
    bool spare_own;
    /* With TLS: who comes from this machine may also speak without. */
    bool plain_loopback;
};
struct pl_server *pl_server_create(const struct pl_server_options *o);
/* Takes `fd`: a listening TCP or Unix socket. `name` is its label in metrics and logs. */
bool pl_server_listen(struct pl_server *s, int fd, const char *name, struct pl_err *err);
/* TCP connections that are accepted from now on speak TLS; NULL: they do not. Keeps a ref. */
void pl_server_set_tls(struct pl_server *s, struct pl_tls *tls);
/* Closes the listeners; connections stay. */
void pl_server_unlisten(struct pl_server *s);
/* Stops accepting, closes idle connections and, as they finish, the others. `empty` is called from the loop
 * (or at once if it is empty already). */
void pl_server_drain(struct pl_server *s, void (*empty)(void *ctx), void *ctx);
/* Another process accepts now: as drain, but an idle connection may bring one more request. Whoever reuses
 * one meets no closed door: each is told with its next answer, and those that stay idle are closed in their
 * time. */
void pl_server_leave(struct pl_server *s, void (*empty)(void *ctx), void *ctx);
/* Of one that leaves and cannot answer any more: idle connections are closed now, so that who comes again
 * finds the other process. */
void pl_server_close_idle(struct pl_server *s);
/* Cuts every connection that is left. */
void pl_server_cut(struct pl_server *s);
size_t pl_server_connections(const struct pl_server *s);
/* Only when it has no connections and no listeners any more (after drain, or cut and a turn of the loop). */
void pl_server_destroy(struct pl_server *s);

/* --- the request that a connection holds now */
const struct pl_http_head *pl_conn_head(const struct pl_conn *c);
void pl_conn_set_user(struct pl_conn *c, void *user); /* NULL again for the next request */
void *pl_conn_user(const struct pl_conn *c);
/* "10.0.0.7:51234", "[::1]:51234", "unix:" */
enum { PL_PEER_TEXT = 64 };
const char *pl_conn_peer(const struct pl_conn *c, char out[PL_PEER_TEXT]);
/* The same without the port; NULL on a Unix socket. */
const char *pl_conn_address(const struct pl_conn *c, char out[PL_PEER_TEXT]);
bool pl_conn_is_secure(const struct pl_conn *c); /* TLS */
/* TCP from this very machine. */
bool pl_conn_is_loopback(const struct pl_conn *c);
/* False: not a Unix socket. */
bool pl_conn_peer_uid(const struct pl_conn *c, uid_t *uid);
const char *pl_conn_listener(const struct pl_conn *c);

/* Back-pressure on the body (or the tunnel): while paused nothing is handed over, and after a bit nothing is
 * read. A client that waits for 100 Continue gets it as soon as the owner has neither answered nor paused. */
void pl_conn_pause(struct pl_conn *c, bool yes);

/* --- the answer */
/* A whole one; status, content_type, extra, body are looked at, the rest is filled in here. Finishes. */
void pl_conn_reply(struct pl_conn *c, const struct pl_http_reply *r);
/* An error in the dialect of the request's target (surface.md 6.3). `code` NULL: the status' usual one.
 * Finishes. */
void pl_conn_error(struct pl_conn *c, uint16_t status, const char *code, const char *message,
                   const char *extra);
/* A streamed answer of our own: head, pieces as chunks, finish. False: the client speaks HTTP/1.0, which has
 * no chunks and would take a cut for the end; it was answered 505 and the request is over. */
bool pl_conn_start(struct pl_conn *c, uint16_t status, const char *content_type, const char *extra);
void pl_conn_piece(struct pl_conn *c, const char *bytes, size_t len);
/* May the connection live on after this answer? To be asked when the head is written, so that it says so. */
bool pl_conn_will_keep(struct pl_conn *c);
/* Bytes exactly as they are. */
void pl_conn_send(struct pl_conn *c, const uv_buf_t *parts, unsigned count);
bool pl_conn_full(const struct pl_conn *c);
/* The answer is complete (last chunk included, if we began with pl_conn_start). */
void pl_conn_finish(struct pl_conn *c);
/* The answer is not complete and never will be: what is queued goes out, then the connection closes. */
void pl_conn_cut(struct pl_conn *c);
/* From now on bytes go both ways unlooked at; ends with pl_conn_cut or `gone`. */
void pl_conn_tunnel(struct pl_conn *c);
#endif
