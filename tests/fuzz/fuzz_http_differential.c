/* fuzz_http_differential.c - what we make of a client's bytes and what a plain reading of RFC 9112 makes of
 * them: the same requests, one after the other, or both refuse. A difference is how requests are smuggled.
 *
 * USES http base
 */
#include <stdint.h>
#include <stdlib.h>

#include "../support/transcript.h"
#include "http_reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* So wide that none of them decides. */
static const struct pl_http_limits none = { .request_line = 1 << 17, .head_bytes = 1 << 18, .headers = 1000 };

static bool same(const char *ours, size_t len, struct ref_text theirs) {
    return len == theirs.len && memcmp(ours, theirs.at, len) == 0;
}

static void compare_heads(const struct pl_http_head *h, const struct ref_message *m) {
    const char *target = pl_http_at(h, h->target);
    size_t before = strlen(m->prefix);
    TRANSCRIPT_CHECK(same(pl_http_at(h, h->method), h->method_len, m->method));
    TRANSCRIPT_CHECK(h->target_len >= before && memcmp(target, m->prefix, before) == 0);
    TRANSCRIPT_CHECK(same(target + before, h->target_len - before, m->target));
    TRANSCRIPT_CHECK(h->minor == m->minor && h->header_count == m->headers);
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct pl_http_header *f = &h->headers[i];
        TRANSCRIPT_CHECK(same(pl_http_at(h, f->name), f->name_len, m->name[i]));
        TRANSCRIPT_CHECK(same(pl_http_at(h, f->value), f->value_len, m->value[i]));
    }
}

/* One request with ours: whether it is whole. `head` is checked against `m` when the other reader has one. */
static bool read_ours(struct pl_http_parser *p, const char *data, size_t len, const struct ref_message *m,
                      size_t *used, struct pl_buf *body) {
    for (size_t at = 0, took = 0;; at += took) {
        enum pl_http_event e = pl_http_parse(p, data + at, len - at, &took);
        if (e == PL_HTTP_HEAD && m != NULL) compare_heads(&p->head, m);
        if (e == PL_HTTP_BODY) TRANSCRIPT_CHECK(pl_buf_add(body, p->piece, p->piece_len));
        *used = at + took;
        if (e == PL_HTTP_END) return true;
        if (e == PL_HTTP_FAULT || (e == PL_HTTP_MORE && at + took == len)) return false;
    }
}

/* What we refuse for reasons of our own, which the other reader does not have; "ambiguous": llhttp and our
 * guards did not agree on the framing (it knows no tab behind `chunked`). */
static bool is_ours(const char *reason) {
    static const char *const ours[] = { "too many names in Connection", "chunk extension is too long",
                                        "ambiguous framing" };
    for (size_t i = 0; reason != NULL && i < sizeof ours / sizeof *ours; i++)
        if (strcmp(reason, ours[i]) == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct ref_message m;
    struct pl_http_parser p;
    const char *bytes = (const char *)data;
    if (size > 16384) return 0;
    pl_http_parser_init(&p, false, &none);
    for (bool goes_on = true; goes_on && size > 0; pl_http_parser_next(&p)) {
        struct pl_buf body = { 0 };
        size_t used = 0;
        enum ref_result theirs = ref_read(&m, bytes, size);
        bool ours = read_ours(&p, bytes, size, theirs == REF_MESSAGE ? &m : NULL, &used, &body);
        if (ours != (theirs == REF_MESSAGE) && !m.loose && !is_ours(p.fault_reason))
            fprintf(stderr, "ours: %s (%s), the reference: %s\n", ours ? "a request" : "none",
                    p.fault_reason != NULL ? p.fault_reason : "-",
                    theirs == REF_MESSAGE ? "a request"
                    : theirs == REF_BAD   ? "refused"
                                          : "incomplete");
        TRANSCRIPT_CHECK(!ours || theirs == REF_MESSAGE);
        TRANSCRIPT_CHECK(ours || theirs != REF_MESSAGE || m.loose || is_ours(p.fault_reason));
        if (ours) {
            TRANSCRIPT_CHECK(used == m.used && body.len == m.body_len);
            TRANSCRIPT_CHECK(body.len == 0 || memcmp(body.data, m.body, body.len) == 0);
        }
        pl_buf_free(&body);
        goes_on = ours && p.head.keep_alive;
        bytes += used;
        size -= used;
    }
    pl_http_parser_free(&p);
    return 0;
}
