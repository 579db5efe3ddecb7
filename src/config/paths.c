/* paths.c - keys as flags and variables write them, and the environment. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/inside.h"

/* services.NAME.key taken apart. */
struct path {
    char name[64];   /* "" = no services. before it */
    const char *key; /* what is left */
};

static bool split(const char *path, struct path *out) {
    static const char services[] = "services.";
    *out = (struct path){ .key = path };
    if (strcasecmp(path, "services") == 0) return false;
    if (strncasecmp(path, services, sizeof services - 1) != 0) return true;
    path += sizeof services - 1;
    const char *dot = strchr(path, '.');
    if (dot == NULL || dot == path || (size_t)(dot - path) >= sizeof out->name) return false;
    memcpy(out->name, path, (size_t)(dot - path));
    out->key = dot + 1;
    return true;
}

static void fold(const char *path, char *out, size_t room) {
    size_t i = 0;
    for (; path[i] != '\0' && i + 1 < room; i++)
        out[i] = path[i] == '-' ? '_' : (char)tolower((unsigned char)path[i]);
    out[i] = '\0';
}

static bool unknown_service(const struct pl_config *cfg, const char *place, const char *name,
                            enum pl_code code, struct pl_err *err) {
    PL_FAIL(err, code, "%s: no service '%s'", place, pl_quote(name).text);
    for (size_t i = 0; i < cfg->inside->all_count; i++)
        if (pl_edit_near(name, cfg->services[i].id))
            return pl_err_hint(err, "did you mean '%s'?", cfg->services[i].id);
    return false;
}

static bool unknown_key(const char *key, const char *path, bool either, struct pl_err *err) {
    char folded[128], prefix[128] = "";
    fold(key, folded, sizeof folded);
    const char *dot = strrchr(folded, '.'), *word = dot != NULL ? dot + 1 : folded;
    if (dot != NULL) snprintf(prefix, sizeof prefix, "%.*s", (int)(dot + 1 - folded), folded);
    PL_FAIL(err, PL_E_USAGE, "unknown key '%s'", pl_quote(path).text);
    pl_option_hint(PL_SCOPE_SERVICE, prefix, word, err);
    if (either && err->hint[0] == '\0') pl_option_hint(PL_SCOPE_INSTANCE, prefix, word, err);
    return false;
}

bool pl_config_knows(const char *path, struct pl_err *err) {
    struct path p;
    if (!split(path, &p)) {
        PL_FAIL(err, PL_E_USAGE, "'%s' names no key", pl_quote(path).text);
        return pl_err_hint(err, "keys of a service are services.NAME.KEY");
    }
    bool either = p.name[0] == '\0';
    if (either && pl_option_find_loose(PL_SCOPE_INSTANCE, p.key) != NULL) return true;
    if (pl_option_find_loose(PL_SCOPE_SERVICE, p.key) != NULL) return true;
    return unknown_key(p.key, path, either, err);
}

static bool which_service(struct pl_config *cfg, const char *path, const char *place, enum pl_code code,
                          size_t *service, struct pl_err *err) {
    if (cfg->service_count == 1) return *service = 0, true;
    if (cfg->service_count == 0)
        return PL_FAIL(err, code, "%s: there is no service yet to set '%s' of", place, pl_quote(path).text);
    PL_FAIL(err, code, "%s: there are %zu services to set '%s' of", place, cfg->service_count,
            pl_quote(path).text);
    return pl_err_hint(err, "name one: services.%s.%s", cfg->services[0].id, pl_quote(path).text);
}

bool pl_config_set_path(struct pl_config *cfg, const char *path, const char *text, enum pl_origin origin,
                        const char *place, struct pl_err *err) {
    enum pl_code code = origin == PL_FROM_FLAG ? PL_E_USAGE : PL_E_CONFIG;
    size_t service = PL_CFG_INSTANCE;
    struct path p;
    if (!split(path, &p)) {
        PL_FAIL(err, code, "%s: names no key", place);
        return pl_err_hint(err, "keys of a service are services.NAME.KEY");
    }
    const struct pl_option *o = p.name[0] == '\0' ? pl_option_find_loose(PL_SCOPE_INSTANCE, p.key) : NULL;
    if (o != NULL && o->when == PL_WHEN_INNER && origin == PL_FROM_ENV) o = NULL;
    if (o == NULL) {
        o = pl_option_find_loose(PL_SCOPE_SERVICE, p.key);
        if (o == NULL) {
            unknown_key(p.key, path, p.name[0] == '\0', err);
            err->code = code;
            return pl_err_wrap(err, "%s", place);
        }
        if (p.name[0] == '\0') {
            if (!which_service(cfg, p.key, place, code, &service, err)) return false;
        } else {
            service = pl_config_find_any(cfg, p.name, true);
            if (service == SIZE_MAX) return unknown_service(cfg, place, p.name, code, err);
        }
    }
    return pl_config_set_option(cfg, service, o, text, origin, place, err);
}

/* ---- the environment ---- */

static bool contains_port_number(const char *name) {
    for (const char *at = name; (at = strstr(at, "_PORT_")) != NULL; at += 6) {
        size_t digits = strspn(at + 6, "0123456789");
        if (digits > 0 && at[6 + digits] == '_') return true;
    }
    return strstr(name, "_SERVICE_PORT_") != NULL;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), e = strlen(end);
    return n >= e && strcmp(text + n - e, end) == 0;
}

/* What Kubernetes puts into every pod about a service called plimsoll-something. */
static bool is_service_link(const char *name, const char *value) {
    if (!ends_with(name, "_PORT") && !ends_with(name, "_SERVICE_HOST") && !ends_with(name, "_SERVICE_PORT") &&
        !contains_port_number(name))
        return false;
    if (strcmp(value, "tcp") == 0 || strcmp(value, "udp") == 0 || strcmp(value, "sctp") == 0) return true;
    if (strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0 ||
        strncmp(value, "sctp://", 7) == 0)
        return true;
    return value[0] != '\0' &&
           value[strspn(value, "0123456789.:abcdefABCDEF")] == '\0'; /* an IP or a number */
}

/* PLIMSOLL__A__B -> a.b; false when it is too long to be a key. */
static bool path_of_variable(const char *name, char *out, size_t room) {
    size_t n = 0;
    for (; *name != '\0'; n++) {
        if (n + 1 >= room) return false;
        bool next = name[0] == '_' && name[1] == '_';
        out[n] = next ? '.' : (char)tolower((unsigned char)*name);
        name += next ? 2 : 1;
    }
    out[n] = '\0';
    return true;
}

static bool set_variable(struct pl_config *cfg, const char *name, const char *value, struct pl_err *err) {
    static const char prefix[] = "PLIMSOLL__";
    char path[160];
    struct pl_err unknown;
    if (!path_of_variable(name + sizeof prefix - 1, path, sizeof path))
        return PL_FAIL(err, PL_E_CONFIG, "%s: names no key", pl_quote(name).text);
    if (!pl_config_knows(path, &unknown) && is_service_link(name, value)) {
        pl_config_note(cfg, &cfg->links, &cfg->inside->link_room, name);
        return true;
    }
    return pl_config_set_path(cfg, path, value, PL_FROM_ENV, name, err);
}

static bool set_bentoml(struct pl_config *cfg, const char *name, const char *value, struct pl_err *err) {
    char seconds[40];
    if (value[0] == '\0') return true;
    if (strcmp(name, "BENTOML_HOST") == 0)
        return pl_config_set(cfg, PL_CFG_INSTANCE, "http.host", value, PL_FROM_BENTOML_CONFIG, name, err);
    if (strcmp(name, "BENTOML_PORT") == 0) {
        if (strstr(value, "://") == NULL)
            return pl_config_set(cfg, PL_CFG_INSTANCE, "http.port", value, PL_FROM_BENTOML_CONFIG, name, err);
        pl_config_note(cfg, &cfg->links, &cfg->inside->link_room, name); /* of a service called bentoml */
        return true;
    }
    if (strcmp(name, "BENTOML_TIMEOUT") != 0) return true;
    snprintf(seconds, sizeof seconds, "%.30s%s", value,
             value[strspn(value, "0123456789.")] == '\0' ? "s" : "");
    for (size_t i = 0; i < cfg->service_count; i++)
        if (!pl_config_set(cfg, i, "traffic.timeout", seconds, PL_FROM_BENTOML_CONFIG, name, err))
            return false;
    return true;
}

bool pl_config_read_env(struct pl_config *cfg, char *const *env, struct pl_err *err) {
    char name[256];
    for (; *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        if (equals == NULL || equals == *env) continue;
        bool ours = strncasecmp(*env, "PLIMSOLL", 8) == 0, bentoml = strncmp(*env, "BENTOML_", 8) == 0;
        if (!ours && !bentoml) continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - *env), *env);
        if (bentoml) {
            if (!set_bentoml(cfg, name, equals + 1, err)) return false;
        } else if (strncasecmp(name, "PLIMSOLL__", 10) == 0) {
            if (!set_variable(cfg, name, equals + 1, err)) return false;
        } else if (is_service_link(name, equals + 1)) {
            pl_config_note(cfg, &cfg->links, &cfg->inside->link_room, name);
        }
    }
    return true;
}
