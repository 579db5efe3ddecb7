#include "ship/tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { NAME_SHOWN = 160, MERGE_DEPTH = 8 };

struct anchor {
    const char *name;
    const struct pl_node *node;
    bool open; /* its collection has not ended: naming it now would make it hold itself */
};
struct level {
    struct pl_node *node, *last;
    const struct pl_node *key; /* a map's key that waits for its value */
    struct anchor *anchor;
};
struct reader {
    const char *file;
    struct pl_arena *arena;
    struct pl_err *err;
    struct level levels[PL_TREE_DEPTH + 1];
    size_t depth, nodes, anchor_count;
    struct anchor *anchors;
    const struct pl_node *root;
};

static bool refuse(struct reader *r, yaml_mark_t at, const char *what) {
    size_t n = strlen(r->file);
    return PL_FAIL(r->err, PL_E_CONFIG, "%s%s:%zu:%zu: %s", n > NAME_SHOWN ? "..." : "",
                   n > NAME_SHOWN ? r->file + n - NAME_SHOWN : r->file, at.line + 1, at.column + 1, what);
}

static struct pl_node *make(struct reader *r, const yaml_event_t *e, enum pl_node_kind kind) {
    struct pl_node *n = NULL;
    if (++r->nodes > PL_TREE_NODES)
        refuse(r, e->start_mark, "more than 200000 values");
    else if ((n = pl_arena_alloc(r->arena, sizeof *n)) == NULL)
        refuse(r, e->start_mark, "no memory for so large a file");
    if (n != NULL)
        *n = (struct pl_node){ .kind = kind,
                               .line = (uint32_t)e->start_mark.line + 1,
                               .col = (uint32_t)e->start_mark.column + 1 };
    return n;
}

/* Puts a node where it belongs: the root, the next of a list, a key or its value. */
static void place(struct reader *r, struct pl_node *n) {
    if (r->depth == 0) {
        r->root = n;
        return;
    }
    struct level *l = &r->levels[r->depth];
    if (l->node->kind == PL_NODE_MAP && l->key == NULL) {
        l->key = n;
        return;
    }
    n->key = l->key;
    l->key = NULL;
    if (l->last == NULL)
        l->node->first = n;
    else
        l->last->next = n;
    l->last = n;
    l->node->count++;
}

static bool name_anchor(struct reader *r, const yaml_event_t *e, const yaml_char_t *name, struct pl_node *n,
                        bool open, struct anchor **out) {
    *out = NULL;
    if (name == NULL) return true;
    if (r->anchor_count == PL_TREE_ANCHORS) return refuse(r, e->start_mark, "more than 1000 anchors");
    const char *copy = pl_arena_strndup(r->arena, (const char *)name, strlen((const char *)name));
    if (copy == NULL) return refuse(r, e->start_mark, "no memory");
    *out = &r->anchors[r->anchor_count++];
    **out = (struct anchor){ copy, n, open };
    return true;
}

static bool begin(struct reader *r, const yaml_event_t *e, enum pl_node_kind kind, const yaml_char_t *name) {
    struct anchor *anchor;
    if (r->depth == PL_TREE_DEPTH) return refuse(r, e->start_mark, "nested more than 64 deep");
    struct pl_node *n = make(r, e, kind);
    if (n == NULL || !name_anchor(r, e, name, n, true, &anchor)) return false;
    place(r, n);
    r->levels[++r->depth] = (struct level){ .node = n, .anchor = anchor };
    return true;
}

static bool scalar(struct reader *r, const yaml_event_t *e) {
    struct anchor *anchor;
    size_t len = e->data.scalar.length;
    struct pl_node *n = make(r, e, PL_NODE_TEXT);
    if (n == NULL || !name_anchor(r, e, e->data.scalar.anchor, n, false, &anchor)) return false;
    if (memchr(e->data.scalar.value, '\0', len) != NULL)
        return refuse(r, e->start_mark, "a zero byte in a value");
    n->text = pl_arena_strndup(r->arena, (const char *)e->data.scalar.value, len);
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (n->text == NULL) return refuse(r, e->start_mark, "no memory");
    place(r, n);
    return true;
}

static bool alias(struct reader *r, const yaml_event_t *e) {
    const char *name = (const char *)e->data.alias.anchor;
    struct pl_node *n = make(r, e, PL_NODE_TEXT);
    if (n == NULL) return false;
    for (size_t i = r->anchor_count; i-- > 0;) {
        if (strcmp(r->anchors[i].name, name) != 0) continue;
        if (r->anchors[i].open) return refuse(r, e->start_mark, "an anchor that holds itself");
        n->same = r->anchors[i].node;
        n->text = "";
        place(r, n);
        return true;
    }
    return refuse(r, e->start_mark, "an alias of an anchor that is not there");
}

static bool take(struct reader *r, const yaml_event_t *e) {
    switch (e->type) {
    case YAML_MAPPING_START_EVENT:
        return begin(r, e, PL_NODE_MAP, e->data.mapping_start.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return begin(r, e, PL_NODE_LIST, e->data.sequence_start.anchor);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        if (r->levels[r->depth].anchor != NULL) r->levels[r->depth].anchor->open = false;
        r->depth--;
        return true;
    case YAML_SCALAR_EVENT:
        return scalar(r, e);
    case YAML_ALIAS_EVENT:
        return alias(r, e);
    case YAML_DOCUMENT_START_EVENT:
        r->root = NULL;
        r->anchor_count = 0;
        return true;
    default:
        return true;
    }
}

static bool not_yaml(struct reader *r, const yaml_parser_t *p) {
    char text[160];
    if (p->error == YAML_READER_ERROR) {
        snprintf(text, sizeof text, "byte %zu: %s", p->problem_offset, p->problem);
        return refuse(r, (yaml_mark_t){ .line = 0, .column = 0 }, text);
    }
    snprintf(text, sizeof text, "%s%s%s", p->problem != NULL ? p->problem : "no YAML",
             p->context != NULL ? ", " : "", p->context != NULL ? p->context : "");
    return refuse(r, p->problem_mark, text);
}

static bool end_document(struct reader *r, const yaml_event_t *e, struct pl_tree *out) {
    if (r->root == NULL) return true;
    if (out->count == PL_TREE_DOCUMENTS) return refuse(r, e->start_mark, "more than 2000 documents");
    out->documents[out->count++] = r->root;
    return true;
}

bool pl_tree_read(const char *file, const char *text, size_t len, struct pl_arena *arena, struct pl_tree *out,
                  struct pl_err *err) {
    yaml_parser_t p;
    bool ok = true, more = true;
    *out = (struct pl_tree){ .documents = pl_arena_alloc(arena, PL_TREE_DOCUMENTS * sizeof *out->documents) };
    struct reader *r = pl_arena_alloc(arena, sizeof *r);
    struct anchor *anchors = pl_arena_alloc(arena, PL_TREE_ANCHORS * sizeof *anchors);
    if (r == NULL || anchors == NULL || out->documents == NULL)
        return PL_FAIL(err, PL_E_NOMEM, "%s: no memory", file);
    *r = (struct reader){ .file = file, .arena = arena, .err = err, .anchors = anchors };
    if (len > PL_TREE_BYTES) {
        refuse(r, (yaml_mark_t){ .line = 0 }, "larger than 8 MiB");
        err->code = PL_E_TOO_LARGE;
        return false;
    }
    if (!yaml_parser_initialize(&p)) return PL_FAIL(err, PL_E_NOMEM, "%s: no memory", file);
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    while (ok && more) {
        yaml_event_t e;
        if (!yaml_parser_parse(&p, &e)) {
            ok = not_yaml(r, &p);
            break;
        }
        ok = take(r, &e);
        if (ok && e.type == YAML_DOCUMENT_END_EVENT) ok = end_document(r, &e, out);
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&p);
    return ok;
}

const struct pl_node *pl_node_see(const struct pl_node *n) {
    return n != NULL && n->same != NULL ? n->same : n;
}

const struct pl_node *pl_node_first(const struct pl_node *n) {
    n = pl_node_see(n);
    return n != NULL && n->kind != PL_NODE_TEXT ? n->first : NULL;
}

/* With what `<<` brings in, which what stands there itself hides. */
static const struct pl_node *get(const struct pl_node *map, const char *key, unsigned depth) {
    const struct pl_node *found = NULL, *merged = NULL;
    map = pl_node_see(map);
    if (map == NULL || map->kind != PL_NODE_MAP) return NULL;
    for (const struct pl_node *n = map->first; n != NULL; n = n->next) {
        if (pl_node_is(n->key, key)) found = n;
        if (depth == 0 || !pl_node_is(n->key, "<<")) continue;
        const struct pl_node *from = pl_node_see(n);
        if (from->kind != PL_NODE_LIST)
            merged = get(from, key, depth - 1);
        else
            for (const struct pl_node *one = from->first; one != NULL && merged == NULL; one = one->next)
                merged = get(one, key, depth - 1);
    }
    return found != NULL ? found : merged;
}

const struct pl_node *pl_node_get(const struct pl_node *map, const char *key) {
    return pl_node_see(get(map, key, MERGE_DEPTH));
}

const struct pl_node *pl_node_path(const struct pl_node *map, ...) {
    va_list keys;
    va_start(keys, map);
    for (const char *key; map != NULL && (key = va_arg(keys, const char *)) != NULL;)
        map = pl_node_get(map, key);
    va_end(keys);
    return map;
}

const char *pl_node_text(const struct pl_node *n) {
    n = pl_node_see(n);
    return n != NULL && n->kind == PL_NODE_TEXT ? n->text : "";
}
bool pl_node_is(const struct pl_node *n, const char *text) {
    n = pl_node_see(n);
    return n != NULL && n->kind == PL_NODE_TEXT && strcmp(n->text, text) == 0;
}
bool pl_node_is_null(const struct pl_node *n) {
    n = pl_node_see(n);
    if (n == NULL) return true;
    if (n->kind != PL_NODE_TEXT || !n->plain) return false;
    return n->text[0] == '\0' || strcmp(n->text, "~") == 0 || strcasecmp(n->text, "null") == 0;
}
bool pl_node_true(const struct pl_node *n) {
    n = pl_node_see(n);
    return n != NULL && n->kind == PL_NODE_TEXT && n->plain && strcasecmp(n->text, "true") == 0;
}
bool pl_node_false(const struct pl_node *n) {
    n = pl_node_see(n);
    return n != NULL && n->kind == PL_NODE_TEXT && n->plain && strcasecmp(n->text, "false") == 0;
}
bool pl_node_number(const struct pl_node *n, double *out) {
    char *end;
    n = pl_node_see(n);
    if (n == NULL || n->kind != PL_NODE_TEXT || n->text[0] == '\0') return false;
    double x = strtod(n->text, &end);
    if (*end != '\0' || !isfinite(x)) return false;
    *out = x;
    return true;
}
double pl_node_number_or(const struct pl_node *n, double fallback) {
    double x;
    return pl_node_number(n, &x) ? x : fallback;
}
