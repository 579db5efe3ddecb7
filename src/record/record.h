/* record/record.h - the flight record: what happened, in a SQLite file that outlives us (docs/record.md).
 *
 * The loop only copies a row into a bounded queue; a thread of the record writes it. What does not fit is
 * counted and told (`record.dropped`), never waited for. The thread commits what has gathered a few times a
 * second, and at once when a worker died: a commit survives the SIGKILL of every process of ours.
 *
 * Where the file cannot be written (read-only, full, damaged) rows go on in memory, at most
 * PL_RECORD_MEMORY_BYTES, and the file is tried again; what was kept in memory is then moved into it.
 * A start that finds a life without a goodbye (keeper, main and workers killed together) writes the verdict
 * of it, once: pl_record_look tells it, so that it can be told in the log too.
 *
 * Exits, timelines, verdicts, plan checks and `would` rows are made out of the events themselves: see
 * derive.def.
 */
#ifndef PL_RECORD_RECORD_H
#define PL_RECORD_RECORD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

enum {
    PL_RECORD_MEMORY_BYTES = 64 << 20,
    PL_RECORD_LEAST_BYTES = 1 << 20, /* record.max_bytes below it counts as this */
    PL_RECORD_QUEUE_BYTES = 4 << 20,
    PL_RECORD_LINE_BYTES = 16384, /* a longer row is dropped */
    PL_RECORD_KEPT_PER_S = 100,   /* answered requests that get a row of their own, in a second */
    PL_RECORD_FAILED_PER_S = 1000 /* the same for all others */
};

struct pl_record;

/* One start of main. Texts are copied. */
struct pl_record_boot {
    uint64_t life;                           /* nonce of the keeper's life: the same for every main of it */
    const char *reason;                      /* first, crash, hang, upgrade */
    const char *version, *instance, *config; /* config: its hash */
    int64_t keeper_pid, main_pid;
};

/* Memory of the whole instance, as its memory group tells it. What is not known stays 0. */
struct pl_record_host {
    uint64_t used, limit;
    uint64_t oom_kills; /* of the group, so far */
};

struct pl_record_options {
    const char *path; /* NULL: in memory */
    uint64_t max_bytes, max_age_ms;
    size_t queue_bytes; /* 0: PL_RECORD_QUEUE_BYTES */
    const struct pl_clock *clock;
    struct pl_record_boot boot;
    /* Asked once a second on the record's thread, where files may be read. False: nothing is known. */
    bool (*host)(void *ctx, struct pl_record_host *out);
    void *host_ctx;
};

/* Never waits for the disk. NULL: no thread or no memory. */
struct pl_record *pl_record_create(const struct pl_record_options *o);
/* Writes what is left and the goodbye, at most 2 s; `status` is the one main ends with. Then the record is
 * gone, or, with a disk that does not answer, abandoned. */
void pl_record_destroy(struct pl_record *r, int status);
/* record.max_bytes and record.max_age are live. */
void pl_record_limits(struct pl_record *r, uint64_t max_bytes, uint64_t max_age_ms);

/* --- feeding. From the loop's thread; `r` may be NULL. Texts are copied and may be NULL; negative numbers
 * are "not known" and become NULL. */

/* A line as the log's tap has it (base/log.h). `access` is left out: requests have a table of their own. */
void pl_record_event(struct pl_record *r, enum pl_level level, const char *event, const char *line,
                     size_t len);

struct pl_record_request {
    uint64_t id;
    const char *service, *method; /* method: not NUL-ended, method_len */
    const char *route;            /* the path alone, never a query; not NUL-ended, route_len */
    size_t method_len, route_len;
    uint32_t worker;
    uint64_t generation; /* 0, as worker: none had it */
    int status;          /* 0: the client left before one was sent */
    bool open;           /* it still runs: outcome and status are not known yet */
    bool opened;         /* it has such a row: this one takes its place, however many there are */
    const char *outcome, *reason, *replay;
    int64_t duration_us, queue_us, first_byte_us, request_bytes, reply_bytes, input_tokens, output_tokens;
};
/* Of many in a second some stand for the others of their service (column stands_for). True: it has a row. */
bool pl_record_request(struct pl_record *r, const struct pl_record_request *q);

/* One look at the memory of a worker, or of a device (service NULL). */
struct pl_record_sample {
    const char *scope; /* host, gpu0 ... */
    const char *service;
    uint32_t worker;
    uint64_t generation;
    int64_t allocated, reserved, peak, limit; /* bytes; PyTorch's or the engine's own */
    int64_t used, total, foreign;             /* of a device */
    int64_t rss, anon, swap;                  /* of the worker's process group */
    int64_t in_flight, requests;              /* now; served since its start */
    double utilization;                       /* 0..1 */
};
/* A sample of which nothing is known yet: set what is. */
struct pl_record_sample pl_record_sample_of(const char *scope);
void pl_record_sample(struct pl_record *r, const struct pl_record_sample *s);

/* A verdict that no `memory.verdict` event tells: those become rows by themselves. */
struct pl_record_verdict {
    const char *service, *scope, *verdict, *shape, *confidence, *tag, *holder;
    uint32_t worker;
    uint64_t generation;
    double bytes_per_request, low, high; /* NAN: not known */
    double forecast_s, share;            /* negative: not known */
    int64_t since_requests;
};
void pl_record_verdict(struct pl_record *r, const struct pl_record_verdict *v);

/* --- looking. Does not wait for the disk. */

struct pl_record_look {
    bool in_memory;    /* though a file was asked for */
    char problem[256]; /* why; "" when all is well */
    uint64_t bytes;    /* of the file, or of the memory */
    uint64_t dropped;  /* rows, since the start */
    bool opened;       /* the thread has opened the file, or has given it up */
    bool unfinished;   /* the life before this one has no goodbye */
    char death[24], cause[40], sentence[320];
    uint64_t seen_ms; /* its last sign of life, wall time */
};
void pl_record_look(const struct pl_record *r, struct pl_record_look *out);
/* The file that is written to, which an older binary's is beside a newer one's. "" in memory. */
void pl_record_file(const struct pl_record *r, char *out, size_t room);
/* Makes the thread leave a copy of what is in memory: a descriptor, owned by whom `done` gives it to; -1: it
 * could not. Called on the record's thread. */
void pl_record_copy(struct pl_record *r, void (*done)(void *ctx, int fd), void *ctx);

/* Where an instance's record lies: `wanted` is record.path (auto, memory or a file). "": in memory. */
void pl_record_path(const char *wanted, const char *state_dir, char *out, size_t room);
#endif
