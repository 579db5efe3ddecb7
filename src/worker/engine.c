#include "worker/engine.h"

#include <string.h>

static const struct pl_engine engines[] = {
#define ENGINE(sym, program, module, verb, port, letter, host, socket, variable, ready, llm, metrics, over, \
               tokenize, always, dead)                                                                      \
    {                                                                                                       \
        PL_CFG_ENGINE_##sym,                                                                                \
        program,                                                                                            \
        module,                                                                                             \
        verb,                                                                                               \
        port,                                                                                               \
        letter,                                                                                             \
        host,                                                                                               \
        socket,                                                                                             \
        variable,                                                                                           \
        ready,                                                                                              \
        llm,                                                                                                \
        metrics,                                                                                            \
        PL_OVERCOMMIT_##over,                                                                               \
        tokenize,                                                                                           \
        always,                                                                                             \
        dead                                                                                                \
    },
#include "worker/engines.def"
#undef ENGINE
};
enum { ENGINE_COUNT = sizeof engines / sizeof *engines };
/* Our own engine: started by a recipe of its own, told apart by `model`. */
static const struct pl_engine llama = {
    .word = PL_CFG_ENGINE_LLAMA_SERVER,
    .ready_path = "/readyz",
    .llm = true,
    .overcommit = PL_OVERCOMMIT_BATCHES, /* it admits by cells itself, see docs/llama.md */
    .always = "",
    .dead = ""
};
static const struct pl_engine unknown = {
    .word = PL_CFG_ENGINE_GENERIC, .always = "", .dead = "", .multiprocess_metrics = true
};

enum pl_kind pl_kind_of(const struct pl_service_config *s) {
    if (s->command.count > 0) return PL_KIND_COMMAND;
    if (s->model != NULL) return PL_KIND_LLAMA;
    return s->url != NULL ? PL_KIND_REMOTE : PL_KIND_PYTHON;
}

const char *pl_kind_name(enum pl_kind k) {
    static const char *const names[] = {
#define X(sym, name) [PL_KIND_##sym] = name,
        PL_KINDS(X)
#undef X
    };
    return names[k];
}

/* --- which one */

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_python(const char *program) {
    const char *name = last_part(program);
    return strncmp(name, "python", 6) == 0 && name[6 + strspn(name + 6, "0123456789.")] == '\0';
}

/* Index of the word behind the program's name (and its verb), or 0: it is another program. */
static size_t behind_name(const struct pl_engine *e, const struct pl_strings *argv) {
    size_t at = 1;
    bool module = argv->count > 2 && is_python(argv->at[0]) && strcmp(argv->at[1], "-m") == 0;
    if (module && e->module[0] != '\0' && strcmp(argv->at[2], e->module) == 0)
        at = 3;
    else if (e->program[0] == '\0' || strcmp(last_part(argv->at[0]), e->program) != 0)
        return 0;
    if (e->verb[0] == '\0') return at;
    return at < argv->count && strcmp(argv->at[at], e->verb) == 0 ? at + 1 : 0;
}

const struct pl_engine *pl_engine_of(const struct pl_service_config *s) {
    if (pl_kind_of(s) == PL_KIND_LLAMA) return &llama;
    for (size_t i = 0; i < ENGINE_COUNT; i++) {
        bool named = s->engine == engines[i].word;
        bool found = s->engine == PL_CFG_ENGINE_AUTO && s->command.count > 0 &&
                     behind_name(&engines[i], &s->command) > 0;
        if (named || found) return &engines[i];
    }
    return &unknown;
}

const char *pl_engine_name(const struct pl_engine *e) {
    return e == &llama ? "llama" : pl_config_word("engine", e->word);
}

/* --- where it listens */

static bool any_has(const struct pl_strings *argv, const char *what) {
    for (size_t i = 0; i < argv->count; i++)
        if (strstr(argv->at[i], what) != NULL) return true;
    return false;
}

enum pl_place pl_place_of(const struct pl_service_config *s) {
    if (any_has(&s->command, "{socket}")) return PL_PLACE_SOCKET;
    if (any_has(&s->command, "{port}")) return PL_PLACE_PORT;
    if (s->worker_port > 0) return PL_PLACE_FIXED;
    const struct pl_engine *e = pl_engine_of(s);
    if (e->socket_flag != NULL && e->socket_flag[0] != '\0') return PL_PLACE_OWN_SOCKET;
    if (e->port_flag != NULL && e->port_flag[0] != '\0') return PL_PLACE_FLAGS;
    return e->place_variable != NULL && e->place_variable[0] != '\0' ? PL_PLACE_VARIABLE : PL_PLACE_NONE;
}

bool pl_command_check(const struct pl_service_config *s, const char *place, struct pl_err *err) {
    const struct pl_strings *argv = &s->command;
    if (argv->count == 0 || argv->at[0][0] == '\0')
        return PL_FAIL(err, PL_E_CONFIG, "%s: the command of service %s is empty", place, s->id);
    enum pl_place where = pl_place_of(s);
    if (where == PL_PLACE_SOCKET && any_has(argv, "{port}"))
        return PL_FAIL(err, PL_E_CONFIG, "%s: the command of service %s has {socket} as well as {port}",
                       place, s->id);
    if (where == PL_PLACE_NONE) {
        PL_FAIL(err, PL_E_CONFIG,
                "%s: %.80s is a program that Plimsoll does not know how to tell where to listen", place,
                last_part(argv->at[0]));
        return pl_err_hint(err,
                           "write {port} or {socket} where it takes its port or socket, as in --port {port}; "
                           "or say --worker-port N if it always listens on that one");
    }
    if (where == PL_PLACE_FIXED && s->workers != 1) {
        PL_FAIL(err, PL_E_CONFIG, "%s: workers of service %s cannot all listen on port %lld", place, s->id,
                (long long)s->worker_port);
        return pl_err_hint(err, "write {port} in the command, so that each worker gets one of its own");
    }
    return true;
}

const char *pl_command_own_port(const struct pl_service_config *s) {
    const struct pl_engine *e = pl_engine_of(s);
    enum pl_place place = pl_place_of(s);
    if (place != PL_PLACE_FLAGS && place != PL_PLACE_OWN_SOCKET) return NULL;
    size_t n = strlen(e->port_flag);
    for (size_t i = 1; i < s->command.count; i++) {
        const char *word = s->command.at[i];
        if (strncmp(word, e->port_flag, n) == 0 && (word[n] == '\0' || word[n] == '=')) return e->port_flag;
        if (e->port_letter[0] != '\0' && strcmp(word, e->port_letter) == 0) return e->port_letter;
    }
    return NULL;
}

/* --- settings */

bool pl_engine_presets(struct pl_config *c, size_t service, struct pl_err *err) {
    static const struct {
        const char *key, *text;
    } of_llms[] = { { "traffic.timeout", "300s" }, { "replace.drain", "10m" }, { "compat", "vllm" } };
    const struct pl_service_config *s = &c->services[service];
    const struct pl_engine *e = pl_engine_of(s);
    if (pl_kind_of(s) == PL_KIND_PYTHON) return true;
    if (e->ready_path != NULL &&
        !pl_config_set(c, service, "probe.ready_path", e->ready_path, PL_FROM_PRESET, pl_engine_name(e), err))
        return false;
    for (size_t i = 0; e->llm && i < sizeof of_llms / sizeof *of_llms; i++)
        if (!pl_config_set(c, service, of_llms[i].key, of_llms[i].text, PL_FROM_PRESET, pl_engine_name(e),
                           err))
            return false;
    return !e->llm || pl_config_set(c, PL_CFG_INSTANCE, "metrics.refresh", "250ms", PL_FROM_PRESET,
                                    pl_engine_name(e), err);
}

static const char *const usual_paths[] = { "/readyz", "/health" };

unsigned pl_ready_paths(const struct pl_config *c, size_t service) {
    bool open = pl_kind_of(&c->services[service]) != PL_KIND_PYTHON &&
                pl_config_origin(c, service, "probe.ready_path", NULL) == PL_FROM_DEFAULT;
    return open ? sizeof usual_paths / sizeof *usual_paths : 1;
}

const char *pl_ready_path(const struct pl_config *c, size_t service, unsigned turn) {
    unsigned count = pl_ready_paths(c, service);
    const char *path = c->services[service].probe_ready_path;
    return count > 1 ? usual_paths[turn % count] : path != NULL ? path : usual_paths[0];
}
