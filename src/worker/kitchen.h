/* worker/kitchen.h - inside the room: a recipe in the making, what all kinds of workers share. */
#ifndef PL_WORKER_KITCHEN_H
#define PL_WORKER_KITCHEN_H
#include "worker/recipe.h"

/* After the first word without memory nothing more is tried. */
struct pl_kitchen {
    struct pl_arena *arena;
    struct pl_recipe *out;
    bool failed;
};

/* Room for so many words, for the caller's variables, the service's and ours. `missing`: what the recipe
 * cannot be made without and nobody knows, or NULL. False and err: it is missing, services.NAME.env names a
 * variable of ours, or there is no memory. */
bool pl_kitchen_open(struct pl_kitchen *k, const struct pl_service_config *s, const char *missing,
                     const char *folder, size_t words, char *const *environ_in, struct pl_arena *a,
                     struct pl_recipe *out, struct pl_err *err);
/* False and err: not all of it fitted. */
bool pl_kitchen_close(const struct pl_kitchen *k, const struct pl_service_config *s, struct pl_err *err);

char *pl_kitchen_print(struct pl_kitchen *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The caller's environment, less everything of ours. */
void pl_kitchen_inherit(struct pl_kitchen *k, const struct pl_config *c, char *const *environ_in);
/* What every worker gets, whatever it is: GPUs, TMPDIR, offline, no tracking. */
void pl_kitchen_common(struct pl_kitchen *k, const struct pl_service_config *s,
                       const struct pl_recipe_facts *f);
/* What llama.cpp needs on a shared machine, whoever runs it. */
void pl_kitchen_llama_cpp(struct pl_kitchen *k);
char **pl_kitchen_find(const struct pl_recipe *r, const char *name, size_t len);
void pl_kitchen_set(struct pl_kitchen *k, const char *name, const char *value);
void pl_kitchen_set_unless(struct pl_kitchen *k, const char *name, const char *value);
void pl_kitchen_set_number(struct pl_kitchen *k, const char *name, uint64_t value);
/* name=folder/kind, unless it is set; folder NULL: nothing */
void pl_kitchen_cache(struct pl_kitchen *k, const char *name, const char *folder, const char *kind);
void pl_kitchen_python_path(struct pl_kitchen *k, const char *ours); /* in front of the service's own */
void pl_kitchen_arg(struct pl_kitchen *k, const char *word);
void pl_kitchen_option(struct pl_kitchen *k, const char *name, uint64_t value);
#endif
