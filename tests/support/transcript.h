/* tests/support/transcript.h - what the parser says about a stream of bytes, as one text: two feedings of the
 * same stream must give the same text. Used by unit tests and fuzz targets. */
#ifndef PL_TESTS_TRANSCRIPT_H
#define PL_TESTS_TRANSCRIPT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/parser.h"

/* Holds in release too, and stops a fuzzer where it happens. */
#define TRANSCRIPT_CHECK(cond)                                                 \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                           \
        }                                                                      \
    } while (0)

struct transcript {
    struct pl_http_parser parser;
    struct pl_buf text; /* HEAD, END and FAULT lines; body bytes in between */
    struct pl_buf body; /* of all messages, joined */
    size_t heads, ends, leftover;
    bool open; /* a head without its end */
    bool faulted;
    /* Sees every head while the parser has it. */
    void (*on_head)(void *ctx, const struct pl_http_head *h);
    void *ctx;
};

static inline void transcript_init(struct transcript *t, bool response, const struct pl_http_limits *limits) {
    *t = (struct transcript){ 0 };
    pl_http_parser_init(&t->parser, response, limits);
}

static inline void transcript_free(struct transcript *t) {
    pl_http_parser_free(&t->parser);
    pl_buf_free(&t->text);
    pl_buf_free(&t->body);
}

static inline void transcript_head(struct transcript *t) {
    const struct pl_http_head *h = &t->parser.head;
    TRANSCRIPT_CHECK(!t->open);
    t->open = true;
    t->heads++;
    pl_buf_adds(&t->text, "HEAD ");
    pl_buf_add(&t->text, pl_http_at(h, h->method), h->method_len);
    pl_buf_adds(&t->text, " ");
    pl_buf_add(&t->text, pl_http_at(h, h->target), h->target_len);
    pl_buf_addf(&t->text, " %u ", h->status);
    pl_buf_add(&t->text, pl_http_at(h, h->reason), h->reason_len);
    pl_buf_addf(&t->text, " minor=%u framing=%u length=%llu keep=%d upgrade=%d expect=%d\n", h->minor,
                h->framing, (unsigned long long)h->content_length, h->keep_alive, h->upgrade,
                h->expect_continue);
    for (uint32_t i = 0; i < h->header_count; i++) {
        const struct pl_http_header *f = &h->headers[i];
        TRANSCRIPT_CHECK((size_t)f->name + f->name_len < h->text.len && f->name_len > 0);
        TRANSCRIPT_CHECK((size_t)f->value + f->value_len < h->text.len && f->id < PL_HF_COUNT);
        for (uint32_t k = 0; k < f->value_len; k++) {
            unsigned char c = (unsigned char)*pl_http_at(h, f->value + k);
            TRANSCRIPT_CHECK((c >= ' ' || c == '\t') && c != 0x7f);
        }
        pl_buf_addf(&t->text, "  %u ", f->id);
        pl_buf_add(&t->text, pl_http_at(h, f->name), f->name_len);
        pl_buf_adds(&t->text, ": ");
        pl_buf_add(&t->text, pl_http_at(h, f->value), f->value_len);
        pl_buf_adds(&t->text, "|\n");
    }
    if (t->on_head != NULL) t->on_head(t->ctx, h);
}

static inline void transcript_fault(struct transcript *t) {
    if (!t->faulted) pl_buf_addf(&t->text, "\nFAULT %u %s\n", t->parser.fault_status, t->parser.fault_reason);
    TRANSCRIPT_CHECK(t->parser.fault_status >= 400 && t->parser.fault_reason != NULL);
    t->faulted = true;
}

/* Replies: `once` stops behind the final one; what is left is counted. */
static inline void transcript_feed(struct transcript *t, const char *data, size_t len, bool once) {
    size_t at = 0, used = 0;
    while (!t->faulted) {
        enum pl_http_event e = pl_http_parse(&t->parser, data + at, len - at, &used);
        TRANSCRIPT_CHECK(used <= len - at);
        switch (e) {
        case PL_HTTP_MORE:
            TRANSCRIPT_CHECK(at + used == len);
            return;
        case PL_HTTP_HEAD:
            transcript_head(t);
            break;
        case PL_HTTP_BODY:
            TRANSCRIPT_CHECK(t->open && t->parser.piece_len > 0 && t->parser.piece >= data + at);
            TRANSCRIPT_CHECK(t->parser.piece + t->parser.piece_len <= data + at + used);
            pl_buf_add(&t->text, t->parser.piece, t->parser.piece_len);
            pl_buf_add(&t->body, t->parser.piece, t->parser.piece_len);
            break;
        case PL_HTTP_END:
            if (!t->open) { /* said before: the bytes behind it are nobody's */
                TRANSCRIPT_CHECK(once && used == 0);
                t->leftover += len - at;
                return;
            }
            pl_buf_adds(&t->text, "\nEND\n");
            t->open = false;
            t->ends++;
            if (!once || t->parser.head.status < 200) pl_http_parser_next(&t->parser);
            break;
        case PL_HTTP_FAULT:
            transcript_fault(t);
            break;
        }
        at += used;
    }
}

static inline void transcript_close(struct transcript *t) {
    enum pl_http_event e = pl_http_parse_close(&t->parser);
    if (e == PL_HTTP_END) {
        TRANSCRIPT_CHECK(t->open);
        pl_buf_adds(&t->text, "\nEND\n");
        t->open = false;
        t->ends++;
    } else if (e == PL_HTTP_FAULT) {
        transcript_fault(t);
    } else {
        TRANSCRIPT_CHECK(e == PL_HTTP_MORE && !t->open);
    }
}
#endif
