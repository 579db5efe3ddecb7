/* go.c - what main answers to a worker's description: is this a new deployment, how long a request may take,
 * where the dependencies are that run apart, whether devices are waited for, and those of BentoML's own
 * settings that somebody nearer than the decorator has set (threads, metrics.namespace, cors). */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/more.h"

enum { DEADLINE_LAG_MS = 1000 }; /* the worker's own deadline comes after ours: ours answers the client */

/* Set by a file, the environment or a flag: BentoML cannot know it. */
static bool is_ours(const struct pl_service *s, const char *key) {
    return pl_config_origin(s->crew->app->config, s->index, key, NULL) >= PL_FROM_FILE;
}

static json_t *texts(const struct pl_strings *list) {
    json_t *out = json_array();
    for (size_t i = 0; i < list->count; i++) json_array_append_new(out, json_string(list->at[i]));
    return out;
}

/* BentoML's http.cors, whole: a part of it from here and a part from the decorator would be nobody's wish. */
static json_t *cors(const struct pl_service_config *c) {
    json_t *o = json_pack(
        "{s:b,s:o,s:o,s:o,s:b,s:o,s:I}", "enabled", c->cors_enabled, "access_control_allow_origins",
        texts(&c->cors_allow_origins), "access_control_allow_methods", texts(&c->cors_allow_methods),
        "access_control_allow_headers", texts(&c->cors_allow_headers), "access_control_allow_credentials",
        c->cors_allow_credentials, "access_control_expose_headers", texts(&c->cors_expose_headers),
        "access_control_max_age", (json_int_t)(c->cors_max_age_ms / 1000));
    if (c->cors_allow_origin_regex != NULL)
        json_object_set_new(o, "access_control_allow_origin_regex", json_string(c->cors_allow_origin_regex));
    return o;
}

static json_t *overrides(const struct pl_service *s) {
    const struct pl_service_config *c = s->config;
    json_t *o = json_object();
    if (is_ours(s, "threads")) json_object_set_new(o, "threads", json_integer((json_int_t)c->threads));
    if (is_ours(s, "metrics.namespace"))
        json_object_set_new(o, "metrics", json_pack("{s:s}", "namespace", c->metrics_namespace));
    if (is_ours(s, "cors.enabled")) json_object_set_new(o, "http", json_pack("{s:o}", "cors", cors(c)));
    return o;
}

/* "file:///run/x" as a URI: BentoML takes it apart as one. */
static json_t *file_uri(const char *path) {
    char uri[16 + 3 * sizeof((struct pl_apart *)0)->socket_path];
    size_t at = (size_t)snprintf(uri, sizeof uri, "file://");
    for (; *path != '\0' && at + 4 < sizeof uri; path++) {
        bool plain = isalnum((unsigned char)*path) || strchr("/-._~", *path) != NULL;
        at += (size_t)snprintf(uri + at, sizeof uri - at, plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
    return json_string(uri);
}

static json_t *runner_map(const struct pl_worker *w) {
    const struct pl_service *s = w->service, *family = s->parent != NULL ? s->parent : s;
    json_t *map = json_object();
    for (const struct pl_service *d = family->dependencies; d != NULL; d = d->next)
        if ((w->more->uses >> d->more->apart->number & 1) != 0)
            json_object_set_new(map, d->more->apart->name, file_uri(d->more->apart->socket_path));
    return map;
}

char *pl_go_line(const struct pl_worker *w, bool deploy) {
    const struct pl_service *s = w->service;
    json_t *go =
        json_pack("{s:b,s:I,s:o,s:s,s:s}", "deploy", deploy, "timeout_ms",
                  (json_int_t)(s->config->traffic_timeout_ms + DEADLINE_LAG_MS), "runner_map", runner_map(w),
                  "memory_sync", pl_config_word("memory.sync", (unsigned)s->config->memory_sync), "fast_lane",
                  pl_config_word("fast_lane", (unsigned)s->config->fast_lane));
    char *folder = NULL;
    if (asprintf(&folder, "%s/snap", s->crew->run_dir) != -1)
        json_object_set_new(go, "snapshots", json_string(folder));
    free(folder);
    /* What is set for a service is not meant for what it depends on. */
    if (!pl_depend_is(s)) json_object_set_new(go, "overrides", overrides(s));
    json_t *line = json_pack("{s:i,s:o}", "v", 1, "go", go);
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    return text;
}
