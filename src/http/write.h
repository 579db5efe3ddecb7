/* http/write.h - heads that we write: to a worker, to a client, and whole replies of our own.
 *
 * Both directions: framing headers are ours, hop-by-hop headers (RFC 9110 §7.6.1: Connection and what it
 * names, Keep-Alive, TE, Trailer, Upgrade, Proxy-*, Expect, Transfer-Encoding) and `x-plimsoll-*` are gone,
 * everything else stays byte for byte and in its order.
 */
#ifndef PL_HTTP_WRITE_H
#define PL_HTTP_WRITE_H
#include "base/reasons.h"
#include "http/parser.h"

struct pl_http_forward {
    uint64_t id;              /* x-plimsoll-id, 16 hex digits; 0: none */
    const char *request_id;   /* x-request-id to set, or NULL to keep the client's */
    const char *peer_address; /* for X-Forwarded-For / Forwarded, or NULL: leave those headers alone */
    const char *scheme;       /* "http" or "https"; NULL: "http" */
    /* SET: what the client says about its way here is dropped; X-Forwarded-For, -Proto and -Host are ours.
     * APPEND: the peer joins X-Forwarded-For, and Forwarded if there is one; -Proto and -Host are added where
     * they are missing. */
    enum { PL_FORWARDED_KEEP, PL_FORWARDED_SET, PL_FORWARDED_APPEND } forwarded;
    bool drop_keys;     /* Authorization and X-Api-Key were for us and stay here */
    bool drop_priority; /* x-priority: not allowed, or no priority */
    const char *target; /* replaces the target (route.strip), or NULL */
    size_t target_len;
};

/* The request head for a worker, blank line included. The body follows with `framing` and `length`: what was
 * sent chunked and kept whole goes on with a length. Upgrade: websocket keeps Connection and Upgrade. An
 * HTTP/1.0 request without Host goes on with `Host: localhost`, since HTTP/1.1 must have one. False: buffer
 * cap; `out` is unchanged. */
bool pl_http_write_request(struct pl_buf *out, const struct pl_http_head *h, enum pl_http_framing framing,
                           uint64_t length, const struct pl_http_forward *f);

/* The reply head for a client, blank line included, from a worker's head. `framing` is how we shall send the
 * body; `keep_alive` decides Connection (and speaks HTTP/1.0's dialect if minor is 0). `extra` is more header
 * lines, each ending with CRLF, or NULL. NO_BODY is for HEAD, 1xx, 204 and 304: a Content-Length that came
 * with HEAD or 304 goes on. UNTIL_CLOSE says Connection: close whatever keep_alive is. False: buffer cap, or
 * chunks for HTTP/1.0, which does not know them; `out` is unchanged. */
bool pl_http_write_response(struct pl_buf *out, const struct pl_http_head *h, enum pl_http_framing framing,
                            uint64_t length, bool keep_alive, uint8_t client_minor, const char *extra);

/* A whole reply of our own. Date, Server: plimsoll, Content-Length and Connection are written here. */
struct pl_http_reply {
    uint16_t status;
    bool keep_alive;
    bool head_only; /* the answer to HEAD */
    uint8_t client_minor;
    const char *content_type; /* NULL: application/json */
    const char *extra;        /* header lines, each ending with CRLF, or NULL */
    const char *body;
    size_t body_len;
    uint64_t wall_ms; /* for Date; 0: none */
};
bool pl_http_write_reply(struct pl_buf *out, const struct pl_http_reply *r);
#define PL_HTTP_CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"

/* May this x-request-id be kept: printable characters, not too many. */
enum { PL_HTTP_REQUEST_ID_MOST = 128 };
bool pl_http_request_id_ok(const char *id, size_t len);

/* Which shape our own errors take (surface.md 6.3). */
enum pl_http_dialect { PL_DIALECT_BENTOML, PL_DIALECT_OPENAI };
enum pl_http_dialect pl_http_dialect_of(const char *target, size_t len); /* /v1/... is OpenAI's */

/* What our own errors say: the first code of a status is its usual one. ERROR(STATUS, TYPE, CODE) */
/* clang-format off */
#define PL_HTTP_ERRORS(ERROR)                                          \
    ERROR(400, "invalid_request_error", "bad_request")                 \
    ERROR(400, "invalid_request_error", "invalid_json")                \
    ERROR(400, "invalid_request_error", "invalid_value")               \
    ERROR(400, "invalid_request_error", "context_length_exceeded")     \
    ERROR(401, "invalid_request_error", "invalid_api_key")             \
    ERROR(403, "invalid_request_error", "forbidden")                   \
    ERROR(404, "invalid_request_error", "not_found")                   \
    ERROR(404, "invalid_request_error", "model_not_found")             \
    ERROR(405, "invalid_request_error", "method_not_allowed")          \
    ERROR(408, "invalid_request_error", "request_timeout")             \
    ERROR(413, "invalid_request_error", "request_too_large")           \
    ERROR(414, "invalid_request_error", "uri_too_long")                \
    ERROR(417, "invalid_request_error", "expectation_failed")          \
    ERROR(422, "invalid_request_error", "request_quarantined")         \
    ERROR(429, "rate_limit_error", "rate_limit_exceeded")              \
    ERROR(431, "invalid_request_error", "headers_too_large")           \
    ERROR(501, "invalid_request_error", "not_implemented")             \
    ERROR(502, "server_error", "worker_failed")                        \
    ERROR(503, "server_error", "service_unavailable")                  \
    ERROR(504, "server_error", "timeout")                              \
    ERROR(505, "invalid_request_error", "http_version_not_supported")
/* clang-format on */

/* The usual code and the type of a status; for one that is not in the table, of the nearest that is. */
const char *pl_http_error_code(uint16_t status);
const char *pl_http_error_type(uint16_t status);
/* What a message says: BentoML's words for 429 and 504 (clients match on them), else the status text, and
 * then
 * ": detail" if there is one. `timeout_ms` is for 504 only. */
bool pl_http_error_message(struct pl_buf *out, uint16_t status, uint64_t timeout_ms, const char *detail);

/* Body text of an error. `code` is one of the table, or NULL for the usual one; `type` follows from the
 * status. False: the buffer's cap; nothing is added then. */
bool pl_http_error_body(struct pl_buf *out, enum pl_http_dialect d, uint16_t status, const char *code,
                        const char *message);
/* The same inside an event stream, whose head is gone already: one event in OpenAI's shape, before the cut.
 */
bool pl_http_error_event(struct pl_buf *out, uint16_t status, const char *code, const char *message);
/* Never NULL: "Unknown" for a status nobody has heard of. */
const char *pl_http_status_text(uint16_t status);
/* Chunk framing: "SIZE\r\n" into `out` (at least 20 bytes); returns its length. Data and "\r\n" follow. */
size_t pl_http_chunk_head(char *out, size_t size);
#endif
