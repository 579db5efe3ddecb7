/* Requests that wait: queues, gaps between workers, holds, drains, the backlog. */
#include "world.h"

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
    IN_WORLD(a_drain_finishes_what_runs_and_waits_and_takes_nothing_new),
    IN_WORLD(a_drain_that_takes_too_long_is_cut), IN_WORLD(more_connections_than_allowed_wait_in_the_backlog))
