/* target.c - `serve TARGET`: which service that is, and what it is called. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "config/inside.h"
#include "config/value.h"

enum { ID_MAX = 40 };

/* Made to fit the pattern of service names: MyService -> myservice. */
static void fit(const char *text, size_t len, char out[ID_MAX + 1]) {
    size_t n = 0;
    for (size_t i = 0; i < len && n < ID_MAX; i++) {
        unsigned char c = (unsigned char)text[i];
        if (isalnum(c))
            out[n++] = (char)tolower(c);
        else if (n > 0 && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
    if (n == 0) memcpy(out, "service", sizeof "service");
}

static bool is_identifier(const char *text, size_t len) {
    if (len == 0 || isdigit((unsigned char)text[0])) return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    return true;
}

/* BentoML makes versions of 16 letters and digits of base 32. */
static bool is_version(const char *text) {
    return strcmp(text, "latest") == 0 ||
           strlen(text) != strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") || strlen(text) == 16;
}

/* Class name; else folder, tag or module. */
static void name_of_target(const char *target, char out[ID_MAX + 1]) {
    size_t len = strlen(target);
    while (len > 1 && target[len - 1] == '/') len--;
    const char *colon = memchr(target, ':', len);
    bool file = colon != NULL && colon - target > 3 && strncmp(colon - 3, ".py", 3) == 0;
    bool upper = colon != NULL && isupper((unsigned char)colon[1]);
    if (colon != NULL && is_identifier(colon + 1, strlen(colon + 1)) &&
        (file || upper || !is_version(colon + 1))) {
        fit(colon + 1, strlen(colon + 1), out);
        return;
    }
    if (colon != NULL) len = (size_t)(colon - target);
    const char *slash = memrchr(target, '/', len), *last = slash != NULL ? slash + 1 : target;
    len -= (size_t)(last - target);
    if (len > 3 && strncmp(last + len - 3, ".py", 3) == 0) len -= 3;
    if (len > 5 && strncasecmp(last + len - 5, ".gguf", 5) == 0) len -= 5;
    fit(last, len, out);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), e = strlen(end);
    return n >= e && strcasecmp(text + n - e, end) == 0;
}

/* ---- URLs ---- */

static bool is_url(const char *text) {
    return strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
}

static bool bad_url(const char *text, struct pl_err *err) {
    PL_FAIL(err, PL_E_CONFIG, "'%s' is not a server's address", pl_quote(text).text);
    return pl_err_hint(err, "write http://HOST:PORT");
}

bool pl_config_parse_url(const char *text, char host[PL_CFG_HOST_BYTES], uint16_t *port, struct pl_err *err) {
    if (strncasecmp(text, "https://", 8) == 0) {
        PL_FAIL(err, PL_E_CONFIG, "'%s': TLS towards a server is not in this version", pl_quote(text).text);
        return pl_err_hint(err,
                           "name its plain port, as in http://127.0.0.1:8000, or put a TLS client such as "
                           "stunnel between");
    }
    if (strncasecmp(text, "http://", 7) != 0) return bad_url(text, err);
    const char *at = text + 7;
    bool brackets = at[0] == '[';
    size_t len = brackets ? strcspn(++at, "]") : strcspn(at, ":/?#@");
    const char *rest = at + len + (brackets && at[len] == ']');
    if (len == 0 || len >= PL_CFG_HOST_BYTES || (brackets && at[len] != ']')) return bad_url(text, err);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)at[i]) && strchr(brackets ? ":.%" : ".-_", at[i]) == NULL)
            return bad_url(text, err);
    unsigned long number = 80;
    if (*rest == ':') {
        size_t digits = strspn(++rest, "0123456789");
        number = digits > 0 && digits < 6 ? strtoul(rest, NULL, 10) : 0;
        rest += digits;
    }
    if (number == 0 || number > 65535 || *rest == '@') return bad_url(text, err);
    if (*rest != '\0' && strcmp(rest, "/") != 0) {
        PL_FAIL(err, PL_E_CONFIG, "'%s' has a path, which is not taken away or put before requests",
                pl_quote(text).text);
        return pl_err_hint(err, "write http://HOST:PORT; route.path says which requests are passed on");
    }
    memcpy(host, at, len);
    host[len] = '\0';
    *port = (uint16_t)number;
    return true;
}

static bool check_target(const char *target, bool exists, struct pl_err *err) {
    if (target[0] == '\0') return PL_FAIL(err, PL_E_USAGE, "the target is empty");
    if (is_url(target)) {
        char host[PL_CFG_HOST_BYTES];
        uint16_t port;
        if (pl_config_parse_url(target, host, &port, err)) return true;
        err->code = PL_E_USAGE;
        return false;
    }
    if (ends_with(target, ".gguf") && !exists)
        return PL_FAIL(err, PL_E_USAGE, "'%s': no such file", pl_quote(target).text);
    const char *slash = strchr(target, '/');
    bool model = slash != NULL && slash != target && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
                 strchr(target, ':') == NULL && target[0] != '.' && target[0] != '~';
    if (exists || !model) return true;
    PL_FAIL(err, PL_E_USAGE, "'%s': no such file or folder", pl_quote(target).text);
    return pl_err_hint(err, "did you mean: plimsoll serve -- vllm serve %s", pl_quote(target).text);
}

/* From now on service `chosen` is the only one that is started. */
static void choose(struct pl_config *cfg, size_t chosen) {
    for (size_t i = 0; i < cfg->inside->all_count; i++)
        if (i != chosen)
            pl_config_note(cfg, &cfg->not_started, &cfg->inside->not_started_room, cfg->services[i].id);
    struct pl_service_config first = cfg->services[0];
    cfg->services[0] = cfg->services[chosen];
    cfg->services[chosen] = first;
    cfg->service_count = 1;
}

/* What the service runs, whichever kind it is; commands are compared as the JSON that their text is. */
static bool runs(const struct pl_config *cfg, size_t i, const char *key, const char *text) {
    const struct pl_service_config *s = &cfg->services[i];
    if (strcmp(key, "command") != 0) {
        const char *has = strcmp(key, "url") == 0 ? s->url : strcmp(key, "model") == 0 ? s->model : s->run;
        return has != NULL && strcmp(has, text) == 0;
    }
    struct pl_strings words;
    struct pl_err ignored;
    if (s->command.count == 0 || !pl_parse_list(text, &cfg->inside->arena, &words, &ignored)) return false;
    bool same = words.count == s->command.count;
    for (size_t w = 0; same && w < words.count; w++) same = strcmp(words.at[w], s->command.at[w]) == 0;
    return same;
}

/* The service of the file that runs the target; SIZE_MAX = none. */
static bool find_run(const struct pl_config *cfg, const char *key, const char *target, const char *name,
                     size_t *found, struct pl_err *err) {
    *found = SIZE_MAX;
    for (size_t i = 0; i < cfg->inside->all_count; i++) {
        const struct pl_service_config *s = &cfg->services[i];
        if (!runs(cfg, i, key, target) || (name != NULL && strcmp(s->id, name) != 0)) continue;
        if (*found != SIZE_MAX) {
            PL_FAIL(err, PL_E_USAGE, "'%s' is run by services '%s' and '%s'", pl_quote(target).text,
                    cfg->services[*found].id, s->id);
            return pl_err_hint(err, "choose one with --name");
        }
        *found = i;
    }
    return true;
}

/* `made` is the name for want of another. */
static bool add(struct pl_config *cfg, const char *key, const char *target, const char *name,
                const char *made, struct pl_err *err) {
    static const char place[] = "command line";
    size_t chosen = SIZE_MAX;
    if (name != NULL && !pl_is_id(name))
        return PL_FAIL(err, PL_E_USAGE, "--name: '%s' is not 1 to 40 letters a-z, digits and '-'",
                       pl_quote(name).text);
    if (!find_run(cfg, key, target, name, &chosen, err)) return false;
    if (chosen == SIZE_MAX) {
        if (name == NULL) name = made;
        size_t taken = pl_config_find_any(cfg, name, false);
        if (taken != SIZE_MAX) {
            const char *run = cfg->services[taken].run;
            PL_FAIL(err, PL_E_USAGE, "%s: service '%s' runs '%s', not '%s'", cfg->services[taken].place, name,
                    run != NULL ? pl_quote(run).text : "something else", pl_quote(target).text);
            return pl_err_hint(err, "write the target as the file does, or give it another --name");
        }
        chosen = pl_config_add_service(cfg, name, place, err);
        if (chosen == SIZE_MAX || !pl_config_set(cfg, chosen, key, target, PL_FROM_FLAG, place, err))
            return false;
    }
    choose(cfg, chosen);
    return true;
}

bool pl_config_add_target(struct pl_config *cfg, const char *target, const char *name, bool exists,
                          struct pl_err *err) {
    char id[ID_MAX + 1] = "remote";
    if (!check_target(target, exists, err)) return false;
    if (is_url(target)) return add(cfg, "url", target, name, id, err);
    name_of_target(target, id);
    return add(cfg, ends_with(target, ".gguf") ? "model" : "run", target, name, id, err);
}

bool pl_config_add_command(struct pl_config *cfg, const struct pl_strings *words, const char *name,
                           struct pl_err *err) {
    char id[ID_MAX + 1];
    struct pl_buf json;
    if (words->count == 0) {
        PL_FAIL(err, PL_E_USAGE, "serve --: the command is missing");
        return pl_err_hint(err, "plimsoll serve -- vllm serve MODEL");
    }
    const char *slash = strrchr(words->at[0], '/'), *program = slash != NULL ? slash + 1 : words->at[0];
    fit(program, strlen(program), id);
    pl_buf_init(&json, (size_t)1 << 20);
    bool fits = pl_buf_adds(&json, "[");
    for (size_t i = 0; i < words->count; i++)
        fits = fits && (i == 0 || pl_buf_adds(&json, ",")) &&
               pl_buf_add_json(&json, words->at[i], strlen(words->at[i]));
    fits = fits && pl_buf_adds(&json, "]");
    bool ok = fits ? add(cfg, "command", pl_buf_text(&json), name, id, err)
                   : PL_FAIL(err, PL_E_USAGE, "the command is longer than 1 MiB");
    pl_buf_free(&json);
    return ok;
}
