/* reference.c - the reference page and the editors' schema, from the table alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/inside.h"
#include "config/value.h"

/* ---- Markdown ---- */

static bool put_range(const struct pl_option *o, struct pl_buf *out) {
    if (o->type == PL_OPTION_ENUM) {
        for (size_t i = 0; o->words[i] != NULL; i++)
            if (!pl_buf_addf(out, "%s`%s`", i > 0 ? " " : "", o->words[i])) return false;
        return true;
    }
    char lo[32], hi[32];
    pl_value_limits(o, lo, hi);
    if (!pl_buf_adds(out, pl_option_type_name(o->type))) return false;
    if (hi[0] != '\0' && !pl_buf_addf(out, ", %s to %s", lo, hi)) return false;
    return o->word[0] == '\0' || pl_buf_addf(out, ", or `%s`", o->word);
}

static bool put_rows(enum pl_scope scope, struct pl_buf *out) {
    static const char *const classes[] = {
        [PL_CLASS_LIVE] = "at once", [PL_CLASS_GENERATION] = "new generation", [PL_CLASS_RESTART] = "restart"
    };
    struct pl_options all = pl_options_of(scope);
    bool ok = pl_buf_adds(out, "| key | value | default | reload | meaning |\n|---|---|---|---|---|\n");
    for (size_t i = 0; ok && i < all.count; i++) {
        const struct pl_option *o = &all.at[i];
        if (o->when == PL_WHEN_INNER) continue;
        ok = pl_buf_addf(out, "| `%s` | ", o->key) && put_range(o, out) &&
             pl_buf_addf(out, o->def[0] != '\0' ? " | `%s`" : " | %s",
                         o->def[0] != '\0' ? o->def : "not set") &&
             pl_buf_addf(out, " | %s | %s%s |\n", classes[o->reload], o->help,
                         o->when == PL_WHEN_LATER ? " *No effect in this version.*" : "");
    }
    return ok;
}

bool pl_config_write_reference(struct pl_buf *out) {
    return pl_buf_adds(
               out,
               "# Configuration\n\n"
               "Made by `plimsoll config reference`. Bytes: `KiB MiB GiB TiB`; durations: `ms s m h d`; "
               "shares: `15%` or `0.15`.\n`${NAME}` and `${NAME:-default}` are filled in from the "
               "environment, `$$` is a dollar sign.\nEvery key is a flag (`--traffic.timeout 30s`) and a "
               "variable (`PLIMSOLL__SERVICES__CHAT__TRAFFIC__TIMEOUT=30s`).\nA value comes from the first "
               "of: "
               "flag, variable, file, BentoML's configuration, the service's decorator, default.\n\n"
               "*Reload* is what a reload does with a changed key: it applies *at once*, starts a *new "
               "generation* of the\nservice, or needs a *restart* and rejects the reload.\n\n"
               "## The whole instance\n\n") &&
           put_rows(PL_SCOPE_INSTANCE, out) && pl_buf_adds(out, "\n## Below `services.NAME`\n\n") &&
           put_rows(PL_SCOPE_SERVICE, out);
}

/* ---- JSON Schema ---- */

static json_t *ref(const char *name) { return json_pack("{s:s+}", "$ref", "#/$defs/", name); }

static json_t *words_of(const struct pl_option *o) {
    json_t *list = json_array();
    bool off = false, no = false;
    for (size_t i = 0; o->words[i] != NULL; i++) {
        json_array_append_new(list, json_string(o->words[i]));
        off = off || strcmp(o->words[i], "off") == 0;
        no = no || strcmp(o->words[i], "false") == 0;
    }
    /* editors that read YAML 1.1 or JSON see a boolean */
    if (off || no) {
        json_array_append_new(list, json_false());
        json_array_append_new(list, json_true());
    }
    if (strcmp(o->key, "tls.min_version") == 0) {
        json_array_append_new(list, json_real(1.2));
        json_array_append_new(list, json_real(1.3));
    }
    return json_pack("{s:o}", "enum", list);
}

static const char *def_name(enum pl_option_type type) {
    switch (type) {
    case PL_OPTION_BYTES:
        return "bytes";
    case PL_OPTION_DURATION:
        return "duration";
    case PL_OPTION_SHARE:
        return "share";
    case PL_OPTION_SWITCH:
        return "switch";
    case PL_OPTION_ROUTE:
        return "route";
    case PL_OPTION_ID:
        return "id";
    case PL_OPTION_SECRET:
        return "secret";
    case PL_OPTION_ADDRESS:
        return "address";
    case PL_OPTION_ADDRESSES:
        return "addresses";
    case PL_OPTION_LIST:
        return "list";
    case PL_OPTION_MAP:
        return "map";
    case PL_OPTION_ENV:
        return "env";
    case PL_OPTION_GPUS:
        return "gpus";
    case PL_OPTION_WARMUP:
        return "warmup";
    default:
        return "text";
    }
}

static json_t *type_of(const struct pl_option *o) {
    if (o->type == PL_OPTION_INT)
        return json_pack("{s:s,s:I,s:I}", "type", "integer", "minimum", (json_int_t)o->lo, "maximum",
                         (json_int_t)o->hi);
    if (o->type == PL_OPTION_STATUS) return json_pack("{s:[i,i,i]}", "enum", 429, 503, 529);
    if (o->type == PL_OPTION_ENUM) return words_of(o);
    if (o->type == PL_OPTION_AMOUNT) return json_pack("{s:[o,o]}", "anyOf", ref("share"), ref("bytes"));
    return ref(def_name(o->type));
}

static json_t *schema_of(const struct pl_option *o) {
    json_t *any = json_array();
    json_array_append_new(any, type_of(o));
    if (o->word[0] != '\0') json_array_append_new(any, json_pack("{s:s}", "const", o->word));
    json_array_append_new(any, ref("expansion"));
    json_t *schema = json_pack("{s:s,s:o}", "description", o->help, "anyOf", any);
    if (o->def[0] != '\0' && o->type != PL_OPTION_LIST)
        json_object_set_new(schema, "default", json_string(o->def));
    if (o->when == PL_WHEN_LATER)
        json_object_set_new(schema, "deprecated", json_true()); /* editors strike it through */
    return schema;
}

static json_t *object(void) {
    return json_pack("{s:s,s:b,s:{}}", "type", "object", "additionalProperties", 0, "properties");
}

/* Puts the option at its place below `root`, making the sections on the way. */
static void place_option(json_t *root, const struct pl_option *o) {
    json_t *properties = json_object_get(root, "properties");
    const char *key = o->key, *dot;
    char name[64];
    for (; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        json_t *section = json_object_get(properties, name);
        if (section == NULL) {
            section = object();
            json_object_set_new(properties, name, section);
        }
        properties = json_object_get(section, "properties");
    }
    json_object_set_new(properties, key, schema_of(o));
}

static json_t *scope_schema(enum pl_scope scope) {
    struct pl_options all = pl_options_of(scope);
    json_t *root = object();
    for (size_t i = 0; i < all.count; i++)
        if (all.at[i].when != PL_WHEN_INNER) place_option(root, &all.at[i]);
    return root;
}

static const char defs_text[] =
    "{\"expansion\":{\"type\":\"string\",\"pattern\":\"\\\\$\\\\{[A-Za-z_]\"},"
    "\"text\":{\"type\":[\"string\",\"number\",\"boolean\"]},"
    "\"bytes\":{\"type\":[\"string\",\"integer\"],\"pattern\":\"^[0-9]+(\\\\.[0-9]+)?(B|KiB|MiB|GiB|TiB)?$\","
    "\"minimum\":0},"
    "\"duration\":{\"type\":\"string\",\"pattern\":\"^[0-9]+(\\\\.[0-9]+)?(ms|s|m|h|d)$\"},"
    "\"share\":{\"type\":[\"string\",\"number\"],\"pattern\":\"^([0-9]+(\\\\.[0-9]+)?%|[01](\\\\.[0-9]+)?)$"
    "\",\"minimum\":0,"
    "\"maximum\":1},"
    "\"switch\":{\"enum\":[\"on\",\"off\",\"true\",\"false\",true,false]},"
    "\"route\":{\"type\":\"string\",\"pattern\":\"^/\"},"
    "\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z0-9-]{1,40}$\"},"
    "\"secret\":{\"type\":\"string\",\"pattern\":\"^(file|env):.\"},"
    "\"address\":{\"type\":\"string\",\"pattern\":\"^(unix:.+|.+:[0-9]{1,5}|none)$\"},"
    "\"addresses\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":"
    "\"#/$defs/address\"}}]},"
    "\"list\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":[\"string\","
    "\"number\",\"boolean\"]}}]},"
    "\"map\":{\"type\":\"object\"},"
    "\"env\":{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[A-Za-z_][A-Za-z0-9_]*$\"},"
    "\"additionalProperties\":{\"type\":[\"string\",\"number\",\"boolean\"]}},"
    "\"gpus\":{\"anyOf\":[{\"const\":\"all\"},{\"type\":\"integer\",\"minimum\":0},{\"type\":\"array\","
    "\"items\":{\"type\":"
    "[\"string\",\"integer\"]}}]},"
    "\"warmup\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"path\"],"
    "\"properties\":{\"method\":{\"type\":\"string\"},\"path\":{\"type\":\"string\",\"pattern\":\"^/"
    "\"},\"headers\":{\"type\":\"object\"},"
    "\"content_type\":{\"type\":\"string\"},\"body\":{},\"status\":{\"type\":\"integer\",\"minimum\":100,"
    "\"maximum\":599},"
    "\"canary\":{\"$ref\":\"#/$defs/switch\"}}}}}";

bool pl_config_write_schema(struct pl_buf *out) {
    json_t *root = scope_schema(PL_SCOPE_INSTANCE);
    json_t *services = json_pack("{s:s,s:b,s:{s:o}}", "type", "object", "additionalProperties", 0,
                                 "patternProperties", "^[a-z0-9-]{1,40}$", scope_schema(PL_SCOPE_SERVICE));
    json_object_set_new(json_object_get(root, "properties"), "services", services);
    json_object_set_new(root, "$defs", json_loads(defs_text, 0, NULL));
    json_t *all = json_pack("{s:s,s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "title",
                            "plimsoll.yaml");
    json_object_update(all, root);
    char *text = json_dumps(all, JSON_INDENT(2));
    bool ok = text != NULL && pl_buf_adds(out, text) && pl_buf_adds(out, "\n");
    free(text);
    json_decref(root);
    json_decref(all);
    return ok;
}
