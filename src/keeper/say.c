#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper/keeper.h"

/* Short enough for a pipe to take it whole or not at all. */
enum { MOST_LINE_BYTES = 512 };

/* Never waits: stderr may be a full pipe or a stopped terminal, and O_NONBLOCK would be shared with its other
 * users. */
static void write_now(const char *line, size_t length) {
    struct iovec part = { .iov_base = (void *)(uintptr_t)line, .iov_len = length };
    struct pollfd p = { .fd = 2, .events = POLLOUT };
    struct stat st;
    bool file = fstat(2, &st) == 0 && S_ISREG(st.st_mode);
    if (!file) {
        if (pwritev2(2, &part, 1, -1, RWF_NOWAIT) >= 0 || (errno != EOPNOTSUPP && errno != EINVAL)) return;
        if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0) return;
    }
    ssize_t n = write(2, line, length);
    (void)n;
}

void pl_keeper_say(struct pl_keeper *k, enum pl_level level, const char *event, const char *format, ...) {
    static const char *const names[] = { "debug", "info", "warn", "error" };
    char line[MOST_LINE_BYTES];
    char stamp[PL_TIME_TEXT];
    va_list list;
    int at = snprintf(line, sizeof line, "ts=%s level=%s event=%s ",
                      pl_time_rfc3339(pl_wall_ms(&pl_clock_system), stamp), names[level], event);
    va_start(list, format);
    int n = vsnprintf(line + at, sizeof line - (size_t)at, format, list);
    va_end(list);
    size_t length = (size_t)at + (n < 0 ? 0 : (size_t)n);
    if (length > sizeof line - 1) length = sizeof line - 1;
    line[length++] = '\n'; /* in the place of the NUL */
    if (k->log.head != NULL) pl_ring_put(&k->log, line, length);
    if (level >= PL_WARN || k->set.verbose != 0) write_now(line, length);
}

const char *pl_keeper_end_text(int wait_status, char out[32]) {
    const char *name = WIFSIGNALED(wait_status) ? sigabbrev_np(WTERMSIG(wait_status)) : NULL;
    if (name != NULL) {
        snprintf(out, 32, "signal=SIG%s", name);
    } else if (WIFSIGNALED(wait_status)) {
        snprintf(out, 32, "signal=%d", WTERMSIG(wait_status));
    } else {
        snprintf(out, 32, "status=%d", WEXITSTATUS(wait_status));
    }
    return out;
}
