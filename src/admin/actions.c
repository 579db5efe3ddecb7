/* actions.c - the verbs that act. Each is answered 202 with an id; /actions/ID tells how it goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/inside.h"

static struct pl_action *new_action(struct pl_admin *a) {
    struct pl_action *x = &a->actions[a->action_count++ % PL_ACTIONS_KEPT];
    free(x->report);
    *x = (struct pl_action){ .state = PL_ACTION_RUNNING };
    snprintf(x->id, sizeof x->id, "a%llu", (unsigned long long)a->action_count);
    return x;
}

const char *pl_actions_new(struct pl_admin *a) { return new_action(a)->id; }

static struct pl_action *find_action(struct pl_admin *a, const char *id) {
    for (size_t i = 0; i < PL_ACTIONS_KEPT; i++)
        if (a->actions[i].id[0] != '\0' && strcmp(a->actions[i].id, id) == 0) return &a->actions[i];
    return NULL;
}

void pl_admin_action_done(struct pl_admin *a, const char *action, int exit_status, const char *message) {
    struct pl_action *x = find_action(a, action);
    if (x == NULL) return;
    x->state = exit_status == 0 ? PL_ACTION_DONE : PL_ACTION_FAILED;
    x->exit_status = exit_status;
    snprintf(x->message, sizeof x->message, "%s", message);
}

void pl_admin_action_report(struct pl_admin *a, const char *action, int exit_status, const char *message,
                            const char *json) {
    struct pl_action *x = find_action(a, action);
    if (x != NULL) x->report = json != NULL ? strdup(json) : NULL;
    pl_admin_action_done(a, action, exit_status, message);
}

void pl_actions_state(struct pl_admin *a, struct pl_conn *c, const char *id) {
    static const char *const names[] = { "running", "done", "failed" };
    const struct pl_action *x = find_action(a, id);
    if (x == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such action", NULL);
        return;
    }
    json_t *doc =
        json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "kind", "action", "id", x->id, "state", names[x->state]);
    if (x->state != PL_ACTION_RUNNING) {
        json_object_set_new(doc, "exit", json_integer(x->exit_status));
        json_object_set_new(doc, "message", json_string(x->message));
        json_t *report = x->report != NULL ? json_loads(x->report, 0, NULL) : NULL;
        if (report != NULL) json_object_set_new(doc, "report", report);
    }
    pl_admin_reply_json(c, 200, doc);
}

static void restart(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "service"));
    json_int_t slot = json_integer_value(json_object_get(body, "worker"));
    struct pl_service *s = name != NULL ? pl_crew_find(a->o.crew, name, strlen(name)) : NULL;
    struct pl_err err = { 0 };
    struct pl_replace_answer answer;
    if (s == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
        return;
    }
    struct pl_action *x = new_action(a);
    char id[sizeof x->id];
    memcpy(id, x->id, sizeof id);
    const struct pl_replace_wish wish = { .reason = PL_REPLACE_FOR_OPERATOR,
                                          .slot = (uint32_t)slot,
                                          .mode = json_string_value(json_object_get(body, "mode")),
                                          .now = json_is_true(json_object_get(body, "now")),
                                          .action = id };
    if (slot < 0 || slot > PL_CREW_SLOTS_MOST || !pl_service_replace(s, &wish, &answer, &err)) {
        x->id[0] = '\0';
        pl_admin_reply_error(c, 409, "conflict",
                             slot < 0 || slot > PL_CREW_SLOTS_MOST ? "no such worker" : err.msg,
                             slot < 0 || slot > PL_CREW_SLOTS_MOST ? NULL : err.hint);
        return;
    }
    json_t *doc = json_pack("{s:i,s:s,s:s,s:s,s:I,s:b}", "v", 1, "kind", "action", "id", id, "mode",
                            answer.mode, "hold_ms", (json_int_t)answer.hold_ms, "waits", answer.waits);
    if (answer.gap_known)
        json_object_set_new(doc, "expected_gap_ms", json_integer((json_int_t)answer.expected_gap_ms));
    pl_admin_reply_json(c, 202, doc);
}

static void done_at_once(struct pl_admin *a, struct pl_conn *c, const char *message) {
    struct pl_action *x = new_action(a);
    pl_admin_action_done(a, x->id, 0, message);
    pl_admin_reply_json(
        c, 202, json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "kind", "action", "id", x->id, "message", message));
}

static void enforce(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "service"));
    const char *mode = json_string_value(json_object_get(body, "mode"));
    struct pl_service *s = name != NULL ? pl_crew_find(a->o.crew, name, strlen(name)) : NULL;
    struct pl_err err = { 0 };
    char message[64];
    if (s == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
        return;
    }
    const char *before = pl_config_word("mode", s->config->mode);
    if (!pl_service_set_mode(s, mode != NULL ? mode : "enforce", &err)) {
        pl_admin_reply_error(c, 400, "invalid_value", err.msg, err.hint);
        return;
    }
    snprintf(message, sizeof message, "%s -> %s", before, pl_config_word("mode", s->config->mode));
    done_at_once(a, c, message);
}

/* One service, or all. */
static void drain(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "service"));
    bool undo = json_is_true(json_object_get(body, "undo"));
    const struct pl_service *one = name != NULL ? pl_crew_find(a->o.crew, name, strlen(name)) : NULL;
    if (name != NULL && one == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
        return;
    }
    if (one != NULL && one->parent != NULL) {
        pl_admin_reply_error(c, 409, "conflict", "a dependency takes what its callers send it: drain those",
                             NULL);
        return;
    }
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        struct pl_service *s = pl_crew_service(a->o.crew, i);
        if (name == NULL || strcmp(s->config->id, name) == 0) pl_service_drain(s, !undo);
    }
    done_at_once(a, c, undo ? "takes requests again" : "takes nothing new");
}

static void reload(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    struct pl_err err;
    struct pl_action *x = new_action(a);
    if (!a->o.reload(json_is_true(json_object_get(body, "check")), x->id, &err)) {
        x->id[0] = '\0';
        pl_admin_reply_error(c, 409, "conflict", err.msg, NULL);
        return;
    }
    pl_admin_reply_json(c, 202, json_pack("{s:i,s:s,s:s}", "v", 1, "kind", "action", "id", x->id));
}

/* Which program runs is for those who may sign in on this machine: a token moves to what is installed. */
static void upgrade(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    struct pl_err err = { 0 };
    uid_t uid;
    json_int_t take_ms = json_integer_value(json_object_get(body, "timeout_ms"));
    const struct pl_upgrade_wish wish = { .binary = json_string_value(json_object_get(body, "binary")),
                                          .take_ms = take_ms > 0 ? (uint64_t)take_ms : 0 };
    if (wish.binary != NULL && !pl_conn_peer_uid(c, &uid)) {
        pl_admin_reply_error(c, 403, "forbidden", "a binary can be named over run_dir/admin.sock only",
                             "without one the server moves to what is installed in its own place");
        return;
    }
    struct pl_action *x = new_action(a);
    if (!a->o.upgrade(&wish, x->id, &err)) {
        x->id[0] = '\0';
        pl_admin_reply_error(c, 409, "conflict", err.msg, err.hint);
        return;
    }
    pl_admin_reply_json(c, 202, json_pack("{s:i,s:s,s:s}", "v", 1, "kind", "action", "id", x->id));
}

static void log_level(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "level"));
    for (int l = PL_DEBUG; name != NULL && l <= PL_ERROR; l++) {
        if (strcmp(name, pl_level_name((enum pl_level)l)) != 0) continue;
        pl_log_set_level(a->o.app->log, (enum pl_level)l);
        done_at_once(a, c, name);
        return;
    }
    pl_admin_reply_error(c, 400, "invalid_value", "level is one of debug, info, warn, error", NULL);
}

/* NULL: it is none. What cannot be read must not pass for an order that names nothing, which is one to all
 * services. Nothing at all is such an order. */
static json_t *read_order(const char *body, size_t len) {
    json_t *doc = len > 0 ? json_loadb(body, len, 0, NULL) : json_object();
    const json_t *service = json_object_get(doc, "service");
    if (json_is_object(doc) && (service == NULL || json_is_string(service))) return doc;
    json_decref(doc);
    return NULL;
}

void pl_actions_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_actor *who, const char *verb,
                       const char *body, size_t len) {
    static const struct {
        const char *verb;
        void (*act)(struct pl_admin *a, struct pl_conn *c, json_t *body);
    } verbs[] = { { "/restart", restart },
                  { "/sample", pl_samples_order },
                  { "/reload", reload },
                  { "/enforce", enforce },
                  { "/drain", drain },
                  { "/upgrade", upgrade },
                  { "/explain", pl_explain_order },
                  { "/snapshot", pl_snapshot_order },
                  { "/log-level", log_level } };
    char peer[PL_PEER_TEXT];
    if (a->left) {
        pl_admin_reply_error(c, 503, "service_unavailable", "another main has taken over: ask again", NULL);
        return;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verb, verbs[i].verb) != 0) continue;
        json_t *doc = read_order(body, len);
        if (doc == NULL) {
            pl_admin_reply_error(c, 400, "invalid_json", "an order is a JSON object; `service` is a text",
                                 "{\"service\":\"NAME\"}");
            return;
        }
        char *text = json_dumps(doc, JSON_COMPACT);
        if (who->local)
            pl_log(a->o.app->log, PL_INFO, "operator.action", F_STR("verb", verb + 1),
                   F_INT("peer_uid", who->uid), F_STR("arguments", text));
        else
            pl_log(a->o.app->log, PL_INFO, "operator.action", F_STR("verb", verb + 1),
                   F_STR("token", "admin_token"), F_STR("address", pl_conn_peer(c, peer)),
                   F_STR("arguments", text));
        free(text);
        verbs[i].act(a, c, doc);
        json_decref(doc);
        return;
    }
    pl_admin_reply_error(c, 404, "not_found", "no such verb", NULL);
}
