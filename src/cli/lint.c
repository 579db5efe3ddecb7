/* lint.c - `plimsoll lint PATH...`: the interpreter's own `ast` reads Python, in a process of its own that
 * imports the rules and nothing of the user's; a bentofile is YAML and judged here. Shown as lines or as one
 * document. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "cli/child.h"
#include "cli/figures.h"
#include "cli/paths.h"
#include "cli/snapshot_out.h"
#include "cli/verbs.h"
#include "ship/bentofile.h"

enum {
    ANSWER_BYTES = 64 << 20,
    LIMIT_MS = 300000,
    OWN_WORDS = 9,
    SHOWN_CHARS = 400,
    FOUND_STATUS = 1,
    NOTHING_STATUS = 4,
    REFUSED_STATUS = 5
};

/* -I -S: neither the folder we stand in nor site-packages is on its path, so a json.py beside the service is
 * only read.
 */
static const char program[] = "import sys\n"
                              "sys.path.insert(0, sys.argv.pop(1))\n"
                              "sys.dont_write_bytecode = True\n"
                              "sys.setrecursionlimit(4000)\n"
                              "from plimsoll.lint.__main__ import main\n"
                              "sys.exit(main(sys.argv[1:]))\n";

struct lint {
    struct pl_cli *cli;
    const char *select, *ignore;
    const json_t *rules; /* id -> {level, title, fix} */
    json_t *findings, *notes, *silenced;
    size_t files, errors, warnings;
};

/* Is the id in "PL001,PL002"? Blanks are allowed. */
static bool listed(const char *ids, const char *id) {
    size_t n = strlen(id);
    for (const char *at = ids; (at = strstr(at, id)) != NULL; at += n)
        if ((at == ids || strchr(", ", at[-1]) != NULL) && strchr(", ", at[n]) != NULL) return true;
    return false;
}

static bool wanted(const struct lint *l, const char *rule) {
    if (l->select != NULL && !listed(l->select, rule)) return false;
    return l->ignore == NULL || !listed(l->ignore, rule);
}

static void found(struct lint *l, const char *path, const char *rule, json_int_t line, json_int_t col,
                  const char *text, bool silenced) {
    const json_t *about = json_object_get(l->rules, rule);
    const char *level = pl_fig_text(about, "level");
    if (!wanted(l, rule)) return;
    json_t *row = json_pack("{s:s,s:I,s:I,s:s,s:s,s:s,s:s,s:s}", "file", path, "line", line, "col", col,
                            "rule", rule, "severity", level, "text", text, "title",
                            pl_fig_text(about, "title"), "fix", pl_fig_text(about, "fix"));
    if (silenced) {
        json_array_append_new(l->silenced, row);
        return;
    }
    json_array_append_new(strcmp(level, "note") == 0 ? l->notes : l->findings, row);
    l->errors += strcmp(level, "error") == 0;
    l->warnings += strcmp(level, "warning") == 0;
}

static void take_rows(struct lint *l, const char *path, const json_t *rows, bool silenced) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        found(l, path, pl_fig_text(row, "rule"), json_integer_value(json_object_get(row, "line")),
              json_integer_value(json_object_get(row, "col")), pl_fig_text(row, "text"), silenced);
    }
}

/* --- bentofiles */

static bool read_file(const char *path, struct pl_buf *out) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    char piece[16384];
    size_t n = 0;
    if (f == NULL) return false;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        if (!pl_buf_add(out, piece, n)) return false;
    return ferror(f) == 0;
}

/* "FILE:3:7: what" -> 3, 7 and what. */
static const char *split_place(const char *message, long long *line, long long *col) {
    *line = *col = 1;
    for (const char *at = message; (at = strchr(at, ':')) != NULL; at++) {
        int used = 0;
        if (sscanf(at, ":%lld:%lld: %n", line, col, &used) == 2 && used > 0) return at + used;
    }
    return message;
}

static void judge_bentofile(struct lint *l, const json_t *entry) {
    static struct pl_bento_finding rows[PL_BENTO_FINDINGS];
    const char *path = pl_fig_text(entry, "path");
    const json_t *facts = json_object_get(entry, "facts"), *ignored = json_object_get(entry, "ignored");
    struct pl_bento_facts known = { .known = json_is_object(facts),
                                    .records_models = json_is_true(json_object_get(facts, "records_models")),
                                    .fetches_models = json_is_true(json_object_get(facts, "fetches_models")),
                                    .device = json_is_true(json_object_get(facts, "device")) };
    struct pl_err err = { 0 };
    struct pl_arena arena;
    struct pl_tree tree;
    struct pl_buf text;
    pl_arena_init(&arena, 0);
    pl_buf_init(&text, PL_TREE_BYTES + 1);
    bool ok = read_file(path, &text) || PL_FAIL(&err, PL_E_CONFIG, "1:1: larger than 8 MiB, or gone");
    if (!ok || !pl_tree_read(path, text.data != NULL ? text.data : "", text.len, &arena, &tree, &err)) {
        long long line, col;
        const char *why = split_place(err.msg, &line, &col);
        found(l, path, "PL033", line, col, why, false);
    } else if (tree.count > 0) {
        size_t count = pl_bentofile_check(tree.documents[0], &known, rows);
        for (size_t i = 0; i < count; i++) {
            char key[16];
            snprintf(key, sizeof key, "%u", rows[i].line);
            json_t *rules = json_object_get(ignored, key), *one;
            size_t k;
            bool silenced = false;
            json_array_foreach(rules, k, one) {
                silenced = silenced || strcmp(json_string_value(one), rows[i].rule) == 0;
            }
            found(l, path, rows[i].rule, rows[i].line, rows[i].col, rows[i].text, silenced);
        }
    }
    pl_buf_free(&text);
    pl_arena_free(&arena);
}

/* --- asking the interpreter */

static json_t *ask(struct pl_cli *cli, const char *const *own, size_t own_count, bool reads_stdin,
                   struct pl_err *err) {
    char python[PL_PATH_BYTES], side[PL_PATH_BYTES];
    const struct pl_strings *paths = &cli->args.words;
    if (!pl_path_python(pl_args_value(&cli->args, "python"), python, err) || !pl_path_python_side(side, err))
        return NULL;
    const char **words = pl_arena_alloc(cli->arena, (paths->count + OWN_WORDS) * sizeof *words);
    size_t n = 0;
    if (words == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "no memory for %zu paths", paths->count);
        return NULL;
    }
    words[n++] = python;
    words[n++] = "-I";
    words[n++] = "-S";
    words[n++] = "-c";
    words[n++] = program;
    words[n++] = side;
    for (size_t i = 0; i < own_count; i++) words[n++] = own[i];
    for (size_t i = 0; own_count == 0 && i < paths->count; i++) words[n++] = paths->at[i];
    const struct pl_child child = {
        .argv = words, .shows_stderr = true, .reads_stdin = reads_stdin, .limit_ms = LIMIT_MS
    };
    struct pl_buf text;
    pl_buf_init(&text, ANSWER_BYTES);
    int status = pl_child_ask(&child, &text);
    json_t *doc = status == 0 ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    pl_buf_free(&text);
    if (doc == NULL) {
        PL_FAIL(err, PL_E_SYS, "%s did not run the rules", python);
        pl_err_hint(err, "the lines above say why; --python names another interpreter (3.9 or newer)");
    }
    return doc;
}

/* --- showing */

static void put(struct pl_buf *out, const char *text) {
    pl_snapshot_put(out, text, strlen(text), SHOWN_CHARS);
}

static void show_rows(struct pl_buf *out, const json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        put(out, pl_fig_text(row, "file"));
        pl_buf_addf(out, ":%lld:%lld ", (long long)json_integer_value(json_object_get(row, "line")),
                    (long long)json_integer_value(json_object_get(row, "col")));
        pl_buf_addf(out, "%s %s ", pl_fig_text(row, "rule"), pl_fig_text(row, "severity"));
        put(out, pl_fig_text(row, "text"));
        pl_buf_adds(out, "\n");
    }
}

static void count_words(struct pl_buf *out, size_t n, const char *one) {
    pl_buf_addf(out, "%zu %s%s", n, one, n == 1 ? "" : "s");
}

static void show(const struct lint *l, struct pl_buf *out) {
    size_t notes = json_array_size(l->notes), silenced = json_array_size(l->silenced);
    show_rows(out, l->findings);
    if (notes > 0 && json_array_size(l->findings) > 0) pl_buf_adds(out, "\n");
    show_rows(out, l->notes);
    if (l->cli->args.quiet) return;
    if (json_array_size(l->findings) + notes > 0) pl_buf_adds(out, "\n");
    count_words(out, l->files, "file");
    pl_buf_adds(out, ": ");
    count_words(out, l->errors, "error");
    pl_buf_adds(out, ", ");
    count_words(out, l->warnings, "warning");
    pl_buf_adds(out, ", ");
    count_words(out, notes, "note");
    if (silenced > 0) pl_buf_addf(out, ", %zu silenced by comments", silenced);
    pl_buf_adds(out, "\n");
    if (json_array_size(l->findings) > 0) {
        const char *first = pl_fig_text(json_array_get(l->findings, 0), "rule");
        pl_buf_addf(out, "why, and what to write instead: plimsoll lint --rules --select %s\n", first);
    }
}

static void show_example(struct pl_buf *out, const char *label, const char *text) {
    pl_buf_addf(out, "\n  %s\n", label);
    for (const char *at = text; *at != '\0';) {
        const char *end = strchr(at, '\n');
        size_t n = end != NULL ? (size_t)(end - at) : strlen(at);
        pl_buf_adds(out, n > 0 ? "      " : "");
        pl_buf_add(out, at, n);
        pl_buf_adds(out, "\n");
        at += n + (end != NULL);
    }
}

static int show_rules(struct lint *l, struct pl_err *err) {
    static const char *const own[] = { "--rules" };
    json_t *doc = ask(l->cli, own, 1, false, err), *row;
    struct pl_buf out;
    size_t i, shown = 0;
    if (doc == NULL) return pl_cli_fail(l->cli, err);
    pl_buf_init(&out, 0);
    json_t *kept = json_array();
    json_array_foreach(json_object_get(doc, "rules"), i, row) {
        if (!wanted(l, pl_fig_text(row, "id"))) continue;
        shown++;
        json_array_append(kept, row);
        if (l->select == NULL) {
            pl_buf_addf(&out, "%s %-7s %s\n", pl_fig_text(row, "id"), pl_fig_text(row, "level"),
                        pl_fig_text(row, "title"));
            continue;
        }
        pl_buf_addf(&out, "%s%s %s: %s\n\n  why  %s\n  fix  %s\n", shown > 1 ? "\n" : "",
                    pl_fig_text(row, "id"), pl_fig_text(row, "level"), pl_fig_text(row, "title"),
                    pl_fig_text(row, "why"), pl_fig_text(row, "fix"));
        show_example(&out, "found in", pl_fig_text(row, "bad"));
        show_example(&out, "not in", pl_fig_text(row, "good"));
    }
    if (l->cli->args.json) {
        json_t *answer = json_pack("{s:i,s:s,s:o}", "v", 1, "kind", "lint_rules", "rules", kept);
        json_dumpf(answer, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(answer);
    } else {
        if (out.len > 0) fwrite(out.data, 1, out.len, stdout);
        json_decref(kept);
    }
    pl_buf_free(&out);
    json_decref(doc);
    if (shown > 0) return 0;
    PL_FAIL(err, PL_E_USAGE, "no rule is called %.60s", l->select != NULL ? l->select : "so");
    return pl_cli_fail(l->cli, err);
}

static bool known_ids(const json_t *rules, const char *ids, struct pl_err *err) {
    char id[16];
    for (const char *at = ids; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, ", ");
        if (n > 0) {
            snprintf(id, sizeof id, "%.*s", (int)(n < 15 ? n : 15), at);
            if (json_object_get(rules, id) == NULL) {
                PL_FAIL(err, PL_E_USAGE, "no rule is called '%s'", id);
                return pl_err_hint(err, "plimsoll lint --rules lists them");
            }
        }
        at += n + (at[n] != '\0');
    }
    return true;
}

static int answer(struct lint *l, json_t *doc) {
    size_t i, refused = 0, unjudged = 0;
    json_t *entry;
    json_array_foreach(json_object_get(doc, "files"), i, entry) {
        const char *path = pl_fig_text(entry, "path");
        l->files++;
        take_rows(l, path, json_object_get(entry, "findings"), false);
        take_rows(l, path, json_object_get(entry, "silenced"), true);
        if (strcmp(pl_fig_text(entry, "kind"), "bentofile") == 0) judge_bentofile(l, entry);
    }
    json_array_foreach(json_object_get(doc, "refused"), i, entry) {
        bool ours = json_is_true(json_object_get(entry, "unjudged"));
        unjudged += ours;
        refused += !ours;
        if (!l->cli->args.json) /* there it is in the document */
            fprintf(stderr, "plimsoll: %.200s: %.200s\n", pl_fig_text(entry, "path"),
                    pl_fig_text(entry, "why"));
    }
    bool strict = pl_args_has(&l->cli->args, "strict");
    int status = refused > 0                                    ? REFUSED_STATUS
                 : l->errors > 0 || (strict && l->warnings > 0) ? FOUND_STATUS
                 : l->files == 0 || unjudged > 0                ? NOTHING_STATUS
                                                                : 0;
    if (l->cli->args.json) {
        json_t *out =
            json_pack("{s:i,s:s,s:I,s:I,s:I,s:i,s:O,s:O,s:O,s:O}", "v", 1, "kind", "lint", "files",
                      (json_int_t)l->files, "errors", (json_int_t)l->errors, "warnings",
                      (json_int_t)l->warnings, "exit", status, "findings", l->findings, "notes", l->notes,
                      "silenced", l->silenced, "refused", json_object_get(doc, "refused"));
        json_dumpf(out, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(out);
        return status;
    }
    if (l->files == 0) {
        if (refused + unjudged == 0) fprintf(stderr, "plimsoll: no .py file and no bentofile.yaml there\n");
        return status;
    }
    struct pl_buf text;
    pl_buf_init(&text, 0);
    show(l, &text);
    if (text.len > 0) fwrite(text.data, 1, text.len, stdout);
    pl_buf_free(&text);
    return status;
}

int pl_verb_lint(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct lint l = { .cli = cli,
                      .select = pl_args_value(&cli->args, "select"),
                      .ignore = pl_args_value(&cli->args, "ignore") };
    const char *name = pl_args_value(&cli->args, "stdin-name");
    if (pl_args_has(&cli->args, "rules")) return show_rules(&l, &err);
    if (name == NULL && cli->args.words.count == 0) {
        PL_FAIL(&err, PL_E_USAGE, "what is to be looked at? plimsoll lint PATH...");
        return pl_cli_fail(cli, &err);
    }
    const char *own[] = { "--stdin-name", name };
    json_t *doc = ask(cli, own, name != NULL ? 2 : 0, name != NULL, &err);
    if (doc == NULL) return pl_cli_fail(cli, &err);
    l.rules = json_object_get(doc, "rules");
    if (!known_ids(l.rules, l.select, &err) || !known_ids(l.rules, l.ignore, &err)) {
        json_decref(doc);
        return pl_cli_fail(cli, &err);
    }
    l.findings = json_array();
    l.notes = json_array();
    l.silenced = json_array();
    int status = answer(&l, doc);
    json_decref(l.findings);
    json_decref(l.notes);
    json_decref(l.silenced);
    json_decref(doc);
    return status;
}
