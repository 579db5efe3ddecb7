/* watch/host.h - reads /proc and the memory controller's files (v1 and v2), and sums a process group.
 * Blocking file reads: never on main's loop, but for pl_host_kills and for pl_host_add of our own three
 * processes. The roots are parameters, so that a test can be the machine.
 */
#ifndef PL_WATCH_HOST_H
#define PL_WATCH_HOST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/watch_page.h"

struct pl_host_roots {
    const char *proc, *cgroup; /* "/proc", "/sys/fs/cgroup" */
};

/* Adds one process to `sum`: memory and threads. What is not known counts nothing; a process that is gone, or
 * that tells nothing, adds nothing, and the answer is false. */
bool pl_host_add(const char *proc_root, pid_t pid, struct pl_watch_worker *sum);
/* The two figures that cost something, for one process: the kernel walks its page tables for the first, while
 * the process may not map memory. PL_WATCH_UNKNOWN where it does not tell. */
void pl_host_dear(const char *proc_root, pid_t pid, uint64_t *pss, uint64_t *descriptors);

/* Children of a process, by the kernel's list, else by a walk over /proc. At most `room`. */
size_t pl_host_children(const char *proc_root, pid_t parent, pid_t *out, size_t room);
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
uint64_t pl_host_start(const char *proc_root, pid_t pid); /* start_ticks; 0: it is gone */
/* Which of the leaders this process belongs to: by its group, else by its parents. 0: to none. */
pid_t pl_host_leader(const char *proc_root, pid_t pid, const pid_t *leaders, size_t count);

/* The memory group of a process: all of pl_watch_host but its time. What cannot be read is PL_WATCH_UNKNOWN.
 */
void pl_host_group(const struct pl_host_roots *at, const char *pid, struct pl_watch_host *out);
/* How many processes the kernel has killed in that group, and how often all of it. Two small files that touch
 * no disk: may be asked on a loop, once a death. False: not to be known. */
bool pl_host_kills(const struct pl_host_roots *at, const char *pid, uint64_t *kills, uint64_t *whole);
#endif
