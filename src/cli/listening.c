#include "cli/listening.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/bound.h"

enum { DATA_PORTS = 16 };
enum place { ADMIN_PORT = DATA_PORTS, ADMIN_SOCKET, AGENTS_SOCKET, PLACES };

static struct {
    struct pl_listening_options o;
    int spare[PLACES]; /* 0: there is none */
    char data[PL_LISTENING_TEXT], admin[PL_LISTENING_TEXT];
} here;

const char *pl_listening_data(void) { return here.data; }
const char *pl_listening_admin(void) { return here.admin; }

/* Takes `fd`. */
static bool listen_at(int place, int fd, struct pl_err *err) {
    char at[PL_LISTENING_TEXT];
    if (place == AGENTS_SOCKET) return pl_crew_agents(here.o.crew, fd, err);
    if (place == ADMIN_SOCKET) return pl_admin_listen(here.o.admin, fd, "admin.sock", err);
    if (place == ADMIN_PORT) return pl_admin_listen(here.o.admin, fd, "admin", err);
    pl_bound_text(fd, at, sizeof at);
    return pl_gateway_listen(here.o.gateway, fd, at, err);
}

static bool open_at(int place, int fd, struct pl_err *err) {
    if (here.spare[place] != 0) close(here.spare[place]);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    here.spare[place] = copy != -1 ? copy : 0;
    return listen_at(place, fd, err);
}

/* A socket in the run folder is made by the first main and kept by the keeper for the next. */
static bool open_socket(int place, const char *name, struct pl_held_list *held, struct pl_err *err) {
    int fd = pl_held_take(held, name);
    if (fd == -1) {
        fd = pl_bound_socket(here.o.run_dir, name, err);
        if (fd == -1) return false;
        here.o.hold(name, fd);
    }
    return open_at(place, fd, err);
}

bool pl_listening_start(const struct pl_listening_options *o, struct pl_held_list *held, struct pl_err *err) {
    char name[16];
    here.o = *o;
    for (int i = 0; i < DATA_PORTS; i++) {
        snprintf(name, sizeof name, "listen:%d", i);
        int fd = pl_held_take(held, name);
        if (fd == -1) break;
        if (i == 0) pl_bound_text(fd, here.data, sizeof here.data);
        if (!open_at(i, fd, err)) return false;
    }
    int admin = pl_held_take(held, "admin");
    if (admin != -1)
        pl_bound_text(admin, here.admin, sizeof here.admin);
    else
        snprintf(here.admin, sizeof here.admin, "unix:%s/admin.sock", here.o.run_dir);
    if (admin != -1 && !open_at(ADMIN_PORT, admin, err)) return false;
    return open_socket(ADMIN_SOCKET, "admin.sock", held, err) &&
           open_socket(AGENTS_SOCKET, "agents.sock", held, err);
}

bool pl_listening_move(const struct pl_address *to, struct pl_err *err) {
    int fd = pl_bound_open(to, err);
    if (fd == -1) return false;
    pl_bound_text(fd, here.data, sizeof here.data);
    here.o.hold("listen:0", fd);
    pl_gateway_unlisten(here.o.gateway);
    return open_at(0, fd, err);
}

void pl_listening_stop(void) {
    pl_gateway_unlisten(here.o.gateway);
    pl_admin_unlisten(here.o.admin);
}

bool pl_listening_again(int *agents_fd, struct pl_err *err) {
    bool ok = true;
    *agents_fd = -1;
    for (int place = 0; place < PLACES; place++) {
        int fd = here.spare[place] != 0 ? fcntl(here.spare[place], F_DUPFD_CLOEXEC, 3) : -1;
        if (fd == -1) continue;
        if (place == AGENTS_SOCKET)
            *agents_fd = fd;
        else
            ok = listen_at(place, fd, err) && ok;
    }
    return ok;
}
