#include "cli/wait.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { ASK_AGAIN_MS = 100, LONGEST_WAIT_MS = 15 * 60 * 1000 };

static bool give_order(struct pl_cli *cli, struct pl_client *c, const struct pl_wait *w, const json_t *order,
                       char *id, size_t room, struct pl_err *err) {
    json_t *reply = NULL;
    if (!pl_client_order(c, w->path, order, &reply, err)) return false;
    const char *action = json_string_value(json_object_get(reply, "id"));
    snprintf(id, room, "%s", action != NULL ? action : "");
    if (w->accepted != NULL && !cli->args.json && !cli->args.quiet) w->accepted(w, reply);
    json_decref(reply);
    return true;
}

/* True when the action is over; *result is 0 or 1 then. */
static bool look(struct pl_cli *cli, struct pl_client *c, const struct pl_wait *w, const char *id,
                 int *result, struct pl_err *err) {
    struct pl_buf body;
    char target[64];
    int status;
    snprintf(target, sizeof target, "/actions/%s", id);
    if (!pl_client_ask(c, "GET", target, NULL, &status, &body, err)) return false;
    json_t *doc = json_loadb(body.data, body.len, 0, NULL);
    const char *state = json_string_value(json_object_get(doc, "state"));
    const char *message = json_string_value(json_object_get(doc, "message"));
    bool over = state == NULL || strcmp(state, "running") != 0;
    bool done = state != NULL && strcmp(state, "done") == 0;
    const char *words = done ? w->done : w->failed;
    if (over && w->show != NULL) {
        w->show(cli, w, doc);
    } else if (over && cli->args.json) {
        printf("%s\n", body.data);
    } else if (over) {
        printf("%s%s%s: %s\n", w->what, words != NULL ? " " : "", words != NULL ? words : "",
               message != NULL ? message : "the action is not known any more");
    }
    const json_t *exit_status = json_object_get(doc, "exit");
    *result = done ? 0 : exit_status != NULL ? (int)json_integer_value(exit_status) : 1;
    json_decref(doc);
    pl_buf_free(&body);
    return over;
}

int pl_wait_action(struct pl_cli *cli, struct pl_client *c, const struct pl_wait *w, json_t *order) {
    struct pl_err err = { 0 };
    char id[32];
    int result = 0;
    int64_t limit = cli->args.wait_ms >= 0 ? cli->args.wait_ms : LONGEST_WAIT_MS;
    if (!give_order(cli, c, w, order, id, sizeof id, &err)) return pl_cli_fail(cli, &err);
    if (w->no_wait) {
        printf(cli->args.json ? "{\"v\":1,\"kind\":\"action\",\"id\":\"%s\"}\n" : "%s\n", id);
        return 0;
    }
    uint64_t until = pl_now_ms(&pl_clock_system) + (uint64_t)limit;
    while (!look(cli, c, w, id, &result, &err)) {
        if (err.code != PL_OK) return pl_cli_fail(cli, &err);
        if (pl_now_ms(&pl_clock_system) >= until) {
            PL_FAIL(&err, PL_E_LIMIT, "%s: %s", w->what, w->late);
            return pl_cli_fail(cli, &err);
        }
        poll(NULL, 0, ASK_AGAIN_MS);
    }
    return result;
}
