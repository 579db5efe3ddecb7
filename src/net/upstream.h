/* net/upstream.h - connections to one worker: a pool that keeps them alive, one exchange at a time on each.
 *
 * A reply is handed over in the pieces in which it is read, as raw bytes of its body section (chunk framing
 * included), so that it can go on unchanged. A connection is used again only when its reply ended exactly at
 * its framing and the request was sent whole. Idle ones are closed after `idle_ms`, sooner than the worker
 * would.
 */
#ifndef PL_NET_UPSTREAM_H
#define PL_NET_UPSTREAM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "http/parser.h"
#include "net/dial.h"
#include "net/timers.h"

struct pl_pool;
struct pl_upstream;

/* What one read brought of a reply. */
struct pl_upstream_part {
    bool head;       /* pl_upstream_head is whole since this part */
    bool end;        /* the reply is complete */
    const char *raw; /* the body section's bytes as they came; borrowed during the call */
    size_t raw_len;
    size_t payload; /* bytes of it that are body, framing left out */
};
enum pl_upstream_end {
    PL_UPSTREAM_CLOSED,    /* before the reply was complete */
    PL_UPSTREAM_MALFORMED, /* what came is no HTTP reply */
    PL_UPSTREAM_REFUSED,   /* it never came to a connection: nothing was sent */
};

struct pl_upstream_calls {
    void (*part)(void *ctx, struct pl_upstream *u, const struct pl_upstream_part *p);
    /* Payload without framing, before `part`; only when asked for with pl_upstream_want_payload. May be NULL.
     */
    void (*payload)(void *ctx, struct pl_upstream *u, const char *bytes, size_t len);
    /* Over without a complete reply; `u` must be given to pl_upstream_close. */
    void (*failed)(void *ctx, struct pl_upstream *u, enum pl_upstream_end end);
    void (*writable)(void *ctx, struct pl_upstream *u); /* what pl_upstream_send queued is written */
    void (*tunnel)(void *ctx, struct pl_upstream *u, const char *bytes, size_t len); /* after 101 */
};

struct pl_pool_options {
    uv_loop_t *loop;
    struct pl_timers *timers;
    const struct pl_http_limits *limits; /* of reply heads; borrowed */
    const struct pl_upstream_calls *calls;
    uint64_t idle_ms;
    uint64_t connect_ms; /* how long a connection may be on its way */
    bool look_first;     /* the worker may close idle ones sooner than we do: look before one is used again */
    const struct pl_dial_to *to; /* borrowed; when it changes, new connections go there */
};
struct pl_pool *pl_pool_create(const struct pl_pool_options *o);
/* Closes the idle connections; those in use stay their users' and close instead of coming back. Frees itself
 * when the last one is closed. */
void pl_pool_destroy(struct pl_pool *p);
void pl_pool_close_idle(struct pl_pool *p);

/* An idle connection or a new one. OK: *out is yours until pl_upstream_release or pl_upstream_close; nothing
 * is called back before the next turn of the loop. */
enum pl_dialled pl_upstream_open(struct pl_pool *p, void *ctx, struct pl_upstream **out);
/* It has served before: the worker may be closing it at this very moment. */
bool pl_upstream_reused(const struct pl_upstream *u);
/* Before the request is sent: the reply to HEAD has no body. */
void pl_upstream_answers_head(struct pl_upstream *u, bool yes);
void pl_upstream_want_payload(struct pl_upstream *u, bool yes);
void pl_upstream_send(struct pl_upstream *u, const uv_buf_t *parts, unsigned count);
bool pl_upstream_full(const struct pl_upstream *u);
bool pl_upstream_flushed(const struct pl_upstream *u); /* nothing waits to be written, and it may take more */
void pl_upstream_pause(struct pl_upstream *u, bool yes);
const struct pl_http_head *pl_upstream_head(const struct pl_upstream *u);
/* Any byte of a reply has come. */
bool pl_upstream_heard(const struct pl_upstream *u);
/* What was handed over so far ends between two chunks (or before the first): something may be put in there.
 */
bool pl_upstream_between_chunks(const struct pl_upstream *u);
/* After the part with `end`. `reusable`: the request was sent whole. */
void pl_upstream_release(struct pl_upstream *u, bool reusable);
/* At any time; nothing is called back any more. */
void pl_upstream_close(struct pl_upstream *u);
#endif
