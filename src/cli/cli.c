/* cli.c - finds the verb, parses its arguments, prints help and errors. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/flags.h"
#include "cli/verbs.h"

struct verb {
    const char *name, *group, *words, *help;
    size_t least, most;
    bool server, keys;
    pl_verb_run *run;
};
static const struct verb verbs[] = {
#define VERB(symbol, name, group, words, help, least, most, server, keys) \
    { name, group, words, help, least, most, server, keys, pl_verb_##symbol },
#include "cli/verbs.def"
#undef VERB
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static const struct verb *find_verb(const char *name) {
    if (strcmp(name, "replace") == 0) name = "restart"; /* alias */
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

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

static void print_help(void) {
    static const char *const groups[] = { "Run", "Diagnose", "Prove", "Ship" };
    printf("plimsoll - never cold, never leaks, never OOMs: a line around the model servers you run\n\n"
           "usage: plimsoll VERB [arguments]     plimsoll VERB --help tells more\n");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        bool any = false;
        for (size_t i = 0; i < VERB_COUNT; i++) {
            if (strcmp(verbs[i].group, groups[g]) != 0) continue;
            if (!any) printf("\n%s\n", groups[g]);
            any = true;
            printf("  %-8s %-24s %s\n", verbs[i].name, verbs[i].words, verbs[i].help);
        }
    }
}

static void print_flags(const struct pl_flag *flags, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s%c%s--%s%s%s", flags[i].letter != 0 ? "-" : "",
                 flags[i].letter != 0 ? flags[i].letter : ' ', flags[i].letter != 0 ? ", " : "   ",
                 flags[i].name, flags[i].value != NULL ? " " : "",
                 flags[i].value != NULL ? flags[i].value : "");
        printf("  %-32s %s\n", left, flags[i].help);
    }
}

static void print_verb_help(const struct verb *v) {
    size_t count;
    const struct pl_flag *flags;
    printf("usage: plimsoll %s %s\n\n%s\n\n", v->name, v->words, v->help);
    flags = pl_verb_flags(v->name, &count);
    print_flags(flags, count);
    if (v->keys) {
        flags = pl_args_serve_flags(&count);
        print_flags(flags, count);
        printf("  every key of the configuration: --traffic.timeout 30s, --services.NAME.workers 2\n"
               "  (plimsoll config reference lists them)\n");
    }
    if (v->server) {
        flags = pl_args_server_flags(&count);
        print_flags(flags, count);
    }
    flags = pl_args_shared_flags(&count);
    print_flags(flags, count);
}

/* What the arguments of a verb may be; NULL: no verb. */
static bool parse(int argc, char **argv, int at, const struct verb *v, struct pl_cli *cli,
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
    return parse(argc, argv, pl_args_find_verb(argc, argv), find_verb(verb), cli, err);
}

static int dispatch(int argc, char **argv, struct pl_cli *cli) {
    struct pl_err err = { 0 };
    const struct verb *v = NULL;
    int at = pl_args_find_verb(argc, argv);
    if (at > 0) v = find_verb(argv[at]);
    if (at > 0 && v == NULL) {
        PL_FAIL(&err, PL_E_USAGE, "unknown verb '%s'", argv[at]);
        pl_err_hint(&err, "plimsoll --help lists them");
        return pl_cli_fail(cli, &err);
    }
    if (!parse(argc, argv, at, v, cli, &err)) return pl_cli_fail(cli, &err);
    if (cli->args.version) {
        printf("plimsoll %s (llhttp %s)\n", PL_VERSION, PL_LLHTTP_VERSION);
        return 0;
    }
    if (v == NULL || cli->args.help) {
        if (v != NULL)
            print_verb_help(v);
        else
            print_help();
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
