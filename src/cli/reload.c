/* reload.c - `plimsoll reload`: orders it and tells how it ended. */
#include "cli/client.h"
#include "cli/wait.h"

int pl_verb_reload(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    bool check = pl_args_has(&cli->args, "check");
    if (!pl_client_find(cli, &c, &err)) return pl_cli_fail(cli, &err);
    json_t *order = json_pack("{s:b}", "check", check);
    const struct pl_wait w = { .path = "/reload",
                               .what = check ? "reload would" : "configuration",
                               .done = check ? "change" : "reloaded",
                               .failed = check ? "be rejected" : "rejected, the old one holds",
                               .late = "new generations are not ready yet; it goes on: plimsoll status",
                               .no_wait = pl_args_has(&cli->args, "no-wait") };
    int result = pl_wait_action(cli, &c, &w, order);
    json_decref(order);
    return result;
}
