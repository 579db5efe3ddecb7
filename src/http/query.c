#include "http/query.h"

#include <string.h>

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* NULL: broken, or no memory. In a path '+' is itself and an escaped slash is refused: it would make another
 * path. */
static const char *decode(struct pl_arena *a, const char *s, size_t len, bool path) {
    char *out = pl_arena_strndup(a, s, len);
    size_t n = 0;
    for (size_t i = 0; out != NULL && i < len; i++) {
        char c = s[i];
        if (c == '+' && !path) c = ' ';
        if (c == '%') {
            int high = len - i > 2 ? hex(s[i + 1]) : -1, low = high >= 0 ? hex(s[i + 2]) : -1;
            if (low < 0) return NULL;
            c = (char)(high * 16 + low);
            if (path && c == '/') return NULL;
            i += 2;
        }
        if (c == '\0') return NULL;
        out[n++] = c;
    }
    if (out != NULL) out[n] = '\0';
    return out;
}

static bool add_param(struct pl_http_query *q, struct pl_arena *a, const char *s, size_t len) {
    const char *equals = memchr(s, '=', len);
    size_t name_len = equals != NULL ? (size_t)(equals - s) : len;
    if (q->count == PL_HTTP_MAX_PARAMS) return false;
    struct pl_http_param *p = &q->params[q->count++];
    p->name = decode(a, s, name_len, false);
    p->value = equals != NULL ? decode(a, equals + 1, len - name_len - 1, false) : "";
    return p->name != NULL && p->value != NULL;
}

bool pl_http_query_parse(const char *target, size_t len, struct pl_arena *a, struct pl_http_query *out) {
    const char *end = target + len, *mark = memchr(target, '?', len);
    const char *path_end = mark != NULL ? mark : end;
    *out = (struct pl_http_query){ .path = decode(a, target, (size_t)(path_end - target), true) };
    if (out->path == NULL) return false;
    if (mark == NULL) return true;
    out->params = pl_arena_alloc(a, PL_HTTP_MAX_PARAMS * sizeof *out->params);
    if (out->params == NULL) return false;
    for (const char *s = mark + 1; s < end;) {
        const char *amp = memchr(s, '&', (size_t)(end - s));
        const char *stop = amp != NULL ? amp : end;
        if (stop > s && !add_param(out, a, s, (size_t)(stop - s))) return false;
        s = amp != NULL ? amp + 1 : end;
    }
    return true;
}

const char *pl_http_query_get(const struct pl_http_query *q, const char *name) {
    for (size_t i = 0; i < q->count; i++)
        if (strcmp(q->params[i].name, name) == 0) return q->params[i].value;
    return NULL;
}
