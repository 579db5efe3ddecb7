/* net/errand.h - a program that runs beside the loop and answers on its standard output: what would take the
 * loop too long (SQLite's reads), and what reads foreign files. It has an empty environment (our secrets are
 * in ours), no input, and what it says on its standard error is nobody's.
 *
 * Not for what has to live on: it is killed when its time is over, and when nobody wants the answer any more.
 */
#ifndef PL_NET_ERRAND_H
#define PL_NET_ERRAND_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

struct pl_errand;
enum pl_errand_end {
    PL_ERRAND_EXITED,  /* by itself: `status` says how, and all that it said is here */
    PL_ERRAND_KILLED,  /* by a signal that is not ours */
    PL_ERRAND_LATE,    /* after limit_ms; what was said until then is gone */
    PL_ERRAND_TOO_MUCH /* it said more than bytes_most */
};
struct pl_errand_result {
    enum pl_errand_end end;
    int64_t status;      /* PL_ERRAND_EXITED: its exit status */
    struct pl_buf *said; /* borrowed during the call */
};
/* Called exactly once, never from inside pl_errand_start, not after pl_errand_drop. */
typedef void pl_errand_done(void *ctx, struct pl_errand_result *r);

struct pl_errand_order {
    uv_loop_t *loop;
    char *const *argv; /* argv[0] is the program's path; NULL-ended; borrowed during the call */
    int fd;            /* 0: none. Becomes the child's descriptor 3; stays the caller's */
    size_t bytes_most;
    uint64_t limit_ms;
    pl_errand_done *done;
    void *ctx;
};
/* NULL: it could not be started, and `err` says why. It does not keep the loop alive. */
struct pl_errand *pl_errand_start(const struct pl_errand_order *o, struct pl_err *err);
void pl_errand_drop(struct pl_errand *e); /* takes it and ends the child; frees itself; NULL is allowed */
#endif
