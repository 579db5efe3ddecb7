/* depend.c - dependencies of a BentoML service that run apart, as BentoML runs them: processes of their own,
 * all of one dependency on one listener, and whoever calls them is told where with its `go`.
 *
 * Each is a pl_service without a place in the configuration, below the service that named it (its family).
 * The keeper holds its listener as dep:SERVICE.NUMBER, so that calls wait in the backlog while a worker of it
 * is made anew, and the list of them as deps:SERVICE, for the next main. Numbers are given once. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "crew/more.h"

static struct pl_service *family_of(const struct pl_service *s) {
    return s->parent != NULL ? s->parent : (struct pl_service *)(uintptr_t)s;
}

static uint32_t rank_of(const struct pl_service *s) { return pl_depend_is(s) ? s->more->apart->rank : 0; }

/* A family is the service itself, then its dependencies. */
static const struct pl_service *next_of(const struct pl_service *s) {
    return s->parent == NULL ? s->dependencies : s->next;
}

bool pl_depend_register(struct pl_service *s) {
    struct pl_crew *c = s->crew;
    struct pl_service **more = realloc(c->every, (c->every_count + 1) * sizeof(struct pl_service *));
    if (more == NULL) return false;
    c->every = more;
    c->every[c->every_count++] = s;
    return true;
}

/* --- one comes to be */

/* "front.Scale"; what has no place in a label or a path becomes '-'. */
static char *make_id(const struct pl_service *family, const char *name) {
    char *id;
    if (asprintf(&id, "%s.%s", family->config->id, name) == -1) return NULL;
    for (char *at = id; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("._-", *at) == NULL) *at = '-';
    return id;
}

/* Takes `fd`, or makes a listener when it is -1. */
static bool get_listener(struct pl_crew *c, struct pl_apart *a, uint32_t service, int fd,
                         struct pl_err *err) {
    char name[PL_WIRE_NAME_BYTES];
    struct sockaddr_un at = { 0 };
    socklen_t len = sizeof at;
    a->listener = fd;
    if (fd != -1 && getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.sun_family == AF_UNIX) {
        snprintf(a->socket_path, sizeof a->socket_path, "%.*s", (int)sizeof a->socket_path - 1, at.sun_path);
        return true;
    }
    if (fd != -1) close(fd);
    snprintf(a->socket_path, sizeof a->socket_path, "%s/w/d%llx-%llx", c->run_dir,
             (unsigned long long)c->welcome.main_id, (unsigned long long)++c->sequence);
    a->listener = pl_spawn_listen(c, a->socket_path, err);
    if (a->listener == -1) return false;
    snprintf(name, sizeof name, "dep:%u.%u", service, a->number);
    pl_hold(c, name, a->listener);
    return true;
}

static void drop(struct pl_service *s) {
    if (s == NULL) return;
    if (s->more != NULL && s->more->apart != NULL) {
        free(s->more->apart->name);
        free((char *)(uintptr_t)s->more->apart->own.id);
        free(s->more->apart);
    }
    if (s->more != NULL) free(s->more->slots);
    free(s->more);
    free(s);
}

static struct pl_service *make_empty(struct pl_service *family, const char *name) {
    struct pl_service *s = calloc(1, sizeof *s);
    if (s != NULL) s->more = calloc(1, sizeof *s->more);
    if (s != NULL && s->more != NULL) {
        s->more->slots = calloc(1, sizeof *s->more->slots);
        s->more->apart = calloc(1, sizeof *s->more->apart);
    }
    if (s != NULL && s->more != NULL && s->more->slots != NULL && s->more->apart != NULL) {
        s->more->apart->name = strdup(name);
        s->more->apart->own.id = make_id(family, name);
        if (s->more->apart->name != NULL && s->more->apart->own.id != NULL) return s;
    }
    drop(s);
    return NULL;
}

/* Takes `fd`, the listener that the keeper held, or -1. */
static struct pl_service *make(struct pl_service *family, const char *name, int fd, struct pl_err *err) {
    struct pl_service **at = &family->dependencies;
    uint32_t number = 0;
    for (; *at != NULL; at = &(*at)->next) number++;
    struct pl_service *s = number < PL_CREW_DEPENDENCIES ? make_empty(family, name) : NULL;
    if (s == NULL) {
        if (fd != -1) close(fd);
        if (number < PL_CREW_DEPENDENCIES)
            PL_FAIL(err, PL_E_NOMEM, "%s: out of memory", name);
        else
            PL_FAIL(err, PL_E_LIMIT, "%s is made in the process of its caller: %d others run apart already",
                    name, PL_CREW_DEPENDENCIES);
        return NULL;
    }
    s->crew = family->crew;
    s->index = family->index;
    s->parent = family;
    s->described = true;
    s->more->slot_room = 1;
    s->more->apart->number = number;
    s->config = &s->more->apart->own;
    if (!get_listener(s->crew, s->more->apart, s->index, fd, err) || !pl_depend_register(s)) {
        drop(s);
        return NULL;
    }
    pl_guard_init(s);
    *at = s;
    return s;
}

/* What its parent's settings are by now, but for what is its own. */
static void settle(struct pl_service *s, int64_t workers) {
    const char *id = s->config->id;
    *s->config = *s->parent->config;
    s->config->id = id;
    s->config->workers = workers;
}

/* Its settings have changed, or are elsewhere by now: none of ours may point to where they were. */
void pl_depend_reconfigured(struct pl_service *family) {
    for (struct pl_service *s = family->dependencies; s != NULL; s = s->next) settle(s, s->config->workers);
}

/* --- what a description wants */

static bool runs_apart(const struct pl_service_config *c, const struct pl_dependency *d) {
    if (c->dependencies == PL_CFG_DEPENDENCIES_PROCESS) return true;
    return c->dependencies == PL_CFG_DEPENDENCIES_AUTO && d->separate;
}

static struct pl_service *find(const struct pl_service *family, const char *name) {
    for (struct pl_service *s = family->dependencies; s != NULL; s = s->next)
        if (strcmp(s->more->apart->name, name) == 0) return s;
    return NULL;
}

struct pl_service *pl_depend_of(const struct pl_service *s, uint32_t number) {
    for (struct pl_service *d = s->dependencies; d != NULL; d = d->next)
        if (d->more->apart->number == number) return d;
    return NULL;
}

/* In the form of a description, since that is what reads it again. */
static void hold_list(struct pl_service *family) {
    char name[PL_WIRE_NAME_BYTES];
    json_t *list = json_array();
    for (const struct pl_service *s = family->dependencies; s != NULL; s = s->next) {
        const struct pl_apart *a = s->more->apart;
        json_t *workers =
            a->own.workers == PL_CFG_CPU_COUNT ? json_string("cpu_count") : json_integer(a->own.workers);
        json_array_append_new(list, json_pack("{s:s,s:o,s:i,s:b}", "name", a->name, "workers", workers,
                                              "rank", (int)a->rank, "separate", a->wanted));
    }
    json_t *doc = json_pack("{s:o}", "dependencies", list);
    char *text = json_dumps(doc, JSON_COMPACT);
    snprintf(name, sizeof name, "deps:%u", family->index);
    if (text != NULL) pl_hold_text(family->crew, name, text, strlen(text));
    free(text);
    json_decref(doc);
}

void pl_depend_described(struct pl_service *s) {
    const struct pl_description *d = s->more->description;
    struct pl_err err;
    pl_depend_reconfigured(s);
    for (struct pl_service *one = s->dependencies; one != NULL; one = one->next)
        one->more->apart->wanted = false;
    for (size_t i = 0; i < d->dependency_count; i++) {
        const struct pl_dependency *p = &d->dependencies[i];
        if (!runs_apart(s->config, p)) continue;
        struct pl_service *one = find(s, p->name);
        if (one == NULL) one = make(s, p->name, -1, &err);
        if (one == NULL) {
            pl_log(s->crew->app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
                   F_STR("feature", "dependencies"), F_STR("reason", err.msg));
            continue;
        }
        settle(one, p->workers);
        one->more->apart->rank = p->rank;
        one->more->apart->wanted = true;
    }
    if (s->dependencies == NULL) return;
    hold_list(s);
    for (struct pl_service *one = s->dependencies; one != NULL; one = one->next)
        pl_life_tend(one, pl_crew_now(s->crew));
}

void pl_depend_take(struct pl_service *s, struct pl_held_list *held) {
    char name[PL_WIRE_NAME_BYTES];
    struct pl_buf text;
    struct pl_err err;
    snprintf(name, sizeof name, "deps:%u", s->index);
    int fd = pl_held_take(held, name);
    if (fd == -1) return;
    pl_buf_init(&text, PL_DESCRIBE_BYTES + 1);
    struct pl_description *d =
        pl_held_read(fd, &text) ? pl_description_parse(text.data, text.len, &err) : NULL;
    pl_buf_free(&text);
    for (size_t i = 0; d != NULL && i < d->dependency_count; i++) {
        const struct pl_dependency *p = &d->dependencies[i];
        snprintf(name, sizeof name, "dep:%u.%zu", s->index, i);
        struct pl_service *one = make(s, p->name, pl_held_take(held, name), &err);
        if (one == NULL) break;
        settle(one, p->workers);
        one->more->apart->rank = p->rank;
        one->more->apart->wanted = p->separate;
    }
    pl_description_free(d);
}

/* --- when a worker may go on */

const struct pl_service *pl_depend_missing(const struct pl_worker *w) {
    for (const struct pl_service *d = family_of(w->service)->dependencies; d != NULL; d = d->next)
        if ((w->more->uses >> d->more->apart->number & 1) != 0 && pl_service_ready_count(d) == 0) return d;
    return NULL;
}

/* Hooks run and the table of tasks is made in one process, before any other one of the family goes on. */
static bool deployment_under_way(const struct pl_worker *me) {
    const struct pl_service *family = family_of(me->service);
    const struct pl_description *d = family->more->description;
    if (family->more->deployed || d == NULL || !d->wants_deployment) return false;
    for (const struct pl_service *s = family; s != NULL; s = next_of(s))
        for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
            if (w != me && w->more->deploying && w->state < PL_WORKER_WARMING) return true;
    return false;
}

static void find_uses(struct pl_worker *w) {
    w->more->uses = 0;
    for (const struct pl_service *d = family_of(w->service)->dependencies; d != NULL; d = d->next)
        if (d->more->apart->wanted && d->more->apart->rank > rank_of(w->service))
            w->more->uses |= UINT64_C(1) << d->more->apart->number;
}

static bool may_go(struct pl_worker *w) {
    find_uses(w);
    return pl_depend_missing(w) == NULL && !deployment_under_way(w);
}

bool pl_depend_waits(const struct pl_worker *w) { return w->more->awaits_go && w->state < PL_WORKER_WARMING; }

/* Unless the service is described nobody knows what it depends on; the worker that is to tell goes on by
 * itself when nobody answers it. A wait was not its own: its time to start begins anew. */
void pl_depend_tick(struct pl_worker *w, uint64_t now) {
    struct pl_worker_more *o = w->more;
    const struct pl_service *family = family_of(w->service);
    if (!pl_depend_waits(w) || !family->described) return;
    if (!may_go(w)) {
        if (!o->wait_told) pl_control_wait(w);
        o->wait_told = true;
        return;
    }
    o->awaits_go = false;
    o->deploying = !family->more->deployed;
    pl_control_go(w, o->deploying);
    if (now == o->told_ms) return;
    o->held_ms = now - o->told_ms;
    pl_life_give_time(w);
}

void pl_depend_told(struct pl_worker *w) {
    w->more->awaits_go = true;
    w->more->wait_told = false;
    w->more->told_ms = pl_crew_now(w->service->crew);
}

/* --- questions */

bool pl_depend_failed(const struct pl_service *s) {
    for (const struct pl_service *d = s->dependencies; d != NULL; d = d->next)
        if (d->more->apart->wanted && pl_service_failed(d)) return true;
    return false;
}

/* By the newest files, or by a worker that was made of older ones. */
bool pl_depend_wanted(const struct pl_service *s) {
    if (s->more->apart->wanted) return true;
    for (const struct pl_service *one = s->parent; one != NULL; one = next_of(one))
        for (const struct pl_worker *w = one->workers; w != NULL; w = w->next)
            if (one != s && pl_worker_has_process(w->state) &&
                (w->more->uses >> s->more->apart->number & 1) != 0)
                return true;
    return false;
}

bool pl_depend_may_stop(const struct pl_service *s) {
    for (const struct pl_service *one = s->parent; one != NULL; one = next_of(one)) {
        if (rank_of(one) >= rank_of(s)) continue;
        for (const struct pl_worker *w = one->workers; w != NULL; w = w->next)
            if (w->state != PL_WORKER_STUCK) return false;
    }
    return true;
}
