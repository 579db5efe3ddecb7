/* cli/args.h - the command line as data: shared flags, a verb's own flags, and for `serve` every key of the
 * configuration as a flag. Nothing is done here; what is wrong is a usage error with a "did you mean".
 *
 * `--flag value` and `--flag=value` are the same, letters of switches may stand together (-qv), `-p3000` is
 * `-p 3000`,
 * `--` ends the flags, `_` and `-` are the same in long flags. All strings are borrowed from argv or live in
 * the arena given.
 */
#ifndef PL_CLI_ARGS_H
#define PL_CLI_ARGS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "config/config.h"

/* OPTIONAL takes a value only as --flag=value, or as the next argument when that is a number (`-w 2`). */
enum pl_flag_kind { PL_FLAG_SWITCH, PL_FLAG_VALUE, PL_FLAG_OPTIONAL };
struct pl_flag {
    const char *name; /* without the dashes: "follow" */
    char letter;      /* 0 = none */
    enum pl_flag_kind kind;
    const char *value; /* as the help shows it: "DUR"; NULL for switches */
    const char *help;
};

/* What one verb takes. */
struct pl_verb_args {
    const char *verb; /* "status" */
    const struct pl_flag *flags;
    size_t flag_count;
    bool server;                 /* talks to a server: --admin, --token-file, --wait */
    bool keys;                   /* `serve`: its flags, and every key of the configuration */
    size_t min_words, max_words; /* positional arguments; those behind `--` are not counted */
};

enum pl_color { PL_COLOR_AUTO, PL_COLOR_ALWAYS, PL_COLOR_NEVER };
struct pl_args_flag {
    const char *name;  /* as in the table */
    const char *value; /* "" for switches, NULL for an OPTIONAL without one */
};
struct pl_args_key {
    const char *path; /* for pl_config_set_path */
    const char *text;
    const char *place; /* the flag as typed: "--workers" */
};
struct pl_args {
    bool json, help, version, quiet;
    int verbose; /* how many -v */
    enum pl_color color;
    const char *config; /* NULL = not given, as with the next three */
    const char *admin, *token_file;
    int64_t wait_ms;            /* -1 = not given */
    const char *name;           /* serve: --name, the service's */
    bool check;                 /* serve: --check */
    bool allow_drydock;         /* serve: --allow-drydock */
    struct pl_strings words;    /* positional arguments */
    struct pl_strings rest;     /* behind `--` */
    bool has_rest;              /* `--` was there */
    struct pl_args_flag *flags; /* the verb's own that were given, in order */
    size_t flag_count;
    struct pl_args_key *keys; /* serve: what to set, in order */
    size_t key_count;
};

/* The first argument that is neither a shared flag nor its value: the verb. argv[0] is the program. 0 = there
 * is none (then `args` holds --help or --version if they were given). */
int pl_args_find_verb(int argc, char *const *argv);
/* Reads all of argv but argv[0] and argv[verb_at] (0: no verb is left out). `verb` may be NULL: shared flags
 * only. */
bool pl_args_parse(int argc, char *const *argv, int verb_at, const struct pl_verb_args *verb,
                   struct pl_arena *arena, struct pl_args *out, struct pl_err *err);
/* The last value given for a flag of the verb's table, NULL if it was not given. */
const char *pl_args_value(const struct pl_args *a, const char *name);
bool pl_args_has(const struct pl_args *a, const char *name);
/* The number given for it; K, M and G are decimal. Not given: true, and `out` as it was. */
bool pl_args_count(const struct pl_args *a, const char *name, uint64_t least, uint64_t most, uint64_t *out,
                   struct pl_err *err);
/* Sets serve's flags in the configuration, with origin `flag`. The target must have been added. */
bool pl_args_apply(const struct pl_args *a, struct pl_config *cfg, struct pl_err *err);
/* For the help texts: the shared flags, those of verbs that talk to a server, and serve's own that are not a
 * key by their name (--port, --timeout ...). */
const struct pl_flag *pl_args_shared_flags(size_t *count);
const struct pl_flag *pl_args_server_flags(size_t *count);
const struct pl_flag *pl_args_serve_flags(size_t *count);
#endif
