/* http_splits.h - what both HTTP fuzz targets do: the same bytes whole, in two at every point and one by one
 * must tell the same story, under wide and under narrow limits. */
#ifndef PL_FUZZ_HTTP_SPLITS_H
#define PL_FUZZ_HTTP_SPLITS_H
#include "../support/transcript.h"

static const struct pl_http_limits wide = { .request_line = 8192, .head_bytes = 32768, .headers = 100 };
static const struct pl_http_limits narrow = { .request_line = 40, .head_bytes = 96, .headers = 3 };
/* for heads that we wrote ourselves */
static const struct pl_http_limits wider = { .request_line = 1 << 20,
                                             .head_bytes = 1 << 21,
                                             .headers = 1000 };

/* Small pieces are copied, so that a sanitizer sees a read or a kept pointer beyond them. */
static void feed_copy(struct transcript *t, const char *data, size_t len) {
    char *exact = malloc(len > 0 ? len : 1);
    TRANSCRIPT_CHECK(exact != NULL);
    for (size_t i = 0; i < len; i++) exact[i] = data[i];
    transcript_feed(t, exact, len, t->parser.core.type == HTTP_RESPONSE);
    free(exact);
}

/* `step` 0: in two pieces at `cut`. */
static void tell(struct transcript *t, const char *data, size_t len, size_t cut, size_t step,
                 bool answers_head) {
    pl_http_parser_answers_head(&t->parser, answers_head);
    if (step == 0) {
        feed_copy(t, data, cut);
        feed_copy(t, data + cut, len - cut);
    } else {
        for (size_t at = 0; at < len; at += step) feed_copy(t, data + at, len - at < step ? len - at : step);
    }
    transcript_close(t);
    TRANSCRIPT_CHECK(t->heads - t->ends <= 1);
}

static void compare(const struct transcript *first, bool response, const struct pl_http_limits *limits,
                    const char *data, size_t len, size_t cut, size_t step, bool answers_head) {
    struct transcript again;
    transcript_init(&again, response, limits);
    tell(&again, data, len, cut, step, answers_head);
    bool same = first->text.len == again.text.len &&
                (first->text.len == 0 || memcmp(first->text.data, again.text.data, first->text.len) == 0);
    if (!same)
        fprintf(stderr, "cut %zu step %zu\n--- whole\n%.*s\n--- pieces\n%.*s\n", cut, step,
                (int)first->text.len, first->text.data, (int)again.text.len, again.text.data);
    TRANSCRIPT_CHECK(same && first->leftover == again.leftover);
    transcript_free(&again);
}

static void splits(const char *data, size_t len, bool response, const struct pl_http_limits *limits,
                   bool answers_head, void (*on_head)(void *ctx, const struct pl_http_head *h)) {
    struct transcript first;
    transcript_init(&first, response, limits);
    first.on_head = on_head;
    tell(&first, data, len, len, 0, answers_head);
    size_t stride = len / 200 + 1;
    for (size_t cut = 0; cut < len; cut += stride)
        compare(&first, response, limits, data, len, cut, 0, answers_head);
    compare(&first, response, limits, data, len, 0, 1, answers_head);
    compare(&first, response, limits, data, len, 0, 7, answers_head);
    transcript_free(&first);
}
#endif
