/* net/server_conn.h - a server and its connections from the inside: for server.c, server_half.c,
 * server_write.c and listener.c only. */
#ifndef PL_NET_SERVER_CONN_H
#define PL_NET_SERVER_CONN_H
#include <netinet/in.h>

#include "net/server.h"
#include "net/sock.h"

enum {
    PL_CONN_MAGIC = 0x4e4e4f43,
    PL_CONN_PENDING_BYTES = 8192, /* read ahead of what is handled; then reading stops */
    PL_CONN_HEAD_BYTES = 16384,   /* a read where a head is expected */
    PL_CONN_AHEAD_BYTES = 4096, /* a read while a request is at hand: mostly to see that the client leaves */
    PL_CONN_LINGER_MS = 3000,
    PL_CONN_RATE_WINDOW_MS = 10000,
};

struct pl_listener {
    uv_poll_t poll;
    struct pl_server *server;
    struct pl_listener *next;
    int fd;
    bool tcp, paused;
    char name[64];
    struct pl_series *open, *total;
    int64_t connections;
};

enum pl_conn_phase {
    PL_CONN_IDLE,    /* between requests; the head of the next may have begun */
    PL_CONN_REQUEST, /* the owner has a request */
    PL_CONN_TUNNEL,
    PL_CONN_FLUSH,  /* the last answer goes out, then it closes */
    PL_CONN_LINGER, /* the answer is out; what the client still sends is read away, so that it can read the
                       answer */
    PL_CONN_CLOSED
};

struct pl_conn {
    struct pl_sock sock; /* first */
    uint32_t magic;
    uint8_t phase; /* enum pl_conn_phase */
    bool head_begun, body_done, paused, feeding, chunking;
    bool linger;         /* after FLUSH: there may be unread bytes */
    bool user_told;      /* the owner was given this request and has not finished it */
    bool continue_asked; /* 100 Continue is still owed */
    bool half_closed;    /* the client sends nothing more; it may still read */
    bool asked;          /* ... and was sent something, so that a reset would tell that it left */
    bool last;           /* we have said that the connection closes after this answer */
    bool kept;           /* ... that it does not */
    bool was_tcp;
    in_port_t port; /* of the peer, host order */
    struct in6_addr address;
    struct pl_listener *listener;
    struct pl_server *server;
    struct pl_conn *next, **at;
    void *user;
    struct pl_timer timer; /* head, idle, body rate, linger: one at a time */
    struct pl_timer write_timer;
    uint64_t body_bytes, rate_mark; /* of this request; at the start of the rate's window */
    uint64_t answer_mark;           /* sock.given when the request began: more means that the answer has */
    uint64_t taken_mark;            /* what the client had taken when the write timer started */
    struct pl_http_parser parser;
    struct pl_buf pending;
};

struct pl_server {
    struct pl_server_options o;
    struct pl_listener *listeners;
    struct pl_conn *conns;
    struct pl_conn *room; /* zeros for the next one; NULL: made at need */
    size_t count;
    bool draining, leaving; /* leaving: as draining, but nobody who was told otherwise meets a closed door */
    struct pl_timer resume; /* accept again after we ran out of descriptors */
    unsigned reserved;      /* descriptors kept for that moment */
    int reserve[PL_SERVER_SPARE_FDS];
    uint64_t told_ms; /* listen.paused */
    void (*empty)(void *ctx);
    void *empty_ctx;
    struct pl_tls *tls;       /* NULL: none */
    struct pl_tls_desk *desk; /* once there was any */
    struct pl_buf scratch;    /* for heads and answers, used within one call */
    struct pl_http_spares spares;
};

/* server.c */
/* Takes `fd` and the server's `room`, which must be there. */
void pl_conn_accept(struct pl_listener *l, int fd, const struct sockaddr_storage *peer);
void pl_conn_close_now(struct pl_conn *c);
void pl_conn_wind_up(struct pl_conn *c, bool linger); /* flush, then linger or close */
void pl_conn_next(struct pl_conn *c);                 /* the answer is out: the next request, or the end */
void pl_conn_count_error(struct pl_conn *c, const char *reason);
/* server_half.c */
void pl_conn_settle_half(struct pl_conn *c); /* after its end of file, and whenever bytes were used up */
void pl_conn_watch_half(struct pl_conn *c);  /* looks from time to time whether it is still there */
/* server_write.c */
void pl_conn_continue(struct pl_conn *c); /* 100 Continue, if it is owed */
void pl_conn_interim(struct pl_conn *c);  /* 100 Continue, owed or not */
/* listener.c */
void pl_listeners_close(struct pl_server *s);
void pl_listeners_resume(struct pl_server *s);
#endif
