#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/child.h"
#include "keeper/keeper.h"

enum {
    SWEEP_EVERY_MS = 20,
    SWEEP_STUCK_MS = 1000,
    OUTPUT_GRACE_MS = 300, /* for a pipe that an escaped process holds open */
    PIPE_BYTES = 262144,
    DRAIN_REST_MS = 2,
    LAST_SWEEPS_MS = 2000,
    PAGE_LEAST = 64,
    PAGE_MOST = 16 << 20,
    RING_MOST = 16 << 20
};

struct pl_generation *pl_keeper_find(struct pl_keeper *k, uint64_t generation) {
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        struct pl_generation *g = &k->generations[i];
        if (g->exit.state != PL_GEN_FREE && g->exit.generation == generation) return g;
    }
    return NULL;
}

static struct pl_generation *free_slot(struct pl_keeper *k) {
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (k->generations[i].exit.state == PL_GEN_FREE) return &k->generations[i];
    return NULL;
}

void pl_keeper_announce(struct pl_generation *g, enum pl_generation_news what) {
    for (int i = 0; i < PL_KEEPER_MAINS; i++) g->news[i] |= what;
}

static void close_one(int *fd) {
    if (*fd != -1) close(*fd);
    *fd = -1;
}

static void make_empty(struct pl_generation *g) {
    memset(g, 0, sizeof *g);
    g->page_fd = g->ring_fd = g->output_fd = g->report_fd = g->listener_fd = g->orders_fd = -1;
    g->forking.recipe_fd = g->forking.control_fd = g->forking.output_fd = -1;
}

void pl_keeper_forget(struct pl_generation *g) {
    close_one(&g->page_fd);
    close_one(&g->ring_fd);
    close_one(&g->output_fd);
    close_one(&g->report_fd);
    close_one(&g->listener_fd);
    close_one(&g->orders_fd);
    pl_keeper_drop_forking(g);
    pl_ring_close(&g->ring);
    make_empty(g);
}

static bool valid(const struct pl_wire_spawn *o) {
    if (memchr(o->name, 0, sizeof o->name) == NULL) return false;
    if (memchr(o->socket_name, 0, sizeof o->socket_name) == NULL) return false;
    if (o->socket_name[0] != 0 && !pl_run_folder_socket_name_ok(o->socket_name)) return false;
    return o->page_bytes >= PAGE_LEAST && o->page_bytes <= PAGE_MOST && o->ring_bytes <= RING_MOST &&
           o->stop_signal > 0 && o->stop_signal < NSIG;
}

/* Page, ring and pipe exist before the fork. 0 or an errno; what was made is in `g` and `output`, the write
 * end. */
static int make_things(struct pl_generation *g, int *output) {
    int pair[2];
    g->page_fd = pl_memfd_create("plimsoll-page", g->order.page_bytes);
    if (g->page_fd == -1) return errno;
    g->ring_fd = pl_ring_create(&g->ring, "plimsoll-log", g->order.ring_bytes);
    if (g->ring_fd == -1) return errno;
    if (pipe2(pair, O_CLOEXEC) == -1) return errno;
    g->output_fd = pair[0];
    *output = pair[1];
    /* Our end only: the worker's end of the pipe must block as any pipe does. */
    fcntl(g->output_fd, F_SETFL, O_NONBLOCK);
    fcntl(g->output_fd, F_SETPIPE_SZ, PIPE_BYTES); /* may be refused: then it is 64 KiB */
    return 0;
}

/* The socket on which a zygote is given orders: our end is kept, theirs is its control socket. */
static int make_orders(struct pl_generation *g, int *theirs) {
    int pair[2];
    *theirs = -1;
    if ((g->order.flags & PL_SPAWN_ZYGOTE) == 0) return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1) return errno;
    g->orders_fd = pair[0];
    *theirs = pair[1];
    return 0;
}

int pl_keeper_fork_leader(struct pl_keeper *k, struct pl_generation *g, int output, const int *fds) {
    char marker[PL_KEEPER_MARKER_BYTES];
    int report[2], orders;
    if (pipe2(report, O_CLOEXEC) == -1) return errno;
    g->report_fd = report[0];
    fcntl(g->report_fd, F_SETFL, O_NONBLOCK);
    int error = make_orders(g, &orders);
    struct pl_child_worker w = { .order = &g->order,
                                 .marker = marker,
                                 .nofile = k->nofile,
                                 .recipe_fd = *fds++,
                                 .listener_fd = -1,
                                 .page_fd = g->page_fd,
                                 .control_fd = orders,
                                 .output_fd = output,
                                 .report_fd = report[1] };
    if (g->order.flags & PL_SPAWN_LISTENER) w.listener_fd = *fds++;
    if (g->order.flags & PL_SPAWN_CONTROL) w.control_fd = *fds++;
    pl_keeper_marker(k, g->exit.generation, marker);
    pid_t pid = error == 0 ? pl_keeper_fork_worker(&w) : -1;
    if (pid == -1 && error == 0) error = errno;
    close_one(&report[1]);
    close_one(&orders);
    if (error != 0) return error;
    g->exit.pid = (uint32_t)pid;
    if (w.listener_fd != -1) g->listener_fd = fcntl(w.listener_fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int pl_keeper_spawn(struct pl_keeper *k, const struct pl_wire_spawn *order, const int *fds,
                    struct pl_generation **out) {
    struct pl_generation *g = free_slot(k);
    int output = -1;
    if (!valid(order)) return EINVAL;
    if (g == NULL) return EAGAIN;
    make_empty(g);
    g->order = *order;
    bool aside = (order->flags & PL_SPAWN_ASIDE) != 0;
    g->exit.generation = aside ? PL_WIRE_FIRST_ASIDE + k->last_aside : k->last_generation + 1;
    g->exit.state = PL_GEN_SPAWNING;
    g->started_ms = k->now_ms;
    int error = make_things(g, &output);
    if (error == 0 && !pl_keeper_ask_zygote(k, g, output, fds))
        error = pl_keeper_fork_leader(k, g, output, fds);
    close_one(&output);
    if (error != 0) {
        pl_keeper_forget(g);
        return error;
    }
    if (aside)
        k->last_aside++;
    else
        k->last_generation++;
    *out = g;
    pl_keeper_say(k, PL_INFO, "keeper.worker_spawned", "generation=%llu name=%s pid=%u",
                  (unsigned long long)g->exit.generation, g->order.name, g->exit.pid);
    return 0;
}

/* The close-on-exec pipe: its end means that the program runs; bytes mean that it never will. */
void pl_keeper_read_report(struct pl_keeper *k, struct pl_generation *g) {
    struct pl_child_report report;
    if (g->forking.until_ms != 0) {
        pl_keeper_hear_zygote(k, g);
        return;
    }
    ssize_t n = read(g->report_fd, &report, sizeof report);
    if (n == -1) return;
    close_one(&g->report_fd);
    close_one(&g->listener_fd);
    if (n == (ssize_t)sizeof report) {
        g->exit.exec_step = report.step;
        g->exit.exec_errno = report.error;
        pl_keeper_say(k, PL_INFO, "keeper.exec_failed", "generation=%llu step=%u errno=%u",
                      (unsigned long long)g->exit.generation, report.step, report.error);
    } else if (g->exit.state == PL_GEN_SPAWNING) {
        g->exit.state = PL_GEN_RUNNING;
        pl_keeper_announce(g, PL_NEWS_RUNNING);
    }
}

/* One turn moves at most what the pipe can hold, so that a loud worker cannot keep the others waiting. Then
 * the pipe rests: without that, a flood of short lines wakes us for each of them: a whole core, and six times
 * the CPU a byte. */
void pl_keeper_drain(struct pl_keeper *k, struct pl_generation *g) {
    for (int moved = 0; moved < PIPE_BYTES; moved += PL_RING_CHUNK) {
        ssize_t n = pl_ring_fill(&g->ring, g->output_fd);
        if (n == 0) close_one(&g->output_fd);
        if (n > 0) g->exit.log_bytes += (uint64_t)n;
        if (n < PL_RING_CHUNK) break;
    }
    g->drain_at_ms = k->now_ms + DRAIN_REST_MS;
}

int pl_keeper_signal(struct pl_keeper *k, struct pl_generation *g, int signal, uint64_t kill_ms) {
    if (!pl_keeper_alive(g)) return ESRCH;
    /* The leader is not reaped, so the number of its group cannot belong to anybody else. It may not have
     * reached setsid yet: then there is no such group, and only the leader to tell. */
    pid_t pid = (pid_t)g->exit.pid;
    if (signal == (int)g->order.stop_signal || signal == SIGKILL) g->stopping = true;
    if (pid == 0) { /* a zygote was asked for it: when it is there */
        if (g->forking.signal != SIGKILL) g->forking.signal = signal;
        if (kill_ms != 0) g->forking.kill_ms = kill_ms;
        return 0;
    }
    if (kill(-pid, signal) == -1 && errno == ESRCH) kill(pid, signal);
    if (signal == SIGKILL && g->killed_ms == 0) g->killed_ms = k->now_ms;
    if (kill_ms != 0) g->kill_at_ms = k->now_ms + kill_ms;
    return 0;
}

void pl_keeper_never_was(struct pl_keeper *k, struct pl_generation *g, int error) {
    g->exit.state = PL_GEN_EXITED;
    g->exit.exec_errno = (uint32_t)error;
    g->exit.exec_step = PL_STEP_SESSION;
    g->exited_ms = k->now_ms;
    g->sweep_at_ms = k->now_ms;
    g->kill_at_ms = 0;
    close_one(&g->listener_fd);
    pl_keeper_announce(g, PL_NEWS_EXITED);
}

/* The group got its SIGKILL before the leader was reaped. */
void pl_keeper_worker_ended(struct pl_keeper *k, struct pl_generation *g, int status,
                            const struct rusage *usage) {
    char how[32];
    g->exit.state = PL_GEN_EXITED;
    g->exit.status = status;
    g->exit.user_us = (uint64_t)usage->ru_utime.tv_sec * 1000000 + (uint64_t)usage->ru_utime.tv_usec;
    g->exit.system_us = (uint64_t)usage->ru_stime.tv_sec * 1000000 + (uint64_t)usage->ru_stime.tv_usec;
    g->exit.max_rss_kib = (uint64_t)usage->ru_maxrss;
    g->exit.life_ms = k->now_ms - g->started_ms;
    g->exited_ms = k->now_ms;
    g->sweep_at_ms = k->now_ms;
    g->kill_at_ms = 0;
    g->killed_ms = 0; /* from here on it counts for strays */
    if (g->report_fd != -1) pl_keeper_read_report(k, g);
    close_one(&g->report_fd);
    close_one(&g->listener_fd);
    close_one(&g->orders_fd);
    if (g->output_fd != -1) pl_keeper_drain(k, g); /* its last words come before its end, rest or no rest */
    pl_keeper_announce(g, PL_NEWS_EXITED);
    pl_keeper_say(k, PL_INFO, "keeper.worker_exited", "generation=%llu name=%s %s",
                  (unsigned long long)g->exit.generation, g->order.name, pl_keeper_end_text(status, how));
}

static void finish(struct pl_keeper *k, struct pl_generation *g) {
    if (g->output_fd != -1) pl_keeper_drain(k, g); /* we may have slept through the grace */
    close_one(&g->output_fd);
    atomic_store_explicit(&g->ring.head->closed, 1, memory_order_release);
    if (g->order.socket_name[0] != 0) pl_run_folder_remove_socket(&k->run, g->order.socket_name);
    g->exit.state = PL_GEN_GONE;
    pl_keeper_announce(g, PL_NEWS_GONE);
    pl_keeper_say(k, PL_INFO, "keeper.worker_gone", "generation=%llu strays=%u took_ms=%llu",
                  (unsigned long long)g->exit.generation, g->exit.strays,
                  (unsigned long long)(k->now_ms - g->exited_ms));
}

static void look_at_exited(struct pl_keeper *k, struct pl_generation *g) {
    if (k->now_ms < g->sweep_at_ms) return;
    g->sweep_at_ms = k->now_ms + (g->stuck ? SWEEP_STUCK_MS : SWEEP_EVERY_MS);
    unsigned left = pl_keeper_sweep(k, g);
    if (left > g->exit.strays) g->exit.strays = left;
    if (left > 0 && g->killed_ms == 0) g->killed_ms = k->now_ms;
    if (left > 0) return;
    if (g->output_fd == -1 || k->now_ms - g->exited_ms > OUTPUT_GRACE_MS) finish(k, g);
}

static void look_at(struct pl_keeper *k, struct pl_generation *g) {
    pl_keeper_look_at_forking(k, g);
    if (pl_keeper_alive(g) && g->kill_at_ms != 0 && k->now_ms >= g->kill_at_ms) {
        g->kill_at_ms = 0;
        pl_keeper_signal(k, g, SIGKILL, 0);
    }
    if (g->exit.state == PL_GEN_EXITED) look_at_exited(k, g);
    if (g->exit.state == PL_GEN_GONE || g->exit.state == PL_GEN_FREE) return;
    if (!g->stuck && g->killed_ms != 0 && k->now_ms - g->killed_ms >= k->set.stuck_ms) {
        g->stuck = true;
        pl_keeper_announce(g, PL_NEWS_STUCK);
        pl_keeper_say(k, PL_ERROR, "worker.stuck", "worker=%s generation=%llu pid=%u waited_ms=%llu",
                      g->order.name, (unsigned long long)g->exit.generation, g->exit.pid,
                      (unsigned long long)(k->now_ms - g->killed_ms));
    }
}

/* The lowest rank that still has somebody; UINT64_MAX if all have gone, the stuck ones aside. */
static uint64_t lowest_rank(const struct pl_keeper *k) {
    uint64_t rank = UINT64_MAX;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        const struct pl_generation *g = &k->generations[i];
        bool left = (pl_keeper_alive(g) || g->exit.state == PL_GEN_EXITED) && !g->stuck;
        if (left && g->order.stop_rank < rank) rank = g->order.stop_rank;
    }
    return rank;
}

/* The stop order that main left at each spawn, rank by rank. True when nothing is left. */
static bool stop_in_order(struct pl_keeper *k) {
    uint64_t rank = lowest_rank(k);
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        struct pl_generation *g = &k->generations[i];
        uint64_t patience_ms = (uint64_t)g->order.stop_ms + 1;
        if (!pl_keeper_alive(g) || (g->order.stop_rank != rank && !k->hurry)) continue;
        if (k->hurry && g->killed_ms == 0) pl_keeper_signal(k, g, SIGKILL, 0);
        if (!g->stopping) pl_keeper_signal(k, g, (int)g->order.stop_signal, patience_ms);
        /* main's own SIGNAL may have come without a deadline */
        if (g->kill_at_ms == 0 && g->killed_ms == 0) g->kill_at_ms = k->now_ms + patience_ms;
    }
    return rank == UINT64_MAX;
}

void pl_keeper_look_at_workers(struct pl_keeper *k) {
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) look_at(k, &k->generations[i]);
    if (k->stop == PL_STOP_OWN && stop_in_order(k)) {
        pl_keeper_stop(k, PL_STOP_LAST, k->exit_status);
        k->stop_by_ms = k->now_ms + LAST_SWEEPS_MS;
        for (int i = 0; i < PL_KEEPER_MAINS; i++)
            if (k->mains[i].pid != 0) kill(k->mains[i].pid, SIGKILL);
    }
    if (k->stop == PL_STOP_LAST) {
        bool mains_left = k->mains[0].pid != 0 || k->mains[1].pid != 0;
        unsigned strays = pl_keeper_sweep(k, NULL);
        k->finished = (!mains_left && strays == 0) || k->now_ms >= k->stop_by_ms;
    }
}

uint64_t pl_keeper_workers_deadline(const struct pl_keeper *k) {
    uint64_t at = k->stop == PL_STOP_LAST ? k->now_ms + SWEEP_EVERY_MS : 0;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        const struct pl_generation *g = &k->generations[i];
        if (g->exit.state == PL_GEN_FREE || g->exit.state == PL_GEN_GONE) continue;
        at = pl_keeper_sooner(at, g->kill_at_ms);
        at = pl_keeper_sooner(at, g->forking.until_ms);
        if (g->output_fd != -1 && g->drain_at_ms > k->now_ms) at = pl_keeper_sooner(at, g->drain_at_ms);
        if (g->exit.state == PL_GEN_EXITED) at = pl_keeper_sooner(at, g->sweep_at_ms);
        if (g->killed_ms != 0 && !g->stuck) at = pl_keeper_sooner(at, g->killed_ms + k->set.stuck_ms);
    }
    return at;
}
