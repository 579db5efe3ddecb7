/* ship/tree.h - YAML that others wrote (manifests, bentofiles) as a tree whose nodes know their place.
 *
 * libyaml reads; what it reads is held against limits as it comes, so that no file makes us build much:
 * bytes, depth, nodes and documents. An anchor is one node however often it is named (`aliased` nodes are
 * shared, never copied), one that holds itself is refused. `<<` is followed by pl_node_get. All of it lives
 * in the arena given.
 */
#ifndef PL_SHIP_TREE_H
#define PL_SHIP_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    PL_TREE_BYTES = 8 << 20,
    PL_TREE_DEPTH = 64,
    PL_TREE_NODES = 200000,
    PL_TREE_DOCUMENTS = 2000,
    PL_TREE_ANCHORS = 1000
};
enum pl_node_kind { PL_NODE_TEXT, PL_NODE_LIST, PL_NODE_MAP };

struct pl_node {
    enum pl_node_kind kind;
    bool plain;       /* a text without quotes: may be a number, a switch, null */
    uint32_t line;    /* from 1 */
    uint32_t col;     /* from 1 */
    const char *text; /* PL_NODE_TEXT; zero bytes inside are refused */
    struct pl_node *first, *next;
    const struct pl_node *key; /* of a pair in a map; NULL in a list */
    size_t count;
    const struct pl_node *same; /* a use of an anchor: the node that it names. pl_node_see follows it */
};
struct pl_tree {
    const struct pl_node **documents;
    size_t count;
};

/* False and err with FILE:LINE:COL: not YAML, or over the limits. `file` is only named. */
bool pl_tree_read(const char *file, const char *text, size_t len, struct pl_arena *arena, struct pl_tree *out,
                  struct pl_err *err);

/* NULL is a node that is not there: all of these take it. */
const struct pl_node *pl_node_see(const struct pl_node *n);
/* The value of a key; of equal keys the last. Also from `<<`. */
const struct pl_node *pl_node_get(const struct pl_node *map, const char *key);
/* Along several keys, NULL at the end. */
const struct pl_node *pl_node_path(const struct pl_node *map, ...) __attribute__((sentinel));
/* Children in order; of a map the values, with their key in node->key. `n` of the first call is the
 * collection. */
const struct pl_node *pl_node_first(const struct pl_node *n);
const char *pl_node_text(const struct pl_node *n); /* "" when it is no text */
bool pl_node_is(const struct pl_node *n, const char *text);
bool pl_node_is_null(const struct pl_node *n);             /* not there, or null */
bool pl_node_true(const struct pl_node *n);                /* a switch that is on */
bool pl_node_false(const struct pl_node *n);               /* a switch that is off */
bool pl_node_number(const struct pl_node *n, double *out); /* a plain number */
double pl_node_number_or(const struct pl_node *n, double fallback);
#endif
