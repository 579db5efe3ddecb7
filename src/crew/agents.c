/* agents.c - run_dir/agents.sock: servers that are not of our making publish what they do (plimsoll.watch()).
 *
 * Who connects is told from the kernel's word about it (SO_PEERCRED): our user, and the process of a worker
 * of kind `command` (or one of its group), or the one behind a `remote` service that names its `pid`. It gets
 * the page of that worker (the keeper's, so that it outlives us; of a remote one we make it) and the
 * connection becomes the worker's control socket. One writer a page: the next one is told so and may come
 * again. The answer is one line, {"v":1,"service":...,"worker":N} with the page's descriptor, or
 * {"v":1,"error":...}. When it leaves, nothing of its page is believed any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/accounts.h"
#include "crew/cells.h"
#include "crew/more.h"
#include "plimsoll/shm.h"

static void on_closed(uv_handle_t *h) { free(h); }

static bool is_of(const struct pl_worker *w, pid_t pid, pid_t group) {
    const struct pl_service *s = w->service;
    if (w->exited) return false;
    if (s->kind == PL_KIND_REMOTE) {
        pid_t named = (pid_t)s->config->pid;
        return named > 0 && (named == pid || getpgid(named) == group);
    }
    return s->kind == PL_KIND_COMMAND && w->pid > 0 && (w->pid == pid || w->pid == group);
}

static struct pl_worker *worker_of(struct pl_crew *c, pid_t pid) {
    pid_t group = getpgid(pid);
    for (size_t i = 0; i < c->every_count && group > 0; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            if (is_of(w, pid, group)) return w;
    return NULL;
}

/* A server that somebody else runs has no keeper. */
static bool make_page(struct pl_worker *w) {
    if (w->more->page_fd > 0) return true;
    int fd = pl_memfd_create("plimsoll-page", PL_PAGE_BYTES);
    if (fd == -1) return false;
    void *at = mmap(NULL, PL_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return false;
    }
    w->page.at = at;
    w->page.bytes = w->more->page_bytes = PL_PAGE_BYTES;
    w->more->page_fd = fd;
    return true;
}

static bool say(int to, const char *line, int fd) {
    struct iovec text = { .iov_base = (void *)(uintptr_t)line, .iov_len = strlen(line) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } room = { 0 };
    struct msghdr m = { .msg_iov = &text, .msg_iovlen = 1 };
    if (fd != -1) {
        m.msg_control = &room;
        m.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);
        *head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS,
                                  .cmsg_len = CMSG_LEN(sizeof fd) };
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)text.iov_len;
}

static const char *refusal(struct pl_crew *c, int fd, struct pl_worker **w) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == -1) return "unknown peer";
    if (who.uid != geteuid() && who.uid != 0) return "another user";
    *w = worker_of(c, who.pid);
    if (*w == NULL) return "not a worker of kind command, nor the pid of a remote service";
    if ((*w)->more->control != NULL) return "taken";
    return make_page(*w) ? NULL : "no memory";
}

/* Takes `fd`. */
static void welcome(struct pl_crew *c, int fd) {
    PL_AUTO_FD int mine = fd;
    struct pl_worker *w = NULL;
    struct pl_err err;
    char line[256];
    const char *why = refusal(c, mine, &w);
    if (why != NULL) {
        snprintf(line, sizeof line, "{\"v\":1,\"error\":\"%s\"}\n", why);
        say(mine, line, -1);
        return;
    }
    snprintf(line, sizeof line, "{\"v\":1,\"service\":\"%s\",\"worker\":%u}\n", w->service->config->id,
             w->slot);
    if (!say(mine, line, w->more->page_fd)) return;
    if (!pl_page_open(&w->page, w->page.at, w->more->page_bytes, &err)) w->page.bad = false;
    mine = -1;
    if (!pl_control_open(w, fd)) return;
    w->more->watched = true;
    w->more->sampled_ms = pl_crew_now(c);
    pl_log(c->app->log, PL_INFO, "worker.watched", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation));
}

void pl_agents_left(struct pl_worker *w) {
    if (!w->more->watched) return;
    w->more->watched = false;
    pl_accounts_take(w, pl_crew_now(w->service->crew));
    pl_accounts_free(w);
    pl_cells_free(w);
    w->page.bad = true; /* until the next one comes */
}

static void on_knock(uv_stream_t *listener, int status) {
    struct pl_crew *c = listener->data;
    uv_pipe_t *guest = status == 0 ? malloc(sizeof *guest) : NULL;
    uv_os_fd_t fd;
    if (guest == NULL) return;
    if (uv_pipe_init(c->app->loop, guest, 0) != 0) {
        free(guest);
        return;
    }
    if (uv_accept(listener, (uv_stream_t *)guest) == 0 && uv_fileno((uv_handle_t *)guest, &fd) == 0) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (copy != -1) welcome(c, copy);
    }
    uv_close((uv_handle_t *)guest, on_closed);
}

bool pl_crew_agents(struct pl_crew *c, int fd, struct pl_err *err) {
    uv_pipe_t *p = calloc(1, sizeof *p);
    if (p == NULL || uv_pipe_init(c->app->loop, p, 0) != 0) {
        free(p);
        close(fd);
        return PL_FAIL(err, PL_E_NOMEM, "listen on agents.sock: out of memory");
    }
    p->data = c;
    c->agents = p;
    int r = uv_pipe_open(p, fd);
    if (r == 0) r = uv_listen((uv_stream_t *)p, 16, on_knock);
    return r == 0 || PL_FAIL(err, PL_E_SYS, "listen on agents.sock: %s", uv_strerror(r));
}

void pl_crew_agents_close(struct pl_crew *c) {
    if (c->agents != NULL) uv_close((uv_handle_t *)c->agents, on_closed);
    c->agents = NULL;
}
