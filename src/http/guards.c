#include "http/guards.h"

#include <string.h>

#define FINE     ((struct pl_http_fault){ 0, NULL })
#define BAD(why) ((struct pl_http_fault){ 400, (why) })

enum { MOST_NAMED = 64 };

/* What the headers say, gathered in one pass. */
struct found {
    const struct pl_http_header *host, *length, *coding, *upgrade;
    uint32_t hosts, lengths, codings, upgrades;
    uint32_t named; /* names in Connection that are no options of its own */
    bool close, keep_alive, wants_upgrade;
    bool expects, expects_other;
};

uint16_t pl_http_guard_method(uint8_t method_id) {
    switch (method_id) {
    case HTTP_CONNECT: /* we are no tunnel to elsewhere */
    case HTTP_TRACE:   /* it would show the client our own headers */
        return 405;
    case HTTP_PRI:
        return 505;
    case HTTP_SOURCE: /* Icecast's, and below RTSP's */
    case HTTP_DESCRIBE:
    case HTTP_ANNOUNCE:
    case HTTP_SETUP:
    case HTTP_PLAY:
    case HTTP_PAUSE:
    case HTTP_TEARDOWN:
    case HTTP_GET_PARAMETER:
    case HTTP_SET_PARAMETER:
    case HTTP_REDIRECT:
    case HTTP_RECORD:
    case HTTP_FLUSH:
        return 501;
    default:
        return 0;
    }
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Walks a comma-separated list: the next element without its white space, or false at the end. */
static bool next_item(const char **at, const char *end, const char **item, size_t *len) {
    const char *s = *at;
    while (s < end && (is_blank(*s) || *s == ',')) s++;
    if (s == end) return false;
    const char *comma = memchr(s, ',', (size_t)(end - s));
    *at = comma != NULL ? comma : end;
    const char *last = *at;
    while (last > s && is_blank(last[-1])) last--;
    *item = s;
    *len = (size_t)(last - s);
    return true;
}

static bool item_is(const char *item, size_t len, const char *lower) {
    return len == strlen(lower) && pl_http_same(item, lower, len);
}

static void read_connection(const struct pl_http_head *h, const struct pl_http_header *f, struct found *out) {
    const char *at = pl_http_at(h, f->value), *end = at + f->value_len, *item;
    size_t len;
    while (next_item(&at, end, &item, &len)) {
        if (item_is(item, len, "close"))
            out->close = true;
        else if (item_is(item, len, "keep-alive"))
            out->keep_alive = true;
        else if (item_is(item, len, "upgrade"))
            out->wants_upgrade = true;
        else
            out->named++;
    }
}

/* Headers that Connection names are for this hop: from here on they are not found by what they were. Host
 * cannot be taken away that way, and framing headers have been read before. */
static void mark_named(struct pl_http_head *h, const struct pl_http_header *connection) {
    const char *at = pl_http_at(h, connection->value), *end = at + connection->value_len, *item;
    size_t len;
    while (next_item(&at, end, &item, &len)) {
        for (uint32_t i = 0; i < h->header_count; i++) {
            struct pl_http_header *f = &h->headers[i];
            if (f->name_len != len || f->id == PL_HF_HOST || f->id == PL_HF_CONNECTION) continue;
            if (pl_http_alike(pl_http_at(h, f->name), item, len)) f->id = PL_HF_NAMED;
        }
    }
}

/* Gives every header its id and takes the white space behind its value away. */
static void read_headers(struct pl_http_head *h, struct found *out) {
    *out = (struct found){ 0 };
    for (uint32_t i = 0; i < h->header_count; i++) {
        struct pl_http_header *f = &h->headers[i];
        while (f->value_len > 0 && is_blank(*pl_http_at(h, f->value + f->value_len - 1))) f->value_len--;
        f->id = (uint16_t)pl_http_field_of(pl_http_at(h, f->name), f->name_len);
        switch (f->id) {
        case PL_HF_HOST:
            out->host = f;
            out->hosts++;
            break;
        case PL_HF_CONTENT_LENGTH:
            out->length = f;
            out->lengths++;
            break;
        case PL_HF_TRANSFER_ENCODING:
            out->coding = f;
            out->codings++;
            break;
        case PL_HF_UPGRADE:
            out->upgrade = f;
            out->upgrades++;
            break;
        case PL_HF_CONNECTION:
            read_connection(h, f, out);
            break;
        case PL_HF_EXPECT:
            out->expects = true;
            if (!item_is(pl_http_at(h, f->value), f->value_len, "100-continue")) out->expects_other = true;
            break;
        default:
            break;
        }
    }
}

static struct pl_http_fault read_length(struct pl_http_head *h, const struct pl_http_header *f) {
    const char *digits = pl_http_at(h, f->value);
    uint64_t n = 0;
    if (f->value_len == 0) return BAD("empty Content-Length");
    for (uint32_t i = 0; i < f->value_len; i++) {
        if (digits[i] < '0' || digits[i] > '9') return BAD("Content-Length is not digits only");
        unsigned digit = (unsigned)(digits[i] - '0');
        if (n > ((uint64_t)INT64_MAX - digit) / 10) return BAD("Content-Length is too large for any body");
        n = n * 10 + digit;
    }
    h->content_length = n;
    return FINE;
}

/* RFC 9112 §6: one framing header, once, in its plainest form. Sets framing from it. */
static struct pl_http_fault read_framing(struct pl_http_head *h, const struct found *in) {
    h->framing = PL_HTTP_NO_BODY;
    if (in->codings > 0 && in->lengths > 0) return BAD("both Content-Length and Transfer-Encoding");
    if (in->lengths > 1) return BAD("more than one Content-Length");
    if (in->codings > 1) return BAD("more than one Transfer-Encoding");
    if (in->codings == 1) {
        if (h->minor == 0) return BAD("Transfer-Encoding in HTTP/1.0");
        if (!item_is(pl_http_at(h, in->coding->value), in->coding->value_len, "chunked"))
            return BAD("Transfer-Encoding is not exactly chunked");
        h->framing = PL_HTTP_CHUNKED;
    }
    if (in->lengths == 1) {
        struct pl_http_fault f = read_length(h, in->length);
        if (f.status != 0) return f;
        h->framing = PL_HTTP_LENGTH;
    }
    return FINE;
}

static struct pl_http_fault read_wishes(struct pl_http_head *h, const struct found *in) {
    h->keep_alive = !in->close && (h->minor > 0 || in->keep_alive);
    /* each is compared with every header: a head full of them would be work for nothing */
    if (in->named > MOST_NAMED) return BAD("too many names in Connection");
    for (uint32_t i = 0; in->named > 0 && i < h->header_count; i++)
        if (h->headers[i].id == PL_HF_CONNECTION) mark_named(h, &h->headers[i]);
    return FINE;
}

static bool websocket(const struct pl_http_head *h, const struct found *in) {
    return h->minor > 0 && in->upgrades == 1 && in->wants_upgrade &&
           item_is(pl_http_at(h, in->upgrade->value), in->upgrade->value_len, "websocket");
}

/* Bytes of a registered name (RFC 3986 §3.2.2): unreserved, sub-delims, '%'. Not ',' and ';': no host has
 * them, and whoever splits lists of hosts later would be misled. */
static bool is_host_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~%!$&'()*+=", c) != NULL);
}

static bool is_address_char(char c) {
    return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') || c == ':' || c == '.';
}

/* host [ ":" port ], not empty, no user information. */
static bool is_authority(const char *s, size_t len) {
    size_t i = 0;
    if (len > 0 && s[0] == '[') {
        for (i = 1; i < len && is_address_char(s[i]);) i++;
        if (i == 1 || i == len || s[i] != ']') return false;
        i++;
    } else {
        while (i < len && is_host_char(s[i])) i++;
        if (i == 0) return false;
    }
    if (i == len) return true;
    size_t digits = len - i - 1;
    if (s[i] != ':' || digits > 5) return false;
    for (i++; i < len; i++)
        if (s[i] < '0' || s[i] > '9') return false;
    return true;
}

/* `http://HOST/path` becomes `/path`; without a path it is "/", or "*" for OPTIONS (RFC 9112 §3.2.4). */
static struct pl_http_fault undo_absolute(struct pl_http_head *h, const struct pl_http_header *host) {
    char *target = h->text.data + h->target, *end = target + h->target_len, *authority;
    if (h->target_len > 7 && pl_http_same(target, "http", 4) && memcmp(target + 4, "://", 3) == 0) {
        authority = target + 7;
    } else if (h->target_len > 8 && pl_http_same(target, "https", 5) && memcmp(target + 5, "://", 3) == 0) {
        authority = target + 8;
    } else {
        return BAD("target is neither a path nor an http URL");
    }
    char *path = authority;
    while (path < end && *path != '/' && *path != '?') path++;
    size_t len = (size_t)(path - authority);
    if (!is_authority(authority, len)) return BAD("malformed host in the target");
    if (host == NULL || host->value_len != len || !pl_http_alike(authority, pl_http_at(h, host->value), len))
        return BAD("target and Host disagree");
    if (path == end || *path == '?') {
        /* the last byte of the host, which is not needed any more, makes room for the path */
        bool whole_server = path == end && h->method_id == HTTP_OPTIONS;
        path--;
        *path = whole_server ? '*' : '/';
    }
    h->target = (uint32_t)(path - h->text.data);
    h->target_len = (uint32_t)(end - path);
    return FINE;
}

static struct pl_http_fault read_target(struct pl_http_head *h, const struct pl_http_header *host) {
    const char *target = pl_http_at(h, h->target), *behind = target + h->target_len;
    if (h->target_len == 0) return BAD("no target");
    if (h->target != h->method + h->method_len + 1) return BAD("more than one space before the target");
    if (behind[0] != ' ' || behind[1] != 'H') return BAD("more than one space before the version");
    for (uint32_t i = 0; i < h->target_len; i++)
        if (target[i] <= ' ' || target[i] > '~' || target[i] == '#')
            return BAD("byte not allowed in a target");
    if (target[0] == '/') return FINE;
    if (target[0] != '*') return undo_absolute(h, host);
    return h->target_len == 1 && h->method_id == HTTP_OPTIONS
               ? FINE
               : BAD("target * with a method other than OPTIONS");
}

struct pl_http_fault pl_http_guard_request(struct pl_http_head *h) {
    struct found in;
    read_headers(h, &in);
    if (in.hosts > 1) return BAD("more than one Host");
    if (in.hosts == 0 && h->minor > 0) return BAD("no Host");
    if (in.hosts == 1 && !is_authority(pl_http_at(h, in.host->value), in.host->value_len))
        return BAD("malformed Host");
    struct pl_http_fault f = read_target(h, in.host);
    if (f.status == 0) f = read_framing(h, &in);
    if (f.status != 0) return f;
    if (in.expects_other) return (struct pl_http_fault){ 417, "only Expect: 100-continue is understood" };
    bool body = h->framing == PL_HTTP_CHUNKED || (h->framing == PL_HTTP_LENGTH && h->content_length > 0);
    h->expect_continue = in.expects && body && h->minor > 0;
    h->upgrade = !body && h->method_id == HTTP_GET && websocket(h, &in);
    return read_wishes(h, &in);
}

static bool is_reason(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f) return false;
    return true;
}

struct pl_http_fault pl_http_guard_response(struct pl_http_head *h, bool no_body) {
    struct found in;
    if (h->status < 100) return BAD("status below 100");
    if (!is_reason(pl_http_at(h, h->reason), h->reason_len)) return BAD("control byte in the reason phrase");
    read_headers(h, &in);
    struct pl_http_fault f = read_framing(h, &in);
    if (f.status != 0) return f;
    h->upgrade = h->status == 101 && websocket(h, &in);
    if (h->status == 101 && !h->upgrade) return BAD("101 for something else than a websocket");
    bool framed = h->framing != PL_HTTP_NO_BODY;
    if (no_body || h->status < 200 || h->status == 204 || h->status == 304) {
        h->framing = PL_HTTP_NO_BODY; /* whatever its headers say */
        framed = true;
    } else if (!framed) {
        h->framing = PL_HTTP_UNTIL_CLOSE;
    }
    f = read_wishes(h, &in);
    h->keep_alive = h->keep_alive && framed;
    return f;
}
