/* cli.c - finds the verb, parses its arguments, prints errors. Help is in help.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/flags.h"
#include "cli/verbs.h"

int pl_cli_fail(const struct pl_cli *cli, const struct pl_err *err) {
    struct pl_buf out;
    int status = pl_err_exit_status(err->code);
    if (!cli->args.json) {
        fprintf(stderr, "plimsoll: %s\n", err->msg);
        if (err->hint[0] != '\0') fprintf(stderr, "  %s\n", err->hint);
        return status;
    }
    pl_buf_init(&out, 0);
    pl_buf_addf(&out, "{\"error\":{\"code\":\"%s\",\"message\":", pl_err_name(err->code));
    pl_buf_add_json(&out, err->msg, strlen(err->msg));
    if (err->hint[0] != '\0') {
        pl_buf_adds(&out, ",\"hint\":");
        pl_buf_add_json(&out, err->hint, strlen(err->hint));
    }
    fprintf(stderr, "%s}}\n", pl_buf_text(&out));
    pl_buf_free(&out);
    return status;
}

bool pl_cli_color(const struct pl_cli *cli) {
    if (cli->args.color != PL_COLOR_AUTO) return cli->args.color == PL_COLOR_ALWAYS;
    return isatty(STDOUT_FILENO) == 1 && getenv("NO_COLOR") == NULL;
}

/* What the arguments of a verb may be; NULL: no verb. */
static bool parse(int argc, char **argv, int at, const struct pl_verb *v, struct pl_cli *cli,
                  struct pl_err *err) {
    struct pl_verb_args table = { 0 };
    if (v != NULL) {
        table = (struct pl_verb_args){
            .verb = v->name, .server = v->server, .keys = v->keys, .min_words = v->least, .max_words = v->most
        };
        table.flags = pl_verb_flags(v->name, &table.flag_count);
    }
    return pl_args_parse(argc, argv, at, v != NULL ? &table : NULL, cli->arena, &cli->args, err);
}

bool pl_cli_parse(int argc, char **argv, const char *verb, struct pl_cli *cli, struct pl_err *err) {
    return parse(argc, argv, pl_args_find_verb(argc, argv), pl_verb_find(verb), cli, err);
}

static int dispatch(int argc, char **argv, struct pl_cli *cli) {
    struct pl_err err = { 0 };
    const struct pl_verb *v = NULL;
    int at = pl_args_find_verb(argc, argv);
    if (at > 0) v = pl_verb_find(argv[at]);
    if (at > 0 && v == NULL) {
        PL_FAIL(&err, PL_E_USAGE, "unknown verb '%s'", argv[at]);
        pl_err_hint(&err, "plimsoll help lists them");
        return pl_cli_fail(cli, &err);
    }
    if (!parse(argc, argv, at, v, cli, &err)) return pl_cli_fail(cli, &err);
    if (cli->args.version) {
        printf("plimsoll %s (llhttp %s)\n", PL_VERSION, PL_LLHTTP_VERSION);
        return 0;
    }
    if (v == NULL || cli->args.help) {
        pl_help_print(v, cli->args.json);
        return v == NULL && !cli->args.help ? 2 : 0;
    }
    cli->argc = argc;
    cli->argv = argv;
    return v->run(cli);
}

int pl_cli_main(int argc, char **argv) {
    struct pl_arena arena;
    struct pl_cli cli = { .program = argv[0], .arena = &arena };
    if (argc > 1 && strcmp(argv[1], "main") == 0) return pl_run_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "read-record") == 0) return pl_read_record_main(argc, argv);
    pl_arena_init(&arena, 0);
    int status = dispatch(argc, argv, &cli);
    pl_arena_free(&arena);
    return status;
}
