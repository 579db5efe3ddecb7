/* places.c - where a worker listens: a socket in the run folder, or a port of 127.0.0.1 that is free now. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/more.h"

enum { TRIES = 200 };

struct pl_port_range pl_places_range(void) {
    char text[64] = "";
    PL_AUTO_FD int fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, sizeof text - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    return pl_ports_parse(text);
}

uint16_t pl_places_port(const struct pl_worker *w) {
    return pl_dial_is_tcp(&w->to) ? ntohs(w->to.at.in.sin_port) : 0;
}

static bool is_given(const struct pl_crew *c, uint16_t port) {
    for (size_t i = 0; i < c->service_count; i++) {
        if (c->services[i].config->worker_port == port) return true;
        for (const struct pl_worker *w = c->services[i].workers; w != NULL; w = w->next)
            if (pl_places_port(w) == port) return true;
    }
    return false;
}

/* Somebody may take it before the worker does: then the worker says so, and the next one gets another. */
static bool is_free(uint16_t port) {
    struct pl_dial_to to;
    PL_AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pl_dial_to_port(&to, port);
    to.at.in.sin_addr.s_addr = htonl(INADDR_ANY); /* a program that takes no --host binds them all */
    return fd != -1 && bind(fd, &to.at.any, to.len) == 0;
}

static bool choose_port(struct pl_worker *w, struct pl_err *err) {
    struct pl_crew *c = w->service->crew;
    for (int i = 0; i < TRIES; i++) {
        uint16_t port = pl_ports_next(&c->ports);
        if (is_given(c, port) || !is_free(port)) continue;
        pl_dial_to_port(&w->to, port);
        return true;
    }
    return PL_FAIL(err, PL_E_SYS, "no free port for a worker in %d tries", TRIES);
}

static bool in_run_folder(struct pl_worker *w, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", w->service->crew->run_dir, name);
    return pl_dial_to_path(&w->to, path);
}

bool pl_places_choose(struct pl_worker *w, struct pl_err *err) {
    const struct pl_service *s = w->service;
    char name[PL_WIRE_NAME_BYTES];
    enum pl_place place = s->more->as_command ? PL_PLACE_PORT : pl_place_of(s->config);
    if (pl_depend_is(s)) return pl_dial_to_path(&w->to, s->more->apart->socket_path);
    if (pl_service_fixed(s)) {
        pl_dial_to_port(&w->to, (uint16_t)s->config->worker_port);
        return true;
    }
    if (s->kind == PL_KIND_COMMAND && !pl_place_is_socket(place)) return choose_port(w, err);
    snprintf(name, sizeof name, "w/%s", w->more->id);
    return in_run_folder(w, name) ||
           PL_FAIL(err, PL_E_SYS, "socket path %s/%s is too long", s->crew->run_dir, name);
}

void pl_places_adopt(struct pl_worker *w, const struct pl_wire_item *item) {
    unsigned index, slot, port = 0;
    if (pl_depend_is(w->service))
        pl_dial_to_path(&w->to, w->service->more->apart->socket_path);
    else if (sscanf(item->name, "%u.%u:%u", &index, &slot, &port) == 3 && port > 0 && port <= UINT16_MAX)
        pl_dial_to_port(&w->to, (uint16_t)port);
    else
        in_run_folder(w, item->socket_name);
}
