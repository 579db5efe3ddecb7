#include "base/wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

static int pair[2];
static struct pl_wire_message in, out;

static int open_pair(void **state) {
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair);
}

static int close_pair(void **state) {
    (void)state;
    close(pair[0]);
    if (pair[1] != -1) close(pair[1]);
    return 0;
}

static int open_descriptors(void) {
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d) != NULL) count++;
    closedir(d);
    return count;
}

/* Any bytes with any number of descriptors, past all checks of pl_wire_send. */
static void send_raw(const void *bytes, size_t count, int fds) {
    union {
        char space[CMSG_SPACE(16 * sizeof(int))];
        struct cmsghdr align;
    } side = { { 0 } };
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = count };
    struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 };
    if (fds > 0) {
        head.msg_control = side.space;
        head.msg_controllen = CMSG_SPACE((size_t)fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&head);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fds * sizeof(int));
        for (int i = 0; i < fds; i++) memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
    }
    assert_int_equal(sendmsg(pair[0], &head, 0), (ssize_t)count);
}

TEST(every_kind_goes_through_with_its_serial) {
    static const enum pl_wire_kind kinds[] = {
#define X(name, value, least) PL_WIRE_##name,
        PL_WIRE_KINDS(X)
#undef X
    };
    static const size_t leasts[] = {
#define X(name, value, least) least,
        PL_WIRE_KINDS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pl_wire_init(&out, kinds[i], leasts[i], (uint32_t)i + 1);
        assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
        assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
        assert_int_equal(in.head.kind, kinds[i]);
        assert_int_equal(in.head.serial, i + 1);
        assert_int_equal(in.head.length, leasts[i]);
        assert_string_not_equal(pl_wire_kind_name(kinds[i]), "unknown");
        /* one byte less is not that message */
        if (leasts[i] == sizeof(struct pl_wire_head)) continue;
        pl_wire_init(&out, kinds[i], leasts[i] - 1, 1);
        assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
        assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_BAD);
    }
    assert_string_equal(pl_wire_kind_name(3), "SPAWN");
    assert_string_equal(pl_wire_kind_name(999), "unknown");
}

TEST(the_layout_is_the_one_that_was_agreed) {
    static const struct {
        size_t is, agreed;
    } sizes[] = {
        { sizeof(struct pl_wire_head), 16 },          { sizeof(struct pl_wire_hello), 56 },
        { sizeof(struct pl_wire_list), 32 },          { sizeof(struct pl_wire_spawn), 160 },
        { sizeof(struct pl_wire_signal), 32 },        { offsetof(struct pl_wire_note, note), 32 },
        { sizeof(struct pl_wire_hold), 56 },          { sizeof(struct pl_wire_forget), 24 },
        { offsetof(struct pl_wire_bye, words), 24 },  { sizeof(struct pl_wire_tell), 336 },
        { sizeof(struct pl_wire_welcome), 64 },       { sizeof(struct pl_wire_spawned), 32 },
        { sizeof(struct pl_wire_exit), 88 },          { sizeof(struct pl_wire_refused), 24 },
        { offsetof(struct pl_wire_item, note), 200 }, { offsetof(struct pl_wire_upgraded, words), 24 },
        { sizeof(struct pl_wire_upgrade), 24 },       { sizeof(struct pl_wire_main_exited), 24 },
        { sizeof(struct pl_wire_stop), 24 },          { sizeof(struct pl_wire_beat), 16 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_int_equal(sizes[i].is, sizes[i].agreed);
}

TEST(a_short_message_is_completed_with_zeros) {
    memset(in.bytes, 0xee, sizeof in.bytes);
    pl_wire_init(&out, PL_WIRE_NOTE, offsetof(struct pl_wire_note, note), 9);
    out.note.generation = 7;
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
    assert_int_equal(in.note.generation, 7);
    for (size_t i = in.head.length; i < sizeof in.bytes; i++) assert_int_equal(in.bytes[i], 0);
}

TEST(a_longer_message_is_read_as_far_as_it_is_known) {
    pl_wire_init(&out, PL_WIRE_BYE, sizeof out.bye + 100, 9);
    out.bye.status = 6;
    memset(out.bytes + sizeof out.bye, 0x55, 100);
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
    assert_int_equal(in.bye.status, 6);
    assert_int_equal(in.head.length, sizeof in.bye + 100);
}

TEST(the_largest_message_goes_through_and_a_larger_one_does_not) {
    pl_wire_init(&out, PL_WIRE_NOTE, PL_WIRE_MAX_BYTES, 1);
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
    out.head.length = PL_WIRE_MAX_BYTES + 1;
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_BAD);
    static uint8_t large[PL_WIRE_MAX_BYTES + 1];
    memcpy(large, out.bytes, sizeof out.head);
    send_raw(large, sizeof large, 1);
    int before = open_descriptors();
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_BAD);
    assert_int_equal(open_descriptors(), before);
}

TEST(foreign_bytes_are_bad_and_the_next_message_is_read) {
    static const struct {
        uint32_t magic;
        uint16_t kind;
        uint32_t length;
        size_t sent;
    } rows[] = {
        { PL_WIRE_MAGIC + 1, PL_WIRE_TAKE, 16, 16 },
        { 0, PL_WIRE_TAKE, 16, 16 },
        { PL_WIRE_MAGIC, 0, 16, 16 },
        { PL_WIRE_MAGIC, 999, 16, 16 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 15, 16 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 17, 16 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 0, 16 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 15, 15 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 1, 1 },
        { PL_WIRE_MAGIC, PL_WIRE_SPAWN, 16, 16 },
        { PL_WIRE_MAGIC, PL_WIRE_TAKE, 0, 0 },
    };
    int before = open_descriptors();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int fds = 0; fds <= PL_WIRE_MAX_FDS; fds += PL_WIRE_MAX_FDS) {
            struct pl_wire_head head = { rows[i].magic, PL_WIRE_VERSION, rows[i].kind, rows[i].length, 1 };
            send_raw(&head, rows[i].sent, fds);
            assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_BAD);
            assert_int_equal(in.fd_count, 0);
            assert_int_equal(open_descriptors(), before);
        }
    pl_wire_init(&out, PL_WIRE_TAKE, sizeof out.head, 1);
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
}

TEST(descriptors_arrive_and_close_at_exec) {
    struct stat sent, got;
    int before = open_descriptors();
    for (unsigned count = 0; count <= PL_WIRE_MAX_FDS; count++) {
        pl_wire_init(&out, PL_WIRE_SPAWN, sizeof out.spawn, 1);
        for (unsigned i = 0; i < count; i++) out.fds[out.fd_count++] = i % 2 == 0 ? pair[0] : pair[1];
        assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK);
        assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_OK);
        assert_int_equal(in.fd_count, count);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(fstat(in.fds[i], &got), 0);
            assert_int_equal(fstat(out.fds[i], &sent), 0);
            assert_int_equal(got.st_ino, sent.st_ino);
            assert_true((fcntl(in.fds[i], F_GETFD) & FD_CLOEXEC) != 0);
        }
        pl_wire_close_fds(&in);
        assert_int_equal(in.fd_count, 0);
        assert_int_equal(open_descriptors(), before);
    }
    out.fd_count = PL_WIRE_MAX_FDS + 1;
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_BAD);
}

TEST(too_many_descriptors_are_bad_and_none_stays_open) {
    int before = open_descriptors();
    for (int fds = PL_WIRE_MAX_FDS + 1; fds <= 16; fds++) {
        pl_wire_init(&out, PL_WIRE_TAKE, sizeof out.head, 1);
        send_raw(out.bytes, sizeof out.head, fds);
        assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_BAD);
        assert_int_equal(in.fd_count, 0);
        assert_int_equal(open_descriptors(), before);
    }
}

TEST(a_full_socket_says_again_and_loses_nothing) {
    uint32_t sent = 0;
    uint32_t got = 0;
    assert_int_equal(pl_wire_receive(pair[1], &in), PL_WIRE_AGAIN);
    do {
        pl_wire_init(&out, PL_WIRE_NOTE, sizeof out.note, sent + 1);
        sent++;
    } while (pl_wire_send(pair[0], &out) == PL_WIRE_OK);
    while (pl_wire_receive(pair[1], &in) == PL_WIRE_OK) {
        got++;
        assert_int_equal(in.head.serial, got);
    }
    assert_int_equal(got, sent - 1);
}

TEST(the_end_comes_after_what_was_said) {
    pl_wire_init(&out, PL_WIRE_BYE, sizeof out.bye, 1);
    assert_int_equal(pl_wire_send(pair[1], &out), PL_WIRE_OK);
    close(pair[1]);
    pair[1] = -1;
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_CLOSED);
    assert_int_equal(pl_wire_receive(pair[0], &in), PL_WIRE_OK);
    assert_int_equal(pl_wire_receive(pair[0], &in), PL_WIRE_CLOSED);
    assert_int_equal(pl_wire_receive(pair[0], &in), PL_WIRE_CLOSED);
}

#define WITH_PAIR(f) cmocka_unit_test_setup_teardown(f, open_pair, close_pair)
TEST(last_words_are_heard_of_one_who_had_not_read_all_that_was_said_to_it) {
    pl_wire_init(&out, PL_WIRE_STOP, sizeof out.stop, 0);
    assert_int_equal(pl_wire_send(pair[0], &out), PL_WIRE_OK); /* never read */
    pl_wire_init(&out, PL_WIRE_BYE, sizeof out.bye, 7);
    out.bye.status = 6;
    assert_int_equal(pl_wire_send(pair[1], &out), PL_WIRE_OK);
    close(pair[1]);
    pair[1] = -1;
    assert_int_equal(pl_wire_receive(pair[0], &in), PL_WIRE_OK);
    assert_int_equal(in.head.kind, PL_WIRE_BYE);
    assert_int_equal(in.bye.status, 6);
    assert_int_equal(pl_wire_receive(pair[0], &in), PL_WIRE_CLOSED);
}

RUN(WITH_PAIR(last_words_are_heard_of_one_who_had_not_read_all_that_was_said_to_it),
    WITH_PAIR(every_kind_goes_through_with_its_serial), WITH_PAIR(the_layout_is_the_one_that_was_agreed),
    WITH_PAIR(a_short_message_is_completed_with_zeros),
    WITH_PAIR(a_longer_message_is_read_as_far_as_it_is_known),
    WITH_PAIR(the_largest_message_goes_through_and_a_larger_one_does_not),
    WITH_PAIR(foreign_bytes_are_bad_and_the_next_message_is_read),
    WITH_PAIR(descriptors_arrive_and_close_at_exec),
    WITH_PAIR(too_many_descriptors_are_bad_and_none_stays_open),
    WITH_PAIR(a_full_socket_says_again_and_loses_nothing), WITH_PAIR(the_end_comes_after_what_was_said))
