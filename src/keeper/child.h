/* keeper/child.h - what happens between fork and exec. The order of the steps is part of the contract with
 * main: each failure is reported as {step, errno}. */
#ifndef PL_KEEPER_CHILD_H
#define PL_KEEPER_CHILD_H
#include <sys/resource.h>
#include <sys/types.h>

#include "base/wire.h"

/* Values of pl_wire_exit.exec_step. */
enum pl_child_step {
    PL_STEP_NONE,
    PL_STEP_SESSION,     /* setsid: a session and a group of its own */
    PL_STEP_RECIPE,      /* read it */
    PL_STEP_DESCRIPTORS, /* all to their fixed numbers, nothing else stays open */
    PL_STEP_LIMITS,      /* dumpable, OOM score, nice, core, address space, open files */
    PL_STEP_USER,        /* setgroups, setgid, setuid */
    PL_STEP_DEATH,       /* die with the keeper: after the uid, whose change clears it */
    PL_STEP_FOLDER,
    PL_STEP_EXEC
};

struct pl_child_report {
    uint32_t step;
    uint32_t error;
};

/* All descriptors are borrowed. */
struct pl_child_worker {
    const struct pl_wire_spawn *order;
    const char *marker; /* PLIMSOLL_GENERATION=... */
    struct rlimit nofile;
    int recipe_fd;
    int listener_fd; /* or -1 */
    int page_fd;
    int control_fd; /* or -1 */
    int output_fd;  /* write end */
    int report_fd;  /* write end, close-on-exec: its end of file says that exec worked */
};

/* The pid, or -1 with errno. */
pid_t pl_keeper_fork_worker(const struct pl_child_worker *w);
/* Main gets descriptors 0, 1, 2 of the keeper, and the channel as 3; a failure ends it with status 127. */
pid_t pl_keeper_fork_main(int exe_fd, char *const *argv, int channel_fd);
#endif
