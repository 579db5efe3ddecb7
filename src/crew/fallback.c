/* fallback.c - a service that BentoML's worker entry cannot run (bentoml.legacy, cmd=, BentoML before 1.2) is
 * run by BentoML's own server instead, as a command. The launcher finds out; its successor is another kind.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "crew/more.h"

static void turn(struct pl_service *s) {
    s->kind = PL_KIND_COMMAND;
    s->more->as_command = true;
    s->described = true; /* nobody will */
}

static void name_of(const struct pl_service *s, char name[PL_WIRE_NAME_BYTES]) {
    snprintf(name, PL_WIRE_NAME_BYTES, "whole:%u", s->index);
}

void pl_fallback_take(struct pl_worker *w, const char *reason) {
    struct pl_service *s = w->service;
    char name[PL_WIRE_NAME_BYTES], text[200];
    if (w->state >= PL_WORKER_READY || s->kind != PL_KIND_PYTHON) return;
    snprintf(text, sizeof text, "%.120s: run by `bentoml serve`, without records of single requests", reason);
    pl_log(s->crew->app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
           F_INT("worker", w->slot), F_STR("feature", "python"), F_STR("reason", text));
    name_of(s, name);
    pl_hold_text(s->crew, name, "1", 1);
    w->more->fallback = true;
    pl_life_feed(w, PL_WEV_STOP);
    turn(s); /* after it was told to end as what it is */
    if (s->crew->hooks.described != NULL) s->crew->hooks.described(s->crew->hooks.ctx, s);
}

void pl_fallback_adopt(struct pl_service *s, struct pl_held_list *held) {
    char name[PL_WIRE_NAME_BYTES];
    name_of(s, name);
    int fd = pl_held_take(held, name);
    if (fd == -1) return;
    close(fd);
    turn(s);
}
