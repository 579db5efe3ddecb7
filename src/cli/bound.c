#include "cli/bound.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
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

static bool taken(struct pl_err *err, int error, const char *what) {
    PL_FAIL_SYS(err, error, "listen on %s", what);
    if (error == EADDRINUSE)
        return pl_err_hint(err, "something else listens there: stop it, or choose another with --port");
    if (error == EACCES) return pl_err_hint(err, "ports below 1024 need root or CAP_NET_BIND_SERVICE");
    return false;
}

static int open_tcp(const struct pl_address *a, struct pl_err *err) {
    char port[8];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found = NULL;
    snprintf(port, sizeof port, "%u", a->port);
    int r = getaddrinfo(a->host, port, &hints, &found);
    if (r != 0) {
        PL_FAIL(err, PL_E_SYS, "listen on %s: %s", a->text, gai_strerror(r));
        return -1;
    }
    int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd != -1) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd == -1 || bind(fd, found->ai_addr, found->ai_addrlen) == -1 || listen(fd, 4096) == -1) {
        taken(err, errno, a->text);
        if (fd != -1) close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* A socket file that nobody serves is left over from a crash; one that somebody serves is taken. */
static int open_unix(const struct pl_address *a, struct pl_err *err) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(a->path) >= sizeof address.sun_path) {
        PL_FAIL(err, PL_E_CONFIG, "listen on %s: the path is over %zu bytes", a->text,
                sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, a->path, strlen(a->path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd != -1 && connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNREFUSED)
        unlink(a->path);
    if (fd != -1) close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd != -1 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4096) == 0)
        return fd;
    taken(err, errno, a->text);
    if (fd != -1) close(fd);
    return -1;
}

bool pl_bound_is_loopback(const char *host) {
    struct in6_addr six;
    struct in_addr four;
    if (strcmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

int pl_bound_open(const struct pl_address *a, struct pl_err *err) {
    return a->kind == PL_ADDRESS_UNIX ? open_unix(a, err) : open_tcp(a, err);
}
