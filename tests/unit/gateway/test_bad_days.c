/* Workers that time out or die: what it costs, who is asked again, whose place is kept. */
#include "world.h"

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

RUN(IN_WORLD(a_worker_over_its_timeout_is_504_and_its_handler_keeps_the_place_until_its_end_record),
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
    IN_WORLD(idle_connections_are_retired_and_closed_when_the_worker_drains))
