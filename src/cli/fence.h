/* cli/fence.h - what main gives up once it serves: rights that a program could win by exec (no_new_privs),
 * and calls of the kernel that it never needs (fence.def), by a seccomp filter over all its threads.
 *
 * A list of refusals and no list of permissions: a call that libc takes up one day goes on working, and what
 * is refused fails with EPERM instead of ending the process. The filter is classic BPF
 * (Documentation/userspace-api/ seccomp_filter.rst); calls of another architecture's table (int 0x80, x32)
 * are refused whole. A child of main (Plimsoll itself, reading a record or a snapshot) inherits all of it;
 * workers and watch are the keeper's children and keep what they had. */
#ifndef PL_CLI_FENCE_H
#define PL_CLI_FENCE_H
#include <stdbool.h>

#include "base/err.h"

enum pl_fence {
    PL_FENCE_ON, /* refused: EPERM */
    PL_FENCE_LOG /* let through, and the kernel logs it (audit, or dmesg) */
};
/* False with err: the kernel has no such thing, or forbids it; nothing has changed then but no_new_privs. */
bool pl_fence_up(enum pl_fence mode, struct pl_err *err);
#endif
