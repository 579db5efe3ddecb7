/* yaml.c - libyaml kept within bounds. Two passes: the first counts events, so that nothing large is ever
 * built. */
#include "config/yaml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FILE_SHOWN = 160 };

/* Of a very long path the end is what tells files apart. */
static struct pl_place place_at(const char *file, yaml_mark_t mark) {
    struct pl_place p;
    size_t n = strlen(file);
    bool cut = n > FILE_SHOWN;
    snprintf(p.text, sizeof p.text, "%s%s:%zu:%zu", cut ? "..." : "", cut ? file + n - FILE_SHOWN : file,
             mark.line + 1, mark.column + 1);
    for (char *at = p.text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    return p;
}

struct pl_place pl_yaml_place(const struct pl_yaml *y, const yaml_node_t *node) {
    return place_at(y->file, node->start_mark);
}

static bool not_yaml(struct pl_yaml *y, const yaml_parser_t *parser, const char *text, size_t len) {
    if (parser->error == YAML_MEMORY_ERROR) return PL_FAIL(y->err, PL_E_NOMEM, "%s: no memory", y->file);
    if (parser->error == YAML_READER_ERROR)
        return PL_FAIL(y->err, PL_E_CONFIG, "%s: byte %zu: %s", pl_quote(y->file).text,
                       parser->problem_offset, parser->problem);
    yaml_mark_t at = parser->problem_mark;
    PL_FAIL(y->err, PL_E_CONFIG, "%s: %s%s%s", place_at(y->file, at).text, parser->problem,
            parser->context != NULL ? ", " : "", parser->context != NULL ? parser->context : "");
    if (at.index < len && text[at.index] == '\t')
        pl_err_hint(y->err, "YAML is indented with spaces, not tabs");
    return false;
}

/* First pass: depth, number of nodes, number of documents. */
static bool count_event(struct pl_yaml *y, const yaml_event_t *event, size_t *nodes, size_t *depth,
                        size_t *docs) {
    struct pl_place place = place_at(y->file, event->start_mark);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*docs > 1) return PL_FAIL(y->err, PL_E_CONFIG, "%s: a second document", place.text);
        return true;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (++*depth > PL_YAML_DEPTH)
            return PL_FAIL(y->err, PL_E_CONFIG, "%s: nested more than %d deep", place.text, PL_YAML_DEPTH);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        --*depth;
        return true;
    case YAML_SCALAR_EVENT:
    case YAML_ALIAS_EVENT:
        break;
    default:
        return true;
    }
    if (++*nodes > PL_YAML_NODES)
        return PL_FAIL(y->err, PL_E_CONFIG, "%s: more than %d values", place.text, PL_YAML_NODES);
    return true;
}

static bool count(struct pl_yaml *y, const char *text, size_t len) {
    yaml_parser_t parser;
    size_t nodes = 0, depth = 0, docs = 0;
    bool ok = true, more = true;
    if (!yaml_parser_initialize(&parser)) return PL_FAIL(y->err, PL_E_NOMEM, "%s: no memory", y->file);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (ok && more) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            ok = not_yaml(y, &parser, text, len);
            break;
        }
        ok = count_event(y, &event, &nodes, &depth, &docs);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return ok;
}

bool pl_yaml_load(struct pl_yaml *y, const char *text, size_t len) {
    yaml_parser_t parser;
    if (len > PL_YAML_BYTES)
        return PL_FAIL(y->err, PL_E_TOO_LARGE, "%s: larger than 1 MiB", pl_quote(y->file).text);
    if (!count(y, text, len)) return false;
    if (!yaml_parser_initialize(&parser)) return PL_FAIL(y->err, PL_E_NOMEM, "%s: no memory", y->file);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    bool ok = yaml_parser_load(&parser, &y->doc) || not_yaml(y, &parser, text, len);
    yaml_parser_delete(&parser);
    return ok;
}

void pl_yaml_free(struct pl_yaml *y) { yaml_document_delete(&y->doc); }

yaml_node_t *pl_yaml_node(struct pl_yaml *y, int id) { return yaml_document_get_node(&y->doc, id); }

bool pl_yaml_visit(struct pl_yaml *y, const yaml_node_t *node, unsigned depth) {
    if (depth > PL_YAML_DEPTH)
        return PL_FAIL(y->err, PL_E_CONFIG, "%s: nested more than %d deep", pl_yaml_place(y, node).text,
                       PL_YAML_DEPTH);
    if (++y->visited > PL_YAML_NODES)
        return PL_FAIL(y->err, PL_E_CONFIG, "%s: more than %d values, aliases counted each time",
                       pl_yaml_place(y, node).text, PL_YAML_NODES);
    return true;
}

const char *pl_yaml_scalar(struct pl_yaml *y, const yaml_node_t *node) {
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
    if (text == NULL)
        PL_FAIL(y->err, PL_E_CONFIG, "%s: one value is wanted here, not a %s", pl_yaml_place(y, node).text,
                node->type == YAML_MAPPING_NODE ? "mapping" : "list");
    else if (strlen(text) != node->data.scalar.length)
        PL_FAIL(y->err, PL_E_CONFIG, "%s: a zero byte in a value", pl_yaml_place(y, node).text), text = NULL;
    return text;
}

bool pl_yaml_is_null(const yaml_node_t *node) {
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const char *text = (const char *)node->data.scalar.value;
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

bool pl_yaml_no_twins(struct pl_yaml *y, const yaml_node_t *mapping) {
    const yaml_node_pair_t *start = mapping->data.mapping.pairs.start, *end = mapping->data.mapping.pairs.top;
    for (const yaml_node_pair_t *a = start; a < end; a++) {
        const yaml_node_t *key = pl_yaml_node(y, a->key);
        const char *text = pl_yaml_scalar(y, key);
        if (text == NULL) return false;
        for (const yaml_node_pair_t *b = start; b < a; b++) {
            const yaml_node_t *other = pl_yaml_node(y, b->key);
            if (other->data.scalar.length != key->data.scalar.length ||
                strcmp((const char *)other->data.scalar.value, text) != 0)
                continue;
            return PL_FAIL(y->err, PL_E_CONFIG, "%s: '%s' is there already (%s)", pl_yaml_place(y, key).text,
                           pl_quote(text).text, pl_yaml_place(y, other).text);
        }
    }
    return true;
}
