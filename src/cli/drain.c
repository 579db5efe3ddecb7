/* drain.c - `plimsoll drain`: nothing new is let in; waits until nothing runs, and says what still does. */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/client.h"

enum { ASK_AGAIN_MS = 100, WAIT_MS = 60000 };

static bool order(struct pl_cli *cli, struct pl_client *c, const char *service, bool undo,
                  struct pl_err *err) {
    json_t *doc = json_pack("{s:b}", "undo", undo), *reply = NULL;
    if (service != NULL) json_object_set_new(doc, "service", json_string(service));
    bool ok = pl_client_order(c, "/drain", doc, &reply, err);
    json_decref(doc);
    if (ok && undo && cli->args.json) {
        json_dumpf(reply, stdout, JSON_COMPACT);
        printf("\n");
    } else if (ok && undo) {
        printf("%s: takes requests again\n", service != NULL ? service : "all services");
    }
    json_decref(reply);
    return ok;
}

/* Requests that run or wait, in one service or in all. False: the server did not say. */
static bool count(struct pl_client *c, const char *service, long long *in_flight, struct pl_err *err) {
    size_t i;
    json_t *s;
    json_t *doc = pl_client_document(c, "/status", err);
    if (doc == NULL) return false;
    *in_flight = 0;
    json_array_foreach(json_object_get(doc, "services"), i, s) {
        const char *name = json_string_value(json_object_get(s, "name"));
        const json_t *queue = json_object_get(s, "queue");
        if (service != NULL && (name == NULL || strcmp(name, service) != 0)) continue;
        *in_flight += json_integer_value(json_object_get(queue, "running")) +
                      json_integer_value(json_object_get(queue, "requests"));
    }
    json_decref(doc);
    return true;
}

int pl_verb_drain(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    long long in_flight = 0;
    int64_t limit = WAIT_MS;
    bool undo = pl_args_has(&cli->args, "undo");
    const char *service = cli->args.words.count > 0 ? cli->args.words.at[0] : NULL;
    const char *timeout = pl_args_value(&cli->args, "timeout");
    if (timeout != NULL && !pl_config_parse_duration(timeout, &limit, &err)) {
        pl_err_wrap(&err, "--timeout");
        err.code = PL_E_USAGE;
        return pl_cli_fail(cli, &err);
    }
    if (!pl_client_find(cli, &c, &err) || !order(cli, &c, service, undo, &err)) return pl_cli_fail(cli, &err);
    if (undo) return 0;
    uint64_t until = pl_now_ms(&pl_clock_system) + (uint64_t)limit;
    for (;;) {
        if (!count(&c, service, &in_flight, &err)) return pl_cli_fail(cli, &err);
        if (in_flight == 0 || pl_now_ms(&pl_clock_system) >= until) break;
        poll(NULL, 0, ASK_AGAIN_MS);
    }
    if (cli->args.json)
        printf("{\"v\":1,\"kind\":\"drain\",\"in_flight\":%lld}\n", in_flight);
    else
        printf("%s: takes nothing new, %lld in flight\n", service != NULL ? service : "all services",
               in_flight);
    return in_flight == 0 ? 0 : 1;
}
