/* cli/verbs.h - the verbs: one file a verb, one table (verbs.def) for names, groups, help and arguments. */
#ifndef PL_CLI_VERBS_H
#define PL_CLI_VERBS_H
#include "base/arena.h"
#include "cli/args.h"

/* What a verb is given. Returns the exit status (surface.md 1.1). */
struct pl_cli {
    const char *program; /* argv[0] */
    struct pl_args args;
    struct pl_arena *arena;
    int argc; /* as given, for whoever must read them once more */
    char **argv;
};
typedef int pl_verb_run(struct pl_cli *cli);

/* VERB(symbol, "name", "GROUP", "arguments", "what it does", least words, most words, server, keys) */
#define VERB(symbol, ...) pl_verb_run pl_verb_##symbol;
#include "cli/verbs.def"
#undef VERB

/* A row of the table. */
struct pl_verb {
    const char *name, *group, *words, *help; /* group "": not listed */
    size_t least, most;
    bool server, keys;
    pl_verb_run *run;
};
/* By its name or an alias; NULL: there is none. */
const struct pl_verb *pl_verb_find(const char *name);
/* What `verb` takes, or the list of verbs if it is NULL; for people or as JSON, on stdout. */
void pl_help_print(const struct pl_verb *verb, bool json);

/* Prints the error in words, or as one JSON line with --json, and returns its exit status. */
int pl_cli_fail(const struct pl_cli *cli, const struct pl_err *err);
/* --color; auto is a terminal, and no NO_COLOR. */
bool pl_cli_color(const struct pl_cli *cli);
/* Reads the arguments of a verb once more. cli->arena is set by the caller. */
bool pl_cli_parse(int argc, char **argv, const char *verb, struct pl_cli *cli, struct pl_err *err);
/* The whole program. */
int pl_cli_main(int argc, char **argv);
/* The gateway process: the hidden verb the keeper starts. argv as serve.c wrote it. */
int pl_run_main(int argc, char **argv);
/* Reads the flight record for a running server: read-record PLACE report|history|timeline [key=value...]. */
int pl_read_record_main(int argc, char **argv);
#endif
