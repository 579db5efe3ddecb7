/* query.c - what the configuration says, where it says so, and whether it holds together. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/inside.h"

const char *pl_origin_name(enum pl_origin origin) {
    static const char *const names[PL_ORIGIN_COUNT] = {
#define X(sym, name) [PL_FROM_##sym] = name,
        PL_ORIGINS(X)
#undef X
    };
    return names[origin];
}

const char *pl_config_word(const char *key, unsigned value) {
    const struct pl_option *o = pl_option_find(PL_SCOPE_INSTANCE, key);
    if (o == NULL) o = pl_option_find(PL_SCOPE_SERVICE, key);
    if (o == NULL || o->words == NULL) return "";
    for (unsigned i = 0; o->words[i] != NULL; i++)
        if (i == value) return o->words[i];
    return "";
}

static const struct pl_config_entry *instance_entry(const struct pl_config *cfg, const char *key) {
    return pl_config_entry(cfg, PL_CFG_INSTANCE, pl_option_find(PL_SCOPE_INSTANCE, key));
}

enum pl_origin pl_config_origin(const struct pl_config *cfg, size_t service, const char *path,
                                const char **place) {
    const struct pl_option *o = pl_option_find(pl_scope_of(service), path);
    const struct pl_config_entry *e = o != NULL ? pl_config_entry(cfg, service, o) : NULL;
    if (place != NULL) *place = "";
    if (e == NULL) return PL_FROM_DEFAULT;
    if (service == PL_CFG_INSTANCE && strcmp(path, "listen") == 0) { /* host and port are part of it */
        const struct pl_config_entry *host = instance_entry(cfg, "http.host"),
                                     *port = instance_entry(cfg, "http.port");
        const struct pl_config_entry *own = e;
        if (host->origin != PL_FROM_DEFAULT && host->origin >= own->origin) e = host;
        if (port->origin != PL_FROM_DEFAULT && port->origin >= e->origin) e = port;
    }
    if (place != NULL) *place = e->now.place;
    return e->origin;
}

const char *pl_config_text(const struct pl_config *cfg, size_t service, const char *path) {
    const struct pl_option *o = pl_option_find(pl_scope_of(service), path);
    return o != NULL ? pl_config_entry(cfg, service, o)->now.shown : NULL;
}

/* ---- checks over several keys ---- */

/* Where a key was set, else where its service was named. */
static const char *place_of(const struct pl_config *cfg, size_t service, const char *key) {
    const char *place;
    if (pl_config_origin(cfg, service, key, &place) != PL_FROM_DEFAULT) return place;
    return cfg->services[service].place;
}

static bool check_kind(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    static const char *const kinds[] = { "run", "command", "model", "url" };
    const char *first = NULL, *place = NULL, *id = cfg->services[i].id;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const char *at;
        if (pl_config_origin(cfg, i, kinds[k], &at) == PL_FROM_DEFAULT) continue;
        if (first != NULL)
            return PL_FAIL(err, PL_E_CONFIG, "%s: service '%s' has %s as well as %s (%s)", at, id, kinds[k],
                           first, place);
        first = kinds[k];
        place = at;
    }
    if (first != NULL) return true;
    PL_FAIL(err, PL_E_CONFIG, "%s: service '%s' does not say what to run", cfg->services[i].place, id);
    return pl_err_hint(err, "add run: module:Class, command: [...] or url: http://HOST:PORT");
}

static bool check_url(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    char host[PL_CFG_HOST_BYTES];
    uint16_t port;
    const char *url = cfg->services[i].url;
    return url == NULL || pl_config_parse_url(url, host, &port, err) ||
           pl_err_wrap(err, "%s: url", place_of(cfg, i, "url"));
}

static bool same_host(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcasecmp(a, b) == 0;
}

static const char *in_both(const struct pl_strings *a, const struct pl_strings *b) {
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++)
            if (strcmp(a->at[i], b->at[k]) == 0) return a->at[i];
    return NULL;
}

/* Two services at one path are told apart by the model that a body names. */
static bool check_models(const struct pl_config *cfg, size_t i, size_t j, struct pl_err *err) {
    const struct pl_service_config *s = &cfg->services[i], *other = &cfg->services[j];
    const char *both = in_both(&s->route_models, &other->route_models);
    if (both == NULL) return true;
    return PL_FAIL(err, PL_E_CONFIG, "%s: services '%s' and '%s' both answer for model '%s' (%s)",
                   place_of(cfg, i, "route.models"), s->id, other->id, pl_quote(both).text,
                   place_of(cfg, j, "route.models"));
}

static bool check_routes(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    const struct pl_service_config *s = &cfg->services[i];
    for (size_t j = 0; j < i; j++) {
        const struct pl_service_config *other = &cfg->services[j];
        if (strcmp(s->route_path, other->route_path) != 0 || !same_host(s->route_host, other->route_host))
            continue;
        if (s->route_models.count > 0 && other->route_models.count > 0) {
            if (!check_models(cfg, i, j, err)) return false;
            continue;
        }
        PL_FAIL(err, PL_E_CONFIG, "%s: services '%s' and '%s' both answer %s%s (%s)",
                place_of(cfg, i, "route.path"), s->id, other->id, s->route_host != NULL ? s->route_host : "",
                pl_quote(s->route_path).text, place_of(cfg, j, "route.path"));
        return pl_err_hint(err, "give each a route: {path: /...}, a route.host or route.models of its own");
    }
    return true;
}

static bool check_limits(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    const struct pl_service_config *s = &cfg->services[i];
    const char *place;
    /* a lowered limits.body needs no second line to lower the default of limits.replay */
    if (pl_config_origin(cfg, i, "limits.replay", &place) == PL_FROM_DEFAULT ||
        s->limits_replay_bytes <= s->limits_body_bytes)
        return true;
    return PL_FAIL(err, PL_E_CONFIG, "%s: limits.replay: %s is more than limits.body, %s", place,
                   pl_quote(pl_config_text(cfg, i, "limits.replay")).text,
                   pl_quote(pl_config_text(cfg, i, "limits.body")).text);
}

/* A reason that is misspelt would silently never be one. */
static bool check_reasons(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    static const char *const known[] = { "leak", "forecast", "budget", "host_rss", "hang" };
    const struct pl_strings *when = &cfg->services[i].replace_when;
    for (size_t k = 0; k < when->count; k++) {
        bool found = false;
        for (size_t n = 0; n < sizeof known / sizeof known[0]; n++)
            found = found || strcmp(when->at[k], known[n]) == 0;
        if (found) continue;
        PL_FAIL(err, PL_E_CONFIG, "%s: replace.when: '%s' is no reason", place_of(cfg, i, "replace.when"),
                pl_quote(when->at[k]).text);
        return pl_err_hint(err, "reasons are leak, forecast, budget, host_rss, hang");
    }
    return true;
}

static bool check_compat(const struct pl_config *cfg, size_t i, struct pl_err *err) {
    const struct pl_strings *list = &cfg->services[i].compat;
    for (size_t k = 0; k < list->count; k++) {
        if (strcmp(list->at[k], "vllm") == 0 || strcmp(list->at[k], "kserve") == 0) continue;
        PL_FAIL(err, PL_E_CONFIG, "%s: compat: '%s' is not known", place_of(cfg, i, "compat"),
                pl_quote(list->at[k]).text);
        return pl_err_hint(err, "compat is a list of vllm, kserve");
    }
    return true;
}

bool pl_config_check(const struct pl_config *cfg, struct pl_err *err) {
    if (cfg->service_count == 0) {
        if (cfg->file != NULL)
            PL_FAIL(err, PL_E_CONFIG, "%s: no services", pl_quote(cfg->file).text);
        else
            PL_FAIL(err, PL_E_USAGE, "nothing to serve");
        return pl_err_hint(err, "name a service: plimsoll serve service:Class");
    }
    for (size_t i = 0; i < cfg->service_count; i++)
        if (!check_kind(cfg, i, err) || !check_url(cfg, i, err) || !check_routes(cfg, i, err) ||
            !check_limits(cfg, i, err) || !check_reasons(cfg, i, err) || !check_compat(cfg, i, err))
            return false;
    return true;
}

/* ---- hash ---- */

static uint64_t mix(uint64_t h, const char *text) {
    do { /* the ending NUL separates */
        h ^= (unsigned char)*text;
        h *= UINT64_C(0x100000001b3); /* FNV-1a */
    } while (*text++ != '\0');
    return h;
}

static uint64_t mix_scope(uint64_t h, const struct pl_config *cfg, size_t service) {
    struct pl_options all = pl_options_of(pl_scope_of(service));
    for (size_t i = 0; i < all.count; i++) {
        const struct pl_config_entry *e = pl_config_entry(cfg, service, &all.at[i]);
        if (e->origin >= PL_FROM_FILE) h = mix(mix(h, all.at[i].key), e->now.text);
    }
    return h;
}

void pl_config_hash(const struct pl_config *cfg, char hex[17]) {
    uint64_t h = mix_scope(UINT64_C(0xcbf29ce484222325), cfg, PL_CFG_INSTANCE);
    for (size_t i = 0; i < cfg->service_count; i++) h = mix_scope(mix(h, cfg->services[i].id), cfg, i);
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
}
