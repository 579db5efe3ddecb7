/* hold.c - `plimsoll hold`: reads files into the page cache. One advice call (POSIX_FADV_WILLNEED, readahead)
 * brings in at most the device's read-ahead size and reports success for all of it; MADV_POPULATE_READ brings
 * in what it is asked for, for a tenth of the CPU of reading (measured: docs/starts.md). main's read-ahead
 * child is `hold --once`; a placeholder pod runs `hold FOLDER` to keep a node, an image and a model warm
 * (docs/manifest.md). Never more than half of what the memory limit leaves: the page cache is charged to
 * whoever reads first.
 */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/verbs.h"
#include "watch/host.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { THREADS = 4, FILES = 65536, PIECE = 8 << 20, HOT_PCT = 95 };

struct reading {
    char **paths;
    size_t count;
    atomic_size_t next;
    atomic_int_fast64_t room; /* bytes that may still be read */
    atomic_uint_fast64_t bytes;
    atomic_uint files, hot, failed;
    long page;
    atomic_bool by_read; /* the kernel has no MADV_POPULATE_READ (before 5.14) */
};

/* Pages of the mapping that are in memory already; costs no I/O. */
static size_t resident(const struct reading *r, void *at, size_t bytes) {
    static _Thread_local unsigned char pages[PIECE / 4096];
    size_t found = 0;
    if (mincore(at, bytes, pages) != 0) return 0;
    for (size_t i = 0; i < (bytes + (size_t)r->page - 1) / (size_t)r->page; i++) found += pages[i] & 1;
    return found;
}

static bool is_hot(const struct reading *r, char *at, size_t size) {
    size_t found = 0, all = (size + (size_t)r->page - 1) / (size_t)r->page;
    for (size_t off = 0; off < size; off += PIECE)
        found += resident(r, at + off, size - off < PIECE ? size - off : PIECE);
    return found * 100 >= all * HOT_PCT;
}

static bool read_piece(struct reading *r, int fd, char *at, size_t off, size_t bytes) {
    if (!atomic_load(&r->by_read)) {
        if (madvise(at + off, bytes, MADV_POPULATE_READ) == 0) return true;
        if (errno != EINVAL) return false;
        atomic_store(&r->by_read, true);
    }
    static _Thread_local char waste[1 << 20];
    for (size_t done = 0; done < bytes;) {
        size_t most = bytes - done < sizeof waste ? bytes - done : sizeof waste;
        ssize_t n = pread(fd, waste, most, (off_t)(off + done));
        if (n <= 0) return n == 0;
        done += (size_t)n;
    }
    return true;
}

static bool read_file(struct reading *r, const char *path) {
    struct stat st;
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd == -1 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    size_t size = (size_t)st.st_size;
    if (size == 0) return true;
    char *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    bool good = true;
    if (is_hot(r, at, size)) {
        atomic_fetch_add(&r->hot, 1);
    } else {
        for (size_t off = 0; good && off < size; off += PIECE) {
            size_t bytes = size - off < PIECE ? size - off : PIECE;
            if (atomic_fetch_sub(&r->room, (int_fast64_t)bytes) < (int_fast64_t)bytes) break;
            good = read_piece(r, fd, at, off, bytes);
            if (good) atomic_fetch_add(&r->bytes, bytes);
        }
        atomic_fetch_add(&r->files, 1);
    }
    munmap(at, size);
    return good;
}

static void *read_some(void *ctx) {
    struct reading *r = ctx;
    for (size_t i; (i = atomic_fetch_add(&r->next, 1)) < r->count;)
        if (!read_file(r, r->paths[i])) {
            fprintf(stderr, "plimsoll: cannot read %s ahead: %s\n", r->paths[i], strerror(errno));
            atomic_fetch_add(&r->failed, 1);
        }
    return NULL;
}

/* Half of what the group's limit leaves beside what cannot be taken back; without a limit, of the machine. */
static int64_t room(void) {
    static const struct pl_host_roots machine = { .proc = "/proc", .cgroup = "/sys/fs/cgroup" };
    struct pl_watch_host g;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t limit = pages > 0 ? (uint64_t)pages * (uint64_t)page : 0, used = 0;
    pl_host_group(&machine, "self", &g);
    if (g.limit != PL_WATCH_UNKNOWN && g.limit < limit) limit = g.limit;
    if (g.current != PL_WATCH_UNKNOWN) {
        uint64_t file = g.file != PL_WATCH_UNKNOWN ? g.file : 0;
        uint64_t shared = g.shmem != PL_WATCH_UNKNOWN ? g.shmem : 0;
        uint64_t back = file > shared ? file - shared : 0;
        used = g.current > back ? g.current - back : 0;
    }
    return limit > used ? (int64_t)((limit - used) / 2) : 0;
}

/* Every file at or below `path`, which is a pattern. What is not there or leads nowhere is kept too: reading
 * it says why it cannot be read. */
static void collect(struct reading *r, const char *path) {
    glob_t found = { 0 };
    if (glob(path, GLOB_NOCHECK, NULL, &found) != 0) return;
    FTS *tree = fts_open(found.gl_pathv, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; tree != NULL && r->count < FILES && (e = fts_read(tree)) != NULL;) {
        if (e->fts_info == FTS_D || e->fts_info == FTS_DP || e->fts_info == FTS_DC) continue;
        char **more = realloc(r->paths, (r->count + 1) * sizeof *more);
        if (more == NULL) break;
        r->paths = more;
        r->paths[r->count] = strdup(e->fts_path);
        if (r->paths[r->count] == NULL) break;
        r->count++;
    }
    if (tree != NULL) fts_close(tree);
    globfree(&found);
}

static void read_all(struct reading *r) {
    pthread_t threads[THREADS];
    size_t started = 0;
    while (started < THREADS && started < r->count &&
           pthread_create(&threads[started], NULL, read_some, r) == 0)
        started++;
    if (started == 0) read_some(r);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

int pl_verb_hold(struct pl_cli *cli) {
    struct reading r = { .page = sysconf(_SC_PAGESIZE) };
    bool once = pl_args_has(&cli->args, "once");
    uint64_t from = pl_now_ms(&pl_clock_system);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    /* As PID 1 of a container nothing ends us unless we wait for it. */
    if (!once) sigprocmask(SIG_BLOCK, &ends, NULL);
    for (size_t i = 0; i < cli->args.words.count; i++) collect(&r, cli->args.words.at[i]);
    atomic_init(&r.room, room());
    read_all(&r);
    unsigned failed = atomic_load(&r.failed);
    printf(cli->args.json ? "{\"v\":1,\"kind\":\"hold\",\"files\":%u,\"hot\":%u,\"failed\":%u,\"bytes\":%llu,"
                            "\"took_ms\":%llu}\n"
                          : "read_ahead files=%u hot=%u failed=%u bytes=%llu took_ms=%llu\n",
           atomic_load(&r.files), atomic_load(&r.hot), failed, (unsigned long long)atomic_load(&r.bytes),
           (unsigned long long)(pl_now_ms(&pl_clock_system) - from));
    fflush(stdout);
    for (size_t i = 0; i < r.count; i++) free(r.paths[i]);
    free(r.paths);
    if (once) return failed > 0 ? 1 : 0;
    for (int told; sigwait(&ends, &told) != 0;) continue;
    return 0;
}
