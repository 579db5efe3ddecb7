/* config/yaml.h - inside the room: a YAML document with places, and its values as texts. */
#ifndef PL_CONFIG_YAML_H
#define PL_CONFIG_YAML_H
#include <yaml.h>

#include "base/buf.h"
#include "config/inside.h"

/* Bounds on what a file may make us do. */
enum { PL_YAML_BYTES = 1 << 20, PL_YAML_DEPTH = 32, PL_YAML_NODES = 10000 };

struct pl_yaml {
    const char *file;
    yaml_document_t doc;
    char *const *env;
    size_t visited; /* nodes looked at, aliases each time */
    struct pl_err *err;
};

/* False and err: not YAML, more than one document, over the bounds. Then nothing is to be freed. */
bool pl_yaml_load(struct pl_yaml *y, const char *text, size_t len);
void pl_yaml_free(struct pl_yaml *y);

struct pl_place {
    char text[200];
};
struct pl_place pl_yaml_place(const struct pl_yaml *y, const yaml_node_t *node);
yaml_node_t *pl_yaml_node(struct pl_yaml *y, int id);
/* Counts a node; false and err past the bounds. */
bool pl_yaml_visit(struct pl_yaml *y, const yaml_node_t *node, unsigned depth);
/* The text of a scalar, NULL and err if it is none or holds a zero byte. */
const char *pl_yaml_scalar(struct pl_yaml *y, const yaml_node_t *node);
bool pl_yaml_is_null(const yaml_node_t *node);
/* Two equal keys in one mapping are an error that names both. */
bool pl_yaml_no_twins(struct pl_yaml *y, const yaml_node_t *mapping);

/* The value as text for pl_value_parse: a scalar with its ${} expanded, or JSON. */
bool pl_yaml_value(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node, unsigned depth,
                   struct pl_buf *out);
/* One item of a list as a list of one; one pair of a mapping as a mapping of one: for messages with their
 * place. */
bool pl_yaml_item(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *item, unsigned depth,
                  struct pl_buf *out);
bool pl_yaml_pair(struct pl_yaml *y, const struct pl_option *o, const yaml_node_pair_t *pair, unsigned depth,
                  struct pl_buf *out);

/* expand.c */
bool pl_expand(const char *text, size_t len, char *const *env, struct pl_buf *out, struct pl_err *err);
#endif
