/* Where a worker listens, over TCP: refused, itself, late, stale; and the pool and pl_ask on such
 * connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "net/ask.h"
#include "net/upstream.h"
#include "unit.h"

static uv_loop_t loop;
static struct pl_timers *timers;

static int listen_on(uint16_t *port, int backlog) {
    struct pl_dial_to to;
    socklen_t len = sizeof to.at;
    pl_dial_to_port(&to, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, &to.at.any, to.len), 0);
    assert_int_equal(getsockname(fd, &to.at.any, &len), 0);
    if (backlog >= 0) assert_int_equal(listen(fd, backlog), 0);
    *port = ntohs(to.at.in.sin_port);
    return fd;
}

TEST(places_are_paths_ports_and_addresses) {
    struct pl_dial_to to;
    char longest[200] = "/";
    assert_true(pl_dial_to_path(&to, "/run/x"));
    assert_false(pl_dial_is_tcp(&to));
    assert_false(pl_dial_to_path(&to, ""));
    memset(longest + 1, 'a', 150);
    assert_false(pl_dial_to_path(&to, longest));
    int fd = -1;
    assert_int_equal(pl_dial(&to, &fd), PL_DIAL_REFUSED); /* not known */
    assert_true(pl_dial_to_ip(&to, "10.0.0.1", 80) && pl_dial_is_tcp(&to));
    assert_true(pl_dial_to_ip(&to, "::1", 80) && pl_dial_is_tcp(&to));
    assert_false(pl_dial_to_ip(&to, "localhost", 80));
    assert_false(pl_dial_to_ip(&to, "1.2.3", 80));
}

TEST(a_port_is_answered_or_refused_at_once) {
    uint16_t port;
    struct pl_dial_to to;
    int fd = -1, listener = listen_on(&port, 5);
    pl_dial_to_port(&to, port);
    assert_int_equal(pl_dial(&to, &fd), PL_DIAL_OK);
    assert_true(pl_dial_connected(fd));
    assert_false(pl_dial_stale(fd));
    assert_true(pl_dial_sent(fd) == 0);
    assert_int_equal(send(fd, "abc", 3, MSG_NOSIGNAL), 3);
    assert_true(pl_dial_sent(fd) == 3);
    int there = accept(listener, NULL, NULL);
    close(there);
    close(listener);
    close(fd);
    fd = -1;
    assert_int_equal(pl_dial(&to, &fd), PL_DIAL_REFUSED);
    assert_int_equal(fd, -1);
}

TEST(a_connection_that_was_closed_or_spoken_on_is_stale) {
    uint16_t port;
    struct pl_dial_to to;
    int a, b, listener = listen_on(&port, 5);
    pl_dial_to_port(&to, port);
    assert_int_equal(pl_dial(&to, &a), PL_DIAL_OK);
    int there_a = accept(listener, NULL, NULL);
    assert_int_equal(pl_dial(&to, &b), PL_DIAL_OK);
    int there_b = accept(listener, NULL, NULL);
    close(there_a);
    assert_int_equal(send(there_b, "x", 1, 0), 1);
    assert_true(pl_dial_stale(a));
    assert_true(pl_dial_stale(b));
    close(a);
    close(b);
    close(there_b);
    close(listener);
}

/* When the kernel gives our end the very port that we dial, the connection is with ourselves. */
TEST(a_connection_with_itself_is_nobody) {
    struct pl_dial_to to, from;
    uint16_t port;
    socklen_t len = sizeof from.at;
    close(listen_on(&port, -1));
    pl_dial_to_port(&to, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, &to.at.any, to.len), 0);
    assert_int_equal(connect(fd, &to.at.any, to.len), 0); /* this is what happens then */
    assert_int_equal(getsockname(fd, &from.at.any, &len), 0);
    assert_int_equal(from.at.in.sin_port, to.at.in.sin_port);
    close(fd);
    /* Only the port itself is left for the kernel to give: most dials would be answered by themselves. */
    for (int i = 0; i < 200; i++) {
        int met = -1;
        assert_int_equal(pl_dial(&to, &met), PL_DIAL_REFUSED);
        assert_int_equal(met, -1);
    }
}

/* --- the pool */

static struct {
    unsigned parts, failed, ended;
    enum pl_upstream_end end;
} seen;
static void on_part(void *ctx, struct pl_upstream *u, const struct pl_upstream_part *p) {
    (void)ctx;
    seen.parts++;
    if (!p->end) return;
    seen.ended++;
    pl_upstream_release(u, true);
}
static void on_failed(void *ctx, struct pl_upstream *u, enum pl_upstream_end end) {
    (void)ctx;
    seen.failed++;
    seen.end = end;
    pl_upstream_close(u);
}
static const struct pl_upstream_calls calls = { .part = on_part, .failed = on_failed };
static const struct pl_http_limits limits = { 8192, 32768, 100 };

static void until(const unsigned *count, unsigned wanted) {
    for (int i = 0; i < 2000000 && *count < wanted; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(*count, wanted);
}
static void say(struct pl_upstream *u, const char *text) {
    char copy[128];
    strcpy(copy, text);
    uv_buf_t part = uv_buf_init(copy, (unsigned)strlen(copy));
    pl_upstream_send(u, &part, 1);
}
static void answer(int fd) {
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char room[256];
    assert_true(recv(fd, room, sizeof room, 0) > 0);
    assert_int_equal(send(fd, text, sizeof text - 1, 0), sizeof text - 1);
}

TEST(a_connection_over_tcp_serves_again_unless_the_other_end_has_closed_it) {
    uint16_t port;
    struct pl_dial_to to;
    struct pl_upstream *u;
    int listener = listen_on(&port, 5);
    pl_dial_to_port(&to, port);
    struct pl_pool_options o = { .loop = &loop,
                                 .timers = timers,
                                 .limits = &limits,
                                 .calls = &calls,
                                 .idle_ms = 60000,
                                 .connect_ms = 3000,
                                 .look_first = true,
                                 .to = &to };
    struct pl_pool *pool = pl_pool_create(&o);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(pl_upstream_open(pool, NULL, &u), PL_DIAL_OK);
    say(u, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    int there = accept(listener, NULL, NULL);
    answer(there);
    until(&seen.ended, 1);
    assert_int_equal(pl_upstream_open(pool, NULL, &u), PL_DIAL_OK);
    assert_true(pl_upstream_reused(u));
    say(u, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    answer(there);
    until(&seen.ended, 2);
    close(there); /* the loop has not heard of it yet */
    assert_int_equal(pl_upstream_open(pool, NULL, &u), PL_DIAL_OK);
    assert_false(pl_upstream_reused(u));
    pl_upstream_close(u);
    close(listener);
    assert_int_equal(pl_upstream_open(pool, NULL, &u), PL_DIAL_REFUSED);
    pl_pool_destroy(pool);
    for (int i = 0; i < 100; i++) uv_run(&loop, UV_RUN_NOWAIT);
}

/* A backlog that is full drops the knock: nothing was sent, and that is known. */
TEST(a_connection_that_does_not_come_about_in_time_is_refused) {
    uint16_t port;
    struct pl_dial_to to;
    struct pl_upstream *u = NULL;
    int listener = listen_on(&port, 0), fillers[8];
    pl_dial_to_port(&to, port);
    for (int i = 0; i < 8; i++) {
        fillers[i] = -1;
        pl_dial(&to, &fillers[i]);
    }
    struct pl_pool_options o = { .loop = &loop,
                                 .timers = timers,
                                 .limits = &limits,
                                 .calls = &calls,
                                 .idle_ms = 60000,
                                 .connect_ms = 50,
                                 .to = &to };
    struct pl_pool *pool = pl_pool_create(&o);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(pl_upstream_open(pool, NULL, &u), PL_DIAL_OK);
    say(u, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while (seen.failed == 0) uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(seen.end, PL_UPSTREAM_REFUSED);

    struct pl_ask_question q = {
        .to = &to, .method = "GET", .target = "/", .reply_cap = 10, .timeout_ms = 50
    };
    (void)q;
    for (int i = 0; i < 8; i++)
        if (fillers[i] != -1) close(fillers[i]);
    pl_pool_destroy(pool);
    close(listener);
    for (int i = 0; i < 100; i++) uv_run(&loop, UV_RUN_NOWAIT);
}

static struct pl_ask_reply told;
static unsigned answers;
static void on_answer(void *ctx, const struct pl_ask_reply *r) {
    (void)ctx;
    told = *r;
    answers++;
}

TEST(a_question_over_tcp_is_answered_refused_or_late) {
    uint16_t port;
    struct pl_dial_to to;
    int listener = listen_on(&port, 0);
    pl_dial_to_port(&to, port);
    struct pl_ask_question q = {
        .to = &to, .host = "h:1", .method = "GET", .target = "/", .reply_cap = 10, .timeout_ms = 60000
    };
    answers = 0;
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    int there = accept(listener, NULL, NULL);
    char room[256] = "";
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(recv(there, room, sizeof room - 1, MSG_PEEK) > 0);
    assert_non_null(strstr(room, "Host: h:1\r\n"));
    answer(there);
    until(&answers, 1);
    assert_true(told.answered && told.status == 200);
    close(there);

    int fillers[8];
    for (int i = 0; i < 8; i++) {
        fillers[i] = -1;
        pl_dial(&to, &fillers[i]);
    }
    q.timeout_ms = 50; /* it never comes to a connection */
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    while (answers < 2) uv_run(&loop, UV_RUN_ONCE);
    assert_true(!told.answered && told.refused);
    assert_string_equal(told.problem, "connect");
    for (int i = 0; i < 8; i++)
        if (fillers[i] != -1) close(fillers[i]);
    close(listener);

    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    until(&answers, 3);
    assert_true(!told.answered && told.refused);
    for (int i = 0; i < 100; i++) uv_run(&loop, UV_RUN_NOWAIT);
}

static int begin(void **state) {
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (timers == NULL) {
        uv_loop_init(&loop);
        timers = pl_timers_create(&loop, &pl_clock_system);
    }
    return timers != NULL ? 0 : -1;
}

#define HERE(test) cmocka_unit_test_setup(test, begin)
RUN(HERE(places_are_paths_ports_and_addresses), HERE(a_port_is_answered_or_refused_at_once),
    HERE(a_connection_that_was_closed_or_spoken_on_is_stale), HERE(a_connection_with_itself_is_nobody),
    HERE(a_connection_over_tcp_serves_again_unless_the_other_end_has_closed_it),
    HERE(a_connection_that_does_not_come_about_in_time_is_refused),
    HERE(a_question_over_tcp_is_answered_refused_or_late))
