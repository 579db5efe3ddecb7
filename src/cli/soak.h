/* cli/soak.h - `plimsoll soak`: sends a service requests until its memory can be judged, and says how.
 *
 * soak.c            the verb: scenarios one after the other, exit status
 * soak_place.c      where requests go: a server started for it (in a dry dock), one behind Plimsoll, any URL
 * soak_load.c       the requests, on a loop of its own
 * soak_bodies.c     what else could be sent: longer, more, wrong (pure)
 * soak_books.c      a worker's rows into room `ledger`, which judges: the same rule as the server's own
 * soak_scenarios.c  what each scenario sends, and when it has seen enough; soak_holder.c: who holds the
 * memory, soak_document.c: what came of it (soak_scene.h is what the three share) soak_tune.c       the knee,
 * as YAML soak_compare.c    two runs side by side soak_show.c       a run as text and JUnit; soak_html.c as a
 * page
 *
 * A run is one JSON document (docs/soak.md); everything shown is made from it. */
#ifndef PL_CLI_SOAK_H
#define PL_CLI_SOAK_H
#include <jansson.h>
#include <signal.h>
#include <uv.h>

#include "cli/client.h"
#include "ledger/ledger.h"
#include "net/dial.h"
#include "sample/page.h"

enum pl_scenario {
    PL_SOAK_IDENTICAL,
    PL_SOAK_FAILING,
    PL_SOAK_SHAPES,
    PL_SOAK_BATCH,
    PL_SOAK_CANCEL,
    PL_SOAK_CONCURRENCY,
    PL_SOAK_IDLE,
    PL_SOAK_SCENARIOS
};
const char *pl_soak_scenario_name(enum pl_scenario s);

/* What was asked for. All borrowed from the command line. */
struct pl_soak_wish {
    const struct pl_cli *cli;
    const char *target;
    unsigned scenarios; /* bits of enum pl_scenario */
    const char *route;
    json_t *body, *failing; /* owned; NULL: not given */
    uint64_t requests;
    uint32_t concurrency; /* 0: the scenario's own */
    double rate;          /* requests a second, open loop; 0: as fast as answers come */
    uint64_t max_time_ms; /* of a scenario; 0: none */
    int pid;
    const char *metrics;
    const char *gpu; /* NULL: no dry dock */
    bool tune;
    bool offline;            /* the server sees no network but its own loopback */
    bool trace_host;         /* tracemalloc in the worker */
    const char *const *with; /* KEY=VALUE, for the server that is started; NULL at the end, or NULL */
};

/* From the flags of soak and check; pl_soak_free_wish afterwards, whatever came of it. */
bool pl_soak_read_wish(const struct pl_cli *cli, struct pl_soak_wish *w, struct pl_err *err);
void pl_soak_free_wish(struct pl_soak_wish *w);

/* --- where requests go */

enum { PL_SOAK_FOLDER = 64 };
struct pl_soak_place {
    struct pl_dial_to to;
    char host[200], base[200]; /* Host header; path in front of every route */
    char service[64];
    bool has_admin; /* its rows can be read */
    bool dry_run;
    struct pl_client admin;
    char gpu_name[64];
    uint64_t gpu_bytes;
    /* of one that was started here */
    pid_t child;
    char folder[PL_SOAK_FOLDER];
    char hosts[400]; /* wanted while there was no network; kept when it is closed */
};
/* Starts it and waits until all its workers are ready, or finds it. False with err, nothing is left then. */
bool pl_soak_open(const struct pl_soak_wish *w, struct pl_soak_place *p, struct pl_err *err);
void pl_soak_close(struct pl_soak_place *p);
/* After a start without network that failed or not: hosts that were wanted, "a.example:443, b.example:80". */
void pl_soak_hosts(const struct pl_soak_place *p, char *out, size_t room);
/* Where an http:// URL leads: `to`, `host` and `base` are set. */
bool pl_soak_dial_url(const char *url, struct pl_soak_place *p, char port[16], struct pl_err *err);
/* A document of the admin side; NULL with err. */
json_t *pl_soak_ask(struct pl_soak_place *p, const char *target, struct pl_err *err);
/* Our own SIGINT or SIGTERM came: everything ends early. */
extern volatile sig_atomic_t pl_soak_signal;

/* --- requests */

enum pl_soak_leave {
    PL_SOAK_STAYS,
    PL_SOAK_LEAVES_EARLY /* after the first bytes */,
    PL_SOAK_LEAVES_AT_ONCE
};
struct pl_soak_counts {
    uint64_t sent, ok, client_errors, server_errors, refused, broken, left;
    uint64_t us[4096];     /* a sample of what answers took, spread over the whole */
    uint64_t timed, every; /* so many are in `us`; each `every`th is taken */
    uint64_t last_status;
    uint64_t busy_us; /* while requests were under way */
};
struct pl_soak_load {
    const struct pl_soak_place *place;
    const char *target; /* with the base in front */
    uint32_t concurrency;
    double rate;
    uint64_t timeout_ms;
    enum pl_soak_leave leave;
    /* Bytes of request number `n`; borrowed until the next call. */
    const char *(*body)(void *ctx, uint64_t n, size_t *len);
    void *ctx;
    uint64_t n; /* of the next request */
    struct pl_soak_counts counts;
};
/* Sends `count` requests, and returns when all are over. False with err: nobody is there any more. */
bool pl_soak_send(struct pl_soak_load *l, uint64_t count, struct pl_err *err);
uint64_t pl_soak_us(const struct pl_soak_counts *c, double share); /* 0.5: the median; 0: nothing was timed */
/* One request, and what came back (`reply` may be NULL): its status, 0 when there was no answer. */
uint16_t pl_soak_one(const struct pl_soak_place *p, const char *method, const char *target, const char *body,
                     size_t len, struct pl_buf *reply);

/* --- bodies (soak_bodies.c; pure) */

enum { PL_SOAK_PLACES = 32, PL_SOAK_DEPTH = 16, PL_SOAK_WRONG = 6 };
/* A value in a body that can be longer or larger: an array, a text, a whole number. */
struct pl_soak_spot {
    const json_t *at; /* in the body, borrowed */
    char name[80];    /* "rows", "x[0].text" */
    uint64_t size;    /* items, characters, the number */
};
size_t pl_soak_spots(const json_t *body, struct pl_soak_spot *out, size_t room);
/* A copy of the body with that value `size` long (its own content again and again). */
json_t *pl_soak_resized(const json_t *body, const struct pl_soak_spot *spot, uint64_t size);
/* The body made wrong in the k-th way; NULL: it cannot be, or it would be the same. */
json_t *pl_soak_wrong(const json_t *body, unsigned k);
/* From an OpenAPI document: the route (or, NULL, the only one that can be posted to) and the body that its
 * author wrote as example or defaults. `*route` is borrowed from doc. False with err. */
bool pl_soak_example(const json_t *doc, const char *wanted, const char **route, json_t **body,
                     struct pl_err *err);

/* --- books */

enum { PL_SOAK_WORKERS = 16, PL_SOAK_CURVE = 120, PL_SOAK_TAGS = 64 };
struct pl_soak_point {
    uint64_t request, device, reserved, host;
};
struct pl_soak_peak {
    char tag[PL_PAGE_TAG_ROOM];
    uint64_t requests, bytes; /* bytes: largest exact peak, what was there before included */
};
struct pl_soak_worker {
    uint32_t slot, generation;
    uint64_t next; /* row to read */
    struct pl_ledger ledger;
};
struct pl_soak_books {
    struct pl_soak_place *place;
    bool steady;
    bool unbegun_too; /* requests that never reached a handler count, too */
    uint64_t from_ms;
    size_t count;
    struct pl_soak_worker *worker[PL_SOAK_WORKERS]; /* owned */
    struct pl_soak_point curve[PL_SOAK_CURVE];
    size_t points;
    uint64_t stride, rows, lost, gone; /* gone: generations that ended meanwhile */
    struct pl_soak_point now;
    struct pl_soak_peak peak[PL_SOAK_TAGS];
    size_t peaks;
    struct pl_soak_peak batch[PL_LEDGER_BATCHES];
    uint64_t peak_bytes, last_peak_bytes, last_before_bytes; /* largest; of the last row that is exact */
    uint64_t ooms;                       /* requests that failed for lack of device memory */
    uint64_t outcomes[5];                /* of handlers: ok, client error, error, cancelled */
    uint64_t outside_bytes, total_bytes; /* of the first device: the process's beside PyTorch; the card's */
    char names[256][PL_PAGE_TAG_ROOM];   /* tags by number, of the first worker */
};
bool pl_soak_books_open(struct pl_soak_books *b, struct pl_soak_place *p, bool steady, struct pl_err *err);
/* All that ended since the last call. `sent`: requests that were sent in all, for a place without rows. */
bool pl_soak_books_read(struct pl_soak_books *b, uint64_t sent, const struct pl_soak_wish *w,
                        struct pl_err *err);
void pl_soak_books_again(struct pl_soak_books *b); /* forgets what it was told */
/* Of the worker that is worst off; returns it. */
const struct pl_soak_worker *pl_soak_books_verdict(const struct pl_soak_books *b,
                                                   struct pl_ledger_verdict *v);
void pl_soak_books_close(struct pl_soak_books *b);

/* --- a run */

/* All scenarios of a wish; the document, or NULL with err. */
json_t *pl_soak_run(const struct pl_soak_wish *w, struct pl_err *err);
/* For verbs that run one: signals end it in order, and afterwards the verb by the same signal. */
void pl_soak_watch_signals(void);
int pl_soak_leave(int status);
/* 0 clean, 1 leak or failure, 4 could not judge. */
int pl_soak_exit(const json_t *doc);
json_t *pl_soak_scenario(const struct pl_soak_wish *w, struct pl_soak_place *p, enum pl_scenario s,
                         struct pl_err *err);
/* Progress, on a terminal or with --json. */
void pl_soak_progress(const struct pl_soak_wish *w, enum pl_scenario s, const struct pl_soak_books *b,
                      uint64_t sent, uint64_t of, bool over);
void pl_soak_text(const json_t *doc, struct pl_buf *out);
/* Lines of at most 80 columns, what goes on is indented. */
void pl_soak_fold(const char *text, struct pl_buf *out);
void pl_soak_junit(const json_t *doc, struct pl_buf *out);
json_t *pl_soak_sections(const json_t *doc);
void pl_soak_tune(const json_t *doc, struct pl_buf *out);
/* A document of both, kind soak_compare; `worse` in it. */
json_t *pl_soak_compare(const json_t *a, const json_t *b);
void pl_soak_compare_text(const json_t *doc, struct pl_buf *out);
/* "12.5 KiB" for tables; "-" for what is not there. */
void pl_soak_bytes(char out[24], double bytes);
/* One line of block characters over the values, `width` of them. */
void pl_soak_spark(const json_t *curve, size_t column, size_t width, struct pl_buf *out);
#endif
