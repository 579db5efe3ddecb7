#include "snapshot/oom_line.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096, NUMBER_BYTES = 32 };

struct span {
    const char *at;
    size_t len;
};

/* What is behind `word`; at == NULL: it is not there. */
static struct span behind(struct span s, const char *word) {
    const char *p = s.at == NULL ? NULL : memmem(s.at, s.len, word, strlen(word));
    if (p == NULL) return (struct span){ 0 };
    p += strlen(word);
    return (struct span){ p, s.len - (size_t)(p - s.at) };
}

/* "12.34 GiB" at the begin. */
static bool read_size(struct span s, uint64_t *out) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { " bytes", 1 }, { " KiB", 1 << 10 }, { " MiB", 1 << 20 }, { " GiB", 1 << 30 } };
    char number[NUMBER_BYTES];
    size_t n = 0;
    while (n < s.len && n < sizeof number - 1 && ((s.at[n] >= '0' && s.at[n] <= '9') || s.at[n] == '.')) n++;
    if (n == 0 || n > 16) return false;
    memcpy(number, s.at, n);
    number[n] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i].name);
        if (s.len - n < len || memcmp(s.at + n, units[i].name, len) != 0) continue;
        double bytes = strtod(number, NULL) * units[i].bytes + 0.5;
        if (!(bytes >= 0 && bytes < 1e15)) return false;
        *out = (uint64_t)bytes;
        return true;
    }
    return false;
}

static bool size_behind(struct span s, const char *word, uint64_t *out) {
    s = behind(s, word);
    return s.at != NULL && read_size(s, out);
}

static uint32_t device_of(struct span s) {
    uint32_t n = 0;
    s = behind(s, "GPU ");
    for (size_t i = 0; s.at != NULL && i < s.len && i < 4 && s.at[i] >= '0' && s.at[i] <= '9'; i++)
        n = n * 10 + (uint32_t)(s.at[i] - '0');
    return n;
}

static bool read_message(struct span s, struct pl_oom_line *out) {
    uint64_t allocated, unallocated;
    *out = (struct pl_oom_line){ .device = device_of(s) };
    struct span old = behind(s, "(GPU ");
    old = behind(old, "; ");
    if (old.at != NULL && read_size(old, &out->total) &&
        size_behind(old, " already allocated; ", &out->free)) {
        struct span end = behind(old, " free; ");
        struct span limited = behind(end, " allowed; ");
        if (limited.at != NULL) end = limited;
        if (end.at == NULL || !read_size(end, &out->reserved)) return false;
    } else {
        if (!size_behind(s, " total capacity of ", &out->total) &&
            !size_behind(s, " total capacty of ", &out->total))
            return false;
        if (!size_behind(s, " of which ", &out->free) ||
            !size_behind(s, "Of the allocated memory ", &allocated))
            return false;
        struct span end = behind(behind(s, "Of the allocated memory "), ", and ");
        if (end.at == NULL) end = behind(behind(s, "Of the allocated memory "), " and ");
        if (end.at == NULL || !read_size(end, &unallocated)) return false;
        out->reserved = allocated + unallocated;
    }
    uint64_t known = out->free + out->reserved;
    out->other = out->total > known ? out->total - known : 0;
    return out->total > 0;
}

bool pl_oom_line_find(const char *text, size_t len, struct pl_oom_line *out) {
    static const char begin[] = "CUDA out of memory. Tried to allocate ";
    bool found = false;
    struct pl_oom_line one;
    for (struct span s = behind((struct span){ text, len }, begin); s.at != NULL; s = behind(s, begin)) {
        struct span message = { s.at, s.len < MESSAGE_BYTES ? s.len : (size_t)MESSAGE_BYTES };
        if (!read_message(message, &one)) continue;
        *out = one;
        found = true;
    }
    return found;
}
