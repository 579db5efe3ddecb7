#include "base/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t least_bytes(unsigned kind) {
    switch (kind) {
#define X(name, value, least) \
    case value:               \
        return least;
        PL_WIRE_KINDS(X)
#undef X
    default:
        return 0;
    }
}

const char *pl_wire_kind_name(unsigned kind) {
    switch (kind) {
#define X(name, value, least) \
    case value:               \
        return #name;
        PL_WIRE_KINDS(X)
#undef X
    default:
        return "unknown";
    }
}

void pl_wire_init(struct pl_wire_message *m, enum pl_wire_kind kind, size_t length, uint32_t serial) {
    memset(m->bytes, 0, length);
    m->head.magic = PL_WIRE_MAGIC;
    m->head.version = PL_WIRE_VERSION;
    m->head.kind = (uint16_t)kind;
    m->head.length = (uint32_t)length;
    m->head.serial = serial;
    m->fd_count = 0;
}

/* Space for the descriptors of one message, aligned as the kernel wants it. */
union side {
    char space[CMSG_SPACE(PL_WIRE_MAX_FDS * sizeof(int))];
    struct cmsghdr align;
};

enum pl_wire_result pl_wire_send(int fd, const struct pl_wire_message *m) {
    union side side;
    struct iovec part = { .iov_base = (void *)(uintptr_t)m->bytes, .iov_len = m->head.length };
    struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 };
    if (m->head.length > sizeof m->bytes || m->fd_count > PL_WIRE_MAX_FDS) return PL_WIRE_BAD;
    if (m->fd_count > 0) {
        size_t bytes = m->fd_count * sizeof(int);
        memset(&side, 0, sizeof side);
        head.msg_control = side.space;
        head.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&head);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), m->fds, bytes);
    }
    for (;;) {
        if (sendmsg(fd, &head, MSG_NOSIGNAL) >= 0) return PL_WIRE_OK;
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return PL_WIRE_AGAIN;
        /* ETOOMANYREFS: too many descriptors under way (the user's RLIMIT_NOFILE): they drain as they are
         * read */
        if (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM) return PL_WIRE_AGAIN;
        return errno == EPIPE || errno == ECONNRESET ? PL_WIRE_CLOSED : PL_WIRE_BAD;
    }
}

static void take_fds(struct pl_wire_message *m, struct msghdr *head) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL; c = CMSG_NXTHDR(head, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
            if (m->fd_count < PL_WIRE_MAX_FDS) {
                m->fds[m->fd_count++] = one;
            } else {
                close(one);
            }
        }
    }
}

/* An empty packet and the end look the same to recvmsg; only at the end is nobody on the other side. */
static enum pl_wire_result end_or_empty(int fd) {
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLRDHUP)) != 0 ? PL_WIRE_CLOSED : PL_WIRE_BAD;
}

enum pl_wire_result pl_wire_receive(int fd, struct pl_wire_message *m) {
    union side side;
    struct iovec part = { .iov_base = m->bytes, .iov_len = sizeof m->bytes };
    struct msghdr head = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = side.space, .msg_controllen = sizeof side.space
    };
    ssize_t n;
    m->fd_count = 0;
    /* Who ends with something unread leaves an ECONNRESET in front of what it had said: told once, then its
     * last words can be read. */
    do {
        n = recvmsg(fd, &head, MSG_CMSG_CLOEXEC);
    } while (n == -1 && (errno == EINTR || errno == ECONNRESET));
    if (n == -1) return errno == EAGAIN ? PL_WIRE_AGAIN : PL_WIRE_CLOSED;
    take_fds(m, &head);
    size_t got = (size_t)n;
    size_t least = got < sizeof m->head ? 0 : least_bytes(m->head.kind);
    bool whole = (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
    if (!whole || least == 0 || got < least || m->head.magic != PL_WIRE_MAGIC || m->head.length != got) {
        pl_wire_close_fds(m);
        return got == 0 && whole ? end_or_empty(fd) : PL_WIRE_BAD;
    }
    memset(m->bytes + got, 0, sizeof m->bytes - got);
    return PL_WIRE_OK;
}

void pl_wire_close_fds(struct pl_wire_message *m) {
    for (unsigned i = 0; i < m->fd_count; i++) close(m->fds[i]);
    m->fd_count = 0;
}
