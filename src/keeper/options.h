/* keeper/options.h - the command line of the keeper, written by `plimsoll serve`.
 *
 *   keeper --run DIR [--hold NAME=FD]... [--hang-ms N]... [--verbose 1] -- MAIN [ARGUMENT...]
 *
 * --hold hands over a descriptor that was opened before, because that needed rights or had to fail early;
 * main finds it under its name (LIST held). Settings are listed in options.c with their defaults.
 */
#ifndef PL_KEEPER_OPTIONS_H
#define PL_KEEPER_OPTIONS_H
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire.h"

enum { PL_KEEPER_MOST_HOLDS = 32, PL_KEEPER_MOST_CRASHES = 64 };

struct pl_keeper_settings {
    uint64_t hello_ms; /* from the start of main to HELLO, else it counts as hung */
    uint64_t hang_ms;  /* no heartbeat for so long: SIGABRT; 0: never */
    uint64_t abort_ms; /* from SIGABRT to SIGKILL; also how long main may live with its channel closed */
    uint64_t crash_window_ms; /* crash_limit crashes within it end everything */
    uint64_t crash_limit;
    uint64_t take_ms;  /* from UPGRADE to TAKE */
    uint64_t stand_ms; /* from STAND_DOWN to STOOD_DOWN; then the helm moves anyway */
    uint64_t leave_ms; /* how long a main that lost the helm may drain */
    uint64_t stop_ms;  /* how long main may take for an orderly stop */
    uint64_t stuck_ms; /* SIGKILL sent and not reaped: STUCK */
    uint64_t verbose;  /* 1: all of keeper.log on stderr too */
    uint64_t json;     /* 1: what is on stderr is JSON, as main's own events are */
};

struct pl_keeper_options {
    struct pl_keeper_settings set;
    const char *run_path; /* borrowed from argv, as all texts here */
    char **main_argv;     /* NULL-ended */
    size_t hold_count;
    struct {
        char name[PL_WIRE_NAME_BYTES];
        int fd;
    } holds[PL_KEEPER_MOST_HOLDS];
};

/* Reads only the words; no descriptor and no file is touched. */
bool pl_keeper_read_options(int argc, char **argv, struct pl_keeper_options *out, struct pl_err *err);
#endif
