#include "cli/accept.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/gpus.h"
#include "cli/paths.h"
#include "worker/engine.h"

extern char **environ;

enum { FILE_BYTES = 1 << 20 };

const char *pl_accept_file(const struct pl_args *args) {
    static const char *const usual[] = { "plimsoll.yaml", "/etc/plimsoll/plimsoll.yaml" };
    const char *named = args->config != NULL ? args->config : getenv("PLIMSOLL_CONFIG");
    if (named != NULL) return named;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (access(usual[i], F_OK) == 0) return usual[i];
    return NULL;
}

static bool read_file(const char *path, struct pl_buf *out, struct pl_err *err) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    char piece[16384];
    if (f == NULL) {
        PL_FAIL_SYS(err, errno, "open %s", path);
        err->code = PL_E_CONFIG;
        return pl_err_hint(err, "-c names the configuration file");
    }
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        if (!pl_buf_add(out, piece, n)) return PL_FAIL(err, PL_E_CONFIG, "%s is larger than 1 MiB", path);
    return true;
}

static bool read_sources(struct pl_config *c, const struct pl_args *args, struct pl_err *err) {
    const char *file = pl_accept_file(args);
    struct pl_buf text;
    if (file == NULL) return true;
    pl_buf_init(&text, FILE_BYTES);
    bool ok = read_file(file, &text, err) &&
              pl_config_read_yaml(c, file, text.data != NULL ? text.data : "", text.len, environ, err);
    pl_buf_free(&text);
    return ok;
}

/* A target that is a folder is served from inside it. */
static bool folder_of_target(struct pl_config *c, const char *target, char folder[PL_PATH_BYTES]) {
    struct stat st;
    char real[PATH_MAX];
    folder[0] = '\0';
    if (target == NULL || stat(target, &st) != 0 || !S_ISDIR(st.st_mode) || realpath(target, real) == NULL)
        return true;
    snprintf(folder, PL_PATH_BYTES, "%s", real);
    (void)c;
    return true;
}

/* Keeps who asked for it; what nobody asked for is a preset, so that main is told. */
static bool fill(struct pl_config *c, size_t i, const char *key, const char *value, struct pl_err *err) {
    const char *place = NULL;
    enum pl_origin origin = pl_config_origin(c, i, key, &place);
    return pl_config_set(c, i, key, value, origin == PL_FROM_DEFAULT ? PL_FROM_PRESET : origin,
                         place != NULL ? place : "", err);
}

/* The command with its program as a full path, which is what can be executed. */
static bool fill_program(struct pl_config *c, size_t i, struct pl_err *err) {
    struct pl_service_config *s = &c->services[i];
    char path[PL_PATH_BYTES];
    struct pl_buf json;
    const char *place = NULL;
    enum pl_origin origin = pl_config_origin(c, i, "command", &place);
    if (!pl_command_check(s, place, err)) {
        if (origin == PL_FROM_FLAG) err->code = PL_E_USAGE;
        return false;
    }
    if (!pl_path_command(s->command.at[0], s->working_dir, s->python, path, err))
        return pl_err_wrap(err, "service %s", s->id);
    pl_buf_init(&json, FILE_BYTES);
    bool fits = true;
    for (size_t w = 0; w < s->command.count; w++) {
        const char *word = w == 0 ? path : s->command.at[w];
        fits = fits && pl_buf_adds(&json, w == 0 ? "[" : ",") && pl_buf_add_json(&json, word, strlen(word));
    }
    fits = fits && pl_buf_adds(&json, "]");
    bool ok = fits ? fill(c, i, "command", pl_buf_text(&json), err)
                   : PL_FAIL(err, PL_E_CONFIG, "service %s: the command is longer than 1 MiB", s->id);
    pl_buf_free(&json);
    return ok;
}

/* The model's file as a full path, and the engine that reads it. */
static bool fill_model(struct pl_config *c, size_t i, struct pl_err *err) {
    struct pl_service_config *s = &c->services[i];
    char wanted[PL_PATH_BYTES], real[PATH_MAX], engine[PL_PATH_BYTES];
    const char *place = NULL;
    bool flag = pl_config_origin(c, i, "model", &place) == PL_FROM_FLAG;
    snprintf(wanted, sizeof wanted, flag || s->model[0] == '/' ? "%s%s" : "%s/%s",
             flag || s->model[0] == '/' ? "" : s->working_dir, s->model);
    if (realpath(wanted, real) == NULL) {
        PL_FAIL_SYS(err, errno, "%s: model of service %s: %s", place, s->id, wanted);
        err->code = PL_E_CONFIG;
        return false;
    }
    return pl_path_llama(engine, err) && fill(c, i, "model", real, err);
}

static void note_own_port(struct pl_config *c, size_t i) {
    const char *flag = pl_command_own_port(&c->services[i]), *place = "";
    char line[256];
    if (flag == NULL) return;
    pl_config_origin(c, i, "command", &place);
    snprintf(line, sizeof line,
             "%s: %s of service %s is replaced: its workers get loopback ports of their own, clients come to "
             "listen",
             place, flag, c->services[i].id);
    pl_config_note_warning(c, line);
}

static bool has(const struct pl_config *c, size_t i, const char *key) {
    return pl_config_origin(c, i, key, NULL) != PL_FROM_DEFAULT;
}

/* What only the machine knows: the folder to run in, the interpreter or program, the GPUs. */
static bool fill_service(struct pl_config *c, size_t i, const char *folder, struct pl_err *err) {
    struct pl_service_config *s = &c->services[i];
    char path[PL_PATH_BYTES], real[PATH_MAX];
    const char *wanted = s->working_dir != NULL ? s->working_dir : folder[0] != '\0' ? folder : ".";
    if (realpath(wanted, real) == NULL) {
        PL_FAIL_SYS(err, errno, "working_dir of service %s: %s", s->id, wanted);
        err->code = PL_E_CONFIG;
        return false;
    }
    if (!fill(c, i, "working_dir", real, err)) return false;
    if (folder[0] != '\0' && s->run != NULL && !pl_config_set(c, i, "run", ".", PL_FROM_FLAG, "", err))
        return false;
    if (!pl_engine_presets(c, i, err) || !pl_seen_gpus(c, i, err)) return false;
    if (has(c, i, "model") && !fill_model(c, i, err)) return false;
    if (has(c, i, "command") && !fill_program(c, i, err)) return false;
    if (has(c, i, "command")) note_own_port(c, i);
    if (s->run == NULL) return true;
    if (!pl_path_python(s->python, path, err)) return false;
    return fill(c, i, "python", path, err);
}

static struct pl_config *accept_all(const struct pl_args *args, const char *target, bool need_services,
                                    bool fill_in, struct pl_err *err) {
    struct pl_config *c = pl_config_create();
    char folder[PL_PATH_BYTES];
    if (c == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        return NULL;
    }
    bool ok = read_sources(c, args, err);
    if (ok && args->has_rest && target != NULL)
        ok = PL_FAIL(err, PL_E_USAGE, "serve: a target as well as a command behind --");
    else if (ok && args->has_rest)
        ok = pl_config_add_command(c, &args->rest, args->name, err);
    else if (ok && target != NULL)
        ok = pl_config_add_target(c, target, args->name, access(target, F_OK) == 0, err);
    ok = ok && folder_of_target(c, target, folder) && pl_config_read_env(c, environ, err);
    ok = ok && pl_args_apply(args, c, err);
    if (ok && need_services && c->service_count == 0) {
        ok = PL_FAIL(err, PL_E_USAGE,
                     "nothing to serve: no target was given and no plimsoll.yaml names a service");
        pl_err_hint(err, "plimsoll serve service:Class");
    }
    for (size_t i = 0; ok && fill_in && i < c->service_count; i++) ok = fill_service(c, i, folder, err);
    ok = ok && (c->service_count == 0 || pl_config_check(c, err));
    if (ok) return c;
    pl_config_destroy(c);
    return NULL;
}

struct pl_config *pl_accept(const struct pl_args *args, const char *target, bool need_services,
                            struct pl_err *err) {
    return accept_all(args, target, need_services, true, err);
}

struct pl_config *pl_accept_for_doctor(const struct pl_args *args, const char *target, struct pl_err *err) {
    return accept_all(args, target, false, false, err);
}

struct pl_config *pl_accept_quietly(const struct pl_args *args, struct pl_err *err) {
    struct pl_config *c = pl_config_create();
    if (c == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        return NULL;
    }
    if (read_sources(c, args, err) && pl_config_read_env(c, environ, err)) return c;
    pl_config_destroy(c);
    return NULL;
}
