#include "sample/proc.h"

#include <string.h>

/* Digits at *at as a number; false without any, or when it does not fit. */
static bool number(const char **at, const char *end, uint64_t *out) {
    uint64_t n = 0;
    const char *from = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(**at - '0'), &n))
            return false;
    *out = n;
    return *at > from;
}

/* "Name:  123 kB" anywhere in the text. */
static uint64_t kib_field(const char *text, size_t len, const char *name) {
    size_t n = strlen(name);
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL) return PL_PROC_UNKNOWN; /* cut off: its number may be cut as well */
        if ((size_t)(stop - line) > n && memcmp(line, name, n) == 0 && line[n] == ':') {
            const char *at = line + n + 1;
            uint64_t kib;
            while (at < stop && (*at == ' ' || *at == '\t')) at++;
            if (!number(&at, stop, &kib) || kib > UINT64_MAX / 1024 - 1) return PL_PROC_UNKNOWN;
            return stop - at == 3 && memcmp(at, " kB", 3) == 0 ? kib * 1024 : PL_PROC_UNKNOWN;
        }
        line = stop + 1;
    }
    return PL_PROC_UNKNOWN;
}

bool pl_proc_read_status(const char *text, size_t len, struct pl_proc_memory *out) {
    *out = (struct pl_proc_memory){ .anon = kib_field(text, len, "RssAnon"),
                                    .file = kib_field(text, len, "RssFile"),
                                    .shmem = kib_field(text, len, "RssShmem"),
                                    .swap = kib_field(text, len, "VmSwap"),
                                    .peak_rss = kib_field(text, len, "VmHWM") };
    return out->anon != PL_PROC_UNKNOWN;
}

uint64_t pl_proc_read_pss(const char *text, size_t len) { return kib_field(text, len, "Pss"); }

/* What follows `name` and `between` at the begin of a line, up to its end. */
static uint64_t line_number(const char *text, size_t len, const char *name, char between) {
    size_t n = strlen(name);
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL) return PL_PROC_UNKNOWN;
        if ((size_t)(stop - line) > n && memcmp(line, name, n) == 0 && line[n] == between) {
            const char *at = line + n + 1;
            uint64_t value;
            return number(&at, stop, &value) && at == stop ? value : PL_PROC_UNKNOWN;
        }
        line = stop + 1;
    }
    return PL_PROC_UNKNOWN;
}

uint64_t pl_proc_read_threads(const char *text, size_t len) {
    return line_number(text, len, "Threads:", '\t');
}

uint64_t pl_proc_read_key(const char *text, size_t len, const char *name) {
    return line_number(text, len, name, ' ');
}

uint64_t pl_proc_read_count(const char *text, size_t len) {
    const char *at = text, *end = text + len;
    uint64_t n;
    return number(&at, end, &n) && at < end && *at == '\n' ? n : PL_PROC_UNKNOWN;
}

/* The `skip`-th field from *at on, fields being parted by single blanks. */
static bool skip_to(const char **at, const char *end, unsigned skip) {
    for (; skip > 0; skip--) {
        const char *blank = memchr(*at, ' ', (size_t)(end - *at));
        if (blank == NULL) return false;
        *at = blank + 1;
    }
    return *at < end;
}

bool pl_proc_read_stat(const char *text, size_t len, struct pl_proc_stat *out) {
    enum { START_AFTER_GROUP = 17 }; /* fields 5 and 22 */
    const char *end = text + len, *at = memrchr(text, ')', len);
    uint64_t ppid, group;
    if (at == NULL || end - at < 4 || at[1] != ' ' || at[3] != ' ') return false;
    out->state = at[2];
    at += 4;
    if (!number(&at, end, &ppid) || !skip_to(&at, end, 1) || !number(&at, end, &group)) return false;
    if (!skip_to(&at, end, START_AFTER_GROUP) || !number(&at, end, &out->start_ticks)) return false;
    out->ppid = (int64_t)ppid;
    out->group = (int64_t)group;
    return true;
}

uint64_t pl_proc_read_limit(const char *text, size_t len) {
    /* v1 writes the largest number of whole pages that fits a signed 64 bits when there is no limit */
    static const uint64_t none = INT64_MAX / 65536 * 65536;
    const char *at = text, *end = text + len;
    uint64_t n;
    if (!number(&at, end, &n) || (at < end && *at != '\n')) return PL_PROC_UNKNOWN;
    return n < none ? n : PL_PROC_UNKNOWN;
}

/* Is `word` one of the comma-parted words between at and end? */
static bool has_word(const char *at, const char *end, const char *word) {
    size_t n = strlen(word);
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if ((size_t)(stop - at) == n && memcmp(at, word, n) == 0) return true;
        at = stop + 1;
    }
    return false;
}

bool pl_proc_read_cgroup(const char *text, size_t len, bool *v2, char *path, size_t room) {
    const char *end = text + len, *found = NULL;
    size_t found_len = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL) stop = end;
        const char *first = memchr(line, ':', (size_t)(stop - line));
        const char *second = first != NULL ? memchr(first + 1, ':', (size_t)(stop - first - 1)) : NULL;
        bool memory = second != NULL && has_word(first + 1, second, "memory");
        bool unified = second != NULL && second == first + 1 && first - line == 1 && line[0] == '0';
        if (memory || (unified && found == NULL)) {
            found = second + 1;
            found_len = (size_t)(stop - found);
            *v2 = !memory;
            if (memory) break;
        }
        line = stop + 1;
    }
    if (found == NULL || found_len >= room || found_len == 0 || found[0] != '/') return false;
    memcpy(path, found, found_len);
    path[found_len] = '\0';
    return true;
}
