/* test_torture_request.c - no memory, at every place of a request's way: the client gets one whole answer or
 * a closed connection, every place and byte that was held comes back, and the next request goes through. */
#include "torture.h"

#include "world.h"

enum { TURNS = 400, LONGEST_MS = 400000 };

/* What the two ends of one exchange have seen; nothing here insists on anything. */
struct exchange {
    int client, worker;
    bool closed, answered;
    char got[16384], asked[65536];
    size_t got_len, asked_len;
};

static void drink(int *fd, char *into, size_t *len, size_t room, bool *closed) {
    if (*fd == -1) return;
    ssize_t n = recv(*fd, into + *len, room - 1 - *len, 0);
    if (n > 0) *len += (size_t)n;
    into[*len] = '\0';
    if (n > 0 || (n < 0 && errno == EAGAIN)) return;
    *closed = true;
    close(*fd);
    *fd = -1;
}

/* A head, and the body that it announces. */
static bool is_whole(const char *text, size_t len) {
    const char *end = strstr(text, "\r\n\r\n"), *length = strcasestr(text, "content-length: ");
    if (end == NULL) return false;
    if (strcasestr(text, "transfer-encoding: chunked") != NULL) return strstr(end, "0\r\n\r\n") != NULL;
    size_t body = length != NULL && length < end ? strtoul(length + 16, NULL, 10) : 0;
    return len >= (size_t)(end + 4 - text) + body;
}

static void push(int fd, const char *text) {
    size_t len = strlen(text);
    if (fd != -1 && send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        return; /* it was refused, and closed */
}

static int knock(void) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(W.port) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void step(struct exchange *x, const char *reply) {
    bool left = false;
    turn();
    if (x->worker == -1) x->worker = accept4(W.listeners[0], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    drink(&x->worker, x->asked, &x->asked_len, sizeof x->asked, &left);
    if (left) x->asked_len = 0; /* another connection may come */
    if (!x->answered && x->worker != -1 && is_whole(x->asked, x->asked_len)) {
        push(x->worker, reply);
        x->answered = true;
    }
    drink(&x->client, x->got, &x->got_len, sizeof x->got, &x->closed);
}

/* Whether it came to an end: answered whole, or closed. When nothing happens, time passes. */
static bool goes(struct exchange *x, const char *request, const char *reply) {
    *x = (struct exchange){ .client = knock(), .worker = -1 };
    turn();
    push(x->client, request);
    for (unsigned i = 0; i < TURNS && !x->closed && !is_whole(x->got, x->got_len); i++) step(x, reply);
    for (unsigned ms = 0; ms < LONGEST_MS && !x->closed && !is_whole(x->got, x->got_len); ms += 5000) {
        world_ms += 5000;
        pl_timers_advance(W.timers, world_ms);
        for (int i = 0; i < 3; i++) step(x, reply);
    }
    return x->closed || is_whole(x->got, x->got_len);
}

static void leaves(struct exchange *x) {
    if (x->client != -1) close(x->client);
    turn();
    if (x->worker != -1) close(x->worker);
    turn();
}

static void tortured(const char *request, const char *reply, const char *good) {
    static struct exchange x; /* large */
    for (torture_begin(); torture_goes_on();) {
        torture_pauses();
        world_begins(NULL);
        worker_starts(1);
        torture_resumes();
        bool over = goes(&x, request, reply);
        torture_ends();
        if (!over) fail_msg("allocation %zu failed, and the client waits for ever", torture.fails);
        if (!torture_hit() && strncmp(x.got, good, strlen(good)) != 0) fail_msg("'%s'", x.got);
        leaves(&x);
        if (!goes(&x, request, reply) || strncmp(x.got, good, strlen(good)) != 0)
            fail_msg("after allocation %zu failed the next request got '%s'", torture.fails, x.got);
        leaves(&x);
        world_ends(NULL);
    }
}

TEST(a_body_of_json_and_an_answer) {
    tortured("POST /predict?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTraceparent: "
             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 28\r\n\r\n"
             "{\"model\":\"m\",\"prompt\":\"abc\"}",
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 57\r\n\r\n"
             "{\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3},\"x\":1}",
             "HTTP/1.1 200");
}
TEST(chunks_both_ways) {
    tortured("POST /predict HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n "
             "world\r\n0\r\n\r\n",
             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
             "a\r\ndata: {}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
             "HTTP/1.1 200");
}
TEST(an_answer_of_our_own) { tortured("GET /livez HTTP/1.1\r\nHost: h\r\n\r\n", "", "HTTP/1.1 200"); }
TEST(a_refusal) { tortured("GET /x HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", "", "HTTP/1.1 400"); }

/* `count` requests at once over kept connections, `rounds` times; allocations that this took. */
static size_t asked_for(const int *clients, int *workers, unsigned count, unsigned rounds) {
    static const char request[] = "POST /predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                                  "Content-Length: 28\r\n\r\n{\"model\":\"m\",\"prompt\":\"abc\"}";
    torture.fails = 0;
    torture.asked = 0;
    torture_resumes();
    for (unsigned r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < count; i++) put(clients[i], request);
        for (unsigned i = 0; i < count; i++) {
            if (workers[i] == -1) workers[i] = worker_takes(1);
            read_until(workers[i], "abc\"}");
        }
        for (unsigned i = 0; i < count; i++) reply(workers[i], "{\"x\":1}");
        for (unsigned i = 0; i < count; i++) read_ends(clients[i], "{\"x\":1}");
    }
    torture_pauses();
    return torture.asked;
}

TEST(nothing_is_asked_for_once_as_many_have_been_there) {
    enum { MOST = 60 }; /* fewer than the backlog of the worker */
    int clients[MOST], workers[MOST];
    world_begins(NULL);
    worker_starts(1);
    for (unsigned i = 0; i < MOST; i++) clients[i] = client();
    memset(workers, -1, sizeof workers);
    for (unsigned count = 1; count <= MOST; count *= MOST) {
        asked_for(clients, workers, count, 3);
        size_t asked = asked_for(clients, workers, count, 10);
        if (asked != 0) fail_msg("%zu allocations for %u requests, %u at once", asked, 10 * count, count);
    }
    for (unsigned i = 0; i < MOST; i++) leave(clients[i]);
    for (unsigned i = 0; i < MOST; i++) close(workers[i]);
    world_ends(NULL);
}

RUN(cmocka_unit_test(nothing_is_asked_for_once_as_many_have_been_there),
    cmocka_unit_test(a_body_of_json_and_an_answer), cmocka_unit_test(chunks_both_ways),
    cmocka_unit_test(an_answer_of_our_own), cmocka_unit_test(a_refusal))
