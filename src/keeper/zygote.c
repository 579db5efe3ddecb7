/* zygote.c - workers that a zygote forks. It is given all that a worker has (page, output, listener, control
 * socket, recipe), and its child says hello on a socket of this start alone. Because we are a subreaper and
 * the zygote forks twice, that child is ours: reaped, killed and accounted like one that we forked. It
 * becomes the worker when we have answered; until then we keep what it takes to do the same by exec, which is
 * what happens when the zygote refuses, dies, or says nothing in time. A socket of ours that closes
 * unanswered tells a late child that it is not wanted, so that there are never two.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper.h"

enum { HELLO_MS = 2000, MOST_FDS = 6 };

static void close_one(int *fd) {
    if (*fd != -1) close(*fd);
    *fd = -1;
}

void pl_keeper_drop_forking(struct pl_generation *g) {
    close_one(&g->forking.recipe_fd);
    close_one(&g->forking.control_fd);
    close_one(&g->forking.output_fd);
    g->forking.until_ms = 0;
}

static bool keep(int from, int *to) {
    *to = from != -1 ? fcntl(from, F_DUPFD_CLOEXEC, 0) : -1;
    return from == -1 || *to != -1;
}

static bool send_order(const struct pl_generation *z, const struct pl_zygote_order *order, const int *fds,
                       size_t count) {
    union {
        char space[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } side = { .space = { 0 } };
    struct iovec part = { .iov_base = (void *)(uintptr_t)order, .iov_len = sizeof *order };
    struct msghdr head = { .msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = side.space,
                           .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&head);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    return sendmsg(z->orders_fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *order;
}

bool pl_keeper_ask_zygote(struct pl_keeper *k, struct pl_generation *g, int output, const int *fds) {
    struct pl_generation *z = g->order.zygote != 0 ? pl_keeper_find(k, g->order.zygote) : NULL;
    struct pl_zygote_order order = { .magic = PL_ZYGOTE_MAGIC, .generation = g->exit.generation };
    int pair[2], all[MOST_FDS], yes = 1;
    size_t count = 0;
    if (g->order.zygote != 0) g->exit.exec_step = PL_WAY_REFUSED; /* until somebody says hello */
    if (z == NULL || !pl_keeper_alive(z) || z->orders_fd == -1) return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1) return false;
    int recipe = *fds++;
    int listener = g->order.flags & PL_SPAWN_LISTENER ? *fds++ : -1;
    int control = g->order.flags & PL_SPAWN_CONTROL ? *fds++ : -1;
    all[count++] = pair[1];
    all[count++] = recipe;
    all[count++] = output;
    all[count++] = g->page_fd;
    if (listener != -1) all[count++] = listener;
    if (control != -1) all[count++] = control;
    order.flags = g->order.flags & (PL_SPAWN_LISTENER | PL_SPAWN_CONTROL);
    pl_keeper_marker(k, g->exit.generation, order.marker);
    struct pl_forking *f = &g->forking;
    bool good = setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
                fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0 && keep(recipe, &f->recipe_fd) &&
                keep(control, &f->control_fd) && keep(output, &f->output_fd) &&
                keep(listener, &g->listener_fd) && send_order(z, &order, all, count);
    close(pair[1]);
    if (!good) {
        close(pair[0]);
        close_one(&g->listener_fd);
        pl_keeper_drop_forking(g);
        return false;
    }
    g->report_fd = pair[0];
    f->until_ms = k->now_ms + HELLO_MS;
    return true;
}

/* The signal that could not be sent while there was nobody. */
static void deliver(struct pl_keeper *k, struct pl_generation *g) {
    if (g->forking.signal != 0) pl_keeper_signal(k, g, g->forking.signal, g->forking.kill_ms);
    g->forking.signal = 0;
}

static void by_exec(struct pl_keeper *k, struct pl_generation *g, const char *why) {
    struct pl_forking *f = &g->forking;
    int fds[3], listener = g->listener_fd;
    size_t count = 0;
    pl_keeper_say(k, PL_INFO, "keeper.zygote_refused", "generation=%llu zygote=%llu why=%s",
                  (unsigned long long)g->exit.generation, (unsigned long long)(g->order.zygote), why);
    close_one(&g->report_fd);
    g->listener_fd = -1;
    fds[count++] = f->recipe_fd;
    if (listener != -1) fds[count++] = listener;
    if (f->control_fd != -1) fds[count++] = f->control_fd;
    int error = pl_keeper_fork_leader(k, g, f->output_fd, fds);
    close_one(&listener);
    pl_keeper_drop_forking(g);
    if (error != 0)
        pl_keeper_never_was(k, g, error);
    else
        deliver(k, g);
}

/* Ours, and nobody that we know. Not reaped, so the number is its own. */
static bool is_new_child(const struct pl_keeper *k, pid_t pid) {
    siginfo_t info = { 0 };
    return pid > 0 && !pl_keeper_knows(k, pid) &&
           waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static pid_t sender_of(struct msghdr *head) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL; c = CMSG_NXTHDR(head, c)) {
        struct ucred who;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS) continue;
        memcpy(&who, CMSG_DATA(c), sizeof who);
        return who.pid;
    }
    return 0;
}

void pl_keeper_hear_zygote(struct pl_keeper *k, struct pl_generation *g) {
    struct pl_zygote_hello hello = { 0 };
    union {
        char space[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } side;
    struct iovec part = { .iov_base = &hello, .iov_len = sizeof hello };
    struct msghdr head = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = side.space, .msg_controllen = sizeof side.space
    };
    ssize_t n = recvmsg(g->report_fd, &head, MSG_CMSG_CLOEXEC);
    if (n == -1 && (errno == EAGAIN || errno == EINTR)) return;
    pid_t pid = n == (ssize_t)sizeof hello && hello.magic == PL_ZYGOTE_MAGIC ? sender_of(&head) : 0;
    if (!is_new_child(k, pid)) {
        by_exec(k, g, n == 0 ? "ended" : "foreign");
        return;
    }
    /* Without an answer it ends by itself. */
    if (send(g->report_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
        by_exec(k, g, "died");
        return;
    }
    close_one(&g->report_fd);
    close_one(&g->listener_fd);
    pl_keeper_drop_forking(g);
    g->exit.pid = (uint32_t)pid;
    g->exit.exec_step = hello.ahead != 0 ? PL_WAY_STANDBY : PL_WAY_FORK;
    g->exit.state = PL_GEN_RUNNING;
    pl_keeper_announce(g, PL_NEWS_RUNNING);
    pl_keeper_say(k, PL_INFO, "keeper.worker_forked", "generation=%llu name=%s pid=%u",
                  (unsigned long long)g->exit.generation, g->order.name, g->exit.pid);
    deliver(k, g);
}

void pl_keeper_look_at_forking(struct pl_keeper *k, struct pl_generation *g) {
    if (g->forking.until_ms == 0 || k->now_ms < g->forking.until_ms) return;
    struct pl_generation *z = pl_keeper_find(k, g->order.zygote);
    if (z != NULL && pl_keeper_alive(z)) pl_keeper_signal(k, z, SIGKILL, 0);
    by_exec(k, g, "silent");
}
