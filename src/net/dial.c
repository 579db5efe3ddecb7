#include "net/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

bool pl_dial_to_path(struct pl_dial_to *to, const char *path) {
    size_t len = strlen(path);
    *to = (struct pl_dial_to){ 0 };
    if (len == 0 || len >= sizeof to->at.un.sun_path) return false;
    to->at.un.sun_family = AF_UNIX;
    memcpy(to->at.un.sun_path, path, len + 1);
    to->len = sizeof to->at.un;
    return true;
}

void pl_dial_to_port(struct pl_dial_to *to, uint16_t port) {
    *to = (struct pl_dial_to){ .len = sizeof to->at.in };
    to->at.in.sin_family = AF_INET;
    to->at.in.sin_port = htons(port);
    to->at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

bool pl_dial_to_ip(struct pl_dial_to *to, const char *ip, uint16_t port) {
    pl_dial_to_port(to, port);
    if (inet_pton(AF_INET, ip, &to->at.in.sin_addr) == 1) return true;
    *to = (struct pl_dial_to){ 0 };
    to->at.in6.sin6_family = AF_INET6;
    to->at.in6.sin6_port = htons(port);
    if (inet_pton(AF_INET6, ip, &to->at.in6.sin6_addr) == 1) to->len = sizeof to->at.in6;
    return to->len != 0;
}

bool pl_dial_connected(int fd) {
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0;
}

uint64_t pl_dial_sent(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return UINT64_MAX;
    return len >= offsetof(struct tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent
               ? info.tcpi_bytes_sent
               : UINT64_MAX;
}

bool pl_dial_stale(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != -1 || (errno != EAGAIN && errno != EINTR);
}

static bool met_itself(int fd) {
    struct pl_dial_to here, there;
    here.len = there.len = sizeof here.at;
    return getsockname(fd, &here.at.any, &here.len) == 0 && getpeername(fd, &there.at.any, &there.len) == 0 &&
           here.len == there.len && memcmp(&here.at, &there.at, here.len) == 0;
}

/* What has become of a connection on its way: known at once on loopback. */
static enum pl_dialled look(int fd) {
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t len = sizeof error;
    if (poll(&p, 1, 0) != 1) return PL_DIAL_OK; /* still on its way */
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) return PL_DIAL_REFUSED;
    return met_itself(fd) ? PL_DIAL_REFUSED : PL_DIAL_OK;
}

static enum pl_dialled dial(int s, const struct pl_dial_to *to) {
    int on = 1;
    bool tcp = pl_dial_is_tcp(to);
    if (tcp) setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(s, &to->at.any, to->len) == 0) return tcp ? look(s) : PL_DIAL_OK;
    if (tcp && errno == EINPROGRESS) return look(s);
    if (errno == EAGAIN) return tcp ? PL_DIAL_FAILED : PL_DIAL_BUSY; /* TCP: no local port is left */
    return errno == EADDRNOTAVAIL ? PL_DIAL_FAILED : PL_DIAL_REFUSED;
}

enum pl_dialled pl_dial(const struct pl_dial_to *to, int *fd) {
    if (to->len == 0) return PL_DIAL_REFUSED;
    int s = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s == -1) return errno == EAFNOSUPPORT ? PL_DIAL_REFUSED : PL_DIAL_FAILED;
    enum pl_dialled result = dial(s, to);
    if (result == PL_DIAL_OK)
        *fd = s;
    else
        close(s);
    return result;
}
