#include "http/parser.h"

#include <stdlib.h>

#include "http/guards.h"

enum stage { START, HEAD, BODY, ENDED, FAULTED };

/* Bits of `seen`. */
enum {
    EMPTY_LINE = 1, /* the one empty line that may precede a request */
    EMPTY_CR = 2,   /* its CR */
    LINE = 4,       /* the request line up to its version */
    IN_HEADER = 8,  /* a header's name has begun, its value has not ended */
    IN_CHUNK = 16,  /* chunk data, not chunk framing */
    LAST_CHUNK = 32,
    WHOLE = 64, /* llhttp has seen the end of the head, later that of the chunked body */
};

enum {
    FIRST_HEADERS = 16,
    CHUNK_LINE = 4096, /* bytes of one chunk's framing, extensions included */
};

static const char no_version[] = "request line without a version"; /* HTTP/0.9, which llhttp would accept */

static enum pl_http_event fault(struct pl_http_parser *p, uint16_t status, const char *reason) {
    bool response = p->core.type == HTTP_RESPONSE;
    if (p->stage != FAULTED) {
        p->fault_status = response && status != 503 ? 502 : status;
        p->fault_reason = reason;
    }
    p->stage = FAULTED;
    return PL_HTTP_FAULT;
}

/* In a callback: llhttp gives up with an error, whose story is ours. */
static int refuse(struct pl_http_parser *p, uint16_t status, const char *reason) {
    fault(p, status, reason);
    return HPE_USER;
}

/* Callbacks of the head. They keep offsets only: the bytes themselves are copied once, after llhttp has seen
 * them. Spans (with `at`) also end where the input ends, so what they see must not decide anything; the
 * others are called at places that the stream alone determines, and may refuse. */

static struct pl_http_parser *of(llhttp_t *core) { return (struct pl_http_parser *)core; }

static uint32_t offset_of(const struct pl_http_parser *p, const char *at) {
    return (uint32_t)(p->head.text.len + (size_t)(at - p->origin));
}

static int on_method(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    p->head.method_len = offset_of(p, at + len);
    return 0;
}

static int on_method_complete(llhttp_t *core) {
    struct pl_http_parser *p = of(core);
    uint16_t status = pl_http_guard_method(core->method);
    if (status == 0) return 0;
    return refuse(p, status,
                  status == 505   ? "HTTP/2 is not spoken here, only HTTP/1.1 and HTTP/1.0"
                  : status == 405 ? "method is not served"
                                  : "unknown method");
}

static int on_url(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    if (p->head.target == 0) p->head.target = offset_of(p, at);
    p->head.target_len = offset_of(p, at + len) - p->head.target;
    return 0;
}

static int on_version_complete(llhttp_t *core) {
    struct pl_http_parser *p = of(core);
    if (core->http_major != 1) return refuse(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    p->seen |= LINE;
    return 0;
}

static int on_status(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    if (p->head.reason == 0) p->head.reason = offset_of(p, at);
    p->head.reason_len = offset_of(p, at + len) - p->head.reason;
    return 0;
}

/* Room for one header more. */
static bool grow_headers(struct pl_http_head *h) {
    if (h->header_count < h->header_room) return true;
    uint32_t room = h->header_room == 0 ? (uint32_t)FIRST_HEADERS : h->header_room * 2;
    struct pl_http_header *more = realloc(h->headers, room * sizeof *more);
    if (more == NULL) return false;
    h->headers = more;
    h->header_room = room;
    return true;
}

static int on_header_field(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    struct pl_http_head *h = &p->head;
    if (p->stage != HEAD) return 0; /* trailers are dropped */
    if ((p->seen & IN_HEADER) == 0) {
        if (!grow_headers(h)) return refuse(p, 503, "out of memory");
        h->headers[h->header_count] = (struct pl_http_header){ .name = offset_of(p, at) };
        p->seen |= IN_HEADER;
    }
    uint32_t name_len = offset_of(p, at + len) - h->headers[h->header_count].name;
    h->headers[h->header_count].name_len = (uint16_t)(name_len < UINT16_MAX ? name_len : UINT16_MAX);
    return 0;
}

static int on_header_value(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    if (p->stage != HEAD) return 0;
    struct pl_http_header *f = &p->head.headers[p->head.header_count];
    if (f->value == 0) f->value = offset_of(p, at);
    f->value_len = offset_of(p, at + len) - f->value;
    return 0;
}

static int on_header_value_complete(llhttp_t *core) {
    struct pl_http_parser *p = of(core);
    if (p->stage != HEAD) return 0;
    if (core->http_major != 1) return refuse(p, 400, no_version);
    if (p->head.headers[p->head.header_count].name_len == UINT16_MAX)
        return refuse(p, 431, "header name is too long");
    uint32_t most =
        p->limits->headers < PL_HTTP_MAX_HEADERS ? p->limits->headers : (uint32_t)PL_HTTP_MAX_HEADERS;
    if (p->head.header_count >= most) return refuse(p, 431, "too many headers");
    p->head.header_count++;
    p->seen &= (uint8_t)~IN_HEADER;
    return 0;
}

static int on_headers_complete(llhttp_t *core) {
    if (core->http_major != 1) return refuse(of(core), 400, no_version);
    of(core)->seen |= WHOLE;
    return HPE_PAUSED;
}

/* Callbacks of a chunked body. Each pauses, so that pl_http_parse returns at every piece. */

static int on_chunk_header(llhttp_t *core) {
    struct pl_http_parser *p = of(core);
    if (core->content_length > INT64_MAX) return refuse(p, 413, "chunk is larger than any body may be");
    p->left = core->content_length;
    p->seen |= p->left > 0 ? IN_CHUNK : LAST_CHUNK;
    /* Trailers are dropped unread, so one that names framing contradicts nothing; llhttp would think it does.
     */
    if (p->left == 0) core->flags &= (uint16_t) ~(F_CONTENT_LENGTH | F_TRANSFER_ENCODING);
    return HPE_PAUSED;
}

static int on_body(llhttp_t *core, const char *at, size_t len) {
    struct pl_http_parser *p = of(core);
    if (len == 0) return 0;
    p->piece = at;
    p->piece_len = len;
    p->left -= len;
    if (p->left == 0) p->seen &= (uint8_t)~IN_CHUNK;
    return HPE_PAUSED;
}

static int on_message_complete(llhttp_t *core) {
    of(core)->seen |= WHOLE;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_method = on_method,
    .on_method_complete = on_method_complete,
    .on_url = on_url,
    .on_version_complete = on_version_complete,
    .on_status = on_status,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* A method that llhttp does not know ends at the first byte that fits none: 501 if that could still be a
 * method's, 400 for what never was one. */
static uint16_t status_of_bad_method(const char *at, const char *end, bool first) {
    if (at == end) return 400;
    bool upper = (*at >= 'A' && *at <= 'Z') || *at == '-' || *at == '_';
    return upper || (*at == ' ' && !first) ? 501 : 400;
}

/* Runs llhttp over `len` bytes and tells how many it took; a pause of our own is no failure. */
static bool run(struct pl_http_parser *p, const char *data, size_t len, size_t *took) {
    p->origin = data;
    llhttp_errno_t e = llhttp_execute(&p->core, data, len);
    if (e == HPE_OK) {
        *took = len;
        return true;
    }
    const char *stop = llhttp_get_error_pos(&p->core);
    *took = (size_t)(stop - data);
    if (e == HPE_PAUSED) {
        llhttp_resume(&p->core);
        return true;
    }
    uint16_t status = 400;
    const char *reason = llhttp_get_error_reason(&p->core);
    if (e == HPE_INVALID_METHOD) {
        bool first = p->head.text.len == 0 && *took == 0;
        status = status_of_bad_method(stop, data + len, first);
    }
    if (p->core.http_major == 0 && p->core.http_minor == 9) reason = no_version;
    fault(p, status, reason); /* unless a callback has told its own */
    return false;
}

/* One empty line may stand before a request (RFC 9112 §2.2): CRLF, once. Not kept, not a message's first
 * byte. */
static enum pl_http_event skip_empty_line(struct pl_http_parser *p, const char *data, size_t len,
                                          size_t *used) {
    bool response = p->core.type == HTTP_RESPONSE;
    for (; *used < len; (*used)++) {
        char c = data[*used];
        if (p->seen & EMPTY_CR) {
            if (c != '\n') return fault(p, 400, "bare CR before the request line");
            p->seen = EMPTY_LINE;
        } else if (c == '\r') {
            if (p->seen & EMPTY_LINE)
                return fault(p, 400, "more than one empty line before the request line");
            if (response) return fault(p, 502, "empty line before the status line");
            p->seen |= EMPTY_CR;
        } else if (c == '\n') {
            return fault(p, 400, "bare LF before the request line");
        } else {
            p->stage = HEAD;
            p->seen = response ? LINE : 0; /* a status line has no limit of its own */
            return PL_HTTP_HEAD;
        }
    }
    return PL_HTTP_MORE;
}

static enum pl_http_event finish_head(struct pl_http_parser *p) {
    struct pl_http_head *h = &p->head;
    bool response = p->core.type == HTTP_RESPONSE;
    h->method_id = p->core.method;
    h->minor = p->core.http_minor;
    h->status = p->core.status_code;
    struct pl_http_fault f = response ? pl_http_guard_response(h, p->no_body) : pl_http_guard_request(h);
    if (f.status != 0) return fault(p, f.status, f.reason);
    p->left = h->framing == PL_HTTP_LENGTH ? h->content_length : 0;
    /* The guards and llhttp must agree on what follows; they are two readers of the same bytes. */
    bool agreed = h->framing == PL_HTTP_CHUNKED  ? (p->core.flags & F_CHUNKED) != 0
                  : h->framing == PL_HTTP_LENGTH ? p->core.content_length == h->content_length
                                                 : true;
    if (!agreed) return fault(p, 400, "ambiguous framing");
    p->room = CHUNK_LINE;
    p->seen = 0;
    p->stage = BODY;
    return PL_HTTP_HEAD;
}

/* --- spares */

enum { SPARE_TEXT = 2048, SPARE_HEADERS = 64 }; /* larger ones are given back to the system */

struct pl_http_spare {
    char *text;
    size_t size;
    struct pl_http_header *headers;
    uint32_t room;
};

static bool has_room(struct pl_http_spares *s) {
    if (s->count < s->room) return true;
    uint32_t room = s->room == 0 ? 8 : s->room * 2;
    struct pl_http_spare *of = room <= PL_HTTP_SPARES ? realloc(s->of, room * sizeof *of) : NULL;
    if (of == NULL) return false;
    s->of = of;
    s->room = room;
    return true;
}

static void use_spare(struct pl_http_parser *p) {
    struct pl_http_spares *s = p->spares;
    struct pl_http_head *h = &p->head;
    if (s == NULL || s->count == 0 || h->text.data != NULL || h->headers != NULL) return;
    s->count--;
    h->text.data = s->of[s->count].text;
    h->text.size = s->of[s->count].size;
    h->headers = s->of[s->count].headers;
    h->header_room = s->of[s->count].room;
}

static void end_head(struct pl_http_parser *p) {
    struct pl_http_spares *s = p->spares;
    struct pl_http_head *h = &p->head;
    if (s != NULL && h->text.data != NULL && h->headers != NULL && h->text.size <= SPARE_TEXT &&
        h->header_room <= SPARE_HEADERS && has_room(s)) {
        s->of[s->count].text = h->text.data;
        s->of[s->count].size = h->text.size;
        s->of[s->count].headers = h->headers;
        s->of[s->count].room = h->header_room;
        s->count++;
        *h = (struct pl_http_head){ 0 };
    }
    pl_http_head_free(h);
}

void pl_http_spares_free(struct pl_http_spares *s) {
    while (s->count > 0) {
        s->count--;
        free(s->of[s->count].text);
        free(s->of[s->count].headers);
    }
    free(s->of);
    *s = (struct pl_http_spares){ 0 };
}

static enum pl_http_event parse_head(struct pl_http_parser *p, const char *data, size_t len, size_t *used) {
    struct pl_buf *text = &p->head.text;
    if (len > *used) use_spare(p); /* a connection that is idle has none */
    for (;;) {
        /* llhttp is never given more than the limit allows: what it makes of the bytes up to there is the
         * same however they arrive */
        bool line = (p->seen & LINE) == 0;
        size_t most = p->limits->head_bytes, took = 0;
        if (line && p->limits->request_line < most) most = p->limits->request_line;
        if (text->len >= most)
            return line ? fault(p, 414, "request line is too long") : fault(p, 431, "head is too large");
        size_t n = len - *used < most - text->len ? len - *used : most - text->len;
        if (n == 0) return PL_HTTP_MORE;
        if (!run(p, data + *used, n, &took)) return PL_HTTP_FAULT;
        if (!pl_buf_add(text, data + *used, took)) return fault(p, 503, "out of memory");
        *used += took;
        if (p->seen & WHOLE) return finish_head(p);
    }
}

static enum pl_http_event parse_chunked(struct pl_http_parser *p, const char *data, size_t len,
                                        size_t *used) {
    while ((p->seen & WHOLE) == 0) {
        /* chunk framing and trailers are bounded like the head, at positions of the stream */
        size_t n = len - *used, took = 0;
        bool framing = (p->seen & IN_CHUNK) == 0;
        if (framing && p->room == 0)
            return (p->seen & LAST_CHUNK) ? fault(p, 431, "trailers are too large")
                                          : fault(p, 400, "chunk extension is too long");
        if (framing && n > p->room) n = p->room;
        if (n == 0) return PL_HTTP_MORE;
        bool last = (p->seen & LAST_CHUNK) != 0;
        p->piece_len = 0;
        if (!run(p, data + *used, n, &took)) return PL_HTTP_FAULT;
        *used += took;
        if (framing) p->room -= (uint32_t)took;
        if (!last && (p->seen & LAST_CHUNK)) p->room = p->limits->head_bytes;
        if (p->piece_len == 0) continue;
        p->room = CHUNK_LINE;
        return PL_HTTP_BODY;
    }
    p->stage = ENDED;
    return PL_HTTP_END;
}

static enum pl_http_event parse_body(struct pl_http_parser *p, const char *data, size_t len, size_t *used) {
    if (p->head.framing == PL_HTTP_CHUNKED) return parse_chunked(p, data, len, used);
    bool until_close = p->head.framing == PL_HTTP_UNTIL_CLOSE;
    size_t n = len - *used;
    if (!until_close && p->left == 0) {
        p->stage = ENDED;
        return PL_HTTP_END;
    }
    if (n == 0) return PL_HTTP_MORE;
    if (!until_close) {
        if (n > p->left) n = (size_t)p->left;
        p->left -= n;
    }
    p->piece = data + *used;
    p->piece_len = n;
    *used += n;
    return PL_HTTP_BODY;
}

enum pl_http_event pl_http_parse(struct pl_http_parser *p, const char *data, size_t len, size_t *used) {
    *used = 0;
    switch ((enum stage)p->stage) {
    case START: {
        enum pl_http_event e = skip_empty_line(p, data, len, used);
        return e == PL_HTTP_HEAD ? parse_head(p, data, len, used) : e;
    }
    case HEAD:
        return parse_head(p, data, len, used);
    case BODY:
        return parse_body(p, data, len, used);
    case ENDED:
        return PL_HTTP_END;
    case FAULTED:
        break;
    }
    return PL_HTTP_FAULT;
}

enum pl_http_event pl_http_parse_close(struct pl_http_parser *p) {
    if (p->stage == START || p->stage == ENDED) return PL_HTTP_MORE;
    bool whole =
        p->head.framing == PL_HTTP_UNTIL_CLOSE || (p->head.framing != PL_HTTP_CHUNKED && p->left == 0);
    if (p->stage == BODY && whole) {
        p->stage = ENDED;
        return PL_HTTP_END;
    }
    return fault(p, 400, p->stage == BODY ? "closed inside the body" : "closed inside the head");
}

void pl_http_parser_init(struct pl_http_parser *p, bool response, const struct pl_http_limits *limits) {
    *p = (struct pl_http_parser){ .limits = limits };
    llhttp_init(&p->core, response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
}

void pl_http_parser_answers_head(struct pl_http_parser *p, bool yes) { p->no_body = yes; }

void pl_http_parser_next(struct pl_http_parser *p) {
    bool no_body = p->no_body, response = p->core.type == HTTP_RESPONSE;
    struct pl_http_spares *spares = p->spares;
    end_head(p);
    pl_http_parser_init(p, response, p->limits);
    p->no_body = no_body;
    p->spares = spares;
}

void pl_http_parser_free(struct pl_http_parser *p) { end_head(p); }

bool pl_http_parser_idle(const struct pl_http_parser *p) { return p->stage == START; }
