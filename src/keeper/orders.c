#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "keeper/keeper.h"

static void refuse(struct pl_wire_message *m, uint32_t serial, int error) {
    pl_wire_init(m, PL_WIRE_REFUSED, sizeof m->refused, serial);
    m->refused.error = (uint32_t)error;
}

/* Keeps a copy that owns its descriptors. */
static void keep_reply(struct pl_main *m, const struct pl_wire_message *answer) {
    memcpy(m->reply.bytes, answer->bytes, answer->head.length);
    m->reply.fd_count = 0;
    for (unsigned i = 0; i < answer->fd_count; i++) {
        int fd = fcntl(answer->fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd == -1) {
            int error = errno;
            pl_wire_close_fds(&m->reply);
            refuse(&m->reply, answer->head.serial, error);
            break;
        }
        m->reply.fds[m->reply.fd_count++] = fd;
    }
    m->has_reply = true;
}

/* False: no room. A channel that has no other side any more takes everything. */
static bool tell(struct pl_main *m, const struct pl_wire_message *what) {
    m->blocked = pl_wire_send(m->channel, what) == PL_WIRE_AGAIN;
    if (!m->blocked) m->sent++;
    return !m->blocked;
}

/* If the socket is full it waits in the main's one place for that. Descriptors in `answer` are borrowed. */
static void reply(struct pl_main *m, const struct pl_wire_message *answer) {
    if (!tell(m, answer)) keep_reply(m, answer);
}

static void reply_error(struct pl_main *m, uint32_t serial, int error) {
    struct pl_wire_message answer;
    if (error == 0) {
        pl_wire_init(&answer, PL_WIRE_DONE, sizeof answer.head, serial);
    } else {
        refuse(&answer, serial, error);
    }
    reply(m, &answer);
}

static void on_hello(struct pl_keeper *k, struct pl_main *m, const struct pl_wire_message *q) {
    struct pl_wire_message answer;
    if (q->hello.oldest > PL_WIRE_VERSION || q->hello.newest < PL_WIRE_OLDEST) {
        reply_error(m, q->head.serial, EPROTONOSUPPORT);
        return;
    }
    struct pl_main *other = &k->mains[m == &k->mains[0]];
    m->greeted = true;
    m->beat_ms = k->now_ms;
    pl_wire_init(&answer, PL_WIRE_WELCOME, sizeof answer.welcome, q->head.serial);
    answer.welcome.boot = k->boot;
    answer.welcome.main_id = m->id;
    answer.welcome.other_main_id = other->pid != 0 ? other->id : 0;
    answer.welcome.role = m->role;
    answer.welcome.crashes = pl_keeper_crashes(k);
    answer.welcome.keeper_pid = (uint32_t)getpid();
    answer.welcome.hang_ms = (uint32_t)k->set.hang_ms;
    answer.welcome.after_hang = k->helm_hung;
    answer.fds[0] = m->beat_fd;
    answer.fd_count = 1;
    reply(m, &answer);
}

static void list_generation(struct pl_keeper *k, struct pl_main *m, const struct pl_wire_message *q) {
    struct pl_generation *next = NULL;
    struct pl_wire_message answer;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++) {
        struct pl_generation *g = &k->generations[i];
        if (g->exit.state == PL_GEN_FREE || g->exit.generation <= q->list.after) continue;
        if (next == NULL || g->exit.generation < next->exit.generation) next = g;
    }
    if (next == NULL) {
        pl_wire_init(&answer, PL_WIRE_LIST_END, sizeof answer.head, q->head.serial);
        reply(m, &answer);
        return;
    }
    pl_wire_init(&answer, PL_WIRE_ITEM, offsetof(struct pl_wire_item, note) + next->note_bytes,
                 q->head.serial);
    answer.item.generation = next->exit.generation;
    answer.item.recipe_hash = next->order.recipe_hash;
    answer.item.age_ms = k->now_ms - next->started_ms;
    answer.item.exit = next->exit;
    answer.item.stopping = next->stopping;
    answer.item.note_bytes = next->note_bytes;
    memcpy(answer.item.name, next->order.name, sizeof answer.item.name);
    memcpy(answer.item.socket_name, next->order.socket_name, sizeof answer.item.socket_name);
    memcpy(answer.item.note, next->note, next->note_bytes);
    answer.fds[0] = next->page_fd;
    answer.fds[1] = next->ring_fd;
    answer.fd_count = 2;
    reply(m, &answer);
}

static void list_held(struct pl_keeper *k, struct pl_main *m, const struct pl_wire_message *q) {
    struct pl_held *next = NULL;
    struct pl_wire_message answer;
    for (int i = 0; i < PL_KEEPER_HELD; i++) {
        struct pl_held *h = &k->held[i];
        if (h->ordinal > q->list.after && (next == NULL || h->ordinal < next->ordinal)) next = h;
    }
    if (next == NULL) {
        pl_wire_init(&answer, PL_WIRE_LIST_END, sizeof answer.head, q->head.serial);
    } else {
        pl_wire_init(&answer, PL_WIRE_HELD, sizeof answer.hold, q->head.serial);
        answer.hold.ordinal = next->ordinal;
        memcpy(answer.hold.name, next->name, sizeof answer.hold.name);
        answer.fds[0] = next->fd;
        answer.fd_count = 1;
    }
    reply(m, &answer);
}

static struct pl_held *find_held(struct pl_keeper *k, const char *name) {
    for (int i = 0; i < PL_KEEPER_HELD; i++)
        if (k->held[i].ordinal != 0 && strcmp(k->held[i].name, name) == 0) return &k->held[i];
    return NULL;
}

static struct pl_held *free_held(struct pl_keeper *k) {
    for (int i = 0; i < PL_KEEPER_HELD; i++)
        if (k->held[i].ordinal == 0) return &k->held[i];
    return NULL;
}

int pl_keeper_hold(struct pl_keeper *k, const char *name, int fd) {
    struct pl_held *slot = find_held(k, name);
    if (slot != NULL) close(slot->fd);
    if (slot != NULL) memset(slot, 0, sizeof *slot);
    if (fd == -1) return slot != NULL ? 0 : ENOENT;
    if (slot == NULL) slot = free_held(k);
    if (slot == NULL) {
        close(fd);
        return ENOSPC;
    }
    slot->ordinal = ++k->last_held;
    slot->fd = fd;
    strncpy(slot->name, name, sizeof slot->name - 1);
    return 0;
}

static int on_hold(struct pl_keeper *k, struct pl_wire_message *q) {
    if (memchr(q->hold.name, 0, sizeof q->hold.name) == NULL || q->hold.name[0] == 0 || q->fd_count > 1)
        return EINVAL;
    int fd = q->fd_count == 1 ? q->fds[0] : -1;
    q->fd_count = 0;
    return pl_keeper_hold(k, q->hold.name, fd);
}

static void on_spawn(struct pl_keeper *k, struct pl_main *m, struct pl_wire_message *q) {
    struct pl_wire_message answer;
    struct pl_generation *g = NULL;
    unsigned wanted = 1;
    if (q->spawn.flags & PL_SPAWN_LISTENER) wanted++;
    if (q->spawn.flags & PL_SPAWN_CONTROL) wanted++;
    int error = q->fd_count == wanted ? 0 : EINVAL;
    if ((q->spawn.flags & PL_SPAWN_CONTROL) && (q->spawn.flags & PL_SPAWN_ZYGOTE)) error = EINVAL;
    if (k->stop == PL_STOP_OWN || k->stop == PL_STOP_LAST) error = ESHUTDOWN;
    if (m->role != PL_ROLE_HELM) error = EPERM;
    if (error == 0) error = pl_keeper_spawn(k, &q->spawn, q->fds, &g);
    if (error != 0) {
        reply_error(m, q->head.serial, error);
        return;
    }
    pl_wire_init(&answer, PL_WIRE_SPAWNED, sizeof answer.spawned, q->head.serial);
    answer.spawned.generation = g->exit.generation;
    answer.spawned.pid = g->exit.pid;
    answer.fds[0] = g->page_fd;
    answer.fds[1] = g->ring_fd;
    answer.fd_count = 2;
    reply(m, &answer);
}

static int on_signal(struct pl_keeper *k, const struct pl_wire_message *q) {
    struct pl_generation *g = pl_keeper_find(k, q->signal.generation);
    if (g == NULL) return ENOENT;
    if (q->signal.signal > 64) return EINVAL;
    if (q->signal.signal == 0) {
        pl_keeper_announce(g, PL_NEWS_WITHDRAWN);
        return 0;
    }
    return pl_keeper_signal(k, g, (int)q->signal.signal, q->signal.kill_ms);
}

static int on_note(struct pl_keeper *k, const struct pl_wire_message *q) {
    struct pl_generation *g = pl_keeper_find(k, q->note.generation);
    if (g == NULL) return ENOENT;
    size_t carried = q->head.length - offsetof(struct pl_wire_note, note);
    if (q->note.note_bytes > PL_WIRE_NOTE_BYTES || q->note.note_bytes > carried) return EINVAL;
    memcpy(g->note, q->note.note, q->note.note_bytes);
    g->note_bytes = q->note.note_bytes;
    return 0;
}

static int on_forget(struct pl_keeper *k, const struct pl_wire_message *q) {
    struct pl_generation *g = pl_keeper_find(k, q->forget.generation);
    if (g == NULL) return ENOENT;
    if (g->exit.state != PL_GEN_GONE) return EBUSY;
    pl_keeper_forget(g);
    return 0;
}

static int on_upgrade(struct pl_keeper *k, struct pl_main *m, struct pl_wire_message *q) {
    if (q->fd_count != 1) return EINVAL;
    if (k->upgrade != PL_UPGRADE_NONE || k->stop != PL_STOP_NONE) return EBUSY;
    if (k->mains[0].pid != 0 && k->mains[1].pid != 0) return EBUSY;
    int exe = q->fds[0];
    q->fd_count = 0;
    pl_keeper_start_main(k, exe, PL_ROLE_CANDIDATE);
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    if (candidate == NULL) {
        close(exe);
        return ECHILD;
    }
    candidate->exe_fd = exe;
    m->leave_ms = q->upgrade.leave_ms;
    memset(k->upgraded.words, 0, sizeof k->upgraded.words);
    k->upgrade = PL_UPGRADE_STARTING;
    k->upgrade_by_ms = k->now_ms + (q->upgrade.take_ms != 0 ? q->upgrade.take_ms : k->set.take_ms);
    return 0;
}

static int on_take(struct pl_keeper *k, struct pl_main *m) {
    struct pl_main *helm = pl_keeper_main_with(k, PL_ROLE_HELM);
    if (m->role != PL_ROLE_CANDIDATE || k->upgrade != PL_UPGRADE_STARTING) return EPERM;
    if (helm == NULL) return EAGAIN;
    helm->news |= PL_NEWS_STAND_DOWN;
    k->upgrade = PL_UPGRADE_STANDING_DOWN;
    k->upgrade_by_ms = k->now_ms + k->set.stand_ms;
    return 0;
}

static int on_stood_down(struct pl_keeper *k, struct pl_main *m) {
    struct pl_main *candidate = pl_keeper_main_with(k, PL_ROLE_CANDIDATE);
    if (m->role != PL_ROLE_HELM || k->upgrade != PL_UPGRADE_STANDING_DOWN || candidate == NULL) return EPERM;
    pl_keeper_give_helm(k, candidate);
    return 0;
}

/* It may clean up for as long as a stop may take. */
static void on_bye(struct pl_keeper *k, struct pl_main *m, const struct pl_wire_message *q) {
    m->said_bye = true;
    m->leave_by_ms = pl_keeper_sooner(m->leave_by_ms, k->now_ms + k->set.stop_ms);
    if (m->role == PL_ROLE_CANDIDATE) memcpy(k->upgraded.words, q->bye.words, sizeof k->upgraded.words);
    if (m->role == PL_ROLE_HELM && k->stop != PL_STOP_OWN && k->stop != PL_STOP_LAST)
        k->exit_status = (int)(q->bye.status & 255);
}

/* Every order changes something: only the helm gives orders. */
static int on_order(struct pl_keeper *k, struct pl_main *m, struct pl_wire_message *q) {
    if (m->role != PL_ROLE_HELM) return EPERM;
    switch (q->head.kind) {
    case PL_WIRE_SIGNAL:
        return on_signal(k, q);
    case PL_WIRE_NOTE:
        return on_note(k, q);
    case PL_WIRE_HOLD:
        return on_hold(k, q);
    case PL_WIRE_FORGET:
        return on_forget(k, q);
    case PL_WIRE_UPGRADE:
        return on_upgrade(k, m, q);
    case PL_WIRE_STOOD_DOWN:
        return on_stood_down(k, m);
    case PL_WIRE_TELL:
        pl_keeper_notify(k, q->tell.words, strnlen(q->tell.words, sizeof q->tell.words));
        return 0;
    default:
        return ENOSYS;
    }
}

/* Anybody may ask, and may say goodbye. */
static void on_request(struct pl_keeper *k, struct pl_main *m, struct pl_wire_message *q) {
    if (!m->greeted && q->head.kind != PL_WIRE_HELLO && q->head.kind != PL_WIRE_BYE) {
        reply_error(m, q->head.serial, EPROTO);
        return;
    }
    switch (q->head.kind) {
    case PL_WIRE_HELLO:
        on_hello(k, m, q);
        break;
    case PL_WIRE_LIST:
        if (q->list.what == PL_LIST_HELD)
            list_held(k, m, q);
        else
            list_generation(k, m, q);
        break;
    case PL_WIRE_TAKE:
        reply_error(m, q->head.serial, on_take(k, m));
        break;
    case PL_WIRE_BYE:
        on_bye(k, m, q);
        reply_error(m, q->head.serial, 0);
        break;
    case PL_WIRE_SPAWN:
        on_spawn(k, m, q);
        break;
    default:
        reply_error(m, q->head.serial, on_order(k, m, q));
        break;
    }
}

static bool send_waiting_reply(struct pl_main *m) {
    if (!m->has_reply) return true;
    if (!tell(m, &m->reply)) return false;
    pl_wire_close_fds(&m->reply);
    m->has_reply = false;
    return true;
}

/* At most this many requests a turn: a loud main must not keep the workers' output waiting. */
enum { REQUESTS_A_TURN = 64 };

void pl_keeper_serve(struct pl_keeper *k, struct pl_main *m) {
    static struct pl_wire_message q;
    for (int i = 0; i < REQUESTS_A_TURN && m->channel != -1; i++) {
        if (!send_waiting_reply(m)) return;
        enum pl_wire_result r = pl_wire_receive(m->channel, &q);
        if (r == PL_WIRE_AGAIN) return;
        if (r == PL_WIRE_CLOSED) {
            close(m->channel);
            m->channel = -1;
            return;
        }
        if (r == PL_WIRE_BAD) {
            pl_keeper_say(k, PL_INFO, "keeper.wire_bad", "main=%llu", (unsigned long long)m->id);
            reply_error(m, 0, EBADMSG);
            continue;
        }
        on_request(k, m, &q);
        pl_wire_close_fds(&q);
    }
}

static bool tell_generation(struct pl_main *m, struct pl_generation *g, unsigned *bits) {
    static const struct {
        unsigned bit;
        enum pl_wire_kind kind;
    } order[] = { { PL_NEWS_RUNNING, PL_WIRE_RUNNING },
                  { PL_NEWS_WITHDRAWN, PL_WIRE_WITHDRAWN },
                  { PL_NEWS_STUCK, PL_WIRE_STUCK },
                  { PL_NEWS_EXITED, PL_WIRE_EXITED },
                  { PL_NEWS_GONE, PL_WIRE_GONE } };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct pl_wire_message news;
        if ((*bits & order[i].bit) == 0) continue;
        pl_wire_init(&news, order[i].kind, sizeof news.exit, 0);
        struct pl_wire_head head = news.head;
        news.exit = g->exit;
        news.head = head;
        if (!tell(m, &news)) return false;
        *bits &= ~order[i].bit;
    }
    return true;
}

static bool tell_main(struct pl_keeper *k, struct pl_main *m, unsigned bit) {
    struct pl_wire_message news;
    switch (bit) {
    case PL_NEWS_MAIN_EXITED:
        pl_wire_init(&news, PL_WIRE_MAIN_EXITED, sizeof news.main_exited, 0);
        news.main_exited.main_id = k->exited_main_id;
        break;
    case PL_NEWS_HELM:
        pl_wire_init(&news, PL_WIRE_HELM, sizeof news.head, 0);
        break;
    case PL_NEWS_STAND_DOWN:
        pl_wire_init(&news, PL_WIRE_STAND_DOWN, sizeof news.head, 0);
        break;
    case PL_NEWS_UPGRADED:
        pl_wire_init(&news, PL_WIRE_UPGRADED, sizeof news.upgraded, 0);
        news.upgraded.error = k->upgraded.error;
        news.upgraded.status = k->upgraded.status;
        memcpy(news.upgraded.words, k->upgraded.words, sizeof news.upgraded.words);
        break;
    default:
        pl_wire_init(&news, PL_WIRE_STOP, sizeof news.stop, 0);
        news.stop.deadline_ms = (uint32_t)(k->stop_by_ms > k->now_ms ? k->stop_by_ms - k->now_ms : 0);
        break;
    }
    if (!tell(m, &news)) return false;
    m->news &= ~bit;
    return true;
}

void pl_keeper_send_news(struct pl_keeper *k, struct pl_main *m) {
    if (m->pid == 0 || m->channel == -1 || !m->greeted || m->blocked) return;
    for (unsigned bit = PL_NEWS_MAIN_EXITED; bit <= PL_NEWS_STOP; bit <<= 1)
        if ((m->news & bit) != 0 && !tell_main(k, m, bit)) return;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (!tell_generation(m, &k->generations[i], &k->generations[i].news[m - k->mains])) return;
}
