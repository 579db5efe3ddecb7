/* warmup.c - the list of declared warm-up requests. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/value.h"

static const char *const fields[] = {
    "method", "path", "headers", "content_type", "body", "status", "canary"
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

static bool unknown_field(const char *key, struct pl_err *err) {
    PL_FAIL(err, PL_E_CONFIG, "unknown key '%s'", pl_quote(key).text);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (pl_edit_near(key, fields[i])) return pl_err_hint(err, "did you mean '%s'?", fields[i]);
    return pl_err_hint(err, "keys are method, path, headers, content_type, body, status and canary");
}

static bool is_token(const char *text) {
    if (text[0] == '\0') return false;
    for (; *text != '\0'; text++)
        if (!isalnum((unsigned char)*text) && strchr("!#$%&'*+-.^_`|~", *text) == NULL) return false;
    return true;
}

static bool is_header_value(const char *text) {
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < 0x20 && *text != '\t') || *text == 0x7f) return false;
    return true;
}

static bool read_headers(const json_t *from, struct pl_arena *a, struct pl_pairs *out, struct pl_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(from)) return PL_FAIL(err, PL_E_CONFIG, "headers is not a mapping");
    out->at = pl_arena_alloc(a, (json_object_size(from) + 1) * sizeof *out->at);
    if (out->at == NULL) return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    json_object_foreach((json_t *)(uintptr_t)from, key, value) {
        struct pl_pair *pair = &out->at[out->count++];
        if ((pair->key = pl_keep(a, key, strlen(key), err)) == NULL) return false;
        if ((pair->value = pl_json_text(value, false, a, err)) == NULL) return pl_err_wrap(err, "headers");
        if (!is_token(key) || !is_header_value(pair->value))
            return PL_FAIL(err, PL_E_CONFIG, "'%s' cannot be sent as a header", pl_quote(key).text);
    }
    return true;
}

static bool read_field(const char *key, const json_t *value, struct pl_arena *a, struct pl_warmup_request *r,
                       struct pl_err *err) {
    if (strcmp(key, "headers") == 0) return read_headers(value, a, &r->headers, err);
    const char *text = pl_json_text(value, strcmp(key, "body") == 0, a, err);
    if (text == NULL) return pl_err_wrap(err, "%s", pl_quote(key).text);
    if (strcmp(key, "method") == 0) {
        r->method = text;
        return is_token(text) || PL_FAIL(err, PL_E_CONFIG, "'%s' is not a method", pl_quote(text).text);
    }
    if (strcmp(key, "path") == 0) { /* with its query, unlike a route */
        r->path = text;
        bool ok = text[0] == '/';
        for (const char *s = text; *s != '\0'; s++) ok = ok && (unsigned char)*s > 0x20 && *s != 0x7f;
        return ok || PL_FAIL(err, PL_E_CONFIG, "'%s' is not the path of a URL", pl_quote(text).text);
    }
    if (strcmp(key, "content_type") == 0) {
        r->content_type = text;
        return is_header_value(text) ||
               PL_FAIL(err, PL_E_CONFIG, "'%s' is not a media type", pl_quote(text).text);
    }
    if (strcmp(key, "body") == 0) {
        r->body = text;
        return true;
    }
    if (strcmp(key, "status") == 0) {
        bool ok = strlen(text) == 3 && strspn(text, "0123456789") == 3 && text[0] >= '1' && text[0] <= '5';
        if (!ok) return PL_FAIL(err, PL_E_CONFIG, "'%s' is not an HTTP status", pl_quote(text).text);
        r->status = (uint16_t)atoi(text);
        return true;
    }
    if (strcmp(key, "canary") == 0)
        return pl_parse_switch(text, &r->canary) ||
               PL_FAIL(err, PL_E_CONFIG, "canary: '%s' is neither on nor off", pl_quote(text).text);
    return unknown_field(key, err);
}

static bool read_request(const json_t *from, struct pl_arena *a, struct pl_warmup_request *r,
                         struct pl_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(from)) {
        PL_FAIL(err, PL_E_CONFIG, "is not a mapping");
        return pl_err_hint(err, "write {path: /predict, body: '...'}");
    }
    *r = (struct pl_warmup_request){ .method = "POST" };
    json_object_foreach((json_t *)(uintptr_t)from, key, value) {
        if (!read_field(key, value, a, r, err)) return false;
    }
    return r->path != NULL || PL_FAIL(err, PL_E_CONFIG, "has no path");
}

bool pl_parse_warmup(const char *text, struct pl_arena *a, struct pl_warmup_requests *out,
                     struct pl_err *err) {
    struct pl_warmup_requests list = { 0 };
    if (text[0] == '\0') {
        *out = list;
        return true;
    }
    json_t *root = pl_json_load(text, strlen(text), err);
    if (root == NULL) return false;
    bool ok = json_is_array(root) || PL_FAIL(err, PL_E_CONFIG, "is not a list of requests");
    if (ok) list.at = pl_arena_alloc(a, (json_array_size(root) + 1) * sizeof *list.at);
    if (ok && list.at == NULL) ok = PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
    for (; ok && list.count < json_array_size(root); list.count++) {
        ok = read_request(json_array_get(root, list.count), a, &list.at[list.count], err);
        if (!ok) pl_err_wrap(err, "request %zu", list.count + 1);
    }
    json_decref(root);
    if (ok) *out = list;
    return ok;
}
