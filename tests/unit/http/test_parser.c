/* The parser as its callers use it: events, ownership, limits, what follows from a head. */
#include "unit.h"

#include "transcript.h"

static const struct pl_http_limits limits = { .request_line = 8192, .head_bytes = 32768, .headers = 100 };
static const struct pl_http_limits small = { .request_line = 32, .head_bytes = 64, .headers = 2 };

#define HOST "Host: a\r\n"

struct fixture {
    struct pl_http_parser p;
    size_t used;
};

static enum pl_http_event feed(struct fixture *f, const char *text) {
    return pl_http_parse(&f->p, text, strlen(text), &f->used);
}

static void expect_request(const char *text, enum pl_http_event event, uint16_t status) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    enum pl_http_event got = feed(&f, text);
    if (got != event || (event == PL_HTTP_FAULT && f.p.fault_status != status))
        fail_msg("%s\n%s: event %d, status %d %s", text,
                 event == PL_HTTP_FAULT ? "must be refused" : "is fine", (int)got, f.p.fault_status,
                 got == PL_HTTP_FAULT ? f.p.fault_reason : "");
    pl_http_parser_free(&f.p);
}

static void assert_text(const struct pl_http_head *h, uint32_t offset, uint32_t len, const char *want) {
    assert_int_equal(len, strlen(want));
    assert_memory_equal(pl_http_at(h, offset), want, len);
}

TEST(one_message_is_head_body_end_and_then_the_next) {
    static const char text[] =
        "POST /a HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\n" HOST "\r\n";
    struct fixture f;
    const char *at = text;
    pl_http_parser_init(&f.p, false, &limits);
    assert_true(pl_http_parser_idle(&f.p));
    assert_int_equal(feed(&f, at), PL_HTTP_HEAD);
    assert_false(pl_http_parser_idle(&f.p));
    assert_int_equal(f.p.head.method_id, HTTP_POST);
    assert_int_equal(f.p.head.framing, PL_HTTP_LENGTH);
    assert_int_equal(f.p.head.content_length, 5);
    at += f.used;
    assert_int_equal(feed(&f, at), PL_HTTP_BODY);
    assert_ptr_equal(f.p.piece, at);
    assert_int_equal(f.p.piece_len, 5);
    at += f.used;
    assert_int_equal(feed(&f, at), PL_HTTP_END);
    assert_int_equal(f.used, 0);
    assert_int_equal(feed(&f, at), PL_HTTP_END); /* until next is called */
    pl_http_parser_next(&f.p);
    assert_int_equal(feed(&f, at), PL_HTTP_HEAD);
    assert_text(&f.p.head, f.p.head.target, f.p.head.target_len, "/b");
    assert_int_equal(feed(&f, at + f.used), PL_HTTP_END);
    pl_http_parser_free(&f.p);
}

TEST(end_comes_without_further_bytes) {
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\n" HOST "\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx",
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct transcript t;
        transcript_init(&t, false, &limits);
        transcript_feed(&t, texts[i], strlen(texts[i]), false);
        assert_int_equal(t.ends, 1);
        transcript_free(&t);
    }
}

TEST(an_idle_parser_holds_no_heap) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    for (int i = 0; i < 3; i++) {
        assert_null(f.p.head.text.data);
        assert_null(f.p.head.headers);
        assert_int_equal(feed(&f, "\r\n"), PL_HTTP_MORE); /* an empty line is no message yet */
        assert_true(pl_http_parser_idle(&f.p));
        assert_null(f.p.head.text.data);
        assert_int_equal(feed(&f, "GET / HTTP/1.1\r\n" HOST "\r\n"), PL_HTTP_HEAD);
        assert_non_null(f.p.head.text.data);
        assert_int_equal(feed(&f, ""), PL_HTTP_END);
        pl_http_parser_next(&f.p);
        assert_true(pl_http_parser_idle(&f.p));
    }
    pl_http_parser_free(&f.p);
}

TEST(a_head_that_was_taken_lives_on_while_the_body_is_read) {
    struct fixture f;
    struct pl_http_head head;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, "POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"),
                     PL_HTTP_HEAD);
    pl_http_head_take(&f.p, &head);
    assert_null(f.p.head.text.data);
    assert_int_equal(feed(&f, "2\r\nxy\r\n"), PL_HTTP_BODY);
    assert_int_equal(feed(&f, "\r\n0\r\nX-Trailer: 1\r\n\r\n"), PL_HTTP_END);
    pl_http_parser_next(&f.p);
    assert_text(&head, head.target, head.target_len, "/a");
    assert_non_null(pl_http_find(&head, PL_HF_HOST));
    pl_http_head_free(&head);
    pl_http_parser_free(&f.p);
}

TEST(after_a_refusal_nothing_is_read_any_more) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, "GET / HTTP/1.1\r\n\r\n"), PL_HTTP_FAULT);
    const char *reason = f.p.fault_reason;
    assert_int_equal(feed(&f, "GET / HTTP/1.1\r\n" HOST "\r\n"), PL_HTTP_FAULT);
    assert_int_equal(f.used, 0);
    assert_int_equal(pl_http_parse_close(&f.p), PL_HTTP_FAULT);
    assert_string_equal(f.p.fault_reason, reason);
    pl_http_parser_free(&f.p);
}

TEST(limits_hold_at_their_exact_byte) {
    struct {
        const char *text;
        enum pl_http_event event;
        uint16_t status;
    } cases[] = {
        { "GET /3456789012345678901 HTTP/1.1\r\n", PL_HTTP_FAULT, 414 }, /* 33 bytes to the version's end */
        { "GET /345678901234567890 HTTP/1.1\r\n", PL_HTTP_MORE, 0 },     /* 32 */
        { "GET / HTTP/1.1\r\n" HOST "X: 34567890123456789012345678901234567890", PL_HTTP_FAULT,
          431 },                                                                                    /* 65 */
        { "GET / HTTP/1.1\r\n" HOST "X: 345678901234567890123456789012\r\n\r\n", PL_HTTP_HEAD, 0 }, /* 61 */
        { "GET / HTTP/1.1\r\n" HOST "X: 3456789012345678901234567890123456\r\n\r\n", PL_HTTP_FAULT, 431 },
        { "GET / HTTP/1.1\r\n" HOST "X:\r\n\r\n", PL_HTTP_HEAD, 0 },
        { "GET / HTTP/1.1\r\n" HOST "X:\r\nY:\r\n\r\n", PL_HTTP_FAULT, 431 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        pl_http_parser_init(&f.p, false, &small);
        assert_int_equal(feed(&f, cases[i].text), cases[i].event);
        if (cases[i].event == PL_HTTP_FAULT) assert_int_equal(f.p.fault_status, cases[i].status);
        pl_http_parser_free(&f.p);
    }
}

TEST(an_endless_head_does_not_grow_beyond_its_limit) {
    struct fixture f;
    char block[4096];
    enum pl_http_event e;
    memset(block, 'a', sizeof block);
    pl_http_parser_init(&f.p, false, &limits);
    e = feed(&f, "GET / HTTP/1.1\r\n" HOST "X: ");
    for (int i = 0; i < 100 && e == PL_HTTP_MORE; i++) e = pl_http_parse(&f.p, block, sizeof block, &f.used);
    assert_int_equal(e, PL_HTTP_FAULT);
    assert_int_equal(f.p.fault_status, 431);
    assert_true(f.p.head.text.size <= limits.head_bytes);
    pl_http_parser_free(&f.p);
}

TEST(chunk_framing_and_trailers_are_bounded) {
    struct fixture f;
    char block[4096];
    enum pl_http_event e;
    memset(block, 'a', sizeof block);
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"), PL_HTTP_HEAD);
    assert_int_equal(feed(&f, "1;"), PL_HTTP_MORE);
    assert_int_equal(pl_http_parse(&f.p, block, sizeof block, &f.used), PL_HTTP_FAULT);
    assert_int_equal(f.p.fault_status, 400);
    pl_http_parser_next(&f.p);
    assert_int_equal(feed(&f, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"), PL_HTTP_HEAD);
    e = feed(&f, "0\r\nX: ");
    for (int i = 0; i < 100 && e == PL_HTTP_MORE; i++) e = pl_http_parse(&f.p, block, sizeof block, &f.used);
    assert_int_equal(e, PL_HTTP_FAULT);
    assert_int_equal(f.p.fault_status, 431);
    pl_http_parser_free(&f.p);
}

TEST(absolute_form_becomes_origin_form) {
    static const struct {
        const char *method, *target, *host, *want;
    } cases[] = {
        { "GET", "http://a/echo?x=1", "a", "/echo?x=1" },
        { "GET", "http://A.example:80/", "a.Example:80", "/" },
        { "GET", "HTTPS://a/x", "a", "/x" },
        { "GET", "http://[::1]:3000/x", "[::1]:3000", "/x" },
        { "GET", "http://abc", "abc", "/" },
        { "GET", "http://a?x=1", "a", "/?x=1" },
        { "OPTIONS", "http://a", "a", "*" },
        { "OPTIONS", "http://a/", "a", "/" },
        { "OPTIONS", "*", "a", "*" },
        { "GET", "//a/b", "a", "//a/b" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].method, cases[i].target,
                 cases[i].host);
        pl_http_parser_init(&f.p, false, &limits);
        assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
        assert_text(&f.p.head, f.p.head.target, f.p.head.target_len, cases[i].want);
        pl_http_parser_free(&f.p);
    }
}

TEST(targets_and_hosts_that_could_mean_two_things_are_refused) {
    static const char *const bad[] = {
        "GET http://b/ HTTP/1.1\r\n" HOST "\r\n",
        "GET http://a:80/ HTTP/1.1\r\n" HOST "\r\n",
        "GET http://u@a/ HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET http:///x HTTP/1.1\r\n" HOST "\r\n",
        "GET http:/a/x HTTP/1.1\r\n" HOST "\r\n",
        "GET http://a/ HTTP/1.0\r\n\r\n",
        "GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "GET *x HTTP/1.1\r\n" HOST "\r\n",
        "GET /\x7f HTTP/1.1\r\n" HOST "\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n",
        "GET /\tx HTTP/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: :80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: []\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\\b\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
    };
    static const char *const good[] = { "a",  "a.b-c_d", "127.0.0.1:3000", "[::ffff:1.2.3.4]",
                                        "a:", "a:0",     "a%20b" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) expect_request(bad[i], PL_HTTP_FAULT, 400);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", good[i]);
        expect_request(text, PL_HTTP_HEAD, 0);
    }
}

TEST(each_refusal_has_its_status) {
    static const struct {
        uint16_t status;
        const char *text;
    } cases[] = {
        { 400, "get / HTTP/1.1\r\n" HOST "\r\n" },
        { 400, " GET / HTTP/1.1\r\n" HOST "\r\n" },
        { 400, "\x16\x03\x01" },
        { 400, "\nGET / HTTP/1.1\r\n" HOST "\r\n" },
        { 400, "\r\rGET / HTTP/1.1\r\n" HOST "\r\n" },
        { 400, "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n" },
        { 400, "GET /\r\n" HOST "\r\n" },
        { 400, "GET /\r\n\r\n" },
        { 400, "GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n" },
        { 400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" },
        { 400, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" },
        { 400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n" },
        { 400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775808\r\n\r\n" },
        { 405, "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n" },
        { 405, "TRACE / HTTP/1.1\r\n" HOST "\r\n" },
        { 417, "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue, x\r\nContent-Length: 1\r\n\r\n" },
        { 501, "FROBNICATE / HTTP/1.1\r\n" HOST "\r\n" },
        { 501, "GETX / HTTP/1.1\r\n" HOST "\r\n" },
        { 501, "GE / HTTP/1.1\r\n" HOST "\r\n" },
        { 501, "SOURCE / HTTP/1.1\r\n" HOST "\r\n" },
        { 501, "SETUP / HTTP/1.1\r\n" HOST "\r\n" },
        { 505, "GET / HTTP/2.0\r\n" HOST "\r\n" },
        { 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_request(cases[i].text, PL_HTTP_FAULT, cases[i].status);
}

TEST(the_http2_preface_is_told_what_is_spoken_here) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), PL_HTTP_FAULT);
    assert_non_null(strstr(f.p.fault_reason, "HTTP/2"));
    pl_http_parser_free(&f.p);
}

TEST(what_follows_from_the_headers_of_a_request) {
    static const struct {
        const char *text;
        bool keep, upgrade, expect;
    } cases[] = {
        { "GET / HTTP/1.1\r\n" HOST "\r\n", true, false, false },
        { "GET / HTTP/1.1\r\n" HOST "Connection: x, Close\r\n\r\n", false, false, false },
        { "GET / HTTP/1.0\r\n\r\n", false, false, false },
        { "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, false, false },
        { "GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false, false, false },
        { "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n", true, true, false },
        { "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", true, false, false },
        { "GET / HTTP/1.1\r\n" HOST "Upgrade: websocket\r\n\r\n", true, false, false },
        { "GET / HTTP/1.0\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false, false,
          false },
        { "POST / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", true, false,
          false },
        { "POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n", true, false, true },
        { "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n", true,
          false, true },
        { "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", true, false,
          false },
        { "POST / HTTP/1.0\r\n" HOST "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n", false, false,
          false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        pl_http_parser_init(&f.p, false, &limits);
        assert_int_equal(feed(&f, cases[i].text), PL_HTTP_HEAD);
        assert_int_equal(f.p.head.keep_alive, cases[i].keep);
        assert_int_equal(f.p.head.upgrade, cases[i].upgrade);
        assert_int_equal(f.p.head.expect_continue, cases[i].expect);
        pl_http_parser_free(&f.p);
    }
}

TEST(after_an_upgrade_the_bytes_belong_to_the_tunnel) {
    static const char text[] =
        "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01x";
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
    size_t at = f.used;
    assert_int_equal(feed(&f, text + at), PL_HTTP_END);
    assert_int_equal(f.used, 0);
    assert_string_equal(text + at, "\x81\x01x");
    pl_http_parser_free(&f.p);
}

TEST(headers_that_connection_names_are_not_found_any_more) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, "GET / HTTP/1.1\r\n" HOST "X-Api-Key: k\r\nX-Secret: 1\r\nX-Kept: 2\r\n"
                              "Connection: close, x-SECRET ,X-Api-Key, host\r\n\r\n"),
                     PL_HTTP_HEAD);
    assert_null(pl_http_find(&f.p.head, PL_HF_X_API_KEY));
    assert_null(pl_http_find_named(&f.p.head, "x-secret"));
    assert_non_null(pl_http_find_named(&f.p.head, "x-kept"));
    assert_non_null(pl_http_find(&f.p.head, PL_HF_HOST));
    pl_http_parser_free(&f.p);
}

TEST(connection_cannot_name_without_end) {
    struct pl_buf text = { 0 };
    pl_buf_adds(&text, "GET / HTTP/1.1\r\n" HOST "Connection: x");
    for (int i = 0; i < 63; i++) pl_buf_adds(&text, ",x");
    size_t len = text.len;
    pl_buf_adds(&text, "\r\n\r\n");
    expect_request(pl_buf_text(&text), PL_HTTP_HEAD, 0);
    text.len = len;
    pl_buf_adds(&text, ",x\r\n\r\n");
    expect_request(pl_buf_text(&text), PL_HTTP_FAULT, 400);
    pl_buf_free(&text);
}

TEST(connection_cannot_take_framing_away) {
    struct fixture f;
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(
        feed(&f, "POST / HTTP/1.1\r\n" HOST "Connection: content-length\r\nContent-Length: 5\r\n\r\n"),
        PL_HTTP_HEAD);
    assert_int_equal(f.p.head.framing, PL_HTTP_LENGTH);
    assert_int_equal(f.p.head.content_length, 5);
    pl_http_parser_free(&f.p);
}

TEST(every_known_name_is_recognised_in_any_case) {
    static const char *const names[PL_HF_COUNT] = {
#define X(sym, name, hop) name,
        PL_HTTP_FIELDS(X)
#undef X
    };
    for (unsigned id = 0; id < PL_HF_COUNT; id++) {
        char text[256], name[64];
        if (names[id][0] == '\0') continue;
        snprintf(name, sizeof name, "%s", names[id]);
        char *star = strchr(name, '*');
        if (star != NULL) memcpy(star, "q", 2);
        for (int upper = 0; upper < 2; upper++) {
            struct fixture f;
            for (char *s = name; upper && *s != '\0'; s++)
                if (*s >= 'a' && *s <= 'z') *s = (char)(*s - 'a' + 'A');
            const char *value = id == PL_HF_CONTENT_LENGTH      ? "1"
                                : id == PL_HF_TRANSFER_ENCODING ? "chunked"
                                                                : "100-continue";
            snprintf(text, sizeof text, "GET / HTTP/1.%d\r\n%s: %s\r\n%s\r\n", id != PL_HF_HOST, name, value,
                     id != PL_HF_HOST ? HOST : "");
            pl_http_parser_init(&f.p, false, &limits);
            assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
            if (f.p.head.headers[0].id != id) fail_msg("%s is not recognised", name);
            snprintf(text, sizeof text, "GET / HTTP/1.0\r\n%sx: 1\r\n\r\n", name);
            pl_http_parser_next(&f.p);
            assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
            assert_int_equal(f.p.head.headers[0].id, star != NULL ? PL_HF_X_PLIMSOLL : PL_HF_OTHER);
            pl_http_parser_free(&f.p);
        }
    }
}

TEST(interim_replies_are_messages_of_their_own) {
    static const char text[] =
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    struct fixture f;
    pl_http_parser_init(&f.p, true, &limits);
    pl_http_parser_answers_head(&f.p, true);
    assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
    assert_int_equal(f.p.head.status, 103);
    const char *at = text + f.used;
    assert_int_equal(feed(&f, at), PL_HTTP_END);
    pl_http_parser_next(&f.p);
    assert_int_equal(feed(&f, at), PL_HTTP_HEAD);
    assert_int_equal(f.p.head.status, 200);
    assert_int_equal(f.p.head.framing, PL_HTTP_NO_BODY); /* it still answers HEAD */
    assert_int_equal(feed(&f, ""), PL_HTTP_END);
    pl_http_parser_free(&f.p);
}

TEST(a_101_is_an_upgrade_or_a_fault) {
    struct fixture f;
    pl_http_parser_init(&f.p, true, &limits);
    assert_int_equal(
        feed(&f, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        PL_HTTP_HEAD);
    assert_true(f.p.head.upgrade);
    assert_int_equal(feed(&f, "\x81"), PL_HTTP_END);
    assert_int_equal(f.used, 0);
    pl_http_parser_next(&f.p);
    assert_int_equal(feed(&f, "HTTP/1.1 101 Switching Protocols\r\n\r\n"), PL_HTTP_FAULT);
    assert_int_equal(f.p.fault_status, 502);
    pl_http_parser_free(&f.p);
}

TEST(a_close_completes_only_what_it_may) {
    static const struct {
        const char *text;
        enum pl_http_event event;
        bool response;
    } cases[] = {
        { "", PL_HTTP_MORE, true },
        { "HTTP/1.1 200 OK\r\n\r\nhello", PL_HTTP_END, true },
        { "HTTP/1.1 200 OK\r\n\r\n", PL_HTTP_END, true },
        { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", PL_HTTP_FAULT, true },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", PL_HTTP_MORE, true },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", PL_HTTP_FAULT, true },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", PL_HTTP_FAULT, true },
        { "HTTP/1.1 20", PL_HTTP_FAULT, true },
        { "\r\n", PL_HTTP_MORE, false },
        { "GET / HTT", PL_HTTP_FAULT, false },
        { "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhel", PL_HTTP_FAULT, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct transcript t;
        transcript_init(&t, cases[i].response, &limits);
        transcript_feed(&t, cases[i].text, strlen(cases[i].text), cases[i].response);
        assert_int_equal(pl_http_parse_close(&t.parser), cases[i].event);
        transcript_free(&t);
    }
}

TEST(a_reply_that_ends_with_the_close_is_not_reusable) {
    static const struct {
        const char *text;
        bool keep;
    } cases[] = {
        { "HTTP/1.1 200 OK\r\n\r\n", false },
        { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true },
        { "HTTP/1.1 200\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false },
        { "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false },
        { "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", true },
        { "HTTP/1.1 204 No Content\r\n\r\n", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        pl_http_parser_init(&f.p, true, &limits);
        assert_int_equal(feed(&f, cases[i].text), PL_HTTP_HEAD);
        assert_int_equal(f.p.head.keep_alive, cases[i].keep);
        pl_http_parser_free(&f.p);
    }
}

TEST(a_head_with_many_headers_keeps_them_all_in_order) {
    struct pl_buf text = { 0 };
    struct fixture f;
    pl_buf_adds(&text, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 99; i++) pl_buf_addf(&text, "X-%d: v%d \r\n", i, i);
    pl_buf_adds(&text, "\r\n");
    pl_http_parser_init(&f.p, false, &limits);
    assert_int_equal(feed(&f, pl_buf_text(&text)), PL_HTTP_HEAD);
    assert_int_equal(f.p.head.header_count, 100);
    for (uint32_t i = 0; i < 99; i++) {
        char value[8];
        const struct pl_http_header *h = &f.p.head.headers[i + 1];
        snprintf(value, sizeof value, "v%u", i);
        assert_text(&f.p.head, h->value, h->value_len, value);
    }
    pl_http_parser_free(&f.p);
    pl_buf_free(&text);
}

TEST(memory_of_a_head_serves_the_next_of_any_connection_and_an_idle_one_has_none) {
    static const char text[] = "GET /a HTTP/1.1\r\n" HOST "\r\n";
    struct pl_http_spares spares = { 0 };
    struct fixture f, g;
    pl_http_parser_init(&f.p, false, &limits);
    pl_http_parser_init(&g.p, false, &limits);
    f.p.spares = g.p.spares = &spares;
    assert_int_equal(feed(&f, text), PL_HTTP_HEAD);
    const char *memory = f.p.head.text.data;
    pl_http_parser_next(&f.p);
    assert_int_equal(spares.count, 1);
    assert_null(f.p.head.text.data);
    assert_int_equal(feed(&g, ""), PL_HTTP_MORE); /* nothing has come: nothing is taken */
    assert_int_equal(spares.count, 1);
    assert_int_equal(feed(&g, text), PL_HTTP_HEAD);
    assert_ptr_equal(g.p.head.text.data, memory);
    assert_int_equal(g.p.head.header_count, 1);
    assert_text(&g.p.head, g.p.head.target, g.p.head.target_len, "/a");
    assert_int_equal(spares.count, 0);
    pl_http_parser_free(&g.p);
    assert_int_equal(spares.count, 1);
    pl_http_parser_free(&f.p);
    pl_http_spares_free(&spares);
    assert_int_equal(spares.count, 0);
}

TEST(memory_of_a_large_head_is_not_kept) {
    struct pl_http_spares spares = { 0 };
    struct pl_buf text = { 0 };
    struct fixture f;
    pl_buf_adds(&text, "GET / HTTP/1.1\r\n" HOST "X: ");
    for (int i = 0; i < 3000; i++) pl_buf_adds(&text, "x");
    pl_buf_adds(&text, "\r\n\r\n");
    pl_http_parser_init(&f.p, false, &limits);
    f.p.spares = &spares;
    assert_int_equal(feed(&f, pl_buf_text(&text)), PL_HTTP_HEAD);
    pl_http_parser_next(&f.p);
    assert_int_equal(spares.count, 0);
    pl_http_parser_free(&f.p);
    pl_buf_free(&text);
}

RUN(cmocka_unit_test(one_message_is_head_body_end_and_then_the_next),
    cmocka_unit_test(end_comes_without_further_bytes), cmocka_unit_test(an_idle_parser_holds_no_heap),
    cmocka_unit_test(a_head_that_was_taken_lives_on_while_the_body_is_read),
    cmocka_unit_test(after_a_refusal_nothing_is_read_any_more),
    cmocka_unit_test(limits_hold_at_their_exact_byte),
    cmocka_unit_test(an_endless_head_does_not_grow_beyond_its_limit),
    cmocka_unit_test(chunk_framing_and_trailers_are_bounded),
    cmocka_unit_test(absolute_form_becomes_origin_form),
    cmocka_unit_test(targets_and_hosts_that_could_mean_two_things_are_refused),
    cmocka_unit_test(each_refusal_has_its_status),
    cmocka_unit_test(the_http2_preface_is_told_what_is_spoken_here),
    cmocka_unit_test(what_follows_from_the_headers_of_a_request),
    cmocka_unit_test(after_an_upgrade_the_bytes_belong_to_the_tunnel),
    cmocka_unit_test(headers_that_connection_names_are_not_found_any_more),
    cmocka_unit_test(connection_cannot_name_without_end),
    cmocka_unit_test(connection_cannot_take_framing_away),
    cmocka_unit_test(every_known_name_is_recognised_in_any_case),
    cmocka_unit_test(interim_replies_are_messages_of_their_own),
    cmocka_unit_test(a_101_is_an_upgrade_or_a_fault), cmocka_unit_test(a_close_completes_only_what_it_may),
    cmocka_unit_test(a_reply_that_ends_with_the_close_is_not_reusable),
    cmocka_unit_test(a_head_with_many_headers_keeps_them_all_in_order),
    cmocka_unit_test(memory_of_a_head_serves_the_next_of_any_connection_and_an_idle_one_has_none),
    cmocka_unit_test(memory_of_a_large_head_is_not_kept))
