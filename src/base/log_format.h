/* base/log_format.h - the inside of the logger: how a line looks. Shared by log.c and access.c only. */
#ifndef PL_BASE_LOG_FORMAT_H
#define PL_BASE_LOG_FORMAT_H
#include "base/log.h"

enum { PL_LOG_TEXT_CHARS = 200, PL_LOG_MESSAGE_BYTES = 1000 };

/* A line in three steps, so that an event's own fields and the common ones need no array of their own. */
void pl_log_line_begin(struct pl_buf *out, enum pl_log_format format, bool color, enum pl_level level,
                       const char *event, uint64_t wall_ms);
void pl_log_line_field(struct pl_buf *out, enum pl_log_format format, const struct pl_field *f);
void pl_log_line_end(struct pl_buf *out, enum pl_log_format format);

/* "14:02:11.207 WARN", local time. */
void pl_log_line_stamp(struct pl_buf *out, bool color, enum pl_level level, uint64_t wall_ms);
/* At most PL_LOG_TEXT_CHARS characters of `text`, escaped as in a JSON string but without quotes. */
void pl_log_add_escaped(struct pl_buf *out, const char *text, size_t len);
void pl_log_add_int(struct pl_buf *out, int64_t value);

/* pl_log_emit, but what goes to the stream is `line`. The tap is told the event as always. */
void pl_log_emit_as(struct pl_logger *l, const struct pl_buf *line, enum pl_level level, const char *event,
                    uint64_t wall_ms, const struct pl_field *fields, size_t count);
const struct pl_log_options *pl_log_options_of(const struct pl_logger *l);
bool pl_log_wants(const struct pl_logger *l, enum pl_level level);
#endif
