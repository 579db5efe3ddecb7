/* base/watch_page.h - the page of the watch process: what it has seen of GPUs, of our memory group and of the
 * workers' processes. Layout only; the writer is src/watch, the reader sample/watch.h.
 *
 * A page as plimsoll/shm.h has it, of kind PL_PAGE_WATCH: a memfd made by the keeper, little-endian, blocks
 * aligned to 64 bytes, written by one process and read by others as foreign bytes. Offsets, strides and
 * counts are taken from the header; new fields come at the end of an item, in place of reserved bytes, and
 * count the minor up.
 *
 * An item is good when `seq` is even, not 0, the same before and after it was copied, and `crc` agrees; odd
 * means that it is being written. A figure that is not known is PL_WATCH_UNKNOWN, never 0. Times are
 * CLOCK_MONOTONIC milliseconds of the machine. Two threads write: one the host's part, one the devices', so
 * that a driver call that never returns leaves the host's figures alive; `device_ms` then stands still.
 */
#ifndef PL_BASE_WATCH_PAGE_H
#define PL_BASE_WATCH_PAGE_H
#include <stdint.h>

#include "plimsoll/shm.h"

#define PL_WATCH_MAJOR   1
#define PL_WATCH_MINOR   0
#define PL_WATCH_BYTES   262144u /* what is asked of the keeper */
#define PL_WATCH_UNKNOWN UINT64_MAX
enum { PL_WATCH_GPUS = 64, PL_WATCH_PROCESSES = 64, PL_WATCH_WORKERS = 128, PL_WATCH_XIDS = 8 };

/* The first fields are those of struct pl_page_head, so that a page tells what it is. */
struct pl_watch_head {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t crc;        /* of the header from head_bytes on */
    uint32_t head_bytes; /* of this header */
    uint64_t total_bytes;
    uint32_t kind;
    uint32_t writer_pid;
    uint64_t writer_start;
    uint64_t generation, boot;
    uint64_t reserved1;
    struct pl_page_block beat;    /* one struct pl_watch_beat */
    struct pl_page_block driver;  /* one struct pl_watch_driver */
    struct pl_page_block host;    /* one struct pl_watch_host */
    struct pl_page_block gpus;    /* struct pl_watch_gpu, the first driver.gpus of them */
    struct pl_page_block workers; /* struct pl_watch_worker, the first host.workers of them */
    uint8_t reserved2[112];
};

/* Each is stored whole; together they are no snapshot. */
struct pl_watch_beat {
    uint64_t host_ms;   /* the last look at the host was finished; 0: none was */
    uint64_t device_ms; /* the same of the devices, or of looking for a driver */
    uint64_t asked_ms;  /* the driver call that is under way began; 0: none is */
    uint32_t asked_gpu; /* for that GPU; UINT32_MAX: for none in particular */
    uint32_t asked;     /* enum pl_watch_call */
    uint8_t reserved[32];
};

/* X(SYMBOL, "name") of driver calls that may be seen under way. */
#define PL_WATCH_CALLS(X)                                \
    X(NOTHING, "")                                       \
    X(LOAD, "dlopen of libnvidia-ml.so.1")               \
    X(INIT, "nvmlInit")                                  \
    X(COUNT, "nvmlDeviceGetCount")                       \
    X(HANDLE, "nvmlDeviceGetHandleByIndex")              \
    X(MEMORY, "nvmlDeviceGetMemoryInfo")                 \
    X(PROCESSES, "nvmlDeviceGetComputeRunningProcesses") \
    X(FIGURES, "figures of a device")                    \
    X(EVENTS, "nvmlEventSetWait")                        \
    X(IDENTITY, "name and UUID of a device")
enum pl_watch_call {
#define X(sym, name) PL_WATCH_CALL_##sym,
    PL_WATCH_CALLS(X)
#undef X
};

enum pl_watch_driver_state {
    PL_WATCH_DRIVER_NONE = 1, /* there is no libnvidia-ml.so.1 */
    PL_WATCH_DRIVER_FAILS,    /* it is there and does not start, or has not what we need: `error`, `text` */
    PL_WATCH_DRIVER_RUNS
};
struct pl_watch_driver {
    uint32_t crc; /* of what follows */
    uint32_t state;
    uint64_t seq;
    uint64_t at_ms;
    uint32_t gpus; /* items of the block that mean something; MIG instances come behind their card */
    int32_t error; /* of NVML */
    uint64_t samples;
    char version[64]; /* of the driver */
    char text[96];    /* what went wrong; "" = nothing */
    uint8_t reserved[56];
};

enum pl_watch_gpu_flag {
    PL_WATCH_GPU_LOST = 1,          /* fell off the bus: nothing below but its name is known */
    PL_WATCH_GPU_MIG = 2,           /* a MIG instance; `parent` is its card */
    PL_WATCH_GPU_HAS_MIG = 4,       /* a card that is split: its instances are what is served from */
    PL_WATCH_GPU_PROCESSES = 8,     /* `processes` is complete and has bytes */
    PL_WATCH_GPU_REMAP_FAILED = 16, /* a row of its memory could not be replaced */
    PL_WATCH_GPU_REMAP_PENDING = 32 /* it needs a reset to replace a row */
};

struct pl_watch_process {
    uint32_t pid;    /* as the driver tells it: in a container often another number */
    uint32_t leader; /* the worker in whose process group it is; 0 = nobody's here */
    uint64_t bytes;  /* PL_WATCH_UNKNOWN: the driver does not tell */
};

struct pl_watch_gpu {
    uint32_t crc;
    uint32_t flags; /* enum pl_watch_gpu_flag */
    uint64_t seq;
    uint64_t at_ms;
    uint32_t index;  /* NVML's of the card */
    uint32_t parent; /* number of the card's item; UINT32_MAX: it is one itself */
    int32_t error;   /* NVML's answer to the last question that failed; 0: none did */
    uint32_t process_count;
    char uuid[96];
    char name[96];
    uint64_t total, used, free;            /* bytes */
    uint64_t utilization, memory_activity; /* per cent of the last period */
    uint64_t celsius, milliwatts;
    uint64_t throttle; /* NVML's bits of why clocks are lower than they could be */
    uint64_t reserved3[2];
    struct {
        uint32_t xid, count; /* xid 0: unused */
    } xids[PL_WATCH_XIDS];   /* since watch has started, the last one first */
    struct pl_watch_process processes[PL_WATCH_PROCESSES];
    uint8_t reserved[72];
};

/* Our own memory group; bytes and counts since its beginning. */
struct pl_watch_host {
    uint32_t crc;
    uint32_t cgroup; /* 1, 2; 0: not known */
    uint64_t seq;
    uint64_t at_ms;
    uint32_t workers; /* items of the block that mean something */
    uint32_t pad;
    uint64_t current, max, peak; /* max: of the group itself */
    uint64_t limit;              /* the smallest on the way up to the root */
    uint64_t anon, shmem, kernel, file;
    uint64_t events_max, events_oom, events_oom_kill, events_oom_group_kill;
    uint8_t reserved[64];
};

/* A child of the keeper, with all processes of its group. */
struct pl_watch_worker {
    uint32_t crc;
    uint32_t pid;
    uint64_t seq;
    uint64_t at_ms;
    uint64_t start_ticks;
    uint64_t anon, swap, rss, pss; /* pss: PL_WATCH_UNKNOWN while one of them does not tell */
    uint64_t threads, descriptors, processes;
    uint8_t reserved[40];
};

enum {
    PL_WATCH_BEAT_AT = 256,
    PL_WATCH_DRIVER_AT = 320,
    PL_WATCH_HOST_AT = 576,
    PL_WATCH_WORKERS_AT = 1024,
    PL_WATCH_GPUS_AT = PL_WATCH_WORKERS_AT + PL_WATCH_WORKERS * 128,
    PL_WATCH_USED_BYTES = PL_WATCH_GPUS_AT + PL_WATCH_GPUS * 1472
};

_Static_assert(sizeof(struct pl_watch_head) == 256, "header");
_Static_assert(sizeof(struct pl_watch_beat) == 64, "beat");
_Static_assert(sizeof(struct pl_watch_driver) == 256, "driver");
_Static_assert(sizeof(struct pl_watch_host) == 192, "host");
_Static_assert(sizeof(struct pl_watch_worker) == 128, "worker");
_Static_assert(sizeof(struct pl_watch_gpu) == 1472, "gpu");
_Static_assert(PL_WATCH_USED_BYTES <= PL_WATCH_BYTES, "page");
#endif
