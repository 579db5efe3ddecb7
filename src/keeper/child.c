#include "keeper/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/recipe.h"

/* Above every fixed number. */
enum { OUT_OF_THE_WAY = 64, EXEC_FAILED = 127 };

static _Noreturn void stop_with(int report_fd, enum pl_child_step step, int error) {
    struct pl_child_report report = { .step = step, .error = (uint32_t)error };
    ssize_t n = write(report_fd, &report, sizeof report);
    (void)n;
    _exit(EXEC_FAILED);
}

/* The keeper blocks signals for its signalfd and ignores SIGPIPE; both would survive the exec. */
static void reset_signals(void) {
    struct sigaction plain = { .sa_handler = SIG_DFL };
    static const uint64_t kernel_plain[4]; /* the kernel's struct sigaction, on every 64-bit Linux */
    sigset_t none;
    for (int s = 1; s < NSIG; s++) {
        if (sigaction(s, &plain, NULL) == 0) continue;
        /* libc keeps the first real-time signals to itself and refuses them; whoever started us may ignore
         * them, and a worker's threads could not be cancelled then */
        syscall(SYS_rt_sigaction, s, kernel_plain, NULL, sizeof(uint64_t));
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* After any change of uid, because that clears it; then a look whether the parent died before it was set. */
static bool die_with(pid_t keeper) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1) return false;
    errno = ESRCH;
    return getppid() == keeper;
}

static bool place(int from, int to) { return from == -1 || dup2(from, to) == to; }

/* First everything out of the way, then all others close at exec, then the known numbers. */
static bool place_descriptors(struct pl_child_worker *w) {
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int *moved[] = { &nothing, &w->listener_fd, &w->page_fd, &w->control_fd, &w->output_fd, &w->report_fd };
    if (nothing == -1) return false;
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        if (*moved[i] == -1) continue;
        int up = fcntl(*moved[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if (up == -1) return false; /* the old report_fd still works */
        *moved[i] = up;
    }
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == -1) return false;
    return place(nothing, 0) && place(w->output_fd, 1) && place(w->output_fd, 2) &&
           place(w->listener_fd, PL_WORKER_LISTENER_FD) && place(w->page_fd, PL_WORKER_PAGE_FD) &&
           place(w->control_fd, PL_WORKER_CONTROL_FD);
}

static bool limit(int what, uint64_t value) {
    struct rlimit r = { .rlim_cur = value, .rlim_max = value };
    return setrlimit((__rlimit_resource_t)what, &r) == 0;
}

static bool set_oom_score(int32_t score) {
    char text[16];
    if (score == 0) return true;
    int length = snprintf(text, sizeof text, "%d", score);
    /* The files of a process that is not dumpable belong to root, and a fork inherits that. */
    prctl(PR_SET_DUMPABLE, 1);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd == -1) return false;
    bool good = write(fd, text, (size_t)length) == length;
    int error = errno;
    close(fd);
    errno = error;
    return good;
}

static bool set_limits(const struct pl_child_worker *w) {
    const struct pl_wire_spawn *o = w->order;
    if (!set_oom_score(o->oom_score_adj)) return false;
    if (o->nice != 0 && setpriority(PRIO_PROCESS, 0, o->nice) == -1) return false;
    if (!limit(RLIMIT_CORE, o->core_bytes)) return false;
    if (o->address_bytes != 0 && !limit(RLIMIT_AS, o->address_bytes)) return false;
    if (o->nofile == 0) return setrlimit(RLIMIT_NOFILE, &w->nofile) == 0;
    return limit(RLIMIT_NOFILE, o->nofile);
}

static bool become_user(const struct pl_wire_spawn *o) {
    if ((o->flags & PL_SPAWN_USER) == 0) return true;
    if (fchown(1, o->uid, o->gid) == -1) return false; /* or it could not open /dev/stderr */
    return setgroups(0, NULL) == 0 && setgid(o->gid) == 0 && setuid(o->uid) == 0;
}

static _Noreturn void worker_child(struct pl_child_worker *w, pid_t keeper) {
    struct pl_keeper_recipe recipe;
    if (setsid() == -1) stop_with(w->report_fd, PL_STEP_SESSION, errno);
    if (!pl_keeper_read_recipe(w->recipe_fd, w->marker, &recipe))
        stop_with(w->report_fd, PL_STEP_RECIPE, errno);
    if (!place_descriptors(w)) stop_with(w->report_fd, PL_STEP_DESCRIPTORS, errno);
    if (!set_limits(w)) stop_with(w->report_fd, PL_STEP_LIMITS, errno);
    if (!become_user(w->order)) stop_with(w->report_fd, PL_STEP_USER, errno);
    if (!die_with(keeper)) stop_with(w->report_fd, PL_STEP_DEATH, errno);
    if (chdir(recipe.folder) == -1) stop_with(w->report_fd, PL_STEP_FOLDER, errno);
    reset_signals();
    execve(recipe.argv[0], recipe.argv, recipe.envp);
    stop_with(w->report_fd, PL_STEP_EXEC, errno);
}

pid_t pl_keeper_fork_worker(const struct pl_child_worker *w) {
    pid_t keeper = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        struct pl_child_worker own = *w;
        worker_child(&own, keeper);
    }
    return pid;
}

/* Main runs in a session of its own: Ctrl-C reaches the keeper alone, which then asks main to stop. */
static _Noreturn void main_child(int exe_fd, char *const *argv, int channel_fd, pid_t keeper) {
    setsid();
    int exe = fcntl(exe_fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    int channel = fcntl(channel_fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    if (exe == -1 || channel == -1) _exit(EXEC_FAILED);
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == -1) _exit(EXEC_FAILED);
    if (dup2(channel, PL_WIRE_FD) == -1) _exit(EXEC_FAILED);
    if (!die_with(keeper)) _exit(EXEC_FAILED);
    reset_signals();
    execveat(exe, "", argv, environ, AT_EMPTY_PATH);
    _exit(EXEC_FAILED);
}

pid_t pl_keeper_fork_main(int exe_fd, char *const *argv, int channel_fd) {
    pid_t keeper = getpid();
    pid_t pid = fork();
    if (pid == 0) main_child(exe_fd, argv, channel_fd, keeper);
    return pid;
}
