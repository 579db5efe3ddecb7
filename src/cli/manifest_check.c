/* manifest_check.c - `plimsoll manifest --check FILE|DIR...`: files to trees, trees to findings, findings to
 * lines. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/manifest.h"
#include "cli/snapshot_out.h"
#include "ship/kube.h"

enum { MOST_FILES = 500, FOUND_STATUS = 1, SHOWN_CHARS = 300 };

struct file {
    const char *path;
    struct pl_buf text; /* for the comments that silence */
};
struct check {
    struct pl_cli *cli;
    struct pl_kube kube;
    struct file *files;
    size_t file_count;
};

static bool is_yaml(const char *name) {
    size_t n = strlen(name);
    return name[0] != '.' &&
           ((n > 5 && strcmp(name + n - 5, ".yaml") == 0) || (n > 4 && strcmp(name + n - 4, ".yml") == 0));
}

static bool take_file(struct check *c, const char *path, struct pl_err *err) {
    if (c->file_count == MOST_FILES) return PL_FAIL(err, PL_E_TOO_LARGE, "more than %d files", MOST_FILES);
    struct file *f = &c->files[c->file_count++];
    struct pl_tree *tree = pl_arena_alloc(c->cli->arena, sizeof *tree);
    f->path = pl_arena_strndup(c->cli->arena, path, strlen(path));
    if (tree == NULL || f->path == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for %s", path);
    pl_buf_init(&f->text, PL_TREE_BYTES + 1);
    if (!pl_manifest_read(path, &f->text, err)) return false;
    const char *text = pl_buf_text(&f->text);
    if (!pl_tree_read(f->path, text, f->text.len, c->cli->arena, tree, err)) return false;
    pl_kube_add(&c->kube, f->path, tree);
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool take_folder(struct check *c, const char *path, struct pl_err *err) {
    struct dirent **names;
    char full[4096];
    int count = scandir(path, &names, NULL, by_name);
    bool ok = count >= 0 || PL_FAIL_SYS(err, errno, "read %s", path);
    for (int i = 0; i < count; i++) {
        if (ok && is_yaml(names[i]->d_name)) {
            snprintf(full, sizeof full, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
                     names[i]->d_name);
            ok = take_file(c, full, err);
        }
        free(names[i]);
    }
    if (count >= 0) free(names);
    return ok;
}

static bool take_path(struct check *c, const char *path, struct pl_err *err) {
    struct stat st;
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return take_folder(c, path, err);
    return take_file(c, path, err);
}

static bool silenced(const struct check *c, const struct pl_kube_finding *f) {
    for (size_t i = 0; i < c->file_count; i++)
        if (c->files[i].path == f->object->file)
            return pl_kube_ignored(c->files[i].text.data, c->files[i].text.len, f->line,
                                   pl_kube_rules[f->rule].id);
    return false;
}

/* --- showing */

static void sentence(const struct pl_kube_finding *f, char *out, size_t room) {
    snprintf(out, room, "%s%s%s", pl_kube_rules[f->rule].finding, f->detail[0] != '\0' ? ": " : "",
             f->detail);
}

static json_t *row(const struct pl_kube_finding *f) {
    char text[400], object[200];
    sentence(f, text, sizeof text);
    snprintf(object, sizeof object, "%s/%s", f->object->kind, f->object->name);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:s,s:s}", "rule", pl_kube_rules[f->rule].id, "severity",
                     pl_kube_rules[f->rule].error ? "error" : "warning", "object", object, "path", f->path,
                     "file", f->object->file, "line", (json_int_t)f->line, "col", (json_int_t)f->col, "text",
                     text, "fix", pl_kube_rules[f->rule].remedy);
}

static void put(struct pl_buf *out, const char *text) {
    pl_snapshot_put(out, text, strlen(text), SHOWN_CHARS);
}

static void show(struct pl_buf *out, const struct pl_kube_finding *f) {
    char text[400];
    sentence(f, text, sizeof text);
    put(out, f->object->file);
    pl_buf_addf(out, ":%u:%u %s %s ", f->line, f->col, pl_kube_rules[f->rule].id,
                pl_kube_rules[f->rule].error ? "error" : "warning");
    put(out, f->object->kind);
    pl_buf_adds(out, "/");
    put(out, f->object->name);
    pl_buf_addf(out, " %s: ", f->path);
    put(out, text);
    pl_buf_addf(out, "\n    -> %s\n", pl_kube_rules[f->rule].remedy);
}

static int answer(struct check *c) {
    size_t errors = 0, warnings = 0, hidden = 0, judged = 0;
    json_t *rows = json_array(), *quiet = json_array();
    struct pl_buf out;
    pl_buf_init(&out, 0);
    for (size_t i = 0; i < c->kube.object_count; i++)
        judged += strcmp(c->kube.objects[i].kind, "Deployment") == 0;
    for (size_t i = 0; i < c->kube.finding_count; i++) {
        const struct pl_kube_finding *f = &c->kube.findings[i];
        bool off = silenced(c, f);
        json_array_append_new(off ? quiet : rows, row(f));
        hidden += off;
        if (off) continue;
        show(&out, f);
        errors += pl_kube_rules[f->rule].error;
        warnings += !pl_kube_rules[f->rule].error;
    }
    int status = errors > 0 ? FOUND_STATUS : 0;
    if (c->cli->args.json) {
        json_t *doc = json_pack("{s:i,s:s,s:I,s:I,s:I,s:I,s:i,s:b,s:O,s:O}", "v", 1, "kind", "manifest_check",
                                "files", (json_int_t)c->file_count, "deployments", (json_int_t)judged,
                                "errors", (json_int_t)errors, "warnings", (json_int_t)warnings, "exit",
                                status, "truncated", c->kube.truncated, "findings", rows, "silenced", quiet);
        json_dumpf(doc, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(doc);
    } else {
        if (out.len > 0) fwrite(out.data, 1, out.len, stdout);
        if (!c->cli->args.quiet) {
            printf("%s%zu file%s, %zu Deployment%s: %zu error%s, %zu warning%s", out.len > 0 ? "\n" : "",
                   c->file_count, c->file_count == 1 ? "" : "s", judged, judged == 1 ? "" : "s", errors,
                   errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
            if (hidden > 0) printf(", %zu silenced by comments", hidden);
            printf("%s\n", c->kube.truncated ? "; more than can be looked at" : "");
        }
    }
    json_decref(rows);
    json_decref(quiet);
    pl_buf_free(&out);
    return status;
}

static bool measured(struct pl_cli *cli, struct pl_kube_measured *out, struct pl_err *err) {
    const char *path = pl_args_value(&cli->args, "measured");
    struct pl_measured m;
    struct pl_size_ask ask = { .replicas = 1, .workers = 1 };
    *out = (struct pl_kube_measured){ .spare_gpu = pl_args_has(&cli->args, "spare-gpu") };
    if (path == NULL) return true;
    if (!pl_manifest_measured(path, NULL, &m, &ask, err)) return false;
    for (uint32_t i = 0; i < m.boot_count; i++)
        if (m.boots_s[i] > out->boot_s) out->boot_s = m.boots_s[i];
    out->drain_s = m.longest_request_s + m.queue_max_wait_s;
    out->worker_stop_s = m.worker_stop_s;
    if (m.worker_steady_bytes > 0) out->host_peak_bytes = (double)pl_size_peak(&m, &ask);
    return true;
}

int pl_manifest_check(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_kube_measured known;
    struct check c = { .cli = cli, .files = pl_arena_alloc(cli->arena, MOST_FILES * sizeof *c.files) };
    const struct pl_strings *paths = &cli->args.words;
    bool ok = c.files != NULL || PL_FAIL(&err, PL_E_NOMEM, "no memory");
    if (ok && paths->count == 0) {
        ok = PL_FAIL(&err, PL_E_USAGE, "what is to be checked? plimsoll manifest --check FILE|DIR");
        pl_err_hint(&err, "kubectl kustomize . | plimsoll manifest --check -");
    }
    ok = ok && measured(cli, &known, &err) && pl_kube_init(&c.kube, cli->arena, &err);
    for (size_t i = 0; ok && i < paths->count; i++) ok = take_path(&c, paths->at[i], &err);
    int status = 0;
    if (ok) {
        pl_kube_check(&c.kube, &known);
        status = answer(&c);
    } else {
        status = pl_cli_fail(cli, &err);
    }
    for (size_t i = 0; i < c.file_count; i++) pl_buf_free(&c.files[i].text);
    return status;
}
