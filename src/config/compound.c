/* compound.c - values made of others: addresses, lists, maps, GPUs. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/value.h"

json_t *pl_json_load(const char *text, size_t len, struct pl_err *err) {
    json_error_t at;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &at);
    /* where jansson finds no memory in the middle of a value, it has no words for it */
    if (root == NULL && (at.text[0] == '\0' || json_error_code(&at) == json_error_out_of_memory))
        PL_FAIL(err, PL_E_NOMEM, "no memory to read it");
    else if (root == NULL)
        PL_FAIL(err, PL_E_CONFIG, "is not JSON at byte %d: %s", at.position, pl_quote(at.text).text);
    return root;
}

const char *pl_json_text(const json_t *value, bool nested, struct pl_arena *a, struct pl_err *err) {
    char number[40];
    if (json_is_string(value)) return pl_keep(a, json_string_value(value), json_string_length(value), err);
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    if (json_is_integer(value)) {
        int n = snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return pl_keep(a, number, (size_t)n, err);
    }
    if (json_is_real(value) || (nested && !json_is_null(value))) {
        char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (dumped == NULL) return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large"), NULL;
        const char *copy = pl_keep(a, dumped, strlen(dumped), err);
        free(dumped);
        return copy;
    }
    PL_FAIL(err, PL_E_CONFIG, "%s", json_is_null(value) ? "has no value" : "is nested too deep");
    return NULL;
}

/* ---- addresses ---- */

static bool bad_address(struct pl_err *err, const char *text) {
    PL_FAIL(err, PL_E_CONFIG, "'%s' is not an address", pl_quote(text).text);
    if (text[0] != '\0' && text[strspn(text, "0123456789")] == '\0')
        return pl_err_hint(err, "write 0.0.0.0:%s", pl_quote(text).text);
    return pl_err_hint(err, "write HOST:PORT, [IPV6]:PORT or unix:PATH");
}

static bool parse_port(const char *text, uint16_t *port) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 5 || text[n] != '\0' || atoi(text) > 65535) return false;
    *port = (uint16_t)atoi(text);
    return true;
}

bool pl_parse_address(const char *text, struct pl_arena *a, struct pl_address *out, struct pl_err *err) {
    enum { SUN_PATH = 107 };
    struct pl_address to = { .kind = PL_ADDRESS_TCP };
    if ((to.text = pl_keep(a, text, strlen(text), err)) == NULL) return false;
    if (strncmp(text, "unix:", 5) == 0) {
        to.kind = PL_ADDRESS_UNIX;
        to.path = to.text + 5;
        if (to.path[0] == '\0') return bad_address(err, text);
        if (strlen(to.path) > SUN_PATH)
            return PL_FAIL(err, PL_E_CONFIG, "'%s' is longer than a socket's path may be (%d bytes)",
                           pl_quote(text).text, SUN_PATH);
        *out = to;
        return true;
    }
    const char *colon = strrchr(text, ':'), *host = text;
    if (colon == NULL || !parse_port(colon + 1, &to.port)) return bad_address(err, text);
    size_t n = (size_t)(colon - text);
    if (text[0] == '[') {
        if (n < 3 || text[n - 1] != ']') return bad_address(err, text);
        host++;
        n -= 2;
    } else if (memchr(text, ':', n) != NULL) {
        return bad_address(err, text); /* IPv6 wants brackets */
    }
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)host[i]) && strchr(".-_:%", host[i]) == NULL)
            return bad_address(err, text);
    if (n == 0) return bad_address(err, text);
    if ((to.host = pl_keep(a, host, n, err)) == NULL) return false;
    *out = to;
    return true;
}

/* ---- lists ---- */

static const char *trimmed(const char *s, const char *end, size_t *len) {
    while (s < end && isspace((unsigned char)*s)) s++;
    while (end > s && isspace((unsigned char)end[-1])) end--;
    *len = (size_t)(end - s);
    return s;
}

static bool list_of_json(const char *text, struct pl_arena *a, struct pl_strings *out, struct pl_err *err) {
    json_t *root = pl_json_load(text, strlen(text), err);
    if (root == NULL) return false;
    struct pl_strings list = { 0 };
    bool ok = json_is_array(root) || PL_FAIL(err, PL_E_CONFIG, "is not a list");
    if (ok) list.at = pl_arena_alloc(a, (json_array_size(root) + 1) * sizeof *list.at);
    if (ok && list.at == NULL) ok = PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    for (; ok && list.count < json_array_size(root); list.count++) {
        list.at[list.count] = pl_json_text(json_array_get(root, list.count), false, a, err);
        if (list.at[list.count] == NULL) ok = pl_err_wrap(err, "item %zu", list.count + 1);
    }
    json_decref(root);
    if (ok) *out = list;
    return ok;
}

static bool list_of_commas(const char *text, struct pl_arena *a, struct pl_strings *out, struct pl_err *err) {
    size_t room = 1, len = 0;
    const char *end = text + strlen(text);
    for (const char *s = text; s < end; s++) room += *s == ',';
    struct pl_strings list = { .at = pl_arena_alloc(a, room * sizeof *list.at) };
    if (list.at == NULL) return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    for (const char *s = text; s <= end;) {
        const char *comma = memchr(s, ',', (size_t)(end - s));
        const char *stop = comma != NULL ? comma : end, *item = trimmed(s, stop, &len);
        if (len > 0 && (list.at[list.count++] = pl_keep(a, item, len, err)) == NULL) return false;
        s = stop + 1;
    }
    *out = list;
    return true;
}

bool pl_parse_list(const char *text, struct pl_arena *a, struct pl_strings *out, struct pl_err *err) {
    if (text[strspn(text, " \t\r\n")] == '[') return list_of_json(text, a, out, err);
    return list_of_commas(text, a, out, err);
}

bool pl_parse_addresses(const char *text, struct pl_arena *a, struct pl_addresses *out, struct pl_err *err) {
    struct pl_strings list = { 0 };
    struct pl_addresses to = { 0 };
    const char *s = text + strspn(text, " \t\r\n");
    const char *second = *s == '[' ? s + 1 + strspn(s + 1, " \t\r\n") : "";
    bool json = *second == '"' || strcmp(second, "]") == 0; /* else [::1]:3000 */
    if (!(json ? list_of_json : list_of_commas)(text, a, &list, err)) return false;
    if (list.count == 0) return PL_FAIL(err, PL_E_CONFIG, "is empty");
    to.at = pl_arena_alloc(a, list.count * sizeof *to.at);
    if (to.at == NULL) return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    for (; to.count < list.count; to.count++)
        if (!pl_parse_address(list.at[to.count], a, &to.at[to.count], err)) return false;
    *out = to;
    return true;
}

bool pl_parse_gpus(const char *text, struct pl_arena *a, struct pl_gpus *out, struct pl_err *err) {
    struct pl_gpus gpus = { .all = strcmp(text, "all") == 0 };
    size_t digits = strspn(text, "0123456789");
    if (!gpus.all && digits > 0 && text[digits] == '\0') {
        if (digits > 4) return PL_FAIL(err, PL_E_CONFIG, "'%s' is too many GPUs", pl_quote(text).text);
        gpus.count = atoi(text);
    } else if (!gpus.all) {
        if (!pl_parse_list(text, a, &gpus.list, err)) return false;
        for (size_t i = 0; i < gpus.list.count; i++) {
            const char *gpu = gpus.list.at[i];
            bool index = gpu[0] != '\0' && gpu[strspn(gpu, "0123456789")] == '\0';
            if (index || strncmp(gpu, "GPU-", 4) == 0 || strncmp(gpu, "MIG-", 4) == 0) continue;
            PL_FAIL(err, PL_E_CONFIG, "'%s' is not a GPU", pl_quote(gpu).text);
            return pl_err_hint(err, "write all, how many, or a list of indexes and UUIDs (GPU-..., MIG-...)");
        }
    }
    *out = gpus;
    return true;
}

/* ---- maps ---- */

static bool check_variable(const char *name, struct pl_err *err) {
    bool ok = name[0] != '\0' && !isdigit((unsigned char)name[0]);
    for (const char *s = name; ok && *s != '\0'; s++) ok = isalnum((unsigned char)*s) || *s == '_';
    return ok || PL_FAIL(err, PL_E_CONFIG, "'%s' is not the name of a variable", pl_quote(name).text);
}

static bool map_of_json(const char *text, bool variables, struct pl_arena *a, struct pl_pairs *out,
                        struct pl_err *err) {
    json_t *root = pl_json_load(text, strlen(text), err), *value;
    if (root == NULL) return false;
    struct pl_pairs map = { .at = pl_arena_alloc(a, (json_object_size(root) + 1) * sizeof *map.at) };
    const char *key;
    bool ok = map.at != NULL || PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    json_object_foreach(root, key, value) {
        struct pl_pair *pair = &map.at[map.count++];
        if (!ok || !(ok = !variables || check_variable(key, err))) break;
        ok = (pair->key = pl_keep(a, key, strlen(key), err)) != NULL;
        if (ok && (pair->value = pl_json_text(value, !variables, a, err)) == NULL)
            ok = pl_err_wrap(err, "'%s'", pl_quote(key).text);
        if (!ok) break;
    }
    json_decref(root);
    if (ok) *out = map;
    return ok;
}

/* A=1,B=2 */
static bool map_of_items(const char *text, bool variables, struct pl_arena *a, struct pl_pairs *out,
                         struct pl_err *err) {
    struct pl_strings items = { 0 };
    if (!pl_parse_list(text, a, &items, err)) return false;
    struct pl_pairs map = { .at = pl_arena_alloc(a, (items.count + 1) * sizeof *map.at) };
    if (map.at == NULL) return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    for (; map.count < items.count; map.count++) {
        const char *item = items.at[map.count], *equals = strchr(item, '=');
        struct pl_pair *pair = &map.at[map.count];
        if (equals == NULL || equals == item) {
            PL_FAIL(err, PL_E_CONFIG, "'%s' is not NAME=VALUE", pl_quote(item).text);
            return pl_err_hint(err, "write A=1,B=2 or {\"A\": \"1\"}");
        }
        if ((pair->key = pl_keep(a, item, (size_t)(equals - item), err)) == NULL) return false;
        if (variables && !check_variable(pair->key, err)) return false;
        for (size_t i = 0; i < map.count; i++)
            if (strcmp(map.at[i].key, pair->key) == 0)
                return PL_FAIL(err, PL_E_CONFIG, "'%s' is there twice", pl_quote(pair->key).text);
        pair->value = equals + 1;
    }
    *out = map;
    return true;
}

bool pl_parse_map(const char *text, bool variables, struct pl_arena *a, struct pl_pairs *out,
                  struct pl_err *err) {
    if (text[strspn(text, " \t\r\n")] == '{') return map_of_json(text, variables, a, out, err);
    return map_of_items(text, variables, a, out, err);
}

const char *pl_value_shown(const struct pl_option *o, const char *text, struct pl_arena *a) {
    struct pl_err err;
    if (o->type == PL_OPTION_SECRET) return "(set)";
    if (o->type != PL_OPTION_ENV) return text;
    /* variables carry tokens: only their names are shown */
    struct pl_pairs map = { 0 };
    size_t size = 1;
    if (!pl_parse_map(text, true, a, &map, &err)) return "(set)";
    for (size_t i = 0; i < map.count; i++) size += strlen(map.at[i].key) + sizeof "=(set),";
    char *out = pl_arena_alloc(a, size);
    for (size_t i = 0, used = 0; out != NULL && i < map.count; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s=(set)", i > 0 ? "," : "", map.at[i].key);
    return out;
}
