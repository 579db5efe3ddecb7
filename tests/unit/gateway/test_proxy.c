/* Plain requests, bodies, replies, limits: what passes and what does not. */
#include <malloc.h>

#include "world.h"

TEST(a_request_and_its_reply_go_through_byte_for_byte) {
    worker_starts(1);
    int c = client();
    put(c,
        "POST /predict?q=1 HTTP/1.1\r\nHost: h:1\r\nX-Foo:  bar \r\nConnection: X-Drop\r\nX-Drop: 1\r\n"
        "x-plimsoll-id: evil\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"a\":  1.0e3}");
    int w = worker_takes(1);
    read_ends(w, "\r\n\r\n{\"a\":  1.0e3}");
    assert_true(strncmp(seen, "POST /predict?q=1 HTTP/1.1\r\nHost: h:1\r\nX-Foo: bar", 49) == 0);
    assert_true(has("Content-Length: 13\r\n"));
    assert_true(has("X-Forwarded-For: 127.0.0.1\r\n"));
    assert_true(has("X-Request-Id: abcd1234"));
    assert_false(has("evil"));
    assert_false(has("X-Drop"));
    assert_int_equal(id_seen() >> 32, 0xabcd1234);
    put(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\nSet-Cookie: "
           "a=b\r\n\r\n[1,2");
    read_ends(c, "\r\n\r\n[1,2");
    assert_true(has("HTTP/1.1 200 OK\r\n"));
    assert_true(has("Set-Cookie: a=b\r\n"));
    assert_true(has("X-Request-Id: abcd1234"));
    /* both connections live on */
    put(c, "GET / HTTP/1.1\r\nHost: h\r\nx-request-id: mine\r\n\r\n");
    read_ends(w, "\r\n\r\n");
    assert_true(has("GET / HTTP/1.1\r\n"));
    assert_true(has("x-request-id: mine\r\n"));
    assert_false(has("Content-Length"));
    put(w, "HTTP/1.1 204 No Content\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    assert_true(has("X-Request-Id: mine\r\n"));
    assert_int_equal(W.ended_ok[0], 2);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "200") == 1 && counted(PL_M_REQUESTS_TOTAL, "204") == 1);
    assert_true(counted(PL_M_BODY_BYTES_TOTAL, "in") == 13 && counted(PL_M_BODY_BYTES_TOTAL, "out") == 4);
    close(c);
    close(w);
}

TEST(a_chunked_reply_passes_raw_and_a_chunked_request_goes_on_with_a_length) {
    worker_starts(1);
    int c = client();
    put(c, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
           "chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nT: 1\r\n\r\n");
    int w = worker_takes(1);
    read_ends(w, "\r\n\r\nabcdefg");
    assert_true(has("Content-Length: 7\r\n"));
    assert_false(has("hunked"));
    put(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    assert_true(has("Transfer-Encoding: chunked\r\n"));
    static const char raw[] = "5\r\nhello\r\n0003;ext\r\nab\n\r\n0\r\n\r\n";
    for (size_t i = 0; i < sizeof raw - 1; i++) { /* a byte at a time */
        put_bytes(w, raw + i, 1);
        char got[2] = { raw[i], 0 };
        read_until(c, got);
        assert_int_equal(seen_len, 1);
    }
    put(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    read_ends(w, "\r\n\r\n");
    assert_true(counted(PL_M_STREAMS_TOTAL, "complete") == 1);
    assert_true(counted(PL_M_BODY_BYTES_TOTAL, "out") == 8);
    close(c);
    turn();
    close(w);
}

TEST(pipelined_requests_are_answered_in_order) {
    worker_starts(1);
    int c = client();
    put(c, "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /livez HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 "
           "HTTP/1.1\r\nHost: h\r\n"
           "Content-Length: 2\r\n\r\nhiGET /3 HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET /1 ");
    assert_true(is_silent(c));
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
    read_until(w, "POST /2 ");
    read_until(c, "{\"live\":true}");
    assert_true(strstr(seen, "one") < strstr(seen, "live"));
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
    read_until(c, "two");
    read_until(w, "GET /3 ");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthree");
    read_until(c, "three");
    close(c);
    close(w);
}

TEST(a_head_request_has_no_body_whatever_its_reply_says) {
    worker_starts(1);
    int c = client();
    put(c, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "HEAD / ");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    assert_true(has("Content-Length: 1234\r\n"));
    put(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(w, "GET / ");
    put(w, "HTTP/1.1 304 Not Modified\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    put(c, "GET /again HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(w, "GET /again ");
    close(c);
    turn();
    close(w);
}

TEST(the_client_waits_for_100_continue_only_when_the_body_is_wanted) {
    worker_starts(1);
    set("limits.replay", "10B");
    set("limits.body", "100B");
    int c = client();
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    read_ends(c, "HTTP/1.1 100 Continue\r\n\r\n");
    put(c, "body");
    int w = worker_takes(1);
    read_ends(w, "\r\n\r\nbody");
    assert_false(has("xpect"));
    put(w, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    assert_true(strncmp(seen, "HTTP/1.1 200 OK", 15) == 0); /* 1xx of the worker is swallowed */
    /* larger than what is kept: after the admission */
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n");
    read_ends(c, "HTTP/1.1 100 Continue\r\n\r\n");
    read_ends(w, "\r\n\r\n");
    put(c, "0123456789");
    read_ends(w, "0123456789");
    put(c, "abcdefghij");
    read_ends(w, "abcdefghij");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    /* refused: never asked for */
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n");
    read_end(c);
    assert_true(strncmp(seen, "HTTP/1.1 413 ", 13) == 0);
    assert_true(has("limits.body, 100 bytes"));
    assert_true(has("Connection: close\r\n"));
    assert_true(counted(PL_M_REQUESTS_REJECTED_TOTAL, "too_large") == 1);
    close(c);
    close(w);
}

TEST(a_large_body_flows_with_back_pressure_and_bounded_memory) {
    enum { BODY = 8 << 20 };
    char head[128], *body = malloc(BODY);
    worker_starts(1);
    set("limits.replay", "64KiB");
    for (size_t i = 0; i < BODY; i++) body[i] = (char)(i * 7 + i / 4099);
    int c = client();
    snprintf(head, sizeof head, "POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", BODY);
    put(c, head);
    int w = worker_takes(1);
    size_t sent = 0, got = 0;
    for (int idle = 0; idle < 200; idle++) { /* the worker reads nothing: the client cannot go on for ever */
        ssize_t n = send(c, body + sent, BODY - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            idle = 0;
        }
        turn();
    }
    assert_true(sent < BODY);
    assert_int_equal(pl_gateway_buffered(W.gateway), 0);
    read_until(w, "\r\n\r\n");
    char *start = strstr(seen, "\r\n\r\n") + 4;
    got = seen_len - (size_t)(start - seen);
    assert_memory_equal(start, body, got);
    while (got < BODY) {
        if (sent < BODY) {
            ssize_t n = send(c, body + sent, BODY - sent, MSG_NOSIGNAL);
            if (n > 0) sent += (size_t)n;
        }
        turn();
        forget_seen();
        assert_true(read_more(w));
        assert_memory_equal(seen, body + got, seen_len);
        got += seen_len;
    }
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    read_ends(c, "ok");
    free(body);
    close(c);
    close(w);
}

TEST(a_large_chunked_body_flows_as_chunks) {
    worker_starts(1);
    set("limits.replay", "16B");
    set("limits.body", "64B");
    int c = client();
    put(c, "POST /up HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n");
    assert_true(worker_idle(1));
    put(c, "a\r\nabcdefghij\r\n");
    int w = worker_takes(1);
    read_ends(w, "\r\n\r\n14\r\n0123456789abcdefghij\r\n");
    assert_true(has("Transfer-Encoding: chunked\r\n"));
    put(c, "3\r\nxyz\r\n0\r\n\r\n");
    read_ends(w, "3\r\nxyz\r\n0\r\n\r\n");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    read_ends(c, "\r\n\r\n");
    /* and over the limit on the way: 413, the worker's connection is closed */
    put(c,
        "POST /up HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n0123456789abcdefghij\r\n");
    read_until(w, "14\r\n");
    put(c, "40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n");
    read_end(c);
    assert_true(strncmp(seen, "HTTP/1.1 413 ", 13) == 0);
    read_end(w);
    close(c);
    close(w);
    pass(2000);
}

TEST(kept_bodies_share_one_cap) {
    worker_starts(1);
    int c = client(), d = client();
    set("limits.replay", "80MiB");
    set("limits.body", "80MiB");
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\nx");
    assert_int_equal(pl_gateway_buffered(W.gateway), 60000000);
    put(d, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n");
    read_end(d);
    assert_true(has("HTTP/1.1 503 ") && has("x-plimsoll-reason: buffer_full\r\n") &&
                has("Retry-After: 1\r\n"));
    close(c);
    turn();
    assert_int_equal(pl_gateway_buffered(W.gateway), 0);
    close(d);
}

static size_t memory_in_use(void) { /* 0 under a sanitizer, whose allocator tells nothing */
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

TEST(a_kept_body_that_its_worker_is_slow_to_take_is_in_memory_once) {
    enum { BYTES = 3 << 20 };
    static char body[BYTES + 1];
    char head[128];
    memset(body, 'a', BYTES);
    for (size_t i = 1; i < BYTES - 1; i += 1000) body[i] = (char)('b' + i / 1000 % 20);
    body[0] = body[BYTES - 1] = '"';
    worker_starts(1);
    int c = client();
    snprintf(
        head, sizeof head,
        "POST /predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
        BYTES);
    size_t before = memory_in_use();
    put(c, head);
    put_bytes(c, body, BYTES);
    int w = worker_takes(1);
    turn();
    assert_true(memory_in_use() < before + BYTES + BYTES / 2);
    read_ends(w, body + BYTES - 2000);
    const char *at = strstr(seen, "\r\n\r\n");
    assert_non_null(at);
    assert_true(strlen(at + 4) == BYTES && memcmp(at + 4, body, BYTES) == 0);
    reply(w, "[]");
    read_ends(c, "[]");
    put(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); /* over the same two connections */
    read_ends(w, "\r\n\r\n");
    reply(w, "{}");
    read_ends(c, "{}");
    close(w);
    close(c);
}

TEST(a_slow_client_pauses_the_worker_and_loses_nothing) {
    enum { BODY = 6 << 20 };
    char *body = malloc(BODY);
    worker_starts(1);
    for (size_t i = 0; i < BODY; i++) body[i] = (char)(i * 13 + i / 257);
    int c = client();
    int small = 131072;
    setsockopt(c, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    put(c, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET /big ");
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BODY);
    put(w, head);
    size_t sent = 0, got = 0;
    for (int idle = 0; idle < 200; idle++) {
        ssize_t n = send(w, body + sent, BODY - sent, MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            idle = 0;
        }
        turn();
    }
    assert_true(sent < BODY); /* the worker was paused */
    read_until(c, "\r\n\r\n");
    char *start = strstr(seen, "\r\n\r\n") + 4;
    got = seen_len - (size_t)(start - seen);
    while (got < BODY) {
        if (sent < BODY) {
            ssize_t n = send(w, body + sent, BODY - sent, MSG_NOSIGNAL);
            if (n > 0) sent += (size_t)n;
        }
        turn();
        forget_seen();
        assert_true(read_more(c));
        assert_memory_equal(seen, body + got, seen_len);
        got += seen_len;
    }
    free(body);
    close(c);
    close(w);
}

TEST(an_http_1_0_client_gets_a_length_or_505) {
    worker_starts(1);
    int c = client();
    put(c, "GET /a HTTP/1.0\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET /a HTTP/1.1\r\n");
    put(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert_true(is_silent(c));
    put(w, "2\r\nde\r\n0\r\n\r\n");
    read_end(c);
    assert_true(has("Content-Length: 5\r\n") && has("\r\n\r\nabcde"));
    assert_false(has("hunked"));
    close(c);
    c = client();
    put(c, "GET /b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    read_until(w, "GET /b ");
    put(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    read_until(c, "HTTP/1.1 505 ");
    read_end(w);
    close(c);
    close(w);
    pass(2000);
}

TEST(a_reply_that_ends_with_its_connection_becomes_chunks) {
    worker_starts(1);
    int c = client();
    put(c, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET /a ");
    put(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    read_until(c, "5\r\nhello\r\n");
    assert_true(has("Transfer-Encoding: chunked\r\n"));
    close(w);
    read_ends(c, "0\r\n\r\n");
    close(c);
}

TEST(what_is_no_http_is_refused_and_nothing_reaches_a_worker) {
    static const struct {
        const char *text, *status;
    } table[] = {
        { "GET / HTTP/1.1\r\n\r\n", "400" },
        { "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400" },
        { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505" },
        { "FETCH / HTTP/1.1\r\nHost: h\r\n\r\n", "501" },
        { "POST / HTTP/1.1\r\nHost: h\r\nExpect: magic\r\nContent-Length: 1\r\n\r\nx", "417" },
    };
    worker_starts(1);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int c = client();
        put(c, table[i].text);
        read_end(c);
        assert_memory_equal(seen + 9, table[i].status, 3);
        assert_true(has("Connection: close\r\n") && has("{\"error\":"));
        close(c);
    }
    int c = client(); /* and in the middle of a body */
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    read_end(c);
    assert_memory_equal(seen + 9, "400", 3);
    close(c);
    assert_true(worker_idle(1));
}

TEST(a_malformed_reply_is_a_502_that_says_so) {
    worker_starts(1);
    int c = client();
    put(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET / ");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
    read_until(c, "worker_failed");
    assert_true(has("HTTP/1.1 502 ") && has("no HTTP"));
    read_end(w);
    page_end(&W.pages[0], 1, PL_OUTCOME_OK, "");
    close(w);
    close(c);
    pass(2000);
}

TEST(an_early_reply_is_passed_on_and_the_rest_of_the_upload_read_away) {
    worker_starts(1);
    set("limits.replay", "10B");
    int c = client();
    put(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nstart");
    int w = worker_takes(1);
    read_until(w, "start");
    put(w, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    read_until(c, "\r\n\r\nno");
    assert_true(has("Connection: close\r\n"));
    put(c, "more");
    put(c, "and more");
    read_end(c);
    read_end(w); /* not used again: it has half a request */
    close(c);
    close(w);
}

TEST(a_websocket_is_tunnelled_after_admission) {
    worker_starts(1);
    int c = client();
    put(c, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "
           "k\r\n\r\nearly");
    int w = worker_takes(1);
    read_ends(w, "\r\n\r\n");
    assert_true(has("Connection: Upgrade\r\nUpgrade: websocket\r\n") && has("Sec-WebSocket-Key: k\r\n"));
    put(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
           "websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello");
    read_ends(c, "hello");
    assert_true(has("HTTP/1.1 101 ") && has("Sec-WebSocket-Accept: a\r\n") && has("Upgrade: websocket\r\n"));
    read_ends(w, "early");
    put(c, "\x81\x01x");
    read_ends(w, "\x81\x01x");
    pass(100000); /* silence is no fault */
    put(w, "\x81\x01y");
    read_ends(c, "\x81\x01y");
    close(w);
    read_end(c);
    close(c);
    pass(2000);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "101") == 1);
}

TEST(a_request_for_no_service_is_404) {
    worker_starts(1);
    set("route.path", "/digits");
    int c = client();
    put(c, "GET /other HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(c, "not_found");
    assert_true(has("HTTP/1.1 404 "));
    put(c, "GET /digits/x HTTP/1.1\r\nHost: h\r\n\r\n");
    int w = worker_takes(1);
    read_until(w, "GET /digits/x ");
    close(c);
    turn();
    close(w);
    pass(2000);
}

TEST(a_preflight_does_not_wait_and_a_refusal_can_be_read_by_the_page) {
    set("cors.enabled", "on");
    set("cors.allow_origins", "https://a.example");
    set("cors.allow_methods", "POST");
    set("cors.allow_headers", "*");
    int c = client();
    put(c, "OPTIONS /predict HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n"
           "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n\r\n");
    read_ends(c, "OK");
    assert_true(has("Access-Control-Allow-Origin: https://a.example\r\n") &&
                has("Access-Control-Allow-Methods: POST\r\n") &&
                has("Access-Control-Allow-Headers: x-a\r\n"));
    put(c, "POST /predict HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\nContent-Length: 0\r\n\r\n");
    read_until(c, "service_unavailable"); /* no worker yet */
    assert_true(has("HTTP/1.1 503 ") && has("Access-Control-Allow-Origin: https://a.example\r\n"));
    put(c, "OPTIONS /predict HTTP/1.1\r\nHost: h\r\nOrigin: "
           "https://b.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    read_until(c, "Disallowed");
    close(c);
}

RUN(IN_WORLD(a_request_and_its_reply_go_through_byte_for_byte),
    IN_WORLD(a_chunked_reply_passes_raw_and_a_chunked_request_goes_on_with_a_length),
    IN_WORLD(pipelined_requests_are_answered_in_order),
    IN_WORLD(a_head_request_has_no_body_whatever_its_reply_says),
    IN_WORLD(the_client_waits_for_100_continue_only_when_the_body_is_wanted),
    IN_WORLD(a_large_body_flows_with_back_pressure_and_bounded_memory),
    IN_WORLD(a_large_chunked_body_flows_as_chunks), IN_WORLD(kept_bodies_share_one_cap),
    IN_WORLD(a_kept_body_that_its_worker_is_slow_to_take_is_in_memory_once),
    IN_WORLD(a_slow_client_pauses_the_worker_and_loses_nothing),
    IN_WORLD(an_http_1_0_client_gets_a_length_or_505),
    IN_WORLD(a_reply_that_ends_with_its_connection_becomes_chunks),
    IN_WORLD(what_is_no_http_is_refused_and_nothing_reaches_a_worker),
    IN_WORLD(a_malformed_reply_is_a_502_that_says_so),
    IN_WORLD(an_early_reply_is_passed_on_and_the_rest_of_the_upload_read_away),
    IN_WORLD(a_websocket_is_tunnelled_after_admission), IN_WORLD(a_request_for_no_service_is_404),
    IN_WORLD(a_preflight_does_not_wait_and_a_refusal_can_be_read_by_the_page))
