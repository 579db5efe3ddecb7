#include "base/log_marks.h"

#include <stdbool.h>

#include "base/ring.h"

static struct pl_log_mark *mark(struct pl_log_marks *m, size_t i) {
    return &m->queue[(m->first + i) % PL_LOG_MARKS];
}

/* Only the newest of each target: the older ones would tell a part of the same earlier. */
static void compact(struct pl_log_marks *m) {
    size_t kept = 0; /* at the end of the queue, newest last */
    for (size_t i = PL_LOG_MARKS; i-- > 0;) {
        const struct pl_log_mark one = *mark(m, i);
        bool newer = one.to == NULL;
        for (size_t k = 0; k < kept && !newer; k++) newer = mark(m, PL_LOG_MARKS - 1 - k)->to == one.to;
        if (!newer) *mark(m, PL_LOG_MARKS - 1 - kept++) = one;
    }
    m->first = (m->first + PL_LOG_MARKS - kept) % PL_LOG_MARKS;
    m->count = kept;
}

void pl_log_marks_add(struct pl_log_marks *m, uint64_t at, _Atomic uint64_t *to, uint64_t value) {
    if (m->count == PL_LOG_MARKS) compact(m);
    if (m->count == PL_LOG_MARKS) return; /* as many targets as places: told with its next mark */
    *mark(m, m->count++) = (struct pl_log_mark){ .at = at, .to = to, .value = value };
}

void pl_log_marks_reach(struct pl_log_marks *m, uint64_t written) {
    for (; m->count > 0 && mark(m, 0)->at <= written; m->count--) {
        if (mark(m, 0)->to != NULL) pl_ring_seen(mark(m, 0)->to, mark(m, 0)->value);
        m->first = (m->first + 1) % PL_LOG_MARKS;
    }
}

void pl_log_marks_forget(struct pl_log_marks *m, const _Atomic uint64_t *to) {
    for (size_t i = 0; i < m->count; i++)
        if (mark(m, i)->to == to) mark(m, i)->to = NULL;
}
