/* net/ask.h - one question to a worker, and the whole answer: probes, warm-ups, scrapes.
 *
 * A connection of its own, closed afterwards. Not for proxying: the reply is kept in memory up to
 * `reply_cap`.
 */
#ifndef PL_NET_ASK_H
#define PL_NET_ASK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "net/dial.h"

struct pl_ask;
struct pl_ask_reply {
    bool answered;       /* a whole HTTP reply came within the time */
    bool refused;        /* connect failed: nobody listens (the worker is dead or not there) */
    uint16_t status;     /* if answered */
    const char *problem; /* if not answered: static text ("connect", "timeout", "closed", "malformed", "too
                            large", "left") */
    const char *body;    /* borrowed during the call; NUL-ended */
    size_t body_len;
    uint64_t took_us; /* from the first byte written to the last byte read */
};
/* Called exactly once, never from inside pl_ask_start, not after pl_ask_cancel. */
typedef void pl_ask_done(void *ctx, const struct pl_ask_reply *reply);

/* A piece of the body, as it comes. False: that is enough, the connection is left ("left"). */
typedef bool pl_ask_piece(void *ctx, const char *bytes, size_t len);

struct pl_ask_question {
    const struct pl_dial_to *to; /* copied */
    const char *host;            /* Host header, or NULL: localhost */
    const char *method, *target;
    const char *headers; /* more header lines, each ending with CRLF, or NULL; Host and Content-Length are
                            written here */
    const void *body;    /* copied */
    size_t body_len;
    size_t reply_cap;    /* bytes of body kept; more is "too large" */
    pl_ask_piece *piece; /* or NULL. With it nothing of the body is kept */
    uint64_t timeout_ms;
};
/* NULL only without memory. */
struct pl_ask *pl_ask_start(uv_loop_t *loop, const struct pl_ask_question *q, pl_ask_done *done, void *ctx);
void pl_ask_cancel(struct pl_ask *ask); /* takes it; frees itself */
#endif
