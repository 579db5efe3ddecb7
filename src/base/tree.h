/* base/tree.h - removes a folder and all below it, without ever following a link out of it. */
#ifndef PL_BASE_TREE_H
#define PL_BASE_TREE_H
#include <stdbool.h>

/* Removes `name` in the folder `at` (a descriptor, borrowed): a file, a link itself, or a folder with its
 * content, at most 64 levels deep. True when nothing of it is left. */
bool pl_remove_tree(int at, const char *name);
#endif
