#include "crew/host_read.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sample/proc.h"

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
