/* crew/host_read.h - reads /proc and the memory controller's files, and sums a process group. Blocking file
 * reads: never on the loop. The roots are parameters, so that a test can be the machine. */
#ifndef PL_CREW_HOST_READ_H
#define PL_CREW_HOST_READ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sample/proc.h"

struct pl_host_sum {
    uint64_t anon, swap, rss; /* bytes; what is not known counts nothing, `known` says if anything is */
    uint32_t processes;
    bool known;
};
/* Adds one process. A process that is gone, or that tells nothing, adds nothing. */
void pl_host_add(const char *proc_root, pid_t pid, struct pl_host_sum *sum);

/* Members of the groups that the leaders lead, found by one walk over /proc: pairs of index and process, the
 * leaders apart. Returns how many; at most `room`. */
struct pl_host_member {
    uint32_t leader; /* index in `leaders` */
    pid_t pid;
    uint64_t start_ticks; /* so that a number used again is not taken for it */
};
size_t pl_host_members(const char *proc_root, const pid_t *leaders, size_t count, struct pl_host_member *out,
                       size_t room);
/* Is it still the same process? */
bool pl_host_same(const char *proc_root, const struct pl_host_member *m);

/* When it started, in ticks since the machine did; 0: there is none. */
uint64_t pl_host_start_ticks(const char *proc_root, pid_t pid);
/* The name of its memory group; "" if it has none. */
void pl_host_group_path(const char *proc_root, const char *pid, char *out, size_t room);

/* The smallest limit on the way from the process's memory group up to the root. 0: there is none, or it
 * cannot be read. */
uint64_t pl_host_limit(const char *proc_root, const char *cgroup_root, const char *pid);

/* What the process's own memory group says of itself. A figure that is not known is PL_PROC_UNKNOWN. */
struct pl_host_group {
    bool found; /* the group's files are there; false: gone, or hidden from us */
    bool told;  /* its events could be read, and say how many processes were killed */
    uint64_t current, peak, limit;
    struct pl_proc_events events, local; /* with its children; without them */
};
void pl_host_group(const char *proc_root, const char *cgroup_root, const char *pid,
                   struct pl_host_group *out);
#endif
