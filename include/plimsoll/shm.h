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
 * major up. Readers take offsets, strides and counts from the header, never from this file: a block that
 * the header does not have (count 0) is not there, and a field behind the stride reads 0.
 *
 * A fork of the writer must not write: who writes compares its pid with the one that opened the page.
 *
 * Minor 1: memory. Blocks devices, host, engine and tags; the fields of records from `tag` on.
 *
 * Minor 2: the engine block from `kv` on.
 *
 * Order of writing. Header: everything, then `magic`. Record number n (0, 1, ...) of a ring goes into slot n
 * % count: `seq` = 2n + 1, the fields, `seq` = 2n + 2, then the ring's counter = n + 1. A record is good when
 * `seq` was 2n + 2 before and after it was copied and `crc` agrees. A begin record is complete before its
 * handler runs: a record that was being written when the worker died stands for a handler that never ran.
 */
#ifndef PLIMSOLL_SHM_H
#define PLIMSOLL_SHM_H
#include <stdint.h>

#define PL_PAGE_MAGIC    0x47504c50u /* "PLPG" */
#define PL_PAGE_MAJOR    1
#define PL_PAGE_MINOR    2
#define PL_PAGE_BYTES    524288u /* what is asked of the keeper; a power of two */
#define PL_PAGE_RECORDS  1024u   /* slots of each ring; a power of two */
#define PL_PAGE_DEVICES  16u
#define PL_PAGE_TAGS     256u /* entry 0 is `other` */
#define PL_PAGE_TAG_TEXT 96
#define PL_PAGE_STEPS    18u /* see pl_page_engine.steps */

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
    struct pl_page_block devices;  /* struct pl_page_device */
    struct pl_page_block host;     /* one struct pl_page_host */
    struct pl_page_block engine;   /* one struct pl_page_engine */
    struct pl_page_block tags;     /* struct pl_page_tag */
    uint8_t reserved2[80];
};

/* Bits of pl_page_counts.features: what this worker really does. Set before the first request is taken.
 * RECORDS: every request that reaches user code leaves records; without it their absence proves nothing.
 * DEADLINE: finished requests leave no timer behind.
 * OVERRIDES: the server behind the page refuses nothing for load, and times out after us.
 * CONTROL: the control socket is answered.
 * MEMORY: records carry device memory: PyTorch is there and has a CUDA context. May come late.
 * PEAKS: the peak of a request that ran alone is its own.
 * HISTORY: the allocator records its history now.
 * LANE: some routes are served by the fast lane. */
enum pl_page_feature {
    PL_PAGE_F_RECORDS = 1,
    PL_PAGE_F_DEADLINE = 2,
    PL_PAGE_F_OVERRIDES = 4,
    PL_PAGE_F_CONTROL = 8,
    PL_PAGE_F_MEMORY = 16,
    PL_PAGE_F_PEAKS = 32,
    PL_PAGE_F_HISTORY = 64,
    PL_PAGE_F_LANE = 128
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
    uint64_t ooms;        /* end records with PL_RECORD_OOM */
    uint64_t untagged;    /* records under `other`, because the tag table was full */
    uint8_t reserved[144];
};

/* What PyTorch's allocator says about one device, as this process numbers it; unused entries have
 * sampled_us 0. Each field is stored whole; together they are no snapshot. */
struct pl_page_device {
    uint32_t index;
    uint32_t reserved1;
    uint64_t sampled_us; /* CLOCK_MONOTONIC */
    uint64_t allocated;  /* bytes, all that follow but the counts */
    uint64_t reserved;
    uint64_t active; /* allocated, and freed blocks that a stream still uses */
    uint64_t peak;   /* the highest allocated of this process so far */
    uint64_t inactive_split;
    uint64_t retries; /* the cache was emptied to make an allocation possible */
    uint64_t ooms;    /* allocations that failed */
    uint64_t total;   /* of the device; 0 = unknown */
    char uuid[48];    /* "GPU-...", NUL-padded; "" = unknown */
    uint8_t reserved2[64];
};

/* The process in host memory. */
struct pl_page_host {
    uint64_t sampled_us;
    uint64_t anon; /* bytes: RssAnon */
    uint64_t swap; /* VmSwap */
    uint64_t rss;  /* VmRSS, file and shared pages included */
    uint64_t threads;
    uint64_t python_blocks; /* small objects alive, sys.getallocatedblocks(): grows with a leak of objects */
    uint64_t gc_objects;    /* tracked by the garbage collector, when last counted; 0 = never */
    uint8_t reserved[136];
};

/* What an engine with a cache of its own says (llama). Each field is stored whole; together they are no
 * snapshot. `steps` counts steps of all sequences by how long they took: up to 1, 2.5, 5, 10, 25, 50, 100,
 * 250, 500 ms, 1, 2.5, 5, 10, 25, 50, 100, 300 s, and longer ones; each step in one place. */
struct pl_page_engine {
    uint64_t sampled_us;
    uint64_t cells; /* of the KV cache */
    uint64_t cells_used;
    uint64_t cells_reserved;
    uint64_t cells_cached;
    uint64_t cells_parked;
    uint64_t weights; /* bytes */
    uint64_t compute;
    uint64_t output;
    uint64_t tokens_in;
    uint64_t tokens_out;
    uint64_t kv;          /* bytes: of the cells, and of what recurrent layers keep */
    uint64_t preemptions; /* sequences whose cells were moved to host memory */
    uint64_t steps_us;    /* that all steps took together */
    uint64_t steps[PL_PAGE_STEPS];
};

/* What kind of request: "SERVICE ROUTE BUCKET", the bucket (of the input's shapes, or of its size) without
 * spaces. Written once and never changed: an entry is good when its CRC agrees. Entry 0 is "other": all that
 * came when the table was full. */
struct pl_page_tag {
    uint32_t crc;   /* of text */
    uint32_t route; /* index in the routes of the description, or PL_NO_ROUTE */
    uint8_t reserved[24];
    char text[PL_PAGE_TAG_TEXT]; /* UTF-8, NUL-padded, not always NUL-ended */
};

/* Flags of both kinds of record.
 * BATCHED: of a batchable endpoint; begins with the request's arrival, since a batch knows no requests.
 * ZOMBIE: its handler outlived it.
 * STREAM: answers piece by piece.
 * TASK: submits a background job; ends with the job.
 * WARMUP: marked x-plimsoll-warmup.
 * EDGE: begins at the application's edge, where the user's own ASGI code sees it before any handler.
 * UNBEGUN: end only; it never reached user code: refused input, unknown path, given up while waiting.
 * MEMORY: the fields of device memory are set. Not on every record: reading them has a share of the time.
 * ALONE: begin: no user code ran. End: none ran at any time but this request's, so that allocated_before and
 *   allocated are its own.
 * OVERLAPPED: end only, of what began: the opposite of ALONE.
 * PEAK_EXACT: end only: peak is this request's own; else it is of the group that it ran in.
 * QUIESCENT: end only: no user code runs now, so that allocated is what stays.
 * OOM: end only: it failed for lack of device memory, whatever its reply says.
 * LANE: taken by the fast lane.
 * RETURNED: end only, with LANE: what came of it was no plain 200, and the server's own code made the reply.
 * A batch is accounted as one: the first of its requests that ends carries it, with `batch` and with the
 * memory at the batch's begin and end; the others have neither MEMORY nor `batch`. */
enum pl_record_flag {
    PL_RECORD_BATCHED = 1,
    PL_RECORD_ZOMBIE = 2,
    PL_RECORD_STREAM = 4,
    PL_RECORD_TASK = 8,
    PL_RECORD_WARMUP = 16,
    PL_RECORD_EDGE = 32,
    PL_RECORD_UNBEGUN = 64,
    PL_RECORD_MEMORY = 128,
    PL_RECORD_ALONE = 256,
    PL_RECORD_OVERLAPPED = 512,
    PL_RECORD_PEAK_EXACT = 1024,
    PL_RECORD_QUIESCENT = 2048,
    PL_RECORD_OOM = 4096,
    PL_RECORD_LANE = 8192,
    PL_RECORD_RETURNED = 16384
};

enum pl_outcome {
    PL_OUTCOME_OK = 1,
    PL_OUTCOME_CLIENT_ERROR = 2, /* a reply from 400 on, or an exception that means one */
    PL_OUTCOME_ERROR = 3,        /* a reply from 500 on, or any other exception */
    PL_OUTCOME_CANCELLED = 4     /* cancelled, or a stream that was not read to its end */
};

#define PL_NO_ROUTE 0xffffu
#define PL_NO_TAG   0xffffu /* also what a page without tags means */

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
    uint16_t tag;       /* index in the tags, or PL_NO_TAG */
    uint16_t device;    /* index in the devices: the one that holds most of this process */
    uint16_t reserved1;
    uint64_t allocated; /* bytes on that device */
    uint64_t reserved;
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
    uint16_t tag;
    uint16_t device;
    uint32_t batch;       /* requests, or items, of the batch that this record carries; 0 = none */
    char error_class[32]; /* name of the exception's class, NUL-padded, not always NUL-ended; "" = none */
    uint64_t allocated_before; /* bytes on `device` at the begin */
    uint64_t allocated;
    uint64_t reserved;
    uint64_t peak; /* of allocated since the begin, or since that of the group: see PL_RECORD_PEAK_EXACT */
    uint64_t input_bytes; /* of the request's body as announced; 0 = unknown */
    uint64_t host_anon;   /* RssAnon, when it was read for this record; 0 = it was not */
    uint64_t begun;       /* number of its begin record, plus 1; 0 with PL_RECORD_UNBEGUN */
    uint8_t reserved2[40];
};

/* Where version 1.1 puts them. 1.0: end records of 128 bytes, and no blocks but the first three. */
enum {
    PL_PAGE_COUNTERS_AT = 256,
    PL_PAGE_HOST_AT = 512,
    PL_PAGE_ENGINE_AT = 768,
    PL_PAGE_DEVICES_AT = 1024,
    PL_PAGE_BEGINS_AT = 4096,
    PL_PAGE_ENDS_AT = PL_PAGE_BEGINS_AT + 64 * 1024,
    PL_PAGE_TAGS_AT = PL_PAGE_ENDS_AT + 192 * 1024,
    PL_PAGE_USED_BYTES = PL_PAGE_TAGS_AT + 128 * 256
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct pl_page_head) == 256, "header");
_Static_assert(sizeof(struct pl_page_counts) == 256, "counters");
_Static_assert(sizeof(struct pl_page_begin_record) == 64, "begin record");
_Static_assert(sizeof(struct pl_page_end_record) == 192, "end record");
_Static_assert(sizeof(struct pl_page_device) == 192, "device");
_Static_assert(sizeof(struct pl_page_host) == 192, "host");
_Static_assert(sizeof(struct pl_page_engine) == 256, "engine");
_Static_assert(sizeof(struct pl_page_tag) == 128, "tag");
_Static_assert(PL_PAGE_USED_BYTES <= PL_PAGE_BYTES, "page");
#endif
#endif
