/* net/dial.h - where a worker listens, and a connection to it.
 *
 * A Unix socket connects at once or not at all. TCP on loopback does, too, but for a full backlog; anywhere
 * else the connection may still be on its way when pl_dial returns. Such a socket may be written to: the
 * bytes wait, and if nobody answers, nothing of them was sent (pl_dial_sent).
 */
#ifndef PL_NET_DIAL_H
#define PL_NET_DIAL_H
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct pl_dial_to {
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } at;
    socklen_t len; /* 0: not known (yet); a dial there is REFUSED */
};

/* False: the path is too long for a socket, or empty; `to` is not known then. */
bool pl_dial_to_path(struct pl_dial_to *to, const char *path);
void pl_dial_to_port(struct pl_dial_to *to, uint16_t port); /* of 127.0.0.1 */
/* An IP, version 4 or 6, without brackets. False: it is none. */
bool pl_dial_to_ip(struct pl_dial_to *to, const char *ip, uint16_t port);
static inline bool pl_dial_is_tcp(const struct pl_dial_to *to) {
    return to->len != 0 && to->at.any.sa_family != AF_UNIX;
}

enum pl_dialled {
    PL_DIAL_OK,
    PL_DIAL_REFUSED, /* nobody listens there */
    PL_DIAL_BUSY,    /* somebody does, but the backlog is full: try again a little later */
    PL_DIAL_FAILED,  /* our own trouble: descriptors, memory */
};

/* OK: *fd is a non-blocking, close-on-exec socket, owned by the caller. A TCP connection to a port where
 * nobody listens can meet itself, when the kernel picks that very port for our end: that is REFUSED. */
enum pl_dialled pl_dial(const struct pl_dial_to *to, int *fd);
/* TCP: it is established. */
bool pl_dial_connected(int fd);
/* TCP: payload bytes that ever left; UINT64_MAX when that cannot be told. */
uint64_t pl_dial_sent(int fd);
/* The peer has closed, or sent what nobody asked for: not a connection to use again. */
bool pl_dial_stale(int fd);
#endif
