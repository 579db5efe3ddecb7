/* cli/drydock_stubs.h - the libraries that a program names (libcudart.so.13, libcublas.so.13 ...), written
 * for the PyTorch at hand and kept in the cache folder.
 *
 * Every name that a library of PyTorch leaves undefined and that belongs to CUDA becomes a function that
 * reports success, except those that the core has a body for. Names are taken from the user's own PyTorch,
 * never from a fixed list.
 */
#ifndef PL_CLI_DRYDOCK_STUBS_H
#define PL_CLI_DRYDOCK_STUBS_H
#include "base/arena.h"
#include "base/buf.h"
#include "cli/paths.h"

/* The PyTorch of an interpreter. Empty texts: there is none. */
struct pl_torch {
    char python[PL_PATH_BYTES];
    char folder[PL_PATH_BYTES]; /* .../site-packages/torch */
    char version[64];           /* 2.15.0+cu132 */
    bool named; /* the command names this interpreter; else it is the one that is found first */
};
/* Which interpreter `words` will run and its PyTorch, which is never imported. The interpreter: the program
 * itself, the one of its #! line, --python, one named anywhere in the words (`timeout 9 python x.py`, `sh -c
 * 'python x.py'`), else the usual one. False only for a PyTorch that cannot be served: without CUDA, for
 * ROCm. */
bool pl_torch_find(const struct pl_strings *words, struct pl_torch *out, struct pl_err *err);

/* Fills `folder` with the folder in the cache, made if it is not there, and `preload` with the value of
 * LD_PRELOAD. `share`: where the core, NVML and the tables lie. */
bool pl_drydock_stubs(const char *share, const struct pl_torch *torch, struct pl_arena *a,
                      char folder[PL_PATH_BYTES], struct pl_buf *preload, struct pl_err *err);
#endif
