#include "watch/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sample/proc.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 512, FILE_BYTES = 1024, GROUP_BYTES = 256, PARENTS = 32 };
_Static_assert(PL_WATCH_UNKNOWN == PL_PROC_UNKNOWN, "one word for what is not known");

static size_t read_text(const char *path, char text[TEXT_BYTES]) {
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, TEXT_BYTES) : -1;
    return n > 0 ? (size_t)n : 0;
}

/* --- processes */

static uint64_t known(uint64_t value) { return value != PL_PROC_UNKNOWN ? value : 0; }

bool pl_host_add(const char *proc_root, pid_t pid, struct pl_watch_worker *sum) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    struct pl_proc_memory m;
    snprintf(path, sizeof path, "%s/%d/status", proc_root, (int)pid);
    size_t n = read_text(path, text);
    if (!pl_proc_read_status(text, n, &m)) return false;
    sum->processes++;
    sum->anon += m.anon;
    sum->swap += known(m.swap);
    sum->rss += m.anon + known(m.file) + known(m.shmem);
    sum->threads += known(pl_proc_read_threads(text, n));
    return true;
}

void pl_host_dear(const char *proc_root, pid_t pid, uint64_t *pss, uint64_t *descriptors) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%d/smaps_rollup", proc_root, (int)pid);
    *pss = pl_proc_read_pss(text, read_text(path, text));
    *descriptors = PL_WATCH_UNKNOWN;
    snprintf(path, sizeof path, "%s/%d/fd", proc_root, (int)pid);
    DIR *d = opendir(path);
    if (d == NULL) return;
    *descriptors = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) *descriptors += e->d_name[0] != '.';
    closedir(d);
}

static bool read_stat(const char *proc_root, const char *pid, struct pl_proc_stat *out) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%.20s/stat", proc_root, pid);
    return pl_proc_read_stat(text, read_text(path, text), out);
}

static bool stat_of(const char *proc_root, pid_t pid, struct pl_proc_stat *out) {
    char name[24];
    snprintf(name, sizeof name, "%d", (int)pid);
    return read_stat(proc_root, name, out);
}

static bool is_process(const struct dirent *e) { return e->d_name[0] >= '1' && e->d_name[0] <= '9'; }

static size_t children_by_walk(const char *proc_root, pid_t parent, pid_t *out, size_t room) {
    size_t found = 0;
    DIR *d = opendir(proc_root);
    if (d == NULL) return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL && found < room;) {
        struct pl_proc_stat s;
        if (is_process(e) && read_stat(proc_root, e->d_name, &s) && s.ppid == parent)
            out[found++] = (pid_t)atoi(e->d_name);
    }
    closedir(d);
    return found;
}

size_t pl_host_children(const char *proc_root, pid_t parent, pid_t *out, size_t room) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    size_t found = 0;
    snprintf(path, sizeof path, "%s/%d/task/%d/children", proc_root, (int)parent, (int)parent);
    if (access(path, R_OK) != 0) return children_by_walk(proc_root, parent, out, room);
    size_t n = read_text(path, text);
    for (size_t at = 0; at < n && found < room;) {
        pid_t pid = 0;
        size_t digits = 0;
        for (; at < n && text[at] >= '0' && text[at] <= '9' && digits < 9; at++, digits++)
            pid = pid * 10 + (text[at] - '0');
        if (digits > 0 && at < n && text[at] == ' ') out[found++] = pid; /* a number cut off is none */
        at++;
    }
    return found;
}

size_t pl_host_members(const char *proc_root, const pid_t *leaders, size_t count, struct pl_host_member *out,
                       size_t room) {
    size_t found = 0;
    DIR *d = opendir(proc_root);
    if (d == NULL) return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL && found < room;) {
        struct pl_proc_stat s;
        if (!is_process(e) || !read_stat(proc_root, e->d_name, &s)) continue;
        pid_t pid = (pid_t)atoi(e->d_name);
        for (size_t i = 0; i < count && found < room; i++)
            if (s.group == leaders[i] && pid != leaders[i])
                out[found++] = (struct pl_host_member){ .leader = (uint32_t)i,
                                                        .pid = pid,
                                                        .start_ticks = s.start_ticks };
    }
    closedir(d);
    return found;
}

bool pl_host_same(const char *proc_root, const struct pl_host_member *m) {
    return pl_host_start(proc_root, m->pid) == m->start_ticks;
}

uint64_t pl_host_start(const char *proc_root, pid_t pid) {
    struct pl_proc_stat s;
    return stat_of(proc_root, pid, &s) ? s.start_ticks : 0;
}

static bool is_in(const pid_t *leaders, size_t count, int64_t pid) {
    for (size_t i = 0; i < count; i++)
        if (leaders[i] == pid) return true;
    return false;
}

pid_t pl_host_leader(const char *proc_root, pid_t pid, const pid_t *leaders, size_t count) {
    for (int i = 0; i < PARENTS && pid > 1; i++) {
        struct pl_proc_stat s;
        if (is_in(leaders, count, pid)) return pid;
        if (!stat_of(proc_root, pid, &s)) return 0;
        if (is_in(leaders, count, s.group)) return (pid_t)s.group;
        pid = (pid_t)s.ppid;
    }
    return 0;
}

/* --- the memory group */

struct group {
    const char *root;
    char path[GROUP_BYTES];
    bool v2;
};

static bool find_group(const struct pl_host_roots *at, const char *pid, struct group *g) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%.20s/cgroup", at->proc, pid);
    g->root = at->cgroup;
    return pl_proc_read_cgroup(text, read_text(path, text), &g->v2, g->path, sizeof g->path);
}

static size_t read_file(const struct group *g, const char *name, char text[TEXT_BYTES]) {
    char file[FILE_BYTES];
    const char *below = g->v2 ? "" : "/memory";
    snprintf(file, sizeof file, "%s%s%s/%s", g->root, below, strcmp(g->path, "/") == 0 ? "" : g->path, name);
    return read_text(file, text);
}

/* In a container the group's own path may not be visible, and what is mounted is the group itself: then up.
 */
static bool to_what_is_visible(struct group *g) {
    char text[TEXT_BYTES];
    for (;;) {
        if (read_file(g, g->v2 ? "memory.current" : "memory.usage_in_bytes", text) > 0) return true;
        char *slash = strrchr(g->path, '/');
        if (slash == NULL || strcmp(g->path, "/") == 0) return false;
        slash[slash == g->path ? 1 : 0] = '\0';
    }
}

static uint64_t limit_of(const struct group *g) {
    char text[TEXT_BYTES];
    return pl_proc_read_limit(text, read_file(g, g->v2 ? "memory.max" : "memory.limit_in_bytes", text));
}

static uint64_t count_of(const struct group *g, const char *v2_name, const char *v1_name) {
    char text[TEXT_BYTES];
    return pl_proc_read_count(text, read_file(g, g->v2 ? v2_name : v1_name, text));
}

/* The smallest limit on the way up to the root. */
static uint64_t least_limit(const struct group *own) {
    struct group g = *own;
    uint64_t least = PL_PROC_UNKNOWN;
    for (;;) {
        uint64_t limit = limit_of(&g);
        if (limit < least) least = limit;
        char *slash = strrchr(g.path, '/');
        if (slash == NULL || strcmp(g.path, "/") == 0) return least;
        slash[slash == g.path ? 1 : 0] = '\0';
    }
}

/* v1 counts the group without its children under the plain names. */
static void read_parts(const struct group *g, struct pl_watch_host *out) {
    char text[TEXT_BYTES];
    size_t n = read_file(g, "memory.stat", text);
    out->anon = pl_proc_read_key(text, n, g->v2 ? "anon" : "total_rss");
    out->file = pl_proc_read_key(text, n, g->v2 ? "file" : "total_cache");
    out->shmem = pl_proc_read_key(text, n, g->v2 ? "shmem" : "total_shmem");
    out->kernel = g->v2 ? pl_proc_read_key(text, n, "kernel") : count_of(g, "", "memory.kmem.usage_in_bytes");
}

static void read_events(const struct group *g, struct pl_watch_host *out) {
    char text[TEXT_BYTES];
    size_t n = read_file(g, g->v2 ? "memory.events" : "memory.oom_control", text);
    out->events_oom_kill = pl_proc_read_key(text, n, "oom_kill");
    out->events_max = g->v2 ? pl_proc_read_key(text, n, "max") : count_of(g, "", "memory.failcnt");
    if (!g->v2) return;
    out->events_oom = pl_proc_read_key(text, n, "oom");
    out->events_oom_group_kill = pl_proc_read_key(text, n, "oom_group_kill");
}

void pl_host_group(const struct pl_host_roots *at, const char *pid, struct pl_watch_host *out) {
    struct group g;
    out->cgroup = 0;
    out->current = out->max = out->peak = out->limit = PL_WATCH_UNKNOWN;
    out->anon = out->shmem = out->kernel = out->file = PL_WATCH_UNKNOWN;
    out->events_max = out->events_oom = out->events_oom_kill = out->events_oom_group_kill = PL_WATCH_UNKNOWN;
    if (!find_group(at, pid, &g)) return;
    out->limit = least_limit(&g);
    if (!to_what_is_visible(&g)) return;
    out->cgroup = g.v2 ? 2 : 1;
    out->current = count_of(&g, "memory.current", "memory.usage_in_bytes");
    out->peak = count_of(&g, "memory.peak", "memory.max_usage_in_bytes");
    out->max = limit_of(&g);
    read_parts(&g, out);
    read_events(&g, out);
}

bool pl_host_kills(const struct pl_host_roots *at, const char *pid, uint64_t *kills, uint64_t *whole) {
    struct group g;
    struct pl_watch_host h = { .events_oom_kill = PL_WATCH_UNKNOWN,
                               .events_oom_group_kill = PL_WATCH_UNKNOWN };
    if (!find_group(at, pid, &g) || !to_what_is_visible(&g)) return false;
    read_events(&g, &h);
    *kills = h.events_oom_kill;
    *whole = h.events_oom_group_kill != PL_WATCH_UNKNOWN ? h.events_oom_group_kill : 0;
    return h.events_oom_kill != PL_WATCH_UNKNOWN;
}
