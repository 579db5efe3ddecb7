/* fuzz_wire.c - one packet, as a hostile peer may send it, with up to seven descriptors beside it.
 *
 * USES base
 *
 * What is not a message must be refused whole, what is one must be complete, and no descriptor may be lost.
 * The first byte says how many descriptors come along; the rest is the packet.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FDS = 7 };
static int pair[2] = { -1, -1 };

static void check(int good) {
    if (!good) abort();
}

/* The lowest free number: it moves if a descriptor is lost. */
static int next_fd(void) {
    int fd = dup(pair[0]);
    close(fd);
    return fd;
}

static void send_packet(const uint8_t *bytes, size_t size, unsigned fds) {
    union {
        char space[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } side;
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 };
    memset(&side, 0, sizeof side);
    if (fds > 0) {
        head.msg_control = side.space;
        head.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&head);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds * sizeof(int));
        for (unsigned i = 0; i < fds; i++) memcpy(CMSG_DATA(c) + i * sizeof(int), &pair[0], sizeof(int));
    }
    check(sendmsg(pair[0], &head, 0) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_wire_message m;
    if (size == 0) return 0;
    if (pair[0] == -1) check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
    unsigned fds = data[0] & MOST_FDS;
    int before = next_fd();
    memset(m.bytes, 0xee, sizeof m.bytes);
    send_packet(data + 1, size - 1, fds);
    enum pl_wire_result r = pl_wire_receive(pair[1], &m);
    if (r == PL_WIRE_OK) {
        check(m.fd_count == fds && fds <= PL_WIRE_MAX_FDS);
        check(m.head.magic == PL_WIRE_MAGIC && m.head.length == size - 1);
        check(strcmp(pl_wire_kind_name(m.head.kind), "unknown") != 0);
        check(memcmp(m.bytes, data + 1, size - 1) == 0);
        for (size_t i = size - 1; i < sizeof m.bytes; i++) check(m.bytes[i] == 0);
        check(pl_wire_send(pair[0], &m) == PL_WIRE_OK);
        pl_wire_close_fds(&m);
        check(pl_wire_receive(pair[1], &m) == PL_WIRE_OK && m.fd_count == fds);
        pl_wire_close_fds(&m);
    } else {
        check(r == PL_WIRE_BAD && m.fd_count == 0);
    }
    check(pl_wire_receive(pair[1], &m) == PL_WIRE_AGAIN);
    check(next_fd() == before);
    return 0;
}
