#include "base/log_format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name, *upper, *color;
} levels[] = {
    [PL_DEBUG] = { "debug", "DEBUG", "\x1b[2m" },
    [PL_INFO] = { "info", "INFO", "\x1b[32m" },
    [PL_WARN] = { "warn", "WARN", "\x1b[33m" },
    [PL_ERROR] = { "error", "ERROR", "\x1b[31m" },
};

const char *pl_level_name(enum pl_level level) { return levels[level].name; }

/* How much of a string is written: whole characters, so that a cut never makes it invalid. */
static size_t clipped(const char *s, size_t len, size_t max_chars, size_t max_bytes) {
    size_t chars = 0, i = 0;
    if (len <= max_chars && len <= max_bytes) return len;
    for (; i < len && i < max_bytes; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80 && ++chars > max_chars) return i;
    if (i == len) return len;
    while (i > 0 && ((unsigned char)s[i] & 0xc0) == 0x80) i--;
    return i;
}

static bool is_message(const char *key) {
    static const char *const names[] = { "message", "sentence", "last_line" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (key[0] == names[i][0] && strcmp(key, names[i]) == 0) return true;
    return false;
}

/* Nothing in it needs an escape: nearly every string there is. */
static bool is_harmless(const char *s, size_t len) {
    unsigned bad = 0; /* no early end: so the compiler looks at many bytes at a time */
    for (size_t i = 0; i < len; i++) {
        unsigned c = (unsigned char)s[i];
        bad |= (unsigned)(c < ' ') | (unsigned)(c >= 0x7f) | (unsigned)(c == '"') | (unsigned)(c == '\\');
    }
    return bad == 0;
}

/* Three pieces in one step: an access line has sixty. */
static void add_three(struct pl_buf *out, const char *before, size_t before_len, const char *s, size_t len,
                      const char *after, size_t after_len) {
    if (!pl_buf_reserve(out, before_len + len + after_len)) return;
    char *at = out->data + out->len;
    memcpy(at, before, before_len);
    memcpy(at + before_len, s, len);
    memcpy(at + before_len + len, after, after_len);
    out->len += before_len + len + after_len;
}

static void add_quoted(struct pl_buf *out, const char *s, size_t len, size_t kept) {
    if (is_harmless(s, kept))
        add_three(out, "\"", 1, s, kept, "\"", 1);
    else
        pl_buf_add_json(out, s, kept);
    if (kept == len || out->len == 0) return;
    out->len--;
    pl_buf_adds(out, "\u2026\"");
}

void pl_log_add_escaped(struct pl_buf *out, const char *text, size_t len) {
    size_t at = out->len;
    add_quoted(out, text, len, clipped(text, len, PL_LOG_TEXT_CHARS, 4 * (size_t)PL_LOG_TEXT_CHARS));
    if (out->len < at + 2) return;
    out->len -= 2;
    memmove(out->data + at, out->data + at + 1, out->len - at);
}

void pl_log_add_int(struct pl_buf *out, int64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left != 0);
    if (value < 0) digits[--at] = '-';
    pl_buf_add(out, digits + at, sizeof digits - at);
}

/* Durations in milliseconds have at most three decimals and are in every access line: no printf for those. */
static void add_real(struct pl_buf *out, double value) {
    double thousandths = value * 1000 + 0.5;
    int64_t left = value >= 0 && value < 1e9 ? (int64_t)thousandths : -1;
    double off = thousandths - 0.5 - (double)left;
    if (left < 0 || off < -1e-6 || off > 1e-6) {
        pl_buf_addf(out, "%.6g", value);
        return;
    }
    pl_log_add_int(out, left / 1000);
    left %= 1000;
    char decimals[4] = { '.', (char)('0' + left / 100), (char)('0' + left / 10 % 10),
                         (char)('0' + left % 10) };
    size_t n = left == 0 ? 0 : left % 100 == 0 ? 2 : left % 10 == 0 ? 3 : 4;
    pl_buf_add(out, decimals, n);
}

/* May stand in logfmt without quotes. */
static bool is_plain(const char *s, size_t len) {
    return len > 0 && is_harmless(s, len) && memchr(s, ' ', len) == NULL && memchr(s, '=', len) == NULL;
}

static void add_text(struct pl_buf *out, enum pl_log_format format, const char *key, const char *s,
                     size_t len) {
    bool message = is_message(key);
    size_t kept = clipped(s, len, message ? (size_t)PL_LOG_MESSAGE_BYTES : (size_t)PL_LOG_TEXT_CHARS,
                          message ? (size_t)PL_LOG_MESSAGE_BYTES : 4 * (size_t)PL_LOG_TEXT_CHARS);
    if (format != PL_LOG_JSON && kept == len && is_plain(s, len)) {
        pl_buf_add(out, s, len);
    } else {
        add_quoted(out, s, len, kept);
    }
}

static void add_key(struct pl_buf *out, enum pl_log_format format, const char *key) {
    if (format == PL_LOG_JSON)
        add_three(out, ",\"", 2, key, strlen(key), "\":", 2);
    else
        add_three(out, " ", 1, key, strlen(key), "=", 1);
}

void pl_log_line_field(struct pl_buf *out, enum pl_log_format format, const struct pl_field *f) {
    bool text = f->kind == PL_F_STR || f->kind == PL_F_TEXT;
    if (text ? f->u.s == NULL : f->kind == PL_F_REAL && !isfinite(f->u.d)) return;
    add_key(out, format, f->key);
    switch (f->kind) {
    case PL_F_STR:
        add_text(out, format, f->key, f->u.s, strlen(f->u.s));
        break;
    case PL_F_TEXT:
        add_text(out, format, f->key, f->u.s, f->len);
        break;
    case PL_F_INT:
        pl_log_add_int(out, f->u.i);
        break;
    case PL_F_REAL:
        add_real(out, f->u.d);
        break;
    case PL_F_BOOL:
        pl_buf_adds(out, f->u.i != 0 ? "true" : "false");
        break;
    }
}

void pl_log_line_stamp(struct pl_buf *out, bool color, enum pl_level level, uint64_t wall_ms) {
    struct tm tm;
    time_t seconds = (time_t)(wall_ms / 1000);
    localtime_r(&seconds, &tm);
    pl_buf_addf(out, "%02d:%02d:%02d.%03u ", tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall_ms % 1000));
    if (color) pl_buf_adds(out, levels[level].color);
    pl_buf_adds(out, levels[level].upper);
    if (color) pl_buf_adds(out, "\x1b[0m");
}

void pl_log_line_begin(struct pl_buf *out, enum pl_log_format format, bool color, enum pl_level level,
                       const char *event, uint64_t wall_ms) {
    char ts[PL_TIME_TEXT];
    switch (format) {
    case PL_LOG_TERMINAL:
        pl_log_line_stamp(out, color, level, wall_ms);
        pl_buf_add(out, " ", 1);
        break;
    case PL_LOG_LOGFMT:
        pl_buf_adds(out, "ts=");
        pl_buf_adds(out, pl_time_rfc3339(wall_ms, ts));
        pl_buf_adds(out, " level=");
        pl_buf_adds(out, levels[level].name);
        pl_buf_adds(out, " event=");
        break;
    case PL_LOG_JSON:
        pl_buf_adds(out, "{\"ts\":\"");
        pl_buf_adds(out, pl_time_rfc3339(wall_ms, ts));
        pl_buf_adds(out, "\",\"level\":\"");
        pl_buf_adds(out, levels[level].name);
        pl_buf_adds(out, "\",\"event\":\"");
        break;
    }
    pl_buf_adds(out, event);
    if (format == PL_LOG_JSON) pl_buf_add(out, "\"", 1);
}

void pl_log_line_end(struct pl_buf *out, enum pl_log_format format) {
    pl_buf_adds(out, format == PL_LOG_JSON ? "}\n" : "\n");
}

void pl_log_format_line(struct pl_buf *out, enum pl_log_format format, bool color, enum pl_level level,
                        const char *event, uint64_t wall_ms, const struct pl_field *fields, size_t count) {
    pl_log_line_begin(out, format, color, level, event, wall_ms);
    for (size_t i = 0; i < count; i++) pl_log_line_field(out, format, &fields[i]);
    pl_log_line_end(out, format);
}
