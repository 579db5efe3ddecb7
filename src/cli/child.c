#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static _Noreturn void become(const struct pl_child *ask, int out) {
    int nothing = open("/dev/null", O_RDWR);
    if (nothing == -1) _exit(126);
    if (!ask->reads_stdin) dup2(nothing, 0);
    dup2(out, 1);
    if (!ask->shows_stderr) dup2(nothing, 2);
    const char *old = getenv("PYTHONPATH");
    char *path = NULL;
    if (ask->python_path != NULL &&
        asprintf(&path, "%s%s%s", ask->python_path, old != NULL ? ":" : "", old != NULL ? old : "") != -1)
        setenv("PYTHONPATH", path, 1);
    if (ask->folder == NULL || chdir(ask->folder) == 0)
        execvp(ask->argv[0], (char *const *)(uintptr_t)ask->argv);
    _exit(127);
}

/* True at its end; false: too long, or too much. */
static bool read_all(int fd, uint32_t limit_ms, struct pl_buf *out) {
    uint64_t now = pl_now_us() / 1000, until = now + limit_ms;
    for (; now < until; now = pl_now_us() / 1000) {
        char piece[16384];
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, (int)(until - now));
        ssize_t n = ready == 1 ? read(fd, piece, sizeof piece) : -1;
        if (n == 0) return true;
        if (n == -1 && (ready == 0 || errno != EINTR)) return false;
        if (n > 0 && out != NULL && !pl_buf_add(out, piece, (size_t)n)) return false;
    }
    return false;
}

int pl_child_ask(const struct pl_child *ask, struct pl_buf *out) {
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) == -1) return -1;
    pid_t pid = fork();
    if (pid == 0) become(ask, ends[1]);
    close(ends[1]);
    bool whole = pid != -1 && read_all(ends[0], ask->limit_ms, out);
    close(ends[0]);
    if (pid == -1) return -1;
    if (!whole) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) continue;
    return whole && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
