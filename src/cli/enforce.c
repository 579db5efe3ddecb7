/* enforce.c - `plimsoll enforce`: how much may be done about what is seen in a service. */
#include <jansson.h>
#include <stdio.h>

#include "cli/client.h"

int pl_verb_enforce(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    json_t *reply = NULL;
    const char *service = cli->args.words.at[0];
    json_t *order = json_pack("{s:s,s:s}", "service", service, "mode",
                              cli->args.words.count > 1 ? cli->args.words.at[1] : "enforce");
    bool ok = pl_client_find(cli, &c, &err) && pl_client_order(&c, "/enforce", order, &reply, &err);
    json_decref(order);
    if (!ok) return pl_cli_fail(cli, &err);
    const char *message = json_string_value(json_object_get(reply, "message"));
    if (cli->args.json) {
        json_dumpf(reply, stdout, JSON_COMPACT);
        printf("\n");
    } else {
        printf("%s: mode %s\n", service, message != NULL ? message : "changed");
    }
    json_decref(reply);
    return 0;
}
