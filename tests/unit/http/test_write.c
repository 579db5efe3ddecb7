/* Heads that we write: golden texts. */
#include "unit.h"

#include "http/write.h"
#include "transcript.h"

static const struct pl_http_limits limits = { .request_line = 8192, .head_bytes = 32768, .headers = 100 };

static struct pl_http_head head_of(const char *text, bool response) {
    struct pl_http_parser p;
    struct pl_http_head h;
    size_t used;
    pl_http_parser_init(&p, response, &limits);
    if (pl_http_parse(&p, text, strlen(text), &used) != PL_HTTP_HEAD)
        fail_msg("%s: %s", text, p.fault_reason);
    pl_http_head_take(&p, &h);
    pl_http_parser_free(&p);
    return h;
}

static void expect_request(const char *in, const struct pl_http_forward *f, const char *out) {
    struct pl_http_head h = head_of(in, false);
    struct pl_buf b = { 0 };
    assert_true(pl_http_write_request(&b, &h, h.framing, h.content_length, f));
    assert_string_equal(pl_buf_text(&b), out);
    pl_buf_free(&b);
    pl_http_head_free(&h);
}

static void expect_response(const char *in, enum pl_http_framing framing, bool keep, uint8_t minor,
                            const char *extra, const char *out) {
    struct pl_http_head h = head_of(in, true);
    struct pl_buf b = { 0 };
    assert_true(pl_http_write_response(&b, &h, framing, 5, keep, minor, extra));
    assert_string_equal(pl_buf_text(&b), out);
    pl_buf_free(&b);
    pl_http_head_free(&h);
}

TEST(a_request_goes_on_with_its_own_headers_byte_for_byte_and_in_their_order) {
    struct pl_http_forward f = { .id = 0x9f3c12ab00000001 };
    expect_request(
        "POST /predict?a=%2f&b=[1] HTTP/1.1\r\nhOsT: a\r\nX-D: 1\r\nAccept:*/*\r\nx-d: 2\r\n"
        "X-Ows: \t a  b \t \r\nX-Empty:\r\nX-Name: caf\xc3\xa9 \xff\r\nContent-Length: 005\r\n\r\n",
        &f,
        "POST /predict?a=%2f&b=[1] HTTP/1.1\r\nhOsT: a\r\nX-D: 1\r\nAccept: */*\r\nx-d: 2\r\n"
        "X-Ows: a  b\r\nX-Empty: \r\nX-Name: caf\xc3\xa9 \xff\r\n"
        "X-Plimsoll-Id: 9f3c12ab00000001\r\nContent-Length: 5\r\n\r\n");
}

TEST(what_is_for_this_hop_only_stays_here) {
    struct pl_http_forward f = { 0 };
    expect_request(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: "
        "timeout=5\r\n"
        "TE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\n"
        "Proxy-Authenticate: x\r\nExpect: 100-continue\r\nX-Plimsoll-Id: 123\r\nx-plimsoll-warmup: 1\r\n"
        "X-Plimsollx: kept\r\n\r\n",
        &f, "GET / HTTP/1.1\r\nHost: a\r\nX-Plimsollx: kept\r\n\r\n");
}

TEST(a_websocket_upgrade_goes_on) {
    struct pl_http_forward f = { 0 };
    expect_request("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
                   "Sec-WebSocket-Key: k\r\n\r\n",
                   &f,
                   "GET /ws HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: "
                   "websocket\r\n\r\n");
}

TEST(an_old_request_becomes_a_new_one) {
    struct pl_http_forward f = { 0 };
    expect_request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(what_came_in_chunks_may_go_on_with_a_length_or_in_chunks) {
    struct pl_http_head h =
        head_of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", false);
    struct pl_http_forward f = { 0 };
    struct pl_buf b = { 0 };
    assert_true(pl_http_write_request(&b, &h, PL_HTTP_LENGTH, UINT64_MAX, &f));
    assert_true(pl_http_write_request(&b, &h, PL_HTTP_CHUNKED, 0, &f));
    assert_string_equal(pl_buf_text(&b),
                        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n"
                        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    pl_buf_free(&b);
    pl_http_head_free(&h);
}

TEST(target_and_request_id_can_be_replaced) {
    struct pl_http_forward f = { .request_id = "made", .target = "/x", .target_len = 2 };
    expect_request("GET /chat/x HTTP/1.1\r\nHost: a\r\nX-Request-ID: theirs\r\n\r\n", &f,
                   "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-Id: made\r\n\r\n");
    f = (struct pl_http_forward){ 0 };
    expect_request("GET /x HTTP/1.1\r\nHost: a\r\nX-Request-ID: theirs\r\n\r\n", &f,
                   "GET /x HTTP/1.1\r\nHost: a\r\nX-Request-ID: theirs\r\n\r\n");
}

#define WAY                                                                                         \
    "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 2.2.2.2, 3.3.3.3\r\nX-Forwarded-Proto: https\r\n" \
    "X-Forwarded-Host: outer\r\nForwarded: for=1.1.1.1\r\n"

TEST(the_way_here_is_kept_set_or_appended) {
    struct pl_http_forward f = { .peer_address = "192.0.2.7",
                                 .scheme = "http",
                                 .forwarded = PL_FORWARDED_KEEP };
    expect_request("GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n");
    f.forwarded = PL_FORWARDED_SET;
    expect_request("GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n"
                   "X-Forwarded-Host: a\r\n\r\n");
    f.forwarded = PL_FORWARDED_APPEND;
    expect_request("GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7\r\n"
                   "X-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\n"
                   "Forwarded: for=1.1.1.1, for=192.0.2.7;proto=http\r\n\r\n");
    f.peer_address = "2001:db8::1";
    expect_request("GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=x\r\n\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: http\r\n"
                   "X-Forwarded-Host: a\r\nForwarded: for=x, for=\"[2001:db8::1]\";proto=http\r\n\r\n");
    expect_request("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: http\r\n"
                   "X-Forwarded-Host: a\r\n\r\n");
    f.peer_address = NULL; /* a Unix socket has no address: nothing is claimed */
    expect_request("GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n", &f,
                   "GET / HTTP/1.1\r\nHost: a\r\n" WAY "\r\n");
}

TEST(a_reply_keeps_what_the_worker_said_and_gets_our_framing) {
    static const char in[] =
        "HTTP/1.1 200 Fine\r\nserver: uvicorn\r\nConnection: X-Own\r\nX-Own: 1\r\nKeep-Alive: timeout=9\r\n"
        "X-Plimsoll-Reason: x\r\ncontent-type: a/b\r\ncontent-length: 5\r\n\r\n";
    expect_response(in, PL_HTTP_LENGTH, true, 1, NULL,
                    "HTTP/1.1 200 Fine\r\nserver: uvicorn\r\ncontent-type: a/b\r\nContent-Length: 5\r\n\r\n");
    expect_response(
        in, PL_HTTP_CHUNKED, true, 1, "X-Request-Id: r\r\n",
        "HTTP/1.1 200 Fine\r\nserver: uvicorn\r\ncontent-type: a/b\r\nTransfer-Encoding: chunked\r\n"
        "X-Request-Id: r\r\n\r\n");
    expect_response(in, PL_HTTP_LENGTH, false, 1, NULL,
                    "HTTP/1.1 200 Fine\r\nserver: uvicorn\r\ncontent-type: a/b\r\nConnection: "
                    "close\r\nContent-Length: 5\r\n\r\n");
    expect_response(in, PL_HTTP_UNTIL_CLOSE, true, 1, NULL,
                    "HTTP/1.1 200 Fine\r\nserver: uvicorn\r\ncontent-type: a/b\r\nConnection: close\r\n\r\n");
}

TEST(an_http10_client_is_told_in_its_own_words) {
    static const char in[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    expect_response(in, PL_HTTP_LENGTH, true, 0, NULL,
                    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n");
    expect_response(in, PL_HTTP_LENGTH, false, 0, NULL,
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n");
    struct pl_http_head h = head_of(in, true);
    struct pl_buf b = { 0 };
    assert_false(pl_http_write_response(&b, &h, PL_HTTP_CHUNKED, 0, false, 0, NULL));
    assert_int_equal(b.len, 0);
    pl_buf_free(&b);
    pl_http_head_free(&h);
}

TEST(replies_without_a_body_say_no_more_than_they_may) {
    expect_response("HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 100\r\n\r\n", PL_HTTP_NO_BODY,
                    true, 1, NULL, "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 100\r\n\r\n");
    expect_response("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", PL_HTTP_NO_BODY, false, 1, NULL,
                    "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    expect_response("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", PL_HTTP_NO_BODY, false, 1, NULL,
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    expect_response("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                    "Sec-WebSocket-Accept: k\r\n\r\n",
                    PL_HTTP_NO_BODY, true, 1, NULL,
                    "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: k\r\nConnection: Upgrade\r\n"
                    "Upgrade: websocket\r\n\r\n");
}

TEST(a_head_that_does_not_fit_leaves_the_buffer_as_it_was) {
    struct pl_http_head h = head_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false);
    struct pl_http_forward f = { .peer_address = "192.0.2.7", .forwarded = PL_FORWARDED_SET };
    for (size_t cap = 8; cap < 200; cap++) {
        struct pl_buf b;
        pl_buf_init(&b, cap);
        pl_buf_adds(&b, "before");
        if (!pl_http_write_request(&b, &h, PL_HTTP_NO_BODY, 0, &f)) assert_int_equal(b.len, 6);
        pl_buf_free(&b);
    }
    pl_http_head_free(&h);
}

TEST(the_largest_head_fits_with_everything_that_we_add) {
    struct pl_buf text = { 0 }, out = { 0 };
    char id[129], peer[] = "2001:0db8:0000:0000:0000:0000:0000:0001";
    memset(id, 'i', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    pl_buf_adds(&text, "GET / HTTP/1.0\r\nHost: ");
    for (int i = 0; i < 3000; i++) pl_buf_adds(&text, "h");
    for (int i = 0; i < 49; i++) pl_buf_adds(&text, "\r\nX-Forwarded-For:1\r\nForwarded:f");
    pl_buf_adds(&text, "\r\n\r\n");
    struct pl_http_head h = head_of(pl_buf_text(&text), false);
    struct pl_http_forward f = { .id = UINT64_MAX,
                                 .request_id = id,
                                 .peer_address = peer,
                                 .scheme = "https",
                                 .forwarded = PL_FORWARDED_APPEND };
    assert_true(pl_http_write_request(&out, &h, PL_HTTP_LENGTH, UINT64_MAX, &f));
    pl_buf_free(&text);
    pl_buf_free(&out);
    pl_http_head_free(&h);
}

TEST(chunk_heads_are_hexadecimal) {
    static const struct {
        size_t size;
        const char *text;
    } cases[] = { { 0, "0\r\n" },
                  { 10, "a\r\n" },
                  { 16, "10\r\n" },
                  { 65536, "10000\r\n" },
                  { SIZE_MAX, "ffffffffffffffff\r\n" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[20];
        size_t n = pl_http_chunk_head(out, cases[i].size);
        assert_int_equal(n, strlen(cases[i].text));
        assert_memory_equal(out, cases[i].text, n);
    }
}

TEST(request_ids_are_short_and_printable) {
    char longest[129];
    memset(longest, 'x', sizeof longest);
    assert_true(pl_http_request_id_ok(longest, 128));
    assert_false(pl_http_request_id_ok(longest, 129));
    assert_false(pl_http_request_id_ok("", 0));
    assert_false(pl_http_request_id_ok("a\tb", 3));
    assert_false(pl_http_request_id_ok("\xc3\xa9", 2));
}

RUN(cmocka_unit_test(a_request_goes_on_with_its_own_headers_byte_for_byte_and_in_their_order),
    cmocka_unit_test(what_is_for_this_hop_only_stays_here), cmocka_unit_test(a_websocket_upgrade_goes_on),
    cmocka_unit_test(an_old_request_becomes_a_new_one),
    cmocka_unit_test(what_came_in_chunks_may_go_on_with_a_length_or_in_chunks),
    cmocka_unit_test(target_and_request_id_can_be_replaced),
    cmocka_unit_test(the_way_here_is_kept_set_or_appended),
    cmocka_unit_test(a_reply_keeps_what_the_worker_said_and_gets_our_framing),
    cmocka_unit_test(an_http10_client_is_told_in_its_own_words),
    cmocka_unit_test(replies_without_a_body_say_no_more_than_they_may),
    cmocka_unit_test(a_head_that_does_not_fit_leaves_the_buffer_as_it_was),
    cmocka_unit_test(the_largest_head_fits_with_everything_that_we_add),
    cmocka_unit_test(chunk_heads_are_hexadecimal), cmocka_unit_test(request_ids_are_short_and_printable))
