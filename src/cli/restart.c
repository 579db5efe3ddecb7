/* restart.c - `plimsoll restart`: orders a replacement, says what gap is to be expected, and waits for its end. */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/client.h"

enum { ASK_AGAIN_MS = 100, LONGEST_WAIT_MS = 15 * 60 * 1000 };

static const char *seconds(double ms, char *out, size_t room) {
    snprintf(out, room, ms < 9950 ? "%.1f s" : "%.0f s", ms / 1000);
    return out;
}

/* What is about to happen, before it does: a gap that nobody expects is an outage. */
static void announce(const char *service, const json_t *reply) {
    char gap[32], hold[32];
    const char *mode = json_string_value(json_object_get(reply, "mode"));
    const json_t *expected = json_object_get(reply, "expected_gap_ms");
    double gap_ms = json_number_value(expected);
    double hold_ms = json_number_value(json_object_get(reply, "hold_ms"));
    if (mode == NULL || strcmp(mode, "handover") != 0) return;
    if (expected == NULL) {
        printf("%s: handover; how long nobody serves is not known: no start was measured yet\n", service);
    } else if (gap_ms == 0) {
        printf("%s: handover; its other workers serve meanwhile\n", service);
    } else {
        seconds(gap_ms, gap, sizeof gap);
        seconds(hold_ms, hold, sizeof hold);
        printf("%s: handover; nobody serves for about %s, requests are held up to %s\n", service, gap, hold);
        if (gap_ms > hold_ms)
            printf("%s: what cannot be held that long is answered 503 with Retry-After%s\n", service,
                   json_is_true(json_object_get(reply, "waits"))
                       ? "; waits for a quiet moment, --now does not"
                       : "");
    }
    fflush(stdout);
}

static bool order(struct pl_cli *cli, struct pl_client *c, const char *service, char *id, size_t room,
                  struct pl_err *err) {
    struct pl_buf body;
    int status;
    const char *slot = pl_args_value(&cli->args, "worker"), *mode = pl_args_value(&cli->args, "mode");
    json_t *doc = json_pack("{s:s}", "service", service);
    if (pl_args_has(&cli->args, "now")) json_object_set_new(doc, "now", json_true());
    if (slot != NULL) json_object_set_new(doc, "worker", json_integer(atoi(slot)));
    if (mode != NULL) json_object_set_new(doc, "mode", json_string(mode));
    char *text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    bool ok = pl_client_ask(c, "POST", "/restart", text, &status, &body, err);
    free(text);
    if (!ok) return false;
    if (status == 202) {
        json_t *reply = json_loadb(body.data, body.len, 0, NULL);
        const char *action = json_string_value(json_object_get(reply, "id"));
        snprintf(id, room, "%s", action != NULL ? action : "");
        if (!cli->args.json && !cli->args.quiet) announce(service, reply);
        json_decref(reply);
    } else {
        pl_client_error(c, status, &body, err);
        ok = false;
    }
    pl_buf_free(&body);
    return ok;
}

/* 0 or 1: how it ended. */
static int wait_for(struct pl_cli *cli, struct pl_client *c, const char *service, const char *id) {
    char target[64];
    struct pl_err err = { 0 };
    int64_t limit = cli->args.wait_ms >= 0 ? cli->args.wait_ms : LONGEST_WAIT_MS;
    uint64_t until = pl_now_ms(&pl_clock_system) + (uint64_t)limit;
    snprintf(target, sizeof target, "/actions/%s", id);
    for (;;) {
        struct pl_buf body;
        int status;
        if (!pl_client_ask(c, "GET", target, NULL, &status, &body, &err)) return pl_cli_fail(cli, &err);
        json_t *doc = json_loadb(body.data, body.len, 0, NULL);
        const char *state = json_string_value(json_object_get(doc, "state"));
        const char *message = json_string_value(json_object_get(doc, "message"));
        bool over = state == NULL || strcmp(state, "running") != 0;
        bool done = state != NULL && strcmp(state, "done") == 0;
        if (over && cli->args.json)
            printf("%s\n", body.data);
        else if (over)
            printf("%s %s: %s\n", service, done ? "restarted" : "not restarted",
                   message != NULL ? message : "the action is not known any more");
        json_decref(doc);
        pl_buf_free(&body);
        if (over) return done ? 0 : 1;
        if (pl_now_ms(&pl_clock_system) >= until) {
            PL_FAIL(&err, PL_E_LIMIT, "%s: the successor is not ready yet", service);
            pl_err_hint(&err, "it goes on: plimsoll status %s", service);
            return pl_cli_fail(cli, &err);
        }
        poll(NULL, 0, ASK_AGAIN_MS);
    }
}

static int restart_one(struct pl_cli *cli, struct pl_client *c, const char *service) {
    struct pl_err err = { 0 };
    char id[32];
    if (!order(cli, c, service, id, sizeof id, &err)) return pl_cli_fail(cli, &err);
    if (!pl_args_has(&cli->args, "no-wait")) return wait_for(cli, c, service, id);
    printf(cli->args.json ? "{\"v\":1,\"kind\":\"action\",\"id\":\"%s\"}\n" : "%s\n", id);
    return 0;
}

static int restart_all(struct pl_cli *cli, struct pl_client *c) {
    struct pl_err err = { 0 };
    struct pl_buf body;
    int status, worst = 0;
    size_t i;
    json_t *s;
    if (!pl_client_ask(c, "GET", "/status", NULL, &status, &body, &err)) return pl_cli_fail(cli, &err);
    json_t *doc = json_loadb(body.data, body.len, 0, NULL);
    json_array_foreach(json_object_get(doc, "services"), i, s) {
        int one = restart_one(cli, c, json_string_value(json_object_get(s, "name")));
        if (one > worst) worst = one;
    }
    json_decref(doc);
    pl_buf_free(&body);
    return worst;
}

int pl_verb_restart(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    bool all = pl_args_has(&cli->args, "all");
    if (all == (cli->args.words.count > 0)) {
        PL_FAIL(&err, PL_E_USAGE, "restart wants a service, or --all");
        return pl_cli_fail(cli, &err);
    }
    if (!pl_client_find(cli, &c, &err)) return pl_cli_fail(cli, &err);
    return all ? restart_all(cli, &c) : restart_one(cli, &c, cli->args.words.at[0]);
}
