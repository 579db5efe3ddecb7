#include "llama/schema.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 32, REFS = 64, STEPS = 10000, PLACE_BYTES = 160, PROPERTIES = 64 };

struct making {
    const json_t *root;
    struct pl_buf *out;      /* the expression in the making */
    struct pl_buf *finished; /* whole rules */
    char *fault;
    size_t fault_room;
    char place[PLACE_BYTES]; /* JSON pointer of what is being read */
    unsigned rules;
    const char *refs[REFS]; /* pointers that have a rule, by number */
    unsigned ref_rules[REFS];
    size_t ref_count;
};

/* What every grammar brings. Whitespace is bounded. */
static const char common[] =
    "ws ::= \" \"?\n"
    "char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" hex hex hex hex)\n"
    "hex ::= [0-9a-fA-F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,17})\n"
    "number ::= integer (\".\" [0-9]{1,17})? ([eE] [-+]? [0-9]{1,3})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "d2 ::= [0-9] [0-9]\n"
    "date ::= d2 d2 \"-\" (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])\n"
    "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{3})? "
    "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9])\n";

static bool fail(struct making *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct making *m, const char *fmt, ...) {
    va_list ap;
    int n = snprintf(m->fault, m->fault_room, "%s: ", m->place[0] != '\0' ? m->place : "the schema");
    va_start(ap, fmt);
    if (n > 0 && (size_t)n < m->fault_room) vsnprintf(m->fault + n, m->fault_room - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

static bool add(struct making *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool add(struct making *m, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof text && pl_buf_add(m->out, text, (size_t)n)) return true;
    return fail(m, "the grammar of this schema is longer than 64 KiB");
}

/* A JSON text as a GBNF literal. */
static bool add_literal(struct making *m, const char *text, size_t len) {
    bool ok = add(m, "\"");
    for (size_t i = 0; i < len && ok; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            ok = add(m, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            ok = add(m, "\\x%02X", c);
        else
            ok = add(m, "%c", c);
    }
    return ok && add(m, "\"");
}

static bool add_json(struct making *m, const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    bool ok = text != NULL && add_literal(m, text, strlen(text));
    free(text);
    return ok || text != NULL || fail(m, "out of memory");
}

/* --- which keywords */

static bool is_one_of(const char *word, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

static bool known_only(struct making *m, const json_t *s, const char *const *known) {
    static const char *const notes[] = { "title",    "description", "default", "examples",    "$schema",
                                         "$id",      "$comment",    "$defs",   "definitions", "deprecated",
                                         "readOnly", "writeOnly",   NULL };
    for (void *i = json_object_iter((json_t *)(uintptr_t)s); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)s, i)) {
        const char *key = json_object_iter_key(i);
        if (!is_one_of(key, notes) && !is_one_of(key, known))
            return fail(m, "the keyword %.40s is not supported here", key);
    }
    return true;
}

static bool bound(struct making *m, const json_t *s, const char *key, int64_t low, int64_t high,
                  int64_t *out) {
    const json_t *v = json_object_get(s, key);
    if (v == NULL) return true;
    if (!json_is_integer(v) || json_integer_value(v) < low || json_integer_value(v) > high)
        return fail(m, "%s: a whole number from %" PRId64 " to %" PRId64, key, low, high);
    *out = json_integer_value(v);
    return true;
}

/* --- the kinds: each appends an expression */

static bool schema(struct making *m, const json_t *s, int depth);

/* At `key` one step deeper; `leave` takes the step back. */
static size_t enter(struct making *m, const char *key) {
    size_t n = strlen(m->place);
    snprintf(m->place + n, sizeof m->place - n, "/%s", key);
    return n;
}
static void leave(struct making *m, size_t n) { m->place[n] = '\0'; }

static bool is_required(const json_t *s, const char *name) {
    const json_t *list = json_object_get(s, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one != NULL && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* "name": value, as a rule of its own. */
static bool property(struct making *m, const char *name, const json_t *s, int depth) {
    char *key = NULL;
    json_t *text = json_string(name);
    key = text != NULL ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    json_decref(text);
    bool ok =
        key != NULL && add_literal(m, key, strlen(key)) && add(m, " \":\" ws ") && schema(m, s, depth + 1);
    free(key);
    return ok;
}

/* Properties in order, each with the comma it needs: those not required in nested optional groups, so that a
 * comma stands exactly between two that are there. With required ones first in line the comma leads; before
 * the first required one it trails. */
static bool properties(struct making *m, const json_t *s, const json_t *all, int depth) {
    const char *names[PROPERTIES];
    size_t count = 0, first = PROPERTIES;
    for (void *i = json_object_iter((json_t *)(uintptr_t)all); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)all, i)) {
        if (count == PROPERTIES) return fail(m, "more than %d properties", PROPERTIES);
        names[count] = json_object_iter_key(i);
        if (first == PROPERTIES && is_required(s, names[count])) first = count;
        count++;
    }
    bool ok = true;
    if (first == PROPERTIES) { /* none is required: any beginning among them */
        ok = add(m, "(");
        for (size_t i = 0; i < count && ok; i++) {
            ok = add(m, i > 0 ? " | " : "") && property(m, names[i], json_object_get(all, names[i]), depth);
            for (size_t k = i + 1; k < count && ok; k++)
                ok = add(m, " (\",\" ws ") && property(m, names[k], json_object_get(all, names[k]), depth) &&
                     add(m, ")?");
        }
        return ok && add(m, ")?");
    }
    for (size_t i = 0; i < first && ok; i++)
        ok = add(m, "(") && property(m, names[i], json_object_get(all, names[i]), depth) &&
             add(m, " \",\" ws )? ");
    ok = ok && property(m, names[first], json_object_get(all, names[first]), depth);
    for (size_t i = first + 1; i < count && ok; i++) {
        bool must = is_required(s, names[i]);
        ok = add(m, must ? " \",\" ws " : " (\",\" ws ") &&
             property(m, names[i], json_object_get(all, names[i]), depth) && add(m, must ? "" : ")?");
    }
    return ok;
}

static bool object(struct making *m, const json_t *s, int depth) {
    static const char *const known[] = { "type", "properties", "required", "additionalProperties", NULL };
    const json_t *all = json_object_get(s, "properties"), *more = json_object_get(s, "additionalProperties");
    const json_t *required = json_object_get(s, "required");
    if (!known_only(m, s, known)) return false;
    if (more != NULL && !json_is_boolean(more))
        return fail(m, "additionalProperties: only true or false is supported");
    if (all != NULL && !json_is_object(all)) return fail(m, "properties: an object");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name == NULL || json_object_get(all, name) == NULL)
            return fail(m, "required: %.60s is not among the properties", name != NULL ? name : "a name");
    }
    if (json_object_size(all) == 0) return json_is_false(more) ? add(m, "\"{\" ws \"}\"") : add(m, "object");
    size_t at = enter(m, "properties");
    bool ok = add(m, "\"{\" ws ") && properties(m, s, all, depth) && add(m, " ws \"}\"");
    if (ok) leave(m, at);
    return ok;
}

/* A rule of its own, into the finished ones. */
static bool rule_of(struct making *m, const char *name, unsigned number, const json_t *s, int depth) {
    struct pl_buf *outer = m->out, mine;
    pl_buf_init(&mine, outer->cap);
    m->out = &mine;
    bool ok = schema(m, s, depth) && add(m, "\n");
    m->out = m->finished;
    ok = ok && (number > 0 ? add(m, "%s%u ::= ", name, number) : add(m, "%s ::= ", name)) &&
         (pl_buf_add(m->finished, mine.data, mine.len) ||
          fail(m, "the grammar of this schema is longer than 64 KiB"));
    m->out = outer;
    pl_buf_free(&mine);
    return ok;
}

static bool array(struct making *m, const json_t *s, int depth) {
    static const char *const known[] = { "type", "items", "minItems", "maxItems", NULL };
    int64_t least = 0, most = -1;
    const json_t *items = json_object_get(s, "items");
    if (!known_only(m, s, known) || !bound(m, s, "minItems", 0, 1000, &least) ||
        !bound(m, s, "maxItems", 0, 1000, &most))
        return false;
    if (most >= 0 && most < least) return fail(m, "maxItems is below minItems");
    if (most == 0) return add(m, "\"[\" ws \"]\"");
    unsigned rule = 0;
    if (items != NULL) { /* named, since it stands twice */
        size_t at = enter(m, "items");
        if (!rule_of(m, "item", rule = ++m->rules, items, depth + 1)) return false;
        leave(m, at);
    }
    char item[24] = "value";
    if (rule != 0) snprintf(item, sizeof item, "item%u", rule);
    if (!add(m, least == 0 ? "\"[\" ws (%s" : "\"[\" ws %s", item)) return false;
    int64_t rest_least = least > 0 ? least - 1 : 0;
    bool ok = most < 0 ? add(m, " (\",\" ws %s){%" PRId64 ",}", item, rest_least)
                       : add(m, " (\",\" ws %s){%" PRId64 ",%" PRId64 "}", item, rest_least, most - 1);
    return ok && add(m, least == 0 ? ")? ws \"]\"" : " ws \"]\"");
}

static bool string(struct making *m, const json_t *s) {
    static const char *const known[] = { "type", "minLength", "maxLength", "format", NULL };
    int64_t least = 0, most = -1;
    const char *format = json_string_value(json_object_get(s, "format"));
    if (!known_only(m, s, known) || !bound(m, s, "minLength", 0, 2000, &least) ||
        !bound(m, s, "maxLength", 0, 2000, &most))
        return false;
    if (most >= 0 && most < least) return fail(m, "maxLength is below minLength");
    if (json_object_get(s, "format") != NULL) {
        if (format == NULL) return fail(m, "format: a string");
        if (least > 0 || most >= 0) return fail(m, "format together with a length is not supported");
        if (strcmp(format, "date") == 0) return add(m, "\"\\\"\" date \"\\\"\"");
        if (strcmp(format, "time") == 0) return add(m, "\"\\\"\" time \"\\\"\"");
        if (strcmp(format, "date-time") == 0) return add(m, "\"\\\"\" date \"T\" time \"\\\"\"");
        if (strcmp(format, "uuid") == 0)
            return add(m, "\"\\\"\" hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12} \"\\\"\"");
        return fail(m, "format %.30s: date, time, date-time and uuid are supported", format);
    }
    if (least == 0 && most < 0) return add(m, "string");
    if (most < 0) return add(m, "\"\\\"\" char{%" PRId64 ",} \"\\\"\"", least);
    return add(m, "\"\\\"\" char{%" PRId64 ",%" PRId64 "} \"\\\"\"", least, most);
}

/* Whole numbers from `low` to `high`, both of the same sign and count of digits or with what is between them.
 */
static bool digits_between(struct making *m, uint64_t low, uint64_t high) {
    char a[24], b[24];
    int na = snprintf(a, sizeof a, "%" PRIu64, low), nb = snprintf(b, sizeof b, "%" PRIu64, high);
    bool ok = add(m, "(");
    for (int n = na; n <= nb && ok; n++) { /* one count of digits after the other */
        char lo[24], hi[24];
        memset(lo, '0', sizeof lo), memset(hi, '9', sizeof hi);
        lo[0] = n == 1 ? '0' : '1';
        if (n == na) memcpy(lo, a, (size_t)n);
        if (n == nb) memcpy(hi, b, (size_t)n);
        ok = add(m, n > na ? " | (" : "(");
        /* Every number between is: a common head, then below the first differing digit of hi, or above that
         * of lo. */
        bool any = false;
        int same = 0;
        while (same < n && lo[same] == hi[same]) same++;
        if (same == n) {
            ok = ok && add(m, "\"%.*s\"", n, lo);
            any = true;
        } else {
            if (hi[same] - lo[same] > 1) {
                ok = ok && (same > 0 ? add(m, "\"%.*s\" ", same, lo) : true) &&
                     add(m, "[%c-%c] [0-9]{%d}", lo[same] + 1, hi[same] - 1, n - same - 1);
                any = true;
            }
            for (int side = 0; side < 2 && ok; side++) { /* with lo's head, then with hi's */
                const char *edge = side == 0 ? lo : hi;
                for (int k = same + 1; k < n && ok; k++) {
                    char from = side == 0 ? (char)(edge[k] + 1) : '0',
                         to = side == 0 ? '9' : (char)(edge[k] - 1);
                    if (from > to) continue;
                    ok = add(m, "%s\"%.*s\" [%c-%c] [0-9]{%d}", any ? " | " : "", k, edge, from, to,
                             n - k - 1);
                    any = true;
                }
                ok = ok && add(m, "%s\"%.*s\"", any ? " | " : "", n, edge);
                any = true;
            }
        }
        ok = ok && add(m, ")");
    }
    return ok && add(m, ")");
}

static bool integer(struct making *m, const json_t *s) {
    static const char *const known[] = { "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                         NULL };
    const int64_t edge = INT64_C(1000000000000000); /* 10^15: what a double still holds exactly */
    int64_t low = -edge, high = edge, open_low = -edge - 1, open_high = edge + 1;
    if (!known_only(m, s, known) || !bound(m, s, "minimum", -edge, edge, &low) ||
        !bound(m, s, "maximum", -edge, edge, &high) ||
        !bound(m, s, "exclusiveMinimum", -edge, edge, &open_low) ||
        !bound(m, s, "exclusiveMaximum", -edge, edge, &open_high))
        return false;
    if (low <= open_low) low = open_low + 1;
    if (high >= open_high) high = open_high - 1;
    if (low > high) return fail(m, "no whole number is between the minimum and the maximum");
    if (low == -edge && high == edge) return add(m, "integer");
    bool ok = add(m, "("), both = low < 0 && high >= 0;
    if (low < 0)
        ok = ok && add(m, "\"-\" ") && digits_between(m, (uint64_t)(high < 0 ? -high : 1), (uint64_t)-low);
    if (both) ok = ok && add(m, " | ");
    if (high >= 0) ok = ok && digits_between(m, (uint64_t)(low > 0 ? low : 0), (uint64_t)high);
    return ok && add(m, ")");
}

static bool choices(struct making *m, const json_t *list, const char *key, int depth) {
    if (json_array_size(list) == 0 || json_array_size(list) > 256)
        return fail(m, "%s: a list of 1 to 256", key);
    bool ok = add(m, "(");
    for (size_t i = 0; i < json_array_size(list) && ok; i++) {
        char step[32];
        snprintf(step, sizeof step, "%s/%zu", key, i);
        size_t at = enter(m, step);
        ok = add(m, i > 0 ? " | " : "") && (depth < 0 ? add_json(m, json_array_get(list, i))
                                                      : schema(m, json_array_get(list, i), depth + 1));
        if (ok) leave(m, at);
    }
    return ok && add(m, ")");
}

/* "#/$defs/node": a rule by number, written once all that use it are known. */
static bool is_reference(const char *to) {
    size_t n = strncmp(to, "#/$defs/", 8) == 0 ? 8 : strncmp(to, "#/definitions/", 14) == 0 ? 14 : 0;
    return strcmp(to, "#") == 0 || (n > 0 && to[n] != '\0' && strpbrk(to + n, "/~%") == NULL);
}

static bool reference(struct making *m, const char *to) {
    if (!is_reference(to)) return fail(m, "$ref %.60s: only #/$defs/NAME and # are supported", to);
    for (size_t i = 0; i < m->ref_count; i++)
        if (strcmp(m->refs[i], to) == 0) return add(m, "ref%u", m->ref_rules[i]);
    if (m->ref_count == REFS) return fail(m, "more than %d different $ref", REFS);
    m->refs[m->ref_count] = to;
    m->ref_rules[m->ref_count] = ++m->rules;
    return add(m, "ref%u", m->ref_rules[m->ref_count++]);
}

static bool of_type(struct making *m, const json_t *s, const char *type, int depth) {
    static const char *const plain[] = { "type", NULL };
    if (strcmp(type, "object") == 0) return object(m, s, depth);
    if (strcmp(type, "array") == 0) return array(m, s, depth);
    if (strcmp(type, "string") == 0) return string(m, s);
    if (strcmp(type, "integer") == 0) return integer(m, s);
    static const char *const words[] = { "number", "boolean", "null", NULL };
    if (!is_one_of(type, words)) return fail(m, "type %.30s: no type of JSON", type);
    return known_only(m, s, plain) && add(m, "%s", type);
}

static bool schema(struct making *m, const json_t *s, int depth) {
    if (depth > DEPTH) return fail(m, "nested deeper than %d", DEPTH);
    if (json_is_true(s)) return add(m, "value");
    if (!json_is_object(s)) return fail(m, "a schema is an object");
    static const char *const ref[] = { "$ref", NULL }, *const choice[] = { "enum", "type", NULL },
                             *const fixed[] = { "const", "type", NULL }, *const any[] = { "anyOf", NULL },
                             *const one[] = { "oneOf", NULL };
    const json_t *v;
    if ((v = json_object_get(s, "$ref")) != NULL)
        return known_only(m, s, ref) &&
               (json_is_string(v) ? reference(m, json_string_value(v)) : fail(m, "$ref: a string"));
    if ((v = json_object_get(s, "const")) != NULL) return known_only(m, s, fixed) && add_json(m, v);
    if ((v = json_object_get(s, "enum")) != NULL)
        return known_only(m, s, choice) && choices(m, v, "enum", -1);
    if ((v = json_object_get(s, "anyOf")) != NULL)
        return known_only(m, s, any) && choices(m, v, "anyOf", depth);
    if ((v = json_object_get(s, "oneOf")) != NULL)
        return known_only(m, s, one) && choices(m, v, "oneOf", depth);
    v = json_object_get(s, "type");
    if (json_is_string(v)) return of_type(m, s, json_string_value(v), depth);
    if (json_is_array(v)) { /* ["string", "null"]: each with the keywords that are its own */
        static const char *const none[] = { "type", NULL };
        if (!known_only(m, s, none)) return false;
        bool ok = add(m, "(");
        for (size_t i = 0; i < json_array_size(v) && ok; i++) {
            const char *type = json_string_value(json_array_get(v, i));
            ok = type != NULL ? add(m, i > 0 ? " | " : "") && of_type(m, s, type, depth)
                              : fail(m, "type: names");
        }
        return ok && add(m, ")");
    }
    if (json_object_get(s, "properties") != NULL) return object(m, s, depth);
    if (json_object_get(s, "items") != NULL) return array(m, s, depth);
    static const char *const nothing[] = { NULL };
    return known_only(m, s, nothing) && add(m, "value");
}

static const json_t *referred(const struct making *m, const char *to) {
    if (strcmp(to, "#") == 0) return m->root;
    const char *name = strrchr(to, '/') + 1;
    return json_object_get(json_object_get(m->root, to[2] == '$' ? "$defs" : "definitions"), name);
}

/* Does it lead back to `start` by references and choices alone? Such a rule would be left-recursive, which
 * GBNF is not. `budget`: steps; a schema that takes more is taken for one that does. */
static bool comes_back(const struct making *m, const json_t *s, const json_t *start, int depth, int *budget) {
    if (depth > DEPTH || --*budget < 0) return true;
    const char *to = json_string_value(json_object_get(s, "$ref"));
    const json_t *next = to != NULL && is_reference(to) ? referred(m, to) : NULL;
    if (next != NULL) return next == start || comes_back(m, next, start, depth + 1, budget);
    static const char *const lists[] = { "anyOf", "oneOf" };
    for (size_t k = 0; k < 2 && to == NULL; k++) {
        const json_t *list = json_object_get(s, lists[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (comes_back(m, json_array_get(list, i), start, depth + 1, budget)) return true;
    }
    return false;
}

bool pl_llm_schema(const json_t *root, struct pl_buf *gbnf, char *fault, size_t fault_room) {
    struct making m = {
        .root = root, .out = gbnf, .finished = gbnf, .fault = fault, .fault_room = fault_room
    };
    fault[0] = '\0';
    bool ok = rule_of(&m, "root", 0, root, 0);
    for (size_t i = 0; i < m.ref_count && ok; i++) { /* the list grows while it is worked through */
        snprintf(m.place, sizeof m.place, "%s", m.refs[i]);
        const json_t *s = referred(&m, m.refs[i]);
        int budget = STEPS;
        if (s == NULL)
            ok = fail(&m, "$ref leads nowhere");
        else if (comes_back(&m, s, s, 0, &budget))
            ok = fail(&m, "$ref leads back to itself with nothing in between");
        else
            ok = rule_of(&m, "ref", m.ref_rules[i], s, 0);
    }
    return ok && (pl_buf_adds(gbnf, common) || fail(&m, "the grammar of this schema is longer than 64 KiB"));
}
