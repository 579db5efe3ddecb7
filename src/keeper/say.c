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

/* --- the same line as JSON, for a log that main writes in JSON */

struct json {
    char *at;
    size_t room, len; /* what does not fit leaves len above room */
};

static void put(struct json *j, const char *text, size_t n) {
    if (j->len + n <= j->room) memcpy(j->at + j->len, text, n);
    j->len += n;
}

static void put_string(struct json *j, const char *text, size_t n) {
    put(j, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') put(j, "\\", 1);
        if (c >= ' ' && c < 0x7f)
            put(j, text + i, 1);
        else
            put(j, "?", 1); /* our own words and names that main has checked */
    }
    put(j, "\"", 1);
}

static void put_value(struct json *j, const char *text, size_t n) {
    size_t digits = strspn(text, "0123456789");
    bool bare =
        (digits == n && n > 0 && (text[0] != '0' || n == 1)) || (n == 4 && memcmp(text, "true", 4) == 0);
    if (bare)
        put(j, text, n);
    else
        put_string(j, text, n);
}

/* Length of a value: up to the blank before the next KEY=. A value may hold blanks: a worker's name does. */
static size_t value_length(const char *at) {
    for (const char *blank = at; (blank = strchr(blank, ' ')) != NULL; blank++) {
        size_t key = strspn(blank + 1, "abcdefghijklmnopqrstuvwxyz_");
        if (key > 0 && blank[1 + key] == '=') return (size_t)(blank - at);
    }
    return strlen(at);
}

size_t pl_keeper_json(const char *line, char *out, size_t room) {
    struct json j = { .at = out, .room = room };
    const char *before = "{";
    for (const char *at = line, *equals; (equals = strchr(at, '=')) != NULL;) {
        size_t n = value_length(equals + 1);
        put(&j, before, 1);
        put_string(&j, at, (size_t)(equals - at));
        put(&j, ":", 1);
        put_value(&j, equals + 1, n);
        before = ",";
        at = equals + 1 + n;
        at += *at == ' ';
    }
    put(&j, "}\n", 2);
    return j.len <= j.room ? j.len : 0;
}

void pl_keeper_say(struct pl_keeper *k, enum pl_level level, const char *event, const char *format, ...) {
    static const char *const names[] = { "debug", "info", "warn", "error" };
    char line[MOST_LINE_BYTES];
    char json[MOST_LINE_BYTES]; /* as much, for the same reason; one that is longer stays logfmt */
    char stamp[PL_TIME_TEXT];
    va_list list;
    int at = snprintf(line, sizeof line, "ts=%s level=%s event=%s ",
                      pl_time_rfc3339(pl_wall_ms(&pl_clock_system), stamp), names[level], event);
    va_start(list, format);
    int n = vsnprintf(line + at, sizeof line - (size_t)at, format, list);
    va_end(list);
    size_t length = (size_t)at + (n < 0 ? 0 : (size_t)n);
    if (length > sizeof line - 1) length = sizeof line - 1;
    line[length] = '\0';
    bool loud = level >= PL_WARN || k->set.verbose != 0;
    size_t json_length = loud && k->set.json != 0 ? pl_keeper_json(line, json, sizeof json) : 0;
    line[length++] = '\n'; /* in the place of the NUL */
    if (k->log.head != NULL) pl_ring_put(&k->log, line, length);
    if (json_length > 0)
        write_now(json, json_length);
    else if (loud)
        write_now(line, length);
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
