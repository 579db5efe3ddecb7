/* watch/watch.h - the process that looks at the machine, beside main: a driver call that never returns must
 * not take the gateway with it.
 *
 * Started by main through the keeper as a child of the keeper, with its page at PL_WORKER_PAGE_FD and nothing
 * else. Two threads: one reads /proc and the memory group, the other asks the driver. Neither waits for the
 * other, and nobody waits for them. SIGUSR1: look now. It dies with the keeper.
 *
 *   watch.c   the threads       host.c    /proc, cgroup
 *   nvml.c    the driver        writer.c  the page
 */
#ifndef PL_WATCH_WATCH_H
#define PL_WATCH_WATCH_H
#include <stdint.h>

struct pl_watch_options {
    uint64_t period_ms;
    int page_fd;
    uint64_t generation, boot;
};
/* "--period-ms N"; PLIMSOLL_GENERATION of the environment. 0, or the status to exit with. */
int pl_watch_main(int argc, char **argv);
#endif
