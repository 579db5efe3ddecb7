/* hold.c - `plimsoll hold PATH...`: reads files once, so that they are in the page cache, then sleeps until
 * SIGTERM. What a placeholder pod runs to keep a node, an image and a model warm (docs/manifest.md); --once
 * ends after the reading. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/verbs.h"

enum { PIECE_BYTES = 1 << 20, OPEN_FOLDERS = 16 };

/* nftw has no room for a context. */
static struct {
    uint64_t files, bytes;
    char failed[512];
    int error;
} read_so_far;

static int fail(const char *path, int error) {
    snprintf(read_so_far.failed, sizeof read_so_far.failed, "%s", path);
    read_so_far.error = error;
    return 1;
}

static int read_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
    static char piece[PIECE_BYTES];
    (void)where;
    if (kind == FTW_NS || kind == FTW_DNR) return fail(path, EACCES);
    if (kind == FTW_SLN) return fail(path, ENOENT); /* a link to nothing: a blob that was never fetched */
    if (kind != FTW_F || !S_ISREG(st->st_mode)) return 0;
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) return fail(path, errno);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0;) {
        if (n == -1 && errno == EINTR) continue;
        if (n == -1) return fail(path, errno);
        read_so_far.bytes += (uint64_t)n;
    }
    read_so_far.files++;
    return 0;
}

/* As PID 1 of a container nothing ends us unless we wait for it. */
static void sleep_until_told(const sigset_t *ends) {
    int signal = 0;
    while (sigwait(ends, &signal) != 0) continue;
}

int pl_verb_hold(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    bool once = pl_args_has(&cli->args, "once");
    uint64_t began = pl_now_us();
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    if (!once) sigprocmask(SIG_BLOCK, &ends, NULL);
    for (size_t i = 0; i < cli->args.words.count; i++) {
        const char *path = cli->args.words.at[i];
        if (nftw(path, read_one, OPEN_FOLDERS, 0) == 0) continue;
        PL_FAIL_SYS(&err, read_so_far.failed[0] != '\0' ? read_so_far.error : errno, "read %s",
                    read_so_far.failed[0] != '\0' ? read_so_far.failed : path);
        return pl_cli_fail(cli, &err);
    }
    uint64_t ms = (pl_now_us() - began) / 1000;
    if (cli->args.json)
        printf("{\"v\":1,\"kind\":\"hold\",\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ms\":%" PRIu64 "}\n",
               read_so_far.files, read_so_far.bytes, ms);
    else if (!cli->args.quiet)
        printf("%" PRIu64 " files, %" PRIu64 " bytes read in %" PRIu64 " ms%s\n", read_so_far.files,
               read_so_far.bytes, ms, once ? "" : "; holding");
    fflush(stdout);
    if (!once) sleep_until_told(&ends);
    return 0;
}
