/* snapshot/snapshot.h - what is in a file of torch.cuda.memory._dump_snapshot(), as plain arrays.
 *
 * Made by snapshot/reader.h, immutable afterwards. Everything is one index into one array: strings, frames (a
 * function, a file, a line), stacks (equal lists of frames are one stack), segments with their blocks, one
 * trace a device. Sizes are bytes, at most PL_SNAP_MOST_BYTES each; addresses, streams and pool ids are
 * numbers of the process that wrote the file. Schema: torch 1.4 to 2.15 (torch/cuda/memory.py,
 * torch/csrc/cuda/Module.cpp, memory_snapshot.cpp); unknown keys are skipped.
 */
#ifndef PL_SNAPSHOT_SNAPSHOT_H
#define PL_SNAPSHOT_SNAPSHOT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_SNAP_NONE       UINT32_MAX          /* no stack, no tag, no segment */
#define PL_SNAP_NO_POOL    UINT16_MAX          /* an event of a version that did not tell its pool */
#define PL_SNAP_MOST_BYTES (UINT64_C(1) << 50) /* no device is that large */
enum { PL_SNAP_INTERVALS = 16 };               /* of roundup_power2_divisions: 1 MiB, 2 MiB, ... 32768 MiB */

/* symbol, word in the file */
#define PL_SNAP_ACTIONS(X)              \
    X(ALLOC, "alloc")                   \
    X(FREE_REQUESTED, "free_requested") \
    X(FREE_COMPLETED, "free_completed") \
    X(SEGMENT_ALLOC, "segment_alloc")   \
    X(SEGMENT_FREE, "segment_free")     \
    X(SEGMENT_MAP, "segment_map")       \
    X(SEGMENT_UNMAP, "segment_unmap")   \
    X(SNAPSHOT, "snapshot")             \
    X(OOM, "oom")                       \
    X(OTHER, "other")
enum pl_snap_action {
#define X(symbol, word) PL_SNAP_##symbol,
    PL_SNAP_ACTIONS(X)
#undef X
        PL_SNAP_ACTION_COUNT
};
enum pl_snap_state { PL_SNAP_ACTIVE, PL_SNAP_PENDING, PL_SNAP_INACTIVE };

struct pl_snap_event {
    uint64_t addr; /* of an oom: free bytes of the device */
    uint64_t size; /* alloc and free: as requested; segment_*: bytes of the driver; oom: rounded */
    uint64_t time_us;
    uint32_t stack, tag; /* PL_SNAP_NONE: none. The tag is a string: user_metadata */
    uint32_t stream;
    uint16_t pool; /* or PL_SNAP_NO_POOL */
    uint8_t action, unused;
};
struct pl_snap_block {
    uint64_t addr, size, requested;
    uint32_t stack;
    uint8_t state;
    bool has_addr;
};
struct pl_snap_segment {
    uint64_t addr, total, allocated, active, requested;
    uint32_t first_block, block_count;
    uint32_t stream, stack;
    int32_t device;
    uint16_t pool;
    bool has_addr, has_requested, small, expandable;
};
struct pl_snap_frame {
    uint32_t name, file; /* strings */
    uint32_t line;
};
struct pl_snap_stack {
    uint64_t first; /* in frame_ids, innermost first */
    uint32_t count;
    uint32_t hash;
};
struct pl_snap_string {
    uint64_t at;
    uint32_t len, hash;
};
struct pl_snap_pool {
    uint32_t a, b; /* (0, 0) is the default pool and has index 0 */
};
struct pl_snap_trace {
    uint32_t first, count;
};
struct pl_snap_settings {
    bool present;
    uint32_t conf;     /* string, PL_SNAP_NONE if there is none */
    int64_t max_split; /* -1 = unlimited */
    double gc;
    bool expandable, has_roundup;
    uint32_t roundup[PL_SNAP_INTERVALS];
};

struct pl_snap {
    char *bytes; /* of all strings, each with a NUL behind it */
    struct pl_snap_string *strings;
    struct pl_snap_frame *frames;
    struct pl_snap_stack *stacks;
    uint32_t *frame_ids;
    struct pl_snap_segment *segments; /* by device and address */
    struct pl_snap_block *blocks;
    struct pl_snap_event *events;
    struct pl_snap_trace *traces; /* one a device ordinal */
    uint64_t *streams;
    struct pl_snap_pool *pools;
    size_t string_count, frame_count, stack_count, frame_id_count, segment_count, block_count, event_count;
    size_t trace_count, stream_count, pool_count;
    struct pl_snap_settings settings;
    uint64_t file_bytes;
    uint32_t protocol;
    size_t annotations, host_segments, host_traces; /* how many */
    size_t trailing_bytes;                          /* behind the end of the pickle: a warning */
    size_t clamped;                                 /* numbers below zero where a size belongs: a warning */
    bool bare_list, has_host, has_pools, has_tags, has_frames, overflowed;
};

void pl_snap_destroy(struct pl_snap *s); /* NULL is fine */

/* Text of a string, NUL-ended, borrowed from the snapshot; "" for PL_SNAP_NONE. It is foreign: escape it. */
const char *pl_snap_text(const struct pl_snap *s, uint32_t string, size_t *len);
/* "max_split_size_mb:128", or "" when the file does not tell. */
const char *pl_snap_conf(const struct pl_snap *s);
/* Highest device ordinal that a segment or a non-empty trace names, plus one; 0 for a file without any. */
size_t pl_snap_device_count(const struct pl_snap *s);
struct pl_snap_trace pl_snap_trace_of(const struct pl_snap *s,
                                      uint32_t device); /* empty when there is none */
/* The segment of `device` that holds `addr`, or PL_SNAP_NONE. */
uint32_t pl_snap_segment_at(const struct pl_snap *s, uint32_t device, uint64_t addr);
/* The segments of a device, as a range. */
struct pl_snap_trace pl_snap_segments_of(const struct pl_snap *s, uint32_t device);
/* The pool of an event: its own, else that of the segment at its address, else 0. */
uint16_t pl_snap_pool_of(const struct pl_snap *s, uint32_t device, const struct pl_snap_event *e);

/* Which torch wrote it, by its keys: "about 2.14 or newer". */
const char *pl_snap_version_text(const struct pl_snap *s);
/* True when that version orders free blocks of equal size by the age of their segment, not by address
 * (about 2.13 on). */
bool pl_snap_orders_by_age(const struct pl_snap *s);

/* The first frame of a stack that is not inside torch itself, or the first of all. PL_SNAP_NONE for no stack.
 */
uint32_t pl_snap_top_frame(const struct pl_snap *s, uint32_t stack);
/* One number for equal stacks of different files. */
uint64_t pl_snap_stack_key(const struct pl_snap *s, uint32_t stack);
#endif
