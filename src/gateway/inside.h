/* gateway/inside.h - a request, a service and a worker as the gateway's own files see them. Not for other
 * rooms. */
#ifndef PL_GATEWAY_INSIDE_H
#define PL_GATEWAY_INSIDE_H
#include "admit/admit.h"
#include "admit/board.h"
#include "admit/kv.h"
#include "admit/ordinary.h"
#include "admit/peaks.h"
#include "admit/poison.h"
#include "base/buf.h"
#include "door/quota.h"
#include "gateway/gateway.h"
#include "gateway/route.h"
#include "net/upstream.h"

enum {
    PL_REQUEST_MAGIC = 0x54535152,
    PL_REQUEST_BODY_KEPT = 4096, /* buffer kept with an unused request object */
    PL_REQUESTS_SPARE = 512,     /* that a load has had at once: so many are there for the next */
    PL_SLICE_BYTES = 1 << 17,    /* of a kept body at a time: what a worker is slow to take is not copied */
    PL_HOLD_BYTES = 1 << 20,     /* a chunked reply for an HTTP/1.0 client is kept up to this */
    PL_GATHER_BYTES = 16384,     /* a reply of a known length up to this goes out whole or not at all */
    PL_POOL_IDLE_MS = 60000,     /* the worker keeps its side longer (crew: keep_alive_s) */
    PL_POOL_FOREIGN_IDLE_MS = 1500, /* less than any server's own; gunicorn's is 2 s, uvicorn's 5 s */
    PL_CONNECT_MS = 3000,   /* a connection may be on its way so long; on loopback it is there at once */
    PL_RETRY_MS = 20,       /* backlog full, no descriptors: try again */
    PL_JUDGE_MS = 1000,     /* a connection closed: how long to wait for the news of a death */
    PL_LAST_WORDS_MS = 250, /* a worker died: how long its bytes may still come out of the socket */
    PL_UNSENT_MOST = 3,     /* tries at workers that refused the connection */
    PL_ZOMBIE_TICK_MS = 50,
    PL_ZOMBIE_QUIET_MS =
        1000, /* never begun and the worker has nothing in hand for so long: it will not begin */
    PL_ZOMBIE_LATE_MS = 3000, /* the launcher cancels what has not begun a second after traffic.timeout */
};

enum pl_phase {
    PL_REQ_READING, /* the body comes */
    PL_REQ_QUEUED,
    PL_REQ_RETRY,   /* admitted; the worker's socket would not take it yet */
    PL_REQ_WAITING, /* sent; nothing of the reply is out to the client */
    PL_REQ_REPLYING,
    PL_REQ_TUNNEL,
    PL_REQ_JUDGING, /* its connection is gone: did the worker die, did a handler begin? */
    PL_REQ_ZOMBIE,
};

/* Bytes of the body. */
enum pl_body_mode { PL_BODY_NONE, PL_BODY_KEEP, PL_BODY_STREAM };

/* Closed: surface.md 8.7. */
#define PL_RESULTS(X)               \
    X(OK, "ok")                     \
    X(CLIENT_ERROR, "client_error") \
    X(SERVER_ERROR, "server_error") \
    X(REFUSED, "refused")           \
    X(REJECTED, "rejected")         \
    X(TIMEOUT, "timeout")           \
    X(STALLED, "stalled") X(WORKER_DIED, "worker_died") X(CUT, "cut") X(CLIENT_GONE, "client_gone")
enum pl_result {
#define X(sym, name) PL_RESULT_##sym,
    PL_RESULTS(X)
#undef X
        PL_RESULT_COUNT
};

struct pl_key; /* keys.c */
struct pl_calibrating;
struct pl_inspect; /* inspect.h */
struct pl_gate;    /* one service at the gateway */
struct pl_berth;   /* one worker at the gateway */
struct pl_request {
    struct pl_admit_entry entry;
    uint32_t magic;
    uint8_t phase;       /* enum pl_phase */
    uint8_t body_mode;   /* enum pl_body_mode */
    bool head_begun;     /* of the reply: something of it is out to the client */
    bool sent_any;       /* bytes went to a worker */
    bool sent_whole;     /* body included */
    size_t body_sent;    /* of a body that is kept: bytes handed to the connection */
    bool kept_whole;     /* can be sent again */
    bool chunk_out;      /* the client gets chunks that we make */
    bool gather;         /* a small reply: goes out when it is whole */
    bool hold_reply;     /* HTTP/1.0 and no length: kept until it is whole */
    bool withheld;       /* an engine's stream whose head goes out with its first byte */
    bool streamed;       /* counts in streams_total */
    bool counted_stream; /* in its worker's `streams` */
    bool event_stream;
    bool may_insert; /* JUDGING: the reply broke off between two chunks */
    bool last_words; /* the worker is dead; what is in the socket may still come */
    bool began;      /* zombie: seen on the page */
    bool replayed, made_id;
    bool opened;               /* the record has a row of it, since it takes long */
    bool too_large_told;       /* only observed: over limits.body */
    bool keys_asked;           /* when it came: what it showed stays here */
    bool key_held;             /* counts in its key's concurrency */
    bool priority_told;        /* by an x-priority that holds */
    uint8_t priority;          /* enum pl_priority */
    uint8_t refused_by_worker; /* enum pl_reason: a worker of ours has refused it, and this is why */
    uint8_t replay_class;      /* enum pl_replay_class, if replayed or unsent */
    uint8_t unsent; /* tries of which no byte reached a worker: they do not count as the one replay */
    uint16_t status;
    struct pl_gateway *g;
    struct pl_gate *gate;
    struct pl_conn *conn; /* NULL: the client was answered or left */
    struct pl_key *key;   /* it came with; NULL: keys are not asked for, or it had none that holds */
    struct pl_berth *berth;
    struct pl_upstream *up;
    struct pl_request *next, **at; /* its berth's list, the zombies' or the spare ones */
    struct pl_timer timer;
    uint64_t id, since_begun, since_ended;
    uint64_t print;    /* its fingerprint, where requests have been at deaths; 0: not looked at */
    uint64_t last_ms;  /* last sign of life of the exchange */
    uint64_t sent_ms;  /* given to the worker */
    uint64_t until_ms; /* retry: give up; zombie that never began: let go */
    uint64_t head_us, body_us, admitted_us, first_us;
    uint64_t request_bytes, reply_bytes;
    uint64_t reserved;          /* of limits.buffered */
    uint32_t slot;              /* of the board, + 1; 0: it is not on it */
    struct pl_inspect *inspect; /* owned; NULL: nothing of its body matters here */
    struct pl_buf body, held;
    char made[20]; /* x-request-id, if we made it */
};

enum pl_replay_class { PL_REPLAY_NOT_SENT, PL_REPLAY_NOT_STARTED, PL_REPLAY_UNKNOWN, PL_REPLAY_COUNT };

/* What was learnt about the models of a service: gateway/tokens.c. */
enum { PL_GATE_MODELS = 8 };
struct pl_model;
struct pl_learnt {
    struct pl_model *at[PL_GATE_MODELS]; /* owned */
    size_t count;
    bool changed, saving; /* since it was saved; on its way to the disk */
};

/* Where workers of a service hold memory, as pl_admit.places has them: gateway/budget.c. */
enum { PL_PLACE_NAME = 64, PL_PLACE_SLOTS = 257 };
struct pl_gate_place {
    char name[PL_PLACE_NAME]; /* label `gpu`: the devices of its workers, or "host" */
    struct pl_series *bytes, *charged, *free, *orphan; /* NULL: it has no budget yet */
    uint64_t told;                                     /* budget in the last event about its measure */
    uint64_t told_foreign;                             /* and what others had then */
    uint64_t total, foreign, fixed, margin;            /* as measured last; 0 where memory.budget is set */
    uint64_t shared; /* of what is charged here: what the services that share its devices have been told */
};

/* A batch whose records are coming in: cost.c. */
struct pl_batch_seen {
    uint32_t requests; /* 0: none */
    bool told;         /* its peak is its own */
    uint64_t bytes, peak;
    char path[PL_PEAKS_PATH];
};

/* What the engines of a service have told together: gateway/llm.c. */
struct pl_llm {
    uint64_t context, block; /* tokens; 0: not told */
    double bytes_per_token;  /* 0: not told, and nothing is charged by it */
    uint64_t kv_bytes;       /* of one place; 0: not told */
    struct pl_pace pace;
    struct pl_boot {
        struct pl_boot_side last; /* of the last start that was checked */
        uint64_t command;         /* its command; 0: there was none */
        uint64_t checked;         /* generation */
        double ratio;             /* of its cache: plimsoll_plan_drift_ratio */
        uint64_t length;          /* context of one request, tokens; 0: not known */
    } boot;
    double told_times; /* of the pace: when budget.changed was last logged */
};

enum { PL_STATUS_SERIES = 600 };

struct pl_gate {
    struct pl_gateway *g;
    struct {
        uint32_t left; /* 0: nobody wants any */
        char route[256];
        pl_gateway_captured *each;
        void *ctx;
    } capture;
    struct pl_service *service;
    struct pl_admit admit;
    struct pl_poison poison;
    struct pl_learnt learnt;
    struct pl_llm llm;
    struct pl_calibrating *calibrating; /* a question under way: calibrate.c */
    uint64_t calibrated_ms;             /* when the last one was asked */
    struct pl_gate_place places[PL_ADMIT_PLACES];
    unsigned place_count;
    uint8_t place_of[PL_PLACE_SLOTS]; /* by a worker's slot: index + 1; 0: not looked up yet */
    struct pl_series *budget_ratio;
    struct pl_peaks peaks; /* what requests take */
    struct pl_ordinary ordinary;
    bool threaded;  /* no more than its threads run at a time, whatever is asked */
    uint64_t probe; /* id of the one that runs alone; 0: none */
    char probe_path[PL_PEAKS_PATH];
    struct pl_timer probe_late;
    struct pl_timer expiry;
    bool pumping, pump_again;
    bool roomier; /* a service that shares a device has less charged: to be looked at */
    uint64_t queue_bytes;
    uint64_t told_ms[PL_REASON_COUNT];  /* request.refused is logged once a second a reason */
    uint64_t would_ms[PL_REASON_COUNT]; /* and would.refuse */
    struct pl_series *code[PL_STATUS_SERIES];
    struct pl_series *seconds, *first_byte, *admission, *wait, *bytes_in, *bytes_out, *queued, *queued_bytes;
};

struct pl_berth {
    struct pl_gateway *g;
    struct pl_gate *gate;
    struct pl_worker *worker;
    struct pl_pool *pool;
    struct pl_request *exchanges;
    struct pl_batch_seen batch;
};

struct pl_gateway {
    struct pl_gateway_options o;
    struct pl_server *server;
    struct pl_server_limits limits;
    struct pl_http_limits reply_limits;
    struct pl_gate *gates;       /* one a service, index as in the crew */
    struct pl_route_rule *rules; /* of the gates, in their order */
    size_t gate_count;
    struct pl_request *spare, *zombies;
    size_t spare_count;
    struct pl_inspect *inspects; /* unused ones, with their scans: inspect.c */
    size_t inspect_count;
    struct pl_board board;
    struct pl_orphan *orphans; /* owned: board.c */
    struct pl_timer zombie_timer, save_timer, orphan_timer;
    uint64_t buffered;
    uint64_t sequence;
    bool draining;
    bool left;               /* another main serves: what is learnt is its own */
    struct pl_keyring *ring; /* NULL: no keys are asked for */
    struct pl_key *keys;     /* those of the ring, and those that left it and still have requests */
    struct pl_key **key_of;  /* by row of the ring */
    struct pl_log_sampler key_refused;
    struct pl_buf scratch; /* heads, within one call */
    struct pl_series *buffered_series;
};

/* request.c: objects and identity */
struct pl_request *pl_request_new(struct pl_gateway *g, struct pl_gate *gate, struct pl_conn *c);
void pl_request_free(struct pl_request *r);
bool pl_request_reserve(struct pl_request *r, uint64_t bytes); /* of limits.buffered */
/* The connection lives on without the request; whoever asked answers it. */
struct pl_conn *pl_request_leave_conn(struct pl_request *r);
void pl_request_unreserve(struct pl_request *r);
struct pl_text
pl_request_id_text(const struct pl_request *r); /* x-request-id, kept or made; while it has its client */

/* body.c: what the server calls */
extern const struct pl_server_calls pl_gateway_server_calls;
void pl_body_forward_kept(
    struct pl_request *r); /* after the head went out: the rest of a streamed body flows */

/* queue.c */
void pl_queue_enter(struct pl_request *r);
void pl_queue_return(struct pl_request *r); /* admitted, to be sent again */
void pl_queue_pump(struct pl_gate *gate);
void pl_queue_leave(struct pl_request *r); /* by itself */
void pl_queue_release(struct pl_request *r, bool served);
void pl_queue_empty(struct pl_gate *gate, enum pl_reason reason); /* everybody out */
void pl_queue_limits(struct pl_gate *gate);

/* refuse.c: answers of our own. Each answers the client, accounts, and ends the request: free or a zombie. */
void pl_refuse(struct pl_request *r, enum pl_reason reason, uint64_t retry_after_ms, const char *detail);
/* Without memory even for the request itself: 503 buffer_full. */
void pl_refuse_conn(struct pl_gate *gate, struct pl_conn *c);
/* The request's own fault, with a code of its own for the error body; `code` NULL: the reason's. */
void pl_refuse_as(struct pl_request *r, enum pl_reason reason, const char *code, const char *detail);
/* plimsoll-llama has a line of its own, and refuses by our reasons: why this head does, or NONE. */
enum pl_reason pl_refusal_of_worker(const struct pl_request *r, const struct pl_http_head *h);
/* Counted and told like one of ours; its words go on to the client. r->status is the worker's. */
void pl_refused_by_worker(struct pl_request *r, const struct pl_http_head *h);
/* Only observed: told and counted; the request goes on. */
void pl_refuse_would(struct pl_request *r, enum pl_reason reason, uint64_t retry_after_ms);
void pl_answer_no_route(struct pl_gateway *g, struct pl_conn *c); /* 404, no service */
void pl_answer_timeout(struct pl_request *r);                     /* 504 */
void pl_answer_no_streams(struct pl_request *r);                  /* 505 */
/* 502. `cause`: the worker died of it; NULL: it lives, and its answer was none. */
void pl_answer_worker_failed(struct pl_request *r, const char *cause, const char *sentence);

/* exchange.c */
void pl_exchange_start(struct pl_request *r);           /* admitted: to a worker */
void pl_exchange_detach(struct pl_request *r, bool ok); /* the worker has nothing to do with it any more */
/* Takes a request that has no client: closes its connection, gives its place back or makes it a zombie. */
void pl_exchange_drop(struct pl_request *r);
void pl_exchange_wait(struct pl_request *r, uint64_t ms); /* its timer, whose meaning is the phase */
struct pl_berth *pl_berth_of(struct pl_gateway *g, struct pl_worker *w);
extern const struct pl_upstream_calls pl_gateway_upstream_calls;

/* reply.c */
void pl_reply_part(void *ctx, struct pl_upstream *u, const struct pl_upstream_part *p);
void pl_reply_payload(void *ctx, struct pl_upstream *u, const char *bytes, size_t len);
void pl_reply_timer(struct pl_request *r);
void pl_reply_cut(struct pl_request *r, enum pl_result outcome, const char *end, const char *message);

/* judge.c */
void pl_judge_failed(void *ctx, struct pl_upstream *u, enum pl_upstream_end end);
void pl_judge_closed(struct pl_request *r); /* nothing more will come from its worker */
/* The engine gave it up, and nothing of it is out: again, once, or 502. */
void pl_judge_given_up(struct pl_request *r);
void pl_judge(struct pl_request *r);
void pl_judge_refused(struct pl_request *r); /* nobody listens at the worker's socket */
void pl_judge_exited(struct pl_berth *b);
void pl_judge_gone(struct pl_berth *b);

/* tunnel.c */
void pl_tunnel_begin(struct pl_request *r);
void pl_tunnel_up(struct pl_request *r, const char *bytes, size_t len);
void pl_tunnel_down(void *ctx, struct pl_upstream *u, const char *bytes, size_t len);

/* zombie.c */
bool pl_zombie_make(struct pl_request *r); /* true: taken. False: nothing of it can be running */
void pl_zombie_forget(struct pl_berth *b); /* the worker is dead: so are they */

/* account.c */
struct pl_ending {
    enum pl_result outcome;
    const char *reason; /* of reasons.def or a cause of death, or NULL */
    const char *stream; /* how a streamed reply ended, or NULL: complete */
};
/* Metrics and the access line; before the connection and the upstream's head are let go. */
void pl_account(struct pl_request *r, const struct pl_ending *e);
void pl_account_conn(struct pl_gateway *g, const struct pl_conn *c, uint16_t status, const char *reason);
const char *pl_replay_name(unsigned class);
void pl_account_gate(struct pl_gate *gate); /* makes the series */
void pl_count_code(struct pl_gate *gate, uint16_t status);

/* record.c */
void pl_request_record(const struct pl_request *r, const struct pl_ending *e, const char *outcome,
                       uint64_t now_us);

/* quarantine.c */
bool pl_quarantined(struct pl_request *r);               /* its body is whole: true, it has been refused */
void pl_quarantine_answered(const struct pl_request *r); /* by a worker, without a fault of the worker's */
void pl_quarantine_death(struct pl_request *r, const char *cause); /* it was in a handler that died of this */

/* keys.c */
/* Whoever shows no key that holds may not learn what is here either. True: answered. */
bool pl_keys_refuse_conn(struct pl_gateway *g, struct pl_conn *c);
/* A new request: true, it has been refused. */
bool pl_keys_refuse(struct pl_request *r);
bool pl_keys_refuse_service(struct pl_request *r);         /* true: its key does not open this one */
void pl_keys_done(struct pl_request *r);                   /* it is over */
const char *pl_keys_name(const struct pl_request *r);      /* NULL: it has none */
void pl_keys_count(struct pl_request *r);                  /* answered */
void pl_keys_tokens(struct pl_request *r, uint64_t count); /* its reply told */
void pl_keys_free(struct pl_gateway *g);

/* tokens.c: what is known of its tokens at its end; 0 and NULL: nothing */
struct pl_tokens_seen {
    const char *model;      /* as it asked; borrowed */
    uint64_t input, output; /* as the reply told; input else as estimated */
};
struct pl_tokens_seen pl_tokens_seen(const struct pl_request *r);
/* dialect.c: its body, if it has one that names a model, is here. False: it was refused. */
bool pl_dialect_choose(struct pl_request *r);

/* capture.c */
void pl_capture_look(struct pl_request *r); /* answered well: does somebody want it? */

/* budget.c: bytes where the workers are */
void pl_budget_limits(struct pl_gate *gate);       /* the configuration has changed */
uint64_t pl_budget_cost(struct pl_request *r);     /* as declared, or of an LLM engine */
bool pl_budget_counts(const struct pl_gate *gate); /* there is a budget somewhere */
bool pl_budget_only_alone(const struct pl_gate *gate,
                          uint64_t bytes);                        /* more than any, and it may still go */
uint64_t pl_budget_workers(struct pl_gate *gate, unsigned place); /* that serve there */
void pl_budget_shared(struct pl_gate *gate);                      /* what batches share has changed */
/* There was no memory in a worker that lives on: `oom`, or its allocator had to empty its cache. */
void pl_budget_short(struct pl_worker *w, struct pl_gate *gate, bool oom);
void pl_budget_measure(struct pl_gateway *g);                          /* what devices have room for */
uint64_t pl_budget_charged(struct pl_gate *gate, struct pl_worker *w); /* see pl_crew_hooks.charged */
uint64_t pl_budget_charged_to(const struct pl_gateway *g, const struct pl_worker *w); /* ... .charged_to */
uint64_t pl_orphans_charged(const struct pl_gateway *g, const struct pl_worker *w);   /* board.c */
uint32_t pl_budget_ready(struct pl_gate *gate); /* places with a routable worker */
/* The routable worker with the fewest in flight where the request is charged, or NULL. */
struct pl_worker *pl_budget_pick(struct pl_request *r);
void pl_budget_tell(struct pl_gate *gate);                       /* metrics, after a charge or its end */
void pl_budget_death(struct pl_worker *w, struct pl_gate *gate); /* was it for want of memory? */
void pl_budget_pass_time(struct pl_gate *gate);
/* A place by its name, made at need; its index in pl_admit.places. */
unsigned pl_budget_place(struct pl_gate *gate, const char *name);

unsigned pl_budget_of(struct pl_gate *gate, struct pl_worker *w); /* its place */
/* Nobody runs: nothing is charged. What is all the same is taken off, and told. */
void pl_budget_reconcile(struct pl_gate *gate);

/* board.c */
void pl_board_sent(struct pl_request *r); /* to its worker */
void pl_board_done(struct pl_request *r); /* the worker is really done with it, or never had it */
void pl_board_gone(struct pl_gateway *g, const struct pl_worker *w);
void pl_board_close(struct pl_gateway *g);

/* cost.c: what a request is charged */
void pl_cost_described(struct pl_gate *gate);
void pl_cost_set(struct pl_request *r); /* entry.cost and entry.hold; again while it waits */
void pl_cost_runs(struct pl_request *r);
void pl_cost_released(struct pl_request *r);
void pl_cost_ended(struct pl_gate *gate, struct pl_worker *w, const char *path,
                   const struct pl_page_record *e);
void pl_budget_changed(struct pl_gate *gate, unsigned place, uint64_t from,
                       const char *reason); /* tells it */

/* llm.c: what is charged of a request to an LLM engine, and what there is to charge it against */
uint64_t pl_llm_full(const struct pl_gate *gate); /* bytes of a place; 0: not known, or not counted */
uint64_t pl_llm_cost(struct pl_request *r);
bool pl_llm_fits_context(struct pl_request *r); /* false: it was refused, and is gone */
void pl_llm_first_byte(struct pl_request *r);   /* its prompt has been computed */
void pl_llm_streamed(struct pl_request *r);     /* more of its answer came: is it longer than charged? */
void pl_llm_told(struct pl_worker *w, struct pl_gate *gate);
/* boot.c: its memory against plan and last boot, once a generation */
void pl_boot_check(struct pl_worker *w, struct pl_gate *gate);
void pl_boot_restored(struct pl_gate *gate); /* what another main has checked is so still */

/* calibrate.c: a reply that did not tell its usage is complete. May ask the engine for its prompt's tokens.
 */
void pl_calibrate(struct pl_request *r);
void pl_calibrate_stop(struct pl_gate *gate);

/* learnt.c: state_dir/learnt/SERVICE.json */
void pl_learnt_load(struct pl_gate *gate); /* before the loop runs */
void pl_learnt_save(struct pl_gate *gate); /* beside the loop */
void pl_learnt_free(struct pl_gate *gate);
void pl_learnt_watch(struct pl_gateway *g); /* now and then: budgets grow again, what changed is saved */

/* Behind it is an engine for language models, by its preset. */
static inline bool pl_gate_is_llm(const struct pl_gate *gate) {
    return gate->service->kind != PL_KIND_PYTHON && pl_engine_of(gate->service->config)->llm;
}

/* cors.c */
bool pl_cors_preflight(struct pl_gate *gate, struct pl_conn *c);
void pl_cors_headers(const struct pl_gate *gate, const struct pl_http_head *h, struct pl_buf *out);

static inline uint64_t pl_gateway_now(const struct pl_gateway *g) { return pl_timers_now(g->o.timers); }
static inline struct pl_gate *pl_gate_of(struct pl_gateway *g, const struct pl_service *s) {
    return &g->gates[s->index];
}
#endif
