/* snapshot/whatif.h - which allocator setting would have helped, and how small a GPU would do.
 *
 * For each setting: its peak, the smallest capacity on which every recorded allocation succeeds, and the
 * smallest without a retry (each retry stalls the device). Completion need not be monotone in the capacity;
 * the neighbours of the result are looked at, too.
 */
#ifndef PL_SNAPSHOT_WHATIF_H
#define PL_SNAPSHOT_WHATIF_H
#include "snapshot/replay.h"

#define PL_WHATIF_STEP (UINT64_C(2) << 20) /* of a capacity */
enum { PL_WHATIF_NEIGHBOURS = 4, PL_WHATIF_MOST = 32 };

struct pl_whatif_row {
    const char *conf;                /* text; "" = PyTorch's defaults */
    bool recorded;                   /* the file's own setting */
    struct pl_replay_result run;     /* at the user's capacity, or on an endless device */
    uint64_t low_peak, high_peak;    /* of both directions of addresses; equal with the order by age */
    uint64_t min_capacity, min_calm; /* + other; 0: not looked for, or none */
    bool uneven;                     /* a larger device near min_capacity fails */
};
struct pl_whatif {
    const struct pl_snap *s;
    const struct pl_snap_lives *lives;
    const struct pl_replay_fidelity *fidelity;
    const struct pl_replay_result *baseline;
    uint64_t capacity; /* 0 = not known */
    uint64_t other;
    bool bisect;
};
/* One setting. `text` is borrowed by the row; `conf` NULL: what the text says. */
bool pl_whatif_row(const struct pl_whatif *w, const char *text, const struct pl_alloc_conf *conf,
                   struct pl_whatif_row *row, struct pl_err *err);
/* The candidates, without the recorded text. Ends with NULL. */
extern const char *const pl_whatif_candidates[];

/* By what a setting is better: what ran out of memory fits, it runs on a smaller device, it runs without
 * retries on a smaller one, it has a lower peak. */
enum pl_whatif_advice { PL_ADVICE_RESCUE, PL_ADVICE_CAPACITY, PL_ADVICE_CALM, PL_ADVICE_PEAK };
/* Every recorded allocation succeeds, and so does every one that failed when it was recorded. */
bool pl_whatif_saves(const struct pl_whatif *w, const struct pl_whatif_row *row);
/* The row to take instead of rows[now], or `now` when none helps by more than the fidelity error and 2 %.
 * Settings that must not be combined, or that do nothing, are never advised. */
size_t pl_whatif_choose(const struct pl_whatif *w, const struct pl_whatif_row *rows, size_t count, size_t now,
                        enum pl_whatif_advice *by);
/* max_split_size_mb together with expandable_segments: grows without end (pytorch#193400). */
bool pl_whatif_is_bad_mix(const struct pl_alloc_conf *c);
#endif
