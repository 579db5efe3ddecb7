/* fuzz_http_request.c - bytes of a client: parsed the same however they arrive, and what is accepted reaches
 * a worker as a request that the same strict parser takes, with one framing and without what must stay here.
 *
 * USES http base
 */
#include "http/write.h"
#include "http_splits.h"

static void forward(void *ctx, const struct pl_http_head *h) {
    static const enum pl_http_field gone[] = {
        PL_HF_KEEP_ALIVE,          PL_HF_TE,   PL_HF_TRAILER, PL_HF_EXPECT, PL_HF_PROXY_CONNECTION,
        PL_HF_PROXY_AUTHORIZATION, PL_HF_NAMED
    };
    struct pl_http_forward how = {
        .id = 1, .request_id = "r", .peer_address = "::1", .scheme = "http", .forwarded = PL_FORWARDED_APPEND
    };
    struct pl_buf out = { 0 };
    struct transcript again;
    size_t used;
    (void)ctx;
    char first = *pl_http_at(h, h->target);
    TRANSCRIPT_CHECK(first == '/' || (first == '*' && h->target_len == 1));
    TRANSCRIPT_CHECK(pl_http_write_request(&out, h, h->framing, h->content_length, &how));
    transcript_init(&again, false, &wider);
    TRANSCRIPT_CHECK(pl_http_parse(&again.parser, out.data, out.len, &used) == PL_HTTP_HEAD &&
                     used == out.len);
    const struct pl_http_head *g = &again.parser.head;
    TRANSCRIPT_CHECK(g->framing == h->framing && g->content_length == h->content_length &&
                     g->upgrade == h->upgrade);
    TRANSCRIPT_CHECK(g->target_len == h->target_len && g->method_id == h->method_id);
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        TRANSCRIPT_CHECK(pl_http_find(g, gone[i]) == NULL);
    pl_buf_free(&out);
    transcript_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536) return 0;
    splits((const char *)data, size, false, &wide, false, forward);
    splits((const char *)data, size, false, &narrow, false, forward);
    return 0;
}
