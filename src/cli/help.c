/* help.c - the verbs as a table, and the help that is made of it: for people by group, and as JSON for who
 * writes manual pages and completions (scripts/manual.py), or an editor. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/flags.h"
#include "cli/verbs.h"

static const struct pl_verb verbs[] = {
#define VERB(symbol, name, group, words, help, least, most, server, keys) \
    { name, group, words, help, least, most, server, keys, pl_verb_##symbol },
#include "cli/verbs.def"
#undef VERB
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

const struct pl_verb *pl_verb_find(const char *name) {
    if (strcmp(name, "replace") == 0) name = "restart"; /* alias */
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* --- for people */

static void print_list(void) {
    static const char *const groups[] = { "Run", "Diagnose", "Prove", "Ship" };
    printf("plimsoll - never cold, never leaks, never OOMs: a line around the model servers you run\n\n"
           "usage: plimsoll VERB [arguments]     plimsoll help VERB tells more\n");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        printf("\n%s\n", groups[g]);
        for (size_t i = 0; i < VERB_COUNT; i++)
            if (strcmp(verbs[i].group, groups[g]) == 0)
                printf("  %-8s %-24s %s\n", verbs[i].name, verbs[i].words, verbs[i].help);
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

static void print_verb(const struct pl_verb *v) {
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

/* --- as data */

static json_t *flags_json(const struct pl_flag *flags, size_t count) {
    static const char *const kinds[] = { "switch", "value", "optional" };
    json_t *out = json_array();
    for (size_t i = 0; i < count; i++) {
        char letter[2] = { flags[i].letter, '\0' };
        json_t *f = json_pack("{s:s,s:s,s:s}", "name", flags[i].name, "kind", kinds[flags[i].kind], "text",
                              flags[i].help);
        if (flags[i].letter != 0) json_object_set_new(f, "letter", json_string(letter));
        if (flags[i].value != NULL) json_object_set_new(f, "value", json_string(flags[i].value));
        json_array_append_new(out, f);
    }
    return out;
}

static json_t *verb_json(const struct pl_verb *v) {
    size_t count;
    const struct pl_flag *flags = pl_verb_flags(v->name, &count);
    return json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:o}", "name", v->name, "group", v->group, "arguments",
                     v->words, "text", v->help, "server", v->server, "keys", v->keys, "flags",
                     flags_json(flags, count));
}

static void print_json(const struct pl_verb *only) {
    size_t shared, server, serve;
    const struct pl_flag *shared_flags = pl_args_shared_flags(&shared);
    const struct pl_flag *server_flags = pl_args_server_flags(&server);
    const struct pl_flag *serve_flags = pl_args_serve_flags(&serve);
    json_t *list = json_array();
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (only == NULL || only == &verbs[i]) json_array_append_new(list, verb_json(&verbs[i]));
    json_t *doc = json_pack("{s:i,s:s,s:s,s:o,s:o,s:o,s:o}", "v", 1, "kind", "help", "version", PL_VERSION,
                            "verbs", list, "shared", flags_json(shared_flags, shared), "server",
                            flags_json(server_flags, server), "keys", flags_json(serve_flags, serve));
    char *text = json_dumps(doc, JSON_COMPACT);
    printf("%s\n", text != NULL ? text : "{}");
    free(text);
    json_decref(doc);
}

void pl_help_print(const struct pl_verb *verb, bool json) {
    if (json)
        print_json(verb);
    else if (verb != NULL)
        print_verb(verb);
    else
        print_list();
}

int pl_verb_help(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    const char *name = cli->args.words.count > 0 ? cli->args.words.at[0] : NULL;
    const struct pl_verb *v = name != NULL ? pl_verb_find(name) : NULL;
    if (name != NULL && v == NULL) {
        PL_FAIL(&err, PL_E_USAGE, "unknown verb '%.40s'", name);
        pl_err_hint(&err, "plimsoll help lists them");
        return pl_cli_fail(cli, &err);
    }
    pl_help_print(v, cli->args.json);
    return 0;
}
