/* sample/proc.h - the text of /proc/PID and of cgroup files, as numbers. Who reads the files is another's
 * business.
 *
 * Fields: Documentation/filesystems/proc.rst (status, stat) and admin-guide/cgroup-v2.rst,
 * cgroup-v1/memory.rst of the kernel. A value that is missing or no number is "not known", never 0: every
 * reader says which. Host memory of a process is RssAnon + VmSwap: what it needs and what no other can use;
 * file pages are the kernel's to take back, and VmRSS alone hides what was swapped out.
 */
#ifndef PL_SAMPLE_PROC_H
#define PL_SAMPLE_PROC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_PROC_UNKNOWN UINT64_MAX

/* /proc/PID/status, in bytes. */
struct pl_proc_memory {
    uint64_t anon, file, shmem, swap, peak_rss;
};
/* False: not even RssAnon is there (a kernel thread, a zombie, a damaged text). */
bool pl_proc_read_status(const char *text, size_t len, struct pl_proc_memory *out);

/* "Threads:" of the same text, and "Pss:" of /proc/PID/smaps_rollup in bytes. PL_PROC_UNKNOWN: not there. */
uint64_t pl_proc_read_threads(const char *text, size_t len);
uint64_t pl_proc_read_pss(const char *text, size_t len);

/* /proc/PID/stat. The name in the second field may hold blanks, brackets and whole fake fields. */
struct pl_proc_stat {
    char state;
    int64_t ppid, group;
    uint64_t start_ticks;
};
bool pl_proc_read_stat(const char *text, size_t len, struct pl_proc_stat *out);

/* memory.max or memory.limit_in_bytes: PL_PROC_UNKNOWN for "max", for the kernel's "no limit" of v1, and for
 * what is no number. */
uint64_t pl_proc_read_limit(const char *text, size_t len);
/* memory.current, memory.peak and their like: one number. PL_PROC_UNKNOWN: it is none. */
uint64_t pl_proc_read_count(const char *text, size_t len);
/* "NAME 123" in memory.stat, memory.events or memory.oom_control. PL_PROC_UNKNOWN: it is not there. */
uint64_t pl_proc_read_key(const char *text, size_t len, const char *name);
/* /proc/PID/cgroup: the path of the memory controller below its mount, copied. `v2` tells whose it is: with
 * both, v1 wins where its memory controller is mounted. False: none is named, or `room` is too small. */
bool pl_proc_read_cgroup(const char *text, size_t len, bool *v2, char *path, size_t room);
#endif
