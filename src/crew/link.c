#include "crew/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { MAX_EARLY = 256 };

struct pl_link_waiter {
    struct pl_link_waiter *next;
    uint32_t serial;
    pl_link_reply *done;
    void *ctx;
};

/* A message that waits for room, cut to its length. */
struct pl_link_letter {
    struct pl_link_letter *next;
    int fds[PL_WIRE_MAX_FDS];
    unsigned fd_count;
    uint32_t length;
    uint8_t bytes[];
};

void pl_link_init(struct pl_link *l, int fd) {
    *l = (struct pl_link){ .fd = fd };
    l->queue_end = &l->queue;
}

static void keep_early(struct pl_link *l, struct pl_wire_message *m) {
    struct pl_wire_message *more =
        l->early_count < MAX_EARLY ? realloc(l->early, (l->early_count + 1) * sizeof *more) : NULL;
    if (more == NULL) {
        pl_wire_close_fds(m);
        return;
    }
    l->early = more;
    l->early[l->early_count++] = *m;
}

bool pl_link_ask(struct pl_link *l, struct pl_wire_message *q, enum pl_wire_kind expected,
                 struct pl_wire_message *answer, struct pl_err *err) {
    q->head.serial = ++l->serial;
    if (pl_wire_send(l->fd, q) != PL_WIRE_OK) return PL_FAIL(err, PL_E_SYS, "the keeper does not listen");
    for (;;) {
        struct pollfd p = { .fd = l->fd, .events = POLLIN };
        if (poll(&p, 1, -1) == -1 && errno != EINTR) return PL_FAIL_SYS(err, errno, "wait for the keeper");
        enum pl_wire_result r = pl_wire_receive(l->fd, answer);
        if (r == PL_WIRE_AGAIN || r == PL_WIRE_BAD) continue;
        if (r == PL_WIRE_CLOSED) return PL_FAIL(err, PL_E_SYS, "the keeper is gone");
        if (answer->head.serial == l->serial) break;
        keep_early(l, answer);
    }
    if (answer->head.kind == expected) return true;
    int refused = answer->head.kind == PL_WIRE_REFUSED ? (int)answer->refused.error : EPROTO;
    pl_wire_close_fds(answer);
    return PL_FAIL_SYS(err, refused, "keeper refused %s", pl_wire_kind_name(q->head.kind));
}

static void answer_waiter(struct pl_link *l, struct pl_wire_message *m) {
    for (struct pl_link_waiter **at = &l->waiters; *at != NULL; at = &(*at)->next) {
        struct pl_link_waiter *w = *at;
        if (w->serial != m->head.serial) continue;
        *at = w->next;
        if (w->done != NULL) w->done(w->ctx, m);
        free(w);
        break;
    }
    pl_wire_close_fds(m);
}

static void deliver(struct pl_link *l, struct pl_wire_message *m) {
    if (m->head.serial != 0) {
        answer_waiter(l, m);
        return;
    }
    l->news(l->news_ctx, m);
    pl_wire_close_fds(m);
}

static void drop_letter(struct pl_link_letter *letter) {
    for (unsigned i = 0; i < letter->fd_count; i++) close(letter->fds[i]);
    free(letter);
}

/* False: no room yet. */
static bool send_letter(struct pl_link *l, const struct pl_link_letter *letter) {
    static struct pl_wire_message m; /* 8 KiB: not on the stack of a callback, and the loop has one thread */
    memcpy(m.bytes, letter->bytes, letter->length);
    memcpy(m.fds, letter->fds, sizeof m.fds);
    m.fd_count = letter->fd_count;
    return pl_wire_send(l->fd, &m) != PL_WIRE_AGAIN;
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct pl_link *l) {
    bool writes = l->queue != NULL || l->early_count > 0; /* what came early waits for the next turn only */
    uv_poll_start(&l->poll, UV_READABLE | (writes ? UV_WRITABLE : 0), on_poll);
}

static void flush(struct pl_link *l) {
    while (l->queue != NULL && send_letter(l, l->queue)) {
        struct pl_link_letter *sent = l->queue;
        l->queue = sent->next;
        if (l->queue == NULL) l->queue_end = &l->queue;
        drop_letter(sent);
    }
}

static void deliver_early(struct pl_link *l) {
    for (size_t i = 0; i < l->early_count; i++) deliver(l, &l->early[i]);
    free(l->early);
    l->early = NULL;
    l->early_count = 0;
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    static struct pl_wire_message m;
    struct pl_link *l = poll->data;
    (void)status;
    (void)events;
    deliver_early(l);
    flush(l);
    while (l->running) {
        enum pl_wire_result r = pl_wire_receive(l->fd, &m);
        if (r == PL_WIRE_BAD) continue;
        if (r == PL_WIRE_AGAIN) break;
        if (r == PL_WIRE_CLOSED) {
            uv_poll_stop(&l->poll);
            l->running = false;
            return;
        }
        deliver(l, &m);
    }
    if (l->running) watch(l);
}

bool pl_link_run(struct pl_link *l, uv_loop_t *loop, pl_link_news *news, void *ctx, struct pl_err *err) {
    l->news = news;
    l->news_ctx = ctx;
    if (fcntl(l->fd, F_SETFL, O_NONBLOCK) == -1) return PL_FAIL_SYS(err, errno, "channel to the keeper");
    int r = uv_poll_init(loop, &l->poll, l->fd);
    if (r != 0) return PL_FAIL_SYS(err, -r, "watch the channel to the keeper");
    l->poll.data = l;
    l->running = true;
    watch(l);
    return true;
}

bool pl_link_order(struct pl_link *l, const struct pl_wire_message *q, pl_link_reply *done, void *ctx) {
    PL_ASSERT(l->running);
    struct pl_link_waiter *w = malloc(sizeof *w);
    struct pl_link_letter *letter = malloc(sizeof *letter + q->head.length);
    if (w == NULL || letter == NULL) {
        free(w);
        free(letter);
        return false;
    }
    *w = (struct pl_link_waiter){ .next = l->waiters, .serial = ++l->serial, .done = done, .ctx = ctx };
    l->waiters = w;
    letter->next = NULL;
    letter->length = q->head.length;
    memcpy(letter->bytes, q->bytes, q->head.length);
    struct pl_wire_head head = q->head;
    head.serial = w->serial;
    memcpy(letter->bytes, &head, sizeof head);
    letter->fd_count = q->fd_count;
    for (unsigned i = 0; i < q->fd_count; i++) letter->fds[i] = fcntl(q->fds[i], F_DUPFD_CLOEXEC, 0);
    *l->queue_end = letter;
    l->queue_end = &letter->next;
    flush(l);
    watch(l);
    return true;
}
