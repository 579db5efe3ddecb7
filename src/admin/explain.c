/* explain.c - POST /explain and /snapshot: who holds a worker's memory, and its snapshot. */
#include <string.h>

#include "admin/inside.h"
#include "crew/explain.h"

enum { LONGEST_MS = 10 * 60 * 1000 };

/* The service that is named, or the only one. NULL, and it is answered. */
static struct pl_service *find(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "service"));
    struct pl_service *s = name != NULL ? pl_crew_find(a->o.crew, name, strlen(name)) : NULL;
    if (name == NULL && pl_crew_service_count(a->o.crew) == 1) s = pl_crew_service(a->o.crew, 0);
    if (s == NULL)
        pl_admin_reply_error(c, 404, "not_found",
                             name != NULL ? "no such service" : "several services run: name one", NULL);
    return s;
}

/* A number within limits; `usual` where there is none. False: it is not one. */
static bool number(json_t *body, const char *key, json_int_t usual, json_int_t most, uint64_t *out) {
    const json_t *at = json_object_get(body, key);
    json_int_t value = at != NULL ? json_integer_value(at) : usual;
    *out = (uint64_t)value;
    return (at == NULL || json_is_integer(at)) && value >= 0 && value <= most;
}

static bool word(json_t *body, const char *key, const char *const *words, size_t count, size_t *out) {
    const char *text = json_string_value(json_object_get(body, key));
    *out = 0;
    if (json_object_get(body, key) == NULL) return true;
    for (size_t i = 0; text != NULL && i < count; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i + 1;
            return true;
        }
    return false;
}

static void reply(struct pl_admin *a, struct pl_conn *c, bool ok, const char *action,
                  const struct pl_err *err) {
    if (ok) {
        pl_admin_reply_json(c, 202, json_pack("{s:i,s:s,s:s}", "v", 1, "kind", "action", "id", action));
        return;
    }
    pl_admin_action_done(a, action, 1, err->msg);
    pl_admin_reply_error(c, 409, "conflict", err->msg, err->hint[0] != '\0' ? err->hint : NULL);
}

void pl_explain_order(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    static const char *const modes[] = { "auto", "fork", "inline" };
    static const char *const histories[] = { "off", "on" };
    struct pl_service *s = find(a, c, body);
    struct pl_explain_wish wish = { .why = "operator" };
    uint64_t slot;
    size_t mode, history;
    struct pl_err err = { 0 };
    if (s == NULL) return;
    if (!number(body, "worker", 0, PL_CREW_SLOTS_MOST, &slot) ||
        !number(body, "deadline_ms", PL_EXPLAIN_DEADLINE_MS, LONGEST_MS, &wish.deadline_ms) ||
        !number(body, "again_ms", PL_EXPLAIN_AGAIN_MS, LONGEST_MS, &wish.again_ms) || wish.deadline_ms == 0 ||
        !word(body, "mode", modes, 3, &mode) || !word(body, "history", histories, 2, &history)) {
        pl_admin_reply_error(
            c, 400, "invalid_value",
            "worker 1 to 4096; mode auto, fork or inline; deadline and again up to 10 minutes; "
            "history on or off",
            NULL);
        return;
    }
    wish.slot = (uint32_t)slot;
    wish.mode = mode > 0 ? modes[mode - 1] : NULL;
    wish.history = (enum pl_explain_history)history;
    wish.force = json_is_true(json_object_get(body, "force"));
    wish.action = pl_actions_new(a);
    reply(a, c, pl_service_explain(s, &wish, &err), wish.action, &err);
}

void pl_snapshot_order(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    struct pl_service *s = find(a, c, body);
    uint64_t slot;
    struct pl_err err = { 0 };
    if (s == NULL) return;
    if (!number(body, "worker", 0, PL_CREW_SLOTS_MOST, &slot)) {
        pl_admin_reply_error(c, 400, "invalid_value", "worker 1 to 4096", NULL);
        return;
    }
    const char *action = pl_actions_new(a);
    reply(a, c, pl_service_snapshot(s, (uint32_t)slot, action, &err), action, &err);
}
