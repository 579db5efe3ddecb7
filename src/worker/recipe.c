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

uint64_t pl_recipe_hash(const struct pl_recipe *r) {
    static const uint64_t basis = UINT64_C(0xcbf29ce484222325);
    uint64_t h = hash_word(basis, r->folder), environment = 0;
    for (uint32_t i = 0; i < r->argc; i++) h = hash_word(h, r->argv[i]);
    for (uint32_t i = 0; i < r->envc; i++) {
        if (strncmp(r->envp[i], "PROMETHEUS_MULTIPROC_DIR=", 25) == 0 ||
            strncmp(r->envp[i], "TMPDIR=", 7) == 0)
            continue;
        environment += hash_word(basis, r->envp[i]);
    }
    h = (h ^ environment) * UINT64_C(0x100000001b3);
    return h != 0 ? h : 1;
}
