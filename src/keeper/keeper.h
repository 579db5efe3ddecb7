/* keeper/keeper.h - the process that everything else may outlive: parent of main and of all workers, PID 1 in
 * a container.
 *
 * One thread, signalfd and ppoll, libc only; static tables, and after the start nothing is taken from the
 * heap. It never waits for anybody and parses nothing: messages are fixed structs (base/wire.h). No policy
 * lives here, main decides; the keeper decides three things alone: to start main again, to give up on main,
 * to carry out the stop order when main cannot.
 *
 *   options.c     the command line                run_folder.c  lock, subfolders, what was left behind
 *   loop.c        signals, reaping, one turn      say.c         the keeper's own lines
 *   mains.c       the life of main, the helm      orders.c      requests, replies, news
 *   workers.c     the life of a generation        family.c      descendants of a dead leader
 *   child.c       between fork and exec           recipe.c      what to execute
 *   zygote.c      workers that a zygote forks     notify.c      what a service manager hears of us
 */
#ifndef PL_KEEPER_KEEPER_H
#define PL_KEEPER_KEEPER_H
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/log.h"
#include "base/ring.h"
#include "base/wire.h"
#include "keeper/options.h"
#include "keeper/run_folder.h"

enum {
    PL_KEEPER_GENERATIONS = 64,
    PL_KEEPER_HELD = 64, /* "keeper.log" is one of them */
    PL_KEEPER_MAINS = 2,
    PL_KEEPER_CRASH_LOOP_STATUS = 70
};

/* News that a main was not told yet: bits, so that a main that reads nothing costs no memory. */
enum pl_generation_news {
    PL_NEWS_RUNNING = 1,
    PL_NEWS_STUCK = 2,
    PL_NEWS_EXITED = 4,
    PL_NEWS_GONE = 8,
    PL_NEWS_WITHDRAWN = 16
};
enum pl_main_news {
    PL_NEWS_MAIN_EXITED = 1,
    PL_NEWS_HELM = 2,
    PL_NEWS_STAND_DOWN = 4,
    PL_NEWS_UPGRADED = 8,
    PL_NEWS_STOP = 16
};

/* One that a zygote was asked for: what it takes to do it by exec after all, until its child has said hello.
 * Until then there is no pid, and a signal waits. */
struct pl_forking {
    uint64_t until_ms; /* 0: nobody is waited for */
    int recipe_fd, control_fd, output_fd;
    int signal; /* 0: none */
    uint64_t kill_ms;
};

/* A slot of the table; free while exit.state is PL_GEN_FREE, and its descriptors mean nothing then. */
struct pl_generation {
    struct pl_wire_spawn order;
    struct pl_wire_exit exit; /* generation, pid, state, status ... */
    struct pl_ring ring;
    int page_fd;
    int ring_fd;
    int output_fd;   /* read end of stdout and stderr, -1 after its end */
    int report_fd;   /* read end, -1 once exec is known to have worked or failed; or where a zygote's child
                        says hello */
    int listener_fd; /* kept until then */
    int orders_fd;   /* of a zygote: where it takes orders; else -1 */
    struct pl_forking forking;
    uint64_t started_ms;
    uint64_t kill_at_ms; /* 0: no SIGKILL is due */
    uint64_t killed_ms;  /* 0: none was sent */
    uint64_t exited_ms;
    uint64_t sweep_at_ms;
    uint64_t drain_at_ms; /* the output pipe is not looked at before */
    bool stopping;
    bool stuck;
    unsigned news[PL_KEEPER_MAINS];
    uint32_t note_bytes;
    uint8_t note[PL_WIRE_NOTE_BYTES];
};

/* Where the service manager that started us listens, and the last it could not take. */
struct pl_notify {
    struct sockaddr_un to;
    socklen_t to_bytes; /* 0: nobody wants to hear */
    int fd;
    size_t waiting; /* bytes of `text` */
    char text[PL_WIRE_WORDS_BYTES];
};

struct pl_held {
    uint64_t ordinal; /* 0: free */
    int fd;
    char name[PL_WIRE_NAME_BYTES];
};

struct pl_main {
    pid_t pid; /* 0: no such main */
    uint64_t id;
    enum pl_wire_role role;
    int exe_fd; /* candidate only: becomes the keeper's at HELM */
    int channel;
    struct pl_wire_beat *beat;
    int beat_fd;
    bool greeted;
    bool said_bye;
    uint64_t beats;
    uint64_t beat_ms;     /* when it last changed; before HELLO: the start */
    uint64_t kill_at_ms;  /* SIGABRT was sent */
    uint64_t leave_by_ms; /* 0: may stay */
    uint64_t leave_ms;    /* what it asked for when it ordered an upgrade */
    uint64_t closed_ms;   /* it closed its channel, and yet it lives */
    unsigned news;
    unsigned sent;          /* messages, in this turn */
    bool blocked;           /* its socket is full */
    uint64_t rest_until_ms; /* the socket says it has room and takes nothing: not looked at before */
    bool has_reply;
    struct pl_wire_message reply; /* waits for room; until it is gone no further request is read */
};

enum pl_upgrade_phase { PL_UPGRADE_NONE, PL_UPGRADE_STARTING, PL_UPGRADE_STANDING_DOWN };
/* ASKED: main was told. OWN: the keeper carries the order out. LAST: only strays and mains are left. */
enum pl_stop_phase { PL_STOP_NONE, PL_STOP_ASKED, PL_STOP_OWN, PL_STOP_LAST };

struct pl_keeper {
    struct pl_keeper_settings set;
    struct pl_run_folder run;
    char *const *main_argv;
    int exe_fd;
    int former_exe_fd; /* 0: none. Of the main before the last upgrade: the way back from one that crashes */
    uint64_t helm_moved_ms;
    int signal_fd;
    bool had_terminal; /* stdin was one when we started */
    uint64_t boot;     /* one number for one life of the keeper */
    uint64_t now_ms;   /* of this turn */
    uint64_t looked_ms;
    struct rlimit nofile; /* as we were started */
    struct pl_ring log;
    struct pl_notify notify;

    struct pl_main mains[PL_KEEPER_MAINS];
    uint64_t last_main_id;
    uint64_t exited_main_id;
    bool helm_hung;            /* the last helm that ended was silent, and ended by us */
    uint64_t start_main_at_ms; /* 0: none is due */
    uint64_t crashes[PL_KEEPER_MOST_CRASHES];
    unsigned crash_count;

    enum pl_upgrade_phase upgrade;
    uint64_t upgrade_by_ms;
    struct pl_wire_upgraded upgraded;

    struct pl_generation generations[PL_KEEPER_GENERATIONS];
    uint64_t last_generation;
    uint64_t last_aside; /* of the row that begins at PL_WIRE_FIRST_ASIDE; how many there were */
    struct pl_held held[PL_KEEPER_HELD];
    uint64_t last_held;
    uint64_t orphans_reaped;

    enum pl_stop_phase stop;
    uint64_t stop_by_ms;
    bool hurry;
    int exit_status;
    bool finished;
};

/* loop.c */
/* Takes the options and runs until everything has ended. The status to exit with; `err` says why, if it could
 * not start. */
int pl_keeper_run(struct pl_keeper_options *options, struct pl_err *err);
/* The stop moves on to `phase`, never back. */
void pl_keeper_stop(struct pl_keeper *k, enum pl_stop_phase phase, int status);

/* say.c */
/* One logfmt line into the ring that is held as "keeper.log"; on stderr too if it is a warning or an error,
 * or with --verbose 1, and only if that costs no wait; there as JSON with --json 1. `format` makes the
 * fields. */
__attribute__((format(printf, 4, 5))) void pl_keeper_say(struct pl_keeper *k, enum pl_level level,
                                                         const char *event, const char *format, ...);
/* "ts=A level=B event=C k=v" as one line of JSON with its newline. Returns its length, 0 without room. */
size_t pl_keeper_json(const char *line, char *out, size_t room);
/* "signal=KILL" or "status=3". */
const char *pl_keeper_end_text(int wait_status, char out[32]);

/* notify.c */
/* Reads NOTIFY_SOCKET and takes it out of the environment: mains and workers do not speak for us. */
void pl_keeper_notify_open(struct pl_keeper *k);
/* Tells lines of sd_notify(3). Never waits: what cannot be sent now is told later, unless more waits than
 * there is room for. */
void pl_keeper_notify(struct pl_keeper *k, const char *text, size_t bytes);
/* Time has passed. */
void pl_keeper_notify_again(struct pl_keeper *k);

/* mains.c */
void pl_keeper_start_main(struct pl_keeper *k, int exe_fd, enum pl_wire_role role);
void pl_keeper_main_ended(struct pl_keeper *k, struct pl_main *m, int status);
void pl_keeper_give_helm(struct pl_keeper *k, struct pl_main *to);
void pl_keeper_fail_upgrade(struct pl_keeper *k, int error, int status);
struct pl_main *pl_keeper_main_with(struct pl_keeper *k, enum pl_wire_role role);
unsigned pl_keeper_crashes(const struct pl_keeper *k); /* in the window */
void pl_keeper_look_at_mains(struct pl_keeper *k);
uint64_t pl_keeper_mains_deadline(const struct pl_keeper *k);

/* orders.c */
void pl_keeper_serve(struct pl_keeper *k, struct pl_main *m);
void pl_keeper_send_news(struct pl_keeper *k, struct pl_main *m);
/* Takes `fd`; -1 lets go of the name. 0 or an errno. */
int pl_keeper_hold(struct pl_keeper *k, const char *name, int fd);

/* workers.c */
/* fds: the recipe, then the listener and the control socket as the flags say; all borrowed. 0 or an errno. */
int pl_keeper_spawn(struct pl_keeper *k, const struct pl_wire_spawn *order, const int *fds,
                    struct pl_generation **out);
int pl_keeper_signal(struct pl_keeper *k, struct pl_generation *g, int signal, uint64_t kill_ms);
void pl_keeper_worker_ended(struct pl_keeper *k, struct pl_generation *g, int status,
                            const struct rusage *usage);
void pl_keeper_read_report(struct pl_keeper *k, struct pl_generation *g);
void pl_keeper_drain(struct pl_keeper *k, struct pl_generation *g);
void pl_keeper_forget(struct pl_generation *g);
struct pl_generation *pl_keeper_find(struct pl_keeper *k, uint64_t generation);
void pl_keeper_look_at_workers(struct pl_keeper *k);
uint64_t pl_keeper_workers_deadline(const struct pl_keeper *k);
/* Its leader was started and is not reaped. */
static inline bool pl_keeper_alive(const struct pl_generation *g) {
    return g->exit.state == PL_GEN_SPAWNING || g->exit.state == PL_GEN_RUNNING;
}

/* By fork and exec. fds as in pl_keeper_spawn; `output` and they are borrowed. 0 or an errno. */
int pl_keeper_fork_leader(struct pl_keeper *k, struct pl_generation *g, int output, const int *fds);
void pl_keeper_announce(struct pl_generation *g, enum pl_generation_news what);
/* A leader that never came to be. */
void pl_keeper_never_was(struct pl_keeper *k, struct pl_generation *g, int error);

/* zygote.c */
/* Asks the zygote of `g`'s order; fds and `output` as above. False: it must be done by exec. */
bool pl_keeper_ask_zygote(struct pl_keeper *k, struct pl_generation *g, int output, const int *fds);
/* report_fd of a generation that waits for hello has something. */
void pl_keeper_hear_zygote(struct pl_keeper *k, struct pl_generation *g);
/* Time has passed. */
void pl_keeper_look_at_forking(struct pl_keeper *k, struct pl_generation *g);
void pl_keeper_drop_forking(struct pl_generation *g);

/* family.c */
enum { PL_KEEPER_MARKER_BYTES = PL_ZYGOTE_MARKER_BYTES };
/* PLIMSOLL_GENERATION=<boot>.<generation>, in hexadecimal and decimal: how a descendant is known. */
void pl_keeper_marker(const struct pl_keeper *k, uint64_t generation, char out[PL_KEEPER_MARKER_BYTES]);
/* A main, or a leader that is still ours to command. */
bool pl_keeper_knows(const struct pl_keeper *k, pid_t pid);
/* SIGKILL to all that was re-parented to us and belongs to `g` (to anybody, if NULL). How many of them still
 * exist. */
unsigned pl_keeper_sweep(struct pl_keeper *k, const struct pl_generation *g);

/* The sooner of two moments, where 0 means none. */
static inline uint64_t pl_keeper_sooner(uint64_t a, uint64_t b) {
    if (a == 0) return b;
    return b == 0 || a < b ? a : b;
}
#endif
