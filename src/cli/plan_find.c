/* plan_find.c - names that are no path: a tag in BentoML's store, a bento's models, what a hub client fetched
 * before. */
#include "cli/plan_find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The first line of a small file, without its end. */
static bool first_line(const char *path, char *out, size_t size) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL || fgets(out, (int)size, f) == NULL) return false;
    out[strcspn(out, "\r\n")] = '\0';
    return out[0] != '\0' && strchr(out, '/') == NULL && out[0] != '.';
}

/* STORE/KIND/NAME/VERSION of "name:version" or "name" (its latest). */
static bool in_store(const char *kind, const char *tag, char path[PL_PLAN_PATH]) {
    const char *home = getenv("BENTOML_HOME"), *user = getenv("HOME"), *colon = strrchr(tag, ':');
    char name[256], version[256], latest[PL_PLAN_PATH], root[2048];
    size_t n = colon != NULL ? (size_t)(colon - tag) : strlen(tag);
    if (n == 0 || n >= sizeof name || tag[0] == '.' || memchr(tag, '/', n) != NULL) return false;
    memcpy(name, tag, n);
    name[n] = '\0';
    if (home != NULL)
        snprintf(root, sizeof root, "%s", home);
    else
        snprintf(root, sizeof root, "%s/bentoml", user != NULL ? user : ".");
    snprintf(version, sizeof version, "%s", colon != NULL ? colon + 1 : "latest");
    if (strchr(version, '/') != NULL || version[0] == '\0' || version[0] == '.') return false;
    if (strcmp(version, "latest") == 0) {
        snprintf(latest, sizeof latest, "%s/%s/%s/latest", root, kind, name);
        if (!first_line(latest, version, sizeof version)) return false;
    }
    snprintf(path, PL_PLAN_PATH, "%s/%s/%s/%s", root, kind, name, version);
    return is_folder(path);
}

/* HUB/models--ORG--NAME/snapshots/REVISION that refs/main points to. */
static bool in_hub(const char *id, char path[PL_PLAN_PATH]) {
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME"),
               *slash = strchr(id, '/');
    char root[2048], revision[256], ref[PL_PLAN_PATH];
    if (slash == NULL || slash == id || strchr(slash + 1, '/') != NULL || slash[1] == '\0' || id[0] == '.' ||
        strlen(id) > 200)
        return false;
    if (cache != NULL)
        snprintf(root, sizeof root, "%s", cache);
    else if (home != NULL)
        snprintf(root, sizeof root, "%s/hub", home);
    else
        snprintf(root, sizeof root, "%s/.cache/huggingface/hub", user != NULL ? user : ".");
    int org = (int)(slash - id);
    snprintf(ref, sizeof ref, "%s/models--%.*s--%s/refs/main", root, org, id, slash + 1);
    if (!first_line(ref, revision, sizeof revision)) return false;
    snprintf(path, PL_PLAN_PATH, "%s/models--%.*s--%s/snapshots/%s", root, org, id, slash + 1, revision);
    return is_folder(path);
}

static bool read_found(struct pl_plan_files *f, const char *path, struct pl_arena *arena,
                       struct pl_err *err) {
    const char *kept = pl_arena_strndup(arena, path, strlen(path));
    return kept != NULL ? pl_plan_read_path(f, kept, arena, err)
                        : PL_FAIL(err, PL_E_NOMEM, "no memory for %s", path);
}

/* The value behind "key:" of a YAML line that may begin a list entry, unquoted. */
static bool value_of(const char *line, const char *key, char *out, size_t size) {
    line += strspn(line, " -");
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0 || line[n] != ':') return false;
    line += n + 1;
    line += strspn(line, " '\"");
    size_t len = strcspn(line, "'\" \r\n");
    if (len == 0 || len >= size) return false;
    memcpy(out, line, len);
    out[len] = '\0';
    return true;
}

/* bento.yaml, as BentoML writes it: entries of `models:` with a tag or a hub's model_id. The first that has a
 * configuration is planned; a bento with several is told to be planned one by one. */
static bool read_bento(struct pl_plan_files *f, const char *folder, struct pl_arena *arena,
                       struct pl_err *err) {
    char path[PL_PLAN_PATH], line[1024], value[512], found[PL_PLAN_PATH];
    bool inside = false, any = false;
    snprintf(path, sizeof path, "%s/bento.yaml", folder);
    PL_AUTO_FILE FILE *file = fopen(path, "re");
    if (file == NULL) return PL_FAIL_SYS(err, errno, "open %s", path);
    while (!any && fgets(line, sizeof line, file) != NULL) {
        if (line[0] != ' ' && line[0] != '-' && line[0] != '\n') inside = strncmp(line, "models:", 7) == 0;
        if (!inside) continue;
        if (value_of(line, "tag", value, sizeof value))
            any = in_store("models", value, found);
        else if (value_of(line, "model_id", value, sizeof value))
            any = in_hub(value, found);
    }
    if (any) return read_found(f, found, arena, err);
    PL_FAIL(err, PL_E_CONFIG, "%s names no model that is in the store or the hub's cache", path);
    return pl_err_hint(err, "give the folder of its weights");
}

bool pl_plan_read(const char *target, struct pl_arena *arena, struct pl_plan_files *out, struct pl_err *err) {
    char path[PL_PLAN_PATH];
    *out = (struct pl_plan_files){ .target = target };
    pl_model_init(&out->model, arena);
    if (strlen(target) > 4096) return PL_FAIL(err, PL_E_USAGE, "the name of the model is too long");
    snprintf(path, sizeof path, "%s/bento.yaml", target);
    if (access(path, F_OK) == 0) return read_bento(out, target, arena, err);
    if (access(target, F_OK) == 0) return pl_plan_read_path(out, target, arena, err);
    if (in_store("models", target, path)) return read_found(out, path, arena, err);
    if (in_store("bentos", target, path)) return read_bento(out, path, arena, err);
    const char *slash = strchr(target, '/');
    bool hub = slash != NULL && slash != target && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
               target[0] != '.';
    if (hub && in_hub(target, path)) {
        bool ok = read_found(out, path, arena, err);
        out->target = target;
        return ok;
    }
    if (hub) {
        PL_FAIL(
            err, PL_E_USAGE,
            "no file '%s'; if it is a model of a hub, it was not fetched yet, and nothing is downloaded here",
            target);
        return pl_err_hint(err, "fetch it: hf download %.80s; config.json alone is enough for a first plan",
                           target);
    }
    if (strchr(target, ':') != NULL) {
        PL_FAIL(err, PL_E_USAGE, "no file, and no model or bento in BentoML's store, is called '%s'", target);
        return pl_err_hint(err, "bentoml models list shows the tags; BENTOML_HOME names another store");
    }
    return PL_FAIL_SYS(err, ENOENT, "open %s", target);
}
