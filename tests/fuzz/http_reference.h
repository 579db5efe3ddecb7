/* http_reference.h - a second reader of HTTP requests, for comparison: RFC 9112 as it stands, with the
 * choices of the corpus (tests/data/http) where it leaves one, over bytes that are all there. Written from
 * the RFC and not from the parser: slow, plain, and no code of it is shared. */
#ifndef PL_FUZZ_HTTP_REFERENCE_H
#define PL_FUZZ_HTTP_REFERENCE_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { REF_HEADERS = 1000, REF_BODY = 65536 };
enum ref_result { REF_MESSAGE, REF_BAD, REF_MORE };

struct ref_text {
    const char *at;
    size_t len;
};
struct ref_message {
    struct ref_text method, target, name[REF_HEADERS], value[REF_HEADERS];
    const char *prefix; /* in front of target, when absolute-form had no path: "/" or "*" */
    unsigned minor;
    size_t headers, body_len, used;
    bool loose; /* chunk extensions, framing in trailers: how strict it is with them is the parser's affair */
    char body[REF_BODY];
};
struct ref_reader {
    const char *at, *end;
};

static bool ref_tchar(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}
static bool ref_vchar(char c) {
    unsigned char u = (unsigned char)c;
    return c == '\t' || (u >= ' ' && u != 0x7f);
}
static bool ref_same(struct ref_text t, const char *word) {
    return t.len == strlen(word) && strncasecmp(t.at, word, t.len) == 0;
}
/* The line up to CRLF; a CR or LF by itself is none. REF_MORE: it has no end. */
static enum ref_result ref_line(struct ref_reader *r, struct ref_text *line) {
    line->at = r->at;
    for (const char *s = r->at; s < r->end; s++) {
        if (*s == '\n') return REF_BAD;
        if (*s != '\r') continue;
        if (s + 1 == r->end) return REF_MORE;
        if (s[1] != '\n') return REF_BAD;
        line->len = (size_t)(s - r->at);
        r->at = s + 2;
        return REF_MESSAGE;
    }
    return REF_MORE;
}
static struct ref_text ref_trim(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return (struct ref_text){ at, (size_t)(end - at) };
}
static bool ref_field(struct ref_text line, struct ref_text *name, struct ref_text *value) {
    size_t n = 0;
    while (n < line.len && ref_tchar(line.at[n])) n++;
    if (n == 0 || n == line.len || line.at[n] != ':') return false;
    *name = (struct ref_text){ line.at, n };
    *value = ref_trim(line.at + n + 1, line.at + line.len);
    for (size_t i = n + 1; i < line.len; i++)
        if (!ref_vchar(line.at[i])) return false;
    return true;
}

static bool ref_known_method(struct ref_text m) {
    /* IANA's registry, those that a gateway in front of one server can pass on, and UPnP's */
    static const char *const known[] = {
        "ACL",     "BIND",     "CHECKOUT", "COPY",       "DELETE",     "GET",    "HEAD",   "LINK",
        "LOCK",    "M-SEARCH", "MERGE",    "MKACTIVITY", "MKCALENDAR", "MKCOL",  "MOVE",   "NOTIFY",
        "OPTIONS", "PATCH",    "POST",     "PROPFIND",   "PROPPATCH",  "PURGE",  "PUT",    "QUERY",
        "REBIND",  "REPORT",   "SEARCH",   "SUBSCRIBE",  "UNBIND",     "UNLINK", "UNLOCK", "UNSUBSCRIBE"
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (m.len == strlen(known[i]) && memcmp(m.at, known[i], m.len) == 0) return true;
    return false;
}

static bool ref_authority(struct ref_text t) {
    size_t i = 0;
    if (t.len > 0 && t.at[0] == '[') {
        const char *end = memchr(t.at, ']', t.len);
        if (end == NULL || end == t.at + 1) return false;
        for (i = 1; t.at + i < end; i++)
            if (strspn((char[]){ t.at[i], 0 }, "0123456789abcdefABCDEF:.") != 1) return false;
        i++;
    } else {
        while (i < t.len && t.at[i] != ':') {
            char c = t.at[i++];
            bool name = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
            if (!name && (c == '\0' || strchr("-._~%!$&'()*+=", c) == NULL)) return false;
        }
        if (i == 0) return false;
    }
    if (i == t.len) return true;
    if (t.at[i] != ':' || t.len - i - 1 > 5) return false;
    while (++i < t.len)
        if (t.at[i] < '0' || t.at[i] > '9') return false;
    return true;
}

static bool ref_request_line(struct ref_message *m, struct ref_text line) {
    const char *end = line.at + line.len, *sp = memchr(line.at, ' ', line.len);
    if (sp == NULL) return false;
    m->method = (struct ref_text){ line.at, (size_t)(sp - line.at) };
    const char *second = memchr(sp + 1, ' ', (size_t)(end - sp - 1));
    if (second == NULL || end - second != 9 || memcmp(second, " HTTP/1.", 8) != 0) return false;
    if (second[8] != '0' && second[8] != '1') return false;
    m->minor = (unsigned)(second[8] - '0');
    m->target = (struct ref_text){ sp + 1, (size_t)(second - sp - 1) };
    for (size_t i = 0; i < m->target.len; i++)
        if (m->target.at[i] < '!' || m->target.at[i] > '~' || m->target.at[i] == '#') return false;
    return m->target.len > 0 && ref_known_method(m->method);
}

static const struct ref_text *ref_find(const struct ref_message *m, const char *name, size_t *count) {
    const struct ref_text *found = NULL;
    *count = 0;
    for (size_t i = 0; i < m->headers; i++) {
        if (!ref_same(m->name[i], name)) continue;
        if ((*count)++ == 0) found = &m->value[i];
    }
    return found;
}

static bool ref_target(struct ref_message *m, const struct ref_text *host) {
    struct ref_text t = m->target;
    bool options = ref_same(m->method, "OPTIONS");
    m->prefix = "";
    if (t.at[0] == '/') return true;
    if (t.len == 1 && t.at[0] == '*') return options;
    size_t scheme = t.len > 7 && strncasecmp(t.at, "http://", 7) == 0    ? 7
                    : t.len > 8 && strncasecmp(t.at, "https://", 8) == 0 ? 8
                                                                         : 0;
    if (scheme == 0) return false;
    size_t n = scheme;
    while (n < t.len && t.at[n] != '/' && t.at[n] != '?') n++;
    struct ref_text authority = { t.at + scheme, n - scheme };
    if (!ref_authority(authority) || host == NULL || host->len != authority.len) return false;
    if (strncasecmp(host->at, authority.at, host->len) != 0) return false;
    m->target = (struct ref_text){ t.at + n, t.len - n };
    if (n == t.len) m->prefix = options ? "*" : "/";
    if (n < t.len && t.at[n] == '?') m->prefix = "/";
    return true;
}

static enum ref_result ref_chunks(struct ref_message *m, struct ref_reader *r) {
    for (;;) {
        struct ref_text line, name, value;
        enum ref_result got = ref_line(r, &line);
        size_t n = 0;
        uint64_t size = 0;
        if (got != REF_MESSAGE) return got;
        for (; n < line.len && strspn((char[]){ line.at[n], 0 }, "0123456789abcdefABCDEF") == 1; n++) {
            if (size > (UINT64_MAX >> 4)) return REF_BAD;
            char c = line.at[n];
            size = size << 4 | (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        if (n == 0 || size > INT64_MAX) return REF_BAD;
        if (n < line.len) m->loose = true;
        if (n < line.len && line.at[n] != ';' && line.at[n] != ' ' && line.at[n] != '\t') return REF_BAD;
        for (; n < line.len; n++)
            if (!ref_vchar(line.at[n])) return REF_BAD;
        while (size == 0) {
            got = ref_line(r, &line);
            if (got != REF_MESSAGE || line.len == 0) return got;
            if (!ref_field(line, &name, &value)) return REF_BAD;
            /* the parser may refuse a trailer that names framing; neither believes it */
            if (ref_same(name, "transfer-encoding") || ref_same(name, "content-length")) m->loose = true;
        }
        if ((uint64_t)(r->end - r->at) < size) return REF_MORE;
        if (m->body_len + size > REF_BODY) return REF_MORE;
        memcpy(m->body + m->body_len, r->at, (size_t)size);
        m->body_len += (size_t)size;
        r->at += size;
        if (r->at == r->end) return REF_MORE;
        if (r->at[0] != '\r') return REF_BAD;
        if (r->at + 1 == r->end) return REF_MORE;
        if (r->at[1] != '\n') return REF_BAD;
        r->at += 2;
    }
}

static enum ref_result ref_body(struct ref_message *m, struct ref_reader *r) {
    size_t lengths, codings;
    const struct ref_text *length = ref_find(m, "content-length", &lengths);
    const struct ref_text *coding = ref_find(m, "transfer-encoding", &codings);
    uint64_t size = 0;
    if (lengths + codings > 1) return REF_BAD;
    if (codings == 1) return m->minor == 1 && ref_same(*coding, "chunked") ? ref_chunks(m, r) : REF_BAD;
    if (lengths == 0) return REF_MESSAGE;
    if (length->len == 0) return REF_BAD;
    for (size_t i = 0; i < length->len; i++) {
        if (length->at[i] < '0' || length->at[i] > '9') return REF_BAD;
        if (size > (INT64_MAX - 9) / 10) return REF_BAD;
        size = size * 10 + (uint64_t)(length->at[i] - '0');
    }
    if ((uint64_t)(r->end - r->at) < size || size > REF_BODY) return REF_MORE;
    memcpy(m->body, r->at, (size_t)size);
    m->body_len = (size_t)size;
    r->at += size;
    return REF_MESSAGE;
}

/* One request at the beginning of the bytes. */
static enum ref_result ref_read(struct ref_message *m, const char *bytes, size_t len) {
    struct ref_reader r = { bytes, bytes + len };
    struct ref_text line;
    size_t hosts, expects = 0;
    m->headers = m->body_len = m->used = 0;
    m->loose = false;
    if (len >= 2 && memcmp(bytes, "\r\n", 2) == 0) r.at += 2; /* one empty line in front is forgiven */
    enum ref_result got = ref_line(&r, &line);
    if (got != REF_MESSAGE) return got;
    if (!ref_request_line(m, line)) return REF_BAD;
    for (;;) {
        got = ref_line(&r, &line);
        if (got != REF_MESSAGE) return got;
        if (line.len == 0) break;
        if (m->headers == REF_HEADERS || !ref_field(line, &m->name[m->headers], &m->value[m->headers]))
            return REF_BAD;
        if (ref_same(m->name[m->headers], "expect") && !ref_same(m->value[m->headers], "100-continue"))
            expects++;
        m->headers++;
    }
    const struct ref_text *host = ref_find(m, "host", &hosts);
    if (hosts > 1 || (hosts == 0 && m->minor == 1) || (hosts == 1 && !ref_authority(*host)) || expects > 0)
        return REF_BAD;
    if (!ref_target(m, host)) return REF_BAD;
    got = ref_body(m, &r);
    m->used = (size_t)(r.at - bytes);
    return got;
}
#endif
