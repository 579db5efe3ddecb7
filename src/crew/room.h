/* crew/room.h - how much of a device is there for requests: its size, less what others have, less what our
 * own workers hold whether they serve or not. DESIGN section 5.
 *
 * A worker's fixed cost is what it had on the device when no request ran: its live tensors, and what it holds
 * outside of PyTorch's allocator (context, workspaces), the most that was seen of that. Where there is always
 * one that runs it is what is there less what they are charged, if that is more: the least of some looks, and
 * what it has grown since by its rate. Blocks that PyTorch keeps free are none: the next request gets them.
 * Of one that drains or stops it is all it has, less what its requests are charged: what it keeps is nobody's
 * any more. Of one that is not READY yet it is what it has now, or what its service needed at most while it
 * loaded, so that room for a successor is taken before it is spawned.
 */
#ifndef PL_CREW_ROOM_H
#define PL_CREW_ROOM_H
#include "base/watch_page.h"
#include "crew/crew.h"
#include "ledger/crowd.h"

struct pl_room {
    uint64_t total, foreign, fixed; /* bytes; fixed: all workers of the instance, and what a dead one left */
};
/* Of the device where least is left, of those named (indexes or UUIDs, as in CUDA_VISIBLE_DEVICES). False:
 * not known. */
bool pl_look_room(const struct pl_crew *c, const char *devices, struct pl_room *out);
/* Where a worker has memory, as names for pl_look_room: by its page, else by the driver. "": nowhere. */
enum { PL_ROOM_NAMES = 64 };
void pl_look_places(struct pl_worker *w, char out[PL_ROOM_NAMES]);
/* What an ordinary request of the service is charged of what is measured here; 0: not known, or bytes hold
 * nobody back. Told again whenever it may have changed. */
void pl_room_needs(struct pl_service *s, uint64_t request_bytes);
/* A device that it uses is lost, or held by a worker that does not end. */
bool pl_look_out_of_service(const struct pl_worker *w);

/* inside the crew */
enum { PL_ROOM_LOOKS = 4 };
struct pl_worker_room {
    uint64_t base[PL_WATCH_GPUS];    /* live tensors without a request; UINT64_MAX: not seen yet */
    uint64_t outside[PL_WATCH_GPUS]; /* of PyTorch's allocator, the most */
    uint64_t least[PL_WATCH_GPUS][PL_ROOM_LOOKS]; /* of base, as the latest looks beside requests had it */
    uint64_t least_ms[PL_WATCH_GPUS][PL_ROOM_LOOKS];
    uint64_t base_ms[PL_WATCH_GPUS];              /* base was all that was live, for the last time */
    uint64_t stuck[PL_WATCH_GPUS][PL_ROOM_LOOKS]; /* pl_look_device, the latest */
    uint64_t most[PL_WATCH_GPUS];                 /* before it was READY */
    bool measured;                                /* it is READY, and base holds */
    /* crowd.c */
    uint64_t fresh[PL_WATCH_GPUS];       /* base and outside once it had begun to serve; 0: not known */
    uint64_t fresh_stuck[PL_WATCH_GPUS]; /* in pieces, then */
    struct pl_rise rise[PL_WATCH_GPUS];
};
void pl_room_ready(struct pl_worker *w);    /* before anything is routed to it */
void pl_room_sampled(struct pl_crew *c);    /* the driver has been asked */
void pl_room_spawning(struct pl_worker *w); /* it is about to be started */
void pl_room_on(const struct pl_crew *c, uint32_t k,
                struct pl_room *out); /* its index in the crew's devices */
/* What it has there at rest, as it was last measured; 0: nothing, or it is not known. */
uint64_t pl_room_at_rest(const struct pl_worker *w, uint32_t k);
/* The same for now: what was measured beside requests is some looks old, and may have grown since. */
uint64_t pl_room_now(const struct pl_worker *w, uint32_t k);
/* Whether there is place for a new worker, a tenth more and an ordinary request, beside all that is there
 * now, on each device where the driver sees this one. *known false: nobody can tell. */
bool pl_room_beside(const struct pl_worker *w, bool *known);
/* Free between what is live, for some looks: a request finds room there in pieces only. */
uint64_t pl_room_in_pieces(const struct pl_worker *w, uint32_t k);
/* Somebody comes or goes there: what is measured is of no lasting value. */
bool pl_room_in_motion(const struct pl_crew *c, uint32_t k);
#endif
