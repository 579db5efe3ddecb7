/* What main gives up, tried in a process of its own: the calls of fence.def are refused, everything else goes
 * on. */
#include "cli/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

enum { NO_FILTER = 77 };

static const struct {
    const char *name;
    long number;
} calls[] = {
#define REFUSED(call) { #call, SYS_##call },
#include "cli/fence.def"
#undef REFUSED
};

/* Runs it in a child; its exit status. */
static int in_child(int (*what)(void)) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(what());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status)) fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}
static void expect_0(int (*what)(void)) {
    int status = in_child(what);
    if (status == NO_FILTER) skip();
    assert_int_equal(status, 0);
}

/* 1 + the place of the first call that was not refused. With arguments that no call does anything with. */
static int first_open_call(void) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        errno = 0;
        if (syscall(calls[i].number, -1L, -1L, -1L, -1L, -1L, -1L) != -1 || errno != EPERM) {
            fprintf(stderr, "%s: errno %d\n", calls[i].name, errno);
            return (int)i + 1;
        }
    }
    return 0;
}

static sem_t up, tried;
static int of_thread;
static void *try_in_thread(void *ctx) {
    sem_wait(&up);
    of_thread = first_open_call();
    sem_post(&tried);
    return ctx;
}

static int refused_in_every_thread(void) {
    struct pl_err err;
    pthread_t t;
    sem_init(&up, 0, 0);
    sem_init(&tried, 0, 0);
    if (pthread_create(&t, NULL, try_in_thread, NULL) != 0) return 90;
    if (!pl_fence_up(PL_FENCE_ON, &err)) return NO_FILTER;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 91;
    sem_post(&up);
    sem_wait(&tried);
    if (of_thread != 0) return of_thread;
    return first_open_call();
}
TEST(what_is_refused_is_refused_in_every_thread) { expect_0(refused_in_every_thread); }

#ifdef __x86_64__
static int other_tables_are_shut(void) {
    struct pl_err err;
    long r = 20; /* getpid of the 32-bit table */
    if (!pl_fence_up(PL_FENCE_ON, &err)) return NO_FILTER;
    errno = 0;
    if (syscall(0x40000000 | SYS_getpid) != -1 || (errno != EPERM && errno != ENOSYS)) return 1;
    __asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
    return r == -EPERM ? 0 : 2;
}
static bool has_32_bit_calls(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        long r = 20;
        __asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
        _exit(r > 0 ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
TEST(nobody_goes_round_it_by_another_table) {
    if (!has_32_bit_calls()) skip();
    expect_0(other_tables_are_shut);
}
#endif

static void *nothing(void *ctx) { return ctx; }
static int everything_else(void) {
    struct pl_err err;
    struct addrinfo *found = NULL;
    pthread_t t;
    int pair[2], status;
    if (!pl_fence_up(PL_FENCE_ON, &err)) return NO_FILTER;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd == -1 || close(fd) != 0) return 1;
    if (pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0) return 2;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return 3;
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at, 4096, PROT_READ) != 0 || munmap(at, 4096) != 0) return 4;
    if (getaddrinfo("localhost", "80", NULL, &found) != 0) return 5;
    freeaddrinfo(found);
    if (memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING) == -1) return 6;
    pid_t pid = fork();
    if (pid == 0) { /* as main has itself read a record, in a process of its own */
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 7;
}
TEST(the_rest_goes_on) { expect_0(everything_else); }

static int log_lets_through(void) {
    struct pl_err err;
    if (!pl_fence_up(PL_FENCE_LOG, &err)) return NO_FILTER;
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2) return 1;
    return syscall(SYS_setuid, getuid()) == 0 ? 0 : 2;
}
TEST(log_lets_through_what_it_logs) { expect_0(log_lets_through); }

static int twice_is_once(void) {
    struct pl_err err;
    if (!pl_fence_up(PL_FENCE_ON, &err)) return NO_FILTER;
    return pl_fence_up(PL_FENCE_ON, &err) && first_open_call() == 0 ? 0 : 1;
}
TEST(a_second_fence_is_no_trouble) { expect_0(twice_is_once); }

RUN(cmocka_unit_test(what_is_refused_is_refused_in_every_thread),
#ifdef __x86_64__
    cmocka_unit_test(nobody_goes_round_it_by_another_table),
#endif
    cmocka_unit_test(the_rest_goes_on), cmocka_unit_test(log_lets_through_what_it_logs),
    cmocka_unit_test(a_second_fence_is_no_trouble))
