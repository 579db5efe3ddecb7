#include "worker/recipe.h"

#include <string.h>

#include "base/buf.h"
#include "base/wire.h"
#include "worker/kitchen.h"

/* At most what pl_recipe_python adds to argv. */
enum { ARGS_MOST = 20 };

static void add_environment(struct pl_kitchen *k, const struct pl_config *c,
                            const struct pl_service_config *s, const struct pl_recipe_facts *f,
                            char *const *environ_in) {
    pl_kitchen_inherit(k, c, environ_in);
    pl_kitchen_common(k, s, f);
    for (size_t i = 0; i < s->env.count; i++) pl_kitchen_set(k, s->env.at[i].key, s->env.at[i].value);

    pl_kitchen_python_path(k, f->python_path);
    pl_kitchen_set(k, "PROMETHEUS_MULTIPROC_DIR", f->prom_dir);
    pl_kitchen_set(k, "PLIMSOLL_WORKER_NAME", s->id);
    pl_kitchen_set_number(k, "PLIMSOLL_WORKER", f->worker);
    pl_kitchen_set_number(k, "PLIMSOLL_PAGE_FD", PL_WORKER_PAGE_FD);
    pl_kitchen_set_number(k, "PLIMSOLL_CONTROL_FD", PL_WORKER_CONTROL_FD);
}

/* --- argv */

/* Values are texts; BentoML turns them into what the service declared. */
static void args_as_json(struct pl_kitchen *k, const struct pl_pairs *args) {
    struct pl_buf json;
    pl_buf_init(&json, (size_t)64 << 10);
    bool fits = pl_buf_adds(&json, "{");
    for (size_t i = 0; i < args->count; i++) {
        const struct pl_pair *p = &args->at[i];
        fits = fits && (i == 0 || pl_buf_adds(&json, ",")) &&
               pl_buf_add_json(&json, p->key, strlen(p->key)) && pl_buf_adds(&json, ":") &&
               pl_buf_add_json(&json, p->value, strlen(p->value));
    }
    fits = fits && pl_buf_adds(&json, "}");
    pl_kitchen_arg(k, "--args");
    pl_kitchen_arg(k, fits ? pl_buf_text(&json) : "");
    k->failed = k->failed || !fits;
    pl_buf_free(&json);
}

static void add_argv(struct pl_kitchen *k, const struct pl_service_config *s,
                     const struct pl_recipe_facts *f) {
    pl_kitchen_arg(k, f->python);
    pl_kitchen_arg(k, "-m");
    pl_kitchen_arg(k, "plimsoll.worker");
    pl_kitchen_arg(k, f->ident);
    pl_kitchen_option(k, "--fd", PL_WORKER_LISTENER_FD);
    if (f->dependency != NULL) {
        pl_kitchen_arg(k, "--service-name");
        pl_kitchen_arg(k, f->dependency);
    }
    pl_kitchen_option(k, "--worker-id",
                      f->worker); /* without an id BentoML swallows ImportError inside bentoml.importing() */
    pl_kitchen_option(k, "--timeout-keep-alive", f->keep_alive_s);
    pl_kitchen_option(k, "--timeout-graceful-shutdown", f->graceful_stop_s); /* the default waits for ever */
    if (s->args.count > 0) args_as_json(k, &s->args);
}

bool pl_recipe_python(const struct pl_config *c, const struct pl_service_config *s,
                      const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                      struct pl_recipe *out, struct pl_err *err) {
    struct pl_kitchen k;
    const char *missing = f->python == NULL        ? "interpreter"
                          : f->folder == NULL      ? "folder"
                          : f->ident == NULL       ? "import string"
                          : f->prom_dir == NULL    ? "folder for metrics"
                          : f->python_path == NULL ? "folder of Plimsoll's own modules"
                                                   : NULL;
    if (!pl_kitchen_open(&k, s, missing, f->folder, ARGS_MOST, environ_in, a, out, err)) return false;
    add_argv(&k, s, f);
    add_environment(&k, c, s, f, environ_in);
    return pl_kitchen_close(&k, s, err);
}

/* --- hash */

/* FNV-1a, 64 bits; the NUL counts, so that words keep their ends. */
static uint64_t hash_word(uint64_t h, const char *word) {
    do h = (h ^ (unsigned char)*word) * UINT64_C(0x100000001b3);
    while (*word++ != '\0');
    return h;
}

static const uint64_t basis = UINT64_C(0xcbf29ce484222325);

static bool begins_with_one(const char *variable, const char *const *names) {
    for (; *names != NULL; names++)
        if (strncmp(variable, *names, strlen(*names)) == 0) return true;
    return false;
}

/* The environment in any order, less those that begin so. */
static uint64_t finish_hash(uint64_t h, const struct pl_recipe *r, const char *const *without) {
    uint64_t environment = 0;
    for (uint32_t i = 0; i < r->envc; i++)
        if (!begins_with_one(r->envp[i], without)) environment += hash_word(basis, r->envp[i]);
    h = (h ^ environment) * UINT64_C(0x100000001b3);
    return h != 0 ? h : 1;
}

uint64_t pl_recipe_hash(const struct pl_recipe *r) {
    static const char *const another_at_every_start[] = { "PROMETHEUS_MULTIPROC_DIR=", "TMPDIR=", NULL };
    uint64_t h = hash_word(basis, r->folder);
    for (uint32_t i = 0; i < r->argc; i++) h = hash_word(h, r->argv[i]);
    return finish_hash(h, r, another_at_every_start);
}

uint64_t pl_recipe_family(const struct pl_recipe *r) {
    static const char *const per_worker[] = { "PROMETHEUS_MULTIPROC_DIR=", "TMPDIR=",
                                              "CUDA_VISIBLE_DEVICES=",     "PYTORCH_CUDA_ALLOC_CONF=",
                                              "PLIMSOLL_WORKER=",          NULL };
    uint64_t h = hash_word(basis, r->folder);
    for (uint32_t i = 0; i < r->argc; i++) {
        h = hash_word(h, r->argv[i]);
        if (strcmp(r->argv[i], "--worker-id") == 0) i++;
    }
    return finish_hash(h, r, per_worker);
}

bool pl_recipe_zygote(struct pl_recipe *r, const struct pl_strings *preload, struct pl_arena *a,
                      struct pl_err *err) {
    struct pl_kitchen k = { .arena = a, .out = r };
    struct pl_buf names;
    pl_buf_init(&names, (size_t)64 << 10);
    bool fits = pl_buf_adds(&names, "PLIMSOLL_ZYGOTE_PRELOAD=");
    for (size_t i = 0; i < preload->count; i++)
        fits = fits && (i == 0 || pl_buf_adds(&names, ",")) && pl_buf_adds(&names, preload->at[i]);
    char **envp = pl_arena_alloc(a, (r->envc + 2) * sizeof *envp);
    r->argv[2] = pl_kitchen_print(&k, "plimsoll.zygote"); /* PYTHON -m plimsoll.worker ... */
    char *word = fits ? pl_kitchen_print(&k, "%s", pl_buf_text(&names)) : NULL;
    pl_buf_free(&names);
    if (envp == NULL || word == NULL || k.failed)
        return PL_FAIL(err, PL_E_NOMEM, "the zygote's recipe does not fit");
    memcpy(envp, r->envp, r->envc * sizeof *envp);
    envp[r->envc++] = word;
    envp[r->envc] = NULL;
    r->envp = envp;
    return true;
}
