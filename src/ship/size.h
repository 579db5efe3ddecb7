/* ship/size.h - the numbers of a manifest, from what was measured or, where nothing was, from guesses that
 * say so. Formulas: docs/manifest.md. Bytes and seconds; whole where Kubernetes wants whole numbers.
 */
#ifndef PL_SHIP_SIZE_H
#define PL_SHIP_SIZE_H
#include <stdbool.h>
#include <stdint.h>

enum pl_front { PL_FRONT_SERVICE, PL_FRONT_LOADBALANCER, PL_FRONT_PICKER };
enum pl_scaler { PL_SCALER_NONE, PL_SCALER_HPA, PL_SCALER_KEDA };
enum { PL_SIZE_BOOTS = 32 };

/* What a record or a file of measurements says; a field that is 0 is not known. */
struct pl_measured {
    double boots_s[PL_SIZE_BOOTS];
    uint32_t boot_count;
    bool cold_boot; /* one of them was with a cold page cache */
    double pull_s, schedule_s;
    double longest_request_s, queue_max_wait_s; /* of the configuration when not measured */
    double worker_stop_s;
    uint64_t weights_bytes;
    uint64_t main_bytes, worker_steady_bytes, worker_load_peak_bytes, shm_peak_bytes;
    bool shm_known; /* 0 bytes were measured, not left out */
    double cpu_p95; /* cores, while serving */
    char gpu_name[64];
    char from[160]; /* what says so, for comments; "" when nothing was measured */
};
/* What is wanted, from configuration and flags. */
struct pl_size_ask {
    uint32_t replicas, gpus, workers;
    bool spare_gpu, overlap, keep_weights_cached, guaranteed;
    enum pl_front front;
};
struct pl_size {
    double boot_s, margin;
    uint32_t start_budget_s, start_period_s, start_failures, start_timeout_s;
    uint32_t pre_stop_s, drain_s, worker_stop_s, grace_s;
    uint64_t peak_bytes; /* not reclaimable */
    uint32_t memory_mib, shm_mib, cpu_millis;
    uint32_t deadline_s, scale_up_s, scale_down_s, scale_down_period_s;
    bool boot_known, host_known, stop_known, cpu_known, shm_guessed;
};
enum pl_strategy { PL_STRATEGY_RECREATE, PL_STRATEGY_SURGE, PL_STRATEGY_ONE_DOWN };

void pl_ship_size(const struct pl_measured *m, const struct pl_size_ask *ask, struct pl_size *out);
enum pl_strategy pl_size_strategy(const struct pl_size_ask *ask);
uint64_t pl_size_peak(const struct pl_measured *m, const struct pl_size_ask *ask);
#endif
