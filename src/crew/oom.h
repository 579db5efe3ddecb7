/* crew/oom.h - which deaths the kernel has caused for want of memory.
 *
 * The kernel counts its kills for each memory group and names nobody, and all workers live in main's group:
 * so a kill is a claim that the death it fits takes. It fits a SIGKILL that we did not send, or an end by
 * itself (its child was killed) within a minute. What one death has taken explains no other.
 *
 * Sources: memory.events of cgroup v2, memory.oom_control of v1 (crew/host_read.h), /dev/kmsg where it may be
 * read. Lines there name processes as the first PID namespace does; in another one they are not looked at.
 */
#ifndef PL_CREW_OOM_H
#define PL_CREW_OOM_H
#include "crew/host_read.h"

struct pl_crew;
struct pl_worker;
struct pl_death_memory;

/* What has been counted, and what of it nobody has taken. */
struct pl_oom {
    struct pl_host_group last; /* newest reading */
    uint64_t unclaimed, risen_ms;
    bool group_killed; /* the last rise was of a whole group */
    bool machine;      /* ... and for a limit above the group: its pod's, or the machine's */
    uint64_t pressure_told_ms;
    int kernel_log; /* /dev/kmsg, behind its last line of then; -1: not readable */
};

/* Before the first worker is adopted: from here on kills are counted. Reads a few small files. */
void pl_oom_start(struct pl_crew *c);
/* A reading that is newer than the last, from whoever has taken one: tells host.oom_kill and host.pressure.
 */
void pl_oom_seen(struct pl_crew *c, const struct pl_host_group *now_group, uint64_t now);
/* It has died: what is known of memory, read now. Borrowed by nobody. */
void pl_oom_at_death(struct pl_worker *w, struct pl_death_memory *out);
/* The death was explained by a kill: it is taken. */
void pl_oom_claim(struct pl_crew *c, const struct pl_death_memory *m);

/* The account alone, pure. */
uint64_t pl_oom_count(struct pl_oom *o, const struct pl_host_group *seen, uint64_t now); /* new kills */
uint64_t pl_oom_open(const struct pl_oom *o, uint64_t now, uint64_t born_ms); /* that a death may take */
#endif
