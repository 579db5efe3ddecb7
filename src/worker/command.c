/* command.c - the recipe of a worker that is somebody else's program: its words with our place filled in. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/wire.h"
#include "worker/engine.h"
#include "worker/kitchen.h"

/* At most what is added to argv beside engine_args. */
enum { ARGS_MOST = 16 };

static const char loopback[] = "127.0.0.1";

/* --- words */

/* The word with every placeholder replaced. */
static const char *filled(struct pl_kitchen *k, const char *word, const struct pl_recipe_facts *f) {
    char port[8];
    snprintf(port, sizeof port, "%u", f->port);
    const char *names[] = { "{socket}", "{port}", "{gpus}" };
    const char *values[] = { f->socket != NULL ? f->socket : "", port, f->gpus != NULL ? f->gpus : "all" };
    for (size_t i = 0; i < 3; i++) {
        size_t from = 0; /* what was filled in is not looked at again */
        for (const char *at; word != NULL && (at = strstr(word + from, names[i])) != NULL;) {
            size_t before = (size_t)(at - word);
            word = pl_kitchen_print(k, "%.*s%s%s", (int)before, word, values[i], at + strlen(names[i]));
            from = before + strlen(values[i]);
        }
    }
    return word;
}

/* How many words of the command at `at` say where to listen, in the engine's own way: --port 1, --port=1. */
static size_t own_place(const struct pl_engine *e, const struct pl_strings *argv, size_t at) {
    const char *flags[] = { e->port_flag, e->port_letter, e->host_flag, e->socket_flag };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        size_t n = flags[i] != NULL ? strlen(flags[i]) : 0;
        const char *word = argv->at[at];
        if (n == 0 || strncmp(word, flags[i], n) != 0) continue;
        if (word[n] == '=') return 1;
        if (word[n] == '\0') return at + 1 < argv->count ? 2 : 1;
    }
    return 0;
}

static bool has_flag(const struct pl_strings *argv, const char *flag, size_t len) {
    for (size_t i = 1; i < argv->count; i++) {
        const char *word = argv->at[i];
        if (strncmp(word, flag, len) == 0 && (word[len] == '\0' || word[len] == '=')) return true;
    }
    return false;
}

/* "max_model_len: 4096" is --max-model-len 4096; a switch is given or left out. */
static void add_engine_args(struct pl_kitchen *k, const struct pl_pairs *args) {
    for (size_t i = 0; i < args->count; i++) {
        const char *value = args->at[i].value;
        if (strcmp(value, "false") == 0) continue;
        char *flag = pl_kitchen_print(k, "--%s", args->at[i].key);
        for (char *s = flag; s != NULL && *s != '\0'; s++)
            if (*s == '_') *s = '-';
        if (flag == NULL) return;
        pl_kitchen_arg(k, flag);
        if (strcmp(value, "true") != 0) pl_kitchen_arg(k, value);
    }
}

static bool has_arg(const struct pl_pairs *args, const char *flag, size_t len) {
    for (size_t i = 0; i < args->count; i++) {
        const char *key = args->at[i].key;
        size_t n = 0;
        while (n < len - 2 && key[n] != '\0' &&
               (key[n] == flag[n + 2] || (key[n] == '_' && flag[n + 2] == '-')))
            n++;
        if (n == len - 2 && key[n] == '\0') return true;
    }
    return false;
}

/* "--flag value" or "--flag" of the table, unless the user has said it. */
static void add_one(struct pl_kitchen *k, const struct pl_service_config *s, const char *words, size_t len) {
    size_t flag_len = strcspn(words, " |");
    if (has_flag(&s->command, words, flag_len) || has_arg(&s->engine_args, words, flag_len)) return;
    const char *flag = pl_kitchen_print(k, "%.*s", (int)flag_len, words);
    if (flag != NULL) pl_kitchen_arg(k, flag);
    if (flag_len >= len) return;
    const char *value = pl_kitchen_print(k, "%.*s", (int)(len - flag_len - 1), words + flag_len + 1);
    if (value != NULL) pl_kitchen_arg(k, value);
}

static void add_always(struct pl_kitchen *k, const struct pl_engine *e, const struct pl_service_config *s) {
    for (const char *words = e->always; words[0] != '\0';) {
        size_t len = strcspn(words, "|");
        add_one(k, s, words, len);
        words += words[len] == '|' ? len + 1 : len;
    }
}

static void add_argv(struct pl_kitchen *k, const struct pl_service_config *s,
                     const struct pl_recipe_facts *f) {
    const struct pl_engine *e = pl_engine_of(s);
    enum pl_place place = pl_place_of(s);
    for (size_t i = 0; i < s->command.count; i++) {
        bool ours = place == PL_PLACE_FLAGS || place == PL_PLACE_OWN_SOCKET;
        size_t theirs = ours && i > 0 ? own_place(e, &s->command, i) : 0;
        if (theirs > 0) {
            i += theirs - 1;
            continue;
        }
        const char *word = filled(k, s->command.at[i], f);
        if (word != NULL) pl_kitchen_arg(k, word);
    }
    bool host_open = place == PL_PLACE_PORT && e->host_flag != NULL && e->host_flag[0] != '\0' &&
                     !has_flag(&s->command, e->host_flag, strlen(e->host_flag));
    if (place == PL_PLACE_FLAGS || host_open) { /* a worker that others can reach is not admitted to */
        pl_kitchen_arg(k, e->host_flag);
        pl_kitchen_arg(k, loopback);
    }
    if (place == PL_PLACE_FLAGS) pl_kitchen_option(k, e->port_flag, f->port);
    if (place == PL_PLACE_OWN_SOCKET) {
        pl_kitchen_arg(k, e->socket_flag);
        pl_kitchen_arg(k, f->socket);
    }
    add_engine_args(k, &s->engine_args);
    add_always(k, e, s);
}

/* BentoML's own server, for services that its worker entry cannot run (python/plimsoll/whole.py). */
static void add_legacy_argv(struct pl_kitchen *k, const struct pl_service_config *s,
                            const struct pl_recipe_facts *f) {
    pl_kitchen_arg(k, f->python);
    pl_kitchen_arg(k, "-m");
    pl_kitchen_arg(k, "plimsoll.whole");
    pl_kitchen_arg(k, "serve");
    pl_kitchen_arg(k, f->legacy_ident);
    pl_kitchen_arg(k, "--host");
    pl_kitchen_arg(k, loopback);
    pl_kitchen_option(k, "--port", f->port);
    for (size_t i = 0; i < s->args.count; i++) {
        const char *pair = pl_kitchen_print(k, "%s=%s", s->args.at[i].key, s->args.at[i].value);
        pl_kitchen_arg(k, "--arg");
        if (pair != NULL) pl_kitchen_arg(k, pair);
    }
}

/* --- environment */

static void add_environment(struct pl_kitchen *k, const struct pl_config *c,
                            const struct pl_service_config *s, const struct pl_recipe_facts *f,
                            char *const *environ_in) {
    const struct pl_engine *e = pl_engine_of(s);
    bool legacy = f->legacy_ident != NULL, bentoml = legacy || e->word == PL_CFG_ENGINE_BENTOML;
    pl_kitchen_inherit(k, c, environ_in);
    pl_kitchen_common(k, s, f);
    if (bentoml)
        pl_kitchen_set_unless(k, "BENTOML_CONTAINERIZED", "true"); /* a death ends it: no silent loop */
    if (e->word == PL_CFG_ENGINE_LLAMA_SERVER) pl_kitchen_llama_cpp(k);
    if (e->word == PL_CFG_ENGINE_VLLM) pl_kitchen_set_unless(k, "VLLM_NO_USAGE_STATS", "1");
    if (e->word == PL_CFG_ENGINE_VLLM) pl_kitchen_cache(k, "VLLM_CACHE_ROOT", f->jit_dir, "vllm");
    if (legacy || e->multiprocess_metrics) pl_kitchen_set(k, "PROMETHEUS_MULTIPROC_DIR", f->prom_dir);
    for (size_t i = 0; i < s->env.count; i++) {
        const char *value = filled(k, s->env.at[i].value, f);
        if (value != NULL) pl_kitchen_set(k, s->env.at[i].key, value);
    }
    if (!legacy && pl_place_of(s) == PL_PLACE_VARIABLE) {
        const char *pair = filled(k, e->place_variable, f), *name = NULL;
        size_t n = strcspn(e->place_variable, "=");
        if (pair != NULL) name = pl_kitchen_print(k, "%.*s", (int)n, pair);
        if (name != NULL) pl_kitchen_set(k, name, pair + n + 1);
    }
    if (f->python_path != NULL) pl_kitchen_python_path(k, f->python_path); /* for `import plimsoll` */
    if (f->agents != NULL) pl_kitchen_set(k, "PLIMSOLL_AGENTS", f->agents);
    pl_kitchen_set(k, "PLIMSOLL_WORKER_NAME", s->id);
    pl_kitchen_set_number(k, "PLIMSOLL_WORKER", f->worker);
    pl_kitchen_set_number(k, "PLIMSOLL_PAGE_FD", PL_WORKER_PAGE_FD);
}

bool pl_recipe_command(const struct pl_config *c, const struct pl_service_config *s,
                       const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                       struct pl_recipe *out, struct pl_err *err) {
    struct pl_kitchen k;
    const char *missing = f->folder == NULL                                  ? "folder"
                          : f->prom_dir == NULL                              ? "folder for metrics"
                          : f->legacy_ident == NULL && s->command.count == 0 ? "command"
                          : f->legacy_ident != NULL && f->python == NULL     ? "interpreter"
                          : f->legacy_ident != NULL && f->python_path == NULL
                              ? "folder of Plimsoll's own modules"
                              : NULL;
    size_t words = s->command.count + 2 * (s->engine_args.count + s->args.count) + ARGS_MOST;
    if (!pl_kitchen_open(&k, s, missing, f->folder, words, environ_in, a, out, err)) return false;
    if (f->legacy_ident != NULL)
        add_legacy_argv(&k, s, f);
    else
        add_argv(&k, s, f);
    add_environment(&k, c, s, f, environ_in);
    return pl_kitchen_close(&k, s, err);
}

/* --- for people */

static bool names_secret(const char *word, size_t len) {
    static const char *const names[] = { "key", "token", "secret", "password" };
    /* --max-num-batched-tokens counts them */
    if (word[0] != '-' || (len >= 6 && strncasecmp(word + len - 6, "tokens", 6) == 0)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        for (size_t at = 0; at + n <= len; at++)
            if (strncasecmp(word + at, names[i], n) == 0) return true;
    }
    return false;
}

static void add_word(struct pl_buf *out, const char *word, size_t len) {
    bool plain = len > 0;
    for (size_t i = 0; i < len; i++) plain = plain && strchr(" \t\n'\"\\$`*?[]{}()<>|&;#~!", word[i]) == NULL;
    if (!plain) pl_buf_add(out, "'", 1);
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '\'' && !plain)
            pl_buf_adds(out, "'\\''");
        else
            pl_buf_add(out, &word[i], 1);
    }
    if (!plain) pl_buf_add(out, "'", 1);
}

void pl_recipe_say(const struct pl_recipe *r, char *out, size_t room) {
    struct pl_buf line;
    bool hide = false;
    pl_buf_init(&line, 1 << 16);
    for (uint32_t i = 0; i < r->argc; i++) {
        const char *word = r->argv[i];
        size_t name = strcspn(word, "=");
        bool secret = names_secret(word, name);
        if (i > 0) pl_buf_add(&line, " ", 1);
        if (hide && word[0] != '-')
            pl_buf_adds(&line, "(set)");
        else
            add_word(&line, word, secret && word[name] == '=' ? name : strlen(word));
        if (secret && word[name] == '=') pl_buf_adds(&line, "=(set)");
        hide = secret && word[name] == '\0';
    }
    snprintf(out, room, "%s", pl_buf_text(&line));
    pl_buf_free(&line);
}
