#include "cli/bound.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void pl_bound_text(int fd, char *out, size_t room) {
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
        struct sockaddr_storage room;
    } a = { 0 };
    socklen_t len = sizeof a;
    char host[INET6_ADDRSTRLEN] = "";
    snprintf(out, room, "?");
    if (getsockname(fd, &a.any, &len) != 0) return;
    if (a.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a.in.sin_addr, host, sizeof host);
        snprintf(out, room, "%s:%u", host, ntohs(a.in.sin_port));
    } else if (a.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof host);
        snprintf(out, room, "[%s]:%u", host, ntohs(a.in6.sin6_port));
    } else if (a.any.sa_family == AF_UNIX) {
        snprintf(out, room, "unix:%s", a.un.sun_path);
    }
}

int pl_bound_socket(const char *run_dir, const char *name, struct pl_err *err) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", run_dir, name);
    if (n < 0 || (size_t)n >= sizeof address.sun_path) {
        PL_FAIL(err, PL_E_SYS, "%s/%s is too long for a socket", run_dir, name);
        return -1;
    }
    unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0177);
    bool ok = fd != -1 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 128) == 0;
    int error = errno;
    umask(old);
    if (ok) return fd;
    PL_FAIL_SYS(err, error, "listen on %s", address.sun_path);
    if (fd != -1) close(fd);
    return -1;
}
