#include "crew/describe.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *copy_text(struct pl_arena *a, const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_string(v) ? pl_arena_strndup(a, json_string_value(v), json_string_length(v)) : NULL;
}

static enum pl_route_kind kind_of(const char *text) {
    static const char *const names[] = { "sync", "async", "stream", "task" };
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) return (enum pl_route_kind)i;
    return PL_ROUTE_SYNC;
}

static void *array_of(struct pl_arena *a, const json_t *list, size_t most, size_t each, size_t *count) {
    size_t n = json_array_size(list);
    *count = n > most ? most : n;
    void *at = *count > 0 ? pl_arena_alloc(a, *count * each) : NULL;
    if (at == NULL) *count = 0;
    return at;
}

static void read_routes(struct pl_description *d, const json_t *list) {
    size_t count, kept = 0;
    d->routes = array_of(&d->arena, list, PL_DESCRIBE_ROUTES, sizeof *d->routes, &count);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        struct pl_route *r = &d->routes[kept];
        r->name = copy_text(&d->arena, item, "name");
        r->path = copy_text(&d->arena, item, "path");
        if (r->name == NULL || r->path == NULL || r->path[0] != '/') continue;
        const json_t *kind = json_object_get(item, "kind");
        r->kind = kind_of(json_string_value(kind));
        r->batchable = json_is_true(json_object_get(item, "batchable"));
        r->content_type = copy_text(&d->arena, item, "content_type");
        r->example = copy_text(&d->arena, item, "example");
        kept++;
    }
    d->route_count = kept;
}

static void read_dependencies(struct pl_description *d, const json_t *list) {
    size_t count;
    d->dependencies = array_of(&d->arena, list, PL_DESCRIBE_DEPENDENCIES, sizeof *d->dependencies, &count);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i), *workers = json_object_get(item, "workers");
        json_int_t wanted = json_integer_value(workers),
                   rank = json_integer_value(json_object_get(item, "rank"));
        struct pl_dependency *p = &d->dependencies[d->dependency_count];
        p->name = copy_text(&d->arena, item, "name");
        p->workers = json_is_string(workers) ? PL_CFG_CPU_COUNT : wanted > 0 && wanted <= 4096 ? wanted : 1;
        p->rank = rank > 0 && rank <= PL_DESCRIBE_DEPENDENCIES ? (uint32_t)rank : 1;
        p->separate = json_is_true(json_object_get(item, "separate"));
        if (p->name != NULL && p->name[0] != '\0') d->dependency_count++;
    }
}

static void read_degraded(struct pl_description *d, const json_t *list) {
    size_t count;
    d->degraded = array_of(&d->arena, list, 64, sizeof *d->degraded, &count);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        struct pl_degraded *g = &d->degraded[d->degraded_count];
        g->feature = copy_text(&d->arena, item, "feature");
        g->reason = copy_text(&d->arena, item, "reason");
        if (g->feature != NULL && g->reason != NULL) d->degraded_count++;
    }
}

static void read_settings(struct pl_description *d, json_t *groups) {
    json_t *decorator = json_object_get(groups, "decorator"),
           *file = json_object_get(groups, "bentoml_config");
    size_t most = json_object_size(decorator) + json_object_size(file);
    d->settings = most > 0 && most < 1024 ? pl_arena_alloc(&d->arena, most * sizeof *d->settings) : NULL;
    if (d->settings == NULL) return;
    json_t *both[] = { decorator, file };
    for (int i = 0; i < 2; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(both[i], key, value) {
            if (!json_is_string(value)) continue;
            struct pl_setting *s = &d->settings[d->setting_count];
            s->path = pl_arena_strndup(&d->arena, key, strlen(key));
            s->text = pl_arena_strndup(&d->arena, json_string_value(value), json_string_length(value));
            s->from_decorator = both[i] == decorator;
            if (s->path != NULL && s->text != NULL) d->setting_count++;
        }
    }
}

struct pl_description *pl_description_parse(const char *json, size_t len, struct pl_err *err) {
    json_error_t where;
    if (len > PL_DESCRIBE_BYTES) {
        PL_FAIL(err, PL_E_TOO_LARGE, "the worker's description of its service is %zu bytes long", len);
        return NULL;
    }
    json_t *root = json_loadb(json, len, 0, &where);
    json_t *body =
        json_is_object(json_object_get(root, "describe")) ? json_object_get(root, "describe") : root;
    struct pl_description *d = json_is_object(body) ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) {
        json_decref(root);
        PL_FAIL(err, PL_E_WORKER, "the worker's description of its service is not JSON: %s", where.text);
        return NULL;
    }
    pl_arena_init(&d->arena, (size_t)4 * PL_DESCRIBE_BYTES);
    d->name = copy_text(&d->arena, body, "name");
    d->bentoml = copy_text(&d->arena, body, "bentoml");
    d->python = copy_text(&d->arena, body, "python");
    d->path_prefix = copy_text(&d->arena, body, "path_prefix");
    if (d->path_prefix == NULL || d->path_prefix[0] != '/' || d->path_prefix[1] == '\0') d->path_prefix = "";
    d->deployment_hooks = (unsigned)json_integer_value(json_object_get(body, "deployment_hooks"));
    d->tasks = (unsigned)json_integer_value(json_object_get(body, "tasks"));
    d->is_ready_hook = json_is_true(json_object_get(body, "is_ready"));
    d->wants_deployment = json_is_true(json_object_get(body, "wants_deployment"));
    read_routes(d, json_object_get(body, "routes"));
    read_dependencies(d, json_object_get(body, "dependencies"));
    read_settings(d, json_object_get(body, "settings"));
    read_degraded(d, json_object_get(body, "degraded"));
    json_decref(root);
    return d;
}

void pl_description_free(struct pl_description *d) {
    if (d == NULL) return;
    struct pl_arena arena = d->arena;
    free(d);
    pl_arena_free(&arena);
}

size_t pl_description_apply(const struct pl_description *d, struct pl_config *c, size_t service,
                            char *problem, size_t room) {
    size_t skipped = 0;
    for (size_t i = 0; i < d->setting_count; i++) {
        const struct pl_setting *s = &d->settings[i];
        struct pl_err err = { 0 };
        enum pl_origin origin = s->from_decorator ? PL_FROM_DECORATOR : PL_FROM_BENTOML_CONFIG;
        size_t scope = strncmp(s->path, "http.", 5) == 0 ? PL_CFG_INSTANCE : service;
        if (pl_config_set(c, scope, s->path, s->text, origin, pl_origin_name(origin), &err)) continue;
        skipped++;
        if (problem != NULL) snprintf(problem, room, "%s", err.msg);
    }
    return skipped;
}
