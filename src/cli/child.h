/* cli/child.h - one question to another program: an interpreter, nvidia-smi. It is run, read and over. */
#ifndef PL_CLI_CHILD_H
#define PL_CLI_CHILD_H
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct pl_child {
    const char *const *argv; /* the first word is looked for on PATH; NULL at the end */
    const char *folder;      /* to run it in; NULL: ours */
    const char *python_path; /* in front of its PYTHONPATH; NULL: as it is */
    bool shows_stderr;       /* else nobody sees it */
    bool reads_stdin;        /* ours is its stdin; else it is empty */
    uint32_t limit_ms;       /* then it is killed */
};
/* Its exit status, 127 when there is no such program. -1: it could not be started, was killed, took too long
 * or said more than `out` takes. What it said on stdout is added to `out`; NULL: not read. */
int pl_child_ask(const struct pl_child *ask, struct pl_buf *out);
#endif
