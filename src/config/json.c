/* json.c - the accepted configuration as one text for main, which may be of another version: paths it does
 * not know are skipped, and what it cannot read is left at its default with a warning. */
#include <string.h>

#include "config/inside.h"
#include "config/value.h"

/* {"v":1,"file":"plimsoll.yaml","values":[VALUE...],"services":[{"id":"chat","place":"...","values":[VALUE...]}]}
 * VALUE = {"path":"traffic.timeout","text":"30s","origin":"file","place":"plimsoll.yaml:7:5"} */

static bool put_text(struct pl_buf *out, const char *name, const char *text) {
    return pl_buf_addf(out, "\"%s\":", name) && pl_buf_add_json(out, text, strlen(text));
}

static bool put_values(const struct pl_config *cfg, size_t service, struct pl_buf *out) {
    struct pl_options all = pl_options_of(pl_scope_of(service));
    bool ok = pl_buf_adds(out, "\"values\":["), first = true;
    for (size_t i = 0; ok && i < all.count; i++) {
        const struct pl_config_entry *e = pl_config_entry(cfg, service, &all.at[i]);
        if (e->origin == PL_FROM_DEFAULT) continue;
        ok = pl_buf_adds(out, first ? "\n{" : ",\n{") && put_text(out, "path", all.at[i].key) &&
             pl_buf_adds(out, ",") && put_text(out, "text", e->now.text) && pl_buf_adds(out, ",") &&
             put_text(out, "origin", pl_origin_name(e->origin)) && pl_buf_adds(out, ",") &&
             put_text(out, "place", e->now.place) && pl_buf_adds(out, "}");
        first = false;
    }
    return ok && pl_buf_adds(out, "]");
}

bool pl_config_to_json(const struct pl_config *cfg, struct pl_buf *out) {
    bool ok = pl_buf_adds(out, "{\"v\":1,");
    if (cfg->file != NULL) ok = ok && put_text(out, "file", cfg->file) && pl_buf_adds(out, ",");
    ok = ok && put_values(cfg, PL_CFG_INSTANCE, out) && pl_buf_adds(out, ",\"services\":[");
    for (size_t i = 0; ok && i < cfg->service_count; i++)
        ok = pl_buf_adds(out, i > 0 ? ",\n{" : "\n{") && put_text(out, "id", cfg->services[i].id) &&
             pl_buf_adds(out, ",") && put_text(out, "place", cfg->services[i].place) &&
             pl_buf_adds(out, ",") && put_values(cfg, i, out) && pl_buf_adds(out, "}");
    return ok && pl_buf_adds(out, "]}\n");
}

static const char *get_text(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static enum pl_origin origin_named(const char *name) {
    for (int i = 0; name != NULL && i < PL_ORIGIN_COUNT; i++)
        if (strcmp(pl_origin_name((enum pl_origin)i), name) == 0) return (enum pl_origin)i;
    return PL_FROM_FILE; /* an origin of a later version is at least explicit */
}

/* `strict`: the first value that would be lost is an error; it names where it was written. */
static bool take_values(struct pl_config *cfg, size_t service, const json_t *values, bool strict,
                        struct pl_err *why) {
    size_t i;
    const json_t *value;
    json_array_foreach(values, i, value) {
        const char *path = get_text(value, "path"), *text = get_text(value, "text");
        const char *place = get_text(value, "place");
        const struct pl_option *o = path != NULL ? pl_option_find(pl_scope_of(service), path) : NULL;
        struct pl_err err;
        if (strict && (o == NULL || text == NULL))
            return PL_FAIL(why, PL_E_CONFIG, "%s: %.80s is not known to this version",
                           place != NULL && place[0] != '\0' ? place : "accepted configuration",
                           path != NULL ? path : "?");
        if (o == NULL || text == NULL) continue;
        if (pl_config_set_option(cfg, service, o, text, origin_named(get_text(value, "origin")),
                                 place != NULL ? place : "", &err))
            continue;
        /* without memory it is not the text that is wrong: a main that went on would serve with other
         * settings */
        if (strict || err.code == PL_E_NOMEM) {
            *why = err;
            return pl_err_wrap(why, "accepted configuration");
        }
        pl_config_warn(cfg, "accepted configuration", "%s (the default is used)", err.msg);
    }
    return true;
}

static bool take_services(struct pl_config *cfg, const json_t *services, bool strict, struct pl_err *err) {
    size_t i;
    const json_t *from;
    json_array_foreach(services, i, from) {
        const char *id = get_text(from, "id"), *place = get_text(from, "place");
        if (id == NULL || !pl_is_id(id) || pl_config_find_any(cfg, id, false) != SIZE_MAX)
            return PL_FAIL(err, PL_E_CONFIG, "accepted configuration: service %zu has no name of its own",
                           i + 1);
        size_t service = pl_config_add_service(cfg, id, place != NULL ? place : "", err);
        if (service == SIZE_MAX) return false;
        if (!take_values(cfg, service, json_object_get(from, "values"), strict, err)) return false;
    }
    return true;
}

static bool take_all(struct pl_config *cfg, const json_t *root, bool strict, struct pl_err *err) {
    const char *file = get_text(root, "file");
    if (!json_is_object(root) || !json_is_array(json_object_get(root, "services")))
        return PL_FAIL(err, PL_E_CONFIG, "accepted configuration: not one");
    if (file != NULL && (cfg->file = pl_keep(&cfg->inside->arena, file, strlen(file), err)) == NULL)
        return false;
    return take_values(cfg, PL_CFG_INSTANCE, json_object_get(root, "values"), strict, err) &&
           take_services(cfg, json_object_get(root, "services"), strict, err);
}

static struct pl_config *from_json(const char *text, size_t len, bool strict, struct pl_err *err) {
    json_t *root = pl_json_load(text, len, err);
    if (root == NULL) return pl_err_wrap(err, "accepted configuration"), NULL;
    struct pl_config *cfg = pl_config_create();
    if (cfg == NULL) PL_FAIL(err, PL_E_NOMEM, "no memory for the configuration");
    if (cfg != NULL && !take_all(cfg, root, strict, err)) {
        pl_config_destroy(cfg);
        cfg = NULL;
    }
    json_decref(root);
    return cfg;
}

struct pl_config *pl_config_from_json(const char *text, size_t len, struct pl_err *err) {
    return from_json(text, len, false, err);
}

struct pl_config *pl_config_from_json_whole(const char *text, size_t len, struct pl_err *err) {
    return from_json(text, len, true, err);
}
