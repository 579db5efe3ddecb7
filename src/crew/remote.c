/* remote.c - a server that somebody else runs: where its name points to, asked off the loop. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/more.h"

enum { ADDRESSES = 8, ASK_AGAIN_MS = 5000 };

struct pl_remote {
    struct pl_service *service;
    char host[PL_CFG_HOST_BYTES];
    char header[PL_CFG_HOST_BYTES + 16]; /* HOST:PORT */
    uint16_t port;
    struct pl_dial_to to[ADDRESSES];
    unsigned count, turn; /* the one in use is to[turn % count] */
    uv_getaddrinfo_t question;
    bool asking, is_ip;
    uint64_t asked_ms;
};

bool pl_remote_open(struct pl_service *s, struct pl_err *err) {
    struct pl_remote *r = calloc(1, sizeof *r);
    if (r == NULL) return PL_FAIL(err, PL_E_NOMEM, "out of memory");
    s->more->remote = r;
    r->service = s;
    if (!pl_config_parse_url(s->config->url, r->host, &r->port, err)) return false;
    snprintf(r->header, sizeof r->header, strchr(r->host, ':') != NULL ? "[%s]:%u" : "%s:%u", r->host,
             r->port);
    r->is_ip = pl_dial_to_ip(&r->to[0], r->host, r->port);
    r->count = r->is_ip ? 1 : 0;
    return true;
}

const char *pl_remote_host(const struct pl_service *s) {
    return s->more->remote != NULL ? s->more->remote->header : NULL;
}

static void use(struct pl_remote *r) {
    if (r->count == 0) return;
    for (struct pl_worker *w = r->service->workers; w != NULL; w = w->next) w->to = r->to[r->turn % r->count];
}

static void on_found(uv_getaddrinfo_t *question, int status, struct addrinfo *list) {
    struct pl_remote *r = question->data;
    struct pl_dial_to found[ADDRESSES];
    unsigned count = 0;
    r->asking = false;
    for (const struct addrinfo *a = status == 0 ? list : NULL; a != NULL && count < ADDRESSES;
         a = a->ai_next) {
        if (a->ai_addrlen > sizeof found[0].at) continue;
        found[count] = (struct pl_dial_to){ .len = a->ai_addrlen };
        memcpy(&found[count++].at, a->ai_addr, a->ai_addrlen);
    }
    uv_freeaddrinfo(list);
    if (count == 0) return; /* what was known before may still be right */
    memcpy(r->to, found, sizeof found[0] * count);
    r->count = count;
    use(r);
}

static void look_up(struct pl_remote *r) {
    uint64_t now = pl_crew_now(r->service->crew);
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    char port[8];
    if (r->is_ip || r->asking || (r->asked_ms != 0 && now - r->asked_ms < ASK_AGAIN_MS)) return;
    snprintf(port, sizeof port, "%u", r->port);
    r->asked_ms = now;
    r->question.data = r;
    r->asking =
        uv_getaddrinfo(r->service->crew->app->loop, &r->question, on_found, r->host, port, &hints) == 0;
}

void pl_remote_start(struct pl_worker *w) {
    struct pl_remote *r = w->service->more->remote;
    use(r);
    look_up(r);
    pl_life_feed(w, PL_WEV_SPAWNED);
}

void pl_remote_turn(struct pl_worker *w) {
    struct pl_remote *r = w->service->more->remote;
    r->turn++;
    use(r);
    look_up(r);
}
