#include "crew/host_read.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 512 };

static size_t read_text(const char *path, char text[TEXT_BYTES]) {
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, TEXT_BYTES) : -1;
    return n > 0 ? (size_t)n : 0;
}

void pl_host_add(const char *proc_root, pid_t pid, struct pl_host_sum *sum) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    struct pl_proc_memory m;
    snprintf(path, sizeof path, "%s/%d/status", proc_root, (int)pid);
    if (!pl_proc_read_status(text, read_text(path, text), &m)) return;
    sum->known = true;
    sum->processes++;
    sum->anon += m.anon;
    sum->rss += m.anon;
    if (m.swap != PL_PROC_UNKNOWN) sum->swap += m.swap;
    if (m.file != PL_PROC_UNKNOWN) sum->rss += m.file;
    if (m.shmem != PL_PROC_UNKNOWN) sum->rss += m.shmem;
}

static bool read_stat(const char *proc_root, const char *pid, struct pl_proc_stat *out) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%.20s/stat", proc_root, pid);
    return pl_proc_read_stat(text, read_text(path, text), out);
}

size_t pl_host_members(const char *proc_root, const pid_t *leaders, size_t count, struct pl_host_member *out,
                       size_t room) {
    size_t found = 0;
    DIR *d = opendir(proc_root);
    if (d == NULL) return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL && found < room;) {
        struct pl_proc_stat s;
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !read_stat(proc_root, e->d_name, &s)) continue;
        pid_t pid = (pid_t)atoi(e->d_name);
        for (size_t i = 0; i < count; i++)
            if (s.group == leaders[i] && pid != leaders[i])
                out[found++] = (struct pl_host_member){ .leader = (uint32_t)i,
                                                        .pid = pid,
                                                        .start_ticks = s.start_ticks };
    }
    closedir(d);
    return found;
}

bool pl_host_same(const char *proc_root, const struct pl_host_member *m) {
    char pid[24];
    struct pl_proc_stat s;
    snprintf(pid, sizeof pid, "%d", (int)m->pid);
    return read_stat(proc_root, pid, &s) && s.start_ticks == m->start_ticks;
}

uint64_t pl_host_start_ticks(const char *proc_root, pid_t pid) {
    char text[24];
    struct pl_proc_stat s;
    snprintf(text, sizeof text, "%d", (int)pid);
    return read_stat(proc_root, text, &s) ? s.start_ticks : 0;
}

void pl_host_group_path(const char *proc_root, const char *pid, char *out, size_t room) {
    char path[PATH_BYTES], text[TEXT_BYTES];
    bool v2;
    snprintf(path, sizeof path, "%s/%.20s/cgroup", proc_root, pid);
    if (!pl_proc_read_cgroup(text, read_text(path, text), &v2, out, room)) out[0] = '\0';
}

uint64_t pl_host_limit(const char *proc_root, const char *cgroup_root, const char *pid) {
    char path[PATH_BYTES], group[256], file[1024], text[TEXT_BYTES];
    uint64_t least = PL_PROC_UNKNOWN;
    bool v2;
    snprintf(path, sizeof path, "%s/%.20s/cgroup", proc_root, pid);
    if (!pl_proc_read_cgroup(text, read_text(path, text), &v2, group, sizeof group)) return 0;
    for (;;) {
        /* In a container the group's own path may not be visible, and what is mounted is the group itself. */
        snprintf(file, sizeof file, v2 ? "%s%s/memory.max" : "%s/memory%s/memory.limit_in_bytes", cgroup_root,
                 strcmp(group, "/") == 0 ? "" : group);
        uint64_t limit = pl_proc_read_limit(text, read_text(file, text));
        if (limit < least) least = limit;
        char *slash = strrchr(group, '/');
        if (slash == NULL || strcmp(group, "/") == 0) break;
        slash[slash == group ? 1 : 0] = '\0';
    }
    return least != PL_PROC_UNKNOWN ? least : 0;
}

/* One file of the group. */
struct reading {
    char folder[512];
    char text[TEXT_BYTES];
    size_t len;
};

static bool read_file(struct reading *r, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    r->len = read_text(path, r->text);
    return r->len > 0;
}

static uint64_t read_number(struct reading *r, const char *name) {
    return read_file(r, name) ? pl_proc_read_limit(r->text, r->len) : PL_PROC_UNKNOWN;
}

static bool read_events(struct reading *r, const char *name, struct pl_proc_events *out) {
    *out = (struct pl_proc_events){ PL_PROC_UNKNOWN, PL_PROC_UNKNOWN, PL_PROC_UNKNOWN, PL_PROC_UNKNOWN };
    return read_file(r, name) && pl_proc_read_events(r->text, r->len, out);
}

/* Where the group's files are: below its own path, or, in a container that is shown its own group as the
 * root, there. */
static bool enter(struct reading *r, const char *cgroup_root, const char *group, bool v2) {
    const char *below[] = { strcmp(group, "/") == 0 ? "" : group, "" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(r->folder, sizeof r->folder, "%.200s%s%.256s", cgroup_root, v2 ? "" : "/memory", below[i]);
        if (read_file(r, v2 ? "memory.current" : "memory.usage_in_bytes")) return true;
    }
    return false;
}

void pl_host_group(const char *proc_root, const char *cgroup_root, const char *pid,
                   struct pl_host_group *out) {
    static const struct pl_proc_events unknown = { PL_PROC_UNKNOWN, PL_PROC_UNKNOWN, PL_PROC_UNKNOWN,
                                                   PL_PROC_UNKNOWN };
    char path[PATH_BYTES], group[256];
    struct reading r;
    bool v2;
    *out = (struct pl_host_group){ .current = PL_PROC_UNKNOWN,
                                   .peak = PL_PROC_UNKNOWN,
                                   .limit = PL_PROC_UNKNOWN };
    out->events = out->local = unknown;
    snprintf(path, sizeof path, "%s/%.20s/cgroup", proc_root, pid);
    if (!pl_proc_read_cgroup(r.text, read_text(path, r.text), &v2, group, sizeof group)) return;
    if (!enter(&r, cgroup_root, group, v2)) return;
    out->found = true;
    out->current = read_number(&r, v2 ? "memory.current" : "memory.usage_in_bytes");
    out->peak = read_number(&r, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
    uint64_t limit = pl_host_limit(proc_root, cgroup_root, pid);
    if (limit != 0) out->limit = limit;
    read_events(&r, v2 ? "memory.events" : "memory.oom_control", &out->events);
    if (v2)
        read_events(&r, "memory.events.local", &out->local);
    else
        out->events.max = read_number(&r, "memory.failcnt");
    out->told = out->events.oom_kill != PL_PROC_UNKNOWN;
}
