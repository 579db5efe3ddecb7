/* crew/link.h - main's end of the channel to the keeper (base/wire.h).
 *
 * Two ways to speak. While main starts, pl_link_ask waits for its reply: there is nothing else to do yet.
 * Once pl_link_run was called everything is asynchronous on the loop: pl_link_order takes a message and a
 * callback, and the one reply comes back to it. Orders that the socket has no room for wait in a queue here,
 * in their order. The keeper's end of the channel closing means that the keeper is dead: main is about to be
 * ended by PDEATHSIG.
 */
#ifndef PL_CREW_LINK_H
#define PL_CREW_LINK_H
#include <stdbool.h>
#include <uv.h>

#include "base/err.h"
#include "base/wire.h"

/* `reply` is borrowed; descriptors in it are the callback's: take them (set fd_count = 0) or they are closed.
 */
typedef void pl_link_reply(void *ctx, struct pl_wire_message *reply);
typedef void pl_link_news(void *ctx, struct pl_wire_message *news);

struct pl_link_waiter;
struct pl_link_letter;
struct pl_link {
    int fd;
    uint32_t serial;
    uv_poll_t poll;
    bool running;
    struct pl_link_waiter *waiters; /* orders sent or queued, without a reply yet */
    struct pl_link_letter *queue, **queue_end;
    struct pl_wire_message *early; /* news that came while a reply was waited for; owned */
    size_t early_count;
    pl_link_news *news;
    void *news_ctx;
};

/* `fd` is borrowed for the link's life. */
void pl_link_init(struct pl_link *l, int fd);
/* Sends and waits. True: `answer` holds the expected kind, descriptors are the caller's. REFUSED becomes an
 * error. */
bool pl_link_ask(struct pl_link *l, struct pl_wire_message *q, enum pl_wire_kind expected,
                 struct pl_wire_message *answer, struct pl_err *err);
/* From here on the loop reads. News that came early is delivered by the first turn, never from inside: whom
 * it is about may have to be made first. */
bool pl_link_run(struct pl_link *l, uv_loop_t *loop, pl_link_news *news, void *ctx, struct pl_err *err);
/* `q` is copied, its descriptors are duplicated: the caller keeps its own. `done` may be NULL. */
bool pl_link_order(struct pl_link *l, const struct pl_wire_message *q, pl_link_reply *done, void *ctx);
#endif
