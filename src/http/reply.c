/* reply.c - whole replies of our own: health, refusals, errors in the words their clients know. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http/write.h"

/* Those of RFC 9110 §15, RFC 6585 and the few others that a worker or we may send. STATUS(NUMBER, "text") */
/* clang-format off */
#define STATUSES(STATUS)                                                                              \
    STATUS(100, "Continue")                             STATUS(101, "Switching Protocols")            \
    STATUS(102, "Processing")                           STATUS(103, "Early Hints")                    \
    STATUS(200, "OK")                                   STATUS(201, "Created")                        \
    STATUS(202, "Accepted")                             STATUS(203, "Non-Authoritative Information")  \
    STATUS(204, "No Content")                           STATUS(205, "Reset Content")                  \
    STATUS(206, "Partial Content")                      STATUS(207, "Multi-Status")                   \
    STATUS(300, "Multiple Choices")                     STATUS(301, "Moved Permanently")              \
    STATUS(302, "Found")                                STATUS(303, "See Other")                      \
    STATUS(304, "Not Modified")                         STATUS(307, "Temporary Redirect")             \
    STATUS(308, "Permanent Redirect")                   STATUS(400, "Bad Request")                    \
    STATUS(401, "Unauthorized")                         STATUS(402, "Payment Required")               \
    STATUS(403, "Forbidden")                            STATUS(404, "Not Found")                      \
    STATUS(405, "Method Not Allowed")                   STATUS(406, "Not Acceptable")                 \
    STATUS(407, "Proxy Authentication Required")        STATUS(408, "Request Timeout")                \
    STATUS(409, "Conflict")                             STATUS(410, "Gone")                           \
    STATUS(411, "Length Required")                      STATUS(412, "Precondition Failed")            \
    STATUS(413, "Content Too Large")                    STATUS(414, "URI Too Long")                   \
    STATUS(415, "Unsupported Media Type")               STATUS(416, "Range Not Satisfiable")          \
    STATUS(417, "Expectation Failed")                   STATUS(418, "I'm a teapot")                   \
    STATUS(421, "Misdirected Request")                  STATUS(422, "Unprocessable Content")          \
    STATUS(423, "Locked")                               STATUS(424, "Failed Dependency")              \
    STATUS(425, "Too Early")                            STATUS(426, "Upgrade Required")               \
    STATUS(428, "Precondition Required")                STATUS(429, "Too Many Requests")              \
    STATUS(431, "Request Header Fields Too Large")      STATUS(451, "Unavailable For Legal Reasons")  \
    STATUS(499, "Client Closed Request")                STATUS(500, "Internal Server Error")          \
    STATUS(501, "Not Implemented")                      STATUS(502, "Bad Gateway")                    \
    STATUS(503, "Service Unavailable")                  STATUS(504, "Gateway Timeout")                \
    STATUS(505, "HTTP Version Not Supported")           STATUS(507, "Insufficient Storage")           \
    STATUS(511, "Network Authentication Required")
/* clang-format on */

const char *pl_http_status_text(uint16_t status) {
    switch (status) {
#define STATUS(number, text) \
    case number:             \
        return text;
        STATUSES(STATUS)
#undef STATUS
    default:
        return "Unknown";
    }
}

/* IMF-fixdate (RFC 9110 §5.6.7): Sun, 06 Nov 1994 08:49:37 GMT. strftime would speak the locale's language.
 */
static bool add_date(struct pl_buf *out, uint64_t wall_ms) {
    static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    time_t s = (time_t)(wall_ms / 1000);
    struct tm t;
    if (gmtime_r(&s, &t) == NULL) return true;
    return pl_buf_addf(out, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[t.tm_wday], t.tm_mday,
                       months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

static bool add_reply(struct pl_buf *out, const struct pl_http_reply *r) {
    bool has_body = r->status >= 200 && r->status != 204 && r->status != 304;
    bool ok =
        pl_buf_addf(out, "HTTP/1.1 %u %s\r\nServer: plimsoll\r\n", r->status, pl_http_status_text(r->status));
    if (r->wall_ms != 0) ok = ok && add_date(out, r->wall_ms);
    if (has_body)
        ok = ok && pl_buf_addf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n",
                               r->content_type != NULL ? r->content_type : "application/json", r->body_len);
    if (!r->keep_alive)
        ok = ok && pl_buf_adds(out, "Connection: close\r\n");
    else if (r->client_minor == 0)
        ok = ok && pl_buf_adds(out, "Connection: keep-alive\r\n");
    if (r->extra != NULL) ok = ok && pl_buf_adds(out, r->extra);
    ok = ok && pl_buf_adds(out, "\r\n");
    if (has_body && !r->head_only) ok = ok && pl_buf_add(out, r->body, r->body_len);
    return ok;
}

bool pl_http_write_reply(struct pl_buf *out, const struct pl_http_reply *r) {
    size_t start = out->len;
    if (add_reply(out, r)) return true;
    out->len = start;
    return false;
}

enum pl_http_dialect pl_http_dialect_of(const char *target, size_t len) {
    static const char openai[] = "/v1/";
    size_t n = sizeof openai - 1;
    return len >= n && memcmp(target, openai, n) == 0 ? PL_DIALECT_OPENAI : PL_DIALECT_BENTOML;
}

struct error {
    uint16_t status;
    const char *type, *code;
};
static const struct error errors[] = {
#define ERROR(status, type, code) { status, type, code },
    PL_HTTP_ERRORS(ERROR)
#undef ERROR
};

static const struct error *error_of(uint16_t status) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].status == status) return &errors[i];
    return error_of(status >= 500 ? 503 : 400);
}

const char *pl_http_error_code(uint16_t status) { return error_of(status)->code; }
const char *pl_http_error_type(uint16_t status) { return error_of(status)->type; }

/* "30", "1.5", "0.25": as Python prints what stands in the configuration. */
static bool add_seconds(struct pl_buf *out, uint64_t ms) {
    char fraction[8];
    snprintf(fraction, sizeof fraction, ".%03u", (unsigned)(ms % 1000));
    for (size_t n = 4; n > 0 && (fraction[n - 1] == '0' || fraction[n - 1] == '.'); n--)
        fraction[n - 1] = '\0';
    return pl_buf_addf(out, "%llu%s", (unsigned long long)(ms / 1000), fraction);
}

bool pl_http_error_message(struct pl_buf *out, uint16_t status, uint64_t timeout_ms, const char *detail) {
    size_t start = out->len;
    bool ok;
    if (status == 429) {
        ok = pl_buf_adds(out, "Too many requests");
    } else if (status == 504) {
        ok = pl_buf_adds(out, "Not able to process the request in ") && add_seconds(out, timeout_ms) &&
             pl_buf_adds(out, " seconds");
    } else {
        ok = pl_buf_adds(out, pl_http_status_text(status));
    }
    if (detail != NULL) ok = ok && pl_buf_adds(out, ": ") && pl_buf_adds(out, detail);
    if (!ok) out->len = start;
    return ok;
}

static bool add_error(struct pl_buf *out, enum pl_http_dialect d, uint16_t status, const char *code,
                      const char *message) {
    bool ok, openai = d == PL_DIALECT_OPENAI;
    if (code == NULL) code = pl_http_error_code(status);
    ok = pl_buf_adds(out, openai ? "{\"error\":{\"message\":" : "{\"error\":") &&
         pl_buf_add_json(out, message, strlen(message));
    if (openai) ok = ok && pl_buf_addf(out, ",\"type\":\"%s\",\"param\":null", pl_http_error_type(status));
    return ok && pl_buf_adds(out, ",\"code\":") && pl_buf_add_json(out, code, strlen(code)) &&
           pl_buf_adds(out, openai ? "}}" : "}");
}

bool pl_http_error_body(struct pl_buf *out, enum pl_http_dialect d, uint16_t status, const char *code,
                        const char *message) {
    size_t start = out->len;
    if (add_error(out, d, status, code, message)) return true;
    out->len = start;
    return false;
}

bool pl_http_error_event(struct pl_buf *out, uint16_t status, const char *code, const char *message) {
    size_t start = out->len;
    if (pl_buf_adds(out, "data: ") && add_error(out, PL_DIALECT_OPENAI, status, code, message) &&
        pl_buf_adds(out, "\n\n"))
        return true;
    out->len = start;
    return false;
}
