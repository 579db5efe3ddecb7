/* config/similar.h - what was typed against what was meant; for "did you mean" and for quoting it. */
#ifndef PL_CONFIG_SIMILAR_H
#define PL_CONFIG_SIMILAR_H
#include <stdbool.h>
#include <stddef.h>

/* Letters to change, or neighbours to swap, until a is b; only the first 64 count. '-' is '_', case does not
 * matter. */
size_t pl_edit_distance(const char *a, const char *b);
/* How many of them may be slips of the keyboard in a word of this length. */
size_t pl_slips_allowed(const char *typed);
/* Near enough to be a slip of the keyboard. */
bool pl_edit_near(const char *typed, const char *meant);
/* Same but for case and '-' as '_'. */
bool pl_same_loosely(const char *a, const char *b);
/* At most 64 bytes of foreign text made fit for a message: control characters become '?'. */
struct pl_quoted {
    char text[72];
};
struct pl_quoted pl_quote(const char *text);
#endif
