/* base/log.h - one event a line: a stable dotted name, then typed fields with units in their names.
 *
 * Event names are API (base/events.def lists them; a test compares the sources with it): dashboards and tests
 * match on them, never on prose. A terminal gets a readable line, a machine JSON or logfmt (docs/surface:
 * section 10).
 *
 * The caller never waits: a line is formatted on the caller's thread into a bounded ring, and a thread of the
 * logger writes it to its descriptor. What does not fit is counted and told later (`log.dropped`), never
 * waited for. Worker output passes through the same thread to stdout (pl_log_raw), so that lines never mix.
 */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

enum pl_level { PL_DEBUG, PL_INFO, PL_WARN, PL_ERROR };
enum pl_log_format { PL_LOG_TERMINAL, PL_LOG_LOGFMT, PL_LOG_JSON };
enum pl_field_kind { PL_F_STR, PL_F_TEXT, PL_F_INT, PL_F_REAL, PL_F_BOOL };

/* A field whose string is NULL, or whose number is not finite, is left out of the line. Strings are cut at
 * 200 characters; those named message, sentence or last_line at 1000 bytes. */
struct pl_field {
    const char *key;
    enum pl_field_kind kind;
    size_t len; /* PL_F_TEXT */
    union {
        const char *s;
        int64_t i;
        double d;
    } u;
};
#define F_STR(k, v) ((struct pl_field){ .key = (k), .kind = PL_F_STR, .u.s = (v) })
/* Bytes that are not NUL-ended: a piece of a head. */
#define F_TEXT(k, v, n) ((struct pl_field){ .key = (k), .kind = PL_F_TEXT, .len = (n), .u.s = (v) })
#define F_INT(k, v)     ((struct pl_field){ .key = (k), .kind = PL_F_INT, .u.i = (int64_t)(v) })
#define F_REAL(k, v)    ((struct pl_field){ .key = (k), .kind = PL_F_REAL, .u.d = (v) })
#define F_BOOL(k, v)    ((struct pl_field){ .key = (k), .kind = PL_F_BOOL, .u.i = (v) ? 1 : 0 })

/* Told of every event at or above `min` or `tap_min`, whichever is lower, on the caller's thread, as one JSON
 * line without its newline; `line` is borrowed. How `plimsoll events` and /events see what the log sees. */
typedef void pl_log_tap(void *ctx, enum pl_level level, const char *event, const char *line, size_t len);

struct pl_logger;

struct pl_log_options {
    int out_fd; /* own events; borrowed */
    int raw_fd; /* worker lines; borrowed */
    enum pl_log_format format;
    enum pl_level min;
    bool color;
    size_t ring_bytes; /* for each descriptor, a power of two; 0: 1 MiB */
    const struct pl_clock *clock;
    pl_log_tap *tap; /* or NULL */
    enum pl_level tap_min;
    void *tap_ctx;
};

/* One line in many: at most one a second for each sampler. -1: leave this one out; otherwise log it, with how
 * many were left out since the last one. Zero it before the first use. */
struct pl_log_sampler {
    uint64_t next_ms;
    uint32_t left_out;
};
int64_t pl_log_sample(struct pl_log_sampler *s, uint64_t now_ms);

/* NULL when the thread cannot be made. pl_log_destroy writes what is left, waiting at most 1 s for slow
 * readers. */
struct pl_logger *pl_log_create(const struct pl_log_options *options);
void pl_log_destroy(struct pl_logger *l);
void pl_log_set_level(struct pl_logger *l, enum pl_level min);
/* Instance name and such: appended to every event. Copied. */
void pl_log_set_common(struct pl_logger *l, const struct pl_field *fields, size_t count);

void pl_log_emit(struct pl_logger *l, enum pl_level level, const char *event, const struct pl_field *fields,
                 size_t count);
#define pl_log(l, level, event, ...)                                             \
    pl_log_emit((l), (level), (event), (const struct pl_field[]){ __VA_ARGS__ }, \
                sizeof((const struct pl_field[]){ __VA_ARGS__ }) / sizeof(struct pl_field))

/* Bytes for stdout exactly as they are (whole lines), at most three quarters of the ring at once: the rest
 * stays free for our own events. False: no room now, nothing was taken; keep them and try again. */
bool pl_log_raw(struct pl_logger *l, const char *bytes, size_t count);
/* Once all that was handed over by now is written, the writer's thread raises *to to `value`: what is on its
 * way when we are killed can be told by another. *to is borrowed until it is reached or pl_log_raw_forget. */
void pl_log_raw_mark(struct pl_logger *l, _Atomic uint64_t *to, uint64_t value);
void pl_log_raw_forget(struct pl_logger *l, const _Atomic uint64_t *to);
/* Text for the terminal or log stream exactly as it is: the banner. */
void pl_log_text(struct pl_logger *l, const char *text);
/* Lines that did not fit since the start. */
uint64_t pl_log_dropped(const struct pl_logger *l);

/* The formatting alone, pure; `wall_ms` stamps the line. Ends with a newline. */
void pl_log_format_line(struct pl_buf *out, enum pl_log_format format, bool color, enum pl_level level,
                        const char *event, uint64_t wall_ms, const struct pl_field *fields, size_t count);
const char *pl_level_name(enum pl_level level);
#endif
