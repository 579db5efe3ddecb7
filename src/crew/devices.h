/* crew/devices.h - inside the crew: the watch process, what its page says, and what is said of it.
 *
 *   watcher.c   its life: started, adopted, started again, told what to do
 *   devices.c   GPUs: events, figures, memory that must come back
 *   host.c      the memory group, host memory of the workers
 */
#ifndef PL_CREW_DEVICES_H
#define PL_CREW_DEVICES_H
#include "crew/more.h"
#include "sample/gpu.h"
#include "sample/watch.h"

/* One GPU as long as main lives, found by its UUID. */
struct pl_device {
    struct pl_watch_gpu now; /* last sample; at_ms 0: none */
    bool told, lost;
    bool out;         /* of service: see pl_devices_tick */
    uint64_t base;    /* used when none of ours ran; PL_WATCH_UNKNOWN */
    uint64_t foreign; /* as told last; PL_WATCH_UNKNOWN: never was */
    uint64_t foreign_now;
    bool neighbour_seen; /* the last sample had a notable change of it */
    uint64_t kept;       /* bytes of a worker that is gone and that did not come back; 0: none */
    struct pl_gpu_hold kept_of;
    struct {
        uint32_t xid, count;
    } xids[PL_WATCH_XIDS]; /* of this watch, as counted last */
    unsigned crowded;      /* looks in a row that found no room for one more request */
    bool crowd_told;       /* and that no replacement would help */
    uint32_t xid;          /* the last one told, */
    uint64_t xid_ms;       /* and when */
};

struct pl_devices {
    struct pl_crew *crew;
    /* the process */
    uint64_t generation; /* 0: none */
    pid_t pid;
    struct pl_watch_page page;
    size_t page_bytes;
    struct pl_ring ring;
    uint64_t period_ms, started_ms, restart_at_ms;
    uint32_t failures;
    bool spawning, ending, outdated;
    /* what it says */
    struct pl_watch_driver driver; /* at_ms 0: nothing yet */
    struct pl_device device[PL_WATCH_GPUS];
    uint32_t count;           /* devices known */
    uint64_t device_ms;       /* of the last sample read */
    bool silent, fresh_watch; /* fresh: what it counts began with it */
    uint64_t silent_from_ms;
};

/* watcher.c */
void pl_watcher_adopt(struct pl_crew *c, const struct pl_wire_item *item, int page_fd,
                      int ring_fd); /* takes both */
bool pl_watcher_is(const struct pl_wire_item *item);
void pl_watcher_start(struct pl_crew *c);
void pl_watcher_tick(struct pl_crew *c, uint64_t now);
bool pl_watcher_news(struct pl_crew *c, const struct pl_wire_message *m); /* true: it was about watch */
void pl_watcher_look_now(struct pl_crew *c);
void pl_watcher_reconfigured(struct pl_crew *c);

/* devices.c */
void pl_devices_tick(struct pl_crew *c, uint64_t now);         /* often: reads a new sample, judges silence */
void pl_devices_meters(struct pl_crew *c, uint64_t now);       /* once a second */
void pl_devices_silent(struct pl_crew *c, const char *reason); /* said once, until it is back */
void pl_devices_renewed(struct pl_crew *c);                    /* another watch writes the page */
/* A worker that has exited: is what it had on GPUs back? True too when nobody can tell. */
bool pl_devices_returned(struct pl_worker *w, uint64_t now);
void pl_devices_exited(struct pl_worker *w);
/* An Xid of the last minute on a GPU that it used; 0: none. */
uint32_t pl_devices_xid(const struct pl_worker *w, uint64_t now);
#endif
