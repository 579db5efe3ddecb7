#include "http/query.h"

#include <string.h>

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place up to `end`, and ends the piece with NUL. False: broken, or a NUL in it. */
static bool decode(char *from, const char *end) {
    char *out = from;
    for (const char *in = from; in < end; in++) {
        char c = *in == '+' ? ' ' : *in;
        if (*in == '%') {
            int high = end - in > 2 ? hex(in[1]) : -1, low = high >= 0 ? hex(in[2]) : -1;
            if (low < 0) return false;
            c = (char)(high * 16 + low);
            in += 2;
        }
        if (c == '\0') return false;
        *out++ = c;
    }
    *out = '\0';
    return true;
}

static bool add_param(struct pl_http_query *q, char *at, char *end) {
    char *equals = memchr(at, '=', (size_t)(end - at));
    if (q->count == PL_HTTP_MAX_PARAMS || (equals != NULL && !decode(equals + 1, end)) ||
        !decode(at, equals != NULL ? equals : end))
        return false;
    q->params[q->count].name = at;
    q->params[q->count++].value = equals != NULL ? equals + 1 : "1";
    return true;
}

bool pl_http_query_read(const char *target, size_t len, struct pl_http_query *out) {
    if (len >= sizeof out->text || memchr(target, '\0', len) != NULL) return false;
    memcpy(out->text, target, len);
    out->text[len] = '\0';
    out->path = out->text;
    out->count = 0;
    char *at = strchr(out->text, '?');
    if (at == NULL) return true;
    *at++ = '\0';
    for (bool last = false; !last;) {
        char *end = at + strcspn(at, "&");
        last = *end == '\0';
        if (end > at && !add_param(out, at, end)) return false;
        at = end + 1;
    }
    return true;
}

const char *pl_http_query_get(const struct pl_http_query *q, const char *name) {
    for (size_t i = 0; i < q->count; i++)
        if (strcmp(q->params[i].name, name) == 0) return q->params[i].value;
    return NULL;
}
