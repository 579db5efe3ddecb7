#include "worker/recipe.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/wire.h"

/* At most what pl_recipe_python adds to argv and to the environment it was given. */
enum { ARGS_MOST = 20, VARIABLES_MOST = 20 };

/* The recipe in the making; after the first word without memory nothing more is tried. */
struct kitchen {
    struct pl_arena *arena;
    struct pl_recipe *out;
    bool failed;
};

static char *print(struct kitchen *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *print(struct kitchen *k, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = n >= 0 && !k->failed ? pl_arena_alloc(k->arena, (size_t)n + 1) : NULL;
    if (text == NULL) {
        k->failed = true;
        return NULL;
    }
    va_start(ap, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return text;
}

/* --- environment */

static char **find(const struct pl_recipe *r, const char *name, size_t len) {
    for (uint32_t i = 0; i < r->envc; i++)
        if (strncmp(r->envp[i], name, len) == 0 && r->envp[i][len] == '=') return &r->envp[i];
    return NULL;
}

/* Takes a copy "NAME=value" whose name is `len` long, in place of what that name said before. */
static void put(struct kitchen *k, char *word, size_t len) {
    if (word == NULL) return;
    char **at = find(k->out, word, len);
    *(at != NULL ? at : &k->out->envp[k->out->envc++]) = word;
}

static void set(struct kitchen *k, const char *name, const char *value) {
    put(k, print(k, "%s=%s", name, value), strlen(name));
}

static void set_unless(struct kitchen *k, const char *name, const char *value) {
    if (find(k->out, name, strlen(name)) == NULL) set(k, name, value);
}

static void set_number(struct kitchen *k, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set(k, name, text);
}

static bool is_word(const char *variable, size_t len, const char *name) {
    return strlen(name) == len && memcmp(variable, name, len) == 0;
}

/* Whether a SECRET key of `at` (a struct whose keys these are) is read from this variable. */
struct key {
    const char *type;
    size_t offset;
};
static bool is_secret_of(const struct key *keys, size_t count, const void *at, const char *variable,
                         size_t len) {
    for (size_t i = 0; i < count; i++) {
        const char *secret;
        if (strcmp(keys[i].type, "SECRET") != 0) continue;
        memcpy(&secret, (const char *)at + keys[i].offset, sizeof secret);
        if (secret != NULL && strncmp(secret, "env:", 4) == 0 && is_word(variable, len, secret + 4))
            return true;
    }
    return false;
}

static bool is_secret(const struct pl_config *c, const char *variable, size_t len) {
    static const struct key instance[] = {
#define INSTANCE(field, key, type, ...) { #type, offsetof(struct pl_config, PL_CFG_NAME_##type(field)) },
#define SERVICE(...)
#include "config/schema.def"
#undef INSTANCE
#undef SERVICE
    };
    static const struct key service[] = {
#define INSTANCE(...)
#define SERVICE(field, key, type, ...) \
    { #type, offsetof(struct pl_service_config, PL_CFG_NAME_##type(field)) },
#include "config/schema.def"
#undef INSTANCE
#undef SERVICE
    };
    if (is_secret_of(instance, sizeof instance / sizeof instance[0], c, variable, len)) return true;
    for (size_t i = 0; i < c->service_count; i++)
        if (is_secret_of(service, sizeof service / sizeof service[0], &c->services[i], variable, len))
            return true;
    return false;
}

/* The dry dock's own go on: the stand-in libraries in the worker read them. */
static bool is_ours(const struct pl_config *c, const char *variable, size_t len) {
    if (strncmp(variable, "PLIMSOLL_DRYDOCK_", 17) == 0) return false;
    return strncmp(variable, "PLIMSOLL", 8) == 0 || strncmp(variable, "LISTEN_", 7) == 0 ||
           is_word(variable, len, "NOTIFY_SOCKET") || is_word(variable, len, "PYTHONSAFEPATH") ||
           is_secret(c, variable, len);
}

static void inherit(struct kitchen *k, const struct pl_config *c, char *const *environ_in) {
    for (; *environ_in != NULL && !k->failed; environ_in++) {
        const char *equals = strchr(*environ_in, '=');
        if (equals == NULL || equals == *environ_in) continue;
        size_t len = (size_t)(equals - *environ_in);
        if (!is_ours(c, *environ_in, len)) put(k, print(k, "%s", *environ_in), len);
    }
}

static void add_environment(struct kitchen *k, const struct pl_config *c, const struct pl_service_config *s,
                            const struct pl_recipe_facts *f, char *const *environ_in) {
    static const char *const offline[] = { "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE" };
    inherit(k, c, environ_in);
    set_unless(k, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"); /* the order NVML and `gpus` count in */
    set_unless(k, "BENTOML_DO_NOT_TRACK", "True");
    set_unless(k, "PYTHONUNBUFFERED", "1"); /* a worker's last words must not die in its buffer */
    for (size_t i = 0; s->offline == PL_CFG_OFFLINE_ON && i < sizeof offline / sizeof offline[0]; i++)
        set(k, offline[i], "1");
    if (f->gpus != NULL) set(k, "CUDA_VISIBLE_DEVICES", f->gpus);
    if (f->tmp_dir != NULL) set(k, "TMPDIR", f->tmp_dir);
    for (size_t i = 0; i < s->env.count; i++) set(k, s->env.at[i].key, s->env.at[i].value);

    char **path = find(k->out, "PYTHONPATH", strlen("PYTHONPATH"));
    const char *theirs = path != NULL ? *path + strlen("PYTHONPATH=") : "";
    const char *both = theirs[0] != '\0' ? print(k, "%s:%s", f->python_path, theirs) : f->python_path;
    if (both != NULL) set(k, "PYTHONPATH", both);
    set(k, "PROMETHEUS_MULTIPROC_DIR", f->prom_dir);
    set(k, "PLIMSOLL_WORKER_NAME", s->id);
    set_number(k, "PLIMSOLL_WORKER", f->worker);
    set_number(k, "PLIMSOLL_PAGE_FD", PL_WORKER_PAGE_FD);
    set_number(k, "PLIMSOLL_CONTROL_FD", PL_WORKER_CONTROL_FD);
}

/* --- argv */

static void arg(struct kitchen *k, const char *word) {
    char *copy = print(k, "%s", word);
    if (copy != NULL) k->out->argv[k->out->argc++] = copy;
}

static void option(struct kitchen *k, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    arg(k, name);
    arg(k, text);
}

/* Values are texts; BentoML turns them into what the service declared. */
static void args_as_json(struct kitchen *k, const struct pl_pairs *args) {
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
    arg(k, "--args");
    arg(k, fits ? pl_buf_text(&json) : "");
    k->failed = k->failed || !fits;
    pl_buf_free(&json);
}

static void add_argv(struct kitchen *k, const struct pl_service_config *s, const struct pl_recipe_facts *f) {
    arg(k, f->python);
    arg(k, "-m");
    arg(k, "plimsoll.worker");
    arg(k, f->ident);
    option(k, "--fd", PL_WORKER_LISTENER_FD);
    if (f->dependency != NULL) {
        arg(k, "--service-name");
        arg(k, f->dependency);
    }
    option(k, "--worker-id",
           f->worker); /* without an id BentoML swallows ImportError inside bentoml.importing() */
    option(k, "--timeout-keep-alive", f->keep_alive_s);
    option(k, "--timeout-graceful-shutdown", f->graceful_stop_s); /* the default waits for ever */
    if (s->args.count > 0) args_as_json(k, &s->args);
}

bool pl_recipe_python(const struct pl_config *c, const struct pl_service_config *s,
                      const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                      struct pl_recipe *out, struct pl_err *err) {
    size_t variables = 0;
    struct kitchen k = { .arena = a, .out = out };
    const char *missing = f->python == NULL        ? "interpreter"
                          : f->folder == NULL      ? "folder"
                          : f->ident == NULL       ? "import string"
                          : f->prom_dir == NULL    ? "folder for metrics"
                          : f->python_path == NULL ? "folder of Plimsoll's own modules"
                                                   : NULL;
    if (missing != NULL)
        return PL_FAIL(err, PL_E_CONFIG, "service %s: no %s is known to start it with", s->id, missing);
    for (size_t i = 0; i < s->env.count; i++) {
        if (strncmp(s->env.at[i].key, "PLIMSOLL", 8) != 0) continue;
        return PL_FAIL(err, PL_E_CONFIG,
                       "service %s: env: %s is not free: names that begin with PLIMSOLL are ours", s->id,
                       s->env.at[i].key);
    }
    while (environ_in[variables] != NULL) variables++;
    *out = (struct pl_recipe){
        .folder = pl_arena_strndup(a, f->folder, strlen(f->folder)),
        .argv = pl_arena_alloc(a, (ARGS_MOST + 1) * sizeof *out->argv),
        .envp = pl_arena_alloc(a, (variables + s->env.count + VARIABLES_MOST + 1) * sizeof *out->envp),
    };
    if (out->folder != NULL && out->argv != NULL && out->envp != NULL) {
        add_argv(&k, s, f);
        add_environment(&k, c, s, f, environ_in);
        if (!k.failed) return true;
    }
    return PL_FAIL(err, PL_E_NOMEM, "service %s: arguments and environment of a worker do not fit", s->id);
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
