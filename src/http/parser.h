/* http/parser.h - HTTP/1.x messages as they arrive: llhttp with the guards it lacks, as a pull parser.
 *
 * Feed bytes; each call returns at the next thing worth knowing and says how many bytes it used. What
 * llhttp 9.4 accepts and we refuse (RFC 9112 §3, §5, §6): HTTP/0.9, Host missing or twice, both framings,
 * targets that are not origin-form, `*` for OPTIONS or absolute-form that agrees with Host, unknown codings,
 * signs in lengths. Every refusal has a status, and after it the connection must be closed: framing is never
 * resynchronised.
 *
 * llhttp reads the grammar of heads and of chunk framing; how long a message is follows from the guards
 * (guards.c) alone. What is found does not depend on how the bytes were cut: limits hold at positions of the
 * stream, not of the input.
 *
 * Call pl_http_parse until it says MORE, also with no bytes left: END may need none. Interim replies (1xx)
 * are messages of their own: HEAD with that status, END, then next. An idle parser holds no heap: the head
 * buffer exists from the first byte of a message to pl_http_parser_next().
 */
#ifndef PL_HTTP_PARSER_H
#define PL_HTTP_PARSER_H
#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* All bytes of request or response heads; from the configuration, shared, borrowed by the parser. */
struct pl_http_limits {
    uint32_t request_line; /* bytes; over it 414 */
    uint32_t head_bytes;   /* over it 431 */
    uint32_t headers;      /* over it 431 */
};

enum { PL_HTTP_MAX_HEADERS = 1000 };

/* Offsets into the head's text: the text may move while it grows. */
struct pl_http_header {
    uint32_t name, value;
    uint16_t name_len;
    uint16_t id; /* enum pl_http_field: which known header it is, or PL_HF_OTHER */
    uint32_t value_len;
};

/* Headers that somebody asks for by name; the rest is PL_HF_OTHER. NAMED is whatever else the Connection
 * header of the message names (Host cannot be). X(SYMBOL, "lower-case-name", hop_by_hop) */
/* clang-format off */
#define PL_HTTP_FIELDS(X)                                                                                   \
    X(OTHER, "", 0)                                     X(HOST, "host", 0)                                  \
    X(CONNECTION, "connection", 1)                      X(KEEP_ALIVE, "keep-alive", 1)                      \
    X(CONTENT_LENGTH, "content-length", 1)              X(TRANSFER_ENCODING, "transfer-encoding", 1)        \
    X(TE, "te", 1)                                      X(TRAILER, "trailer", 1)                            \
    X(UPGRADE, "upgrade", 1)                            X(EXPECT, "expect", 1)                              \
    X(PROXY_CONNECTION, "proxy-connection", 1)          X(PROXY_AUTHENTICATE, "proxy-authenticate", 1)      \
    X(PROXY_AUTHORIZATION, "proxy-authorization", 1)    X(CONTENT_TYPE, "content-type", 0)                  \
    X(CONTENT_ENCODING, "content-encoding", 0)          X(AUTHORIZATION, "authorization", 0)                \
    X(X_API_KEY, "x-api-key", 0)                        X(X_REQUEST_ID, "x-request-id", 0)                  \
    X(TRACEPARENT, "traceparent", 0)                    X(X_FORWARDED_FOR, "x-forwarded-for", 0)            \
    X(X_FORWARDED_PROTO, "x-forwarded-proto", 0)        X(X_FORWARDED_HOST, "x-forwarded-host", 0)          \
    X(FORWARDED, "forwarded", 0)                        X(ORIGIN, "origin", 0)                              \
    X(RETRY_AFTER, "retry-after", 0)                    X(X_PLIMSOLL, "x-plimsoll-*", 1)                    \
    X(PRIORITY, "x-priority", 0)                        X(X_BENTOML_REQUEST_ID, "x-bentoml-request-id", 0)  \
    X(SERVER, "server", 0)                              X(DATE, "date", 0)                                  \
    X(ACCESS_CONTROL_REQUEST_METHOD, "access-control-request-method", 0)                                    \
    X(NAMED, "", 1)
/* clang-format on */

enum pl_http_field {
#define X(sym, name, hop) PL_HF_##sym,
    PL_HTTP_FIELDS(X)
#undef X
        PL_HF_COUNT
};

enum pl_http_framing { PL_HTTP_NO_BODY, PL_HTTP_LENGTH, PL_HTTP_CHUNKED, PL_HTTP_UNTIL_CLOSE };

/* One message head. Offsets point into `text`. Owned by its parser until the message ends; pl_http_head_take
 * moves it out for whoever must keep it longer (replay). */
struct pl_http_head {
    struct pl_buf text;
    struct pl_http_header *headers; /* owned */
    uint32_t header_count, header_room;
    uint32_t method, method_len; /* requests */
    uint32_t target, target_len; /* as sent; always begins with '/' or is "*" after absolute-form is undone */
    uint32_t reason, reason_len; /* responses */
    uint16_t status;             /* responses */
    uint8_t method_id;    /* requests: llhttp_method_t, never CONNECT, TRACE or one that is not HTTP's */
    uint8_t minor;        /* HTTP/1.minor */
    uint8_t framing;      /* enum pl_http_framing */
    bool keep_alive;      /* may the connection serve another message, by this head */
    bool upgrade;         /* a websocket upgrade was asked for / 101: after END the bytes are the tunnel's */
    bool expect_continue; /* the client waits for 100 Continue before it sends the body */
    uint64_t content_length; /* PL_HTTP_LENGTH only; at most INT64_MAX */
};

enum pl_http_event {
    PL_HTTP_MORE,  /* all bytes used, nothing complete yet */
    PL_HTTP_HEAD,  /* parser->head is whole */
    PL_HTTP_BODY,  /* piece/piece_len: payload bytes, chunk framing removed; borrowed from the input */
    PL_HTTP_END,   /* the message is complete; call pl_http_parser_next before more is fed */
    PL_HTTP_FAULT, /* fault_status, fault_reason; the connection must be closed after the answer */
};

/* Memory of heads that have ended, for those to come: what serves many connections has one, so that a message
 * costs no allocation and an idle connection holds none. As many as there were at once, up to PL_HTTP_SPARES.
 * Zeros are an empty one. */
enum { PL_HTTP_SPARES = 512 };
struct pl_http_spare;
struct pl_http_spares {
    uint32_t count, room;
    struct pl_http_spare *of; /* owned */
};
void pl_http_spares_free(struct pl_http_spares *s);

struct pl_http_parser {
    llhttp_t core;
    struct pl_http_head head;
    const struct pl_http_limits *limits;
    struct pl_http_spares *spares; /* borrowed for the parser's life; set after init; NULL: none */
    const char *piece;
    size_t piece_len;
    const char *fault_reason; /* static text: what was wrong, for people and for the metric label */
    uint16_t fault_status;    /* requests: the answer's; replies: 502 (503 without memory) */
    uint8_t stage;            /* internal, like all that follows */
    uint8_t seen;
    bool no_body;
    uint32_t room; /* bytes that chunk framing or trailers may still take */
    uint64_t left; /* payload bytes of the body or of this chunk still to come */
    const char *origin;
};

/* `response`: parse replies of a worker instead of requests. `limits` is borrowed for the parser's life. */
void pl_http_parser_init(struct pl_http_parser *p, bool response, const struct pl_http_limits *limits);
/* Replies: the coming ones answer HEAD and have no body. Holds until it is called again. */
void pl_http_parser_answers_head(struct pl_http_parser *p, bool yes);
/* *used tells how many bytes of `data` were consumed; call again with the rest. len 0 is allowed. After END
 * and FAULT it says the same again and uses nothing. */
enum pl_http_event pl_http_parse(struct pl_http_parser *p, const char *data, size_t len, size_t *used);
/* The peer closed. END if that completes the message (PL_HTTP_UNTIL_CLOSE), MORE if no message had begun or
 * the last one is complete, FAULT if one is cut. */
enum pl_http_event pl_http_parse_close(struct pl_http_parser *p);
/* Ready for the next message of the connection; frees the head. */
void pl_http_parser_next(struct pl_http_parser *p);
void pl_http_parser_free(struct pl_http_parser *p);
/* True when no byte of a message has arrived since init or next. */
bool pl_http_parser_idle(const struct pl_http_parser *p);

/* Moves the head out of the parser; free it with pl_http_head_free. From HEAD on; the body can still be
 * parsed. */
void pl_http_head_take(struct pl_http_parser *p, struct pl_http_head *out);
void pl_http_head_free(struct pl_http_head *h);
/* First header of this kind, or NULL. */
const struct pl_http_header *pl_http_find(const struct pl_http_head *h, enum pl_http_field id);
/* First header with this lower-case name, for names that have no id. */
const struct pl_http_header *pl_http_find_named(const struct pl_http_head *h, const char *name);
static inline const char *pl_http_at(const struct pl_http_head *h, uint32_t offset) {
    return h->text.data + offset;
}
#endif
