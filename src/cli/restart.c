/* restart.c - `plimsoll restart`: orders a replacement and waits for its end. */
#include <stdlib.h>
#include <string.h>

#include "cli/client.h"
#include "cli/wait.h"

static int restart_one(struct pl_cli *cli, struct pl_client *c, const char *service) {
    const char *slot = pl_args_value(&cli->args, "worker"), *mode = pl_args_value(&cli->args, "mode");
    json_t *order = json_pack("{s:s}", "service", service);
    if (slot != NULL) json_object_set_new(order, "worker", json_integer(atoi(slot)));
    if (mode != NULL) json_object_set_new(order, "mode", json_string(mode));
    const struct pl_wait w = { .path = "/restart",
                               .what = service,
                               .done = "restarted",
                               .failed = "not restarted, the old worker serves on",
                               .late = "the successor is not ready yet; it goes on: plimsoll status",
                               .no_wait = pl_args_has(&cli->args, "no-wait") };
    int result = pl_wait_action(cli, c, &w, order);
    json_decref(order);
    return result;
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
