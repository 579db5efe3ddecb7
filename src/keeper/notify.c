/* notify.c - the service manager's side of sd_notify(3): one datagram a message on the socket that
 * NOTIFY_SOCKET names. No library: that is the whole protocol. Main knows what to say, and says it through us
 * (PL_WIRE_TELL), because we are the process that the manager started: with NotifyAccess=main it believes
 * nobody else, and no worker can claim to speak for the whole. For the same reason MAINPID is never told:
 * `plimsoll serve` becomes the keeper by exec, and an upgrade replaces main, not us. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/keeper.h"

void pl_keeper_notify_open(struct pl_keeper *k) {
    struct pl_notify *n = &k->notify;
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path != NULL ? strlen(path) : 0;
    n->fd = -1;
    if (length > 1 && length < sizeof n->to.sun_path && (path[0] == '/' || path[0] == '@')) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        n->to.sun_family = AF_UNIX;
        memcpy(n->to.sun_path, path, length);
        if (path[0] == '@') n->to.sun_path[0] = '\0'; /* an abstract name has no NUL at its end */
        n->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] == '/'));
    } else if (path != NULL) {
        pl_keeper_say(k, PL_WARN, "keeper.notify", "error=bad_socket_name");
    }
    unsetenv("NOTIFY_SOCKET");
}

static bool send_text(struct pl_keeper *k) {
    struct pl_notify *n = &k->notify;
    ssize_t sent = sendto(n->fd, n->text, n->waiting, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)(const void *)&n->to, n->to_bytes);
    if (sent != -1) return true;
    if (errno == EAGAIN || errno == ENOBUFS || errno == EINTR) return false; /* it is slow: later */
    pl_keeper_say(k, PL_WARN, "keeper.notify", "errno=%d", errno);
    return true;
}

/* READY=1 must not be lost to a STATUS= that comes while it waits: lines are put behind each other while
 * there is room, and what comes then is let go. */
void pl_keeper_notify(struct pl_keeper *k, const char *text, size_t bytes) {
    struct pl_notify *n = &k->notify;
    if (n->fd == -1 || n->to_bytes == 0 || bytes == 0 || bytes > sizeof n->text) return;
    if (n->waiting > 0 && n->waiting + 1 + bytes > sizeof n->text) return;
    if (n->waiting > 0) n->text[n->waiting++] = '\n';
    memcpy(n->text + n->waiting, text, bytes);
    n->waiting += bytes;
    pl_keeper_notify_again(k);
}

void pl_keeper_notify_again(struct pl_keeper *k) {
    if (k->notify.waiting > 0 && send_text(k)) k->notify.waiting = 0;
}
