/* watch/nvml.h - what the driver says of its GPUs, through libnvidia-ml.so.1 found by dlopen.
 *
 * Any call may fail, and any call may never return: before each, what is asked is written to the page. Names,
 * codes and struct sizes are NVML's (nvml.h of CUDA 12 and 13); functions that a driver lacks leave their
 * figure unknown. Older names are tried where a newer one is missing.
 *
 * Cards come in NVML's order; the instances of a card that is split (MIG) behind it. One thread owns it.
 */
#ifndef PL_WATCH_NVML_H
#define PL_WATCH_NVML_H
#include "watch/writer.h"

/* Which worker a process belongs to, 0: none. */
typedef uint32_t pl_nvml_leader(void *ctx, uint32_t pid);

struct pl_nvml;
struct pl_nvml *pl_nvml_create(struct pl_watch_beat *beat, pl_nvml_leader *leader,
                               void *ctx); /* NULL without memory */
/* One look at everything: `driver` and, of the first driver->gpus, `gpus` (room for PL_WATCH_GPUS). Looks for
 * a driver that was not there or did not start about every ten seconds. */
void pl_nvml_look(struct pl_nvml *n, uint64_t now_ms, struct pl_watch_driver *driver,
                  struct pl_watch_gpu *gpus);
#endif
