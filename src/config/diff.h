/* config/diff.h - what a reload would change, key by key, and what each change costs.
 *
 * Only what people say is compared: file, environment, flags. What a service's decorator or BentoML's
 * configuration brings along is told anew by the next generation.
 */
#ifndef PL_CONFIG_DIFF_H
#define PL_CONFIG_DIFF_H
#include "config/config.h"

enum pl_change_class { PL_CHANGE_LIVE, PL_CHANGE_GENERATION, PL_CHANGE_RESTART };
struct pl_change {
    const char *service;   /* NULL: the instance */
    const char *key;       /* "services" when a whole service came or went */
    const char *from, *to; /* as `config show` prints them; "" = not set */
    const char *place;     /* where the new value is said; "" = it went back to its default */
    enum pl_change_class class;
};
enum { PL_CHANGES_MOST = 256 };
struct pl_changes {
    struct pl_change at[PL_CHANGES_MOST];
    size_t count;
    bool more; /* there were more than fit */
};

/* All texts are borrowed from the two configurations. */
void pl_config_diff(const struct pl_config *old, const struct pl_config *new, struct pl_changes *out);
const char *pl_change_class_name(enum pl_change_class c);
/* Puts `new`'s services into the order of `old`'s, so that an index means the same service in both. False:
 * they have not the same services. */
bool pl_config_align(const struct pl_config *old, struct pl_config *new);
#endif
