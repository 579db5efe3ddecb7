/* enforce.c - `plimsoll enforce`: how much may be done about what is seen in a service. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/client.h"

int pl_verb_enforce(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    struct pl_buf body;
    int status, result = 0;
    const char *service = cli->args.words.at[0];
    json_t *order = json_pack("{s:s,s:s}", "service", service, "mode",
                              cli->args.words.count > 1 ? cli->args.words.at[1] : "enforce");
    char *text = json_dumps(order, JSON_COMPACT);
    json_decref(order);
    bool ok =
        pl_client_find(cli, &c, &err) && pl_client_ask(&c, "POST", "/enforce", text, &status, &body, &err);
    free(text);
    if (!ok) return pl_cli_fail(cli, &err);
    if (status != 202) {
        pl_client_error(&c, status, &body, &err);
        result = pl_cli_fail(cli, &err);
    } else if (cli->args.json) {
        printf("%s\n", body.data);
    } else {
        json_t *reply = json_loadb(body.data, body.len, 0, NULL);
        const char *message = json_string_value(json_object_get(reply, "message"));
        printf("%s: mode %s\n", service, message != NULL ? message : "changed");
        json_decref(reply);
    }
    pl_buf_free(&body);
    return result;
}
