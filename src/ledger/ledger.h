/* ledger/ledger.h - the books of one worker: every request's memory in, a verdict with figures out.
 *
 * Pure. The caller brings a row for each request that ended and, now and then, a sample of what is not known
 * per request (host memory, the process as the driver sees it); nothing here knows a page, a file or a clock.
 * Constant memory, whatever comes: PL_LEDGER_GPUS devices, 64 tags. A row that cannot be true (more than
 * PL_LEDGER_ABSURD bytes) is counted and left out; lost requests are told and count as requests.
 */
#ifndef PL_LEDGER_LEDGER_H
#define PL_LEDGER_LEDGER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger/forecast.h"
#include "ledger/rule.h"
#include "ledger/tags.h"

enum pl_verdict {
#define VERDICT(sym, name, bad, text) PL_VERDICT_##sym,
#include "ledger/verdicts.def"
#undef VERDICT
    PL_VERDICT_COUNT
};
const char *pl_verdict_name(enum pl_verdict v);
const char *pl_verdict_text(enum pl_verdict v);
bool pl_verdict_is_bad(enum pl_verdict v);

enum { PL_LEDGER_GPUS = 8, PL_LEDGER_HOST = PL_LEDGER_GPUS, PL_LEDGER_SCOPES, PL_LEDGER_BATCHES = 12 };
#define PL_LEDGER_ABSURD (1ull << 50)
/* "gpu0" ... "host" */
const char *pl_ledger_scope_name(int scope);

/* A request that ended. Bytes of PyTorch's allocator on `gpu`, the worker's own number of it. */
struct pl_ledger_row {
    uint64_t at_ms; /* main's clock when it was read */
    uint16_t tag;   /* the caller's number of endpoint and shape bucket */
    uint8_t gpu;
    bool failed;
    bool quiet;      /* nothing else ran in the worker while it did, and nothing does now */
    bool peak_exact; /* peak is its own */
    bool oom;        /* it failed for lack of device memory */
    bool known;      /* it tells device memory; else the next row that does stands for it (batches) */
    uint32_t batch;  /* items answered together; 0 and 1: no batch */
    uint64_t before, after, reserved, peak;
    uint64_t host_bytes; /* anonymous memory of the worker; 0: not read for this one */
};

/* What is known without a request. 0: not known, but where it says otherwise. */
struct pl_ledger_sample {
    uint64_t at_ms;
    uint64_t host_bytes; /* anonymous memory and swap; ignored once rows have told it */
    struct {
        uint64_t total, used;    /* of the device, everybody's */
        uint64_t process;        /* of it, the worker's, as the driver says */
        uint64_t inactive_split; /* reserved, and cannot be given back */
        uint64_t retries, ooms;  /* counters of the allocator */
    } gpu[PL_LEDGER_GPUS];
    uint64_t host_max;    /* memory that the worker may have; 0: no limit is known */
    uint64_t host_others; /* of it, what others have */
    uint32_t holders;     /* processes of this service that hold a model on the worker's devices */
    uint32_t holders_ok;  /* as many as there should be: one a device */
};

struct pl_ledger_gpu {
    bool seen;
    struct pl_history allocated, outside;
    uint64_t reserved, after; /* last seen */
    uint64_t reserved_first;  /* at the first row */
    uint64_t reserved_rise;   /* sum of its rises since */
    uint64_t shape_rise; /* of them: in a request of a tag never seen before, or with a new record peak */
    uint32_t reserved_rises;
    uint64_t peak_record;    /* largest peak above the floor */
    uint64_t minute_peak[2]; /* largest peak of this minute, of the last one */
    uint64_t minute_ms;
    uint64_t total, used, process, inactive_split, retries, ooms;
    bool counted; /* retries and ooms have been read once */
};

struct pl_ledger_batch {
    uint64_t requests, peak_bytes; /* largest exact peak */
};

/* After an OOM the frames of its traceback may hold tensors for ever: is the floor reached again? */
enum pl_after_oom { PL_AFTER_OOM_CALM, PL_AFTER_OOM_WATCHED, PL_AFTER_OOM_STUCK };
enum { PL_AFTER_OOM_REQUESTS = 20 };
struct pl_ledger_oom {
    enum pl_after_oom state; /* STUCK: not within PL_AFTER_OOM_REQUESTS, but for 16 MiB or a twentieth */
    double floor;
    uint32_t left;
};

struct pl_ledger {
    struct pl_ledger_gpu gpu[PL_LEDGER_GPUS];
    struct pl_history host;
    uint64_t host_bytes, host_max, host_others;
    uint64_t host_at;  /* requests at the last sample of it */
    uint64_t rest_at;  /* the same of the devices */
    bool host_by_rows; /* rows tell it */
    struct pl_tags tags;
    struct pl_rate rate;
    struct pl_ledger_batch batch[PL_LEDGER_BATCHES]; /* by size: 1, 2, 3-4, 5-8, ... */
    uint64_t requests, rated, lost, bad_rows;
    uint64_t untold; /* requests since the last one that told its memory: the next one stands for them */
    uint64_t seen_tags[1024]; /* a bit for each of 65,536 */
    uint32_t shapes;          /* different tags */
    uint32_t holders, holders_ok;
    bool chained; /* the last row ended in quiet: `after` of it is where the next one begins */
    uint8_t chained_gpu;
    struct pl_ledger_oom oom;
    /* told by pl_ledger_sample since the last pl_ledger_take_counts */
    uint64_t new_retries, new_ooms;
};

void pl_ledger_start(struct pl_ledger *l);
/* In a test, where nothing else runs: on devices `least` bytes are growth, less than PL_RULE_GROWTH. Before
 * the first row. ALONE: requests that come one by one; TOGETHER: their tensors in flight are noise. Host
 * memory has its own noise, and keeps its mark. */
#define PL_LEDGER_ALONE    (1024.0 * 1024)
#define PL_LEDGER_TOGETHER (4.0 * 1024 * 1024)
void pl_ledger_steady(struct pl_ledger *l, double least);
/* True: some series was looked at anew, ask for the verdict. */
bool pl_ledger_row(struct pl_ledger *l, const struct pl_ledger_row *r);
/* So many rows were overwritten before they could be read. */
void pl_ledger_lost(struct pl_ledger *l, uint64_t rows);
bool pl_ledger_sample(struct pl_ledger *l, const struct pl_ledger_sample *s);
/* Retries and OOMs of the allocator since the last call. */
void pl_ledger_take_counts(struct pl_ledger *l, uint64_t *retries, uint64_t *ooms);
/* Largest peak of the last one to two minutes on a device; 0: not known. */
uint64_t pl_ledger_peak(const struct pl_ledger *l, int gpu);

struct pl_ledger_verdict {
    enum pl_verdict word;
    enum pl_shape shape;
    bool has_shape;
    bool confirmed; /* else suspected; of growing, leak, outside_pytorch, host_leak */
    int scope;
    double bytes_per_request, low, high; /* 0 unless it grows */
    uint64_t since_requests;             /* the request at which it was first seen, or came to rest */
    uint64_t requests;                   /* so many are behind this verdict */
    uint64_t missing;                    /* warming: as many more are needed, about */
    double growth_bytes;                 /* since the warm-up; cache: since the first request */
    double level_bytes;                  /* floor now */
    uint32_t copies;                     /* duplicate_load */
};
void pl_ledger_verdict(const struct pl_ledger *l, struct pl_ledger_verdict *out);
/* For one scope; .is false when there is none. */
void pl_ledger_forecast(const struct pl_ledger *l, int scope, uint32_t margin, struct pl_forecast *out);
/* What the peak is held against: the device less what others use; the host's share; 0: not known. */
uint64_t pl_ledger_limit(const struct pl_ledger *l, int scope);
/* Bytes that empty_cache could give back on a device. */
uint64_t pl_ledger_releasable(const struct pl_ledger *l, int gpu);
#endif
