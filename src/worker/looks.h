/* worker/looks.h - what comes of one look of an explanation: the next look, the same one again, or the end.
 *
 * An explanation is two looks, and growth is what lies between them: so the first must be complete. Where
 * nobody waits for the answer (a verdict asked), a look that had too little time, or met somebody in its way,
 * is taken again with twice the time, PL_LOOKS_MORE times in all: a machine under load is when leaks are
 * found. A person is told at once, and knows --deadline. Pure.
 */
#ifndef PL_WORKER_LOOKS_H
#define PL_WORKER_LOOKS_H
#include <stdbool.h>
#include <stdint.h>

enum { PL_LOOKS_MORE = 2, PL_LOOKS_AGAIN_MS = 5000 };

enum pl_look_came {
    PL_LOOK_COMPLETE,
    PL_LOOK_INCOMPLETE, /* its time was over before it had seen all */
    PL_LOOK_SILENT,     /* no answer in time */
    PL_LOOK_RUNNING,    /* the one before has not come to its end */
    PL_LOOK_BUSY,       /* requests ran all the time */
    PL_LOOK_NEVER,      /* refused, or an error: it would be the same again */
};
const char *pl_look_came_name(enum pl_look_came c); /* "incomplete", "silent", ... */

struct pl_looks {
    bool by_verdict; /* nobody waits for the answer */
    bool two;        /* two looks are wanted */
    bool first;      /* the first is there, complete */
    bool alive;      /* it can be asked again */
    uint32_t more;   /* looks taken again so far */
};
enum pl_looks_next {
    PL_LOOKS_SECOND, /* this was the first: the second when there have been requests */
    PL_LOOKS_AGAIN,  /* the same one again: more++ */
    PL_LOOKS_REPORT, /* this is the report */
    PL_LOOKS_FIRST,  /* the first one's is: better than none, and it says that nothing is known of growth */
    PL_LOOKS_NOTHING,
};
enum pl_looks_next pl_looks_next(const struct pl_looks *l, enum pl_look_came came);
/* Of a look, after so many that were taken again. */
uint64_t pl_looks_deadline_ms(uint64_t deadline_ms, uint32_t more);
#endif
