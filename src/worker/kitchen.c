#include "worker/kitchen.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* At most what any recipe adds to the environment. */
enum { VARIABLES_MOST = 28 };

char *pl_kitchen_print(struct pl_kitchen *k, const char *fmt, ...) {
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

char **pl_kitchen_find(const struct pl_recipe *r, const char *name, size_t len) {
    for (uint32_t i = 0; i < r->envc; i++)
        if (strncmp(r->envp[i], name, len) == 0 && r->envp[i][len] == '=') return &r->envp[i];
    return NULL;
}

/* Takes a copy "NAME=value" whose name is `len` long, in place of what that name said before. */
static void pl_kitchen_put(struct pl_kitchen *k, char *word, size_t len) {
    if (word == NULL) return;
    char **at = pl_kitchen_find(k->out, word, len);
    *(at != NULL ? at : &k->out->envp[k->out->envc++]) = word;
}

void pl_kitchen_set(struct pl_kitchen *k, const char *name, const char *value) {
    pl_kitchen_put(k, pl_kitchen_print(k, "%s=%s", name, value), strlen(name));
}

void pl_kitchen_set_unless(struct pl_kitchen *k, const char *name, const char *value) {
    if (pl_kitchen_find(k->out, name, strlen(name)) == NULL) pl_kitchen_set(k, name, value);
}

void pl_kitchen_set_number(struct pl_kitchen *k, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    pl_kitchen_set(k, name, text);
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

static bool is_ours(const struct pl_config *c, const char *variable, size_t len) {
    if (strncmp(variable, "PLIMSOLL_DRYDOCK_", 17) == 0)
        return false; /* the stand-in libraries in the worker read them */
    if (is_word(variable, len, "PLIMSOLL_HOSTS_FILE")) return false; /* set by `plimsoll check` only */
    return strncmp(variable, "PLIMSOLL", 8) == 0 || strncmp(variable, "LISTEN_", 7) == 0 ||
           is_word(variable, len, "NOTIFY_SOCKET") || is_word(variable, len, "PYTHONSAFEPATH") ||
           is_secret(c, variable, len);
}

void pl_kitchen_inherit(struct pl_kitchen *k, const struct pl_config *c, char *const *environ_in) {
    for (; *environ_in != NULL && !k->failed; environ_in++) {
        const char *equals = strchr(*environ_in, '=');
        if (equals == NULL || equals == *environ_in) continue;
        size_t len = (size_t)(equals - *environ_in);
        if (!is_ours(c, *environ_in, len)) pl_kitchen_put(k, pl_kitchen_print(k, "%s", *environ_in), len);
    }
}

void pl_kitchen_arg(struct pl_kitchen *k, const char *word) {
    char *copy = pl_kitchen_print(k, "%s", word);
    if (copy != NULL) k->out->argv[k->out->argc++] = copy;
}

void pl_kitchen_option(struct pl_kitchen *k, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    pl_kitchen_arg(k, name);
    pl_kitchen_arg(k, text);
}

static bool env_ok(const struct pl_service_config *s, struct pl_err *err) {
    for (size_t i = 0; i < s->env.count; i++) {
        if (strncmp(s->env.at[i].key, "PLIMSOLL", 8) != 0) continue;
        return PL_FAIL(err, PL_E_CONFIG,
                       "service %s: env: %s is not free: names that begin with PLIMSOLL are ours", s->id,
                       s->env.at[i].key);
    }
    return true;
}

bool pl_kitchen_close(const struct pl_kitchen *k, const struct pl_service_config *s, struct pl_err *err) {
    return !k->failed ||
           PL_FAIL(err, PL_E_NOMEM, "service %s: arguments and environment of a worker do not fit", s->id);
}

bool pl_kitchen_open(struct pl_kitchen *k, const struct pl_service_config *s, const char *missing,
                     const char *folder, size_t words, char *const *environ_in, struct pl_arena *a,
                     struct pl_recipe *out, struct pl_err *err) {
    size_t variables = s->env.count + VARIABLES_MOST;
    if (missing != NULL)
        return PL_FAIL(err, PL_E_CONFIG, "service %s: no %s is known to start it with", s->id, missing);
    if (!env_ok(s, err)) return false;
    for (char *const *v = environ_in; *v != NULL; v++) variables++;
    *k = (struct pl_kitchen){ .arena = a, .out = out };
    *out = (struct pl_recipe){ .folder = pl_arena_strndup(a, folder, strlen(folder)),
                               .argv = pl_arena_alloc(a, (words + 1) * sizeof *out->argv),
                               .envp = pl_arena_alloc(a, (variables + 1) * sizeof *out->envp) };
    k->failed = out->folder == NULL || out->argv == NULL || out->envp == NULL;
    return pl_kitchen_close(k, s, err);
}

void pl_kitchen_llama_cpp(struct pl_kitchen *k) {
    pl_kitchen_set_unless(k, "OMP_WAIT_POLICY", "passive"); /* libgomp's threads spin otherwise */
    pl_kitchen_set_unless(k, "GOMP_SPINCOUNT", "0");
    pl_kitchen_set_unless(k, "GGML_NO_BACKTRACE", "1"); /* an abort would start a debugger */
}

void pl_kitchen_common(struct pl_kitchen *k, const struct pl_service_config *s,
                       const struct pl_recipe_facts *f) {
    static const char *const offline[] = { "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE" };
    pl_kitchen_set_unless(k, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"); /* the order NVML and `gpus` count in */
    pl_kitchen_set_unless(k, "BENTOML_DO_NOT_TRACK", "True");
    pl_kitchen_set_unless(k, "PYTHONUNBUFFERED", "1"); /* last words must not die in a worker's buffer */
    for (size_t i = 0; s->offline == PL_CFG_OFFLINE_ON && i < sizeof offline / sizeof offline[0]; i++)
        pl_kitchen_set(k, offline[i], "1");
    if (f->user != NULL) {
        pl_kitchen_set(k, "USER", f->user);
        pl_kitchen_set(k, "LOGNAME", f->user);
        pl_kitchen_set(k, "HOME", f->home);
    }
    if (f->gpus != NULL) pl_kitchen_set(k, "CUDA_VISIBLE_DEVICES", f->gpus);
    if (f->tmp_dir != NULL) pl_kitchen_set(k, "TMPDIR", f->tmp_dir);
    /* Inductor's own place is in TMPDIR, which ends with the worker: it would compile at every start. */
    pl_kitchen_cache(k, "TRITON_CACHE_DIR", f->jit_dir, "triton");
    pl_kitchen_cache(k, "TORCHINDUCTOR_CACHE_DIR", f->jit_dir, "inductor");
    pl_kitchen_cache(k, "CUDA_CACHE_PATH", f->jit_dir, "cuda");
}

void pl_kitchen_cache(struct pl_kitchen *k, const char *name, const char *folder, const char *kind) {
    char *path = folder != NULL ? pl_kitchen_print(k, "%s/%s", folder, kind) : NULL;
    if (path != NULL) pl_kitchen_set_unless(k, name, path);
}

void pl_kitchen_python_path(struct pl_kitchen *k, const char *ours) {
    char **path = pl_kitchen_find(k->out, "PYTHONPATH", strlen("PYTHONPATH"));
    const char *theirs = path != NULL ? *path + strlen("PYTHONPATH=") : "";
    const char *both = theirs[0] != '\0' ? pl_kitchen_print(k, "%s:%s", ours, theirs) : ours;
    if (both != NULL) pl_kitchen_set(k, "PYTHONPATH", both);
}
