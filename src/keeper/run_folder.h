/* keeper/run_folder.h - the folder of one instance: its lock, its sockets, its subfolders. Nothing of it
 * stays.
 *
 *   lock                      flock of the keeper; holds its pid
 *   admin.sock, agents.sock   made by main
 *   w/ prom/ tmp/ snap/       worker sockets, multiprocess metrics, TMPDIR of workers, snapshots
 *
 * Whoever calls makes the parents; the last component is made here. What a killed predecessor left is removed
 * after the lock was taken, and everything of ours at the end: the folder itself too, unless others keep
 * something in it. Removal knows the open folder only (openat, unlinkat), follows no symbolic link, leaves
 * other file systems alone, and goes no deeper than PL_TREE_DEPTH (base/tree.h).
 */
#ifndef PL_KEEPER_RUN_FOLDER_H
#define PL_KEEPER_RUN_FOLDER_H
#include "base/err.h"

enum {
    PL_RUN_SOCKET_BYTES = 16, /* "/w/" and a name of up to 12, or "/agents.sock", and the end */
    PL_RUN_PATH_BYTES = 107   /* sun_path without its end */
};

struct pl_run_folder {
    const char *path; /* borrowed; as it was given */
    int fd;           /* -1: not open */
    int lock_fd;
};

/* Makes, checks, locks and clears the folder. False: one sentence with the remedy; nothing is left open. */
bool pl_run_folder_open(struct pl_run_folder *r, const char *path, struct pl_err *err);
/* Removes everything of ours, gives the lock back, and closes. */
void pl_run_folder_close(struct pl_run_folder *r);

/* NAME or w/NAME: no other '/', no "." and "..", not empty. */
bool pl_run_folder_socket_name_ok(const char *name);
/* Only if it is a socket. */
void pl_run_folder_remove_socket(const struct pl_run_folder *r, const char *name);
#endif
