/* gateway/dialect.c - several models behind one port: services that share a path and have `route.models` are
 * told apart by the model that a body names. The body is only read. Until it is here, the request is the
 * first one's. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/inspect.h"

static bool same(const char *a, const char *b) {
    return (a != NULL ? a : "")[0] == '\0' ? (b != NULL ? b : "")[0] == '\0'
                                           : b != NULL && strcasecmp(a, b) == 0;
}

/* Answers the same requests, as far as a head can tell. */
static bool shares_route(const struct pl_gate *a, const struct pl_gate *b) {
    const struct pl_service_config *x = a->service->config, *y = b->service->config;
    return y->route_models.count > 0 && strcmp(x->route_path, y->route_path) == 0 &&
           same(x->route_host, y->route_host);
}

static bool answers_for(const struct pl_gate *gate, const char *model) {
    const struct pl_strings *list = &gate->service->config->route_models;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], model) == 0) return true;
    return false;
}

/* "a, b, …" of all that share the route. */
static void list_models(const struct pl_request *r, char *out, size_t room) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->g->gate_count; i++) {
        if (!shares_route(r->gate, &r->g->gates[i])) continue;
        const struct pl_strings *list = &r->g->gates[i].service->config->route_models;
        for (size_t k = 0; k < list->count && n < room; k++)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n > 0 ? ", " : "", list->at[k]);
    }
}

static bool refuse(struct pl_request *r, const char *model) {
    char models[160], text[400];
    list_models(r, models, sizeof models);
    if (model[0] == '\0') {
        snprintf(text, sizeof text,
                 "several models are served here, and the request names none: say model, one of %s", models);
        pl_refuse_as(r, PL_REASON_INVALID, "invalid_value", text);
    } else {
        snprintf(text, sizeof text, "The model `%s` does not exist here. Models are %s", model, models);
        pl_refuse_as(r, PL_REASON_MODEL_NOT_FOUND, NULL, text);
    }
    return false;
}

bool pl_dialect_choose(struct pl_request *r) {
    const struct pl_inspect *i = r->inspect;
    unsigned shared = 0;
    if (r->gate->service->config->route_models.count == 0) return true;
    if (i != NULL && i->json) {
        struct pl_gate *found = NULL;
        for (size_t k = 0; k < r->g->gate_count; k++) {
            struct pl_gate *gate = &r->g->gates[k];
            if (!shares_route(r->gate, gate)) continue;
            shared++;
            if (answers_for(gate, i->asked.model)) found = gate;
        }
        bool unnamed = i->asked.model[0] == '\0';
        if (found == NULL && !(unnamed && shared == 1)) return refuse(r, i->asked.model);
        if (found != NULL && found != r->gate) {
            r->gate = found;
            pl_inspect_moved(r);
        }
    }
    return !pl_keys_refuse_service(r);
}

void pl_dialect_inject(struct pl_request *r) {
    static const char key[] = "\"stream_options\":{\"include_usage\":true},";
    const size_t len = sizeof key - 1;
    struct pl_inspect *i = r->inspect;
    if (r->gate->service->config->openai_usage != PL_CFG_OPENAI_USAGE_INJECT || !i->whole ||
        !i->asked.stream || i->asked.has_stream_options || r->body_mode != PL_BODY_KEEP || r->body.len == 0)
        return;
    const char *open = memchr(r->body.data, '{', r->body.len);
    size_t at = open != NULL ? (size_t)(open - r->body.data) + 1 : 0;
    if (at == 0 || !pl_request_reserve(r, len) || !pl_buf_reserve(&r->body, len)) return;
    memmove(r->body.data + at + len, r->body.data + at, r->body.len - at);
    memcpy(r->body.data + at, key, len);
    r->body.len += len;
    i->injected = true;
}

bool pl_dialect_strip(const struct pl_request *r, const struct pl_upstream_part *p, size_t *from,
                      size_t *to) {
    struct pl_inspect *i = r->inspect;
    if (i == NULL || i->strip_to == NULL) return false;
    const char *begin = i->strip_from, *end = i->strip_to + 2; /* and the line end of the chunk */
    i->strip_to = NULL;
    bool same_read = begin > p->raw && begin < end;
    if (r->chunk_out || end > p->raw + p->raw_len || (!same_read && !r->may_insert)) return false;
    *from = same_read ? (size_t)(begin + 2 - p->raw) : 0;
    *to = (size_t)(end - p->raw);
    return *from < *to;
}
