/* soak_holder.c - who holds the memory that grows: the server is asked to look, and goes on being used
 * meanwhile. */
#include <stdio.h>
#include <string.h>

#include "cli/soak_scene.h"

enum {
    AGAIN_MS = 20000, /* second look of explain */
    AGAIN_REQUESTS = 6000,
    LOOK_MS = 60000, /* nobody waits for this service */
    LOOK_MOST_MS = 240000,
};

static void set_holder(struct pl_scene *s, const json_t *report, bool of_host) {
    const json_t *findings = json_object_get(of_host ? json_object_get(report, "host") : report,
                                             of_host ? "holders" : "findings"),
                 *f, *best = NULL;
    size_t i;
    char line[400];
    json_array_foreach(findings, i, f) {
        bool grows = json_is_true(json_object_get(f, "growing")),
             grew = json_is_true(json_object_get(best, "growing"));
        if (best == NULL || (grows && !grew)) best = f;
    }
    const char *holder = json_string_value(json_object_get(best, "holder"));
    const char *file = json_string_value(json_object_get(best, "file"));
    if (holder == NULL) return;
    snprintf(line, sizeof line, "%s%s%lld%s%.200s", file != NULL ? file : "", file != NULL ? ":" : "",
             (long long)json_integer_value(json_object_get(best, "line")), " ", holder);
    json_object_set_new(s->doc, "holder", json_string(file != NULL ? line : holder));
    json_object_set(s->doc, "finding", (json_t *)(uintptr_t)best);
}

/* Whom the server found by itself: it looks too when its own verdict is a leak. */
static bool holder_of_server(struct pl_scene *s, uint32_t slot) {
    struct pl_err ignored = { 0 };
    char target[80];
    snprintf(target, sizeof target, "/status/%s", s->place->service);
    json_t *status = pl_soak_ask(s->place, target, &ignored), *w;
    const char *holder = NULL;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i,
                       w) if (json_integer_value(json_object_get(w, "worker")) == (json_int_t)slot) holder =
        json_string_value(json_object_get(json_object_get(w, "verdict"), "holder"));
    if (holder != NULL) json_object_set_new(s->doc, "holder", json_string(holder));
    json_decref(status);
    return holder != NULL;
}

/* What grows between two looks is what leaks: requests go on meanwhile. One look at a time is taken of a
 * worker; where the server has begun its own, that one is waited for. */
static json_t *look_for_holder(struct pl_scene *s, uint32_t slot, struct pl_err *err) {
    json_t *order = json_pack("{s:s,s:i,s:i,s:i,s:b}", "service", s->place->service, "worker", (int)slot,
                              "again_ms", AGAIN_MS, "deadline_ms", LOOK_MS, "force", 1);
    char target[64] = "";
    uint64_t until = pl_scene_now_ms() + LOOK_MOST_MS, sent = 0;
    uint64_t many = s->load.concurrency > 10 ? s->load.concurrency : 10;
    json_t *action = NULL;
    while (pl_scene_now_ms() < until && pl_soak_signal == 0) {
        json_t *reply = NULL;
        if (target[0] == '\0' && pl_client_order(&s->place->admin, "/explain", order, &reply, err))
            snprintf(target, sizeof target, "/actions/%.30s",
                     json_string_value(json_object_get(reply, "id")));
        json_decref(reply);
        if (target[0] == '\0' && holder_of_server(s, slot)) break;
        if (target[0] != '\0') action = pl_soak_ask(s->place, target, err);
        const char *state = json_string_value(json_object_get(action, "state"));
        bool over = target[0] != '\0' && (state == NULL || strcmp(state, "running") != 0);
        if (over && (json_object_get(action, "report") != NULL || holder_of_server(s, slot))) break;
        if (over) target[0] = '\0'; /* another look was under way: once more */
        json_decref(action);
        action = NULL;
        if (sent < AGAIN_REQUESTS && pl_soak_send(&s->load, many, err)) sent += many;
        pl_scene_nap(target[0] == '\0' ? 300 : 80); /* it wants a quiet moment */
    }
    json_decref(order);
    return action;
}

void pl_scene_find_holder(struct pl_scene *s, const struct pl_soak_worker *w, bool of_host) {
    struct pl_err err = { 0 };
    json_t *action = look_for_holder(s, w->slot, &err);
    const char *message = json_string_value(json_object_get(action, "message"));
    set_holder(s, json_object_get(action, "report"), of_host);
    if (json_object_get(s->doc, "holder") == NULL && !holder_of_server(s, w->slot))
        pl_scene_note(s, "who holds it is not known: %.200s",
                      message != NULL     ? message
                      : err.code != PL_OK ? err.msg
                                          : "no answer came in time");
    json_decref(action);
}
