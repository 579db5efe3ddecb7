#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/child.h"
#include "keeper/keeper.h"

enum { BEAT_BYTES = 4096 };

/* The pause before the next start, by the number of crashes in the window. */
static const uint64_t backoff_ms[] = { 0, 100, 500, 2000, 10000 };
enum { BACKOFFS = sizeof backoff_ms / sizeof *backoff_ms };

struct pl_main *pl_keeper_main_with(struct pl_keeper *k, enum pl_wire_role role) {
    for (int i = 0; i < PL_KEEPER_MAINS; i++)
        if (k->mains[i].pid != 0 && k->mains[i].role == role) return &k->mains[i];
    return NULL;
}

static struct pl_main *other_than(struct pl_keeper *k, const struct pl_main *m) {
    struct pl_main *o = &k->mains[m == &k->mains[0]];
    return o->pid != 0 ? o : NULL;
}

unsigned pl_keeper_crashes(const struct pl_keeper *k) {
    unsigned count = 0;
    for (unsigned i = 0; i < k->crash_count && i < PL_KEEPER_MOST_CRASHES; i++)
        if (k->now_ms - k->crashes[i] < k->set.crash_window_ms) count++;
    return count;
}

/* A main that crashes as soon as it has the helm, or twice in the window after that, is worse than the one
 * before: that one comes back, to everything that is held here. */
static void return_to_former(struct pl_keeper *k) {
    if (k->former_exe_fd == 0) return;
    unsigned since = 0;
    for (unsigned i = 0; i < k->crash_count && i < PL_KEEPER_MOST_CRASHES; i++)
        since += k->crashes[i] >= k->helm_moved_ms && k->now_ms - k->crashes[i] < k->set.crash_window_ms;
    uint64_t age_ms = k->now_ms - k->helm_moved_ms;
    if (age_ms >= k->set.crash_window_ms || (since < 2 && age_ms >= k->set.crash_window_ms / 6)) return;
    close(k->exe_fd);
    k->exe_fd = k->former_exe_fd;
    k->former_exe_fd = 0;
    pl_keeper_say(k, PL_ERROR, "main.former", "crashes=%u", since);
}

/* The helm ended without BYE, or could not be started; `how` says it in fields. */
static void crashed(struct pl_keeper *k, const char *how) {
    k->crashes[k->crash_count % PL_KEEPER_MOST_CRASHES] = k->now_ms;
    k->crash_count++;
    unsigned recent = pl_keeper_crashes(k);                        /* this one included */
    if (k->stop == PL_STOP_OWN || k->stop == PL_STOP_LAST) return; /* by us */
    if (k->stop == PL_STOP_ASKED) {
        pl_keeper_say(k, PL_ERROR, "main.crashed", "%s restarts=%u stopping=true", how, recent - 1);
        pl_keeper_stop(k, PL_STOP_OWN, k->exit_status);
        return;
    }
    uint64_t pause = backoff_ms[recent < BACKOFFS ? recent - 1 : BACKOFFS - 1];
    if (recent >= k->set.crash_limit) {
        pl_keeper_say(k, PL_ERROR, "main.crashed", "%s restarts=%u", how, recent - 1);
        pl_keeper_say(k, PL_ERROR, "main.crash_loop", "count=%u window_ms=%llu", recent,
                      (unsigned long long)k->set.crash_window_ms);
        pl_keeper_stop(k, PL_STOP_OWN, PL_KEEPER_CRASH_LOOP_STATUS);
        return;
    }
    pl_keeper_say(k, PL_ERROR, "main.crashed", "%s restarts=%u restart_in_ms=%llu", how, recent - 1,
                  (unsigned long long)pause);
    return_to_former(k);
    k->start_main_at_ms = k->now_ms + (pause != 0 ? pause : 1);
}

static void unmap_beat(struct pl_main *m) {
    if (m->beat != NULL) munmap(m->beat, BEAT_BYTES);
    if (m->beat_fd != -1) close(m->beat_fd);
    m->beat = NULL;
    m->beat_fd = -1;
}

static bool map_beat(struct pl_main *m) {
    m->beat_fd = pl_memfd_create("plimsoll-beat", BEAT_BYTES);
    if (m->beat_fd == -1) return false;
    void *at = mmap(NULL, BEAT_BYTES, PROT_READ, MAP_SHARED, m->beat_fd, 0);
    if (at == MAP_FAILED) return false;
    m->beat = at;
    return true;
}

/* Sets pid and channel, or returns an errno with nothing left open. */
static int fork_with_channel(struct pl_keeper *k, struct pl_main *m, int exe_fd) {
    int pair[2];
    if (!map_beat(m) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1) {
        int error = errno;
        unmap_beat(m);
        return error;
    }
    pid_t pid = pl_keeper_fork_main(exe_fd, k->main_argv, pair[1]);
    int error = errno;
    close(pair[1]);
    if (pid == -1) {
        close(pair[0]);
        unmap_beat(m);
        return error;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK); /* our end; main's stays blocking */
    m->pid = pid;
    m->channel = pair[0];
    return 0;
}

/* A slot must be free; exe_fd is borrowed. A failure counts as a crash of the helm: the next try comes after
 * a pause. */
void pl_keeper_start_main(struct pl_keeper *k, int exe_fd, enum pl_wire_role role) {
    struct pl_main *m = k->mains[0].pid == 0 ? &k->mains[0] : &k->mains[1];
    memset(m, 0, sizeof *m);
    m->exe_fd = m->channel = m->beat_fd = -1;
    int error = fork_with_channel(k, m, exe_fd);
    if (error != 0) {
        char how[48];
        snprintf(how, sizeof how, "start_errno=%d", error);
        if (role == PL_ROLE_HELM) crashed(k, how);
        return;
    }
    m->id = ++k->last_main_id;
    m->role = role;
    m->beat_ms = k->now_ms;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) k->generations[i].news[m - k->mains] = 0;
    pl_keeper_say(k, PL_INFO, "keeper.main_started", "main=%llu pid=%d role=%d", (unsigned long long)m->id,
                  (int)m->pid, (int)role);
}

void pl_keeper_give_helm(struct pl_keeper *k, struct pl_main *to) {
    struct pl_main *from = pl_keeper_main_with(k, PL_ROLE_HELM);
    if (from != NULL && from != to) {
        from->role = PL_ROLE_LEAVING;
        from->leave_by_ms = k->now_ms + (from->leave_ms != 0 ? from->leave_ms : k->set.leave_ms);
        k->upgraded.error = 0;
        k->upgraded.status = 0;
        memset(k->upgraded.words, 0, sizeof k->upgraded.words);
        from->news |= PL_NEWS_UPGRADED;
    }
    to->role = PL_ROLE_HELM;
    to->news = (to->news & ~(unsigned)PL_NEWS_STAND_DOWN) | PL_NEWS_HELM;
    if (to->exe_fd != -1) {
        if (k->former_exe_fd != 0) close(k->former_exe_fd);
        k->former_exe_fd = k->exe_fd;
        k->helm_moved_ms = k->now_ms;
        k->exe_fd = to->exe_fd;
        to->exe_fd = -1;
    }
    k->upgrade = PL_UPGRADE_NONE;
    pl_keeper_say(k, PL_INFO, "keeper.helm_moved", "main=%llu pid=%d", (unsigned long long)to->id,
                  (int)to->pid);
}

/* The old main goes on: it gets HELM again if it was told to stand down. */
void pl_keeper_fail_upgrade(struct pl_keeper *k, int error, int status) {
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    struct pl_main *helm = pl_keeper_main_with(k, PL_ROLE_HELM);
    if (k->upgrade == PL_UPGRADE_NONE) return;
    if (candidate != NULL) kill(candidate->pid, SIGKILL);
    k->upgraded.error = (uint32_t)error;
    k->upgraded.status = status;
    if (error != ECHILD) /* it has said none: it was cut off */
        memset(k->upgraded.words, 0, sizeof k->upgraded.words);
    if (helm != NULL) {
        if (k->upgrade == PL_UPGRADE_STANDING_DOWN)
            helm->news = (helm->news & ~(unsigned)PL_NEWS_STAND_DOWN) | PL_NEWS_HELM;
        helm->news |= PL_NEWS_UPGRADED;
    }
    k->upgrade = PL_UPGRADE_NONE;
    pl_keeper_say(k, PL_INFO, "keeper.upgrade_failed", "errno=%d wait_status=0x%x", error, (unsigned)status);
}

static void helm_ended(struct pl_keeper *k, bool bye, const char *how, int status) {
    if (bye) {
        pl_keeper_stop(k, PL_STOP_OWN, k->exit_status);
        return;
    }
    /* A candidate that was about to take over does. Otherwise it is not trusted with a start it did not ask
     * for. */
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    if (candidate != NULL && k->upgrade == PL_UPGRADE_STANDING_DOWN && k->stop == PL_STOP_NONE) {
        pl_keeper_give_helm(k, candidate);
        return;
    }
    pl_keeper_fail_upgrade(k, ECHILD, status);
    crashed(k, how);
}

/* The process is reaped and its channel was read to the end. */
void pl_keeper_main_ended(struct pl_keeper *k, struct pl_main *m, int status) {
    char how[32];
    enum pl_wire_role role = m->role;
    pl_keeper_end_text(status, how);
    pl_keeper_say(k, PL_INFO, "keeper.main_exited", "main=%llu pid=%d role=%d %s", (unsigned long long)m->id,
                  (int)m->pid, (int)role, how);
    if (m->channel != -1) close(m->channel);
    if (m->exe_fd != -1) close(m->exe_fd);
    if (m->has_reply) pl_wire_close_fds(&m->reply);
    unmap_beat(m);
    k->exited_main_id = m->id;
    if (role == PL_ROLE_HELM) k->helm_hung = m->kill_at_ms != 0;
    m->pid = 0;
    m->channel = m->exe_fd = -1;
    struct pl_main *other = other_than(k, m);
    if (other != NULL) other->news |= PL_NEWS_MAIN_EXITED;
    if (role == PL_ROLE_CANDIDATE) pl_keeper_fail_upgrade(k, ECHILD, status);
    if (role == PL_ROLE_HELM) helm_ended(k, m->said_bye, how, status);
}

static void hung(struct pl_keeper *k, struct pl_main *m, const char *why) {
    pl_keeper_say(k, PL_ERROR, "main.hung", "silent_ms=%llu pid=%d why=%s",
                  (unsigned long long)(k->now_ms - m->beat_ms), (int)m->pid, why);
    kill(m->pid, SIGABRT);
    m->kill_at_ms = k->now_ms + k->set.abort_ms;
}

/* Why it counts as hung, or NULL. */
static const char *silence(const struct pl_keeper *k, const struct pl_main *m) {
    uint64_t silent_ms = k->now_ms - m->beat_ms;
    if (m->said_bye) return NULL; /* it has left its loop: leave_by_ms counts */
    if (m->closed_ms != 0 && k->now_ms - m->closed_ms >= k->set.abort_ms) return "channel_closed";
    if (!m->greeted) return silent_ms >= k->set.hello_ms ? "no_hello" : NULL;
    return k->set.hang_ms != 0 && silent_ms >= k->set.hang_ms ? "no_heartbeat" : NULL;
}

static void look_at(struct pl_keeper *k, struct pl_main *m, bool we_slept) {
    uint64_t beats = atomic_load_explicit(&m->beat->beats, memory_order_relaxed);
    if (beats != m->beats || we_slept) {
        m->beats = beats;
        m->beat_ms = k->now_ms;
    }
    if (m->kill_at_ms != 0) {
        if (k->now_ms >= m->kill_at_ms) kill(m->pid, SIGKILL);
        return;
    }
    if (m->channel == -1 && m->closed_ms == 0) m->closed_ms = k->now_ms;
    const char *why = silence(k, m);
    if (why != NULL) hung(k, m, why);
    if (m->leave_by_ms != 0 && k->now_ms >= m->leave_by_ms) kill(m->pid, SIGKILL);
}

/* How often the heartbeat is looked at. */
static uint64_t look_every_ms(const struct pl_keeper *k) {
    uint64_t every = k->set.hang_ms / 8;
    if (every == 0 || every > 1000) every = 1000;
    return every < 20 ? 20 : every;
}

static void look_at_upgrade(struct pl_keeper *k) {
    if (k->upgrade == PL_UPGRADE_NONE || k->now_ms < k->upgrade_by_ms) return;
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    if (k->upgrade == PL_UPGRADE_STANDING_DOWN && candidate != NULL) {
        pl_keeper_give_helm(k, candidate);
    } else {
        pl_keeper_fail_upgrade(k, ETIMEDOUT, 0);
    }
}

static void take_over_stop(struct pl_keeper *k) {
    struct pl_main *helm = pl_keeper_main_with(k, PL_ROLE_HELM);
    pl_keeper_say(k, PL_WARN, "main.stopping", "deadline_ms=0 why=deadline");
    if (helm != NULL) kill(helm->pid, SIGKILL);
    pl_keeper_stop(k, PL_STOP_OWN, k->exit_status);
}

void pl_keeper_look_at_mains(struct pl_keeper *k) {
    /* If we did not run ourselves (stopped, frozen, starved), main's silence proves nothing. */
    bool we_slept = k->now_ms - k->looked_ms > 2 * look_every_ms(k) + 100;
    k->looked_ms = k->now_ms;
    for (int i = 0; i < PL_KEEPER_MAINS; i++)
        if (k->mains[i].pid != 0) look_at(k, &k->mains[i], we_slept);
    look_at_upgrade(k);
    if (k->start_main_at_ms != 0 && k->now_ms >= k->start_main_at_ms && k->stop == PL_STOP_NONE &&
        (k->mains[0].pid == 0 || k->mains[1].pid == 0)) {
        k->start_main_at_ms = 0;
        pl_keeper_start_main(k, k->exe_fd, PL_ROLE_HELM);
    }
    if (k->stop == PL_STOP_ASKED && k->now_ms >= k->stop_by_ms) take_over_stop(k);
}

/* What is over was acted upon; what it waits for then comes as a signal, or is looked at in time. */
static uint64_t if_ahead(const struct pl_keeper *k, uint64_t at) { return at > k->now_ms ? at : 0; }

static uint64_t main_deadline(const struct pl_keeper *k, const struct pl_main *m) {
    uint64_t at = pl_keeper_sooner(if_ahead(k, m->kill_at_ms), if_ahead(k, m->leave_by_ms));
    at = pl_keeper_sooner(at, if_ahead(k, m->rest_until_ms));
    if (!m->greeted) at = pl_keeper_sooner(at, if_ahead(k, m->beat_ms + k->set.hello_ms));
    if (m->closed_ms != 0) at = pl_keeper_sooner(at, if_ahead(k, m->closed_ms + k->set.abort_ms));
    return at;
}

uint64_t pl_keeper_mains_deadline(const struct pl_keeper *k) {
    uint64_t at = k->now_ms + look_every_ms(k);
    if (k->stop == PL_STOP_NONE) at = pl_keeper_sooner(at, if_ahead(k, k->start_main_at_ms));
    if (k->stop == PL_STOP_ASKED) at = pl_keeper_sooner(at, k->stop_by_ms);
    if (k->upgrade != PL_UPGRADE_NONE) at = pl_keeper_sooner(at, k->upgrade_by_ms);
    for (int i = 0; i < PL_KEEPER_MAINS; i++)
        if (k->mains[i].pid != 0) at = pl_keeper_sooner(at, main_deadline(k, &k->mains[i]));
    return at;
}
