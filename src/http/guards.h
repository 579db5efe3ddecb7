/* http/guards.h - inside room http: what a whole head must look like beyond llhttp's grammar.
 *
 * Request smuggling lives on two parsers that disagree, so everything that decides where a message ends, whom
 * it is for and what may follow it is judged here, once, on the whole head (RFC 9110 §5, §7; RFC 9112 §3, §6,
 * §9).
 */
#ifndef PL_HTTP_GUARDS_H
#define PL_HTTP_GUARDS_H
#include "http/parser.h"

/* What is wrong with a head; status 0: nothing. `reason` is static. */
struct pl_http_fault {
    uint16_t status;
    const char *reason;
};

/* Both give headers their ids, trim values, and set framing, content_length, keep_alive, upgrade and what
 * else follows from the headers. The request's target becomes origin-form. `no_body`: the reply answers HEAD.
 */
struct pl_http_fault pl_http_guard_request(struct pl_http_head *h);
struct pl_http_fault pl_http_guard_response(struct pl_http_head *h, bool no_body);

/* 0, or the status for a method that we do not serve. */
uint16_t pl_http_guard_method(uint8_t method_id);

/* Which known header a name is. Names are tokens in any case. */
enum pl_http_field pl_http_field_of(const char *name, size_t len);
/* ASCII only: no locale has a say in what a header is called. */
static inline unsigned char pl_http_lower(char c) {
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
}
/* True if `text` is `lower` in any case; both are `len` long. */
static inline bool pl_http_same(const char *text, const char *lower, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (pl_http_lower(text[i]) != (unsigned char)lower[i]) return false;
    return true;
}
/* The same when neither is known to be in lower case. */
static inline bool pl_http_alike(const char *a, const char *b, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (pl_http_lower(a[i]) != pl_http_lower(b[i])) return false;
    return true;
}
#endif
