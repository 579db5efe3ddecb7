#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/keeper.h"
#include "unit.h"

/* A keeper that has no processes: the test is its main, and says with `pid` that one lives. */
static struct pl_keeper keeper;
static struct pl_keeper *const k = &keeper;
static struct pl_main *const m = &keeper.mains[0];
static int ours; /* main's end of the channel */
static struct pl_wire_message out, in;

static int start(void **state) {
    (void)state;
    int pair[2];
    memset(k, 0, sizeof *k);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == -1) return -1;
    ours = pair[0];
    m->pid = 1;
    m->id = 1;
    m->role = PL_ROLE_HELM;
    m->channel = pair[1];
    m->greeted = true;
    k->now_ms = 1000000;
    k->set.stop_ms = 1000;
    return 0;
}

static int finish(void **state) {
    (void)state;
    if (m->channel != -1) close(m->channel);
    if (m->has_reply) pl_wire_close_fds(&m->reply);
    for (int i = 0; i < PL_KEEPER_HELD; i++)
        if (k->held[i].ordinal != 0) close(k->held[i].fd);
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (k->generations[i].exit.state != PL_GEN_FREE) pl_keeper_forget(&k->generations[i]);
    close(ours);
    return 0;
}

/* A generation as if it had been spawned. */
static struct pl_generation *have(uint64_t number, enum pl_generation_state state) {
    struct pl_generation *g = &k->generations[number % PL_KEEPER_GENERATIONS];
    if (g->exit.state != PL_GEN_FREE) pl_keeper_forget(g);
    g->output_fd = g->report_fd = g->listener_fd = g->orders_fd = -1;
    g->forking.recipe_fd = g->forking.control_fd = g->forking.output_fd = -1;
    g->exit.generation = number;
    g->exit.state = state;
    g->page_fd = pl_memfd_create("page", 4096);
    g->ring_fd = pl_memfd_create("ring", 4096);
    g->started_ms = k->now_ms - 5;
    snprintf(g->order.name, sizeof g->order.name, "worker/%u", (unsigned)number);
    return g;
}

static void ask(enum pl_wire_kind kind, size_t length) {
    static uint32_t serial;
    out.head =
        (struct pl_wire_head){ PL_WIRE_MAGIC, PL_WIRE_VERSION, (uint16_t)kind, (uint32_t)length, ++serial };
    assert_int_equal(pl_wire_send(ours, &out), PL_WIRE_OK);
    out.fd_count = 0;
    pl_keeper_serve(k, m);
}

/* The next message; 0 if there is none. */
static unsigned answer(void) {
    pl_wire_close_fds(&in);
    return pl_wire_receive(ours, &in) == PL_WIRE_OK ? in.head.kind : 0;
}

static int refusal(void) {
    assert_int_equal(answer(), PL_WIRE_REFUSED);
    assert_int_equal(in.head.serial, out.head.serial);
    return (int)in.refused.error;
}

static unsigned list(enum pl_wire_what what, uint64_t after) {
    memset(out.bytes, 0, sizeof out.list);
    out.list.what = what;
    out.list.after = after;
    ask(PL_WIRE_LIST, sizeof out.list);
    return answer();
}

static void hold(const char *name, int fd) {
    memset(out.bytes, 0, sizeof out.hold);
    strncpy(out.hold.name, name, sizeof out.hold.name - 1);
    if (fd != -1) out.fds[out.fd_count++] = fd;
    ask(PL_WIRE_HOLD, sizeof out.hold);
}

TEST(the_walk_visits_every_generation_once_in_order) {
    static const uint64_t numbers[] = { 70, 3, 64, 5 };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) have(numbers[i], PL_GEN_RUNNING);
    static const uint64_t sorted[] = { 3, 5, 64, 70 };
    uint64_t after = 0;
    for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++) {
        assert_int_equal(list(PL_LIST_GENERATIONS, after), PL_WIRE_ITEM);
        assert_int_equal(in.item.generation, sorted[i]);
        assert_int_equal(in.item.age_ms, 5);
        assert_int_equal(in.fd_count, 2);
        after = in.item.generation;
    }
    assert_int_equal(list(PL_LIST_GENERATIONS, after), PL_WIRE_LIST_END);
    assert_int_equal(in.fd_count, 0);
}

TEST(a_note_of_any_size_comes_back_as_it_was) {
    static const uint32_t sizes[] = { PL_WIRE_NOTE_BYTES, 1, 0, 100 };
    struct pl_generation *g = have(9, PL_GEN_RUNNING);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(out.bytes, (int)i + 1, sizeof out.note);
        out.note.generation = 9;
        out.note.note_bytes = sizes[i];
        ask(PL_WIRE_NOTE, offsetof(struct pl_wire_note, note) + sizes[i]);
        assert_int_equal(answer(), PL_WIRE_DONE);
        assert_int_equal(g->note_bytes, sizes[i]);
        assert_int_equal(list(PL_LIST_GENERATIONS, 0), PL_WIRE_ITEM);
        assert_int_equal(in.item.note_bytes, sizes[i]);
        assert_int_equal(in.head.length, offsetof(struct pl_wire_item, note) + sizes[i]);
        for (uint32_t b = 0; b < sizes[i]; b++) assert_int_equal(in.item.note[b], i + 1);
    }
}

TEST(a_held_name_is_kept_replaced_and_let_go) {
    int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hold("board", first);
    assert_int_equal(answer(), PL_WIRE_DONE);
    hold("listen:0", first);
    assert_int_equal(answer(), PL_WIRE_DONE);
    assert_int_equal(list(PL_LIST_HELD, 0), PL_WIRE_HELD);
    assert_string_equal(in.hold.name, "board");
    assert_int_equal(list(PL_LIST_HELD, in.hold.ordinal), PL_WIRE_HELD);
    assert_string_equal(in.hold.name, "listen:0");
    assert_int_equal(list(PL_LIST_HELD, in.hold.ordinal), PL_WIRE_LIST_END);
    hold("board", first); /* again: one entry, now the last */
    assert_int_equal(answer(), PL_WIRE_DONE);
    assert_int_equal(list(PL_LIST_HELD, 0), PL_WIRE_HELD);
    assert_string_equal(in.hold.name, "listen:0");
    hold("board", -1);
    assert_int_equal(answer(), PL_WIRE_DONE);
    hold("board", -1);
    assert_int_equal(refusal(), ENOENT);
    close(first);
}

TEST(only_the_helm_gives_orders_and_anybody_may_ask) {
    static const struct {
        enum pl_wire_kind kind;
        size_t length;
    } orders[] = { { PL_WIRE_SPAWN, sizeof out.spawn },    { PL_WIRE_SIGNAL, sizeof out.signal },
                   { PL_WIRE_NOTE, sizeof out.note },      { PL_WIRE_HOLD, sizeof out.hold },
                   { PL_WIRE_FORGET, sizeof out.forget },  { PL_WIRE_UPGRADE, sizeof out.head },
                   { PL_WIRE_STOOD_DOWN, sizeof out.head } };
    static const enum pl_wire_role roles[] = { PL_ROLE_CANDIDATE, PL_ROLE_LEAVING };
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++) {
        m->role = roles[r];
        for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
            memset(out.bytes, 0, sizeof out.bytes);
            ask(orders[i].kind, orders[i].length);
            assert_int_equal(refusal(), EPERM);
        }
        assert_int_equal(list(PL_LIST_HELD, 0), PL_WIRE_LIST_END);
    }
}

TEST(nothing_but_hello_is_answered_before_hello) {
    m->greeted = false;
    assert_int_equal(list(PL_LIST_HELD, 0), PL_WIRE_REFUSED);
    assert_int_equal(in.refused.error, EPROTO);
    memset(out.bytes, 0, sizeof out.hello);
    out.hello.oldest = PL_WIRE_VERSION + 1;
    out.hello.newest = PL_WIRE_VERSION + 2;
    ask(PL_WIRE_HELLO, sizeof out.hello);
    assert_int_equal(refusal(), EPROTONOSUPPORT);
    assert_false(m->greeted);
}

TEST(one_that_is_not_welcome_may_say_why_it_goes) {
    m->greeted = false;
    m->role = PL_ROLE_CANDIDATE;
    memset(out.bytes, 0, sizeof out.bye);
    snprintf(out.bye.words, sizeof out.bye.words, "too old for us");
    ask(PL_WIRE_BYE, sizeof out.bye);
    assert_int_equal(answer(), PL_WIRE_DONE);
    assert_string_equal(k->upgraded.words, "too old for us");
}

TEST(forget_wants_a_generation_that_is_gone) {
    static const struct {
        enum pl_generation_state state;
        int error;
    } rows[] = {
        { PL_GEN_SPAWNING, EBUSY }, { PL_GEN_RUNNING, EBUSY }, { PL_GEN_EXITED, EBUSY }, { PL_GEN_GONE, 0 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        have(5, rows[i].state);
        memset(out.bytes, 0, sizeof out.forget);
        out.forget.generation = 5;
        ask(PL_WIRE_FORGET, sizeof out.forget);
        if (rows[i].error == 0) {
            assert_int_equal(answer(), PL_WIRE_DONE);
            assert_null(pl_keeper_find(k, 5));
        } else {
            assert_int_equal(refusal(), rows[i].error);
        }
    }
}

TEST(bye_of_the_helm_is_the_status_and_bye_of_another_is_not) {
    m->role = PL_ROLE_LEAVING;
    memset(out.bytes, 0, sizeof out.bye);
    out.bye.status = 9;
    ask(PL_WIRE_BYE, sizeof out.bye);
    assert_int_equal(answer(), PL_WIRE_DONE);
    assert_int_equal(k->exit_status, 0);
    m->role = PL_ROLE_HELM;
    ask(PL_WIRE_BYE, sizeof out.bye);
    assert_int_equal(answer(), PL_WIRE_DONE);
    assert_int_equal(k->exit_status, 9);
    assert_int_equal(m->leave_by_ms, k->now_ms + 1000);
    k->stop = PL_STOP_OWN; /* 70 stays 70 */
    k->exit_status = 70;
    ask(PL_WIRE_BYE, sizeof out.bye);
    assert_int_equal(k->exit_status, 70);
}

TEST(news_is_told_once_in_the_order_of_a_life) {
    struct pl_generation *g = have(5, PL_GEN_GONE);
    g->news[0] = PL_NEWS_GONE | PL_NEWS_RUNNING | PL_NEWS_EXITED | PL_NEWS_STUCK | PL_NEWS_WITHDRAWN;
    m->news = PL_NEWS_STOP;
    k->stop_by_ms = k->now_ms + 700;
    m->greeted = false;
    pl_keeper_send_news(k, m);
    assert_int_equal(answer(), 0);
    m->greeted = true;
    pl_keeper_send_news(k, m);
    assert_int_equal(answer(), PL_WIRE_STOP);
    assert_int_equal(in.stop.deadline_ms, 700);
    static const unsigned kinds[] = { PL_WIRE_RUNNING, PL_WIRE_WITHDRAWN, PL_WIRE_STUCK, PL_WIRE_EXITED,
                                      PL_WIRE_GONE };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_int_equal(answer(), kinds[i]);
        assert_int_equal(in.exit.generation, 5);
        assert_int_equal(in.exit.state, PL_GEN_GONE);
        assert_int_equal(in.head.serial, 0);
    }
    pl_keeper_send_news(k, m);
    assert_int_equal(answer(), 0);
}

TEST(a_full_socket_keeps_one_reply_reads_no_more_and_loses_nothing) {
    struct pl_generation *g = have(5, PL_GEN_RUNNING);
    uint32_t asked = 0;
    g->note_bytes = PL_WIRE_NOTE_BYTES;
    memset(out.bytes, 0, sizeof out.list);
    while (!m->has_reply) {
        ask(PL_WIRE_LIST, sizeof out.list);
        asked++;
        assert_true(asked < 100000);
    }
    uint32_t last = out.head.serial;
    assert_true(m->blocked);
    g->news[0] = PL_NEWS_EXITED;
    for (int i = 0; i < 3; i++) { /* three more wait in the socket */
        ask(PL_WIRE_LIST, sizeof out.list);
        pl_keeper_send_news(k, m);
        assert_int_equal(m->reply.head.serial, last);
    }
    assert_true(m->blocked);
    uint32_t got = 0;
    for (uint32_t wanted = last - asked + 1; got < asked + 3;) {
        while (answer() == PL_WIRE_ITEM) {
            assert_int_equal(in.head.serial, wanted);
            assert_int_equal(in.fd_count, 2);
            wanted++;
            got++;
        }
        m->blocked = false; /* as the loop does when there is room */
        pl_keeper_serve(k, m);
    }
    pl_keeper_send_news(k, m);
    assert_int_equal(answer(), PL_WIRE_EXITED);
}

TEST(a_closed_channel_is_closed_here_too) {
    hold("x", -1);
    shutdown(ours, SHUT_RDWR);
    pl_keeper_serve(k, m);
    assert_int_equal(m->channel, -1);
    pl_keeper_serve(k, m);
    pl_keeper_send_news(k, m);
}

TEST(spawn_is_refused_before_anything_is_made) {
    static const struct {
        uint32_t flags, page, ring, stop_signal;
        const char *name, *socket_name;
    } rows[] = {
        { 0, 63, 65536, 15, "a", "" },
        { 0, (16 << 20) + 1, 65536, 15, "a", "" },
        { 0, 4096, 65535, 15, "a", "" },
        { 0, 4096, 32768, 15, "a", "" },
        { 0, 4096, 1 << 25, 15, "a", "" },
        { 0, 4096, 65536, 0, "a", "" },
        { 0, 4096, 65536, 65, "a", "" },
        { 0, 4096, 65536, 15, "a", "../x" },
        { 0, 4096, 65536, 15, "a", "w/../x" },
        { PL_SPAWN_LISTENER, 4096, 65536, 15, "a", "" },
        { PL_SPAWN_CONTROL, 4096, 65536, 15, "a", "" },
        { 0, 4096, 65536, 15, "01234567890123456789012345678901", "" },
        { 0, 4096, 65536, 15, "a", "01234567890123456789012345678901" },
    };
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(out.bytes, 0, sizeof out.spawn);
        out.spawn.flags = rows[i].flags;
        out.spawn.page_bytes = rows[i].page;
        out.spawn.ring_bytes = rows[i].ring;
        out.spawn.stop_signal = rows[i].stop_signal;
        memcpy(out.spawn.name, rows[i].name, strlen(rows[i].name));
        memcpy(out.spawn.socket_name, rows[i].socket_name, strlen(rows[i].socket_name));
        out.fds[out.fd_count++] = nothing;
        ask(PL_WIRE_SPAWN, sizeof out.spawn);
        assert_int_equal(refusal(), EINVAL);
    }
    assert_int_equal(k->last_generation, 0);
    k->stop = PL_STOP_OWN;
    out.fds[out.fd_count++] = nothing;
    ask(PL_WIRE_SPAWN, sizeof out.spawn);
    assert_int_equal(refusal(), ESHUTDOWN);
    close(nothing);
}

#define WITH_CHANNEL(f) cmocka_unit_test_setup_teardown(f, start, finish)
RUN(WITH_CHANNEL(the_walk_visits_every_generation_once_in_order),
    WITH_CHANNEL(a_note_of_any_size_comes_back_as_it_was),
    WITH_CHANNEL(a_held_name_is_kept_replaced_and_let_go),
    WITH_CHANNEL(only_the_helm_gives_orders_and_anybody_may_ask),
    WITH_CHANNEL(nothing_but_hello_is_answered_before_hello),
    WITH_CHANNEL(one_that_is_not_welcome_may_say_why_it_goes),
    WITH_CHANNEL(forget_wants_a_generation_that_is_gone),
    WITH_CHANNEL(bye_of_the_helm_is_the_status_and_bye_of_another_is_not),
    WITH_CHANNEL(news_is_told_once_in_the_order_of_a_life),
    WITH_CHANNEL(a_full_socket_keeps_one_reply_reads_no_more_and_loses_nothing),
    WITH_CHANNEL(a_closed_channel_is_closed_here_too), WITH_CHANNEL(spawn_is_refused_before_anything_is_made))
