#include "http/write.h"

#include <string.h>

#include "http/guards.h"

/* Room is reserved once for the whole head; a line that does not fit all the same makes the head fail, not
 * overflow. */
struct out {
    char *at, *end;
    bool full;
};

static bool begin(struct out *o, struct pl_buf *b, size_t bytes) {
    if (!pl_buf_reserve(b, bytes)) return false;
    *o = (struct out){ .at = b->data + b->len, .end = b->data + b->len + bytes };
    return true;
}

static bool finish(const struct out *o, struct pl_buf *b) {
    if (!o->full) b->len = (size_t)(o->at - b->data);
    return !o->full;
}

static inline void put(struct out *o, const char *text, size_t len) {
    if ((size_t)(o->end - o->at) < len) {
        o->full = true;
        return;
    }
    memcpy(o->at, text, len);
    o->at += len;
}
#define PUT(o, literal) put((o), (literal), sizeof(literal) - 1)

static void put_text(struct out *o, const char *text) { put(o, text, strlen(text)); }

static void put_number(struct out *o, uint64_t n) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    put(o, digits + at, sizeof digits - at);
}

static void put_hex16(struct out *o, uint64_t n) {
    char digits[16];
    for (int i = 15; i >= 0; i--, n >>= 4) digits[i] = "0123456789abcdef"[n & 15];
    put(o, digits, sizeof digits);
}

static void put_value(struct out *o, const struct pl_http_head *h, const struct pl_http_header *f) {
    put(o, pl_http_at(h, f->value), f->value_len);
}

static inline void put_header(struct out *o, const struct pl_http_head *h, const struct pl_http_header *f) {
    size_t need = f->name_len + f->value_len + 4u;
    if ((size_t)(o->end - o->at) < need) {
        o->full = true;
        return;
    }
    char *s = o->at;
    memcpy(s, pl_http_at(h, f->name), f->name_len);
    s += f->name_len;
    *s++ = ':';
    *s++ = ' ';
    memcpy(s, pl_http_at(h, f->value), f->value_len);
    s += f->value_len;
    *s++ = '\r';
    *s++ = '\n';
    o->at = s;
}

static const bool hop_by_hop[PL_HF_COUNT] = {
#define X(sym, name, hop) hop,
    PL_HTTP_FIELDS(X)
#undef X
};

static void put_framing(struct out *o, enum pl_http_framing framing, uint64_t length) {
    if (framing == PL_HTTP_CHUNKED) {
        PUT(o, "Transfer-Encoding: chunked\r\n");
    } else if (framing == PL_HTTP_LENGTH) {
        PUT(o, "Content-Length: ");
        put_number(o, length);
        PUT(o, "\r\n");
    }
}

static bool is_forwarding(uint16_t id) {
    return id == PL_HF_X_FORWARDED_FOR || id == PL_HF_X_FORWARDED_PROTO || id == PL_HF_X_FORWARDED_HOST ||
           id == PL_HF_FORWARDED;
}

/* Everything a client's header with this id has said, as one list, and ", " behind it. False: there was none.
 */
static bool put_list(struct out *o, const struct pl_http_head *h, uint16_t id, const char *name) {
    bool any = false;
    for (uint32_t i = 0; i < h->header_count; i++) {
        if (h->headers[i].id != id || h->headers[i].value_len == 0) continue;
        if (!any) put_text(o, name);
        any = true;
        put_value(o, h, &h->headers[i]);
        PUT(o, ", ");
    }
    return any;
}

/* for=192.0.2.1, for="[2001:db8::1]" (RFC 7239 §6) */
static void put_node(struct out *o, const char *address) {
    bool v6 = strchr(address, ':') != NULL;
    if (v6)
        PUT(o, "for=\"[");
    else
        PUT(o, "for=");
    put_text(o, address);
    if (v6) PUT(o, "]\"");
}

static void put_forwarding(struct out *o, const struct pl_http_head *h, const struct pl_http_forward *f) {
    bool append = f->forwarded == PL_FORWARDED_APPEND;
    const char *scheme = f->scheme != NULL ? f->scheme : "http";
    if (!append || !put_list(o, h, PL_HF_X_FORWARDED_FOR, "X-Forwarded-For: ")) PUT(o, "X-Forwarded-For: ");
    put_text(o, f->peer_address);
    PUT(o, "\r\n");
    const struct pl_http_header *kept = append ? pl_http_find(h, PL_HF_X_FORWARDED_PROTO) : NULL;
    if (kept != NULL) {
        put_header(o, h, kept);
    } else {
        PUT(o, "X-Forwarded-Proto: ");
        put_text(o, scheme);
        PUT(o, "\r\n");
    }
    kept = append ? pl_http_find(h, PL_HF_X_FORWARDED_HOST) : NULL;
    const struct pl_http_header *host = pl_http_find(h, PL_HF_HOST);
    if (kept != NULL) {
        put_header(o, h, kept);
    } else if (host != NULL) {
        PUT(o, "X-Forwarded-Host: ");
        put_value(o, h, host);
        PUT(o, "\r\n");
    }
    if (append && put_list(o, h, PL_HF_FORWARDED, "Forwarded: ")) {
        put_node(o, f->peer_address);
        PUT(o, ";proto=");
        put_text(o, scheme);
        PUT(o, "\r\n");
    }
}

/* An upper bound of what pl_http_write_request adds. Every header may grow by the space behind its colon. */
static size_t request_bytes(const struct pl_http_head *h, const struct pl_http_forward *f) {
    enum { FIXED = 512 }; /* names and numbers of our own headers */
    const struct pl_http_header *host = pl_http_find(h, PL_HF_HOST);
    size_t bytes = h->text.len + 2 * (size_t)h->header_count + FIXED;
    if (host != NULL) bytes += host->value_len;
    if (f->target != NULL) bytes += f->target_len;
    if (f->request_id != NULL) bytes += strlen(f->request_id);
    if (f->peer_address != NULL) bytes += 2 * strlen(f->peer_address);
    if (f->scheme != NULL) bytes += 2 * strlen(f->scheme);
    return bytes;
}

bool pl_http_write_request(struct pl_buf *out, const struct pl_http_head *h, enum pl_http_framing framing,
                           uint64_t length, const struct pl_http_forward *f) {
    struct out o;
    if (!begin(&o, out, request_bytes(h, f))) return false;
    bool forwarding = f->forwarded != PL_FORWARDED_KEEP && f->peer_address != NULL, host = false;
    put(&o, pl_http_at(h, h->method), h->method_len);
    PUT(&o, " ");
    if (f->target != NULL)
        put(&o, f->target, f->target_len);
    else
        put(&o, pl_http_at(h, h->target), h->target_len);
    PUT(&o, " HTTP/1.1\r\n");
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct pl_http_header *field = &h->headers[i];
        if (field->id != PL_HF_OTHER) {
            if (hop_by_hop[field->id]) continue;
            if (field->id == PL_HF_X_REQUEST_ID && f->request_id != NULL) continue;
            if (forwarding && is_forwarding(field->id)) continue;
            if (f->drop_keys && (field->id == PL_HF_AUTHORIZATION || field->id == PL_HF_X_API_KEY)) continue;
            if (f->drop_priority && field->id == PL_HF_PRIORITY) continue;
            host = host || field->id == PL_HF_HOST;
        }
        put_header(&o, h, field);
    }
    if (!host) PUT(&o, "Host: localhost\r\n");
    if (forwarding) put_forwarding(&o, h, f);
    if (f->request_id != NULL) {
        PUT(&o, "X-Request-Id: ");
        put_text(&o, f->request_id);
        PUT(&o, "\r\n");
    }
    if (f->id != 0) {
        PUT(&o, "X-Plimsoll-Id: ");
        put_hex16(&o, f->id);
        PUT(&o, "\r\n");
    }
    if (h->upgrade) PUT(&o, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    put_framing(&o, framing, length);
    PUT(&o, "\r\n");
    return finish(&o, out);
}

/* Nothing for HTTP/1.1 that stays open, as usual there; HTTP/1.0 must be told. */
static void put_connection(struct out *o, bool keep_alive, uint8_t client_minor) {
    if (!keep_alive)
        PUT(o, "Connection: close\r\n");
    else if (client_minor == 0)
        PUT(o, "Connection: keep-alive\r\n");
}

bool pl_http_write_response(struct pl_buf *out, const struct pl_http_head *h, enum pl_http_framing framing,
                            uint64_t length, bool keep_alive, uint8_t client_minor, const char *extra) {
    enum { FIXED = 256 };
    struct out o;
    if (framing == PL_HTTP_CHUNKED && client_minor == 0) return false;
    size_t extra_len = extra != NULL ? strlen(extra) : 0;
    if (!begin(&o, out, h->text.len + 2 * (size_t)h->header_count + extra_len + FIXED)) return false;
    bool final = h->status >= 200;
    bool length_told = framing == PL_HTTP_NO_BODY && final && h->status != 204;
    PUT(&o, "HTTP/1.1 ");
    put_number(&o, h->status);
    PUT(&o, " ");
    put(&o, pl_http_at(h, h->reason), h->reason_len);
    PUT(&o, "\r\n");
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct pl_http_header *field = &h->headers[i];
        if (hop_by_hop[field->id] && !(field->id == PL_HF_CONTENT_LENGTH && length_told)) continue;
        put_header(&o, h, field);
    }
    if (h->upgrade)
        PUT(&o, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    else if (final)
        put_connection(&o, keep_alive && framing != PL_HTTP_UNTIL_CLOSE, client_minor);
    put_framing(&o, framing, length);
    if (extra != NULL) put(&o, extra, extra_len);
    PUT(&o, "\r\n");
    return finish(&o, out);
}

bool pl_http_request_id_ok(const char *id, size_t len) {
    if (len == 0 || len > PL_HTTP_REQUEST_ID_MOST) return false;
    for (size_t i = 0; i < len; i++)
        if (id[i] < ' ' || id[i] > '~') return false;
    return true;
}

size_t pl_http_chunk_head(char *out, size_t size) {
    char digits[16];
    size_t at = sizeof digits, len;
    do digits[--at] = "0123456789abcdef"[size & 15];
    while ((size >>= 4) > 0);
    len = sizeof digits - at;
    memcpy(out, digits + at, len);
    out[len] = '\r';
    out[len + 1] = '\n';
    return len + 2;
}
