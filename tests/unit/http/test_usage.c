/* What replies say they used, from what vLLM really sent, in pieces of every size. */
#include <stdio.h>
#include <string.h>

#include "http/usage.h"
#include "unit.h"

static struct pl_usage u;

static void scan(const char *text, size_t len, bool events, size_t step) {
    struct pl_json_scan *s = pl_json_scan_create(64, false);
    assert_non_null(s);
    pl_usage_begin(&u, s, events);
    for (size_t i = 0; i < len; i += step) pl_usage_feed(&u, text + i, len - i < step ? len - i : step);
    pl_usage_end(&u);
    pl_json_scan_destroy(s);
}

TEST(recorded_streams_tell_their_usage_or_their_error) {
    static const struct {
        const char *name;
        uint64_t prompt, completion;
        bool told, error;
    } rows[] = {
        { "chat_stream", 0, 0, false, false },
        { "chat_stream_usage", 6, 4, true, false },
        { "chat_stream_continuous_usage", 6, 3, true, false },
        { "completion_stream", 0, 0, false, false },
        { "completion_stream_usage", 3, 4, true, false },
        { "engine_died_running", 0, 0, false, true },
        { "engine_died_queued", 0, 0, false, true },
        { "sigterm_abort_queued", 2, 0, true, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512], text[8192];
        snprintf(path, sizeof path, "%s/vllm/sse/%s.sse", PL_TEST_DATA, rows[i].name);
        FILE *f = fopen(path, "re");
        assert_non_null(f);
        size_t len = fread(text, 1, sizeof text, f);
        fclose(f);
        for (size_t step = 1; step < 70; step++) {
            scan(text, len, true, step);
            if (u.told != rows[i].told || u.error != rows[i].error || u.prompt_tokens != rows[i].prompt ||
                u.completion_tokens != rows[i].completion)
                fail_msg("%s in steps of %zu: %d %d %llu %llu", rows[i].name, step, u.told, u.error,
                         (unsigned long long)u.prompt_tokens, (unsigned long long)u.completion_tokens);
        }
    }
}

TEST(lines_may_end_in_any_way_and_events_have_several) {
    static const char *const same[] = {
        "data: {\"usage\":{\"prompt_tokens\":7}}\n\n",
        "data:{\"usage\":{\"prompt_tokens\":7}}\r\n\r\n",
        "data: {\"usage\":{\"prompt_tokens\":7}}\r\r",
        "\n: comment\nevent: x\ndata: {\"usage\":\ndata: {\"prompt_tokens\":7}}\nid: 1\n\n",
        "data: [DONE]\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\ndata: [DONE]\n\n",
        "data: {\"usage\":{\"prompt_tokens\":7}}", /* the last event has no end */
        "dat: x\ndatax: {}\n\ndata: no json\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\n",
        "data\n\ndata:\n\ndata: {\"usage\":{\"prompt_tokens\":7}}\n\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        for (size_t step = 1; step < 20; step++) {
            scan(same[i], strlen(same[i]), true, step);
            if (u.prompt_tokens != 7 || !u.told) fail_msg("row %zu, step %zu", i, step);
        }
}

TEST(a_plain_reply_is_one_document) {
    static const char ok[] = "{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,"
                             "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n";
    scan(ok, sizeof ok - 1, false, 3);
    assert_true(u.told && !u.error);
    assert_int_equal(u.cached_tokens, 3);
    scan(ok, sizeof ok - 4, false, 3); /* cut: it told nothing */
    assert_false(u.told);
    scan("{\"error\":\"Too many requests\"}", 29, false, 100);
    assert_true(u.error);
}

/* A key is charged for what the server says, never for what its model writes. */
TEST(what_a_model_writes_is_no_usage) {
    static const char *const lies[] = {
        "{\"choices\":[{\"message\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":999}\"}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"usage\",\"x\":{\"prompt_tokens\":999}}}]}",
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++)
        for (size_t step = 1; step < 40; step++) {
            scan(lies[i], strlen(lies[i]), false, step);
            assert_false(u.told);
        }
}

RUN(cmocka_unit_test(recorded_streams_tell_their_usage_or_their_error),
    cmocka_unit_test(lines_may_end_in_any_way_and_events_have_several),
    cmocka_unit_test(a_plain_reply_is_one_document), cmocka_unit_test(what_a_model_writes_is_no_usage))
