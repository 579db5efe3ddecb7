/* worker/host_room.h - host memory for a start: may it begin now, and what limit would be enough.
 *
 * Bytes that cannot be taken back (anonymous memory and swap); page cache is not counted, because the kernel
 * gives it up. A peak is what one start has needed at most, from its spawn to READY; it is known from the
 * first start on.
 */
#ifndef PL_WORKER_HOST_ROOM_H
#define PL_WORKER_HOST_ROOM_H
#include <stdbool.h>
#include <stdint.h>

struct pl_start_room {
    uint64_t limit;   /* of the memory group; 0: none, or not known */
    uint64_t used;    /* of it, by everything, what starts under way have taken included */
    uint64_t coming;  /* what starts under way will still take */
    uint64_t peak;    /* of the start in question; 0: not known */
    uint32_t running; /* starts under way */
};

/* LATER: together with what is under way it would be too much; alone it may. NEVER: not even alone. */
enum pl_start_verdict { PL_START_NOW, PL_START_LATER, PL_START_NEVER };
enum pl_start_verdict pl_start_judge(const struct pl_start_room *r);

/* A limit under which all of it runs, with the dearest start beside it, a tenth to spare, in whole 64 MiB:
 * `base` is what the instance takes without workers, `settled` all workers when they serve, `peak` that
 * start. 0: nothing is known. */
uint64_t pl_start_limit(uint64_t base, uint64_t settled, uint64_t peak);
#endif
