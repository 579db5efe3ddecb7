/* sample/gpu.h - what follows from what watch has seen of one GPU: whose its memory is, whether it comes
 * back.
 *
 * A driver lists processes by numbers that mean little in a container: there the list is empty, or speaks of
 * others. It is believed when one of ours is in it, or when none of ours runs. Else what is not ours is what
 * was used before the first of ours was started (`base`).
 */
#ifndef PL_SAMPLE_GPU_H
#define PL_SAMPLE_GPU_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/watch_page.h"

/* Bytes of all processes of a worker (`leader`: its pid; 0: of everybody). PL_WATCH_UNKNOWN: not told. */
uint64_t pl_gpu_process_bytes(const struct pl_watch_gpu *g, uint32_t leader);
/* The list is complete, and its numbers are ours. */
bool pl_gpu_believes(const struct pl_watch_gpu *g, bool workers_run);
/* What others have, our own instance apart. `base`: used when none of ours ran, or PL_WATCH_UNKNOWN. */
uint64_t pl_gpu_foreign(const struct pl_watch_gpu *g, bool workers_run, uint64_t base);
/* Its clocks are lowered by heat or by the hardware's own protection: bits of nvmlClocksEventReasons 0x8
 * (hardware slowdown), 0x20 and 0x40 (thermal), 0x80 (power brake). A power cap (0x4) is how a busy card
 * runs. */
bool pl_gpu_throttled(uint64_t bits);
/* 256 MiB or a hundredth of the card, whichever is more: a change that is worth a word. */
uint64_t pl_gpu_notable(const struct pl_watch_gpu *g);

/* What a worker had on a GPU when it was last seen there. */
enum { PL_GPU_HOLD_PIDS = 8 };
struct pl_gpu_hold {
    uint64_t bytes; /* 0: nothing */
    uint64_t apart; /* used, and no process is listed for it */
    uint32_t pids[PL_GPU_HOLD_PIDS];
    uint32_t pid_count;
};
/* False: it has nothing there, or the driver does not tell. */
bool pl_gpu_hold_take(const struct pl_watch_gpu *g, uint32_t leader, struct pl_gpu_hold *out);
/* How much of it has not come back although the worker is gone. PL_WATCH_UNKNOWN: this sample does not tell.
 */
uint64_t pl_gpu_hold_left(const struct pl_gpu_hold *h, const struct pl_watch_gpu *g);
#endif
