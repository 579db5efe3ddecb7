/* worker/boot.h - an engine's memory after its start, part by part: as it was planned, as it is, as it was
 * at the last start with the same command. Pure.
 *
 * What the cache became is compared with what the command asks for, else with the last start, else with the
 * plan: a plan's activation, graphs and non-torch are estimates, and a start has measured them. Where the
 * cache is off, the part that explains at least half of it is named. Of the other parts a change counts when
 * it is more than 5 % of itself and would be seen in the cache: two starts differ by 0.3 % of it
 * (vllm#54479). Thresholds: planner's table of planned against actual.
 */
#ifndef PL_WORKER_BOOT_H
#define PL_WORKER_BOOT_H
#include <stdbool.h>
#include <stdint.h>

#include "sample/engine_boot.h"

/* One side. Parts that are not known are left out. */
struct pl_boot_side {
    struct pl_boot_bytes part[PL_BOOT_PARTS];
    uint64_t kv_tokens;                  /* 0: not known */
    uint64_t total_bytes;                /* of the device; 0: not known */
    char version[PL_BOOT_VERSION_BYTES]; /* of the engine; "": not known */
};

/* What `plimsoll plan` says before a start. */
struct pl_boot_plan {
    bool made;
    struct pl_boot_side side;
    uint64_t block_tokens, block_bytes; /* of one card; 0: not known */
    uint64_t token_bytes;               /* of a token more on one card; 0: not known, or it differs */
    uint64_t margin_bytes;              /* what the plan keeps free; 0: not known */
};

enum pl_boot_against { PL_BOOT_NOTHING, PL_BOOT_COMMAND, PL_BOOT_LAST, PL_BOOT_PLAN };

struct pl_boot_start {
    struct pl_boot_side now;
    uint64_t kv_blocks, block_tokens;      /* as the engine counts them; 0: not known */
    struct pl_boot_bytes graphs_estimated; /* by the engine itself */
    uint64_t asked_kv_bytes;               /* by its command; 0: it leaves it to the engine */
    uint64_t persisted_bytes;              /* it has used what a start before found */
    bool cold;                             /* nothing was compiled for it before */
    const struct pl_boot_plan *plan;       /* NULL: none was made */
    const struct pl_boot_side *last;       /* NULL: there was none like it */
};

struct pl_boot_drift {
    enum pl_boot_part part;
    enum pl_boot_against against;
    double ratio; /* of the part: 0.1 is a tenth more */
    uint64_t from, to;
    const char *likely;
};
enum { PL_BOOT_DRIFTS = PL_BOOT_PARTS };
struct pl_boot_verdict {
    enum pl_boot_against against; /* what the cache was compared with */
    double kv_ratio;              /* 0 without */
    struct pl_boot_drift drifts[PL_BOOT_DRIFTS];
    unsigned count;
};
void pl_boot_judge(const struct pl_boot_start *s, struct pl_boot_verdict *out);
/* What is planned of a part: by the command, else by the plan. Not known: false. */
bool pl_boot_planned(const struct pl_boot_start *s, enum pl_boot_part p, struct pl_boot_bytes *out);
#endif
