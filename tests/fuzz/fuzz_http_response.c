/* fuzz_http_response.c - bytes of a worker: parsed the same however they arrive, and a head that is accepted
 * reaches a client as one that the same strict parser takes, with the framing that we chose.
 *
 * USES http base
 */
#include "http/write.h"
#include "http_splits.h"

static void pass_on(void *ctx, const struct pl_http_head *h) {
    struct pl_buf out = { 0 };
    bool bodyless = h->framing == PL_HTTP_NO_BODY;
    (void)ctx;
    for (unsigned framing = PL_HTTP_NO_BODY; framing <= PL_HTTP_UNTIL_CLOSE; framing++) {
        struct transcript again;
        size_t used;
        if (bodyless != (framing == PL_HTTP_NO_BODY)) continue;
        out.len = 0;
        TRANSCRIPT_CHECK(
            pl_http_write_response(&out, h, (enum pl_http_framing)framing, 7, true, 1, "X-Extra: 1\r\n"));
        transcript_init(&again, true, &wider);
        pl_http_parser_answers_head(&again.parser, bodyless);
        TRANSCRIPT_CHECK(pl_http_parse(&again.parser, out.data, out.len, &used) == PL_HTTP_HEAD &&
                         used == out.len);
        const struct pl_http_head *g = &again.parser.head;
        TRANSCRIPT_CHECK(g->status == h->status && g->framing == framing && g->upgrade == h->upgrade);
        TRANSCRIPT_CHECK(g->keep_alive == (framing != PL_HTTP_UNTIL_CLOSE));
        transcript_free(&again);
    }
    pl_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536) return 0;
    splits((const char *)data, size, true, &wide, false, pass_on);
    splits((const char *)data, size, true, &wide, true, pass_on);
    splits((const char *)data, size, true, &narrow, false, pass_on);
    return 0;
}
