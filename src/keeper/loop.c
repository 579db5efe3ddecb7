#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "keeper/keeper.h"

enum {
    LOG_BYTES = 65536,
    MOST_POLLS = 1 + PL_KEEPER_MAINS + 2 * PL_KEEPER_GENERATIONS,
    LAST_WORDS_TURNS = 64, /* of what a dead main had said */
    FULL_REST_MS = 10
};

void pl_keeper_stop(struct pl_keeper *k, enum pl_stop_phase phase, int status) {
    static const char *const names[] = { "none", "asked", "own", "last" };
    if (phase <= k->stop) return;
    k->stop = phase;
    k->exit_status = status;
    k->start_main_at_ms = 0;
    pl_keeper_fail_upgrade(k, ESHUTDOWN, 0);
    static const char stopping[] = "STOPPING=1\nSTATUS=stopping";
    pl_keeper_notify(k, stopping, sizeof stopping - 1);
    pl_keeper_say(k, PL_INFO, "keeper.stop", "phase=%s status=%d", names[phase], status);
}

/* --- signals --- */

static void stop_asked(struct pl_keeper *k, const char *signal) {
    struct pl_main *helm = pl_keeper_main_with(k, PL_ROLE_HELM);
    if (k->stop != PL_STOP_NONE) {
        if (!k->hurry)
            pl_keeper_say(k, PL_WARN, "main.stopping", "signal=%s deadline_ms=0 why=hurry", signal);
        k->hurry = true;
        if (helm != NULL) kill(helm->pid, SIGKILL);
        pl_keeper_stop(k, PL_STOP_OWN, k->exit_status);
        return;
    }
    pl_keeper_say(k, PL_INFO, "keeper.signal", "signal=%s", signal);
    k->stop_by_ms = k->now_ms + k->set.stop_ms;
    pl_keeper_stop(k, helm != NULL && helm->kill_at_ms == 0 ? PL_STOP_ASKED : PL_STOP_OWN, 0);
    struct pl_main *leaving = pl_keeper_main_with(k, PL_ROLE_LEAVING);
    if (helm != NULL) helm->news |= PL_NEWS_STOP;
    if (leaving != NULL) leaving->news |= PL_NEWS_STOP;
}

/* It means a reload, which is main's affair, unless it says that our terminal has gone. */
static void hung_up(struct pl_keeper *k) {
    struct termios t;
    struct pl_main *helm = pl_keeper_main_with(k, PL_ROLE_HELM);
    if (k->had_terminal && tcgetattr(0, &t) == -1) {
        k->had_terminal = false;
        stop_asked(k, "SIGHUP");
    } else if (helm != NULL) {
        kill(helm->pid, SIGHUP);
    }
}

static void reap_main(struct pl_keeper *k, struct pl_main *m) {
    int status = 0;
    /* What it had said before it died still counts: a HOLD, a NOTE, a BYE. */
    for (int turn = 0; turn < LAST_WORDS_TURNS && m->channel != -1; turn++) pl_keeper_serve(k, m);
    if (waitpid(m->pid, &status, 0) == m->pid) pl_keeper_main_ended(k, m, status);
}

static void reap_worker(struct pl_keeper *k, struct pl_generation *g) {
    pid_t pid = (pid_t)g->exit.pid;
    struct rusage usage;
    int status = 0;
    /* Before the reap: until then the number of the group cannot be given to anybody else. */
    kill(-pid, SIGKILL);
    if (wait4(pid, &status, 0, &usage) == pid) pl_keeper_worker_ended(k, g, status, &usage);
}

static void reap_orphan(struct pl_keeper *k, pid_t pid) {
    waitpid(pid, NULL, 0);
    k->orphans_reaped++;
    /* Perhaps somebody's last stray. */
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (k->generations[i].exit.state == PL_GEN_EXITED) k->generations[i].sweep_at_ms = k->now_ms;
}

static void reap(struct pl_keeper *k, pid_t pid) {
    for (int i = 0; i < PL_KEEPER_MAINS; i++)
        if (k->mains[i].pid == pid) {
            reap_main(k, &k->mains[i]);
            return;
        }
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (pl_keeper_alive(&k->generations[i]) && k->generations[i].exit.pid == (uint32_t)pid) {
            reap_worker(k, &k->generations[i]);
            return;
        }
    reap_orphan(k, pid);
}

static void on_signals(struct pl_keeper *k) {
    struct signalfd_siginfo s;
    while (read(k->signal_fd, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGTERM) stop_asked(k, "SIGTERM");
        if (s.ssi_signo == SIGINT) stop_asked(k, "SIGINT");
        if (s.ssi_signo == SIGHUP) hung_up(k);
        if (s.ssi_signo == SIGUSR1 || s.ssi_signo == SIGUSR2)
            pl_keeper_say(k, PL_INFO, "keeper.signal", "signal=%s ignored=true",
                          s.ssi_signo == SIGUSR1 ? "SIGUSR1" : "SIGUSR2");
    }
    /* signalfd folds many SIGCHLD into one: ask until nobody is left. The same child is shown until it is
     * reaped. */
    siginfo_t info = { 0 };
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
        reap(k, info.si_pid);
        info.si_pid = 0;
    }
}

/* --- one turn --- */

struct turn {
    struct pollfd polls[MOST_POLLS];
    struct pl_main *mains[MOST_POLLS]; /* whose channel it is; or NULL, as the next two */
    struct pl_generation *reports[MOST_POLLS];
    struct pl_generation *outputs[MOST_POLLS];
    nfds_t count;
};

static nfds_t wait_for(struct turn *t, int fd, short events) {
    nfds_t i = t->count++;
    t->polls[i] = (struct pollfd){ .fd = fd, .events = events };
    t->mains[i] = NULL;
    t->reports[i] = t->outputs[i] = NULL;
    return i;
}

static void collect(struct pl_keeper *k, struct turn *t) {
    t->count = 0;
    wait_for(t, k->signal_fd, POLLIN);
    for (int i = 0; i < PL_KEEPER_MAINS; i++) {
        struct pl_main *m = &k->mains[i];
        if (m->pid == 0 || m->channel == -1) continue;
        bool wants_room = (m->blocked || m->has_reply) && k->now_ms >= m->rest_until_ms;
        short events = (short)((m->has_reply ? 0 : POLLIN) | (wants_room ? POLLOUT : 0));
        t->mains[wait_for(t, m->channel, events)] = m;
    }
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        struct pl_generation *g = &k->generations[i];
        if (g->exit.state == PL_GEN_FREE) continue;
        if (g->report_fd != -1) t->reports[wait_for(t, g->report_fd, POLLIN)] = g;
        if (g->output_fd != -1 && k->now_ms >= g->drain_at_ms)
            t->outputs[wait_for(t, g->output_fd, POLLIN)] = g;
    }
}

/* After the news of this turn: a socket that had room and took nothing (too many descriptors under way) would
 * wake us at once and for ever. */
static void rest(struct pl_keeper *k, struct pl_main *m, short revents) {
    if ((revents & POLLOUT) != 0 && m->blocked && m->sent == 0) m->rest_until_ms = k->now_ms + FULL_REST_MS;
}

static void serve_ready(struct pl_keeper *k, struct turn *t, nfds_t i) {
    if (t->polls[i].revents == 0) return;
    if (t->mains[i] != NULL) {
        t->mains[i]->blocked = false;
        t->mains[i]->sent = 0;
        pl_keeper_serve(k, t->mains[i]);
    }
    if (t->reports[i] != NULL && t->reports[i]->report_fd != -1) pl_keeper_read_report(k, t->reports[i]);
    if (t->outputs[i] != NULL && t->outputs[i]->output_fd != -1) pl_keeper_drain(k, t->outputs[i]);
}

/* Channels, reports and output before signals: what a process said comes before its end. Then deadlines, then
 * news. */
static void one_turn(struct pl_keeper *k, struct turn *t) {
    collect(k, t);
    uint64_t at = pl_keeper_sooner(pl_keeper_mains_deadline(k), pl_keeper_workers_deadline(k));
    uint64_t wait_ms = at > k->now_ms ? at - k->now_ms : 0;
    struct timespec limit = { .tv_sec = (time_t)(wait_ms / 1000),
                              .tv_nsec = (long)(wait_ms % 1000) * 1000000 };
    int ready = ppoll(t->polls, t->count, &limit, NULL);
    k->now_ms = pl_now_ms(&pl_clock_system);
    for (nfds_t i = 1; ready > 0 && i < t->count; i++) serve_ready(k, t, i);
    if (ready > 0 && t->polls[0].revents != 0) on_signals(k);
    pl_keeper_look_at_mains(k);
    pl_keeper_look_at_workers(k);
    pl_keeper_notify_again(k);
    for (int i = 0; i < PL_KEEPER_MAINS; i++) pl_keeper_send_news(k, &k->mains[i]);
    for (nfds_t i = 1; ready > 0 && i < t->count; i++)
        if (t->mains[i] != NULL) rest(k, t->mains[i], t->polls[i].revents);
}

/* --- start and end --- */

/* With 0, 1 or 2 closed the next thing opened would take its place, and our lines would go into it. */
static bool fill_standard_fds(struct pl_err *err) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1) continue;
        if (open("/dev/null", O_RDWR) != fd) return PL_FAIL_SYS(err, errno, "open /dev/null");
    }
    return true;
}

static bool take_holds(struct pl_keeper *k, const struct pl_keeper_options *o, struct pl_err *err) {
    for (size_t i = 0; i < o->hold_count; i++) {
        int fd = fcntl(o->holds[i].fd, F_DUPFD_CLOEXEC, 3);
        if (fd == -1) return PL_FAIL_SYS(err, errno, "--hold %s=%d", o->holds[i].name, o->holds[i].fd);
        close(o->holds[i].fd);
        pl_keeper_hold(k, o->holds[i].name, fd);
    }
    return true;
}

static bool open_main(struct pl_keeper *k, const char *path, struct pl_err *err) {
    struct stat st;
    k->exe_fd = open(path, O_PATH | O_CLOEXEC);
    if (k->exe_fd == -1 || fstat(k->exe_fd, &st) == -1) return PL_FAIL_SYS(err, errno, "program %s", path);
    if (!S_ISREG(st.st_mode) || access(path, X_OK) == -1)
        return PL_FAIL(err, PL_E_SYS, "program %s cannot be executed", path);
    return true;
}

/* A parent may have left signals ignored: an ignored SIGCHLD would reap our children, and of an ignored
 * signal signalfd says nothing. SIGHUP stays as it is: nohup means it. */
static bool prepare_signals(struct pl_keeper *k, struct pl_err *err) {
    static const int wanted[] = { SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2 };
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        signal(wanted[i], SIG_DFL);
        sigaddset(&set, wanted[i]);
    }
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &set, NULL);
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd != -1 || PL_FAIL_SYS(err, errno, "signalfd");
}

static bool prepare(struct pl_keeper *k, struct pl_err *err) {
    struct timespec t;
    struct rlimit high;
    clock_gettime(CLOCK_REALTIME, &t);
    k->boot = ((uint64_t)t.tv_sec << 30 | (uint64_t)t.tv_nsec) ^ (uint64_t)getpid() << 32;
    k->had_terminal = isatty(0) == 1;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == -1) return PL_FAIL_SYS(err, errno, "become a subreaper");
    prctl(PR_SET_DUMPABLE, 0);
    getrlimit(RLIMIT_NOFILE, &k->nofile);
    high = k->nofile;
    high.rlim_cur = high.rlim_max;
    setrlimit(RLIMIT_NOFILE, &high);
    if (!prepare_signals(k, err)) return false;
    pl_keeper_notify_open(k);
    int fd = pl_ring_create(&k->log, "plimsoll-keeper-log", LOG_BYTES);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "make the log ring");
    pl_keeper_hold(k, "keeper.log", fd);
    return true;
}

int pl_keeper_run(struct pl_keeper_options *options, struct pl_err *err) {
    static struct pl_keeper keeper;
    static struct turn turn;
    struct pl_keeper *k = &keeper;
    k->set = options->set;
    k->main_argv = options->main_argv;
    if (!fill_standard_fds(err) || !take_holds(k, options, err) ||
        !open_main(k, options->main_argv[0], err) || !prepare(k, err) ||
        !pl_run_folder_open(&k->run, options->run_path, err))
        return pl_err_exit_status(err->code);
    k->now_ms = k->looked_ms = pl_now_ms(&pl_clock_system);
    pl_keeper_start_main(k, k->exe_fd, PL_ROLE_HELM);
    while (!k->finished) one_turn(k, &turn);
    pl_run_folder_close(&k->run);
    pl_keeper_say(k, PL_INFO, "keeper.exit", "status=%d orphans_reaped=%llu", k->exit_status,
                  (unsigned long long)k->orphans_reaped);
    return k->exit_status;
}
