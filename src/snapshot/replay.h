/* snapshot/replay.h - the requests of a recorded trace once more, through the model.
 *
 * Baseline: with the recorded settings and the recorded addresses of new segments; compared with what was
 * recorded, it says how far the model may be believed for this file (the fidelity). What-if: other settings,
 * from a cold start, without the recorded addresses. Calls of empty_cache() are not in a file: the baseline
 * finds them, a what-if is given their places.
 */
#ifndef PL_SNAPSHOT_REPLAY_H
#define PL_SNAPSHOT_REPLAY_H
#include "snapshot/lives.h"
#include "snapshot/sim.h"

#define PL_REPLAY_ENDLESS \
    (UINT64_C(1) << 45)        /* a device that is never full, where the real size is not known */
#define PL_REPLAY_GATE    0.05 /* no advice when the model is further off than this */
#define PL_REPLAY_MOST_L0 0.30 /* nor when that share of the peak was there before a wrapped ring */

/* Before each event is replayed: for those who want to look at the model then. False: stop. */
typedef bool pl_replay_watch(void *ctx, struct pl_sim *sim, uint32_t event);

struct pl_replay_plan {
    const struct pl_snap *s;
    const struct pl_snap_lives *lives;
    struct pl_alloc_conf conf;
    uint64_t capacity, other;
    bool baseline;               /* recorded addresses; find the calls of empty_cache */
    const uint32_t *cache_calls; /* where they are (not for the baseline), ascending */
    size_t cache_call_count;
    bool falling; /* own addresses fall instead of rise */
    bool stop_at_oom, stop_at_retry;
    pl_replay_watch *watch;
    void *watch_ctx;
};
struct pl_replay_result {
    struct pl_sim_stats stats;
    uint64_t releasable, largest_free;
    uint32_t first_oom; /* event whose alloc failed, NONE. An alloc, not a recorded oom */
    bool start_failed;  /* not even what was live before the trace fits */
    size_t would_fit;   /* recorded ooms that succeed here */
    /* of the baseline: */
    uint32_t *cache_calls; /* owned, pl_replay_result_free */
    size_t cache_call_count;
    uint64_t worst_off; /* most difference of reserved, at any allocation */
    bool same_layout;
};
/* False without memory. */
bool pl_replay(const struct pl_replay_plan *plan, struct pl_replay_result *out, struct pl_err *err);
void pl_replay_result_free(struct pl_replay_result *r);

/* The baseline against the record. */
struct pl_replay_fidelity {
    uint64_t recorded_peak, recorded_final, recorded_start;
    uint64_t recorded_events[PL_SIM_SEGMENT_KINDS], recorded_ooms;
    double off;      /* worst difference / peak */
    double l0_share; /* live before a wrapped ring / peak */
    bool exact;      /* peak, final, layout, events, ooms: all equal */
    bool trusted;    /* the gate */
    bool order_by_age;
    uint64_t capacity, other; /* that were used */
    bool capacity_known;
    bool larger; /* the capacity given is smaller than what was held: only a what-if can be for it */
};
/* Runs the baseline; where the file does not tell the order of free blocks, both are tried and the better is
 * taken. `capacity` 0: not known; then from an oom in the trace (a lower bound), else endless. */
bool pl_replay_baseline(const struct pl_snap *s, const struct pl_snap_lives *lives,
                        const struct pl_alloc_conf *conf, int order, uint64_t capacity, uint64_t other,
                        struct pl_replay_fidelity *f, struct pl_replay_result *out, struct pl_err *err);
enum { PL_REPLAY_ORDER_GUESS = -1, PL_REPLAY_ORDER_ADDRESS = 0, PL_REPLAY_ORDER_AGE = 1 };
#endif
