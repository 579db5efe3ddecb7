/* free_set.c - blocks in order: a treap inside the blocks themselves. */
#include <stddef.h>

#include "snapshot/sim_inside.h"

static int compare(const struct pl_sim_set *set, const struct pl_sim_block *a, const struct pl_sim_block *b) {
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (!set->by_address) {
        if (a->size != b->size) return a->size < b->size ? -1 : 1;
        if (a->age != b->age) return a->age < b->age ? -1 : 1;
    }
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Puts `b` where `old` hangs. */
static void hang(struct pl_sim_set *set, const struct pl_sim_block *old, struct pl_sim_block *b) {
    struct pl_sim_block *parent = old->parent;
    if (parent == NULL)
        set->root = b;
    else if (parent->left == old)
        parent->left = b;
    else
        parent->right = b;
    if (b != NULL) b->parent = parent;
}

/* `b` takes the place of its parent, which becomes its child. */
static void rotate_up(struct pl_sim_set *set, struct pl_sim_block *b) {
    struct pl_sim_block *parent = b->parent, *middle;
    hang(set, parent, b);
    if (parent->left == b) {
        middle = b->right;
        parent->left = middle;
        b->right = parent;
    } else {
        middle = b->left;
        parent->right = middle;
        b->left = parent;
    }
    if (middle != NULL) middle->parent = parent;
    parent->parent = b;
}

void pl_sim_set_add(struct pl_sim_set *set, struct pl_sim_block *b) {
    struct pl_sim_block *at = set->root;
    b->left = b->right = b->parent = NULL;
    if (at == NULL) {
        set->root = b;
        return;
    }
    for (;;) {
        struct pl_sim_block **side = compare(set, b, at) < 0 ? &at->left : &at->right;
        if (*side == NULL) {
            *side = b;
            b->parent = at;
            break;
        }
        at = *side;
    }
    while (b->parent != NULL && b->parent->priority < b->priority) rotate_up(set, b);
}

void pl_sim_set_remove(struct pl_sim_set *set, struct pl_sim_block *b) {
    while (b->left != NULL && b->right != NULL)
        rotate_up(set, b->left->priority > b->right->priority ? b->left : b->right);
    hang(set, b, b->left != NULL ? b->left : b->right);
    b->left = b->right = b->parent = NULL;
}

struct pl_sim_block *pl_sim_set_find(const struct pl_sim_set *set, uint64_t stream, uint64_t size) {
    struct pl_sim_block *best = NULL;
    for (struct pl_sim_block *at = set->root; at != NULL;) {
        bool behind = at->stream > stream || (at->stream == stream && (set->by_address || at->size >= size));
        if (behind) best = at;
        at = behind ? at->left : at->right;
    }
    return best;
}

struct pl_sim_block *pl_sim_set_first(const struct pl_sim_set *set) {
    struct pl_sim_block *b = set->root;
    while (b != NULL && b->left != NULL) b = b->left;
    return b;
}

struct pl_sim_block *pl_sim_set_last(const struct pl_sim_set *set) {
    struct pl_sim_block *b = set->root;
    while (b != NULL && b->right != NULL) b = b->right;
    return b;
}

struct pl_sim_block *pl_sim_set_next(const struct pl_sim_block *b) {
    if (b->right != NULL) {
        struct pl_sim_block *x = b->right;
        while (x->left != NULL) x = x->left;
        return x;
    }
    while (b->parent != NULL && b->parent->right == b) b = b->parent;
    return b->parent;
}

struct pl_sim_block *pl_sim_set_before(const struct pl_sim_block *b) {
    if (b->left != NULL) {
        struct pl_sim_block *x = b->left;
        while (x->right != NULL) x = x->right;
        return x;
    }
    while (b->parent != NULL && b->parent->left == b) b = b->parent;
    return b->parent;
}
