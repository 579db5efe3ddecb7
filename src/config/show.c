/* show.c - `config show`: every key with its value, unit, origin and place. */
#include <inttypes.h>
#include <string.h>

#include "config/inside.h"

/* Keys that do nothing here are shown when somebody set them. */
static bool is_shown(const struct pl_option *o, const struct pl_config_entry *e) {
    return o->when == PL_WHEN_NOW || (o->when == PL_WHEN_LATER && e->origin != PL_FROM_DEFAULT);
}

static const void *member(const struct pl_config *cfg, size_t service, const struct pl_option *o) {
    const char *base = service == PL_CFG_INSTANCE ? (const char *)cfg : (const char *)&cfg->services[service];
    return base + o->offset;
}

static bool is_number(enum pl_option_type type) {
    return type == PL_OPTION_INT || type == PL_OPTION_STATUS || type == PL_OPTION_BYTES ||
           type == PL_OPTION_DURATION || type == PL_OPTION_SHARE;
}

static bool put_texts(struct pl_buf *out, const struct pl_strings *list) {
    bool ok = pl_buf_adds(out, "[");
    for (size_t i = 0; ok && i < list->count; i++)
        ok = (i == 0 || pl_buf_adds(out, ",")) && pl_buf_add_json(out, list->at[i], strlen(list->at[i]));
    return ok && pl_buf_adds(out, "]");
}

/* "value": a number in the unit beside it, true or false, a list, else the text. */
static bool put_value(const struct pl_config *cfg, size_t service, const struct pl_option *o,
                      const struct pl_config_entry *e, struct pl_buf *out) {
    const void *m = member(cfg, service, o);
    if (e->now.text[0] == '\0') return true; /* not set: no value */
    if (is_number(o->type) && *(const int64_t *)m >= 0) {
        int64_t n = *(const int64_t *)m;
        bool ok = o->type == PL_OPTION_SHARE
                      ? pl_buf_addf(out, ",\"value\":%" PRId64 ".%02" PRId64, n / 100, n % 100)
                      : pl_buf_addf(out, ",\"value\":%" PRId64, n);
        return ok && (o->unit[0] == '\0' || pl_buf_addf(out, ",\"unit\":\"%s\"", o->unit));
    }
    if (o->type == PL_OPTION_SWITCH)
        return pl_buf_addf(out, ",\"value\":%s", *(const bool *)m ? "true" : "false");
    if (!pl_buf_adds(out, ",\"value\":")) return false;
    if (o->type == PL_OPTION_LIST) return put_texts(out, m);
    return pl_buf_add_json(out, e->now.shown, strlen(e->now.shown));
}

static bool put_json(const struct pl_config *cfg, size_t service, const struct pl_option *o,
                     const struct pl_config_entry *e, struct pl_buf *out) {
    const char *place;
    enum pl_origin origin = pl_config_origin(cfg, service, o->key, &place);
    bool ok = pl_buf_adds(out, "{\"key\":\"");
    if (ok && service != PL_CFG_INSTANCE) ok = pl_buf_addf(out, "services.%s.", cfg->services[service].id);
    ok = ok && pl_buf_addf(out, "%s\"", o->key) && put_value(cfg, service, o, e, out);
    if (ok && e->now.text[0] != '\0')
        ok = pl_buf_adds(out, ",\"text\":") && pl_buf_add_json(out, e->now.shown, strlen(e->now.shown));
    ok = ok && pl_buf_addf(out, ",\"origin\":\"%s\"", pl_origin_name(origin));
    if (ok && place[0] != '\0')
        ok = pl_buf_adds(out, ",\"place\":") && pl_buf_add_json(out, place, strlen(place));
    return ok && pl_buf_adds(out, "}");
}

/* One line whatever the value holds. */
static bool put_plain(struct pl_buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool ok = c >= 0x20 && c != 0x7f ? pl_buf_add(out, text, 1)
                  : c == '\n'            ? pl_buf_adds(out, "\\n")
                                         : pl_buf_addf(out, "\\x%02x", c);
        if (!ok) return false;
    }
    return true;
}

static bool put_line(const struct pl_config *cfg, size_t service, const struct pl_option *o,
                     const struct pl_config_entry *e, struct pl_buf *out) {
    const char *place, *id = service == PL_CFG_INSTANCE ? "" : cfg->services[service].id;
    enum pl_origin origin = pl_config_origin(cfg, service, o->key, &place);
    const char *value = e->now.text[0] != '\0' ? e->now.shown : "-";
    /* the texts of durations, bytes and shares carry their unit */
    bool own_unit = o->type == PL_OPTION_DURATION || o->type == PL_OPTION_SHARE || o->type == PL_OPTION_BYTES;
    const char *unit = own_unit || o->unit[0] == '\0' ? "-" : o->unit;
    int width = 44 - (int)(id[0] != '\0' ? sizeof "services.." - 1 + strlen(id) : 0);
    return pl_buf_addf(out, "%s%s%s%-*s  ", id[0] != '\0' ? "services." : "", id, id[0] != '\0' ? "." : "",
                       width > 0 ? width : 0, o->key) &&
           put_plain(out, value) &&
           pl_buf_addf(out, "  %s  %s  %s\n", unit, pl_origin_name(origin), place[0] != '\0' ? place : "-");
}

static bool put_scope(const struct pl_config *cfg, size_t service, bool json, bool *first,
                      struct pl_buf *out) {
    struct pl_options all = pl_options_of(pl_scope_of(service));
    for (size_t i = 0; i < all.count; i++) {
        const struct pl_config_entry *e = pl_config_entry(cfg, service, &all.at[i]);
        if (!is_shown(&all.at[i], e)) continue;
        if (!json) {
            if (!put_line(cfg, service, &all.at[i], e, out)) return false;
            continue;
        }
        if (!pl_buf_adds(out, *first ? "\n" : ",\n") || !put_json(cfg, service, &all.at[i], e, out))
            return false;
        *first = false;
    }
    return true;
}

bool pl_config_show(const struct pl_config *cfg, const char *service, bool json, struct pl_buf *out) {
    bool first = true, ok = true;
    size_t only = service != NULL ? pl_config_find(cfg, service) : SIZE_MAX;
    if (service != NULL && only == SIZE_MAX) return false;
    if (json) ok = pl_buf_adds(out, "{\"v\":1,\"kind\":\"config\",\"values\":[");
    if (ok && service == NULL) ok = put_scope(cfg, PL_CFG_INSTANCE, json, &first, out);
    for (size_t i = 0; ok && i < cfg->service_count; i++)
        if (service == NULL || i == only) ok = put_scope(cfg, i, json, &first, out);
    return ok && (!json || pl_buf_adds(out, "]}\n"));
}
