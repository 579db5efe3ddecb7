/* crew/more.h - what the crew's own files know of a crew, a service and a worker. Not for other rooms. */
#ifndef PL_CREW_MORE_H
#define PL_CREW_MORE_H
#include "base/ring.h"
#include "crew/caches.h"
#include "crew/crew.h"
#include "crew/describe.h"
#include "crew/hello.h"
#include "crew/link.h"
#include "crew/room.h"
#include "ledger/policy.h"
#include "net/ask.h"
#include "sample/gpu.h"
#include "worker/death.h"
#include "worker/policy.h"
#include "worker/ports.h"
#include "worker/replace.h"
#include "worker/silence.h"
#include "worker/warmup.h"

enum {
    PL_CREW_TICK_MS = 50,
    PL_CREW_LINE_BYTES = 16384, /* a longer worker line is passed on in pieces */
    PL_CREW_RING_BYTES = 262144,
    PL_CREW_ID_BYTES = 16,
    PL_CREW_SAMPLES = 64, /* warm-up samples of one service */
};

/* One warm-up request. Owned by its worker's list. */
enum pl_sample_source { PL_SAMPLE_NONE, PL_SAMPLE_DECLARED, PL_SAMPLE_RECORDED, PL_SAMPLE_EXAMPLES };
struct pl_sample {
    struct pl_sample *next;
    enum pl_sample_source source;
    char *method, *target, *headers; /* headers: lines ending with CRLF */
    char *body;
    size_t body_len;
    int status; /* wanted; 0: any 2xx */
    bool canary;
};
const char *pl_sample_source_name(enum pl_sample_source s);
void pl_samples_free(struct pl_sample *list);

/* How a worker comes to be READY and what it left on the way, monotonic ms; 0 = not yet. */
struct pl_timeline {
    uint64_t spawned, imported, loaded, socket, warm, ready, first_request;
    uint64_t first_us, settled_us; /* warm-up: wall of the first request, settled median */
    uint64_t first_request_us;     /* of the first real one; it may take less than a millisecond */
    uint64_t first_began_us;       /* pl_now_us; 0: in another main, or not yet */
};

/* Host memory of a worker's process group; seen_ms 0: not known. */
struct pl_host_use {
    uint64_t anon, swap, rss, seen_ms;
    uint64_t pss; /* PL_PROC_UNKNOWN: it does not tell */
};

/* What it had on GPUs when it was last seen there: index in the crew's devices. */
enum { PL_CREW_WORKER_GPUS = 16 };
struct pl_worker_devices {
    uint64_t at_ms, waits_from_ms; /* gone, and its memory is waited for; 0: not yet */
    uint32_t count;
    uint32_t device[PL_CREW_WORKER_GPUS];
    struct pl_gpu_hold hold[PL_CREW_WORKER_GPUS];
    bool missed;
};

/* What its output (words.c) and its metrics (scrape.c) have said of memory. */
struct pl_worker_words {
    uint64_t kv_bytes;          /* the engine's KV cache on each of its GPUs; 0: it did not say */
    struct pl_engine_boot boot; /* what the engine said while it started */
    uint32_t retries;           /* warnings of PyTorch's allocator */
    struct pl_log_sampler oom, retry, line;
};

/* Largest host memory of a start, bytes; 0: not known. */
struct pl_start_peak {
    uint64_t rss, pss, anon;
};

struct pl_worker_more {
    char id[PL_CREW_ID_BYTES]; /* names its socket, prom/ and tmp/ folder */
    struct pl_timeline time;
    size_t page_bytes;
    int page_fd;  /* what an agent that comes by itself is given; 0: none */
    bool watched; /* one is there: agents.c */
    bool adopted, warm, first_told;
    bool cache_empty; /* nothing was compiled for this service before it */
    uint32_t way;     /* enum pl_spawn_way */
    uint64_t family;  /* of recipes: pl_recipe_family; 0: not known */
    bool spawn_told, waits_ahead;
    struct pl_start_peak peak; /* host memory until READY */
    uint64_t zygote_asked;     /* generation of the zygote that was to fork it; 0: none */
    /* how it ends */
    bool fallback; /* it cannot run this service, and the next one will in another way: no failure */
    bool ordered, timed_out, warm_failed, never_spawned, was_ready;
    char problem[256]; /* why the warm-up failed, or why it could not be spawned */
    bool replaced;     /* its successor is READY: its slot is no longer its own */
    bool told;         /* its death is in the log */
    bool let_go;       /* what was its has been given back */
    uint64_t ready_from_ms, drain_from_ms, start_until_ms, stopped_ms;
    struct pl_wire_exit exit; /* once exited */
    bool keeper_gone;         /* GONE came; waits for the gateway to let go */
    char end_sentence[256], last_line[256];
    enum pl_cause cause;
    /* output */
    struct pl_ring ring;
    struct pl_buf partial; /* a line that has not ended */
    struct pl_buf unsent;  /* whole lines the log had no room for */
    uint64_t gone_ms;
    struct pl_tail *tail;
    uint64_t log_bytes, log_lost;
    /* control socket */
    uv_pipe_t *control;
    struct pl_buf control_in;
    struct pl_question *questions; /* asked and not answered */
    uint64_t ask_id;
    int sync_told; /* memory.sync as the worker knows it */
    uint64_t sampled_ms;
    bool lane_asked;
    char *lane;       /* lane.c: {route: "sync", "async" or "off: why"} as JSON; NULL: not told */
    bool left_socket; /* dependency, DRAINING: no caller has a connection that it could still use */
    /* It has told what it is and waits for `go`: not its own time. */
    bool awaits_go, wait_told, deploying;
    uint64_t told_ms, held_ms;
    uint64_t uses; /* dependencies it was given, a bit each (struct pl_apart: number) */
    /* probe, warm-up, scrape: at most one question of each at a time */
    struct pl_ask *probe, *warming, *scrape;
    struct pl_ask *naming; /* of its models: engine.c */
    uint64_t name_at_ms;   /* when to ask for them next; 0: at once */
    struct pl_engine_facts engine;
    struct json_t *models; /* owned; NULL: not told */
    bool plan_asked;       /* planned.c has looked at its command */
    uint64_t probe_at_ms, proof_ms;
    bool says_ready;       /* its own readiness, last heard */
    unsigned probe_turn;   /* which of the usual paths is asked, while none is known */
    uint16_t probe_status; /* last answer; 0: none */
    uint64_t unready_ms;   /* remote: since when it does not answer; 0: it does */
    struct pl_sample *samples, *sample;
    enum pl_sample_source source;
    struct pl_warmup warmup;
    uint64_t warm_cpu_us;
    uint32_t warm_ok;
    bool samples_loading;
    /* canary.c; samples holds the marked ones once it is READY */
    struct pl_ask *canary;
    struct pl_sample *canary_sample; /* the next one */
    uint64_t canary_at_ms, canary_looked_ms;
    uint64_t real_ms; /* last real success, or a canary's */
    /* gateway's counts */
    int zombies;
    /* replacement: this one takes the place of `replaces` when READY */
    struct pl_worker *replaces;
    struct pl_buf metrics_text; /* last scrape */
    uint64_t scraped_ms, scrape_at_ms;
    bool scrape_failed; /* the last one */
    /* why it might have to go */
    struct pl_silence silence;
    uint64_t hung_ms;        /* ended by us after so long a silence; 0: it was not */
    bool silent_told;        /* it is not routed to until it gives a sign */
    uint64_t max_requests;   /* at which it goes; 0 = never */
    uint64_t would_requests; /* observed only: it would have gone at so many, count on from here */
    uint32_t would_told;     /* bits of pl_replace_reason: told already, and still true */
    uint32_t held_told;      /* the same for worker.replace_held */
    struct pl_host_use host;
    struct pl_accounts *accounts; /* accounts.c; NULL: no page yet */
    struct pl_cells *cells;       /* cells.c; NULL: no engine block on it */
    /* who holds its memory: explain.c */
    struct pl_explaining *explaining; /* under way; NULL: none is */
    struct pl_proposal {
        char why[32]; /* the verdict that wants to know; "": none */
        unsigned tries;
        uint64_t at_ms; /* next try; 0: it has been looked at, or given up */
    } proposal;
    struct pl_explained { /* what came of it */
        const char
            *state; /* "under_way", "waits", "done", "incomplete", "refused", "failed"; NULL: not asked */
        char reason[24]; /* of what has failed last; "": nothing */
        uint32_t tries;
    } explained;
    char *holder;           /* "service.py:41 CACHE"; NULL: not known */
    struct pl_books *books; /* books.c; likewise */
    uint64_t forecast_ms;   /* until memory ends, at the early end of the range; 0: not looked at */
    struct pl_crowded {     /* crowd.c */
        uint64_t end_ms;  /* until there is no room for one more request; UINT64_MAX: not in sight; 0: now */
        uint64_t full_ms; /* when there was first none; 0: there is */
        uint64_t room_ms; /* there is again since then; 0: there is not */
        bool seen;
        uint64_t served; /* requests at the last look, warm-up included */
        unsigned began;  /* looks that saw more of them, while it was new */
    } crowded;
    struct pl_worker_devices devices;
    struct pl_worker_room *room; /* room.c; NULL: nothing was measured yet */
    struct pl_worker_words words;
    bool gone_waits; /* the keeper has let it go; its memory on a GPU is not back */
    struct pl_wire_exit gone_exit;
    uint64_t oom_requested; /* of the message that ended it; UINT64_MAX: it does not say, or there was none */
    const char *oom_verdict; /* NULL: none */
};

/* One place for a worker: 1..N. */
struct pl_slot {
    uint32_t failed_starts;
    uint64_t retry_at_ms; /* 0: none waits */
    bool failed;          /* FAILED: given up */
    enum pl_cause last_cause;
    uint64_t down_since_ms;             /* its worker died, and none is READY since; 0: none did */
    enum pl_replace_reason restart_for; /* crash or hang, with down_since_ms */
};

/* A replacement, slot after slot. Kept by the keeper (kept.c), so that the next main goes on with it. */
struct pl_replacement {
    bool active;
    bool waiting;    /* of an operator: for a quiet moment, nothing is done yet */
    bool now;        /* of an operator: do not wait for one */
    char action[24]; /* id for /actions, or "" */
    enum pl_replace_reason reason;
    enum pl_replace_way way;
    uint32_t slot, last_slot; /* in work now; the last one to do */
    uint64_t started_ms, from_generation;
    struct pl_worker *successor;
    /* handover, while no other worker serves: nobody has since gap_from_ms (0: no gap) */
    uint64_t gap_from_ms, gap_longest_ms, expected_ms;
    struct pl_gap gap;
    bool ready_held; /* the service stays ready while requests are held */
};

/* What should be done and is held back, for /status. */
struct pl_replace_plan {
    bool is;
    enum pl_replace_reason reason;
    uint32_t slot;
    enum pl_replace_held held_by;
    uint64_t until_ms;
};

/* A dependency that runs apart. Lives as long as the crew: one that no service wants has no workers. */
enum { PL_CREW_DEPENDENCIES = 64 }; /* of one service, in one life of the keeper */
struct pl_apart {
    struct pl_service_config own; /* its parent's, less what is not its own */
    char *name;                   /* BentoML's, for --service-name */
    uint32_t number;              /* 0...: of its parent's, for good */
    uint32_t rank;                /* see struct pl_dependency */
    int listener;                 /* shared by its workers; the keeper holds it too */
    char socket_path[108];
    bool wanted; /* by the newest description */
};

struct pl_service_more {
    struct pl_start_peak start_peak; /* of the last start */
    uint64_t start_settled, start_held_ms;
    struct pl_ahead *ahead;     /* ahead.c; NULL: nothing is known */
    struct pl_planned *planned; /* planned.c; NULL: no engine of it was ever planned */
    struct pl_zygote *zygote;   /* zygote.c; NULL: none was thought of */
    struct pl_apart *apart;     /* NULL: a service of the configuration */
    struct pl_slot *slots;      /* slot_room of them, index slot - 1 */
    uint32_t slot_room;
    struct pl_description *description; /* or NULL */
    bool deployed;
    bool as_command;          /* python: BentoML's worker entry cannot run it, `bentoml serve` can */
    bool remote_told;         /* no usual path of readiness is there: said once */
    struct pl_remote *remote; /* where it is; NULL: not remote */
    struct pl_replacement replacement;
    char operator_mode[16];        /* "" = none set it: `mode` is the configuration's */
    struct pl_tail *tail;          /* output of all its workers as it came */
    struct pl_tail *previous_tail; /* output of the last generation that is gone */
    char last_death[320];
    enum pl_cause last_cause;
    uint64_t last_death_wall_ms, last_death_generation;
    uint64_t first_request_us;
    char model[PL_ENGINE_MODEL_NAME]; /* the first that an engine of it told last; "" = none has */
    bool ready_told, ready_was;       /* ready.changed */
    uint64_t failed_since_ms;
    struct pl_hour hour;         /* replacements of the last hour */
    struct pl_replace_plan plan; /* looked at every second */
    struct pl_again again;       /* leaks that came back after a replacement */
    uint64_t stop_ms;            /* measured, SIGTERM to GONE; 0 = not yet */
    /* mean time in a worker's hands (Little): sum of in_flight over time, by what has ended */
    uint64_t busy_ms, busy_seen_ms, busy_ended;
    uint32_t busy;
    uint64_t last_request_ms;
    uint64_t request_bytes;              /* an ordinary request's charge; 0: see pl_room_needs */
    uint64_t crowd_replaced_ms;          /* one was last replaced for want of room; 0: never */
    bool crowd_believed, crowd_sure;     /* see struct pl_crowd_case */
    uint64_t fresh_bytes[PL_WATCH_GPUS]; /* what a new worker had at rest; 0: none was seen */
    uint64_t load_bytes[PL_WATCH_GPUS];  /* of each device, the most that one had before it was READY */
    uint64_t new_device_bytes;           /* of a device that a worker had when it was READY; 0 = not known */
    uint64_t new_bytes; /* host memory of the newest worker when it was READY; 0 = not known */
    struct pl_caches caches;
};

struct pl_crew {
    struct pl_app *app;
    struct pl_link *link; /* borrowed */
    struct pl_crew_hooks hooks;
    struct pl_wire_welcome welcome;
    const char *run_dir, *python_path, *llama_path, *state_dir, *cache_dir;
    const struct pl_user *worker_user;
    struct pl_service *services;
    size_t service_count;
    struct pl_service **every; /* those, then their dependencies */
    size_t every_count;
    uv_timer_t tick;
    uv_pipe_t *agents; /* listens; NULL: not now */
    uint64_t sequence;
    struct pl_ports ports;
    bool stopping, stopped;
    bool adopting;                          /* not all that is there is known yet: nothing is started */
    bool frozen, resting, left, other_main; /* rest.c */
    struct pl_wire_exit *kept_news;         /* at rest: what the keeper has told; owned */
    size_t kept_count;
    void (*on_stopped)(void *ctx);
    void (*on_action)(void *ctx, const char *action, bool ok, const char *message);
    void (*on_report)(void *ctx, const char *action, int exit_status, const char *message, const char *json);
    void (*on_keeper_news)(void *ctx, struct pl_wire_message *m);
    void *ctx;
    uint64_t metrics_asked_ms, metered_ms;
    struct pl_host *host;           /* host.c */
    struct pl_last_life *last_life; /* last_life.c; NULL: there is no state_dir */
    struct pl_devices *devices;     /* devices.h; NULL before the start */
    const char *watch_path;         /* NULL: nothing watches */
};

/* crew.c */
void pl_crew_run(struct pl_crew *c);                             /* the tick, from now on */
void pl_crew_news(struct pl_crew *c, struct pl_wire_message *m); /* of the keeper */
/* As pl_wire_signal has it: 0 only tells another main. */
void pl_crew_signal(struct pl_crew *c, uint64_t generation, int signal, uint64_t kill_ms);
/* rest.c */
void pl_crew_keep_news(struct pl_crew *c, const struct pl_wire_message *m);
void pl_crew_watch(struct pl_crew *c, const struct pl_wire_exit *e);

/* life.c: every change of state and its side effects go through here. */
void pl_life_feed(struct pl_worker *w, enum pl_worker_event ev);
struct pl_worker *pl_life_new(struct pl_service *s, uint32_t slot);
void pl_life_tick(struct pl_crew *c, uint64_t now);
void pl_life_exited(struct pl_worker *w, const struct pl_wire_exit *e);
void pl_life_gone(struct pl_worker *w, const struct pl_wire_exit *e);
void pl_life_explain(struct pl_worker *w);    /* why it died: cause and sentence */
void pl_life_stuck(struct pl_worker *w);      /* its death is told without its end */
void pl_life_order_stop(struct pl_worker *w); /* SIGTERM, then SIGKILL by the keeper */
void pl_life_release(struct pl_worker *w);    /* frees it if nobody needs it any more */
bool pl_life_drained(struct pl_worker *w);
void pl_life_tend(struct pl_service *s, uint64_t now);
void pl_life_give_time(struct pl_worker *w);              /* to start, from now on */
uint64_t pl_life_drain_ms(const struct pl_service *s);    /* longest drain of one without a stream */
uint64_t pl_life_patience_ms(const struct pl_service *s); /* SIGTERM to SIGKILL, out of a stop */
void pl_life_successor(struct pl_service *s, struct pl_worker *old);
void pl_life_ready_changed(struct pl_service *s);
struct pl_slot *pl_life_slot(struct pl_service *s, uint32_t slot);
uint32_t pl_life_slots(const struct pl_service *s); /* wanted now */

/* spawn.c */
bool pl_spawn(struct pl_worker *w, struct pl_err *err);
int pl_spawn_listen(const struct pl_crew *c, const char *path, struct pl_err *err);
/* The run folder's subfolders that workers write in, when they are of another user. */
bool pl_spawn_give_folders(const struct pl_crew *c, struct pl_err *err);
struct pl_recipe;
/* Where a start of a service's process takes place. Borrowed. */
struct pl_spawn_place {
    const char *id; /* names its folders */
    uint32_t slot;
    const char *socket; /* that a command makes itself, or NULL */
    uint16_t port;      /* 0: none */
};
bool pl_spawn_build(struct pl_service *s, const struct pl_spawn_place *place, struct pl_arena *a,
                    struct pl_recipe *r, struct pl_err *err);
/* User, limits and stop of a worker of the service, into an order. */
void pl_spawn_as_worker(const struct pl_service *s, struct pl_wire_message *m);
/* Its leader exists: `way` is how it came to be. */
void pl_spawn_running(struct pl_worker *w, const struct pl_wire_exit *e);
int pl_spawn_recipe(const struct pl_recipe *r, struct pl_err *err);  /* a memfd for SPAWN, or -1 */
void pl_spawn_shared(struct pl_worker *w, int page_fd, int ring_fd); /* takes both */
void pl_spawn_clean(struct pl_worker *w);                            /* its folders, off the loop */
/* places.c: where a worker listens */
struct pl_port_range pl_places_range(void);                     /* of this machine; a small file */
bool pl_places_choose(struct pl_worker *w, struct pl_err *err); /* before it is spawned */
void pl_places_adopt(struct pl_worker *w, const struct pl_wire_item *item);
uint16_t pl_places_port(const struct pl_worker *w); /* 0: it listens on a Unix socket */
/* Goes on with a start that waited for its files. */
void pl_spawn_go_on(struct pl_worker *w);
/* host_room.c: host memory of starts */
void pl_host_room_load(struct pl_service *s);
void pl_host_room_seen(struct pl_worker *w, uint64_t anon, uint64_t swap, uint64_t rss,
                       uint64_t pss); /* it starts */
void pl_host_room_ready(struct pl_worker *w);
bool pl_host_room_is_free(struct pl_service *s, uint32_t slot);           /* false: not now, ask again */
bool pl_host_room_allows(const struct pl_service *s, struct pl_err *err); /* false: not at all */
/* ahead.c: files read before they are wanted */
void pl_ahead_begin(struct pl_service *s);    /* a start is decided: if there is something to read */
bool pl_ahead_must_wait(struct pl_worker *w); /* begins; true: pl_spawn_go_on is called later */
bool pl_ahead_news(struct pl_crew *c, const struct pl_wire_message *m); /* false: not about a reader */
void pl_ahead_tick(struct pl_crew *c, uint64_t now);
bool pl_ahead_is(const struct pl_wire_item *item);
/* remote.c: a server that somebody else runs */
bool pl_remote_open(struct pl_service *s, struct pl_err *err);
void pl_remote_start(struct pl_worker *w);
void pl_remote_turn(struct pl_worker *w); /* nobody answered: another address of its name is tried */
const char *pl_remote_host(const struct pl_service *s); /* for Host; NULL: localhost will do */
/* fallback.c: a service that BentoML's worker entry cannot run */
void pl_fallback_take(struct pl_worker *w, const char *reason);
void pl_fallback_adopt(struct pl_service *s, struct pl_held_list *held);
/* probe.c */
void pl_probe_lost(struct pl_worker *w); /* a connect was refused */
void pl_probe_start(struct pl_worker *w);
void pl_probe_tick(struct pl_worker *w, uint64_t now);
void pl_probe_stop(struct pl_worker *w);
void pl_probe_moved(struct pl_worker *w);
enum { PL_PROBE_PATH_BYTES = 512 };
/* A route of BentoML's own, below the service's path_prefix. Returns `out`. */
const char *pl_probe_path(const struct pl_worker *w, const char *own, char *out, size_t room);
/* warm.c */
void pl_warm_start(struct pl_worker *w);
void pl_warm_stop(struct pl_worker *w);
/* canary.c */
void pl_canary_ready(struct pl_worker *w);
void pl_canary_loaded(struct pl_worker *w, struct pl_sample *list); /* takes it */
void pl_canary_tick(struct pl_worker *w, uint64_t now);
void pl_canary_stop(struct pl_worker *w);
uint64_t pl_canary_proof_ms(const struct pl_worker *w);
bool pl_canary_fresh(const struct pl_service *s, uint64_t now); /* of a routable worker at least */
/* samples.c */
void pl_samples_load(struct pl_worker *w);
struct pl_sample *pl_samples_examples(const struct pl_service *s);
void pl_samples_loaded(struct pl_worker *w, struct pl_sample *list, const char *problem); /* warm.c */
/* control.c */
bool pl_control_open(struct pl_worker *w, int fd); /* takes fd */
void pl_control_close(struct pl_worker *w);
void pl_control_listen(struct pl_worker *w, bool yes); /* or leave what comes to another main */
void pl_control_wait(struct pl_worker *w);
void pl_control_go(struct pl_worker *w, bool deploy);
/* lane.c: asks a READY worker once. */
void pl_lane_ask(struct pl_worker *w);
void pl_lane_free(struct pl_worker *w);
/* Asks a worker that has been told `go`: {"ask": verb, ...}. `more`: further members as JSON, from a comma
 * on, or NULL. `done` is called once, with the whole line (borrowed; whatever the worker chose to write), or
 * with NULL when no answer came in time or the worker is gone. False: it cannot be asked, `done` is not
 * called. */
typedef void (*pl_control_answer)(void *ctx, struct pl_worker *w, const char *line, size_t len);
bool pl_control_ask(struct pl_worker *w, const char *verb, const char *more, uint64_t patience_ms,
                    pl_control_answer done, void *ctx);
void pl_control_tick(struct pl_worker *w, uint64_t now); /* late answers; what it should know or tell */
/* explain.c */
void pl_explain_init(const struct pl_service *s); /* closed label sets */
void pl_explain_ready(struct pl_worker *w);       /* what lives in it now is the model */
void pl_explain_tick(struct pl_worker *w, uint64_t now);
void pl_explain_stop(struct pl_worker *w); /* it can be asked no more */
void pl_explain_free(struct pl_worker *w);
struct pl_worker *pl_explain_choose(struct pl_service *s, uint32_t slot, struct pl_err *err);
/* To whoever waits for `action` (""): nobody does. */
void pl_explain_report(struct pl_crew *c, const char *action, int exit_status, const char *message,
                       const char *json);
/* Of a file that is kept: names sort by time. */
void pl_explain_name(const struct pl_worker *w, const char *ending, char *out, size_t room);
/* snapshot.c: false, it is about something else */
bool pl_snapshot_told(struct pl_worker *w, const char *line, size_t len);
/* agents.c */
void pl_crew_agents_close(struct pl_crew *c);
void pl_agents_left(struct pl_worker *w); /* its control socket closes: forgets what its agent published */
void pl_control_drain(
    struct pl_worker *w); /* a dependency leaves its shared socket; sets left_socket in the end */
/* go.c: one JSON line, for free(); NULL without memory. */
char *pl_go_line(const struct pl_worker *w, bool deploy);
/* depend.c */
bool pl_depend_register(struct pl_service *s); /* into crew->every */
void pl_depend_described(struct pl_service *s);
void pl_depend_reconfigured(struct pl_service *family);
void pl_depend_take(struct pl_service *s, struct pl_held_list *held); /* what the last main made */
void pl_depend_told(struct pl_worker *w);               /* what it is: it waits for `go` from now on */
void pl_depend_tick(struct pl_worker *w, uint64_t now); /* says `go`, or once `wait` */
bool pl_depend_waits(const struct pl_worker *w);
const struct pl_service *pl_depend_missing(const struct pl_worker *w); /* NULL: none */
bool pl_depend_failed(const struct pl_service *s);
bool pl_depend_wanted(const struct pl_service *s);
bool pl_depend_may_stop(const struct pl_service *s); /* nobody is left that calls it */
struct pl_service *pl_depend_of(const struct pl_service *s, uint32_t number);
static inline bool pl_depend_is(const struct pl_service *s) { return s->more->apart != NULL; }
/* words.c: a line of its output, as it comes */
void pl_words_read(struct pl_worker *w, const char *line, size_t len);
/* output.c */
void pl_output_read(struct pl_worker *w);
bool pl_output_written(struct pl_worker *w); /* all that was read; nothing more is */
/* After GONE: all that it printed is on its way, or nobody has taken it for 10 s. */
bool pl_output_done(struct pl_worker *w);
void pl_output_free(struct pl_worker *w);
/* note.c */
void pl_note_leave(struct pl_worker *w);
bool pl_note_read(struct pl_worker *w, const void *note, size_t bytes); /* true: READY and usable as it is */
/* hold.c */
void pl_hold(struct pl_crew *c, const char *name, int fd); /* borrowed; -1 lets go */
void pl_hold_text(struct pl_crew *c, const char *name, const char *text, size_t len);
/* engine.c: an LLM engine's own words */
bool pl_engine_is_llm(const struct pl_service *s);
void pl_engine_tick(struct pl_worker *w, uint64_t now);
void pl_engine_scraped(struct pl_worker *w, const char *text, size_t len); /* its /metrics */
void pl_engine_stop(struct pl_worker *w);
uint64_t pl_engine_hash(const struct pl_service_config *s); /* of command and engine_args */
void pl_engine_planned(struct pl_service *s);               /* its plan is there, or there will be none */
/* planned.c: the memory of an engine, planned before it is there */
void pl_planned_tick(struct pl_crew *c, uint64_t now);
void pl_planned_close(struct pl_crew *c);
bool pl_planned_waits(const struct pl_worker *w);
int64_t pl_planned_failed(
    const struct pl_worker *w); /* status of `plimsoll plan` that made none; 0: it did not fail */
const struct pl_boot_plan *pl_planned_of(const struct pl_worker *w); /* NULL: there is none */
/* scrape.c */
void pl_scrape_tick(struct pl_worker *w, uint64_t now);
void pl_scrape_stop(struct pl_worker *w);
/* replace.c */
void pl_replace_ready(struct pl_worker *successor);
/* A start failed: true if it was a successor whose old worker serves on, so that it is not tried again here.
 */
bool pl_replace_lost(struct pl_worker *successor);
void pl_replace_forget(const struct pl_worker *w); /* it is freed: nobody points to it */
void pl_replace_tick(struct pl_service *s, uint64_t now);
void pl_replace_resume(struct pl_service *s); /* what a main before this one had begun */
/* Something asks for it. Done, told (would, held), or nothing: worker/replace.h. Once told it is quiet until
 * pl_replace_settled. `silent_ms` 0: the worker answers. */
void pl_replace_propose(struct pl_worker *w, enum pl_replace_reason reason, uint64_t silent_ms);
void pl_replace_settled(struct pl_worker *w, enum pl_replace_reason reason);
/* The way a replacement of `old` would go now, NULL: of any worker of the service. What has grown may have
 * taken the place that a successor beside it would need, of the host or on a device. */
enum pl_replace_way pl_replace_way_now(const struct pl_service *s, struct pl_worker *old);
void pl_replace_counted(const struct pl_service *s, enum pl_replace_reason reason, enum pl_replace_way way,
                        uint64_t took_ms);
/* gap.c */
uint64_t pl_gap_expect(const struct pl_service *s, const struct pl_worker *old, struct pl_gap *gap);
uint64_t pl_gap_hold_ms(const struct pl_service *s);
bool pl_gap_stays_ready(const struct pl_service *s, uint64_t expected_ms);
void pl_gap_meter(struct pl_service *s, uint64_t now);
/* guard.c: once a second, what the workers' facts ask for */
void pl_guard_init(struct pl_service *s); /* closed label sets */
void pl_guard_tick(struct pl_crew *c, uint64_t now);
void pl_guard_busy(struct pl_service *s, int change, uint64_t now); /* in flight, for the mean time */
/* crowd.c: once a second, is there room for one more request? */
void pl_crowd_tick(struct pl_crew *c, uint64_t now);
/* kept.c */
/* The operator's mode, on a configuration that does not know it. */
void pl_kept_reapply(struct pl_service *s);
void pl_kept_save(const struct pl_service *s);
void pl_kept_load(struct pl_service *s, struct pl_held_list *held);
/* host.c */
void pl_host_begin(struct pl_crew *c);
void pl_host_count_from(struct pl_crew *c, uint64_t kills); /* those since are this life's to explain */
/* Our own memory group, as the watch process has seen it last, else as it is: a few small files. */
void pl_host_now(const struct pl_crew *c, struct pl_watch_host *out);
void pl_host_tick(struct pl_crew *c, uint64_t now);
void pl_host_own(const struct pl_crew *c); /* memory of main, keeper and watch, as metrics */
/* What the memory group says at the death of a worker; what the kernel has killed is its own then. */
void pl_host_death(struct pl_worker *w, struct pl_death_group *out);
uint64_t pl_host_limit(const struct pl_crew *c);  /* 0: there is none, or it is not known */
uint64_t pl_host_in_use(const struct pl_crew *c); /* without what can be taken back; 0: not known */
bool pl_host_pressed(const struct pl_crew *c);    /* our memory group is nearly full */
/* The way a replacement of it would go now, as configured, as far as host memory is concerned. */
enum pl_replace_way pl_host_way(const struct pl_service *s);
/* meters.c */
void pl_meters_state(struct pl_worker *w);
void pl_meters_tick(struct pl_crew *c, uint64_t now);

static inline uint64_t pl_crew_now(const struct pl_crew *c) { return pl_now_ms(c->app->clock); }
struct pl_worker *pl_crew_by_generation(struct pl_crew *c, uint64_t generation);
const char *pl_worker_label(const struct pl_worker *w); /* "1": the slot as text, for labels */
#endif
