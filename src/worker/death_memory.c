/* death_memory.c - what a death has to do with the memory of the machine. "Killed by the kernel" is said only
 * with a count that rose or a line of the kernel's log; "probably" for a SIGKILL from nobody we know with the
 * memory group nearly full; else what was looked at. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "worker/death.h"

enum { NEARLY_FULL_PCT = 95, SHELL_SIGKILL = 128 + SIGKILL };

static void gib(uint64_t bytes, char out[32]) {
    snprintf(out, 32, "%.2f GiB", (double)bytes / (double)((uint64_t)1 << 30));
}

static double last_pct(const struct pl_death_memory *m) {
    return m->limit == 0 ? 0 : (double)m->last_current * 100 / (double)m->limit;
}

/* " peak 7.99 GiB of limit 8.00 GiB", with what is known of it. */
static void peak(const struct pl_death_memory *m, char *out, size_t room) {
    char most[32], limit[32];
    gib(m->peak, most);
    gib(m->limit, limit);
    out[0] = '\0';
    if (m->machine)
        snprintf(out, room, ": its pod or the whole machine was short of it");
    else if (m->peak != 0 && m->limit != 0)
        snprintf(out, room, ": peak %s of limit %s", most, limit);
    else if (m->limit != 0)
        snprintf(out, room, ": the limit is %s", limit);
    else if (m->peak != 0)
        snprintf(out, room, ": peak %s, the group has no limit of its own", most);
}

static void killed_by_kernel(const struct pl_death *d, char *sentence, size_t room) {
    const struct pl_death_memory *m = d->memory;
    const char *starting = d->was_ready ? "" : " while it was starting";
    const char *remedy = m->machine || m->limit == 0 ? "give it more, or run fewer workers"
                                                     : "raise the memory limit, or run fewer workers";
    char most[96], who[96] = "", after[64] = "";
    int status = d->wait_status;
    peak(m, most, sizeof most);
    if (m->group)
        snprintf(who, sizeof who, "its whole group (%llu processes) was ", (unsigned long long)m->kills);
    else if (WIFEXITED(status) && WEXITSTATUS(status) != SHELL_SIGKILL)
        snprintf(who, sizeof who, "a child of it was ");
    if (WIFEXITED(status) && WEXITSTATUS(status) == SHELL_SIGKILL)
        snprintf(after, sizeof after, " (status 137 is a shell's word for it)");
    else if (WIFEXITED(status))
        snprintf(after, sizeof after, "; it then left with status %d", WEXITSTATUS(status));
    snprintf(sentence, room, "%skilled by the kernel%s, which had no memory left%s%s; %s", who, starting,
             most, after, remedy);
}

/* What was looked at, in the order of its weight. */
static void looked_at(const struct pl_death_memory *m, char *out, size_t room) {
    char sample[64] = "";
    if (m->last_current != 0 && m->limit != 0)
        snprintf(sample, sizeof sample, ", memory at %.0f %% of the limit", last_pct(m));
    else if (m->last_current != 0)
        snprintf(sample, sizeof sample, ", a memory group without a limit");
    snprintf(out, room, "looked at %s%s, the kernel's log%s, its output",
             !m->found  ? "a memory group that is gone or hidden"
             : !m->told ? "memory events that cannot be read"
                        : "memory events without a kill",
             sample, m->kernel_log ? "" : " (not readable)");
}

static void killed_by_whom(const struct pl_death *d, char *sentence, size_t room) {
    const struct pl_death_memory *m = d->memory;
    char looked[160];
    looked_at(m, looked, sizeof looked);
    if (last_pct(m) > NEARLY_FULL_PCT)
        snprintf(sentence, room,
                 "killed by SIGKILL, which Plimsoll did not send; probably by the kernel for want of memory: "
                 "%.0f %% of "
                 "the limit in the last sample",
                 last_pct(m));
    else
        snprintf(sentence, room, "killed by SIGKILL, which Plimsoll did not send, cause unknown: %s", looked);
}

bool pl_death_by_memory(const struct pl_death *d, char *sentence, size_t room, enum pl_cause *cause) {
    int status = d->wait_status;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (d->memory == NULL || (!killed && !WIFEXITED(status))) return false;
    if (d->memory->kills > 0) {
        *cause = PL_CAUSE_KILLED_BY_KERNEL_OOM;
        killed_by_kernel(d, sentence, room);
        return true;
    }
    if (!killed) return false;
    *cause = PL_CAUSE_KILLED;
    killed_by_whom(d, sentence, room);
    return true;
}

const char *pl_death_scope(const struct pl_death *d, enum pl_cause cause) {
    if (cause != PL_CAUSE_KILLED_BY_KERNEL_OOM || d->memory == NULL) return NULL;
    return d->memory->group ? "container" : "worker";
}
