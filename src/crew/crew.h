/* crew/crew.h - main's hands on the workers: it obeys room `worker`, speaks to the keeper, and tells the
 * gateway.
 *
 * One way to start: LIST, adopt what is there, act on the difference. A pl_service and its pl_workers live as
 * long as the crew; the gateway keeps pointers to workers only between `ready` and `gone`.
 */
#ifndef PL_CREW_CREW_H
#define PL_CREW_CREW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/user.h"
#include "base/wire.h"
#include "crew/app.h"
#include "net/dial.h"
#include "sample/page.h"
#include "worker/boot.h"
#include "worker/death.h"
#include "worker/engine.h"
#include "worker/replace.h"
#include "worker/state.h"

struct pl_crew;
struct pl_service;

/* STREAM_DRAIN: replace.drain and drain_timeout: auto, while a stream is on its way. SLOTS_MOST: no worker's
 * number is larger. */
enum { PL_CREW_STREAM_DRAIN_MS = 600000, PL_CREW_SLOTS_MOST = 4096 };

/* One generation: one process with a place of its own. Of a server that somebody else runs, one for as long
 * as we look at it: it has no process, no generation and no page, and only comes and goes as `routable`. */
struct pl_worker {
    struct pl_service *service; /* borrowed */
    struct pl_worker *next;     /* in its service's list, oldest first */
    uint32_t slot;              /* 1..N, the same for a successor */
    uint64_t generation;        /* the keeper's; 0 until spawned */
    enum pl_worker_state state;
    pid_t pid;
    struct pl_dial_to to; /* where it listens */
    bool routable;        /* READY and its own readiness agrees: may be given a request */
    bool withdrawn;       /* another main is about to end it: it gets what is here, and nothing more comes */
    bool exited;          /* the leader was reaped: its page is final */
    uint32_t in_flight;   /* exchanges the gateway has with it; zombies excluded */
    uint32_t streams;     /* of those: a reply without a length is on its way. Counted by the gateway */
    uint64_t served;
    uint32_t lost_in_handlers;   /* set by the gateway in hooks.exited: requests that died in a handler */
    struct pl_page page;         /* foreign bytes, read through sample/page.h */
    void *pool;                  /* the gateway's; freed by it in hooks.gone */
    struct pl_worker_more *more; /* the crew's own affairs */
};

/* What the engine behind a worker has told of itself, in /v1/models, /metrics and its output. Foreign words.
 */
enum { PL_ENGINE_MODELS = 8, PL_ENGINE_MODEL_NAME = 129 };
struct pl_engine_facts {
    uint64_t context_tokens;      /* of one request; 0: not told */
    uint64_t kv_tokens, kv_bytes; /* of the whole KV cache; 0: not told */
    uint64_t block_tokens;        /* 0: not told */
    uint64_t planned_kv_bytes;    /* that its command asks for; 0: it leaves that to the engine */
    uint64_t command_hash;        /* of its command and engine_args */
    uint64_t step_tokens;         /* prompt tokens that one step takes at most; 0: not known */
    double kv_used_ratio;         /* below 0: not told */
    uint64_t running, waiting;    /* requests, as it last said */
    uint64_t preemptions;         /* so far */
    uint64_t told_ms;             /* when it last spoke of its load; 0: never */
    char models[PL_ENGINE_MODELS][PL_ENGINE_MODEL_NAME];
    size_t model_count;
    /* its start: planned_kv_bytes and what it has printed, for pl_boot_judge. `last` is left to the gateway.
     */
    struct pl_boot_start boot;
    uint64_t auto_from_tokens, auto_to_tokens; /* it has changed the context so that it fits; 0: it has not */
    bool plan_waits;                           /* a plan of it is being made */
    int64_t
        plan_failed; /* exit status of `plimsoll plan` that made none; -1: it was ended; 0: it did not fail */
};

struct pl_route; /* crew/describe.h */

struct pl_service {
    struct pl_crew *crew;
    struct pl_service_config *config; /* borrowed from app->config; changes when described */
    uint32_t index;                   /* in app->config->services; a dependency has its parent's */
    /* NULL, or the service that this one is a dependency of: it runs apart, is not routed, and its workers
     * share one socket. */
    struct pl_service *parent;
    struct pl_service *dependencies, *next; /* those that run apart; the next one of the same parent */
    enum pl_kind kind;                      /* python may turn into command: see pl_fallback_take */
    struct pl_worker *workers;
    bool was_ready;         /* has been ready in this life of the keeper */
    bool draining;          /* by operator */
    bool described;         /* the worker has told what the decorator says; limits are final */
    uint64_t boot_ms;       /* measured, spawn to READY; 0 = not yet */
    uint32_t held, refused; /* counted by the gateway in a handover, taken by the crew at its end */
    struct pl_service_more *more;
};

/* All are called on the loop. Pointers are borrowed. */
struct pl_crew_hooks {
    void *ctx;
    void (*described)(void *ctx, struct pl_service *s);      /* config of the service may have changed */
    void (*supply_changed)(void *ctx, struct pl_service *s); /* a worker came or went: pump the queue */
    void (*renewed)(void *ctx,
                    struct pl_service *s); /* an operator's or a reload's new generation is ready */
    void (*unroutable)(void *ctx, struct pl_worker *w); /* send it nothing new; close idle connections */
    void (*exited)(void *ctx, struct pl_worker *w);     /* reaped: judge what was in flight by its page */
    void (*gone)(void *ctx, struct pl_worker *w);       /* drop every pointer to it now */
    /* A request has ended in a worker, as its page tells; `path` is its route's, "other" where it is not
     * known. */
    void (*ended)(void *ctx, struct pl_worker *w, const char *path, const struct pl_page_record *r);
    void (*retried)(void *ctx, struct pl_worker *w); /* its allocator had to empty its cache to go on */
    void (*room_changed)(void *ctx);                 /* pl_look_room may say something else now */
    /* Bytes that those are charged which run where it is, on its device; UINT64_MAX: some of them are not
     * charged. NULL: nobody counts. */
    uint64_t (*charged)(void *ctx, struct pl_worker *w);
    /* Bytes that those are charged which run in it, what their client has left and another main's included.
     * NULL: nobody counts. */
    uint64_t (*charged_to)(void *ctx, const struct pl_worker *w);
    /* A main that was upgraded away has a request with it, or nobody can tell. NULL: nobody can. */
    bool (*elsewhere)(void *ctx, const struct pl_worker *w);
    void (*engine_told)(void *ctx, struct pl_worker *w); /* pl_worker_engine has news; may be NULL */
};

/* What main gives its crew. All borrowed for the crew's life. */
struct pl_link;
struct pl_held_list;
struct pl_crew_options {
    struct pl_app *app;
    struct pl_link *link;
    struct pl_wire_welcome welcome;
    const char *run_dir, *state_dir;   /* state_dir NULL: nothing is kept */
    const char *cache_dir;             /* NULL: what engines compile is their own affair */
    const char *python_path;           /* our Python side, for PYTHONPATH */
    const struct pl_user *worker_user; /* whose the workers are; NULL: ours */
    const char *watch_path;            /* the watch program; NULL: nobody looks at devices */
    const char *llama_path;            /* the program plimsoll-llama; NULL: not in this build */
    void (*on_stopped)(void *ctx);     /* after pl_crew_stop: no worker is left */
    void (*on_action)(void *ctx, const char *action, bool ok, const char *message);
    /* The same with the status that the verb ends with, and a document of it or NULL. */
    void (*on_report)(void *ctx, const char *action, int exit_status, const char *message, const char *json);
    void (*on_keeper_news)(void *ctx, struct pl_wire_message *m); /* STOP, HELM and the like */
    void *ctx;
};
struct pl_crew *pl_crew_create(const struct pl_crew_options *o, struct pl_err *err);
/* LIST, adopt, act on the difference; from now on the loop drives it. Takes what it needs out of `held`. */
bool pl_crew_start(struct pl_crew *c, const struct pl_crew_hooks *hooks, struct pl_held_list *held,
                   struct pl_err *err);
/* app->config is another one now, with the same services at the same indexes. */
void pl_crew_reconfigured(struct pl_crew *c);
/* Servers that are not of our making may publish what they do: `fd` is run_dir/agents.sock, listening. */
bool pl_crew_agents(struct pl_crew *c, int fd, struct pl_err *err);
/* The helm is given to another main (crew/rest.c): freeze (false: not after all), rest, ask until it is at
 * rest, then again or leave. */
void pl_crew_freeze(struct pl_crew *c, bool yes);       /* no replacement is begun */
const char *pl_crew_replacing(const struct pl_crew *c); /* the service of one under way, or NULL */
void pl_crew_rest(struct pl_crew *c);                   /* touches nothing any more */
bool pl_crew_rested(struct pl_crew *c);                 /* what it had begun is done and written */
void pl_crew_again(struct pl_crew *c, int agents_fd);   /* as it was; takes the socket, or -1 */
/* Another main still answers requests with our workers: what only it counts is not drained. */
void pl_crew_other_main(struct pl_crew *c, bool there);
void pl_crew_leave(struct pl_crew *c); /* for good: only sees workers end */
/* Stops every worker in order; options.on_stopped tells the end. */
void pl_crew_stop(struct pl_crew *c);
void pl_crew_close(struct pl_crew *c);

/* A person's wish, or a reload's, to replace one worker (slot) or all (0). */
struct pl_replace_wish {
    enum pl_replace_reason reason; /* OPERATOR, GENERATION or ROLLBACK */
    uint32_t slot;
    const char *mode;   /* "overlap", "handover"; NULL or "auto": as configured */
    bool now;           /* do not wait for a quiet moment */
    const char *action; /* names it for on_action, or NULL */
};
/* What came of it at once. */
struct pl_replace_answer {
    const char *mode;
    uint64_t expected_gap_ms, hold_ms; /* gap 0: others serve meanwhile, or nobody knows */
    bool gap_known, waits;             /* waits: for a quiet moment */
};
/* False: another one is under way, no such worker, no such mode. `answer` may be NULL. */
bool pl_service_replace(struct pl_service *s, const struct pl_replace_wish *wish,
                        struct pl_replace_answer *answer, struct pl_err *err);
/* A handover in which nobody serves, and what is expected of it. */
struct pl_service_gap {
    uint64_t left_ms; /* 0 = unknown */
    uint64_t hold_ms; /* how long a request may be held */
};
/* False: there is none. */
bool pl_service_gap(const struct pl_service *s, uint64_t now_ms, struct pl_service_gap *out);
/* For /readyz: a routable worker, or a handover in which the service stays ready; and it is not drained. */
bool pl_service_ready(const struct pl_service *s);
/* `enforce`: origin operator; kept for the next main. */
bool pl_service_set_mode(struct pl_service *s, const char *mode, struct pl_err *err);
/* `drain`: nothing new is let in. Kept for the next main. */
void pl_service_drain(struct pl_service *s, bool drain);
/* What would have been refused or replaced: plimsoll_would_total. */
void pl_service_would(struct pl_service *s, const char *action, const char *reason);
/* Its command always listens on the same port: a successor starts after the old one. */
bool pl_service_fixed(const struct pl_service *s);
bool pl_service_failed(const struct pl_service *s); /* every slot, or a dependency, has been given up */

/* Those of the configuration. */
size_t pl_crew_service_count(const struct pl_crew *c);
struct pl_service *pl_crew_service(struct pl_crew *c, size_t i);
/* Those, and their dependencies that run apart: "front.Scale". */
struct pl_service *pl_crew_find(struct pl_crew *c, const char *name, size_t len);

/* The routable worker with the fewest in flight, or NULL. */
struct pl_worker *pl_service_pick(struct pl_service *s);
uint32_t pl_crew_streams(const struct pl_crew *c);           /* on their way, from all workers */
uint32_t pl_service_ready_count(const struct pl_service *s); /* 0 when a dependency has been given up */
bool pl_service_lasts(const struct pl_service *s);           /* one of those is there, and is not withdrawn */
/* Expected until a worker is ready; 0 = unknown. */
uint64_t pl_service_boot_left_ms(const struct pl_service *s, uint64_t now_ms);

/* What the worker's own /metrics said last, or NULL: nothing yet, or it has not answered for longer than
 * metrics.stale_after. Asking for the page keeps it fresh. */
const struct pl_buf *pl_worker_metrics_text(const struct pl_worker *w);
bool pl_worker_metrics_since(const struct pl_worker *w, uint64_t *scraped_ms); /* false: NULL above */
void pl_crew_metrics_asked(struct pl_crew *c);
/* Of a worker of an LLM preset; NULL: it is none. */
const struct pl_engine_facts *pl_worker_engine(const struct pl_worker *w);
/* The model that a service of an LLM preset serves: as an engine of it last told in this life of main, else
 * the first of route.models, else the service's id. Borrowed until the loop's next turn. */
const char *pl_service_model(const struct pl_service *s);
/* Its models as it described them, an array; NULL: not told yet. Borrowed until the loop's next turn. */
struct json_t;
const struct json_t *pl_worker_models(const struct pl_worker *w);

/* The gateway's book-keeping. `ok`: the worker answered properly: that is proof of readiness. */
void pl_worker_begin(struct pl_worker *w);
void pl_worker_end(struct pl_worker *w, bool ok);
/* A handler outlived its request (504, client gone): its end must be waited for on the page before the worker
 * counts as drained and before its slot is free again. The gateway polls; the crew only counts. */
void pl_worker_zombies(struct pl_worker *w, int change);
/* Nobody listened where it should: no request goes there until its readiness has answered again. */
void pl_worker_refused(struct pl_worker *w);
#endif
