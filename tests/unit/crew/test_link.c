/* Main's end of the channel to the keeper: news that comes while a reply is waited for. */
#include "crew/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include "unit.h"

static unsigned heard[8];
static size_t heard_count;

static void on_news(void *ctx, struct pl_wire_message *m) {
    (void)ctx;
    assert_true(heard_count < 8);
    heard[heard_count++] = m->head.kind;
}

static void say(int keeper, enum pl_wire_kind kind, size_t length, uint32_t serial) {
    static struct pl_wire_message m;
    pl_wire_init(&m, kind, length, serial);
    assert_int_equal(pl_wire_send(keeper, &m), PL_WIRE_OK);
}

struct world {
    struct pl_link link;
    uv_loop_t loop;
    int keeper;
};

/* Main's end of the channel. */
static int begins(struct world *w) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    w->keeper = pair[1];
    return pair[0];
}

/* Main has asked, and listens now; the keeper had said what is in the socket before its answer, serial 1. */
static void listens(struct world *w, int main) {
    static struct pl_wire_message q, a;
    struct pl_err err;
    heard_count = 0;
    assert_int_equal(uv_loop_init(&w->loop), 0);
    pl_link_init(&w->link, main);
    pl_wire_init(&q, PL_WIRE_LIST, sizeof q.list, 0);
    assert_true(pl_link_ask(&w->link, &q, PL_WIRE_LIST_END, &a, &err));
    assert_true(pl_link_run(&w->link, &w->loop, on_news, NULL, &err));
    assert_int_equal(heard_count, 0);
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void ends(struct world *w) {
    close(w->keeper);
    while (w->link.running) uv_run(&w->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&w->link.poll, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    close(w->link.fd);
}

/* A worker that ends while main asks who is there: the news is about one that main has not made yet. */
TEST(news_that_came_before_main_listened_comes_with_the_first_turn_and_in_its_order) {
    static const unsigned expected[] = { PL_WIRE_EXITED, PL_WIRE_GONE, PL_WIRE_STUCK };
    struct world w;
    int main = begins(&w);
    say(w.keeper, PL_WIRE_EXITED, sizeof(struct pl_wire_exit), 0);
    say(w.keeper, PL_WIRE_GONE, sizeof(struct pl_wire_exit), 0);
    say(w.keeper, PL_WIRE_LIST_END, sizeof(struct pl_wire_head), 1);
    say(w.keeper, PL_WIRE_STUCK, sizeof(struct pl_wire_exit), 0);
    listens(&w, main);
    assert_int_equal(heard_count, 3);
    for (size_t i = 0; i < heard_count; i++) assert_int_equal(heard[i], expected[i]);
    uv_run(&w.loop, UV_RUN_NOWAIT); /* once */
    assert_int_equal(heard_count, 3);
    ends(&w);
}

/* The keeper says nothing more: what came early must not wait for that. */
TEST(news_that_came_early_waits_for_nothing_else) {
    struct world w;
    int main = begins(&w);
    say(w.keeper, PL_WIRE_EXITED, sizeof(struct pl_wire_exit), 0);
    say(w.keeper, PL_WIRE_LIST_END, sizeof(struct pl_wire_head), 1);
    listens(&w, main);
    assert_int_equal(heard_count, 1);
    ends(&w);
}

RUN(cmocka_unit_test(news_that_came_before_main_listened_comes_with_the_first_turn_and_in_its_order),
    cmocka_unit_test(news_that_came_early_waits_for_nothing_else))
