/* A program beside the loop: what it says, how it ends, and that nobody waits for one that does not. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/errand.h"
#include "unit.h"

static uv_loop_t loop;

struct heard {
    int times;
    enum pl_errand_end end;
    int64_t status;
    char said[64];
};

static void on_done(void *ctx, struct pl_errand_result *r) {
    struct heard *h = ctx;
    h->times++;
    h->end = r->end;
    h->status = r->status;
    snprintf(h->said, sizeof h->said, "%s", pl_buf_text(r->said));
}

static struct pl_errand *begin(const char *script, struct heard *h, uint64_t limit_ms, int fd) {
    char *argv[] = { (char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)script,
                     NULL };
    struct pl_err err;
    const struct pl_errand_order o = { .loop = &loop,
                                       .argv = argv,
                                       .fd = fd,
                                       .bytes_most = 32,
                                       .limit_ms = limit_ms,
                                       .done = on_done,
                                       .ctx = h };
    memset(h, 0, sizeof *h);
    return pl_errand_start(&o, &err);
}

/* No child, so no zombie. */
static bool nothing_is_left(const struct heard *h) {
    siginfo_t info;
    (void)h;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == -1; /* the reaping is libuv's */
}

static void on_turn(uv_timer_t *t) { (void)t; }

/* The errand does not keep the loop: this does, a turn every 10 ms. */
static void until(bool (*over)(const struct heard *h), const struct heard *h) {
    uv_timer_t alive;
    uv_timer_init(&loop, &alive);
    uv_timer_start(&alive, on_turn, 10, 10);
    while (!over(h)) uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&alive, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
}

static bool is_heard(const struct heard *h) { return h->times > 0; }
static void until_heard(const struct heard *h) { until(is_heard, h); }

TEST(what_it_says_and_how_it_ends_is_told_once) {
    static const struct {
        const char *script;
        enum pl_errand_end end;
        int64_t status;
        const char *said;
    } rows[] = {
        { "printf abc", PL_ERRAND_EXITED, 0, "abc" },
        { "printf a; exec 1>&-; exit 7", PL_ERRAND_EXITED, 7, "a" },
        { "exit 2", PL_ERRAND_EXITED, 2, "" },
        { "echo to nobody >&2; printf %s \"$HOME$SECRET\"", PL_ERRAND_EXITED, 0, "" },
        { "if read x; then echo input; fi", PL_ERRAND_EXITED, 0, "" },
        { "printf abc; kill -TERM $$", PL_ERRAND_KILLED, 0, "" },
        { "printf %s 0123456789012345678901234567890123456789", PL_ERRAND_TOO_MUCH, 0, "" },
    };
    setenv("SECRET", "it", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct heard h;
        assert_non_null(begin(rows[i].script, &h, 100000, 0));
        assert_int_equal(h.times, 0);
        until_heard(&h);
        assert_int_equal(h.times, 1);
        assert_int_equal(h.end, rows[i].end);
        if (h.end == PL_ERRAND_EXITED) assert_int_equal(h.status, rows[i].status);
        assert_string_equal(h.said, rows[i].said);
        assert_true(nothing_is_left(&h));
    }
}

TEST(its_third_descriptor_is_ours) {
    struct heard h;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "here\n", 5), 5);
    assert_non_null(begin("read x <&3; printf %s \"$x\"", &h, 100000, ends[0]));
    until_heard(&h);
    assert_string_equal(h.said, "here");
    close(ends[0]);
    close(ends[1]);
}

TEST(one_that_does_not_end_is_ended) {
    struct heard h;
    assert_non_null(begin("printf abc; while :; do sleep 1000; done", &h, 50, 0));
    until_heard(&h);
    assert_int_equal(h.end, PL_ERRAND_LATE);
    assert_string_equal(h.said, "");
    assert_true(nothing_is_left(&h));
}

TEST(a_child_of_it_that_keeps_its_output_keeps_nobody) {
    struct heard h;
    char pid_text[64];
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_non_null(begin("sleep 1000 & echo $! >&3; exit 0", &h, 200, ends[1]));
    until_heard(&h);
    assert_int_equal(h.end, PL_ERRAND_LATE);
    ssize_t n = read(ends[0], pid_text, sizeof pid_text - 1);
    assert_true(n > 0);
    pid_text[n] = '\0';
    kill((pid_t)atoi(pid_text), SIGKILL);
    close(ends[0]);
    close(ends[1]);
}

TEST(a_dropped_one_is_ended_and_never_heard_of) {
    struct heard h;
    pl_errand_drop(NULL);
    struct pl_errand *e = begin("while :; do sleep 1000; done", &h, 100000, 0);
    assert_non_null(e);
    pl_errand_drop(e);
    until(nothing_is_left, &h);
    assert_int_equal(h.times, 0);
}

TEST(what_cannot_be_started_says_why) {
    struct heard h;
    char *argv[] = { (char *)(uintptr_t) "/nonexistent/program", NULL };
    const struct pl_errand_order o = {
        .loop = &loop, .argv = argv, .limit_ms = 100, .done = on_done, .ctx = &h
    };
    struct pl_err err;
    memset(&h, 0, sizeof h);
    assert_null(pl_errand_start(&o, &err));
    assert_non_null(strstr(err.msg, "/nonexistent/program"));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(h.times, 0);
}

static int open_loop(void **state) {
    (void)state;
    return uv_loop_init(&loop);
}

/* Fails if a handle is left. */
static int close_loop(void **state) {
    (void)state;
    return uv_loop_close(&loop);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_loop, close_loop)
RUN(CASE(what_it_says_and_how_it_ends_is_told_once), CASE(its_third_descriptor_is_ours),
    CASE(one_that_does_not_end_is_ended), CASE(a_child_of_it_that_keeps_its_output_keeps_nobody),
    CASE(a_dropped_one_is_ended_and_never_heard_of), CASE(what_cannot_be_started_says_why))
