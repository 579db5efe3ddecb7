/* file.c - the configuration file: from its tree to pl_config_set, with file:line:col of everything. */
#include <stdio.h>
#include <string.h>

#include "config/value.h"
#include "config/yaml.h"

struct reader {
    struct pl_yaml y;
    struct pl_config *cfg;
};

static bool read_section(struct reader *r, size_t service, const char *prefix, const yaml_node_t *node,
                         unsigned depth);

/* Each item by itself, so that the message has the place of the one that is wrong. */
static bool check_items(struct reader *r, const struct pl_option *o, const yaml_node_t *node,
                        unsigned depth) {
    struct pl_arena scratch;
    struct pl_buf text;
    bool ok = true, list = node->type == YAML_SEQUENCE_NODE;
    union {
        int64_t align;
        char room[128];
    } member;
    if (node->type == YAML_SCALAR_NODE) return true;
    size_t visited = r->y.visited; /* they are read once more as a whole: count them once */
    size_t count = list ? (size_t)(node->data.sequence.items.top - node->data.sequence.items.start)
                        : (size_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
    pl_arena_init(&scratch, 4 * PL_YAML_BYTES);
    pl_buf_init(&text, PL_YAML_BYTES);
    for (size_t i = 0; ok && i < count; i++) {
        const yaml_node_pair_t *pair = list ? NULL : &node->data.mapping.pairs.start[i];
        const yaml_node_t *at = pl_yaml_node(&r->y, list ? node->data.sequence.items.start[i] : pair->key);
        ok = list ? pl_yaml_item(&r->y, o, at, depth + 1, &text)
                  : pl_yaml_pair(&r->y, o, pair, depth + 1, &text);
        if (ok && !pl_value_parse(o, pl_buf_text(&text), &scratch, &member, r->y.err))
            ok = pl_err_wrap(r->y.err, "%s: %s", pl_yaml_place(&r->y, at).text, o->key);
        text.len = 0;
        pl_arena_free(&scratch);
    }
    pl_buf_free(&text);
    r->y.visited = visited;
    return ok;
}

static bool read_value(struct reader *r, size_t service, const struct pl_option *o, const yaml_node_t *key,
                       const yaml_node_t *node, unsigned depth) {
    const struct pl_config_entry *e = pl_config_entry(r->cfg, service, o);
    struct pl_place place = pl_yaml_place(&r->y, node);
    struct pl_buf text;
    if (e->origin == PL_FROM_FILE) /* `a.b: 1` and `a: {b: 1}` */
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: '%s' is there already (%s)",
                       pl_yaml_place(&r->y, key).text, o->key, e->now.place);
    pl_buf_init(&text, PL_YAML_BYTES);
    bool ok =
        pl_yaml_value(&r->y, o, node, depth, &text) && check_items(r, o, node, depth) &&
        pl_config_set_option(r->cfg, service, o, pl_buf_text(&text), PL_FROM_FILE, place.text, r->y.err);
    pl_buf_free(&text);
    return ok;
}

static bool unknown_key(struct reader *r, size_t service, const char *path, const char *word,
                        const yaml_node_t *key) {
    struct pl_place place = pl_yaml_place(&r->y, key);
    if (strcmp(word, "<<") == 0)
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: merge keys (<<) are not read", place.text);
    return pl_config_unknown(place.text, pl_scope_of(service), path, PL_E_CONFIG, r->y.err);
}

static bool read_services(struct reader *r, const yaml_node_t *node, unsigned depth) {
    if (pl_yaml_is_null(node)) return true;
    if (!pl_yaml_visit(&r->y, node, depth)) return false;
    if (node->type != YAML_MAPPING_NODE)
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: services is a mapping: NAME: {run: ...}",
                       pl_yaml_place(&r->y, node).text);
    if (!pl_yaml_no_twins(&r->y, node)) return false;
    const yaml_node_pair_t *end = node->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < end; pair++) {
        const yaml_node_t *key = pl_yaml_node(&r->y, pair->key);
        const char *name = pl_yaml_scalar(&r->y, key);
        struct pl_place place = pl_yaml_place(&r->y, key);
        if (name == NULL) return false;
        if (!pl_is_id(name))
            return PL_FAIL(r->y.err, PL_E_CONFIG,
                           "%s: '%s' is not a name of 1 to 40 letters a-z, digits and '-'", place.text,
                           pl_quote(name).text);
        if (pl_config_find_any(r->cfg, name, false) != SIZE_MAX) /* `services.chat:` beside `services:` */
            return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: service '%s' is there already", place.text, name);
        size_t service = pl_config_add_service(r->cfg, name, place.text, r->y.err);
        if (service == SIZE_MAX) return false;
        if (!read_section(r, service, "", pl_yaml_node(&r->y, pair->value), depth + 1)) return false;
    }
    return true;
}

static bool read_pair(struct reader *r, size_t service, const char *prefix, const yaml_node_pair_t *pair,
                      unsigned depth) {
    const yaml_node_t *key = pl_yaml_node(&r->y, pair->key), *value = pl_yaml_node(&r->y, pair->value);
    const char *word = pl_yaml_scalar(&r->y, key);
    char path[128];
    if (word == NULL || !pl_yaml_visit(&r->y, key, depth)) return false;
    if (service == PL_CFG_INSTANCE && prefix[0] == '\0' && strcmp(word, "services") == 0)
        return read_services(r, value, depth + 1);
    int n = snprintf(path, sizeof path, "%s%s", prefix, word);
    if (n < 0 || (size_t)n >= sizeof path - 1) return unknown_key(r, service, word, word, key);
    const struct pl_option *o = pl_option_find(pl_scope_of(service), path);
    if (o != NULL && o->when != PL_WHEN_INNER) return read_value(r, service, o, key, value, depth + 1);
    if (!pl_option_section(pl_scope_of(service), path)) return unknown_key(r, service, path, word, key);
    snprintf(path + n, sizeof path - (size_t)n, ".");
    return read_section(r, service, path, value, depth + 1);
}

static bool not_a_section(struct reader *r, size_t service, const char *prefix, const yaml_node_t *node) {
    struct pl_place place = pl_yaml_place(&r->y, node);
    if (prefix[0] != '\0') {
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)strlen(prefix) - 1, prefix);
        PL_FAIL(r->y.err, PL_E_CONFIG, "%s: '%s' is a section: its keys go below it", place.text, word);
        if (service == PL_CFG_INSTANCE && pl_option_find(PL_SCOPE_SERVICE, word) != NULL)
            pl_err_hint(r->y.err, "a service's %s belongs below services.NAME", word);
        return false;
    }
    if (service == PL_CFG_INSTANCE)
        return PL_FAIL(r->y.err, PL_E_CONFIG, "%s: the file is not a mapping of keys", place.text);
    PL_FAIL(r->y.err, PL_E_CONFIG, "%s: service '%s' is not a mapping of keys", place.text,
            r->cfg->services[service].id);
    return pl_err_hint(r->y.err, "write %s: {run: module:Class}", r->cfg->services[service].id);
}

static bool read_section(struct reader *r, size_t service, const char *prefix, const yaml_node_t *node,
                         unsigned depth) {
    if (pl_yaml_is_null(node)) return true; /* `traffic:` and nothing below */
    if (!pl_yaml_visit(&r->y, node, depth)) return false;
    if (node->type != YAML_MAPPING_NODE) return not_a_section(r, service, prefix, node);
    if (!pl_yaml_no_twins(&r->y, node)) return false;
    const yaml_node_pair_t *end = node->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < end; pair++)
        if (!read_pair(r, service, prefix, pair, depth)) return false;
    return true;
}

bool pl_config_read_yaml(struct pl_config *cfg, const char *file, const char *text, size_t len,
                         char *const *env, struct pl_err *err) {
    struct reader r = { .y = { .file = file, .env = env, .err = err }, .cfg = cfg };
    cfg->file = pl_keep(&cfg->inside->arena, file, strlen(file), err);
    if (cfg->file == NULL || !pl_yaml_load(&r.y, text, len)) return false;
    const yaml_node_t *root = yaml_document_get_root_node(&r.y.doc);
    bool ok = root == NULL || read_section(&r, PL_CFG_INSTANCE, "", root, 0); /* NULL: an empty file */
    pl_yaml_free(&r.y);
    return ok;
}
