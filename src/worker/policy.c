#include "worker/policy.h"

enum { LIVED_MS = 10000, BOOT_LEAST_MS = 60000, BOOT_FIRST_MS = 600000, LEFT_LEAST_MS = 1000 };

uint64_t pl_backoff_ms(uint64_t initial_ms, uint64_t max_ms, uint32_t failed) {
    uint64_t ms = initial_ms;
    for (uint32_t n = 1; n < failed && ms < max_ms; n++) ms = ms > max_ms / 2 ? max_ms : ms * 2;
    return ms < max_ms ? ms : max_ms;
}

enum pl_after_death pl_after_death(bool was_ready, uint64_t lived_ready_ms, uint32_t failed_starts,
                                   uint32_t attempts) {
    if (was_ready && (failed_starts == 0 || lived_ready_ms >= LIVED_MS)) return PL_RESTART_NOW;
    return failed_starts >= attempts && !was_ready ? PL_GIVE_UP : PL_RESTART_LATER;
}

uint64_t pl_start_timeout_ms(uint64_t measured_boot_ms) {
    if (measured_boot_ms == 0) return BOOT_FIRST_MS;
    if (measured_boot_ms > UINT64_MAX / 3) return UINT64_MAX;
    return measured_boot_ms * 3 > BOOT_LEAST_MS ? measured_boot_ms * 3 : BOOT_LEAST_MS;
}

uint64_t pl_boot_left_ms(uint64_t measured_boot_ms, uint64_t age_ms) {
    if (measured_boot_ms == 0) return 0;
    uint64_t left = age_ms < measured_boot_ms ? measured_boot_ms - age_ms : (age_ms - measured_boot_ms) / 2;
    return left > LEFT_LEAST_MS ? left : LEFT_LEAST_MS;
}

uint64_t pl_boot_learn_ms(uint64_t measured_boot_ms, uint64_t this_boot_ms) {
    if (measured_boot_ms == 0) return this_boot_ms;
    if (this_boot_ms >= measured_boot_ms) return measured_boot_ms + (this_boot_ms - measured_boot_ms) / 4;
    return measured_boot_ms - (measured_boot_ms - this_boot_ms) / 4;
}
