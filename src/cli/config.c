/* config.c - `plimsoll config show|schema|reference`. `show` asks the service's own decorator, in a process
 * of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accept.h"
#include "cli/child.h"
#include "cli/paths.h"
#include "cli/verbs.h"
#include "crew/describe.h"

enum { DESCRIPTION_LIMIT_MS = 120000 };

/* Runs `python -m plimsoll.describe RUN` in the service's folder and reads what it prints. */
static bool ask_service(const struct pl_service_config *s, struct pl_buf *out, struct pl_err *err) {
    char side[PL_PATH_BYTES];
    if (!pl_path_python_side(side, err)) return false;
    const char *words[] = { s->python, "-m", "plimsoll.describe", s->run, NULL };
    const struct pl_child ask = { .argv = words,
                                  .folder = s->working_dir,
                                  .python_path = side,
                                  .shows_stderr = true,
                                  .limit_ms = DESCRIPTION_LIMIT_MS };
    if (pl_child_ask(&ask, out) == 0) return true;
    PL_FAIL(err, PL_E_CONFIG, "%s of service %s could not be loaded", s->run, s->id);
    return pl_err_hint(err, "the lines above say why");
}

static bool inherit(struct pl_config *c, size_t i, struct pl_err *err) {
    struct pl_buf text;
    pl_buf_init(&text, PL_DESCRIBE_BYTES);
    bool ok = ask_service(&c->services[i], &text, err);
    struct pl_description *d = ok ? pl_description_parse(text.data, text.len, err) : NULL;
    if (d != NULL) pl_description_apply(d, c, i, NULL, 0);
    pl_description_free(d);
    pl_buf_free(&text);
    return d != NULL;
}

static int print(struct pl_buf *text, bool ok) {
    if (ok) fwrite(text->data, 1, text->len, stdout);
    pl_buf_free(text);
    return ok ? 0 : 5;
}

static int show(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_buf text;
    const char *target = cli->args.words.count > 1 ? cli->args.words.at[1] : NULL;
    struct pl_config *c = pl_accept(&cli->args, target, false, &err);
    if (c == NULL) return pl_cli_fail(cli, &err);
    for (size_t i = 0; i < c->service_count; i++)
        if (c->services[i].run != NULL && !inherit(c, i, &err)) return pl_cli_fail(cli, &err);
    pl_buf_init(&text, 0);
    const char *service = pl_args_value(&cli->args, "service");
    if (service != NULL && pl_config_find(c, service) == SIZE_MAX) {
        PL_FAIL(&err, PL_E_USAGE, "no service '%s'", service);
        return pl_cli_fail(cli, &err);
    }
    return print(&text, pl_config_show(c, service, cli->args.json, &text));
}

int pl_verb_config(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_buf text;
    const char *what = cli->args.words.at[0];
    pl_buf_init(&text, 0);
    if (strcmp(what, "show") == 0) return show(cli);
    if (strcmp(what, "schema") == 0) return print(&text, pl_config_write_schema(&text));
    if (strcmp(what, "reference") == 0) return print(&text, pl_config_write_reference(&text));
    PL_FAIL(&err, PL_E_USAGE, "config %s: there is show, schema and reference", what);
    return pl_cli_fail(cli, &err);
}
