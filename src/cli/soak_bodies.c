#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/soak.h"

enum { NAME_BYTES = 80, TEXT_MOST = 64 << 20, ITEMS_MOST = 1 << 24 };

/* --- what can be larger */

struct finding {
    struct pl_soak_spot *out;
    size_t count, room;
    unsigned depth;
};

static void look(struct finding *f, const json_t *v, const char *name) {
    const char *key;
    json_t *child;
    size_t i;
    char below[NAME_BYTES];
    uint64_t size = json_is_array(v)                                  ? json_array_size(v)
                    : json_is_string(v)                               ? json_string_length(v)
                    : json_is_integer(v) && json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v)
                                                                      : 0;
    if (size > 0 && f->count < f->room) {
        f->out[f->count] = (struct pl_soak_spot){ .at = v, .size = size };
        snprintf(f->out[f->count++].name, NAME_BYTES, "%s", name[0] != '\0' ? name : "the body");
    }
    if (++f->depth < PL_SOAK_DEPTH) {
        json_object_foreach((json_t *)(uintptr_t)v, key, child) {
            snprintf(below, sizeof below, "%.40s%s%.36s", name, name[0] != '\0' ? "." : "", key);
            look(f, child, below);
        }
        json_array_foreach(v, i, child) {
            if (i == 2) break; /* its items are alike */
            snprintf(below, sizeof below, "%.60s[%zu]", name, i);
            look(f, child, below);
        }
    }
    f->depth--;
}

static int kind_of(const struct pl_soak_spot *s) {
    return json_is_array(s->at) ? 0 : json_is_string(s->at) ? 1 : 2;
}

size_t pl_soak_spots(const json_t *body, struct pl_soak_spot *out, size_t room) {
    struct finding f = { .out = out, .room = room };
    look(&f, body, "");
    /* lists before texts before numbers; a whole list stays before what is in it */
    for (size_t i = 1; i < f.count; i++)
        for (size_t k = i; k > 0 && kind_of(&out[k - 1]) > kind_of(&out[k]); k--) {
            struct pl_soak_spot t = out[k];
            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    return f.count;
}

static json_t *sized(const json_t *v, uint64_t size) {
    if (json_is_integer(v)) return json_integer((json_int_t)size);
    if (json_is_array(v)) {
        json_t *list = json_array();
        size_t n = json_array_size(v);
        for (uint64_t i = 0; i < size && i < ITEMS_MOST && n > 0; i++)
            json_array_append(list, json_array_get(v, (size_t)(i % n)));
        return list;
    }
    size_t n = json_string_length(v), end;
    const char *text = json_string_value(v);
    if (size > TEXT_MOST) size = TEXT_MOST;
    char *longer = malloc((size_t)size + 1);
    if (longer == NULL || n == 0) {
        free(longer);
        return NULL;
    }
    for (end = 0; end < size; end++) longer[end] = text[end % n];
    while (end > 0 && ((unsigned char)text[end % n] & 0xc0) == 0x80) end--; /* not inside a character */
    longer[end] = '\0';
    json_t *s = json_stringn(longer, end);
    if (s == NULL) { /* it was cut all the same */
        memset(longer, 'a', (size_t)size);
        s = json_stringn(longer, (size_t)size);
    }
    free(longer);
    return s;
}

/* A copy in which `at` is replaced. */
static json_t *with(const json_t *v, const json_t *at, json_t *instead) {
    const char *key;
    json_t *child;
    size_t i;
    if (v == at) return json_incref(instead);
    if (json_is_object(v)) {
        json_t *o = json_object();
        json_object_foreach((json_t *)(uintptr_t)v, key, child)
            json_object_set_new(o, key, with(child, at, instead));
        return o;
    }
    if (json_is_array(v)) {
        json_t *list = json_array();
        json_array_foreach(v, i, child) json_array_append_new(list, with(child, at, instead));
        return list;
    }
    return json_incref((json_t *)(uintptr_t)v);
}

json_t *pl_soak_resized(const json_t *body, const struct pl_soak_spot *spot, uint64_t size) {
    json_t *instead = sized(spot->at, size);
    json_t *out = instead != NULL ? with(body, spot->at, instead) : NULL;
    json_decref(instead);
    return out;
}

/* --- what is wrong */

static json_t *wrong_leaf(const json_t *v, unsigned k) {
    switch (k) {
    case 0: /* the sign: most checks of values see it */
        if (json_is_integer(v) && json_integer_value(v) != 0) return json_integer(-json_integer_value(v));
        return json_is_real(v) && json_real_value(v) != 0 ? json_real(-json_real_value(v)) : NULL;
    case 1:
        return json_is_string(v) && json_string_length(v) > 0 ? json_string("") : NULL;
    case 2:
        if (json_is_integer(v)) return json_integer(1000000007);
        return json_is_real(v) ? json_real(1e30) : NULL;
    case 3:
        return json_is_string(v) ? json_null() : NULL;
    default:
        return NULL;
    }
}

static json_t *wrong(const json_t *v, unsigned k, bool *changed) {
    const char *key;
    json_t *child;
    size_t i;
    if (json_is_object(v)) {
        json_t *o = json_object();
        json_object_foreach((json_t *)(uintptr_t)v, key, child)
            json_object_set_new(o, key, wrong(child, k, changed));
        return o;
    }
    if (json_is_array(v)) {
        json_t *list = json_array();
        if (k == 4 && json_array_size(v) > 0) {
            *changed = true;
            return list; /* nothing in it */
        }
        json_array_foreach(v, i, child) json_array_append_new(list, wrong(child, k, changed));
        return list;
    }
    json_t *other = wrong_leaf(v, k);
    if (other == NULL) return json_incref((json_t *)(uintptr_t)v);
    *changed = true;
    return other;
}

json_t *pl_soak_wrong(const json_t *body, unsigned k) {
    bool changed = false;
    if (k == 5) return json_object(); /* everything is missing */
    json_t *out = k < 5 ? wrong(body, k, &changed) : NULL;
    if (changed) return out;
    json_decref(out);
    return NULL;
}

/* --- what the author wrote */

/* {"$ref": "#/components/schemas/X"} */
static const json_t *follow(const json_t *doc, const json_t *schema) {
    for (int hops = 0; hops < 8; hops++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        if (ref == NULL || strncmp(ref, "#/", 2) != 0) return schema;
        schema = doc;
        for (const char *s = ref + 2; schema != NULL && *s != '\0';) {
            char key[128];
            size_t n = strcspn(s, "/");
            snprintf(key, sizeof key, "%.*s", (int)(n < 127 ? n : 127), s);
            schema = json_object_get(schema, key);
            s += s[n] == '/' ? n + 1 : n;
        }
    }
    return schema;
}

/* Example or default of a schema; of an object, those of its properties. NULL: its author wrote none. */
static json_t *example_of(const json_t *doc, const json_t *schema, int depth) {
    schema = follow(doc, schema);
    json_t *given = json_object_get(schema, "example");
    if (given == NULL) given = json_array_get(json_object_get(schema, "examples"), 0);
    if (given == NULL) given = json_object_get(schema, "default");
    if (given != NULL) return json_incref(given);
    const json_t *properties = json_object_get(schema, "properties");
    if (properties == NULL || depth > 4) return NULL;
    json_t *o = json_object(), *p;
    const char *key;
    const json_t *required = json_object_get(schema, "required"), *name;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)properties, key, p) {
        json_t *value = example_of(doc, p, depth + 1);
        if (value != NULL) json_object_set_new(o, key, value);
    }
    json_array_foreach(required, i, name) if (json_object_get(o, json_string_value(name)) == NULL) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static const json_t *schema_of(const json_t *doc, const json_t *path) {
    const json_t *content = json_object_get(
        follow(doc, json_object_get(json_object_get(path, "post"), "requestBody")), "content");
    return json_object_get(json_object_get(content, "application/json"), "schema");
}

bool pl_soak_example(const json_t *doc, const char *wanted, const char **route, json_t **body,
                     struct pl_err *err) {
    const char *key;
    json_t *path;
    size_t found = 0;
    char names[200] = "";
    *route = wanted;
    json_object_foreach(json_object_get(doc, "paths"), key, path) {
        if (json_object_get(path, "post") == NULL || (wanted != NULL && strcmp(key, wanted) != 0)) continue;
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%.60s", at > 0 ? ", " : "", key);
        *route = key;
        *body = NULL;
        found++;
    }
    if (found > 1) {
        PL_FAIL(err, PL_E_USAGE, "it has several routes: %s", names);
        return pl_err_hint(err, "name one with --route");
    }
    if (found == 0 && wanted == NULL) {
        PL_FAIL(err, PL_E_USAGE, "it does not tell its routes");
        return pl_err_hint(err, "name one with --route, and a body with --body");
    }
    path = json_object_get(json_object_get(doc, "paths"), *route);
    const json_t *schema = schema_of(doc, path);
    *body = schema != NULL ? example_of(doc, schema, 0) : NULL;
    if (*body != NULL) return true;
    PL_FAIL(err, PL_E_USAGE, "%.80s: its schema has no example and no defaults to send", *route);
    return pl_err_hint(err, "give a body: --body @request.json, or --body '{\"x\": 1}'");
}
