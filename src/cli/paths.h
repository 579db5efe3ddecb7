/* cli/paths.h - where things lie (surface.md section 7), and making the folders that must exist. */
#ifndef PL_CLI_PATHS_H
#define PL_CLI_PATHS_H
#include "base/err.h"
#include "config/config.h"

enum { PL_PATH_BYTES = 512 };

/* The run folder of an instance: run_dir if set, else the first that is ours or can be made of
 * /run/plimsoll/NAME, $XDG_RUNTIME_DIR/plimsoll/NAME, /tmp/plimsoll-UID/NAME. `make`: create its parents (the
 * keeper makes the last). */
bool pl_path_run_dir(const struct pl_config *c, bool make, char out[PL_PATH_BYTES], struct pl_err *err);
/* The state folder, made 0700; "" when there is none to be had (read-only system): nothing is kept then. */
void pl_path_state_dir(const struct pl_config *c, char out[PL_PATH_BYTES]);
/* Our own program, absolute; and beside it: the keeper, watch, and the folder for PYTHONPATH. */
bool pl_path_program(char out[PL_PATH_BYTES], struct pl_err *err);
bool pl_path_keeper(char out[PL_PATH_BYTES], struct pl_err *err);
bool pl_path_watch(char out[PL_PATH_BYTES], struct pl_err *err);
/* plimsoll-llama; false where this build is without it. */
bool pl_path_llama(char out[PL_PATH_BYTES], struct pl_err *err);
bool pl_path_python_side(char out[PL_PATH_BYTES], struct pl_err *err);
bool pl_path_drydock(char out[PL_PATH_BYTES], struct pl_err *err); /* the stand-in CUDA libraries */
/* The cache folder, made: $PLIMSOLL_CACHE, /var/cache/plimsoll as root, $XDG_CACHE_HOME/plimsoll or
 * ~/.cache/plimsoll. */
bool pl_path_cache_dir(char out[PL_PATH_BYTES], struct pl_err *err);
/* The same for an instance: its cache_dir if that is set. False: none is to be had. */
bool pl_path_caches(const struct pl_config *c, char out[PL_PATH_BYTES]);
/* A program on PATH, absolute. */
bool pl_path_search(const char *name, char out[PL_PATH_BYTES]);
/* The interpreter for a service: `wanted` (its `python`), else $VIRTUAL_ENV, else python3 or python on PATH.
 * Absolute, not resolved through links (a venv's python is a link that matters). */
bool pl_path_python(const char *wanted, char out[PL_PATH_BYTES], struct pl_err *err);
/* The program of a command: on PATH, else beside the interpreter (`python` may be NULL); with a slash, from
 * `folder`. */
bool pl_path_command(const char *word, const char *folder, const char *python, char out[PL_PATH_BYTES],
                     struct pl_err *err);
#endif
