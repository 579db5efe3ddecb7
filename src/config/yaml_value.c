/* yaml_value.c - values of the file as texts: what all other sources hand in as well. */
#include <ctype.h>
#include <string.h>

#include "config/yaml.h"

/* Scalars of lists, maps and requests are texts, whatever they look like ("1.10" stays so); below a mapping's
 * value and in a request's body they keep the type YAML sees, since that is JSON for somebody else. */
enum form { TEXTS, TYPED };

static bool full(struct pl_yaml *y, const yaml_node_t *node) {
    return PL_FAIL(y->err, PL_E_TOO_LARGE, "%s: the value is too long", pl_yaml_place(y, node).text);
}

static bool expanded(struct pl_yaml *y, const yaml_node_t *node, struct pl_buf *out) {
    const char *text = pl_yaml_scalar(y, node);
    if (text == NULL) return false;
    if (pl_expand(text, strlen(text), y->env, out, y->err)) return true;
    return pl_err_wrap(y->err, "%s", pl_yaml_place(y, node).text);
}

/* RFC 8259: -? int frac? exp? */
static bool is_json_number(const char *s) {
    if (*s == '-') s++;
    if (*s == '0')
        s++;
    else if (isdigit((unsigned char)*s))
        s += strspn(s, "0123456789");
    else
        return false;
    if (*s == '.') {
        size_t n = strspn(s + 1, "0123456789");
        if (n == 0) return false;
        s += n + 1;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '+' || *s == '-') s++;
        size_t n = strspn(s, "0123456789");
        if (n == 0) return false;
        s += n;
    }
    return *s == '\0';
}

static bool put_scalar(struct pl_yaml *y, const yaml_node_t *node, enum form form, struct pl_buf *out) {
    struct pl_buf text;
    pl_buf_init(&text, PL_YAML_BYTES);
    bool ok = expanded(y, node, &text);
    const char *s = ok ? pl_buf_text(&text) : "";
    bool bare = form == TYPED && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (ok && bare && (is_json_number(s) || strcmp(s, "true") == 0 || strcmp(s, "false") == 0))
        ok = pl_buf_adds(out, s) || full(y, node);
    else if (ok && pl_yaml_is_null(node))
        ok = pl_buf_adds(out, "null") || full(y, node);
    else if (ok)
        ok = pl_buf_add_json(out, s, text.len) || full(y, node);
    pl_buf_free(&text);
    return ok;
}

static bool put(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node, enum form form,
                unsigned depth, unsigned inside, struct pl_buf *out);

/* What the value of `key` is written as, `inside` levels below the option's own value. */
static enum form form_below(const struct pl_option *o, const char *key, const yaml_node_t *value,
                            enum form form, unsigned inside) {
    if (value->type == YAML_SCALAR_NODE || form == TYPED) return form;
    if (o->type == PL_OPTION_WARMUP) return inside == 1 && strcmp(key, "body") == 0 ? TYPED : TEXTS;
    return TYPED;
}

static bool put_pair(struct pl_yaml *y, const struct pl_option *o, const yaml_node_pair_t *pair,
                     enum form form, unsigned depth, unsigned inside, struct pl_buf *out) {
    const yaml_node_t *key = pl_yaml_node(y, pair->key), *value = pl_yaml_node(y, pair->value);
    const char *name = pl_yaml_scalar(y, key);
    if (name == NULL || !pl_yaml_visit(y, key, depth)) return false;
    if (!pl_buf_add_json(out, name, strlen(name)) || !pl_buf_adds(out, ":")) return full(y, key);
    return put(y, o, value, form_below(o, name, value, form, inside), depth + 1, inside + 1, out);
}

static bool put_mapping(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node, enum form form,
                        unsigned depth, unsigned inside, struct pl_buf *out) {
    const yaml_node_pair_t *start = node->data.mapping.pairs.start, *end = node->data.mapping.pairs.top;
    if (!pl_yaml_no_twins(y, node)) return false;
    bool ok = pl_buf_adds(out, "{") || full(y, node);
    for (const yaml_node_pair_t *pair = start; ok && pair < end; pair++) {
        ok = pair == start || pl_buf_adds(out, ",") || full(y, node);
        ok = ok && put_pair(y, o, pair, form, depth, inside, out);
    }
    return ok && (pl_buf_adds(out, "}") || full(y, node));
}

static bool put_sequence(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node,
                         enum form form, unsigned depth, unsigned inside, struct pl_buf *out) {
    const yaml_node_item_t *start = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    bool ok = pl_buf_adds(out, "[") || full(y, node);
    for (const yaml_node_item_t *item = start; ok && item < end; item++) {
        ok = item == start || pl_buf_adds(out, ",") || full(y, node);
        ok = ok && put(y, o, pl_yaml_node(y, *item), form, depth + 1, inside + 1, out);
    }
    return ok && (pl_buf_adds(out, "]") || full(y, node));
}

static bool put(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node, enum form form,
                unsigned depth, unsigned inside, struct pl_buf *out) {
    if (!pl_yaml_visit(y, node, depth)) return false;
    if (node->type == YAML_SEQUENCE_NODE) return put_sequence(y, o, node, form, depth, inside, out);
    if (node->type == YAML_MAPPING_NODE) return put_mapping(y, o, node, form, depth, inside, out);
    return put_scalar(y, node, form, out);
}

static bool takes_sequence(enum pl_option_type type) {
    return type == PL_OPTION_LIST || type == PL_OPTION_ADDRESSES || type == PL_OPTION_GPUS ||
           type == PL_OPTION_WARMUP;
}

static bool takes_mapping(enum pl_option_type type) { return type == PL_OPTION_MAP || type == PL_OPTION_ENV; }

bool pl_yaml_value(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *node, unsigned depth,
                   struct pl_buf *out) {
    bool list = node->type == YAML_SEQUENCE_NODE, map = node->type == YAML_MAPPING_NODE;
    if ((list && takes_sequence(o->type)) || (map && takes_mapping(o->type)))
        return put(y, o, node, TEXTS, depth, 0, out);
    if (list || map)
        return PL_FAIL(y->err, PL_E_CONFIG, "%s: %s: %s is wanted, not a %s", pl_yaml_place(y, node).text,
                       o->key, pl_option_type_name(o->type), map ? "mapping" : "list");
    if (pl_yaml_is_null(node)) {
        PL_FAIL(y->err, PL_E_CONFIG, "%s: %s has no value", pl_yaml_place(y, node).text, o->key);
        return pl_err_hint(y->err, "leave the key out for its default");
    }
    return pl_yaml_visit(y, node, depth) && expanded(y, node, out);
}

bool pl_yaml_item(struct pl_yaml *y, const struct pl_option *o, const yaml_node_t *item, unsigned depth,
                  struct pl_buf *out) {
    if (!pl_buf_adds(out, "[")) return full(y, item);
    return put(y, o, item, TEXTS, depth, 1, out) && (pl_buf_adds(out, "]") || full(y, item));
}

bool pl_yaml_pair(struct pl_yaml *y, const struct pl_option *o, const yaml_node_pair_t *pair, unsigned depth,
                  struct pl_buf *out) {
    const yaml_node_t *key = pl_yaml_node(y, pair->key);
    if (!pl_buf_adds(out, "{")) return full(y, key);
    return put_pair(y, o, pair, TEXTS, depth, 0, out) && (pl_buf_adds(out, "}") || full(y, key));
}
