/* net/stalls.h - loop turns that took too long: counted with the name of what ran. */
#ifndef PL_NET_STALLS_H
#define PL_NET_STALLS_H
#include <uv.h>

#include "base/log.h"
#include "base/metrics.h"

enum { PL_STALL_MS = 50 };

/* A callback that may take long says its name (static text) when it begins; a long turn is put down to the
 * last one said. One store. */
extern const char *pl_stalls_running;
static inline void pl_stalls_enter(const char *name) { pl_stalls_running = name; }

/* Watches the loop from now on. One loop a process. */
void pl_stalls_watch(uv_loop_t *loop, struct pl_metrics *metrics, struct pl_logger *log);
#endif
