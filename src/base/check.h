/* base/check.h - assertions in tiers.
 *
 * PL_ASSERT stays on in release and is for our own mistakes, cheap ones. PL_CHECK counts, logs and carries
 * on: prefer losing one request, with a reason, to losing all. Never assert on input, a syscall, an
 * allocation or what a worker does.
 */
#ifndef PL_BASE_CHECK_H
#define PL_BASE_CHECK_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

_Noreturn void pl_assert_failed(const char *what, const char *file, int line);
/* Remembers the site; returns false so that PL_CHECK can be an expression. */
bool pl_check_failed(const char *what, const char *file, int line);
uint64_t pl_checks_failed(void); /* since the start */

#define PL_ASSERT(cond) ((cond) ? (void)0 : pl_assert_failed(#cond, __FILE__, __LINE__))
#define PL_CHECK(cond)  ((cond) ? true : pl_check_failed(#cond, __FILE__, __LINE__))
#ifndef NDEBUG
#define PL_DEBUG_ASSERT(cond) PL_ASSERT(cond)
#else
#define PL_DEBUG_ASSERT(cond) ((void)0)
#endif
#endif
