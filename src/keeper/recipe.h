/* keeper/recipe.h - what to execute: a memfd that main made and sealed, read by the forked child alone.
 *
 * {u32 argc, u32 envc}, then NUL-ended words: folder, argv, environment; nothing after the last. At most 1
 * MiB.
 */
#ifndef PL_KEEPER_RECIPE_H
#define PL_KEEPER_RECIPE_H
#include <stdbool.h>
#include <stddef.h>

enum { PL_KEEPER_RECIPE_BYTES = 1 << 20 };

struct pl_keeper_recipe {
    char *text;   /* all words; owned */
    char *folder; /* in text */
    char **argv;  /* owned; NULL-ended; argv[0] is a path */
    char **envp;  /* owned; NULL-ended; `marker` first, so that a long environment cannot hide it */
};

/* Reads the whole descriptor. `marker` is borrowed by the result; an inherited PLIMSOLL_GENERATION is left
 * out. False with errno: EMSGSIZE (no recipe can be that short or long), EBADMSG, ENOMEM, EIO. Free it in
 * both cases. */
bool pl_keeper_read_recipe(int fd, const char *marker, struct pl_keeper_recipe *r);
void pl_keeper_free_recipe(struct pl_keeper_recipe *r);
#endif
