#include "crew/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crew/more.h"

enum { CLAIM_MS = 60000, PRESSURE_EVERY_MS = 60000, PRESSURE_PCT = 95, LINES_A_LOOK = 256 };

static const char proc_root[] = "/proc", cgroup_root[] = "/sys/fs/cgroup";

static uint64_t rise(uint64_t from, uint64_t to) {
    bool known = from != PL_PROC_UNKNOWN && to != PL_PROC_UNKNOWN;
    return known && to > from ? to - from : 0;
}

uint64_t pl_oom_count(struct pl_oom *o, const struct pl_host_group *seen, uint64_t now) {
    uint64_t kills = rise(o->last.events.oom_kill, seen->events.oom_kill);
    if (kills > 0) {
        o->unclaimed += kills;
        o->risen_ms = now;
        o->group_killed = rise(o->last.events.oom_group_kill, seen->events.oom_group_kill) > 0;
        /* v2 counts `oom` for its own limit and those below: a kill without one came from above */
        bool counted = seen->events.oom != PL_PROC_UNKNOWN;
        o->machine =
            counted ? rise(o->last.events.oom, seen->events.oom) == 0 : seen->limit == PL_PROC_UNKNOWN;
    }
    struct pl_host_group last =
        *seen; /* counts only go up: a reading that was overtaken, or failed, moves none */
    if (!seen->told || rise(seen->events.oom_kill, o->last.events.oom_kill) > 0) last.events = o->last.events;
    o->last = last;
    return kills;
}

uint64_t pl_oom_open(const struct pl_oom *o, uint64_t now, uint64_t born_ms) {
    bool fits = o->unclaimed > 0 && o->risen_ms >= born_ms && now - o->risen_ms <= CLAIM_MS;
    return fits ? o->unclaimed : 0;
}

/* In the first PID namespace its root has this inode (include/linux/proc_ns.h of the kernel). */
static bool first_namespace(void) {
    enum { PROC_PID_INIT_INO = (int)0xEFFFFFFC };
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == (ino_t)(unsigned)PROC_PID_INIT_INO;
}

void pl_oom_start(struct pl_crew *c) {
    struct pl_oom *o = &c->oom;
    *o = (struct pl_oom){ .kernel_log = -1 };
    pl_host_group(proc_root, cgroup_root, "self", &o->last);
    if (first_namespace()) o->kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (o->kernel_log != -1) lseek(o->kernel_log, 0, SEEK_END);
}

static void tell_pressure(struct pl_crew *c, const struct pl_host_group *g, uint64_t reclaims, uint64_t now) {
    struct pl_oom *o = &c->oom;
    bool full = g->current != PL_PROC_UNKNOWN && g->limit != PL_PROC_UNKNOWN &&
                (double)g->current * 100 > (double)g->limit * PRESSURE_PCT;
    if (reclaims == 0 || !full || (o->pressure_told_ms != 0 && now - o->pressure_told_ms < PRESSURE_EVERY_MS))
        return;
    o->pressure_told_ms = now;
    pl_log(c->app->log, PL_WARN, "host.pressure", F_INT("current_bytes", g->current),
           F_INT("max_bytes", g->limit));
}

void pl_oom_seen(struct pl_crew *c, const struct pl_host_group *now_group, uint64_t now) {
    uint64_t reclaims = rise(c->oom.last.events.max, now_group->events.max);
    uint64_t kills = pl_oom_count(&c->oom, now_group, now);
    if (kills > 0)
        pl_log(c->app->log, PL_ERROR, "host.oom_kill", F_INT("count", kills),
               F_STR("victim", c->oom.group_killed ? "group" : NULL));
    else
        tell_pressure(c, now_group, reclaims, now);
}

/* New lines of the kernel's log; true if one says that this process was killed. Each read is one line. */
static bool kernel_says(int fd, pid_t pid, bool *machine) {
    char line[2048];
    bool found = false;
    for (int i = 0; fd != -1 && i < LINES_A_LOOK; i++) {
        ssize_t n = read(fd, line, sizeof line);
        int64_t victim;
        bool whole;
        if (n == 0 || (n == -1 && errno != EPIPE && errno != EINVAL && errno != EINTR))
            break; /* no more for now */
        if (n < 0 || !pl_proc_kernel_kill(line, (size_t)n, &victim, &whole) || victim != pid) continue;
        found = true;
        *machine = whole;
    }
    return found;
}

static uint64_t or_0(uint64_t value) { return value != PL_PROC_UNKNOWN ? value : 0; }

void pl_oom_at_death(struct pl_worker *w, struct pl_death_memory *out) {
    struct pl_crew *c = w->service->crew;
    struct pl_oom *o = &c->oom;
    uint64_t now = pl_crew_now(c), last_current = or_0(o->last.current), last_limit = or_0(o->last.limit);
    struct pl_host_group g;
    bool machine = false;
    pl_host_group(proc_root, cgroup_root, "self", &g);
    pl_oom_seen(c, &g, now);
    bool named = kernel_says(o->kernel_log, w->pid, &machine);
    *out = (struct pl_death_memory){ .found = g.found,
                                     .told = g.told,
                                     .kernel_log = o->kernel_log != -1,
                                     .kills = pl_oom_open(o, now, w->more->time.spawned),
                                     .peak = or_0(g.peak),
                                     .limit = last_limit != 0 ? last_limit : or_0(g.limit),
                                     .last_current = last_current };
    out->group = out->kills > 0 && o->group_killed;
    out->machine = named ? machine : out->kills > 0 && o->machine;
    if (named && out->kills == 0) out->kills = 1;
}

void pl_oom_claim(struct pl_crew *c, const struct pl_death_memory *m) {
    struct pl_oom *o = &c->oom;
    uint64_t taken = m->group ? 0 : 1; /* one kill of a group explains every death in it */
    o->unclaimed -= taken < o->unclaimed ? taken : o->unclaimed;
}
