/* manifest_write.c - `plimsoll manifest`: the files to a folder, joined to stdout, or in a JSON document. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/manifest.h"
#include "ship/tree.h"

/* --- out */

static bool put_file(int folder, const char *dir, const char *name, const struct pl_buf *text,
                     struct pl_err *err) {
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "write %s/%s", dir, name);
    FILE *f = fdopen(fd, "w");
    bool ok = f != NULL && fwrite(text->data, 1, text->len, f) == text->len;
    if (f == NULL) close(fd);
    if (f != NULL && fclose(f) != 0) ok = false;
    return ok || PL_FAIL_SYS(err, errno, "write %s/%s", dir, name);
}

/* All resources of the set as one stream of documents, with a ConfigMap in the place of the generator. */
static void put_datum(const char *name, const struct pl_buf *text, struct pl_buf *out) {
    bool indented = text->len > 0 && (text->data[0] == ' ' || text->data[0] == '\n');
    pl_buf_addf(out, "  %s: |%s\n", name, indented ? "2" : "");
    for (size_t at = 0; at < text->len;) {
        const char *stop = memchr(text->data + at, '\n', text->len - at);
        size_t n = stop != NULL ? (size_t)(stop - (text->data + at)) + 1 : text->len - at;
        pl_buf_adds(out, n > 1 ? "    " : "");
        pl_buf_add(out, text->data + at, n);
        at += n;
        if (stop == NULL) pl_buf_adds(out, "\n");
    }
}

static void join(const struct pl_manifest_job *j, const struct pl_manifest_set *set,
                 const struct pl_buf *config, struct pl_buf *out) {
    for (size_t i = 0; i < set->count; i++) {
        if (!set->files[i].resource) continue;
        pl_buf_addf(out, "%s", out->len > 0 ? "---\n" : "");
        pl_buf_add(out, set->files[i].text.data, set->files[i].text.len);
    }
    if (j->m.sidecar) return;
    pl_buf_addf(out, "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s-plimsoll\ndata:\n",
                j->m.name);
    put_datum("plimsoll.yaml", config, out);
    for (size_t i = 0; i < j->m.beside_count; i++) put_datum(j->m.beside[i], &j->beside[i], out);
}

static bool put_folder(const struct pl_manifest_job *j, const struct pl_manifest_set *set,
                       const struct pl_buf *config, const struct pl_buf *notes, const char *dir,
                       struct pl_err *err) {
    if (mkdir(dir, 0755) != 0 && errno != EEXIST) return PL_FAIL_SYS(err, errno, "make %s", dir);
    PL_AUTO_FD int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder == -1) return PL_FAIL_SYS(err, errno, "open %s", dir);
    bool ok = true;
    if (pl_args_has(&j->cli->args, "single")) {
        struct pl_buf all;
        pl_buf_init(&all, 0);
        join(j, set, config, &all);
        ok = put_file(folder, dir, "plimsoll-manifest.yaml", &all, err);
        pl_buf_free(&all);
        for (size_t i = 0; ok && i < set->count;
             i++) /* rules for a Prometheus without operator are no object */
            if (strcmp(set->files[i].name, "rules.yaml") == 0)
                ok = put_file(folder, dir, "rules.yaml", &set->files[i].text, err);
    } else {
        for (size_t i = 0; ok && i < set->count; i++)
            ok = put_file(folder, dir, set->files[i].name, &set->files[i].text, err);
        if (ok && !j->m.sidecar) ok = put_file(folder, dir, "plimsoll.yaml", config, err);
        for (size_t i = 0; ok && i < j->m.beside_count; i++)
            ok = put_file(folder, dir, j->m.beside[i], &j->beside[i], err);
    }
    return ok && put_file(folder, dir, "NOTES.md", notes, err);
}

/* With --json: what the files would be. */
static void show_json(const struct pl_manifest_job *j, const struct pl_manifest_set *set,
                      const struct pl_buf *config, const struct pl_buf *notes) {
    json_t *files = json_array();
    for (size_t i = 0; i < set->count; i++)
        json_array_append_new(files, json_pack("{s:s,s:s%}", "name", set->files[i].name, "text",
                                               set->files[i].text.data, set->files[i].text.len));
    if (!j->m.sidecar)
        json_array_append_new(
            files, json_pack("{s:s,s:s%}", "name", "plimsoll.yaml", "text", config->data, config->len));
    json_t *doc = json_pack("{s:i,s:s,s:s,s:b,s:b,s:o,s:s%}", "v", 1, "kind", "manifest", "name", j->m.name,
                            "boot_measured", j->m.size.boot_known, "memory_measured", j->m.size.host_known,
                            "files", files, "notes", notes->data, notes->len);
    json_dumpf(doc, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(doc);
}

static int put_all(struct pl_manifest_job *j, const struct pl_buf *config, struct pl_err *err) {
    const char *dir = pl_args_value(&j->cli->args, "out");
    struct pl_manifest_set set;
    struct pl_buf notes, all;
    pl_buf_init(&notes, 0);
    pl_buf_init(&all, 0);
    pl_manifest_objects(&j->m, &set);
    pl_manifest_notes(&j->m, &notes);
    bool ok = true;
    if (j->cli->args.json) show_json(j, &set, config, &notes);
    if (dir != NULL) {
        ok = put_folder(j, &set, config, &notes, dir, err);
        if (ok && !j->cli->args.quiet && !j->cli->args.json) {
            printf("%s:\n", dir);
            if (pl_args_has(&j->cli->args, "single")) printf("  plimsoll-manifest.yaml\n");
            for (size_t i = 0; !pl_args_has(&j->cli->args, "single") && i < set.count; i++)
                printf("  %s\n", set.files[i].name);
            if (!j->m.sidecar && !pl_args_has(&j->cli->args, "single")) printf("  plimsoll.yaml\n");
            printf("  NOTES.md\n");
            printf("\n%s", pl_buf_text(&notes));
        }
    } else if (!j->cli->args.json) {
        join(j, &set, config, &all);
        fwrite(all.data, 1, all.len, stdout);
        if (!j->cli->args.quiet) fprintf(stderr, "%s", pl_buf_text(&notes));
    }
    pl_manifest_free(&set);
    pl_buf_free(&notes);
    pl_buf_free(&all);
    return ok ? 0 : pl_cli_fail(j->cli, err);
}

static int write_all(struct pl_manifest_job *j, struct pl_err *err) {
    struct pl_buf out;
    struct pl_tree tree;
    int status = 0;
    pl_buf_init(&out, 0);
    if (pl_args_has(&j->cli->args, "image")) {
        pl_manifest_containerfile(&j->m, j->config->services[0].run != NULL ? j->config->services[0].run : "",
                                  &out);
        fwrite(out.data, 1, out.len, stdout);
    } else if (pl_args_has(&j->cli->args, "bento")) {
        pl_manifest_bento(&j->m, &out);
        fwrite(out.data, 1, out.len, stdout);
    } else if (!pl_tree_read(j->file, pl_buf_text(&j->text), j->text.len, j->cli->arena, &tree, err)) {
        status = pl_cli_fail(j->cli, err);
    } else if (!pl_manifest_config(&j->m, pl_buf_text(&j->text), j->text.len,
                                   tree.count > 0 ? tree.documents[0] : NULL, &out)) {
        PL_FAIL(err, PL_E_CONFIG, "%s:1:1: written as one flow mapping, where no line can be put in",
                j->file);
        pl_err_hint(err, "write its top level as lines: key: value");
        status = pl_cli_fail(j->cli, err);
    } else {
        status = put_all(j, &out, err);
    }
    pl_buf_free(&out);
    return status;
}

int pl_manifest_write(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_manifest_job *j = pl_arena_alloc(cli->arena, sizeof *j);
    if (j == NULL) {
        PL_FAIL(&err, PL_E_NOMEM, "no memory for a manifest");
        return pl_cli_fail(cli, &err);
    }
    *j = (struct pl_manifest_job){ .cli = cli };
    pl_buf_init(&j->text, PL_MANIFEST_FILE_BYTES);
    int status = pl_manifest_ask(j, &err) ? write_all(j, &err) : pl_cli_fail(cli, &err);
    pl_manifest_job_free(j);
    return status;
}
