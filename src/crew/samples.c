/* samples.c - where warm-up requests come from, in order: declared in the configuration, recorded by
 * `plimsoll sample` (state_dir/samples/SERVICE/ID.{json,body}), the author's own examples and defaults.
 * Values are never invented. Files are read beside the loop. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "crew/more.h"

enum { BODY_BYTES = 64 << 20, META_BYTES = 65536, PROBLEM_BYTES = 320 };

/* What the reading thread needs, copied from the configuration, and what it found. */
struct loading {
    uv_work_t work;
    struct pl_worker *worker;
    struct pl_sample *list, **end;
    unsigned count;
    char *folder;               /* of @FILE bodies */
    char *recorded;             /* folder of recorded samples, or NULL */
    struct pl_sample *declared; /* bodies still as written */
    char problem[PROBLEM_BYTES];
    bool canaries; /* only those that are marked */
};

const char *pl_sample_source_name(enum pl_sample_source s) {
    static const char *const names[] = { "none", "declared", "recorded", "examples" };
    return names[s];
}

void pl_samples_free(struct pl_sample *list) {
    while (list != NULL) {
        struct pl_sample *s = list;
        list = s->next;
        free(s->method);
        free(s->target);
        free(s->headers);
        free(s->body);
        free(s);
    }
}

static struct pl_sample *make(enum pl_sample_source source, const char *method, const char *target,
                              const char *headers, const char *body, size_t body_len) {
    struct pl_sample *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->source = source;
    s->method = strdup(method);
    s->target = strdup(target);
    s->headers = strdup(headers);
    s->body = malloc(body_len + 1);
    s->body_len = body_len;
    if (s->method == NULL || s->target == NULL || s->headers == NULL || s->body == NULL) {
        pl_samples_free(s);
        return NULL;
    }
    if (body_len > 0) memcpy(s->body, body, body_len);
    s->body[body_len] = '\0';
    return s;
}

static void append(struct loading *l, struct pl_sample *s) {
    if (s == NULL || l->count >= PL_CREW_SAMPLES) {
        pl_samples_free(s);
        return;
    }
    *l->end = s;
    l->end = &s->next;
    l->count++;
}

/* A file's bytes, or NULL. */
static char *read_file(const char *path, size_t cap, size_t *len) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) return NULL;
    long size = ftell(f);
    if (size < 0 || (size_t)size > cap || fseek(f, 0, SEEK_SET) != 0) return NULL;
    char *text = malloc((size_t)size + 1);
    if (text == NULL || fread(text, 1, (size_t)size, f) != (size_t)size) {
        free(text);
        return NULL;
    }
    text[size] = '\0';
    *len = (size_t)size;
    return text;
}

static void load_declared(struct loading *l) {
    while (l->declared != NULL) {
        struct pl_sample *s = l->declared;
        l->declared = s->next;
        s->next = NULL;
        if (s->body_len > 1 && s->body[0] == '@') {
            char path[4096];
            size_t len = 0;
            const char *name = s->body + 1;
            snprintf(path, sizeof path, name[0] == '/' ? "%s%s" : "%s/%s", name[0] == '/' ? "" : l->folder,
                     name);
            char *bytes = read_file(path, BODY_BYTES, &len);
            if (bytes == NULL) {
                snprintf(l->problem, sizeof l->problem, "warm-up body %s cannot be read", path);
                pl_samples_free(s);
                continue;
            }
            free(s->body);
            s->body = bytes;
            s->body_len = len;
        }
        append(l, s);
    }
}

static void load_recorded_one(struct loading *l, const char *name) {
    char path[4096], headers[512];
    size_t len = 0, body_len = 0;
    size_t stem = strlen(name) - strlen(".json");
    snprintf(path, sizeof path, "%s/%s", l->recorded, name);
    char *meta = read_file(path, META_BYTES, &len);
    snprintf(path, sizeof path, "%s/%.*s.body", l->recorded, (int)stem, name);
    json_t *root = meta != NULL ? json_loadb(meta, len, 0, NULL) : NULL;
    bool canary = json_is_true(json_object_get(root, "canary"));
    char *body = canary || !l->canaries ? read_file(path, BODY_BYTES, &body_len) : NULL;
    const char *method = json_string_value(json_object_get(root, "method"));
    const char *target = json_string_value(json_object_get(root, "path"));
    const char *type = json_string_value(json_object_get(root, "content_type"));
    if (method != NULL && target != NULL && target[0] == '/' && body != NULL) {
        snprintf(headers, sizeof headers, type != NULL ? "Content-Type: %s\r\n" : "%s",
                 type != NULL ? type : "");
        struct pl_sample *s = make(PL_SAMPLE_RECORDED, method, target, headers, body, body_len);
        if (s != NULL) s->canary = canary;
        append(l, s);
    }
    json_decref(root);
    free(meta);
    free(body);
}

static void load_recorded(struct loading *l) {
    DIR *d = l->recorded != NULL ? opendir(l->recorded) : NULL;
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] != '.' && dot != NULL && strcmp(dot, ".json") == 0) load_recorded_one(l, e->d_name);
    }
    closedir(d);
}

static void load_now(uv_work_t *work) {
    struct loading *l = work->data;
    load_declared(l);
    if (l->count == 0 || l->canaries) load_recorded(l);
}

static void loaded(uv_work_t *work, int status) {
    struct loading *l = work->data;
    struct pl_worker *w = l->worker;
    (void)status;
    w->more->samples_loading = false;
    if (l->canaries && w->state == PL_WORKER_READY && !w->service->crew->resting)
        pl_canary_loaded(w, l->list);
    else
        pl_samples_loaded(w, l->list, l->problem[0] != '\0' ? l->problem : NULL);
    free(l->folder);
    free(l->recorded);
    free(l);
}

/* Headers of a declared request as lines. */
static void header_lines(const struct pl_warmup_request *r, char *out, size_t room) {
    size_t at = 0;
    const char *type = r->content_type != NULL ? r->content_type
                       : r->body != NULL       ? "application/json"
                                               : NULL;
    out[0] = '\0';
    if (type != NULL) at += (size_t)snprintf(out, room, "Content-Type: %s\r\n", type);
    for (size_t i = 0; i < r->headers.count && at < room; i++)
        at +=
            (size_t)snprintf(out + at, room - at, "%s: %s\r\n", r->headers.at[i].key, r->headers.at[i].value);
}

static void copy_declared(struct loading *l, const struct pl_service_config *c) {
    struct pl_sample **end = &l->declared;
    for (size_t i = 0; i < c->warmup_requests.count && i < PL_CREW_SAMPLES; i++) {
        const struct pl_warmup_request *r = &c->warmup_requests.at[i];
        char headers[4096];
        if (l->canaries && !r->canary) continue;
        header_lines(r, headers, sizeof headers);
        const char *body = r->body != NULL ? r->body : "";
        struct pl_sample *s = make(PL_SAMPLE_DECLARED, r->method, r->path, headers, body, strlen(body));
        if (s == NULL) return;
        s->status = r->status;
        s->canary = r->canary;
        *end = s;
        end = &s->next;
    }
}

/* The author's examples cost no file: they are in the description. */
struct pl_sample *pl_samples_examples(const struct pl_service *s) {
    struct pl_sample *list = NULL, **end = &list;
    const struct pl_description *d = s->more->description;
    if (!s->config->warmup_examples || d == NULL) return NULL;
    unsigned count = 0;
    for (size_t i = 0; i < d->route_count && count < PL_CREW_SAMPLES; i++) {
        const struct pl_route *r = &d->routes[i];
        char headers[256];
        if (r->example == NULL || r->kind == PL_ROUTE_TASK) continue;
        snprintf(headers, sizeof headers, "Content-Type: %s\r\n",
                 r->content_type != NULL ? r->content_type : "application/json");
        *end = make(PL_SAMPLE_EXAMPLES, "POST", r->path, headers, r->example, strlen(r->example));
        if (*end == NULL) break;
        end = &(*end)->next;
        count++;
    }
    return list;
}

void pl_samples_load(struct pl_worker *w) {
    const struct pl_service_config *c = w->service->config;
    const char *state = w->service->crew->state_dir;
    struct loading *l = calloc(1, sizeof *l);
    if (l == NULL) {
        pl_samples_loaded(w, NULL, "out of memory");
        return;
    }
    l->worker = w;
    l->canaries = w->state == PL_WORKER_READY;
    l->end = &l->list;
    l->work.data = l;
    l->folder = strdup(c->working_dir);
    copy_declared(l, c);
    if (c->warmup_samples && state != NULL && asprintf(&l->recorded, "%s/samples/%s", state, c->id) == -1)
        l->recorded = NULL;
    w->more->samples_loading = true;
    if (l->folder != NULL && uv_queue_work(w->service->crew->app->loop, &l->work, load_now, loaded) == 0)
        return;
    pl_samples_free(l->declared);
    l->declared = NULL;
    loaded(&l->work, 0);
}
