/* base/wire.h - what the keeper and main say to each other.
 *
 * One SOCK_SEQPACKET pair for each main, made by the keeper; main finds its end at descriptor PL_WIRE_FD. A
 * message is one fixed struct that begins with pl_wire_head; descriptors travel beside it (SCM_RIGHTS).
 * Structs only grow at their end: a shorter one is completed with zeros, a longer one is read as far as it is
 * known. A request carries a serial that is not 0 and gets exactly one reply with the same serial; news has
 * serial 0. The running keeper is normally older than main (an upgrade replaces main alone): main speaks N
 * and N-1.
 */
#ifndef PL_BASE_WIRE_H
#define PL_BASE_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_WIRE_FD = 3,
    PL_WIRE_MAGIC = 0x4b4d4c50,
    PL_WIRE_VERSION = 1,
    PL_WIRE_OLDEST = 1,
    PL_WIRE_MAX_FDS = 4,
    PL_WIRE_MAX_BYTES = 8192,
    PL_WIRE_NOTE_BYTES = 4096,
    PL_WIRE_NAME_BYTES = 32,
    PL_WIRE_WORDS_BYTES = 320
};

/* Descriptors of a worker. Fixed numbers, so that argv can be written before the spawn. */
enum {
    PL_WORKER_LISTENER_FD = 3,
    PL_WORKER_PAGE_FD = 4,
    PL_WORKER_CONTROL_FD = 5,
    PL_WORKER_FIRST_FREE_FD = 6
};

/* Least bytes: the size in the first version. When a struct grows, its line here stays as it was. */
/* clang-format off */
#define PL_WIRE_KINDS(X)                                                                                     \
    /* requests of main          value  least bytes */                                                      \
    X(HELLO,                     1,     sizeof(struct pl_wire_hello))                                        \
    X(LIST,                      2,     sizeof(struct pl_wire_list))                                         \
    X(SPAWN,                     3,     offsetof(struct pl_wire_spawn, zygote))                              \
    X(SIGNAL,                    4,     sizeof(struct pl_wire_signal))                                       \
    X(NOTE,                      5,     offsetof(struct pl_wire_note, note))                                 \
    X(HOLD,                      6,     sizeof(struct pl_wire_hold))                                         \
    X(FORGET,                    7,     sizeof(struct pl_wire_forget))                                       \
    X(UPGRADE,                   8,     sizeof(struct pl_wire_head))                                         \
    X(TAKE,                      9,     sizeof(struct pl_wire_head))                                         \
    X(STOOD_DOWN,               10,     sizeof(struct pl_wire_head))                                         \
    X(BYE,                      11,     offsetof(struct pl_wire_bye, words))                                 \
    X(TELL,                     12,     sizeof(struct pl_wire_tell))                                         \
    /* replies */                                                                                            \
    X(WELCOME,                  65,     offsetof(struct pl_wire_welcome, after_hang))                        \
    X(ITEM,                     66,     offsetof(struct pl_wire_item, note))                                 \
    X(HELD,                     67,     sizeof(struct pl_wire_hold))                                         \
    X(LIST_END,                 68,     sizeof(struct pl_wire_head))                                         \
    X(SPAWNED,                  69,     sizeof(struct pl_wire_spawned))                                      \
    X(DONE,                     70,     sizeof(struct pl_wire_head))                                         \
    X(REFUSED,                  71,     sizeof(struct pl_wire_refused))                                      \
    /* news, serial 0 */                                                                                     \
    X(RUNNING,                  80,     sizeof(struct pl_wire_exit))                                         \
    X(EXITED,                   81,     sizeof(struct pl_wire_exit))                                         \
    X(GONE,                     82,     sizeof(struct pl_wire_exit))                                         \
    X(STUCK,                    83,     sizeof(struct pl_wire_exit))                                         \
    X(HELM,                     84,     sizeof(struct pl_wire_head))                                         \
    X(STAND_DOWN,               85,     sizeof(struct pl_wire_head))                                         \
    X(UPGRADED,                 86,     offsetof(struct pl_wire_upgraded, words))                            \
    X(MAIN_EXITED,              87,     sizeof(struct pl_wire_main_exited))                                  \
    X(STOP,                     88,     sizeof(struct pl_wire_stop))                                         \
    X(WITHDRAWN,                89,     sizeof(struct pl_wire_exit))
/* clang-format on */

enum pl_wire_kind {
#define X(name, value, least) PL_WIRE_##name = value,
    PL_WIRE_KINDS(X)
#undef X
};

struct pl_wire_head {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t length; /* of the whole message, head included */
    uint32_t serial;
};

struct pl_wire_hello {
    struct pl_wire_head head;
    uint32_t oldest; /* versions that this main speaks */
    uint32_t newest;
    char build[PL_WIRE_NAME_BYTES];
};

enum pl_wire_role { PL_ROLE_NONE, PL_ROLE_HELM, PL_ROLE_CANDIDATE, PL_ROLE_LEAVING };

/* Descriptor: the heartbeat page, to be mapped writable. */
struct pl_wire_welcome {
    struct pl_wire_head head;
    uint64_t boot;          /* one number for one life of the keeper */
    uint64_t main_id;       /* 1, 2, 3 ...: this start of main */
    uint64_t other_main_id; /* the other main that lives now, or 0 */
    uint32_t role;
    uint32_t crashes; /* in the window, this start included: 2 and more mean plain mode */
    uint32_t keeper_pid;
    uint32_t hang_ms;    /* beat at least ten times as often */
    uint32_t after_hang; /* 1: the helm before it was ended because it was silent */
    uint32_t pad;
};

enum pl_wire_what { PL_LIST_GENERATIONS, PL_LIST_HELD };

/* One question, one answer: the first entry after `after`, or LIST_END. */
struct pl_wire_list {
    struct pl_wire_head head;
    uint32_t what;
    uint32_t pad;
    uint64_t after;
};

/* ASIDE: no worker, but something beside them: its generation comes from a row of its own, so that the
 * numbers of workers, which people see, have no holes. ZYGOTE: it forks workers on the keeper's word; its
 * control socket is the keeper's (pl_zygote_order), and CONTROL is not for it. */
enum pl_spawn_flag {
    PL_SPAWN_LISTENER = 1,
    PL_SPAWN_CONTROL = 2,
    PL_SPAWN_USER = 4,
    PL_SPAWN_ASIDE = 8,
    PL_SPAWN_ZYGOTE = 16
};
#define PL_WIRE_FIRST_ASIDE (UINT64_C(1) << 48)

/* Descriptors: recipe, then the listener and the control socket if the flags say so. The keeper makes page
 * and log ring. The recipe is a memfd: pl_recipe_head, then NUL-ended words: folder, argv, environment. */
struct pl_wire_spawn {
    struct pl_wire_head head;
    uint64_t recipe_hash; /* opaque */
    uint64_t nofile;      /* 0: what the keeper itself was started with */
    uint64_t core_bytes;
    uint64_t address_bytes; /* 0: no limit */
    uint32_t flags;
    uint32_t page_bytes;
    uint32_t ring_bytes; /* power of two */
    uint32_t stop_rank;  /* the keeper's own stop ends rank 0 first */
    uint32_t stop_signal;
    uint32_t stop_ms; /* then SIGKILL */
    int32_t oom_score_adj;
    int32_t nice;
    uint32_t uid;
    uint32_t gid;
    char name[PL_WIRE_NAME_BYTES];
    char socket_name[PL_WIRE_NAME_BYTES]; /* NAME or w/NAME below the run folder; removed at GONE; may be
                                             empty */
    uint64_t zygote; /* generation of the zygote that is to fork it, which must have been started with the
                        same limits, user and folder; 0: by exec. Whatever is wrong with it: by exec */
};

struct pl_recipe_head {
    uint32_t argc;
    uint32_t envc;
};

/* Descriptors: page, log ring. pid 0: a zygote was asked, and RUNNING or EXITED will tell. */
struct pl_wire_spawned {
    struct pl_wire_head head;
    uint64_t generation;
    uint32_t pid;
    uint32_t pad;
};

enum pl_generation_state { PL_GEN_FREE, PL_GEN_SPAWNING, PL_GEN_RUNNING, PL_GEN_EXITED, PL_GEN_GONE };

/* exec_step of a program that runs: how it came to be. STANDBY: the zygote had forked it ahead. REFUSED: the
 * zygote was asked in vain, and it was done by exec. Smaller values: enum pl_child_step. */
enum pl_spawn_way { PL_WAY_EXEC = 0, PL_WAY_STANDBY = 32, PL_WAY_FORK = 33, PL_WAY_REFUSED = 34 };

struct pl_wire_exit {
    struct pl_wire_head head;
    uint64_t generation;
    uint32_t pid;
    uint32_t state;
    int32_t status;      /* of wait(2); of the leader */
    uint32_t exec_errno; /* 0, or why the program never ran */
    uint32_t exec_step;  /* where it failed, or else enum pl_spawn_way */
    uint32_t strays;     /* processes beside the leader that had to be ended */
    uint64_t user_us;
    uint64_t system_us;
    uint64_t max_rss_kib;
    uint64_t life_ms;
    uint64_t log_bytes;
};

/* Descriptors: page, log ring. */
struct pl_wire_item {
    struct pl_wire_head head;
    uint64_t generation;
    uint64_t recipe_hash;
    uint64_t age_ms;
    struct pl_wire_exit exit; /* its head is empty */
    uint32_t stopping;        /* a stop signal was sent */
    uint32_t note_bytes;
    char name[PL_WIRE_NAME_BYTES];
    char socket_name[PL_WIRE_NAME_BYTES];
    uint8_t note[PL_WIRE_NOTE_BYTES];
};

/* To the whole group of the worker. kill_ms 0: no SIGKILL follows. Signal 0 sends nothing: WITHDRAWN tells
 * the other main that the worker is about to end, while it still takes what is under way (a keeper of before
 * refuses it, EINVAL). */
struct pl_wire_signal {
    struct pl_wire_head head;
    uint64_t generation;
    uint32_t signal;
    uint32_t kill_ms;
};

struct pl_wire_note {
    struct pl_wire_head head;
    uint64_t generation;
    uint32_t note_bytes;
    uint32_t pad;
    uint8_t note[PL_WIRE_NOTE_BYTES];
};

/* HOLD with one descriptor keeps or replaces; without one it lets go. HELD is the answer to LIST, with the
 * descriptor. */
struct pl_wire_hold {
    struct pl_wire_head head;
    uint64_t ordinal;
    char name[PL_WIRE_NAME_BYTES];
};

struct pl_wire_forget {
    struct pl_wire_head head;
    uint64_t generation; /* must be GONE */
};

/* The helm says BYE: workers are stopped and the keeper exits with this status. Others: they leave; `words`
 * of a candidate say why it does not take the helm, and reach the old main in UPGRADED. Ends with NUL or is
 * full. */
struct pl_wire_bye {
    struct pl_wire_head head;
    uint32_t status;
    uint32_t pad;
    char words[PL_WIRE_WORDS_BYTES];
};

/* What the service manager is to hear of us, as lines of sd_notify(3). Ends with NUL or is full. A keeper
 * without a service manager says DONE to it all the same. */
struct pl_wire_tell {
    struct pl_wire_head head;
    char words[PL_WIRE_WORDS_BYTES];
};

/* Descriptor: the new binary. 0: as the keeper was told at its start. */
struct pl_wire_upgrade {
    struct pl_wire_head head;
    uint32_t take_ms;  /* from now to TAKE */
    uint32_t leave_ms; /* how long the old main may live on when the helm has moved */
};

struct pl_wire_refused {
    struct pl_wire_head head;
    uint32_t error; /* an errno */
    uint32_t pad;
};

struct pl_wire_upgraded {
    struct pl_wire_head head;
    uint32_t error;                  /* 0: the helm has moved */
    int32_t status;                  /* wait status of the candidate if it ended */
    char words[PL_WIRE_WORDS_BYTES]; /* what it said in its BYE */
};

struct pl_wire_main_exited {
    struct pl_wire_head head;
    uint64_t main_id;
};

struct pl_wire_stop {
    struct pl_wire_head head;
    uint32_t deadline_ms;
    uint32_t pad;
};

/* The heartbeat page: main adds 1 to `beats` from its loop. */
struct pl_wire_beat {
    uint32_t magic;
    uint32_t version;
    _Atomic uint64_t beats;
};

/* --- between the keeper and a zygote (python/plimsoll/zygote.py): both of one build, see pl_wire_spawn */

enum { PL_ZYGOTE_MAGIC = 0x4f5a4c50, PL_ZYGOTE_MARKER_BYTES = 80 };

/* On the zygote's control socket. Descriptors: a socket to answer on, the recipe, the write end of the
 * worker's output, its page, then its listener and its control socket if the flags (pl_spawn_flag) say so. */
struct pl_zygote_order {
    uint32_t magic;
    uint32_t flags;
    uint64_t generation;
    char marker[PL_ZYGOTE_MARKER_BYTES]; /* PLIMSOLL_GENERATION=BOOT.NUMBER */
};

/* From the child that is to be the worker, on that socket; whose it is the kernel says. One byte comes back
 * when it has become the worker. The end of the socket instead: it is not wanted, and must end. */
struct pl_zygote_hello {
    uint32_t magic;
    uint32_t ahead; /* it was forked before the order came */
};

/* Any message, with what came beside it. 8 KiB: keep it off deep stacks. */
struct pl_wire_message {
    union {
        struct pl_wire_head head;
        struct pl_wire_hello hello;
        struct pl_wire_welcome welcome;
        struct pl_wire_list list;
        struct pl_wire_spawn spawn;
        struct pl_wire_spawned spawned;
        struct pl_wire_exit exit;
        struct pl_wire_item item;
        struct pl_wire_signal signal;
        struct pl_wire_note note;
        struct pl_wire_hold hold;
        struct pl_wire_forget forget;
        struct pl_wire_bye bye;
        struct pl_wire_tell tell;
        struct pl_wire_upgrade upgrade;
        struct pl_wire_refused refused;
        struct pl_wire_upgraded upgraded;
        struct pl_wire_main_exited main_exited;
        struct pl_wire_stop stop;
        uint8_t bytes[PL_WIRE_MAX_BYTES];
    };
    int fds[PL_WIRE_MAX_FDS]; /* received: owned by the receiver; to send: borrowed */
    unsigned fd_count;
};

/* AGAIN: no room or nothing there, on a non-blocking socket. CLOSED: the other side has gone. BAD: see the
 * call. */
enum pl_wire_result { PL_WIRE_OK, PL_WIRE_AGAIN, PL_WIRE_CLOSED, PL_WIRE_BAD };

/* Makes `m` an empty message of a kind; the caller fills the rest and may shorten head.length. */
void pl_wire_init(struct pl_wire_message *m, enum pl_wire_kind kind, size_t length, uint32_t serial);

/* Descriptors in `m` stay the caller's. BAD: not a message that can be sent. */
enum pl_wire_result pl_wire_send(int fd, const struct pl_wire_message *m);

/* BAD: foreign, truncated or too short; everything that came with it is closed, and the next one may be
 * received. */
enum pl_wire_result pl_wire_receive(int fd, struct pl_wire_message *m);

void pl_wire_close_fds(struct pl_wire_message *m);
const char *pl_wire_kind_name(unsigned kind); /* "SPAWN"; "unknown" */
#endif
