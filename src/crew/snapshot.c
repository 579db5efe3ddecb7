/* snapshot.c - memory snapshots that a worker writes into run_dir/snap: asked for, or when PyTorch ran out of
 * memory. They go to state_dir/snapshots; of the latter a child says what is in them, into a file beside
 * them: main itself never reads one. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/explain.h"
#include "crew/more.h"
#include "crew/shelf.h"

enum { PATIENCE_MS = 80000 };

/* --- what is in it */

static void on_child_closed(uv_handle_t *h) { free(h); }

static void on_child_exit(uv_process_t *child, int64_t status, int signal) {
    (void)status, (void)signal; /* its file says what it has to say */
    uv_close((uv_handle_t *)child, on_child_closed);
}

/* `plimsoll snapshot report FILE --json > FILE.report.json`, behind everything else. */
static void analyse(struct pl_crew *c, const char *path) {
    static char nice[] = "nice", program[] = "/proc/self/exe", verb[] = "snapshot", word[] = "report",
                json[] = "--json";
    char self[4096], file[4096], out[4200];
    ssize_t n = readlink(program, self, sizeof self - 1);
    uv_process_t *child = calloc(1, sizeof *child);
    snprintf(file, sizeof file, "%s", path);
    snprintf(out, sizeof out, "%s" PL_SHELF_REPORT, path);
    PL_AUTO_FD int fd = open(out, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (child == NULL || fd == -1 || n <= 0) {
        free(child);
        return;
    }
    self[n] = '\0';
    char *argv[] = { nice, self, verb, word, file, json, NULL };
    uv_stdio_container_t stdio[] = { { .flags = UV_IGNORE },
                                     { .flags = UV_INHERIT_FD, .data.fd = fd },
                                     { .flags = UV_IGNORE } };
    const uv_process_options_t o = {
        .file = "nice", .args = argv, .stdio = stdio, .stdio_count = 3, .exit_cb = on_child_exit
    };
    int error = uv_spawn(c->app->loop, child, &o);
    if (error == 0) {
        uv_unref((uv_handle_t *)child);
        return;
    }
    uv_close((uv_handle_t *)child, on_child_closed);
    unlink(out);
    pl_log(c->app->log, PL_WARN, "worker.degraded", F_STR("feature", "snapshot"),
           F_STR("reason", uv_strerror(error)));
}

/* --- from the worker to its place */

struct saving {
    struct pl_crew *crew;
    char action[24], service[64], why[16];
    uint32_t slot;
    uint64_t generation;
};

static void moved(void *ctx, const char *path, uint64_t bytes, const char *problem) {
    struct saving *s = ctx;
    struct pl_crew *c = s->crew;
    char message[400];
    json_t *doc = NULL;
    if (problem == NULL) {
        pl_log(c->app->log, PL_INFO, "snapshot.saved", F_STR("service", s->service), F_INT("worker", s->slot),
               F_INT("generation", s->generation), F_STR("file", path), F_INT("bytes", bytes),
               F_STR("why", s->why));
        if (strcmp(s->why, "oom") == 0) analyse(c, path);
        doc = json_pack("{s:i,s:s,s:s,s:s,s:I}", "v", 1, "kind", "snapshot", "service", s->service, "file",
                        path, "bytes", (json_int_t)bytes);
    } else {
        pl_log(c->app->log, PL_WARN, "worker.degraded", F_STR("service", s->service),
               F_INT("worker", s->slot), F_STR("feature", "snapshot"), F_STR("reason", problem));
    }
    char *text = doc != NULL ? json_dumps(doc, JSON_COMPACT) : NULL;
    snprintf(message, sizeof message, "%s", problem != NULL ? problem : path);
    pl_explain_report(c, s->action, problem == NULL ? 0 : 5, message, text);
    free(text);
    json_decref(doc);
    free(s);
}

/* A name, and nothing that leads out of the folder. */
static bool is_name(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = name != NULL ? strlen(name) : 0;
    return n > 0 && n < 100 && name[0] != '.' && strspn(name, allowed) == n;
}

static void take_snapshot(struct pl_worker *w, const json_t *told, const char *why, const char *action) {
    struct pl_crew *c = w->service->crew;
    const char *name = json_string_value(json_object_get(told, "name"));
    char from[4096], file[128];
    struct saving *s = is_name(name) ? calloc(1, sizeof *s) : NULL;
    if (s == NULL) {
        pl_explain_report(c, action, 5, "the worker named no file", NULL);
        return;
    }
    *s = (struct saving){ .crew = c, .slot = w->slot, .generation = w->generation };
    snprintf(s->action, sizeof s->action, "%s", action);
    snprintf(s->service, sizeof s->service, "%s", w->service->config->id);
    snprintf(s->why, sizeof s->why, "%s", why);
    pl_explain_name(w, ".pickle", file, sizeof file);
    snprintf(from, sizeof from, "%s/snap/%s", c->run_dir, name);
    if (!pl_shelf_move(c, "snapshots", file, from, moved, s)) moved(s, "", 0, "out of memory");
}

bool pl_snapshot_told(struct pl_worker *w, const char *line, size_t len) {
    json_t *root = json_loadb(line, len, 0, NULL);
    const json_t *told = json_object_get(root, "snapshot");
    bool is = told != NULL;
    if (is) take_snapshot(w, told, "oom", "");
    json_decref(root);
    return is;
}

static void dumped(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    char *action = ctx;
    json_t *said = line != NULL ? json_loadb(line, len, 0, NULL) : NULL;
    const char *refused = json_string_value(json_object_get(said, "refused"));
    const char *error = json_string_value(json_object_get(said, "error"));
    if (json_object_get(said, "name") != NULL)
        take_snapshot(w, said, "operator", action);
    else
        pl_explain_report(w->service->crew, action, refused != NULL ? 1 : 5,
                          refused != NULL ? refused
                          : error != NULL ? error
                                          : "the worker did not answer in time, or ended",
                          NULL);
    json_decref(said);
    free(action);
}

bool pl_service_snapshot(struct pl_service *s, uint32_t slot, const char *action, struct pl_err *err) {
    struct pl_worker *w = pl_explain_choose(s, slot, err);
    if (w == NULL) return false;
    char *mine = strdup(action);
    if (mine != NULL && pl_control_ask(w, "dump_snapshot", NULL, PATIENCE_MS, dumped, mine)) return true;
    free(mine);
    return PL_FAIL(err, PL_E_LIMIT, "worker %u of %s cannot be asked", w->slot, s->config->id);
}
