/* Streams that break off or never end, and clients that leave, wait or are slow. */
#include "world.h"

static int stream(const char *type, int *w) {
    char text[256];
    int c = ask("/stream");
    *w = worker_takes(1);
    read_until(*w, "POST /stream ");
    page_begin(&W.pages[0], id_seen());
    snprintf(text, sizeof text,
             "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
             type);
    put(*w, text);
    read_ends(c, "data: 1\n\n\r\n");
    return c;
}

TEST(a_stream_whose_worker_dies_says_so_and_has_no_last_chunk) {
    int w;
    worker_starts(1);
    int c = stream("text/event-stream", &w);
    close(w);
    worker_dies(1);
    pass(300);
    read_end(c);
    assert_true(has("data: {\"error\":") && has("killed by SIGSEGV"));
    assert_false(has("\r\n0\r\n"));
    assert_true(counted(PL_M_STREAMS_TOTAL, "worker_died") == 1);
    close(c);
}

TEST(inside_a_chunk_or_another_type_it_is_only_cut) {
    int w;
    worker_starts(1);
    int c = stream("text/event-stream", &w);
    put(w, "9\r\nda");
    read_until(c, "9\r\nda");
    int d = client();
    put(d, "GET /t HTTP/1.1\r\nHost: h\r\n\r\n");
    int v = worker_takes(1);
    read_until(v, "GET /t ");
    put(v, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    read_until(d, "ab\r\n");
    close(w);
    close(v);
    worker_dies(1);
    pass(300);
    read_end(c);
    assert_int_equal(seen_len, 0);
    read_end(d);
    assert_int_equal(seen_len, 0);
    close(c);
    close(d);
}

TEST(a_long_reply_that_breaks_off_stays_short_and_a_small_one_becomes_a_502) {
    worker_starts(1);
    int c = ask("/a"), d = ask("/b");
    int w = worker_takes(1), v = worker_takes(1);
    read_until(w, "\r\n\r\n{}");
    page_begin(&W.pages[0], id_seen());
    read_until(v, "\r\n\r\n{}");
    page_begin(&W.pages[0], id_seen());
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n12345");
    read_until(c, "12345");
    put(v, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345");
    assert_true(is_silent(d));
    close(w);
    close(v);
    worker_dies(1);
    pass(300);
    read_end(c);
    assert_int_equal(seen_len, 0);
    read_until(d, "worker_failed");
    assert_true(has("HTTP/1.1 502 "));
    close(c);
    close(d);
}

TEST(a_stream_may_last_for_ever_but_not_pause_for_ever) {
    int w;
    set("traffic.timeout", "2s");
    set("traffic.stall", "3s");
    worker_starts(1);
    int c = stream("text/event-stream", &w);
    for (int i = 0; i < 20; i++) {
        pass(2500);
        put(w, "9\r\ndata: 1\n\n\r\n");
        read_until(c, "data: 1");
    }
    pass(3100);
    read_end(c);
    assert_true(has("traffic.stall"));
    assert_false(has("\r\n0\r\n"));
    assert_true(counted(PL_M_STREAMS_TOTAL, "stalled") == 1);
    close(c);
    close(w);
}

TEST(max_stream_ends_a_stream_that_goes_on) {
    int w;
    set("traffic.max_stream", "5s");
    worker_starts(1);
    int c = stream("text/event-stream", &w);
    for (int i = 0; i < 5; i++) {
        pass(900);
        put(w, "9\r\ndata: 1\n\n\r\n");
    }
    pass(600);
    read_end(c);
    assert_true(has("traffic.max_stream"));
    close(c);
    close(w);
}

TEST(a_client_that_leaves_a_stream_ends_it_at_the_worker) {
    int w;
    worker_starts(1);
    int c = stream("text/event-stream", &w);
    leave(c);
    read_end(w);
    assert_true(counted(PL_M_STREAMS_TOTAL, "client_gone") == 1);
    close(w);
}

TEST(a_client_that_has_sent_all_and_says_so_still_gets_its_answer) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    turn();
    assert_true(is_silent(c));
    pass(20000);
    reply(w, "A");
    read_until(c, "\r\n\r\nA");
    assert_true(strncmp(seen, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ", 38) == 0);
    assert_true(has("Connection: close\r\n"));
    read_end(c);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "499") == 0);
    close(c);
    close(w);
}

TEST(a_client_that_closed_in_order_while_it_waited_is_found_out_and_cancelled) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    close(c);
    turn();
    pass(100); /* it is asked */
    pass(300);
    read_end(w);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "499") == 1);
    close(w);
}

TEST(requests_sent_ahead_of_the_end_of_file_are_all_answered) {
    worker_starts(1);
    int c = client();
    put(c, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
           "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}GET /cut HTTP/1.1\r\nHo");
    assert_int_equal(shutdown(c, SHUT_WR), 0);
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_until(c, "\r\n\r\nA");
    read_until(w, "POST /b ");
    reply(w, "B");
    read_until(c, "\r\n\r\nB");
    read_end(c);
    close(c);
    close(w);
}

TEST(a_client_that_takes_nothing_is_cut_and_frees_its_worker) {
    int w;
    set("http.write_timeout", "10s");
    set("traffic.stall", "none");
    worker_starts(1);
    int c = stream("text/plain", &w);
    char *chunk = calloc(1, 70000);
    memcpy(chunk, "10000\r\n", 7);
    memcpy(chunk + 7 + 65536, "\r\n", 2);
    for (unsigned i = 0, at = 0; i < 2000; i++) {
        ssize_t n = send(w, chunk + at, 65545 - at, MSG_NOSIGNAL);
        if (n > 0) at = (at + (unsigned)n) % 65545;
        turn();
    }
    pass(9000);
    assert_int_equal(W.workers[0].in_flight, 1);
    pass(12000);
    assert_int_equal(W.workers[0].in_flight, 0);
    free(chunk);
    close(c);
    close(w);
}

TEST(an_upload_that_we_kept_waiting_is_not_called_slow) {
    static char rest[5000];
    set("http.body_min_rate", "100B");
    set("limits.replay", "1KiB");
    set("traffic.queue.max_wait", "1m");
    worker_starts(1);
    worker_dies(1);
    W.boot_left_ms = 2000;
    int c = client();
    put(c, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5001\r\n\r\nx");
    pass(9900);
    worker_starts(2);
    int w = worker_takes(2);
    read_until(w, "\r\n\r\nx");
    pass(200);
    assert_true(is_silent(c));
    memset(rest, 'y', sizeof rest);
    put_bytes(c, rest, sizeof rest);
    read_until(w, "yyy");
    reply(w, "A");
    read_until(c, "\r\n\r\nA");
    close(c);
    close(w);
}

TEST(slow_heads_and_bodies_are_timed_out_and_idle_connections_closed) {
    set("http.head_timeout", "10s");
    set("http.idle_timeout", "75s");
    set("http.body_min_rate", "100B");
    worker_starts(1);
    int silent = client(), head = client(), body = client(), idle = client();
    put(head, "GET / HT");
    put(body, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\nx");
    put(idle, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(idle, "live");
    pass(9900);
    assert_true(is_silent(silent) && is_silent(head));
    pass(200);
    read_end(silent);
    assert_int_equal(seen_len, 0);
    read_end(head);
    assert_true(has("HTTP/1.1 408 "));
    read_end(body);
    assert_true(has("HTTP/1.1 408 "));
    pass(64000);
    assert_true(is_silent(idle));
    pass(1200);
    read_end(idle);
    assert_int_equal(seen_len, 0);
    close(silent);
    close(head);
    close(body);
    close(idle);
}

TEST(a_request_that_came_while_the_loop_stood_still_is_not_late) {
    set("http.idle_timeout", "75s");
    worker_starts(1);
    int c = client();
    put(c, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(c, "live");
    static const char again[] = "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_int_equal(send(c, again, sizeof again - 1, 0), sizeof again - 1); /* put() would let it be read */
    pass(76000);
    read_until(c, "live");
    close(c);
}

RUN(IN_WORLD(a_stream_whose_worker_dies_says_so_and_has_no_last_chunk),
    IN_WORLD(inside_a_chunk_or_another_type_it_is_only_cut),
    IN_WORLD(a_long_reply_that_breaks_off_stays_short_and_a_small_one_becomes_a_502),
    IN_WORLD(a_stream_may_last_for_ever_but_not_pause_for_ever),
    IN_WORLD(max_stream_ends_a_stream_that_goes_on),
    IN_WORLD(a_client_that_leaves_a_stream_ends_it_at_the_worker),
    IN_WORLD(a_client_that_has_sent_all_and_says_so_still_gets_its_answer),
    IN_WORLD(a_client_that_closed_in_order_while_it_waited_is_found_out_and_cancelled),
    IN_WORLD(requests_sent_ahead_of_the_end_of_file_are_all_answered),
    IN_WORLD(a_client_that_takes_nothing_is_cut_and_frees_its_worker),
    IN_WORLD(an_upload_that_we_kept_waiting_is_not_called_slow),
    IN_WORLD(slow_heads_and_bodies_are_timed_out_and_idle_connections_closed),
    IN_WORLD(a_request_that_came_while_the_loop_stood_still_is_not_late))
