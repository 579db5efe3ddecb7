/* The server alone, as the admin port uses it: streams of our own, peers, drains; and pl_ask against it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/ask.h"
#include "net/server.h"
#include "unit.h"

static uv_loop_t loop;
static struct pl_timers *timers;
static struct pl_metrics *metrics;
static struct pl_server *server;
static char folder[64], path[80];
static const struct pl_server_limits limits = { .http = { 8192, 32768, 100 },
                                                .head_timeout_ms = 10000,
                                                .idle_timeout_ms = 75000,
                                                .write_timeout_ms = 60000,
                                                .connections = 100 };
static struct pl_conn *follower; /* of /stream */
static unsigned gone_count, request_count;
enum { BIG_BYTES = 1 << 20 }; /* more than a socket takes at once */
static char big[BIG_BYTES];
static char body_seen[256];
static bool is_empty;

static void on_request(void *ctx, struct pl_conn *c) {
    const struct pl_http_head *h = pl_conn_head(c);
    const char *target = pl_http_at(h, h->target);
    (void)ctx;
    body_seen[0] = '\0';
    request_count++;
    if (strncmp(target, "/stream", 7) == 0) {
        if (!pl_conn_start(c, 200, "text/event-stream", "Cache-Control: no-store\r\n")) return;
        pl_conn_piece(c, "data: 1\n\n", 9);
        follower = c;
    } else if (strncmp(target, "/refuse", 7) == 0) {
        pl_conn_error(c, 403, NULL, "no", NULL);
    } else if (strncmp(target, "/big", 4) == 0) {
        struct pl_http_reply r = {
            .status = 200, .content_type = "text/plain", .body = big, .body_len = sizeof big
        };
        pl_conn_reply(c, &r);
    }
}
static void on_body(void *ctx, struct pl_conn *c, const char *bytes, size_t len) {
    (void)ctx;
    (void)c;
    strncat(body_seen, bytes, len);
}
static void on_body_end(void *ctx, struct pl_conn *c) {
    (void)ctx;
    if (c == follower) return;
    char text[300], peer[PL_PEER_TEXT];
    uid_t uid = (uid_t)-1;
    assert_true(pl_conn_peer_uid(c, &uid));
    int n = snprintf(text, sizeof text, "%s|%s|%s|%d", body_seen, pl_conn_peer(c, peer), pl_conn_listener(c),
                     uid == getuid());
    struct pl_http_reply r = {
        .status = 200, .content_type = "text/plain", .body = text, .body_len = (size_t)n
    };
    pl_conn_reply(c, &r);
}
static void on_gone(void *ctx, struct pl_conn *c) {
    (void)ctx;
    gone_count++;
    if (c == follower) follower = NULL;
}
static const struct pl_server_calls calls = {
    .request = on_request, .body = on_body, .body_end = on_body_end, .gone = on_gone
};
static void on_empty(void *ctx) {
    (void)ctx;
    is_empty = true;
}

static int begin(void **state) {
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct pl_err err;
    (void)state;
    follower = NULL;
    signal(SIGPIPE, SIG_IGN); /* as main does */
    gone_count = request_count = 0;
    is_empty = false;
    snprintf(folder, sizeof folder, "/tmp/plimsoll-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    uv_loop_init(&loop);
    timers = pl_timers_create(&loop, &pl_clock_system);
    metrics = pl_metrics_create(100);
    struct pl_server_options o = {
        .loop = &loop, .timers = timers, .metrics = metrics, .limits = &limits, .calls = &calls
    };
    server = pl_server_create(&o);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_true(pl_server_listen(server, fd, "admin", &err));
    return 0;
}
static int end(void **state) {
    (void)state;
    pl_server_drain(server, on_empty, NULL);
    pl_server_cut(server);
    for (int i = 0; i < 20; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(is_empty);
    pl_server_destroy(server);
    pl_timers_destroy(timers);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    pl_metrics_destroy(metrics);
    unlink(path);
    rmdir(folder);
    return 0;
}

static char seen[65536];
static int dial(void) {
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}
static void put(int fd, const char *text) { assert_int_equal(send(fd, text, strlen(text), 0), strlen(text)); }
/* True until the end of the stream. */
static bool get(int fd, const char *until) {
    size_t len = 0;
    seen[0] = '\0';
    for (int i = 0; i < 100000 && strstr(seen, until) == NULL; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, seen + len, sizeof seen - 1 - len, 0);
        if (n == 0) return false;
        if (n > 0) len += (size_t)n;
        seen[len] = '\0';
    }
    assert_non_null(strstr(seen, until));
    return true;
}

TEST(a_stream_of_our_own_is_chunked_and_the_connection_lives_on) {
    int fd = dial();
    put(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(get(fd, "9\r\ndata: 1\n\n\r\n"));
    assert_non_null(strstr(seen, "Transfer-Encoding: chunked\r\n"));
    pl_conn_piece(follower, "", 0); /* no last chunk by accident */
    pl_conn_piece(follower, "x", 1);
    assert_true(get(fd, "1\r\nx\r\n"));
    struct pl_conn *c = follower;
    follower = NULL;
    pl_conn_finish(c);
    assert_true(get(fd, "0\r\n\r\n"));
    put(fd, "GET /who HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(get(fd, "|unix:|admin|1"));
    close(fd);
}

TEST(a_follower_that_leaves_is_told_once) {
    int fd = dial();
    put(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(get(fd, "data: 1"));
    close(fd);
    for (int i = 0; i < 20; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(gone_count, 1);
    assert_null(follower);
    assert_int_equal(pl_server_connections(server), 0);
}

/* Reads away what comes until nothing more does; the number of bytes. */
static size_t drink(int fd) {
    static char away[65536];
    size_t total = 0;
    for (int idle = 0; idle < 1000; idle++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, away, sizeof away, 0);
        if (n == 0) break;
        if (n > 0) {
            total += (size_t)n;
            idle = 0;
        }
    }
    return total;
}

TEST(who_sends_ahead_without_reading_is_held_back_and_then_answered) {
    enum { AHEAD = 20 };
    int fd = dial();
    for (int i = 0; i < AHEAD; i++) put(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(request_count, 1);
    assert_true(drink(fd) > (size_t)AHEAD * BIG_BYTES);
    assert_int_equal(request_count, AHEAD);
    close(fd);
}

TEST(an_answer_on_its_way_survives_the_drain) {
    int fd = dial();
    put(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(request_count, 1);
    pl_server_drain(server, on_empty, NULL);
    assert_false(is_empty);
    assert_true(drink(fd) > BIG_BYTES);
    assert_true(is_empty);
    close(fd);
}

/* It has come, and nobody has read it yet: that connection is not idle. */
TEST(a_request_that_came_before_the_drain_is_answered) {
    int asked = dial(), idle = dial(), stray = dial();
    for (int i = 0; i < 20; i++) uv_run(&loop, UV_RUN_NOWAIT);
    put(asked, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    put(stray, "\r\n"); /* allowed before a request (RFC 9112, 2.2), and none */
    pl_server_drain(server, on_empty, NULL);
    assert_true(get(asked, "Connection: close"));
    assert_int_equal(drink(idle) + drink(stray), 0);
    assert_true(is_empty);
    close(asked);
    close(idle);
    close(stray);
}

/* Another process accepts: who was told that the connection stays may use it once more, and is told then. */
TEST(an_idle_connection_brings_one_more_request_to_a_server_that_leaves) {
    int kept = dial(), busy = dial();
    put(kept, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(get(kept, "admin|1"));
    assert_null(strstr(seen, "Connection: close"));
    put(busy, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    pl_server_leave(server, on_empty, NULL);
    assert_true(drink(busy) > BIG_BYTES);
    assert_false(is_empty);
    put(busy, "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); /* it had been told so before */
    assert_true(get(busy, "admin|1"));
    for (int i = 0; i < 20; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_false(is_empty);
    put(kept, "GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_true(get(kept, "Connection: close"));
    for (int i = 0; i < 20; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(is_empty);
    close(kept);
    close(busy);
}

TEST(a_stream_for_http_1_0_is_505) {
    int fd = dial();
    put(fd, "GET /stream HTTP/1.0\r\n\r\n");
    assert_true(get(fd, "505"));
    assert_null(follower);
    close(fd);
}

TEST(requests_that_come_a_byte_at_a_time_and_all_at_once_are_the_same) {
    static const char two[] =
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n";
    int fd = dial();
    for (size_t i = 0; i < sizeof two - 1; i++) {
        assert_int_equal(send(fd, two + i, 1, 0), 1);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_true(get(fd, "de|unix:"));
    assert_non_null(strstr(seen, "abc|unix:"));
    put(fd, two);
    assert_true(get(fd, "de|unix:"));
    close(fd);
}

TEST(an_error_before_the_body_closes_and_can_be_read) {
    int fd = dial();
    put(fd, "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc");
    assert_true(get(fd, "\"no\""));
    assert_non_null(strstr(seen, "Connection: close\r\n"));
    put(fd, "more of the body, which nobody wants");
    assert_false(get(fd, "never"));
    close(fd);
}

static struct pl_ask_reply answer;
static char answer_body[256];
static unsigned answers;
static void on_answer(void *ctx, const struct pl_ask_reply *r) {
    (void)ctx;
    answers++;
    answer = *r;
    snprintf(answer_body, sizeof answer_body, "%s", r->body);
}
static void wait_answer(unsigned count) {
    for (int i = 0; i < 100000 && answers < count; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(answers, count);
}

static struct pl_dial_to at(const char *where) {
    struct pl_dial_to to;
    assert_true(pl_dial_to_path(&to, where));
    return to;
}

TEST(a_question_gets_the_whole_answer) {
    struct pl_dial_to to = at(path);
    struct pl_ask_question q = { .to = &to,
                                 .method = "POST",
                                 .target = "/a",
                                 .headers = "x-plimsoll-warmup: 1\r\n",
                                 .body = "ping",
                                 .body_len = 4,
                                 .reply_cap = 1000,
                                 .timeout_ms = 60000 };
    answers = 0;
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    assert_int_equal(answers, 0);
    wait_answer(1);
    assert_true(answer.answered);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer_body, "ping|unix:|admin|1");
    q.reply_cap = 3;
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    wait_answer(2);
    assert_false(answer.answered);
    assert_string_equal(answer.problem, "too large");
}

TEST(a_question_to_nobody_is_refused_and_a_cancelled_one_never_answers) {
    struct pl_dial_to nobody = at("/nonexistent/s"), to = at(path);
    struct pl_ask_question q = {
        .to = &nobody, .method = "GET", .target = "/", .reply_cap = 10, .timeout_ms = 60000
    };
    answers = 0;
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    assert_int_equal(answers, 0);
    wait_answer(1);
    assert_true(answer.refused && !answer.answered);
    assert_string_equal(answer.problem, "connect");
    q.to = &to;
    struct pl_ask *a = pl_ask_start(&loop, &q, on_answer, NULL);
    pl_ask_cancel(a);
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(answers, 1);
}

TEST(a_question_that_is_not_answered_in_time_says_so) {
    struct pl_dial_to to = at(path);
    struct pl_ask_question q = {
        .to = &to, .method = "GET", .target = "/stream", .reply_cap = 100, .timeout_ms = 20
    };
    answers = 0;
    assert_non_null(pl_ask_start(&loop, &q, on_answer, NULL));
    while (answers == 0) uv_run(&loop, UV_RUN_ONCE);
    assert_false(answer.answered);
    assert_false(answer.refused);
    assert_string_equal(answer.problem, "timeout");
}

#define HERE(test) cmocka_unit_test_setup_teardown(test, begin, end)
RUN(HERE(a_stream_of_our_own_is_chunked_and_the_connection_lives_on),
    HERE(a_follower_that_leaves_is_told_once),
    HERE(who_sends_ahead_without_reading_is_held_back_and_then_answered),
    HERE(an_answer_on_its_way_survives_the_drain), HERE(a_request_that_came_before_the_drain_is_answered),
    HERE(an_idle_connection_brings_one_more_request_to_a_server_that_leaves),
    HERE(a_stream_for_http_1_0_is_505),
    HERE(requests_that_come_a_byte_at_a_time_and_all_at_once_are_the_same),
    HERE(an_error_before_the_body_closes_and_can_be_read), HERE(a_question_gets_the_whole_answer),
    HERE(a_question_to_nobody_is_refused_and_a_cancelled_one_never_answers),
    HERE(a_question_that_is_not_answered_in_time_says_so))
