/* base/tree.h - makes folders, and removes them with all that is in them, without ever leaving them: no link
 * is followed, no other file system entered, at most PL_TREE_DEPTH levels are descended.
 */
#ifndef PL_BASE_TREE_H
#define PL_BASE_TREE_H
#include <stdbool.h>

enum { PL_TREE_DEPTH = 32 };

/* Empties the folder `fd` (takes it), which must have been opened without following a link. What cannot be
 * removed stays. */
void pl_tree_clear(int fd);
/* Removes `name` in the folder `at` (borrowed): a file, a link itself, or a folder with its content. True
 * when nothing of it is left. */
bool pl_tree_remove(int at, const char *name);
/* Opens the folder `name` in `at` if it is one and no link. -1 with errno. */
int pl_tree_open(int at, const char *name);
/* Makes the folder `path` (0700) and those above it that are not there. False with errno. */
bool pl_tree_make(const char *path);
#endif
