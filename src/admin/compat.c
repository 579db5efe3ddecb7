/* compat.c - routes that users of other model servers know: vLLM's /health, /ping, /load and /v1/models, and
 * the health routes of the Open Inference Protocol (KServe v2). Their answers are ours, since ready here
 * means what /readyz means, whatever an engine says of itself. Which service has them: gateway/body.c. */
#include <stdio.h>
#include <string.h>

#include "admin/inside.h"

bool pl_compat_has(const struct pl_service *s, const char *word) {
    for (size_t i = 0; i < s->config->compat.count; i++)
        if (strcmp(s->config->compat.at[i], word) == 0) return true;
    return false;
}

static bool any_has(const struct pl_admin *a, const char *word) {
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++)
        if (pl_compat_has(pl_crew_service(a->o.crew, i), word)) return true;
    return false;
}

static void answer_empty(struct pl_conn *c, bool ready) {
    const struct pl_http_reply r = { .status = ready ? 200 : 503, .body = "", .body_len = 0 };
    pl_conn_reply(c, &r);
}

/* Requests that are in an engine or wait for one. */
static void answer_load(struct pl_admin *a, struct pl_conn *c) {
    int64_t load = 0;
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        struct pl_gateway_numbers n;
        if (!pl_compat_has(s, "vllm")) continue;
        pl_gateway_numbers(a->o.gateway, s, &n);
        load += n.running + n.queued;
    }
    pl_admin_reply_json(c, 200, json_pack("{s:I}", "server_load", (json_int_t)load));
}

/* --- models */

static bool is_listed(const json_t *list, const char *id) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        const char *name = json_string_value(json_object_get(one, "id"));
        if (name != NULL && strcmp(name, id) == 0) return true;
    }
    return false;
}

static bool answers_for(const struct pl_service *s, const char *model) {
    for (size_t i = 0; i < s->config->route_models.count; i++)
        if (strcmp(s->config->route_models.at[i], model) == 0) return true;
    return s->config->route_models.count == 0;
}

/* What its engines have described, each name once; those that it does not answer for are left out. */
static void add_models(json_t *list, const struct pl_service *s) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        const json_t *told = w->routable ? pl_worker_models(w) : NULL;
        size_t i;
        json_t *one;
        json_array_foreach(told, i, one) {
            const char *id = json_string_value(json_object_get(one, "id"));
            if (id != NULL && answers_for(s, id) && !is_listed(list, id)) json_array_append(list, one);
        }
    }
    for (size_t i = 0; i < s->config->route_models.count; i++) {
        const char *id = s->config->route_models.at[i];
        if (!is_listed(list, id))
            json_array_append_new(
                list, json_pack("{s:s,s:s,s:s}", "id", id, "object", "model", "owned_by", s->config->id));
    }
}

static void answer_models(struct pl_admin *a, struct pl_conn *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        if (pl_compat_has(s, "vllm")) add_models(list, s);
    }
    pl_admin_reply_json(c, 200, json_pack("{s:s,s:o}", "object", "list", "data", list));
}

/* --- KServe */

static bool has_model(const struct pl_service *s, const char *name, size_t len) {
    const struct pl_strings *own = &s->config->route_models;
    if (strlen(s->config->id) == len && memcmp(s->config->id, name, len) == 0) return true;
    for (size_t i = 0; i < own->count; i++)
        if (strlen(own->at[i]) == len && memcmp(own->at[i], name, len) == 0) return true;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        const struct pl_engine_facts *f = pl_worker_engine(w);
        for (size_t i = 0; f != NULL && i < f->model_count; i++)
            if (strlen(f->models[i]) == len && memcmp(f->models[i], name, len) == 0) return true;
    }
    return false;
}

/* /v2/models/M[/versions/V]/ready */
static void answer_model_ready(struct pl_admin *a, struct pl_conn *c, const char *name) {
    const char *end = strstr(name, "/versions/");
    size_t len = end != NULL ? (size_t)(end - name) : strlen(name) - strlen("/ready");
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        if (!pl_compat_has(s, "kserve") || !has_model(s, name, len)) continue;
        bool ready = pl_service_ready(s) && !a->o.app->stopping;
        pl_admin_reply_json(c, ready ? 200 : 503, json_pack("{s:s%,s:b}", "name", name, len, "ready", ready));
        return;
    }
    pl_admin_reply_json(c, 404, json_pack("{s:s}", "error", "no such model"));
}

static bool answer_vllm(struct pl_admin *a, struct pl_conn *c, const char *path) {
    if (strcmp(path, "/health") == 0 || strcmp(path, "/ping") == 0)
        answer_empty(c, pl_admin_ready(a));
    else if (strcmp(path, "/load") == 0)
        answer_load(a, c);
    else if (strcmp(path, "/v1/models") == 0)
        answer_models(a, c);
    else
        return false;
    return true;
}

bool pl_compat_answer(struct pl_admin *a, struct pl_conn *c, const char *path) {
    static const char models[] = "/v2/models/";
    size_t len = strlen(path);
    if (any_has(a, "vllm") && answer_vllm(a, c, path)) return true;
    if (!any_has(a, "kserve")) return false;
    if (strcmp(path, "/v2/health/live") == 0)
        pl_admin_reply_json(c, 200, json_pack("{s:b}", "live", 1));
    else if (strcmp(path, "/v2/health/ready") == 0)
        pl_admin_reply_json(c, pl_admin_ready(a) ? 200 : 503, json_pack("{s:b}", "ready", pl_admin_ready(a)));
    else if (strncmp(path, models, sizeof models - 1) == 0 && len > sizeof models - 1 + 6 &&
             strcmp(path + len - 6, "/ready") == 0)
        answer_model_ready(a, c, path + sizeof models - 1);
    else
        return false;
    return true;
}
