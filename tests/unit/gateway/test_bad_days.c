/* Queues, time limits, deaths, replays, zombies, drains. */
#include "world.h"

static int ask(const char *path) {
    char text[256];
    int c = client();
    snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", path);
    put(c, text);
    return c;
}
static void reply(int w, const char *body) {
    char text[256];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    put(w, text);
}

TEST(before_the_first_worker_is_ready_it_is_503_with_the_remaining_boot) {
    W.boot_left_ms = 12400;
    int c = ask("/predict");
    read_until(c, "service_unavailable");
    assert_true(has("HTTP/1.1 503 ") && has("Retry-After: 13\r\n") && has("retry-after-ms: 12400\r\n"));
    assert_true(has("x-plimsoll-reason: not_ready\r\n") &&
                has("x-llm-d-request-dropped-reason: rejected-no-endpoints\r\n"));
    assert_true(counted(PL_M_REQUESTS_REFUSED_TOTAL, "not_ready") == 1);
    put(c,
        "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"); /* the connection lives on, and health needs no worker */
    read_until(c, "live");
    close(c);
}

TEST(over_max_concurrency_requests_wait_their_turn_and_the_next_one_is_429) {
    set("traffic.max_concurrency", "1");
    set("traffic.queue.max_requests", "2");
    worker_starts(1);
    int a = ask("/a"), b = ask("/b"), c = ask("/c"), d = ask("/d");
    read_until(d, "Too many requests");
    assert_true(has("HTTP/1.1 429 ") && has("x-plimsoll-reason: queue_full\r\n") && has("Retry-After: "));
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    assert_true(pl_series_value(pl_series(W.app.metrics, PL_M_QUEUE_REQUESTS, W.service.config->id)) == 2);
    assert_true(is_silent(b));
    reply(w, "A");
    read_ends(a, "A");
    read_until(w, "POST /b ");
    leave(b); /* while its handler has not begun */
    read_end(w);
    page_end(&W.pages[0], 0, PL_OUTCOME_OK, "");
    pass(3000);
    close(w);
    w = worker_takes(1);
    read_until(w, "POST /c ");
    reply(w, "C");
    read_ends(c, "C");
    close(a);
    close(c);
    close(d);
    close(w);
}

TEST(who_waits_past_max_wait_is_429_and_who_leaves_the_queue_is_499) {
    set("traffic.max_concurrency", "1");
    set("traffic.queue.max_wait", "5s");
    worker_starts(1);
    int a = ask("/a"), b = ask("/b"), c = ask("/c");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    leave(c);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "499") == 1);
    assert_true(counted(PL_M_REQUESTS_REFUSED_TOTAL, "client_gone") == 1);
    pass(4900);
    assert_true(is_silent(b));
    pass(200);
    read_until(b, "waited_too_long");
    assert_true(has("HTTP/1.1 429 ") && has("rejected-ttl-expired"));
    reply(w, "A");
    read_ends(a, "A");
    close(a);
    close(b);
    close(w);
}

TEST(a_gap_between_two_workers_only_makes_requests_wait) {
    worker_starts(1);
    worker_dies(1);
    W.boot_left_ms = 2000;
    int c = ask("/a");
    assert_true(is_silent(c));
    worker_starts(2);
    int w = worker_takes(2);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    close(c);
    close(w);
}

TEST(a_handover_holds_whom_it_can_serve_in_time_and_tells_the_others_when) {
    worker_starts(1);
    worker_dies(1);
    W.handover = true;
    W.gap = (struct pl_service_gap){ .left_ms = 30000, .hold_ms = 5000 };
    int early = ask("/a");
    read_until(early, "changes its worker");
    assert_true(has("HTTP/1.1 503 ") && has("Retry-After: 30\r\n") && has("retry-after-ms: 30000\r\n"));
    assert_true(has("x-plimsoll-reason: handover\r\n"));
    assert_true(counted(PL_M_REQUESTS_REFUSED_TOTAL, "handover") == 1);
    W.gap.left_ms = 4000;
    int held = ask("/b");
    pass(1000);
    int late = ask("/c");
    assert_true(is_silent(held) && is_silent(late));
    W.gap.left_ms = 1500; /* it takes longer than was thought */
    pass(4000);
    read_until(held, "changes its worker");
    assert_true(has("HTTP/1.1 503 ") && has("retry-after-ms: 1500\r\n"));
    assert_true(is_silent(late));
    W.handover = false;
    worker_starts(2);
    int w = worker_takes(2);
    read_until(w, "POST /c ");
    reply(w, "C");
    read_ends(late, "C");
    assert_int_equal(W.service.held, 2);
    assert_int_equal(W.service.refused, 2);
    close(early);
    close(held);
    close(late);
    close(w);
}

TEST(who_is_only_observed_goes_to_the_worker_and_is_counted) {
    set("mode", "observe");
    set("traffic.max_concurrency", "1");
    set("traffic.queue.max_requests", "0");
    worker_starts(1);
    int a = ask("/a");
    int first = worker_takes(1);
    read_until(first, "POST /a ");
    assert_string_equal(W.would, "");
    int b = ask("/b");
    int second = worker_takes(1);
    read_until(second, "POST /b ");
    assert_string_equal(W.would, "refuse concurrency");
    assert_true(counted(PL_M_REQUESTS_REFUSED_TOTAL, "concurrency") == 0);
    reply(second, "B");
    read_ends(b, "B");
    reply(first, "A");
    read_ends(a, "A");
    close(a);
    close(b);
    close(first);
    close(second);
}

TEST(a_service_that_has_failed_empties_its_queue) {
    worker_starts(1);
    worker_dies(1);
    int c = ask("/a");
    assert_true(is_silent(c));
    W.failed = true;
    W.hooks.supply_changed(W.hooks.ctx, &W.service);
    read_until(c, "not_ready");
    close(c);
}

TEST(a_worker_over_its_timeout_is_504_and_its_handler_keeps_the_place_until_its_end_record) {
    set("traffic.timeout", "2s");
    set("traffic.max_concurrency", "1");
    worker_starts(1);
    int a = ask("/slow");
    int w = worker_takes(1);
    read_until(w, "POST /slow ");
    uint64_t id = id_seen();
    page_begin(&W.pages[0], id);
    page_counts(&W.pages[0])->in_flight = 1;
    int b = ask("/next");
    pass(1990);
    assert_true(is_silent(a));
    pass(30);
    read_until(a, "Not able to process the request in 2 seconds");
    assert_true(has("HTTP/1.1 504 ") && has("\"timeout\""));
    read_end(w); /* the worker is told */
    assert_int_equal(W.zombies[0], 1);
    pass(5000);
    assert_true(worker_idle(1));                       /* the place is still taken */
    for (uint64_t other = 1; other <= 3000; other++) { /* others end meanwhile, more than the ring holds */
        page_end(&W.pages[0], other, PL_OUTCOME_OK, "");
        if (other % 300 == 0) pass(60);
    }
    assert_true(worker_idle(1));
    page_end(&W.pages[0], id, PL_OUTCOME_OK, "");
    pass(60);
    assert_int_equal(W.zombies[0], 0);
    close(w);
    w = worker_takes(1);
    read_until(w, "POST /next ");
    reply(w, "N");
    read_ends(b, "N");
    close(a);
    close(b);
    close(w);
}

TEST(a_client_that_leaves_cancels_its_request_but_the_handler_holds_its_place) {
    set("traffic.max_concurrency", "1");
    worker_starts(1);
    int a = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    uint64_t id = id_seen();
    page_begin(&W.pages[0], id);
    page_counts(&W.pages[0])->in_flight = 1;
    leave(a);
    read_end(w);
    assert_int_equal(W.zombies[0], 1);
    assert_true(counted(PL_M_REQUESTS_TOTAL, "499") == 1);
    set("traffic.queue.max_wait", "1m");
    int b = ask("/b");
    pass(20000);
    assert_true(is_silent(b) && worker_idle(1));
    page_end(&W.pages[0], id, PL_OUTCOME_CANCELLED, "");
    pass(60);
    assert_int_equal(W.zombies[0], 0);
    close(w);
    close(b);
}

TEST(a_worker_that_dies_before_its_handler_began_costs_nobody_a_request) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "\r\n\r\n{}");
    uint64_t id = id_seen();
    worker_starts(2);
    close(w);
    turn();
    assert_true(is_silent(c)); /* closed, but not known dead */
    worker_dies(1);
    pass(20);
    w = worker_takes(2);
    read_until(w, "\r\n\r\n{}");
    assert_int_equal(id_seen(), id);
    reply(w, "A");
    read_ends(c, "A");
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "not_started") == 1);
    close(c);
    close(w);
}

TEST(a_worker_that_dies_in_a_handler_is_502_with_the_cause_and_never_replayed) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    page_begin(&W.pages[0], id_seen());
    worker_starts(2);
    close(w);
    worker_dies(1);
    pass(300);
    read_until(c, "worker_failed");
    assert_true(has("HTTP/1.1 502 ") && has("killed by SIGSEGV"));
    assert_true(has("x-plimsoll-reason: crashed\r\n") && has("x-should-retry: false\r\n"));
    assert_true(worker_idle(2));
    assert_true(counted(PL_M_REQUESTS_LOST_TOTAL, "crashed") == 1);
    close(c);
}

TEST(a_worker_that_nobody_heard_dying_is_502_after_a_second) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    close(w);
    turn();
    pass(950);
    assert_true(is_silent(c));
    pass(100);
    read_until(c, "worker_failed");
    assert_false(has("x-plimsoll-reason"));
    close(c);
    pass(2000);
}

TEST(it_is_sent_again_once_and_not_twice) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    worker_starts(2);
    close(w);
    worker_dies(1);
    pass(300);
    w = worker_takes(2);
    read_until(w, "POST /a ");
    worker_starts(3);
    close(w);
    worker_dies(2);
    pass(300);
    read_until(c, "HTTP/1.1 502 ");
    assert_true(worker_idle(3));
    close(c);
}

TEST(an_unaccepted_connection_of_a_dead_worker_is_replayed_although_nobody_closes_it) {
    worker_starts(1);
    int c = ask("/a");
    turn();
    int held = dup(W.listeners[0]); /* the keeper holds the listener: the backlog lives on */
    worker_starts(2);
    worker_dies(1);
    pass(200);
    assert_true(worker_idle(2));
    pass(100);
    int w = worker_takes(2);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    close(held);
    close(c);
    close(w);
}

TEST(a_socket_where_nobody_listens_is_tried_again_elsewhere) {
    worker_starts(1);
    close(W.listeners[0]);
    unlink(W.workers[0].to.at.un.sun_path);
    int c = ask("/a");
    worker_starts(2);
    assert_true(is_silent(c));
    W.listeners[0] = dup(W.log_fd);
    worker_dies(1);
    pass(20);
    int w = worker_takes(2);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "not_sent") == 1);
    close(c);
    close(w);
}

TEST(a_complete_answer_of_a_worker_that_is_dead_already_counts) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    page_begin(&W.pages[0], id_seen());
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_int_equal(send(w, text, sizeof text - 1, MSG_NOSIGNAL), sizeof text - 1);
    close(w);
    worker_dies(1); /* the loop has not run since */
    read_ends(c, "ok");
    close(c);
}

TEST(an_idle_connection_closed_as_it_is_used_is_no_loss) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    put(c, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
    turn();
    close(w); /* with the request unread: reset */
    w = worker_takes(1);
    read_until(w, "POST /b ");
    reply(w, "B");
    read_ends(c, "B");
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "not_started") == 1);
    close(c);
    close(w);
}

/* Its sockets close before anybody says that it is dead: the first new try meets the same worker. */
TEST(a_worker_killed_with_a_request_unread_on_an_old_connection_costs_nobody_a_request) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    put(c, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
    turn();
    shutdown(W.listeners[0], SHUT_RDWR); /* what a dead process's listener answers: refused */
    close(w);
    turn();
    worker_dies(1);
    turn();
    assert_true(is_silent(c));
    worker_starts(2);
    w = worker_takes(2);
    read_until(w, "POST /b ");
    reply(w, "B");
    read_ends(c, "B");
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "not_started") == 1);
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "not_sent") == 1);
    close(c);
    close(w);
}

TEST(idle_connections_are_retired_and_closed_when_the_worker_drains) {
    worker_starts(1);
    int c = ask("/a");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    reply(w, "A");
    read_ends(c, "A");
    pass(59000);
    assert_true(is_silent(w));
    pass(1100);
    read_end(w);
    close(w);
    close(c);
    c = ask("/b");
    w = worker_takes(1);
    read_until(w, "POST /b ");
    reply(w, "B");
    read_ends(c, "B");
    W.workers[0].routable = false;
    W.hooks.unroutable(W.hooks.ctx, &W.workers[0]);
    read_end(w);
    close(w);
    close(c);
}

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

TEST(a_drain_finishes_what_runs_and_waits_and_takes_nothing_new) {
    set("traffic.max_concurrency", "1");
    worker_starts(1);
    int idle = client(), a = ask("/a"), b = ask("/b");
    put(idle, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n");
    read_until(idle, "live");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    pl_gateway_drain(W.gateway, on_drained, NULL);
    read_end(idle);
    assert_false(W.drained);
    reply(w, "A");
    read_end(a);
    assert_true(has("Connection: close\r\n") && has("A"));
    read_until(w, "POST /b ");
    reply(w, "B");
    read_end(b);
    assert_true(has("\r\n\r\nB"));
    turn();
    assert_true(W.drained);
    close(idle);
    close(a);
    close(b);
    close(w);
}

TEST(a_drain_that_takes_too_long_is_cut) {
    set("traffic.max_concurrency", "1");
    worker_starts(1);
    int a = ask("/a"), b = ask("/b");
    int w = worker_takes(1);
    read_until(w, "POST /a ");
    pl_gateway_drain(W.gateway, on_drained, NULL);
    pl_gateway_cut(W.gateway);
    turn();
    assert_true(W.drained);
    read_end(a);
    assert_int_equal(seen_len, 0);
    close(a);
    close(b);
    close(w);
}

TEST(more_connections_than_allowed_wait_in_the_backlog) {
    worker_starts(1);
    enum { MANY = 1010 };
    static int fds[MANY];
    for (int i = 0; i < MANY; i++) fds[i] = client();
    put(fds[MANY - 1], "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(is_silent(fds[MANY - 1]));
    for (int i = 0; i < 20; i++) close(fds[i]);
    read_until(fds[MANY - 1], "live");
    for (int i = 20; i < MANY; i++) close(fds[i]);
    turn();
}

RUN(IN_WORLD(before_the_first_worker_is_ready_it_is_503_with_the_remaining_boot),
    IN_WORLD(over_max_concurrency_requests_wait_their_turn_and_the_next_one_is_429),
    IN_WORLD(who_waits_past_max_wait_is_429_and_who_leaves_the_queue_is_499),
    IN_WORLD(a_gap_between_two_workers_only_makes_requests_wait),
    IN_WORLD(a_handover_holds_whom_it_can_serve_in_time_and_tells_the_others_when),
    IN_WORLD(who_is_only_observed_goes_to_the_worker_and_is_counted),
    IN_WORLD(a_service_that_has_failed_empties_its_queue),
    IN_WORLD(a_worker_over_its_timeout_is_504_and_its_handler_keeps_the_place_until_its_end_record),
    IN_WORLD(a_client_that_leaves_cancels_its_request_but_the_handler_holds_its_place),
    IN_WORLD(a_worker_that_dies_before_its_handler_began_costs_nobody_a_request),
    IN_WORLD(a_worker_that_dies_in_a_handler_is_502_with_the_cause_and_never_replayed),
    IN_WORLD(a_worker_that_nobody_heard_dying_is_502_after_a_second),
    IN_WORLD(it_is_sent_again_once_and_not_twice),
    IN_WORLD(an_unaccepted_connection_of_a_dead_worker_is_replayed_although_nobody_closes_it),
    IN_WORLD(a_socket_where_nobody_listens_is_tried_again_elsewhere),
    IN_WORLD(a_complete_answer_of_a_worker_that_is_dead_already_counts),
    IN_WORLD(an_idle_connection_closed_as_it_is_used_is_no_loss),
    IN_WORLD(a_worker_killed_with_a_request_unread_on_an_old_connection_costs_nobody_a_request),
    IN_WORLD(idle_connections_are_retired_and_closed_when_the_worker_drains),
    IN_WORLD(a_stream_whose_worker_dies_says_so_and_has_no_last_chunk),
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
    IN_WORLD(a_drain_finishes_what_runs_and_waits_and_takes_nothing_new),
    IN_WORLD(a_drain_that_takes_too_long_is_cut), IN_WORLD(more_connections_than_allowed_wait_in_the_backlog))
