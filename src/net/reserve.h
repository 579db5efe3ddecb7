/* net/reserve.h - memory kept back for what cannot fail: libuv ends the process (abort) when its table of
 * descriptors cannot grow, and that happens in the middle of accepting.
 *
 * A stretch of addresses is set aside, never touched: it costs no memory, but counts against RLIMIT_AS and
 * strict overcommit. When an allocation of libuv fails, it is given back and the allocation is tried once
 * more. From then on nobody should begin anything until pl_reserve_whole() has set it aside again: the server
 * accepts no connection. Any thread may allocate; the rest is the loop's.
 */
#ifndef PL_NET_RESERVE_H
#define PL_NET_RESERVE_H
#include <stdbool.h>
#include <stddef.h>

/* Like realloc. */
typedef void *pl_reserve_take(void *old, size_t bytes);
/* Before the first use of libuv in this process. `take`: where memory comes from; main: realloc. */
void pl_reserve_start(pl_reserve_take *take);
/* It is there, or could be set aside again just now. True where pl_reserve_start was never called. */
bool pl_reserve_whole(void);
#endif
