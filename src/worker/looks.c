#include "worker/looks.h"

const char *pl_look_came_name(enum pl_look_came c) {
    static const char *const names[] = { "complete", "incomplete", "silent", "running", "busy", "never" };
    return (unsigned)c < sizeof names / sizeof *names ? names[c] : "unknown";
}

static bool may_come_right(const struct pl_looks *l, enum pl_look_came came) {
    /* A busy worker is asked anew and looked at beside its requests; between two looks there is no time. */
    if (came == PL_LOOK_BUSY) return l->first;
    return came == PL_LOOK_INCOMPLETE || came == PL_LOOK_SILENT || came == PL_LOOK_RUNNING;
}

enum pl_looks_next pl_looks_next(const struct pl_looks *l, enum pl_look_came came) {
    bool is_first = l->two && !l->first;
    if (came == PL_LOOK_COMPLETE) return is_first ? PL_LOOKS_SECOND : PL_LOOKS_REPORT;
    if (l->by_verdict && l->alive && l->more < PL_LOOKS_MORE && may_come_right(l, came))
        return PL_LOOKS_AGAIN;
    if (came == PL_LOOK_INCOMPLETE) return PL_LOOKS_REPORT;
    return l->first ? PL_LOOKS_FIRST : PL_LOOKS_NOTHING;
}

uint64_t pl_looks_deadline_ms(uint64_t deadline_ms, uint32_t more) {
    return deadline_ms << (more < PL_LOOKS_MORE ? more : PL_LOOKS_MORE);
}
