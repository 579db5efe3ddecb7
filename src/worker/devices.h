/* worker/devices.h - which GPUs the worker in a slot gets.
 *
 * `gpus` names the pool (all that are seen, the first N, or a list), CUDA_VISIBLE_DEVICES of main bounds it,
 * `gpus_per_worker` cuts it into groups: slot 1 gets the first group, slot 2 the next, and when there are
 * more workers than groups they begin again, so that workers may share. What is left over after the last
 * whole group stays unused. Names are passed on as they are: UUIDs where somebody could tell them, else
 * indexes.
 */
#ifndef PL_WORKER_DEVICES_H
#define PL_WORKER_DEVICES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

enum { PL_DEVICES_MOST = 64, PL_DEVICES_TEXT = 4096 };

/* Sets `out` to the worker's CUDA_VISIBLE_DEVICES; "" = none at all. *told false: nothing is known and
 * nothing was asked for, so the variable stays as inherited. `visible` is that of main, or NULL when it is
 * not set. `slot` counts from 1. False and err: `gpus` names what may not be used, or asks for more than
 * there is. */
bool pl_devices_of(const struct pl_service_config *s, const char *visible, uint32_t slot,
                   char out[PL_DEVICES_TEXT], bool *told, struct pl_err *err);

/* Reads what `nvidia-smi -L` prints and writes the devices as `gpus` may name them, in CUDA's order by PCI
 * bus: UUIDs of GPUs, or of their MIG instances where there are any. Returns how many; foreign text, bounded.
 */
size_t pl_devices_listed(const char *text, size_t len, char out[PL_DEVICES_TEXT]);
/* `gpus` of a service, said by index, in UUIDs: `listed` is what pl_devices_listed wrote. False: nothing is
 * to change: there are UUIDs already, an index is not there, the list is empty, or `visible` speaks in
 * indexes. */
bool pl_devices_by_uuid(const struct pl_service_config *s, const char *listed, const char *visible,
                        char out[PL_DEVICES_TEXT]);
#endif
