/* net/dial.h - a Unix socket connects at once or not at all, so nobody needs a state "connecting". */
#ifndef PL_NET_DIAL_H
#define PL_NET_DIAL_H

enum pl_dialled {
    PL_DIAL_OK,
    PL_DIAL_REFUSED, /* nobody listens there */
    PL_DIAL_BUSY,    /* somebody does, but the backlog is full: try again a little later */
    PL_DIAL_FAILED,  /* our own trouble: descriptors, memory */
};

/* OK: *fd is a non-blocking, close-on-exec socket, owned by the caller. */
enum pl_dialled pl_dial_unix(const char *path, int *fd);
#endif
