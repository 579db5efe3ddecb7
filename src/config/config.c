#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/inside.h"
#include "config/value.h"

enum { ARENA_CAP = 64 << 20, SERVICES_MAX = 256, WARNINGS_MAX = 200 };

static bool no_memory(struct pl_err *err) {
    return PL_FAIL(err, PL_E_NOMEM, "the configuration is too large");
}

/* ---- entries and members ---- */

struct pl_config_entry *pl_config_entry(const struct pl_config *cfg, size_t service,
                                        const struct pl_option *o) {
    struct pl_config_entry *entries =
        service == PL_CFG_INSTANCE ? cfg->entries : cfg->services[service].entries;
    return &entries[o - pl_options_of(pl_scope_of(service)).at];
}

static void *member(struct pl_config *cfg, size_t service, const struct pl_option *o) {
    char *base = service == PL_CFG_INSTANCE ? (char *)cfg : (char *)&cfg->services[service];
    return base + o->offset;
}

static size_t member_size(enum pl_option_type type) {
#define SIZE(t) sizeof(struct { PL_CFG_MEMBER_##t(m) })
    switch (type) {
    case PL_OPTION_AMOUNT:
        return SIZE(AMOUNT);
    case PL_OPTION_SWITCH:
        return SIZE(SWITCH);
    case PL_OPTION_ENUM:
        return sizeof(unsigned);
    case PL_OPTION_ADDRESS:
        return SIZE(ADDRESS);
    case PL_OPTION_ADDRESSES:
        return SIZE(ADDRESSES);
    case PL_OPTION_LIST:
        return SIZE(LIST);
    case PL_OPTION_MAP:
    case PL_OPTION_ENV:
        return SIZE(MAP);
    case PL_OPTION_GPUS:
        return SIZE(GPUS);
    case PL_OPTION_WARMUP:
        return SIZE(WARMUP);
    case PL_OPTION_STRING:
    case PL_OPTION_PATH:
    case PL_OPTION_ROUTE:
    case PL_OPTION_ID:
    case PL_OPTION_METRIC:
    case PL_OPTION_SECRET:
        return SIZE(STRING);
    case PL_OPTION_INT:
    case PL_OPTION_STATUS:
    case PL_OPTION_BYTES:
    case PL_OPTION_DURATION:
    case PL_OPTION_SHARE:
    case PL_OPTION_TYPE_COUNT:
        break;
    }
    return sizeof(int64_t);
#undef SIZE
}

static bool set_default(struct pl_config *cfg, size_t service, const struct pl_option *o,
                        struct pl_err *err) {
    struct pl_config_entry *e = pl_config_entry(cfg, service, o);
    memset(member(cfg, service, o), 0, member_size(o->type));
    e->origin = PL_FROM_DEFAULT;
    e->now = (struct pl_config_said){ o->def, o->def, "" };
    if (o->def[0] == '\0') return true;
    return pl_value_parse(o, o->def, &cfg->inside->arena, member(cfg, service, o), err);
}

static bool set_defaults(struct pl_config *cfg, size_t service, struct pl_err *err) {
    struct pl_options all = pl_options_of(pl_scope_of(service));
    for (size_t i = 0; i < all.count; i++)
        if (!set_default(cfg, service, &all.at[i], err)) return pl_err_wrap(err, "%s", all.at[i].key);
    return true;
}

struct pl_config *pl_config_create(void) {
    struct pl_err err;
    struct pl_config *cfg = calloc(1, sizeof *cfg);
    if (cfg == NULL) return NULL;
    cfg->inside = calloc(1, sizeof *cfg->inside);
    if (cfg->inside != NULL) {
        pl_arena_init(&cfg->inside->arena, ARENA_CAP);
        size_t count = pl_options_of(PL_SCOPE_INSTANCE).count;
        cfg->entries = pl_arena_alloc(&cfg->inside->arena, count * sizeof *cfg->entries);
        if (cfg->entries != NULL && set_defaults(cfg, PL_CFG_INSTANCE, &err)) return cfg;
    }
    pl_config_destroy(cfg);
    return NULL;
}

void pl_config_destroy(struct pl_config *cfg) {
    if (cfg == NULL) return;
    if (cfg->inside != NULL) pl_arena_free(&cfg->inside->arena);
    free(cfg->inside);
    free(cfg);
}

/* ---- services ---- */

size_t pl_config_find_any(const struct pl_config *cfg, const char *name, bool loosely) {
    for (size_t i = 0; i < cfg->inside->all_count; i++)
        if (loosely ? pl_same_loosely(cfg->services[i].id, name) : strcmp(cfg->services[i].id, name) == 0)
            return i;
    return SIZE_MAX;
}

size_t pl_config_find(const struct pl_config *cfg, const char *name) {
    size_t i = pl_config_find_any(cfg, name, false);
    return i < cfg->service_count ? i : SIZE_MAX;
}

static bool room_for_service(struct pl_config *cfg) {
    struct pl_config_inside *in = cfg->inside;
    if (in->all_count < in->all_room) return true;
    size_t room = in->all_room == 0 ? 4 : in->all_room * 2;
    struct pl_service_config *more = pl_arena_alloc(&in->arena, room * sizeof *more);
    if (more == NULL) return false;
    if (in->all_count > 0) memcpy(more, cfg->services, in->all_count * sizeof *more);
    cfg->services = more;
    in->all_room = room;
    return true;
}

size_t pl_config_add_service(struct pl_config *cfg, const char *id, const char *place, struct pl_err *err) {
    struct pl_config_inside *in = cfg->inside;
    struct pl_arena *a = &in->arena;
    size_t at = in->all_count, count = pl_options_of(PL_SCOPE_SERVICE).count;
    if (at == SERVICES_MAX) {
        PL_FAIL(err, PL_E_CONFIG, "%s: more than %d services", place, SERVICES_MAX);
        return SIZE_MAX;
    }
    if (!room_for_service(cfg)) return no_memory(err), SIZE_MAX;
    struct pl_service_config *s = &cfg->services[at];
    *s = (struct pl_service_config){ .id = pl_arena_strndup(a, id, strlen(id)),
                                     .place = pl_arena_strndup(a, place, strlen(place)),
                                     .entries = pl_arena_alloc(a, count * sizeof *s->entries) };
    if (s->id == NULL || s->place == NULL || s->entries == NULL) return no_memory(err), SIZE_MAX;
    if (!set_defaults(cfg, at, err)) return SIZE_MAX;
    in->all_count++;
    cfg->service_count = in->all_count;
    return at;
}

/* ---- notes ---- */

void pl_config_note(struct pl_config *cfg, struct pl_strings *list, size_t *room, const char *line) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], line) == 0) return;
    if (list->count >= WARNINGS_MAX) return;
    if (list->count == *room) {
        size_t more = *room == 0 ? 8 : *room * 2;
        const char **at = pl_arena_alloc(&cfg->inside->arena, more * sizeof *at);
        if (at == NULL) return;
        if (list->count > 0) memcpy(at, list->at, list->count * sizeof *at);
        list->at = at;
        *room = more;
    }
    const char *copy = pl_arena_strndup(&cfg->inside->arena, line, strlen(line));
    if (copy != NULL) list->at[list->count++] = copy;
}

void pl_config_note_warning(struct pl_config *cfg, const char *line) {
    pl_config_note(cfg, &cfg->warnings, &cfg->inside->warning_room, line);
}

void pl_config_warn(struct pl_config *cfg, const char *place, const char *fmt, ...) {
    char text[256], line[384];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s: %s", place, text);
    pl_config_note_warning(cfg, line);
}

static void warn_of_effect(struct pl_config *cfg, const struct pl_option *o, const char *place) {
    if (o->when == PL_WHEN_LATER) pl_config_warn(cfg, place, "'%s' has no effect in this version", o->key);
}

/* ---- listen, host and port ---- */

/* BentoML's host and port change the first listener, where they are as strong as `listen` itself. */
static bool compose_listen(struct pl_config *cfg, struct pl_err *err) {
    struct pl_arena *a = &cfg->inside->arena;
    const struct pl_option *listen = pl_option_find(PL_SCOPE_INSTANCE, "listen");
    struct pl_config_entry *l = pl_config_entry(cfg, PL_CFG_INSTANCE, listen);
    struct pl_config_entry *h =
        pl_config_entry(cfg, PL_CFG_INSTANCE, pl_option_find(PL_SCOPE_INSTANCE, "http.host"));
    struct pl_config_entry *p =
        pl_config_entry(cfg, PL_CFG_INSTANCE, pl_option_find(PL_SCOPE_INSTANCE, "http.port"));
    if (!pl_value_parse(listen, l->now.text, a, &cfg->listen, err)) return false;
    bool host_counts = h->origin != PL_FROM_DEFAULT && h->origin >= l->origin;
    bool port_counts =
        p->origin != PL_FROM_DEFAULT && p->origin >= l->origin && cfg->http_port != PL_CFG_NONE;
    l->now.shown = l->now.text;
    if (!host_counts && !port_counts) return true;

    struct pl_address *first = &cfg->listen.at[0];
    bool tcp = first->kind == PL_ADDRESS_TCP;
    const char *host = host_counts ? cfg->http_host : tcp ? first->host : "0.0.0.0";
    int port = port_counts ? (int)cfg->http_port : tcp ? first->port : 3000;
    char text[320];
    snprintf(text, sizeof text, strchr(host, ':') != NULL && host[0] != '[' ? "[%.255s]:%d" : "%.255s:%d",
             host, port);
    if (!pl_parse_address(text, a, first, err)) return false;

    struct pl_buf all; /* the whole list again, for `config show` */
    pl_buf_init(&all, 0);
    bool ok = true;
    for (size_t i = 0; i < cfg->listen.count; i++)
        ok = ok && pl_buf_addf(&all, "%s%s", i > 0 ? "," : "", cfg->listen.at[i].text);
    l->now.shown = ok ? pl_arena_strndup(a, pl_buf_text(&all), all.len) : NULL;
    pl_buf_free(&all);
    return l->now.shown != NULL || no_memory(err);
}

static bool touches_listen(const struct pl_option *o) {
    return strcmp(o->key, "listen") == 0 || strcmp(o->key, "http.host") == 0 ||
           strcmp(o->key, "http.port") == 0;
}

/* ---- setting ---- */

/* The value is checked, and nothing is kept of it. */
static bool check_only(struct pl_config *cfg, const struct pl_option *o, const char *text,
                       struct pl_err *err) {
    union {
        int64_t number;
        void *pointer;
        char room[sizeof(struct pl_address) + sizeof(struct pl_gpus) + sizeof(struct pl_pairs)];
    } scratch;
    struct pl_arena_mark mark = pl_arena_mark(&cfg->inside->arena);
    bool ok = pl_value_parse(o, text, &cfg->inside->arena, &scratch, err);
    pl_arena_rollback(&cfg->inside->arena, mark);
    return ok;
}

/* What to remember: copies, but for what is in the arena already. */
static bool remember(struct pl_config *cfg, const struct pl_option *o, const char *text, const char *place,
                     struct pl_config_entry *e, struct pl_config_said *said) {
    struct pl_arena *a = &cfg->inside->arena;
    const struct pl_config_said *had[] = { &e->now, &e->last };
    *said = (struct pl_config_said){ 0 };
    for (size_t i = 0; i < 2; i++) {
        if (had[i]->text != NULL && strcmp(had[i]->text, text) == 0) {
            said->text = had[i]->text;
            said->shown = had[i]->shown;
        }
        if (had[i]->place != NULL && strcmp(had[i]->place, place) == 0) said->place = had[i]->place;
    }
    if (said->text == NULL) {
        said->text = pl_arena_strndup(a, text, strlen(text));
        said->shown = said->text != NULL ? pl_value_shown(o, said->text, a) : NULL;
    }
    if (said->place == NULL) said->place = pl_arena_strndup(a, place, strlen(place));
    return said->shown != NULL && said->place != NULL;
}

static bool store(struct pl_config *cfg, size_t service, const struct pl_option *o, const char *text,
                  enum pl_origin origin, const char *place, struct pl_err *err) {
    struct pl_config_entry *e = pl_config_entry(cfg, service, o);
    struct pl_config_said said;
    if (e->origin == origin && strcmp(e->now.text, text) == 0 && strcmp(e->now.place, place) == 0)
        return true;
    if (!pl_value_parse(o, text, &cfg->inside->arena, member(cfg, service, o), err)) return false;
    if (!remember(cfg, o, text, place, e, &said)) return no_memory(err);
    struct pl_config_entry before = *e;
    e->now = said;
    e->origin = origin;
    if (!touches_listen(o) || compose_listen(cfg, err)) return true;
    struct pl_err ignored; /* a host that makes no address: as if it had never been said */
    if (set_default(cfg, service, o, &ignored)) *e = before;
    if (before.now.text[0] != '\0')
        pl_value_parse(o, before.now.text, &cfg->inside->arena, member(cfg, service, o), &ignored);
    compose_listen(cfg, &ignored);
    return false;
}

/* Values travel as JSON. */
static bool check_utf8(const char *text, struct pl_err *err) {
    size_t left = strlen(text);
    for (const unsigned char *s = (const unsigned char *)text; left > 0;) {
        size_t n = *s < 0x80 ? 1 : pl_utf8_length(s, left);
        if (n == 0) return PL_FAIL(err, PL_E_CONFIG, "'%s' is not UTF-8", pl_quote(text).text);
        s += n;
        left -= n;
    }
    return true;
}

bool pl_config_set_option(struct pl_config *cfg, size_t service, const struct pl_option *o, const char *text,
                          enum pl_origin origin, const char *place, struct pl_err *err) {
    const struct pl_config_entry *e = pl_config_entry(cfg, service, o);
    bool ok, ours = origin >= PL_FROM_FILE; /* written for us, not inherited */
    ok = check_utf8(text, err);
    if (ok && origin < e->origin)
        ok = check_only(cfg, o, text, err);
    else if (ok)
        ok = store(cfg, service, o, text, origin, place, err);
    if (!ok) return pl_err_wrap(err, "%s: %s", place, o->key);
    if (ours) warn_of_effect(cfg, o, place);
    return true;
}

bool pl_config_unknown(const char *place, enum pl_scope scope, const char *key, enum pl_code code,
                       struct pl_err *err) {
    char prefix[64] = "";
    const char *dot = strrchr(key, '.');
    if (dot != NULL) snprintf(prefix, sizeof prefix, "%.*s", (int)(dot + 1 - key), key);
    bool section = dot == NULL;
    if (!section) { /* the first part that is wrong is what to hint at */
        char above[64];
        snprintf(above, sizeof above, "%.*s", (int)(dot - key), key);
        section = pl_option_section(scope, above);
    }
    PL_FAIL(err, code, "%s: unknown key '%s'", place, pl_quote(key).text);
    if (section) pl_option_hint(scope, prefix, dot != NULL ? dot + 1 : key, err);
    return false;
}

bool pl_config_set(struct pl_config *cfg, size_t service, const char *path, const char *text,
                   enum pl_origin origin, const char *place, struct pl_err *err) {
    const struct pl_option *o = pl_option_find(pl_scope_of(service), path);
    if (o == NULL || (o->when == PL_WHEN_INNER && (origin == PL_FROM_FILE || origin == PL_FROM_ENV)))
        return pl_config_unknown(place, pl_scope_of(service), path, PL_E_CONFIG, err);
    return pl_config_set_option(cfg, service, o, text, origin, place, err);
}

void pl_config_forget(struct pl_config *cfg, size_t service, enum pl_origin origin) {
    struct pl_options all = pl_options_of(pl_scope_of(service));
    for (size_t i = 0; i < all.count; i++) {
        const struct pl_option *o = &all.at[i];
        struct pl_config_entry *e = pl_config_entry(cfg, service, o);
        struct pl_err err;
        if (e->origin != origin) continue;
        e->last = e->now;
        set_default(cfg, service, o, &err); /* defaults are known to parse */
        if (touches_listen(o)) compose_listen(cfg, &err);
    }
}
