/* plimsoll/shm.h - the page: what a worker tells about itself in shared memory. The only public header.
 *
 * A page is a memfd of PL_PAGE_BYTES, made zeroed and sealed against resizing before the worker starts, and
 * passed to it as a descriptor (PLIMSOLL_PAGE_FD). One process writes it, others map it read-only; who reads
 * treats it as foreign bytes. python/plimsoll/page.py is the writer for Python workers; a test keeps both
 * layouts equal.
 *
 * Rules. Little-endian, fixed width, blocks aligned to 64 bytes. Zero means "not yet", never "none": a page
 * without its magic was not written yet, or somebody took its memory away. New fields take the place of
 * `reserved` bytes or come at the end of a block, and count the minor version up; anything else counts the
 * major up. Readers take offsets, strides and counts from the header, never from this file.
 *
 * Order of writing. Header: everything, then `magic`. Record number n (0, 1, ...) of a ring goes into slot n
 * % count: `seq` = 2n + 1, the fields, `seq` = 2n + 2, then the ring's counter = n + 1. A record is good when
 * `seq` was 2n + 2 before and after it was copied and `crc` agrees. A begin record is complete before its
 * handler runs: a record that was being written when the worker died stands for a handler that never ran.
 */
#ifndef PLIMSOLL_SHM_H
#define PLIMSOLL_SHM_H
#include <stdint.h>

#define PL_PAGE_MAGIC   0x47504c50u /* "PLPG" */
#define PL_PAGE_MAJOR   1
#define PL_PAGE_MINOR   0
#define PL_PAGE_BYTES   262144u /* what is asked of the keeper; a power of two */
#define PL_PAGE_RECORDS 1024u   /* slots of each ring; a power of two */

enum pl_page_kind { PL_PAGE_WORKER = 1, PL_PAGE_WATCH = 2 };

/* Where a block lies: `count` items of `stride` bytes from byte `at` of the page. */
struct pl_page_block {
    uint32_t at;
    uint32_t stride;
    uint32_t count;
    uint32_t reserved;
};

struct pl_page_head {
    uint32_t magic;
    uint16_t major;
    uint16_t minor;
    uint32_t crc;          /* CRC-32 (zlib's) of the header from head_bytes on */
    uint32_t head_bytes;   /* of this header */
    uint64_t total_bytes;  /* of the page */
    uint32_t kind;         /* enum pl_page_kind */
    uint32_t writer_pid;   /* as the writer sees it: another number outside its PID namespace */
    uint64_t writer_start; /* field 22 of /proc/PID/stat: clock ticks after boot */
    uint64_t generation;   /* the keeper's number of this start; 0 = unknown */
    uint64_t boot;         /* nonce of the keeper's life; 0 = unknown */
    uint64_t reserved1;
    struct pl_page_block counters; /* one struct pl_page_counts */
    struct pl_page_block begins;   /* struct pl_page_begin_record */
    struct pl_page_block ends;     /* struct pl_page_end_record */
    uint8_t reserved2[144];
};

/* Bits of pl_page_counts.features: what this worker really does. Set before the first request is taken.
 * RECORDS: every request that reaches user code leaves records; without it their absence proves nothing.
 * DEADLINE: finished requests leave no timer behind.
 * OVERRIDES: the server behind the page refuses nothing for load, and times out after us.
 * CONTROL: the control socket is answered. */
enum pl_page_feature {
    PL_PAGE_F_RECORDS = 1,
    PL_PAGE_F_DEADLINE = 2,
    PL_PAGE_F_OVERRIDES = 4,
    PL_PAGE_F_CONTROL = 8
};

/* Each is stored whole; together they are no snapshot. Times: CLOCK_MONOTONIC milliseconds, 0 = not yet. */
struct pl_page_counts {
    uint64_t progress;    /* changes with every request, chunk sent and handler begun or ended */
    uint64_t begun;       /* begin records written */
    uint64_t ended;       /* end records written; not begun less in_flight: see PL_RECORD_UNBEGUN */
    uint64_t in_flight;   /* requests with a begin record and no end record, zombies and tasks included */
    uint64_t zombies;     /* of those: handlers that run on after their request was given up */
    uint64_t tasks;       /* background jobs taken and not finished */
    uint64_t batches;     /* calls of batchable handlers */
    uint64_t errors;      /* end records with PL_OUTCOME_ERROR */
    uint64_t imported_ms; /* the service's module was imported */
    uint64_t loaded_ms;   /* its instance was made, start-up hooks included */
    uint64_t serving_ms;  /* the first request arrived at the application */
    uint64_t features;    /* enum pl_page_feature */
    uint8_t reserved[160];
};

/* Flags of both kinds of record.
 * BATCHED: of a batchable endpoint; begins with the request's arrival, since a batch knows no requests.
 * ZOMBIE: its handler outlived it.
 * STREAM: answers piece by piece.
 * TASK: submits a background job; ends with the job.
 * WARMUP: marked x-plimsoll-warmup.
 * EDGE: begins at the application's edge, where the user's own ASGI code sees it before any handler.
 * UNBEGUN: end only; it never reached user code: refused input, unknown path, given up while waiting. */
enum pl_record_flag {
    PL_RECORD_BATCHED = 1,
    PL_RECORD_ZOMBIE = 2,
    PL_RECORD_STREAM = 4,
    PL_RECORD_TASK = 8,
    PL_RECORD_WARMUP = 16,
    PL_RECORD_EDGE = 32,
    PL_RECORD_UNBEGUN = 64
};

enum pl_outcome {
    PL_OUTCOME_OK = 1,
    PL_OUTCOME_CLIENT_ERROR = 2, /* a reply from 400 on, or an exception that means one */
    PL_OUTCOME_ERROR = 3,        /* a reply from 500 on, or any other exception */
    PL_OUTCOME_CANCELLED = 4     /* cancelled, or a stream that was not read to its end */
};

#define PL_NO_ROUTE 0xffffu

/* A request reached user code. */
struct pl_page_begin_record {
    uint32_t crc;       /* of everything that follows, up to the stride */
    uint32_t flags;     /* enum pl_record_flag */
    uint64_t seq;       /* see the top */
    uint64_t id;        /* x-plimsoll-id; 0 = the request had none */
    uint64_t at_us;     /* CLOCK_MONOTONIC */
    uint32_t thread;    /* kernel's thread id */
    uint32_t in_flight; /* this one included */
    uint16_t route;     /* index in the routes of the description, or PL_NO_ROUTE */
    uint8_t reserved[22];
};

/* Its handlers have ended, and its reply was handed to the transport or given up: whichever came last. */
struct pl_page_end_record {
    uint32_t crc;
    uint32_t flags;
    uint64_t seq;
    uint64_t id;
    uint64_t at_us;
    uint64_t duration_us; /* since its begin; 0 with PL_RECORD_UNBEGUN */
    uint32_t thread;
    uint32_t in_flight; /* this one no more included */
    uint16_t route;
    uint16_t status; /* of the reply, 0 = none was sent */
    uint32_t outcome;
    uint64_t reserved1;
    char error_class[32]; /* name of the exception's class, NUL-padded, not always NUL-ended; "" = none */
    uint8_t reserved2[32];
};

/* Where version 1.0 puts them. */
enum {
    PL_PAGE_COUNTERS_AT = 256,
    PL_PAGE_BEGINS_AT = 4096,
    PL_PAGE_ENDS_AT = 4096 + 64 * 1024,
    PL_PAGE_USED_BYTES = 4096 + 64 * 1024 + 128 * 1024
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct pl_page_head) == 256, "header");
_Static_assert(sizeof(struct pl_page_counts) == 256, "counters");
_Static_assert(sizeof(struct pl_page_begin_record) == 64, "begin record");
_Static_assert(sizeof(struct pl_page_end_record) == 128, "end record");
_Static_assert(PL_PAGE_USED_BYTES <= PL_PAGE_BYTES, "page");
#endif
#endif
