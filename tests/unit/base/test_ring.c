#include "base/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

/* Byte number `at` of everything ever written in these tests: a reader can tell whether what it got is what
 * it says. */
static uint8_t byte_at(uint64_t at) { return (uint8_t)(at * 31 + at / 251); }

struct pair {
    struct pl_ring writer;
    struct pl_ring reader;
    int fd;
    uint64_t read; /* bytes that the reader got */
};

static void open_pair(struct pair *p, size_t bytes) {
    memset(p, 0, sizeof *p);
    p->fd = pl_ring_create(&p->writer, "test-ring", bytes);
    assert_true(p->fd >= 0);
    assert_true(pl_ring_open(&p->reader, p->fd));
}

static void close_pair(struct pair *p) {
    pl_ring_close(&p->writer);
    pl_ring_close(&p->reader);
    close(p->fd);
}

static void write_bytes(struct pl_ring *r, size_t count) {
    static uint8_t text[PL_RING_CHUNK];
    uint64_t at = atomic_load(&r->head->head);
    for (size_t i = 0; i < count; i++) text[i] = byte_at(at + i);
    pl_ring_put(r, text, count);
}

/* Reads up to `cap` bytes, and each must be the one that belongs at its place. */
static size_t read_bytes(struct pair *p, size_t cap) {
    static uint8_t text[1 << 17];
    size_t n = pl_ring_read(&p->reader, text, cap);
    uint64_t end = atomic_load(&p->reader.head->seen);
    for (size_t i = 0; i < n; i++) assert_int_equal(text[i], byte_at(end - n + i));
    p->read += n;
    return n;
}

static void adds_up(const struct pair *p) {
    const struct pl_ring_head *h = p->reader.head;
    assert_true(atomic_load(&h->seen) == p->read + atomic_load(&h->lost));
}

TEST(what_is_written_is_read_in_order) {
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    assert_int_equal(read_bytes(&p, 100), 0);
    write_bytes(&p.writer, 1000);
    assert_int_equal(read_bytes(&p, 0), 0);
    assert_int_equal(read_bytes(&p, 300), 300);
    assert_int_equal(read_bytes(&p, 10000), 700);
    assert_int_equal(read_bytes(&p, 100), 0);
    assert_int_equal(atomic_load(&p.reader.head->lost), 0);
    close_pair(&p);
}

TEST(sizes_around_the_edges_wrap_without_a_wrong_byte) {
    static const size_t sizes[] = { 1, 2, 3, 63, 64, 65, 4095, 4096, 4097, PL_RING_CHUNK - 1, PL_RING_CHUNK };
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t written = 0; written < 3 * PL_RING_MIN; written += sizes[i]) {
            write_bytes(&p.writer, sizes[i]);
            assert_int_equal(read_bytes(&p, sizes[i] + 1), sizes[i]);
        }
    assert_int_equal(atomic_load(&p.reader.head->lost), 0);
    adds_up(&p);
    close_pair(&p);
}

TEST(a_slow_reader_gets_the_newest_bytes_and_the_rest_is_counted) {
    static const size_t chunks[] = { 1, 7, 100, 4096, PL_RING_CHUNK };
    static const size_t caps[] = { 1, 50, 5000, 1 << 17 };
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
        for (size_t r = 0; r < sizeof caps / sizeof *caps; r++) {
            struct pair p;
            open_pair(&p, PL_RING_MIN);
            for (uint64_t done = 0; done < 5 * PL_RING_MIN; done += chunks[c]) {
                write_bytes(&p.writer, chunks[c]);
                if (done % 997 == 0) read_bytes(&p, caps[r]);
            }
            while (read_bytes(&p, caps[r]) > 0) continue;
            adds_up(&p);
            assert_true(atomic_load(&p.reader.head->seen) == atomic_load(&p.writer.head->head));
            close_pair(&p);
        }
}

TEST(a_ring_that_was_lapped_is_read_full_once) {
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    for (int i = 0; i < 10; i++) write_bytes(&p.writer, PL_RING_CHUNK);
    assert_int_equal(read_bytes(&p, 1 << 17), PL_RING_MIN);
    assert_int_equal(atomic_load(&p.reader.head->lost), 10 * PL_RING_CHUNK - PL_RING_MIN);
    adds_up(&p);
    close_pair(&p);
}

TEST(bytes_under_a_claim_are_not_given_out) {
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    for (int i = 0; i < 4; i++) write_bytes(&p.writer, PL_RING_CHUNK);
    /* The writer has said that it will overwrite the oldest 5,000 bytes, and has not done so yet. */
    atomic_store(&p.writer.head->claim, PL_RING_MIN + 5000);
    assert_int_equal(read_bytes(&p, 1 << 17), PL_RING_MIN - 5000);
    assert_int_equal(atomic_load(&p.reader.head->lost), 5000);
    adds_up(&p);
    close_pair(&p);
}

/* A reader that comes to a lapped ring and is killed after `steps` instructions. False: it was through before
 * that. */
static bool killed_after(struct pair *p, int steps) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        uint8_t text[64];
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1) _exit(1);
        raise(SIGSTOP);
        pl_ring_read(&p->reader, text, sizeof text);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int i = 0; i < steps && WIFSTOPPED(status); i++) {
        ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    if (!WIFSTOPPED(status)) {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return false;
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return true;
}

static bool may_trace(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Whatever the killed one had done, the next reader must arrive at the one right sum of lost bytes.
 * Instruction by instruction, from where the loss is first written down to where the place of the reader is
 * final. */
TEST(a_reader_killed_at_any_instruction_counts_a_loss_once) {
    enum { LOST = 5 * PL_RING_CHUNK + 1000 - PL_RING_MIN - 100, STRIDE = 25 };
    bool begun = false;
    bool final = false;
    if (!may_trace()) skip();
    for (int steps = 0; !final; steps += begun ? 1 : STRIDE) {
        struct pair p;
        open_pair(&p, PL_RING_MIN);
        write_bytes(&p.writer, 1000);
        assert_int_equal(read_bytes(&p, 100), 100);
        for (int i = 0; i < 5; i++) write_bytes(&p.writer, PL_RING_CHUNK);
        final = !killed_after(&p, steps);
        struct pl_ring_head *h = p.reader.head;
        final = final || atomic_load(&h->seen) > LOST + 100;
        if (atomic_load(&h->lost_after) != 0 && !begun) { /* go over the last stride again, one by one */
            begun = true;
            final = false;
            steps -= STRIDE < steps ? STRIDE : steps;
        }
        while (read_bytes(&p, 5000) > 0) continue;
        assert_int_equal(atomic_load(&h->lost), LOST);
        assert_true(atomic_load(&h->seen) == atomic_load(&h->head));
        close_pair(&p);
    }
    assert_true(begun);
}

/* Another process writes as fast as it can: what is torn must be noticed. */
TEST(a_writer_in_another_process_never_gives_a_wrong_byte) {
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 4000; i++) write_bytes(&p.writer, (size_t)(1 + i * 7919 % PL_RING_CHUNK));
        atomic_store(&p.writer.head->closed, 1);
        _exit(0);
    }
    while (atomic_load(&p.reader.head->closed) == 0) read_bytes(&p, 1 << 17);
    while (read_bytes(&p, 1 << 17) > 0) continue;
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    adds_up(&p);
    assert_true(p.read > 0 && atomic_load(&p.reader.head->seen) == atomic_load(&p.reader.head->head));
    close_pair(&p);
}

TEST(a_pipe_is_moved_into_the_ring_whole) {
    struct pair p;
    int ends[2];
    open_pair(&p, PL_RING_MIN);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(pl_ring_fill(&p.writer, ends[0]), -1);
    assert_int_equal(errno, EAGAIN);
    uint64_t sent = 0;
    for (int round = 0; round < 40; round++) {
        uint8_t text[5000];
        for (size_t i = 0; i < sizeof text; i++) text[i] = byte_at(sent + i);
        assert_int_equal(write(ends[1], text, sizeof text), sizeof text);
        sent += sizeof text;
        assert_int_equal(pl_ring_fill(&p.writer, ends[0]), sizeof text);
        assert_int_equal(read_bytes(&p, 1 << 17), sizeof text);
    }
    close(ends[1]);
    assert_int_equal(pl_ring_fill(&p.writer, ends[0]), 0);
    close(ends[0]);
    adds_up(&p);
    close_pair(&p);
}

TEST(a_message_that_is_too_long_for_one_claim_is_cut) {
    struct pair p;
    open_pair(&p, PL_RING_MIN);
    uint8_t *text = calloc(1, 2 * PL_RING_CHUNK);
    pl_ring_put(&p.writer, text, 2 * PL_RING_CHUNK);
    assert_int_equal(atomic_load(&p.writer.head->head), PL_RING_CHUNK);
    free(text);
    close_pair(&p);
}

TEST(only_powers_of_two_from_64_kib_are_rings) {
    static const size_t bad[] = { 0, 1, 4096, PL_RING_MIN - 1, PL_RING_MIN + 1, 70000, 3 * PL_RING_MIN };
    struct pl_ring r = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        assert_int_equal(pl_ring_create(&r, "x", bad[i]), -1);
        assert_int_equal(errno, EINVAL);
        int fd = pl_memfd_create("x", PL_RING_DATA_AT + bad[i]);
        assert_false(pl_ring_open(&r, fd));
        close(fd);
    }
}

TEST(what_is_no_ring_is_not_opened) {
    struct pl_ring r = { 0 };
    int fd = pl_memfd_create("x", PL_RING_DATA_AT + PL_RING_MIN); /* all zeros */
    assert_false(pl_ring_open(&r, fd));
    struct pl_ring_head head = { .magic = PL_RING_MAGIC, .version = 1, .size = 2 * PL_RING_MIN };
    assert_int_equal(pwrite(fd, &head, 64, 0), 64);
    assert_false(pl_ring_open(&r, fd));
    assert_null(r.head);
    close(fd);
    assert_false(pl_ring_open(&r, -1));
}

TEST(a_memfd_keeps_its_size_and_its_seals) {
    int fd = pl_memfd_create("x", 8192);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 10000), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(fd, "y", 1, 8191), 1);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
}

TEST(a_memfd_of_a_content_can_be_read_and_nothing_else) {
    static const char text[] = "accepted configuration";
    char back[sizeof text];
    int fd = pl_memfd_of("x", text, sizeof text);
    assert_int_equal(pread(fd, back, sizeof back, 0), sizeof text);
    assert_memory_equal(back, text, sizeof text);
    assert_int_equal(pwrite(fd, "y", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    fd = pl_memfd_of("empty", "", 0);
    assert_true(fd >= 0);
    close(fd);
}

RUN(cmocka_unit_test(what_is_written_is_read_in_order),
    cmocka_unit_test(sizes_around_the_edges_wrap_without_a_wrong_byte),
    cmocka_unit_test(a_slow_reader_gets_the_newest_bytes_and_the_rest_is_counted),
    cmocka_unit_test(a_ring_that_was_lapped_is_read_full_once),
    cmocka_unit_test(bytes_under_a_claim_are_not_given_out),
    cmocka_unit_test(a_reader_killed_at_any_instruction_counts_a_loss_once),
    cmocka_unit_test(a_writer_in_another_process_never_gives_a_wrong_byte),
    cmocka_unit_test(a_pipe_is_moved_into_the_ring_whole),
    cmocka_unit_test(a_message_that_is_too_long_for_one_claim_is_cut),
    cmocka_unit_test(only_powers_of_two_from_64_kib_are_rings),
    cmocka_unit_test(what_is_no_ring_is_not_opened), cmocka_unit_test(a_memfd_keeps_its_size_and_its_seals),
    cmocka_unit_test(a_memfd_of_a_content_can_be_read_and_nothing_else))
