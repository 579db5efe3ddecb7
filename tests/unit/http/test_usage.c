/* Tokens that a reply tells, wherever its bytes are cut. */
#include <string.h>

#include "http/usage.h"
#include "unit.h"

static int64_t read_cut(const char *text, size_t piece) {
    struct pl_http_usage u = { 0 };
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += piece)
        pl_http_usage_feed(&u, text + at, len - at < piece ? len - at : piece);
    return u.known ? (int64_t)u.tokens : -1;
}

TEST(tokens_are_found_however_the_bytes_are_cut) {
    static const struct {
        const char *text;
        int64_t tokens;
    } all[] = {
        { "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}",
          21 },
        { "{\"usage\" : {\n \"total_tokens\" : 7 , \"prompt_tokens_details\": {\"total_tokens\": 900}}}", 7 },
        { "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":5},\"total_tokens\":8}}", 8 },
        { "{\"usage\":{\"input_tokens\":4,\"output_tokens\":6}}", 10 },
        { "data: {\"usage\":{\"total_tokens\":3}}\n\ndata: {\"usage\":{\"total_tokens\":5}}\n\n", 5 },
        { "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":5}}\n\ndata: [DONE]\n\n", 5 },
        { "{\"content\":\"\\\"usage\\\":{\\\"total_tokens\\\":999}\"}", -1 }, /* a model's own words */
        { "{\"content\":\"say \\\"usage\\\": {\\\"total_tokens\\\": 999}\",\"usage\":{\"total_tokens\":1}}",
          1 },
        { "{\"x\":\"usage\",\"y\":{\"total_tokens\":9}}", -1 },
        { "{\"usage\":{\"total_tokens\":\"9\"}}", -1 },
        { "{\"usage\":{\"total_tokens\":9", -1 }, /* cut: not told */
        { "{\"usage\":{\"x\":\"total_tokens\",\"total_tokens\":2}}", 2 },
        { "{\"\"usage\":{\"total_tokens\":2}}", 2 },
        { "{\"usage\":{}}", -1 },
        { "", -1 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t piece = 1; piece < 40; piece++)
            if (read_cut(all[i].text, piece) != all[i].tokens)
                fail_msg("%s in pieces of %zu: %lld", all[i].text, piece,
                         (long long)read_cut(all[i].text, piece));
}

TEST(absurd_numbers_and_depths_end_somewhere) {
    struct pl_http_usage u = { 0 };
    pl_http_usage_feed(&u, "{\"usage\":{\"total_tokens\":", 25);
    for (int i = 0; i < 1000; i++) pl_http_usage_feed(&u, "9", 1);
    pl_http_usage_feed(&u, "}", 1);
    assert_true(u.known && u.tokens < 100000000000);
    pl_http_usage_feed(&u, "\"usage\":{", 9);
    for (int i = 0; i < 100000; i++) pl_http_usage_feed(&u, "[{\"a\":", 6);
    assert_in_range(u.depth, 0, PL_USAGE_DEPTH + 1);
}

RUN(cmocka_unit_test(tokens_are_found_however_the_bytes_are_cut),
    cmocka_unit_test(absurd_numbers_and_depths_end_somewhere))
