/* worker/death.h - why a worker died, in one word and one sentence (words: worker/causes.def).
 *
 * The sentence is for somebody who was woken up: what happened, the line of the worker's own output that says
 * why, and what to do where we know it. "The kernel had no memory left" is said only when the kernel has
 * counted a kill, "the GPU had none" only with a message of sample/oom.h; else what was looked at. Worker
 * output is foreign: control characters do not get through, and words in it decide only where they stand as
 * an exception or as an engine's own message.
 */
#ifndef PL_WORKER_DEATH_H
#define PL_WORKER_DEATH_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_cause {
#define CAUSE(sym, name, text) PL_CAUSE_##sym,
#include "worker/causes.def"
#undef CAUSE
    PL_CAUSE_COUNT
};

struct pl_oom; /* sample/oom.h */

/* What the memory group of this instance says, since somebody last accounted for it. Bytes; PL_PROC_UNKNOWN
 * (sample/proc.h): not known. */
struct pl_death_group {
    bool known;                  /* its events could be read; false: all else means nothing */
    uint64_t oom_kills;          /* processes that the kernel has killed in it */
    uint64_t group_kills;        /* times that it has killed all of it at once */
    uint64_t current, max, peak; /* `current` before the death */
};

/* What is known when the leader was reaped. Texts are borrowed and may be NULL. */
struct pl_death {
    int wait_status;     /* of wait(2) */
    uint32_t exec_step;  /* of pl_wire_exit; 0: it ran */
    uint32_t exec_errno; /* 0: it ran */
    bool was_ready;
    bool timed_out;        /* we killed it: start_timeout */
    bool ordered;          /* we asked it to stop */
    bool command;          /* not a service of BentoML's worker entry: its exit statuses mean nothing to us */
    bool engine_died;      /* pl_death_engine_died */
    uint64_t lived_ms;     /* since the spawn; 0: not known */
    uint64_t silent_ms;    /* we killed it after so long a silence; 0: we did not */
    const char *last_line; /* of pl_death_last_line and pl_death_oom */
    const struct pl_oom *oom;           /* of pl_death_oom */
    const struct pl_death_group *group; /* NULL: not looked at */
    uint32_t xid;        /* the driver reported it lately for a GPU that the worker used; 0: none */
    const char *program; /* argv[0] */
    const char *folder;  /* where it was to run */
    const char *warmup;  /* we ended it because its warm-up failed: what was said; else NULL */
};

/* The cause by the table; `sentence` gets one sentence of at most `room` bytes, its NUL included. An end that
 * was ordered is PL_CAUSE_NONE, unless a start that failed is why. */
enum pl_cause pl_death_explain(const struct pl_death *d, char *sentence, size_t room);
/* "unknown" for a number that is none. */
const char *pl_cause_name(enum pl_cause c);

/* Picks the line of a tail of output that best says why: the last exception line of a Python traceback, else
 * the last line that is more than a farewell ("Shutting down"). An exception is followed by its place,
 * " (FILE:LINE)": the deepest frame that is not library code. Copies at most room - 1 bytes, cut between
 * characters. */
void pl_death_last_line(const char *tail, size_t len, char *out, size_t room);
/* The out-of-memory message that ended it, if one did: in `line` (of pl_death_last_line), else in the last
 * words of a library that cannot live on after it; then `line` becomes that one. False: none. */
bool pl_death_oom(const char *tail, size_t len, char *line, size_t room, struct pl_oom *out);
/* The tail says that a child the server cannot live without died first, in the words of vLLM, SGLang, TGI or
 * BentoML's arbiter; the server's own exit status tells nothing then. */
bool pl_death_engine_died(const char *tail, size_t len);
/* How much of `len` bytes is left when a UTF-8 character that was cut at the end is dropped. */
size_t pl_death_whole_chars(const char *text, size_t len);
#endif
