/* base/log_marks.h - who is told when bytes of a stream have been written: a queue of places, oldest first.
 *
 * Bounded: when it is full only the newest mark of each target stays. Not for two threads at once: log.c
 * holds its lock.
 */
#ifndef PL_BASE_LOG_MARKS_H
#define PL_BASE_LOG_MARKS_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_LOG_MARKS = 512 };

struct pl_log_mark {
    uint64_t at; /* bytes of the stream */
    _Atomic uint64_t *to;
    uint64_t value;
};
struct pl_log_marks {
    struct pl_log_mark queue[PL_LOG_MARKS];
    size_t first, count;
};

/* `at` does not fall from one call to the next. */
void pl_log_marks_add(struct pl_log_marks *m, uint64_t at, _Atomic uint64_t *to, uint64_t value);
/* `written` bytes of the stream are out: raises the targets of the marks up to there. */
void pl_log_marks_reach(struct pl_log_marks *m, uint64_t written);
void pl_log_marks_forget(struct pl_log_marks *m, const _Atomic uint64_t *to);
#endif
