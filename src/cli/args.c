#include "cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/similar.h"

static const struct pl_flag shared_flags[] = {
    { "json", 0, PL_FLAG_SWITCH, NULL, "print JSON only" },
    { "help", 'h', PL_FLAG_SWITCH, NULL, "show this help" },
    { "version", 'V', PL_FLAG_SWITCH, NULL, "show the version" },
    { "quiet", 'q', PL_FLAG_SWITCH, NULL, "say less" },
    { "verbose", 'v', PL_FLAG_SWITCH, NULL, "say more" },
    { "color", 0, PL_FLAG_VALUE, "auto|always|never", "colours on a terminal" },
    { "config", 'c', PL_FLAG_VALUE, "FILE",
      "configuration (./plimsoll.yaml, then /etc/plimsoll/plimsoll.yaml)" },
};
static const struct pl_flag server_flags[] = {
    { "admin", 0, PL_FLAG_VALUE, "ADDR|SOCKET", "the server to talk to" },
    { "token-file", 0, PL_FLAG_VALUE, "FILE", "token for a server that is reached over TCP" },
    { "wait", 0, PL_FLAG_VALUE, "DUR", "how long to wait for the answer" },
};

/* Flags of serve that are not a key by their own name, and the key behind them (NULL: none). */
/* clang-format off */
#define SERVE_FLAGS(X) \
    X("port", 'p', VALUE, "PORT", "port of the first listener (3000)", "http.port") \
    X("host", 0, VALUE, "HOST", "host of the first listener (0.0.0.0)", "http.host") \
    X("timeout", 0, VALUE, "DUR", "traffic.timeout; a bare number is seconds", "traffic.timeout") \
    X("max-concurrency", 0, VALUE, "N", "traffic.max_concurrency", "traffic.max_concurrency") \
    X("name", 0, VALUE, "NAME", "name of the service", NULL) \
    X("worker-port", 0, VALUE, "N", "port that CMD without {port} or {socket} always listens on", "worker_port") \
    X("check", 0, SWITCH, NULL, "check the configuration and start nothing", NULL) \
    X("allow-drydock", 0, SWITCH, NULL, "in a dry dock: listen on other addresses than loopback too", NULL) \
    X("reload", 0, SWITCH, NULL, "watch: start anew when files of the service change", "watch") \
    X("api-key", 0, VALUE, "env:N|file:F", "one key that clients must show; api_keys.file names many", "api_keys.key") \
    X("ssl-certfile", 0, VALUE, "FILE", "tls.certfile", "tls.certfile") \
    X("ssl-keyfile", 0, VALUE, "FILE", "tls.keyfile", "tls.keyfile") \
    X("ssl-keyfile-password", 0, VALUE, "SECRET", "tls.keyfile_password", "tls.keyfile_password") \
    X("ssl-ca-certs", 0, VALUE, "FILE", "tls.ca_certs", "tls.ca_certs")
/* clang-format on */
static const struct pl_flag serve_flags[] = {
#define X(name, letter, kind, value, help, path) { name, letter, PL_FLAG_##kind, value, help },
    SERVE_FLAGS(X)
#undef X
};
static const char *const serve_paths[] = {
#define X(name, letter, kind, value, help, path) path,
    SERVE_FLAGS(X)
#undef X
};
enum {
    SHARED_COUNT = sizeof shared_flags / sizeof shared_flags[0],
    SERVER_COUNT = sizeof server_flags / sizeof server_flags[0],
    SERVE_COUNT = sizeof serve_flags / sizeof serve_flags[0],
};

const struct pl_flag *pl_args_shared_flags(size_t *count) {
    *count = SHARED_COUNT;
    return shared_flags;
}
const struct pl_flag *pl_args_server_flags(size_t *count) {
    *count = SERVER_COUNT;
    return server_flags;
}
const struct pl_flag *pl_args_serve_flags(size_t *count) {
    *count = SERVE_COUNT;
    return serve_flags;
}

/* ---- what a flag is ---- */

enum family { SHARED, SERVER, OWN, SERVE, KEY };
struct match {
    enum family family;
    const struct pl_flag *flag; /* NULL for KEY */
    const char *path;           /* SERVE, KEY; NULL: no key */
};

struct parser {
    int argc, at, verb_at;
    char *const *argv;
    const struct pl_verb_args *verb; /* or NULL */
    struct pl_arena *arena;
    struct pl_args *out;
    struct pl_err *err;
};

static bool no_memory(struct parser *p) {
    return PL_FAIL(p->err, PL_E_NOMEM, "the command line is too long");
}

static const struct pl_flag *among(const struct pl_flag *flags, size_t count, const char *name, char letter) {
    for (size_t i = 0; i < count; i++)
        if (name != NULL ? pl_same_loosely(flags[i].name, name) : flags[i].letter == letter) return &flags[i];
    return NULL;
}

/* By name, or by letter when `name` is NULL. A verb's own flags come before the shared ones. */
static bool find_flag(const struct pl_verb_args *verb, const char *name, char letter, struct match *m) {
    *m = (struct match){ .family = OWN };
    if (verb != NULL && (m->flag = among(verb->flags, verb->flag_count, name, letter)) != NULL) return true;
    m->family = SHARED;
    if ((m->flag = among(shared_flags, SHARED_COUNT, name, letter)) != NULL) return true;
    if (verb == NULL) return false;
    m->family = SERVE;
    if (verb->keys && (m->flag = among(serve_flags, SERVE_COUNT, name, letter)) != NULL) {
        m->path = serve_paths[m->flag - serve_flags];
        return true;
    }
    m->family = SERVER;
    return verb->server && (m->flag = among(server_flags, SERVER_COUNT, name, letter)) != NULL;
}

static void nearer(const struct pl_flag *flags, size_t count, const char *name, size_t *best,
                   const char **nearest) {
    for (size_t i = 0; i < count; i++) {
        size_t distance = pl_edit_distance(name, flags[i].name);
        if (distance >= *best) continue;
        *best = distance;
        *nearest = flags[i].name;
    }
}

static bool unknown_flag(struct parser *p, const char *name) {
    const char *nearest = NULL;
    struct pl_err key;
    size_t best = pl_slips_allowed(name) + 1;
    PL_FAIL(p->err, PL_E_USAGE, "unknown flag --%s", pl_quote(name).text);
    nearer(shared_flags, SHARED_COUNT, name, &best, &nearest);
    if (p->verb != NULL) {
        nearer(p->verb->flags, p->verb->flag_count, name, &best, &nearest);
        if (p->verb->server) nearer(server_flags, SERVER_COUNT, name, &best, &nearest);
        if (p->verb->keys) nearer(serve_flags, SERVE_COUNT, name, &best, &nearest);
    }
    if (nearest != NULL) return pl_err_hint(p->err, "did you mean --%s?", nearest);
    if (p->verb != NULL && p->verb->keys && !pl_config_knows(name, &key))
        return pl_err_hint(p->err, "%s", key.hint);
    return false;
}

/* ---- taking one ---- */

static bool add_key(struct parser *p, const char *path, const char *text, const char *place) {
    p->out->keys[p->out->key_count++] = (struct pl_args_key){ .path = path, .text = text, .place = place };
    return true;
}

/* --timeout 30 means seconds, as for `bentoml serve`. */
static bool add_timeout(struct parser *p, const char *path, const char *text, const char *place) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] != '\0') return add_key(p, path, text, place);
    char *seconds = pl_arena_alloc(p->arena, digits + 2);
    if (seconds == NULL) return no_memory(p);
    memcpy(seconds, text, digits);
    seconds[digits] = 's';
    return add_key(p, path, seconds, place);
}

static bool take_color(struct parser *p, const char *value) {
    static const char *const words[] = { "auto", "always", "never" };
    for (int i = 0; i < 3; i++)
        if (strcmp(value, words[i]) == 0) return p->out->color = (enum pl_color)i, true;
    return PL_FAIL(p->err, PL_E_USAGE, "--color: '%s' is none of auto, always, never", pl_quote(value).text);
}

static bool take_wait(struct parser *p, const char *value) {
    if (pl_config_parse_duration(value, &p->out->wait_ms, p->err)) return true;
    p->err->code = PL_E_USAGE;
    return pl_err_wrap(p->err, "--wait");
}

static bool take_shared(struct parser *p, const char *name, const char *value) {
    struct pl_args *out = p->out;
    if (strcmp(name, "json") == 0) return out->json = true;
    if (strcmp(name, "help") == 0) return out->help = true;
    if (strcmp(name, "version") == 0) return out->version = true;
    if (strcmp(name, "quiet") == 0) return out->quiet = true;
    if (strcmp(name, "verbose") == 0) return ++out->verbose > 0;
    if (strcmp(name, "color") == 0) return take_color(p, value);
    if (strcmp(name, "wait") == 0) return take_wait(p, value);
    if (strcmp(name, "config") == 0)
        out->config = value;
    else if (strcmp(name, "admin") == 0)
        out->admin = value;
    else
        out->token_file = value;
    return true;
}

static bool take_serve(struct parser *p, const struct match *m, const char *value, const char *place) {
    if (strcmp(m->flag->name, "timeout") == 0) return add_timeout(p, m->path, value, place);
    if (m->path != NULL) return add_key(p, m->path, m->flag->kind == PL_FLAG_SWITCH ? "on" : value, place);
    if (strcmp(m->flag->name, "name") == 0)
        p->out->name = value;
    else if (strcmp(m->flag->name, "check") == 0)
        p->out->check = true;
    else
        p->out->allow_drydock = true;
    return true;
}

static bool take(struct parser *p, const struct match *m, const char *value, const char *place) {
    switch (m->family) {
    case SHARED:
    case SERVER:
        return take_shared(p, m->flag->name, value);
    case SERVE:
        return take_serve(p, m, value, place);
    case KEY:
        return add_key(p, m->path, value, place);
    case OWN:
        break;
    }
    p->out->flags[p->out->flag_count++] = (struct pl_args_flag){
        .name = m->flag->name,
        .value = m->flag->kind == PL_FLAG_SWITCH ? "" : value,
    };
    return true;
}

/* The next argument, as a flag's value; NULL when there is none. */
static const char *next_value(struct parser *p) {
    int at = p->at + 1;
    if (at == p->verb_at) at++; /* `plimsoll --config serve ...` does not mean a file called serve */
    if (at >= p->argc || (strncmp(p->argv[at], "--", 2) == 0)) return NULL;
    p->at = at;
    return p->argv[at];
}

static bool needs_value(struct parser *p, const char *place, const char *what) {
    return PL_FAIL(p->err, PL_E_USAGE, "%s needs a value%s%s", pl_quote(place).text, what != NULL ? ": " : "",
                   what != NULL ? what : "");
}

/* `given` is what stands behind '=' or behind the letter; NULL: nothing. */
static bool take_with_value(struct parser *p, const struct match *m, const char *given, const char *place) {
    enum pl_flag_kind kind = m->flag != NULL ? m->flag->kind : PL_FLAG_VALUE;
    if (kind == PL_FLAG_SWITCH && given != NULL)
        return PL_FAIL(p->err, PL_E_USAGE, "%s takes no value", pl_quote(place).text);
    if (kind == PL_FLAG_OPTIONAL && given == NULL) {
        bool number = p->at + 1 < p->argc && p->at + 1 != p->verb_at && p->argv[p->at + 1][0] >= '0' &&
                      p->argv[p->at + 1][0] <= '9';
        if (number) given = next_value(p);
    }
    if (kind == PL_FLAG_VALUE && given == NULL && (given = next_value(p)) == NULL)
        return needs_value(p, place, m->flag != NULL ? m->flag->value : NULL);
    return take(p, m, given, place);
}

static bool take_long(struct parser *p, const char *arg) {
    const char *equals = strchr(arg, '=');
    size_t n = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    char *place = pl_arena_strndup(p->arena, arg, n), *name = place != NULL ? place + 2 : NULL;
    struct match m;
    struct pl_err unknown;
    if (place == NULL) return no_memory(p);
    if (!find_flag(p->verb, name, 0, &m)) {
        if (p->verb == NULL || !p->verb->keys || !pl_config_knows(name, &unknown))
            return unknown_flag(p, name);
        m = (struct match){ .family = KEY, .path = name };
    }
    return take_with_value(p, &m, equals != NULL ? equals + 1 : NULL, place);
}

/* -qv, -p 3000, -p3000 */
static bool take_letters(struct parser *p, const char *arg) {
    for (const char *s = arg + 1; *s != '\0'; s++) {
        struct match m;
        char *place = pl_arena_alloc(p->arena, 3);
        if (place == NULL) return no_memory(p);
        place[0] = '-';
        place[1] = *s;
        if (!find_flag(p->verb, NULL, *s, &m)) {
            PL_FAIL(p->err, PL_E_USAGE, "unknown flag %s", pl_quote(place).text);
            if (arg[2] != '\0') pl_err_hint(p->err, "long flags have two dashes: -%s", pl_quote(arg).text);
            return false;
        }
        bool last = s[1] == '\0' || m.flag->kind != PL_FLAG_SWITCH;
        if (!take_with_value(p, &m, last && s[1] != '\0' ? s + 1 : NULL, place)) return false;
        if (last) break;
    }
    return true;
}

/* ---- all of it ---- */

static bool make_room(struct parser *p) {
    struct pl_args *out = p->out;
    size_t most = (size_t)p->argc + 1, letters = 0; /* each letter of -qqq is a flag */
    for (int i = 1; i < p->argc; i++) letters += strlen(p->argv[i]);
    *out = (struct pl_args){ .wait_ms = -1 };
    out->words.at = pl_arena_alloc(p->arena, most * sizeof *out->words.at);
    out->rest.at = pl_arena_alloc(p->arena, most * sizeof *out->rest.at);
    out->flags = pl_arena_alloc(p->arena, (most + letters) * sizeof *out->flags);
    out->keys = pl_arena_alloc(p->arena, (most + letters) * sizeof *out->keys);
    bool ok = out->words.at != NULL && out->rest.at != NULL && out->flags != NULL && out->keys != NULL;
    return ok || no_memory(p);
}

static bool take_argument(struct parser *p) {
    const char *arg = p->argv[p->at];
    if (strcmp(arg, "--") == 0) {
        p->out->has_rest = true;
        while (++p->at < p->argc) p->out->rest.at[p->out->rest.count++] = p->argv[p->at];
        return true;
    }
    if (strncmp(arg, "--", 2) == 0) return take_long(p, arg);
    if (arg[0] == '-' && arg[1] != '\0') return take_letters(p, arg);
    p->out->words.at[p->out->words.count++] = arg;
    return true;
}

static bool check_words(struct parser *p) {
    const struct pl_verb_args *v = p->verb;
    size_t count = p->out->words.count;
    if (v == NULL || p->out->help || p->out->version) return true;
    if (count < v->min_words)
        PL_FAIL(p->err, PL_E_USAGE, "%s: an argument is missing", v->verb);
    else if (count > v->max_words)
        PL_FAIL(p->err, PL_E_USAGE, "%s: '%s' is one argument too many", v->verb,
                pl_quote(p->out->words.at[v->max_words]).text);
    else
        return true;
    return pl_err_hint(p->err, "see plimsoll %s --help", v->verb);
}

bool pl_args_parse(int argc, char *const *argv, int verb_at, const struct pl_verb_args *verb,
                   struct pl_arena *arena, struct pl_args *out, struct pl_err *err) {
    struct parser p = {
        .argc = argc, .verb_at = verb_at, .argv = argv, .verb = verb, .arena = arena, .out = out, .err = err
    };
    if (verb_at <= 0) p.verb_at = -1;
    if (!make_room(&p)) return false;
    for (p.at = 1; p.at < argc; p.at++)
        if (p.at != p.verb_at && !take_argument(&p)) return false;
    return check_words(&p);
}

int pl_args_find_verb(int argc, char *const *argv) {
    static const struct pl_verb_args any = { .verb = "", .server = true };
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        struct match m;
        if (strcmp(arg, "--") == 0) return 0;
        if (arg[0] != '-' || arg[1] == '\0') return i;
        bool is_long = arg[1] == '-';
        bool alone = is_long ? strchr(arg, '=') == NULL : arg[2] == '\0'; /* its value is the next argument */
        bool known = is_long ? find_flag(&any, arg + 2, 0, &m) : find_flag(&any, NULL, arg[1], &m);
        if (known && alone && m.flag->kind == PL_FLAG_VALUE) i++;
    }
    return 0;
}

const char *pl_args_value(const struct pl_args *a, const char *name) {
    for (size_t i = a->flag_count; i > 0; i--)
        if (strcmp(a->flags[i - 1].name, name) == 0) return a->flags[i - 1].value;
    return NULL;
}

bool pl_args_has(const struct pl_args *a, const char *name) {
    for (size_t i = 0; i < a->flag_count; i++)
        if (strcmp(a->flags[i].name, name) == 0) return true;
    return false;
}

bool pl_args_count(const struct pl_args *a, const char *name, uint64_t least, uint64_t most, uint64_t *out,
                   struct pl_err *err) {
    static const struct {
        char letter;
        uint64_t times;
    } units[] = { { 'K', 1000 }, { 'M', 1000000 }, { 'G', 1000000000 } };
    const char *text = pl_args_value(a, name);
    char *end;
    if (text == NULL) return true;
    errno = 0;
    uint64_t n = strtoull(text, &end, 10);
    bool ok = text[0] >= '0' && text[0] <= '9' && errno == 0;
    for (size_t i = 0; ok && i < sizeof units / sizeof *units; i++) {
        if (*end != units[i].letter) continue;
        end++;
        ok = !__builtin_mul_overflow(n, units[i].times, &n);
        break;
    }
    if (!ok || *end != '\0' || n < least || n > most)
        return PL_FAIL(err, PL_E_USAGE, "--%s: '%s' is no number from %llu to %llu", name,
                       pl_quote(text).text, (unsigned long long)least, (unsigned long long)most);
    *out = n;
    return true;
}

bool pl_args_apply(const struct pl_args *a, struct pl_config *cfg, struct pl_err *err) {
    for (size_t i = 0; i < a->key_count; i++) {
        const struct pl_args_key *k = &a->keys[i];
        if (!pl_config_set_path(cfg, k->path, k->text, PL_FROM_FLAG, k->place, err)) return false;
    }
    return true;
}
