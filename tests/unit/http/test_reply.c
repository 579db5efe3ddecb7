/* Replies of our own, and the words of errors. */
#include "unit.h"

#include <string.h>

#include "http/write.h"

static void expect_reply(const struct pl_http_reply *r, const char *want) {
    struct pl_buf b = { 0 };
    assert_true(pl_http_write_reply(&b, r));
    assert_string_equal(pl_buf_text(&b), want);
    pl_buf_free(&b);
}

TEST(a_reply_is_whole) {
    struct pl_http_reply r = { .status = 200,
                               .keep_alive = true,
                               .client_minor = 1,
                               .body = "{\"live\":true}",
                               .body_len = 13,
                               .wall_ms = 784111777123 };
    expect_reply(&r, "HTTP/1.1 200 OK\r\nServer: plimsoll\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                     "Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"live\":true}");
    r = (struct pl_http_reply){ .status = 503,
                                .client_minor = 1,
                                .content_type = "text/plain",
                                .extra = "Retry-After: 3\r\n",
                                .body = "no",
                                .body_len = 2 };
    expect_reply(&r, "HTTP/1.1 503 Service Unavailable\r\nServer: plimsoll\r\nContent-Type: text/plain\r\n"
                     "Content-Length: 2\r\nConnection: close\r\nRetry-After: 3\r\n\r\nno");
    r.head_only = r.keep_alive = true;
    r.client_minor = 0;
    r.extra = NULL;
    expect_reply(&r, "HTTP/1.1 503 Service Unavailable\r\nServer: plimsoll\r\nContent-Type: text/plain\r\n"
                     "Content-Length: 2\r\nConnection: keep-alive\r\n\r\n");
    r = (struct pl_http_reply){ .status = 204, .keep_alive = true, .client_minor = 1 };
    expect_reply(&r, "HTTP/1.1 204 No Content\r\nServer: plimsoll\r\n\r\n");
}

TEST(a_reply_that_does_not_fit_adds_nothing) {
    struct pl_http_reply r = { .status = 200, .body = "hello", .body_len = 5 };
    for (size_t cap = 1; cap < 100; cap++) {
        struct pl_buf b;
        pl_buf_init(&b, cap);
        assert_false(pl_http_write_reply(&b, &r));
        assert_int_equal(b.len, 0);
        pl_buf_free(&b);
    }
}

TEST(v1_speaks_openai_and_the_rest_bentoml) {
    static const struct {
        const char *target;
        enum pl_http_dialect dialect;
    } cases[] = {
        { "/v1/chat/completions", PL_DIALECT_OPENAI },
        { "/v1/", PL_DIALECT_OPENAI },
        { "/v1", PL_DIALECT_BENTOML },
        { "/predict", PL_DIALECT_BENTOML },
        { "/v10/x", PL_DIALECT_BENTOML },
        { "*", PL_DIALECT_BENTOML },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(pl_http_dialect_of(cases[i].target, strlen(cases[i].target)), cases[i].dialect);
}

static void expect_error(enum pl_http_dialect d, uint16_t status, const char *code, const char *message,
                         const char *want) {
    struct pl_buf b = { 0 };
    assert_true(pl_http_error_body(&b, d, status, code, message));
    assert_string_equal(pl_buf_text(&b), want);
    pl_buf_free(&b);
}

TEST(errors_speak_both_dialects) {
    expect_error(PL_DIALECT_BENTOML, 429, NULL, "Too many requests",
                 "{\"error\":\"Too many requests\",\"code\":\"rate_limit_exceeded\"}");
    expect_error(PL_DIALECT_OPENAI, 429, NULL, "Too many requests",
                 "{\"error\":{\"message\":\"Too many requests\",\"type\":\"rate_limit_error\",\"param\":null,"
                 "\"code\":\"rate_limit_exceeded\"}}");
    expect_error(
        PL_DIALECT_OPENAI, 400, "context_length_exceeded", "a \"b\"\n\xff",
        "{\"error\":{\"message\":\"a \\\"b\\\"\\n\\ufffd\",\"type\":\"invalid_request_error\",\"param\":null,"
        "\"code\":\"context_length_exceeded\"}}");
    struct pl_buf b = { 0 };
    assert_true(pl_http_error_event(&b, 502, NULL, "died"));
    assert_string_equal(pl_buf_text(&b),
                        "data: {\"error\":{\"message\":\"died\",\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"worker_failed\"}}\n\n");
    pl_buf_free(&b);
}

TEST(messages_begin_with_bentomls_words) {
    static const struct {
        uint16_t status;
        uint64_t timeout_ms;
        const char *detail, *want;
    } cases[] = {
        { 429, 0, NULL, "Too many requests" },
        { 429, 0, "the queue is full (256)", "Too many requests: the queue is full (256)" },
        { 504, 30000, NULL, "Not able to process the request in 30 seconds" },
        { 504, 1500, NULL, "Not able to process the request in 1.5 seconds" },
        { 504, 50, NULL, "Not able to process the request in 0.05 seconds" },
        { 504, 100001, NULL, "Not able to process the request in 100.001 seconds" },
        { 413, 0, "limits.body is 100MiB", "Content Too Large: limits.body is 100MiB" },
        { 503, 0, NULL, "Service Unavailable" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pl_buf b = { 0 };
        assert_true(pl_http_error_message(&b, cases[i].status, cases[i].timeout_ms, cases[i].detail));
        assert_string_equal(pl_buf_text(&b), cases[i].want);
        pl_buf_free(&b);
    }
}

TEST(every_error_has_a_type_and_a_status_text) {
    static const struct {
        uint16_t status;
        const char *type, *code;
    } table[] = {
#define ERROR(status, type, code) { status, type, code },
        PL_HTTP_ERRORS(ERROR)
#undef ERROR
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_string_equal(pl_http_error_type(table[i].status), table[i].type);
        assert_string_not_equal(pl_http_status_text(table[i].status), "Unknown");
        bool first = i == 0 || table[i].status != table[i - 1].status;
        if (first) assert_string_equal(pl_http_error_code(table[i].status), table[i].code);
    }
    assert_string_equal(pl_http_error_code(418), "bad_request");
    assert_string_equal(pl_http_error_code(599), "service_unavailable");
    assert_string_equal(pl_http_status_text(999), "Unknown");
}

TEST(every_reason_for_not_serving_has_a_code_of_its_status) {
    for (unsigned r = PL_REASON_NONE + 1; r < PL_REASON_COUNT; r++) {
        const struct pl_reason_info *info = pl_reason_info((enum pl_reason)r);
        bool known = info->status == 499; /* nobody is there to read it */
#define ERROR(number, type, text) \
    known = known || (info->status == (number) && strcmp(info->code, (text)) == 0);
        PL_HTTP_ERRORS(ERROR)
#undef ERROR
        if (!known) fail_msg("%s: %d %s", info->name, info->status, info->code);
        assert_true(info->load == (info->status == 429 || info->status == 503 || info->status == 499));
    }
    assert_string_equal(pl_reason_info(PL_REASON_COUNT)->name, "none");
}

RUN(cmocka_unit_test(a_reply_is_whole), cmocka_unit_test(a_reply_that_does_not_fit_adds_nothing),
    cmocka_unit_test(v1_speaks_openai_and_the_rest_bentoml), cmocka_unit_test(errors_speak_both_dialects),
    cmocka_unit_test(messages_begin_with_bentomls_words),
    cmocka_unit_test(every_error_has_a_type_and_a_status_text),
    cmocka_unit_test(every_reason_for_not_serving_has_a_code_of_its_status))
