/* gateway/gateway.h - a request's way from a client to a worker and back: route, body, admission, exchange,
 * account.
 *
 * One object for the data port. It asks the crew for workers and is told by it (pl_gateway_hooks) when one
 * comes, goes or dies. What a dead worker had is judged by its page: sent again if no handler began, else
 * answered 502; a reply that had begun is cut so that the client can tell. After a 504, or when the client
 * left, the request keeps its place in the service's concurrency until its handler has really ended (a
 * "zombie").
 *
 * Order: pl_crew_create, pl_gateway_create, pl_gateway_hooks, pl_crew_start, pl_gateway_listen; at the end
 * pl_gateway_drain, pl_crew_stop, pl_gateway_destroy.
 */
#ifndef PL_GATEWAY_GATEWAY_H
#define PL_GATEWAY_GATEWAY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crew/crew.h"
#include "door/keys.h"
#include "net/server.h"
#include "net/timers.h"

struct pl_gateway;

/* Called for GET and HEAD of /livez…, /readyz… and /metrics on the data port. True: it has answered
 * (pl_conn_reply). False: the request is the service's. */
struct pl_own_routes {
    bool (*answer)(void *ctx, struct pl_conn *c);
    void *ctx;
};

struct pl_gateway_options {
    struct pl_app *app;       /* borrowed, as all here */
    struct pl_crew *crew;     /* created, not started */
    struct pl_timers *timers; /* shared with the admin port */
    struct pl_own_routes own;
    uint64_t max_connections; /* limits.connections: auto, resolved */
    uint64_t max_buffered;    /* limits.buffered: auto, resolved */
    const char *state_dir;    /* what is learnt is kept there; NULL: nowhere */
};
struct pl_gateway *pl_gateway_create(const struct pl_gateway_options *o, struct pl_err *err);
/* For pl_crew_start. */
void pl_gateway_hooks(struct pl_gateway *g, struct pl_crew_hooks *out);
/* Takes `fd`, a listening socket; `name` is its label ("0.0.0.0:3000"). */
bool pl_gateway_listen(struct pl_gateway *g, int fd, const char *name, struct pl_err *err);
/* The charge board, after pl_crew_start: takes the one that the keeper held (-1: none, it is made), and
 * counts what a dead main left on it. Returns what the keeper is to hold, which stays the caller's; -1: there
 * is no board. */
int pl_gateway_board(struct pl_gateway *g, int held);
/* Closes the listeners, and nothing else: others take their place. */
void pl_gateway_unlisten(struct pl_gateway *g);
/* The configuration was reloaded: limits of the instance and of every service are read again. */
void pl_gateway_reconfigured(struct pl_gateway *g, uint64_t max_connections, uint64_t max_buffered);

/* Who may come in from now on; takes `ring`. NULL: everybody. What a key has used stays with its name. */
void pl_gateway_set_keys(struct pl_gateway *g, struct pl_keyring *ring);

/* For connections that come from now on; NULL: without TLS. Keeps a ref. */
void pl_gateway_set_tls(struct pl_gateway *g, struct pl_tls *tls);

/* Takes nothing new: listeners and idle connections close, what runs or waits is finished; `empty` when
 * nobody is left (from the loop, or at once). Zombies are the crew's to wait for. */
void pl_gateway_drain(struct pl_gateway *g, void (*empty)(void *ctx), void *ctx);
/* What was learnt goes to the state folder now: another main is about to read it. */
void pl_gateway_save(struct pl_gateway *g);
/* Another main serves from now on, and keeps what is learnt: what is open here is finished (net/server.h). */
void pl_gateway_leave(struct pl_gateway *g, void (*empty)(void *ctx), void *ctx);
size_t pl_gateway_connections(const struct pl_gateway *g);
/* The drain has taken too long: waiting requests are refused, running ones cut. */
void pl_gateway_cut(struct pl_gateway *g);
/* After `empty` and the crew's end. */
void pl_gateway_destroy(struct pl_gateway *g);

/* A request that was answered well, with its body whole. Borrowed for the call. */
struct pl_captured {
    const char *method;
    const char *target, *content_type; /* not NUL-ended; content_type NULL: none */
    size_t target_len, content_type_len;
    const char *body;
    size_t body_len;
    bool last; /* the last of those that were asked for */
};
typedef void pl_gateway_captured(void *ctx, struct pl_service *s, const struct pl_captured *c);
/* Hands the next `count` requests for `route` (a path) to `each`; a new order replaces the service's old one.
 */
void pl_gateway_capture(struct pl_gateway *g, struct pl_service *s, const char *route, uint32_t count,
                        pl_gateway_captured *each, void *ctx);

/* Requests that have run or waited for `least_ms` get a row in the record now: were we killed, the next start
 * could tell what was in flight. */
void pl_gateway_record_open(struct pl_gateway *g, uint64_t least_ms);

/* For /status and the page of metrics. */
struct pl_gateway_numbers {
    int64_t queued, running; /* running: admitted, zombies included */
    uint64_t oldest_ms;      /* the longest wait in the queue now */
    double drain_per_s;
};
void pl_gateway_numbers(const struct pl_gateway *g, const struct pl_service *s,
                        struct pl_gateway_numbers *out);
/* The last start of an LLM engine against what was planned; false: none was checked yet. */
struct pl_gateway_plan {
    double drift_ratio;
    uint64_t capacity_requests, length; /* so many at a time of so many tokens; 0: not known */
};
bool pl_gateway_plan(const struct pl_gateway *g, const struct pl_service *s, struct pl_gateway_plan *out);

/* The `index`-th place with a budget, or false. `gpu` is borrowed. */
struct pl_gateway_budget {
    const char *gpu; /* its devices, or "host" */
    uint64_t full_bytes, budget_bytes, charged_bytes, free_bytes, orphan_bytes;
    uint64_t foreign_bytes, fixed_bytes, margin_bytes; /* all 0 where memory.budget is set */
    uint64_t alarm_bytes;                              /* 0: not known */
    uint32_t requests;                                 /* that are charged there */
    uint64_t kept_bytes;                               /* kept back for what the requests of a batch share */
};
bool pl_gateway_budget(const struct pl_gateway *g, const struct pl_service *s, size_t index,
                       struct pl_gateway_budget *out);
uint64_t pl_gateway_buffered(const struct pl_gateway *g); /* bytes of kept bodies */
#endif
