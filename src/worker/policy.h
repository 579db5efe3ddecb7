/* worker/policy.h - small pure rules about starts, stops and replacements. */
#ifndef PL_WORKER_POLICY_H
#define PL_WORKER_POLICY_H
#include <stdbool.h>
#include <stdint.h>

/* Pause before the next try after the `failed`-th failed start in a row (1, 2, ...): initial * 2^(n-1), at
 * most max. */
uint64_t pl_backoff_ms(uint64_t initial_ms, uint64_t max_ms, uint32_t failed);

/* What a death means for the slot. After READY it restarts at once, unless failed starts came before and it
 * did not live for 10 s: that is still the same bad luck. A failed start waits. `failed_starts` in a row,
 * this one included; at `attempts` of them the slot is FAILED. */
enum pl_after_death { PL_RESTART_NOW, PL_RESTART_LATER, PL_GIVE_UP };
enum pl_after_death pl_after_death(bool was_ready, uint64_t lived_ready_ms, uint32_t failed_starts,
                                   uint32_t attempts);

/* start_timeout auto: measured boot * 3, at least 60 s; first boot 10 min. */
uint64_t pl_start_timeout_ms(uint64_t measured_boot_ms);
/* Remaining boot as a client should be told: expected minus age, at least 1 s; half of what is over when it
 * is late; 0 when no boot was measured yet. */
uint64_t pl_boot_left_ms(uint64_t measured_boot_ms, uint64_t age_ms);
/* Running average of boots, newest weighs 1/4. 0 = none yet. */
uint64_t pl_boot_learn_ms(uint64_t measured_boot_ms, uint64_t this_boot_ms);
#endif
