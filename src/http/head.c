/* head.c - what is in a head: names recognised, headers found, the head handed on. */
#include <stdlib.h>
#include <string.h>

#include "http/guards.h"

static enum pl_http_field if_named(const char *name, const char *lower, size_t len, enum pl_http_field id) {
    return pl_http_same(name, lower, len) ? id : PL_HF_OTHER;
}
#define IS(lower, id) if_named(name, lower, sizeof(lower) - 1, PL_HF_##id)
#define ELSE_IS(lower, id) \
    if (found == PL_HF_OTHER) found = IS(lower, id)

/* By length first: most names differ in it, and of those that do not, in their first byte. A test walks the
 * table. */
static enum pl_http_field exactly(const char *name, size_t len) {
    enum pl_http_field found = PL_HF_OTHER;
    switch (len) {
    case 2:
        return IS("te", TE);
    case 4:
        found = IS("host", HOST);
        ELSE_IS("date", DATE);
        return found;
    case 6:
        found = IS("expect", EXPECT);
        ELSE_IS("origin", ORIGIN);
        ELSE_IS("server", SERVER);
        return found;
    case 7:
        found = IS("upgrade", UPGRADE);
        ELSE_IS("trailer", TRAILER);
        return found;
    case 9:
        found = IS("x-api-key", X_API_KEY);
        ELSE_IS("forwarded", FORWARDED);
        return found;
    case 10:
        found = IS("connection", CONNECTION);
        ELSE_IS("keep-alive", KEEP_ALIVE);
        ELSE_IS("x-priority", PRIORITY);
        return found;
    case 11:
        found = IS("traceparent", TRACEPARENT);
        ELSE_IS("retry-after", RETRY_AFTER);
        return found;
    case 12:
        found = IS("content-type", CONTENT_TYPE);
        ELSE_IS("x-request-id", X_REQUEST_ID);
        return found;
    case 13:
        return IS("authorization", AUTHORIZATION);
    case 14:
        return IS("content-length", CONTENT_LENGTH);
    case 15:
        return IS("x-forwarded-for", X_FORWARDED_FOR);
    case 16:
        found = IS("content-encoding", CONTENT_ENCODING);
        ELSE_IS("x-forwarded-host", X_FORWARDED_HOST);
        ELSE_IS("proxy-connection", PROXY_CONNECTION);
        return found;
    case 17:
        found = IS("transfer-encoding", TRANSFER_ENCODING);
        ELSE_IS("x-forwarded-proto", X_FORWARDED_PROTO);
        return found;
    case 18:
        return IS("proxy-authenticate", PROXY_AUTHENTICATE);
    case 19:
        return IS("proxy-authorization", PROXY_AUTHORIZATION);
    case 20:
        return IS("x-bentoml-request-id", X_BENTOML_REQUEST_ID);
    case 29:
        return IS("access-control-request-method", ACCESS_CONTROL_REQUEST_METHOD);
    default:
        return PL_HF_OTHER;
    }
}

enum pl_http_field pl_http_field_of(const char *name, size_t len) {
    static const char own[] = "x-plimsoll-";
    if (len >= sizeof own - 1 && pl_http_same(name, own, sizeof own - 1)) return PL_HF_X_PLIMSOLL;
    return exactly(name, len);
}

const struct pl_http_header *pl_http_find(const struct pl_http_head *h, enum pl_http_field id) {
    for (uint32_t i = 0; i < h->header_count; i++)
        if (h->headers[i].id == id) return &h->headers[i];
    return NULL;
}

const struct pl_http_header *pl_http_find_named(const struct pl_http_head *h, const char *name) {
    size_t len = strlen(name);
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct pl_http_header *f = &h->headers[i];
        if (f->name_len == len && f->id != PL_HF_NAMED && pl_http_same(pl_http_at(h, f->name), name, len))
            return f;
    }
    return NULL;
}

void pl_http_head_take(struct pl_http_parser *p, struct pl_http_head *out) {
    *out = p->head;
    p->head.text = (struct pl_buf){ 0 };
    p->head.headers = NULL;
    p->head.header_count = p->head.header_room = 0;
}

void pl_http_head_free(struct pl_http_head *h) {
    pl_buf_free(&h->text);
    free(h->headers);
    *h = (struct pl_http_head){ 0 };
}
