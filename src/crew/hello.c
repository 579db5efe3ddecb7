#include "crew/hello.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

bool pl_hello(struct pl_link *l, const char *build, struct pl_wire_welcome *welcome,
              struct pl_wire_beat **beat, struct pl_err *err) {
    static struct pl_wire_message q, a;
    pl_wire_init(&q, PL_WIRE_HELLO, sizeof q.hello, 0);
    q.hello.oldest = PL_WIRE_OLDEST;
    q.hello.newest = PL_WIRE_VERSION;
    strncpy(q.hello.build, build, sizeof q.hello.build - 1);
    if (!pl_link_ask(l, &q, PL_WIRE_WELCOME, &a, err)) return false;
    if (a.fd_count != 1) {
        pl_wire_close_fds(&a);
        return PL_FAIL(err, PL_E_SYS, "the keeper gave no heartbeat page");
    }
    *welcome = a.welcome;
    void *at = mmap(NULL, sizeof **beat, PROT_READ | PROT_WRITE, MAP_SHARED, a.fds[0], 0);
    int error = errno;
    close(a.fds[0]);
    if (at == MAP_FAILED) return PL_FAIL_SYS(err, error, "map the heartbeat page");
    *beat = at;
    return true;
}

bool pl_held_list(struct pl_link *l, struct pl_held_list *out, struct pl_err *err) {
    static struct pl_wire_message q, a;
    uint64_t after = 0;
    out->count = 0;
    while (out->count < sizeof out->at / sizeof *out->at) {
        pl_wire_init(&q, PL_WIRE_LIST, sizeof q.list, 0);
        q.list.what = PL_LIST_HELD;
        q.list.after = after;
        struct pl_err end = { 0 };
        if (!pl_link_ask(l, &q, PL_WIRE_HELD, &a, &end)) {
            if (end.sys == EPROTO) return true; /* LIST_END */
            *err = end;
            return false;
        }
        after = a.hold.ordinal;
        if (a.fd_count != 1) continue;
        struct pl_held_entry *e = &out->at[out->count++];
        memcpy(e->name, a.hold.name, sizeof e->name);
        e->name[sizeof e->name - 1] = '\0';
        e->fd = a.fds[0];
    }
    return true;
}

int pl_held_peek(const struct pl_held_list *held, const char *name) {
    for (size_t i = 0; i < held->count; i++)
        if (strcmp(held->at[i].name, name) == 0) return held->at[i].fd;
    return -1;
}

int pl_held_take(struct pl_held_list *held, const char *name) {
    for (size_t i = 0; i < held->count; i++) {
        if (strcmp(held->at[i].name, name) != 0) continue;
        int fd = held->at[i].fd;
        held->at[i].fd = -1;
        return fd;
    }
    return -1;
}

bool pl_held_read(int fd, struct pl_buf *out) {
    PL_AUTO_FD int own = fd;
    struct stat st;
    if (fstat(own, &st) == -1 || st.st_size < 0 || !pl_buf_reserve(out, (size_t)st.st_size)) return false;
    for (off_t at = 0; at < st.st_size;) {
        ssize_t n = pread(own, out->data + out->len, (size_t)(st.st_size - at), at);
        if (n <= 0) return false;
        out->len += (size_t)n;
        at += n;
    }
    return true;
}
