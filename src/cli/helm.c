#include "cli/helm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/door.h"
#include "cli/listening.h"
#include "cli/renew.h"
#include "cli/verbs.h"

enum {
    ALIVE_MS = 100,
    REST_LOOK_MS = 2,
    STAND_MS =
        1500, /* then the helm is let go in any case: a line may be told twice, a request is not lost */
    LEAVE_SLACK_MS = 10000,
    ELF_MAGIC = 4
};

enum state { OURS, ORDERED, RESTING, LEFT };

static struct {
    struct pl_helm_options o;
    enum state state;
    char action[24], binary[512];
    uint64_t ordered_ms, rested_ms;
    bool asked_stand; /* STOOD_DOWN is owed */
    size_t open;      /* connections when the helm moved */
    struct pl_timer timer;
} helm;

void pl_helm_init(const struct pl_helm_options *o) { helm.o = *o; }
bool pl_helm_ours(void) { return helm.state != LEFT; }
bool pl_helm_under_way(void) { return helm.state == ORDERED || helm.state == RESTING; }

static uint64_t now_ms(void) { return pl_now_ms(helm.o.app->clock); }

/* --- the candidate */

bool pl_helm_take(struct pl_link *l, void (*alive)(void), struct pl_err *err) {
    static struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_TAKE, sizeof m.head, 0);
    if (!pl_link_ask(l, &m, PL_WIRE_DONE, &m, err)) return false;
    for (;;) {
        struct pollfd p = { .fd = l->fd, .events = POLLIN };
        alive();
        if (poll(&p, 1, ALIVE_MS) <= 0) continue;
        enum pl_wire_result r = pl_wire_receive(l->fd, &m);
        if (r == PL_WIRE_CLOSED) return PL_FAIL(err, PL_E_SYS, "the keeper is gone");
        if (r != PL_WIRE_OK) continue;
        bool ours = m.head.kind == PL_WIRE_HELM;
        pl_wire_close_fds(&m); /* news of workers: the list that follows knows better */
        if (ours) return true;
    }
}

void pl_helm_decline(struct pl_link *l, int status, const char *words) {
    static struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_BYE, sizeof m.bye, 1);
    m.bye.status = (uint32_t)status;
    snprintf(m.bye.words, sizeof m.bye.words, "%s", words);
    pl_wire_send(l->fd, &m);
}

/* --- the order */

static void unfreeze(void) {
    helm.state = OURS;
    pl_crew_freeze(helm.o.crew, false);
    pl_door_freeze(false);
}

static void failed(const char *why) {
    char action[sizeof helm.action];
    memcpy(action, helm.action, sizeof action);
    helm.action[0] = '\0';
    pl_log(helm.o.app->log, PL_ERROR, "upgrade.failed", F_STR("to", helm.binary), F_STR("reason", why),
           F_INT("took_ms", now_ms() - helm.ordered_ms));
    helm.o.action_done(action, 1, why);
}

static void on_ordered(void *ctx, struct pl_wire_message *reply) {
    char why[128];
    (void)ctx;
    if (reply->head.kind == PL_WIRE_DONE) return;
    int error = reply->head.kind == PL_WIRE_REFUSED ? (int)reply->refused.error : EPROTO;
    if (error == EBUSY)
        snprintf(why, sizeof why, "the main before this one still finishes what is open (upgrade.drain)");
    else
        snprintf(why, sizeof why, "the keeper does not start it: %s", strerror(error));
    unfreeze();
    failed(why);
}

/* A program that main can be: not a script (it is run through a descriptor that its interpreter could not
 * open), and nobody else's to write to. The descriptor is what will be run, whatever becomes of the name. */
static int open_binary(const char *path, struct pl_err *err) {
    static const char elf[] = "\177ELF";
    char link[32], magic[ELF_MAGIC];
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd == -1) {
        PL_FAIL_SYS(err, errno, "%s", path);
        return -1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    PL_AUTO_FD int content = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && access(link, X_OK) == 0;
    if (!ok)
        PL_FAIL(err, PL_E_USAGE, "%s is not a program that we may run", path);
    else if ((st.st_mode & S_IWOTH) != 0)
        ok = PL_FAIL(err, PL_E_USAGE, "%s may be written to by everybody: it is not run", path);
    else if (content != -1 &&
             (read(content, magic, sizeof magic) != ELF_MAGIC || memcmp(magic, elf, ELF_MAGIC) != 0))
        ok = PL_FAIL(err, PL_E_USAGE, "%s is not a binary of Plimsoll: scripts cannot be main", path);
    if (ok) return fd;
    close(fd);
    return -1;
}

/* The first service with requests that wait while none of its workers is ready, or NULL. The next one to be
 * ready will be the new main's: nobody here could give it to them. */
static const char *waits_for_a_worker(int64_t *requests) {
    for (size_t i = 0; i < pl_crew_service_count(helm.o.crew); i++) {
        const struct pl_service *s = pl_crew_service(helm.o.crew, i);
        struct pl_gateway_numbers load;
        pl_gateway_numbers(helm.o.gateway, s, &load);
        *requests = load.queued;
        if (load.queued > 0 && pl_service_ready_count(s) == 0) return s->config->id;
    }
    return NULL;
}

static bool may_order(struct pl_err *err) {
    const char *replacing = pl_crew_replacing(helm.o.crew), *waiting;
    int64_t requests;
    if (helm.state != OURS) return PL_FAIL(err, PL_E_LIMIT, "an upgrade is under way");
    if (helm.o.app->stopping) return PL_FAIL(err, PL_E_LIMIT, "the server is stopping");
    if (pl_renew_busy()) return PL_FAIL(err, PL_E_LIMIT, "a reload is under way: wait for its end");
    if (replacing != NULL) {
        PL_FAIL(err, PL_E_LIMIT, "a replacement of %s is under way", replacing);
        return pl_err_hint(err, "wait for it: plimsoll status %s", replacing);
    }
    waiting = waits_for_a_worker(&requests);
    if (waiting != NULL) {
        PL_FAIL(err, PL_E_LIMIT, "requests wait for a worker of %s that is not ready yet (%lld)", waiting,
                (long long)requests);
        return pl_err_hint(err,
                           "wait for it: plimsoll status %s; if it cannot come, first: plimsoll drain %s",
                           waiting, waiting);
    }
    return true;
}

bool pl_helm_order(const struct pl_upgrade_wish *wish, const char *action, struct pl_err *err) {
    struct pl_wire_message m;
    const char *binary = wish->binary != NULL ? wish->binary : helm.o.program;
    if (!may_order(err)) return false;
    if (binary[0] != '/') return PL_FAIL(err, PL_E_USAGE, "the binary's path must be absolute");
    PL_AUTO_FD int fd = open_binary(binary, err);
    if (fd == -1) return false;
    snprintf(helm.binary, sizeof helm.binary, "%s", binary);
    snprintf(helm.action, sizeof helm.action, "%s", action);
    helm.ordered_ms = now_ms();
    helm.state = ORDERED;
    pl_crew_freeze(helm.o.crew, true);
    pl_door_freeze(true);
    pl_gateway_save(helm.o.gateway);
    pl_log(helm.o.app->log, PL_INFO, "upgrade.started", F_STR("from", PL_VERSION), F_STR("to", binary));
    pl_wire_init(&m, PL_WIRE_UPGRADE, sizeof m.upgrade, 0);
    m.upgrade.take_ms = (uint32_t)(wish->take_ms < UINT32_MAX ? wish->take_ms : UINT32_MAX);
    m.upgrade.leave_ms = (uint32_t)(helm.o.app->config->upgrade_drain_ms + LEAVE_SLACK_MS);
    m.fds[0] = fd;
    m.fd_count = 1;
    if (pl_link_order(helm.o.link, &m, on_ordered, NULL)) return true;
    unfreeze();
    return PL_FAIL(err, PL_E_NOMEM, "order an upgrade: out of memory");
}

/* --- standing down, and up again */

static void on_rest(struct pl_timer *t) {
    struct pl_wire_message m;
    bool rested = pl_crew_rested(helm.o.crew);
    if (helm.state != RESTING || !helm.asked_stand) return;
    if (!rested && now_ms() - helm.rested_ms < STAND_MS) {
        pl_timer_start(helm.o.timers, t, REST_LOOK_MS, on_rest);
        return;
    }
    helm.asked_stand = false;
    pl_wire_init(&m, PL_WIRE_STOOD_DOWN, sizeof m.head, 0);
    pl_link_order(helm.o.link, &m, NULL, NULL);
}

static void stand_down(void) {
    if (helm.state != ORDERED) return;
    helm.state = RESTING;
    helm.rested_ms = now_ms();
    helm.asked_stand = true;
    pl_listening_stop();
    pl_crew_rest(helm.o.crew);
    on_rest(&helm.timer);
}

static void stand_up(void) {
    int agents_fd;
    struct pl_err err = { 0 };
    pl_timer_stop(&helm.timer);
    unfreeze();
    if (!pl_listening_again(&agents_fd, &err))
        pl_log(helm.o.app->log, PL_ERROR, "listen.failed", F_STR("reason", err.msg));
    pl_crew_again(helm.o.crew, agents_fd);
}

/* --- how it ended */

static void end_text(const struct pl_wire_upgraded *u, char *out, size_t room) {
    int status = u->status;
    unsigned long long took_s = (now_ms() - helm.ordered_ms + 500) / 1000;
    if (u->words[0] != '\0')
        snprintf(out, room, "%.*s", (int)sizeof u->words, u->words);
    else if (u->error == ETIMEDOUT)
        snprintf(out, room, "it had not taken over after %llu s and was killed", took_s);
    else if (u->error != ECHILD)
        snprintf(out, room, "given up: %s", strerror((int)u->error));
    else if (WIFSIGNALED(status))
        snprintf(out, room, "it was ended by SIG%s before it had taken over", sigabbrev_np(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        snprintf(out, room, "it could not be run: wrong machine, or a library that it needs is missing");
    else
        snprintf(out, room, "it ended with status %d before it had taken over; its words are in the log",
                 WEXITSTATUS(status));
}

static void finish(size_t cut) {
    pl_timer_stop(&helm.timer);
    helm.o.left(cut);
}

static void on_empty(void *ctx) {
    (void)ctx;
    finish(0);
}

static void on_late(struct pl_timer *t) {
    (void)t;
    finish(pl_gateway_connections(helm.o.gateway));
}

static void leave(void) {
    struct pl_app *app = helm.o.app;
    if (helm.state == LEFT) return;
    if (helm.state != RESTING) pl_listening_stop(); /* the keeper has not waited for us */
    helm.state = LEFT;
    helm.open = pl_gateway_connections(helm.o.gateway);
    pl_log(app->log, PL_INFO, "upgrade.done", F_STR("to", helm.binary),
           F_INT("took_ms", now_ms() - helm.ordered_ms), F_INT("streams_left", pl_crew_streams(helm.o.crew)),
           F_INT("connections_left", helm.open));
    pl_crew_leave(helm.o.crew);
    pl_admin_leave(helm.o.admin);
    pl_timer_start(helm.o.timers, &helm.timer, (uint64_t)app->config->upgrade_drain_ms, on_late);
    pl_gateway_leave(helm.o.gateway, on_empty, NULL);
}

void pl_helm_hurry(void) {
    if (helm.state == LEFT) pl_gateway_drain(helm.o.gateway, on_empty, NULL);
}

static void ended(const struct pl_wire_upgraded *u) {
    char why[sizeof u->words + 1];
    if (u->error == 0) {
        leave();
        return;
    }
    if (!pl_helm_under_way()) return;
    if (helm.state == RESTING)
        stand_up();
    else
        unfreeze();
    end_text(u, why, sizeof why);
    failed(why);
}

void pl_helm_news(const struct pl_wire_message *m) {
    if (m->head.kind == PL_WIRE_STAND_DOWN) stand_down();
    if (m->head.kind == PL_WIRE_UPGRADED) ended(&m->upgraded);
}
