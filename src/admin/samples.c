/* samples.c - `plimsoll sample`: keeps requests that were answered well as warm-up samples. The body goes to
 * state_dir/samples/SERVICE/ID.body, what it is to ID.json beside it; files are written beside the loop. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/inside.h"
#include "base/tree.h"

/* One sample on its way to the disk. */
struct keeping {
    uv_work_t work;
    struct pl_admin *admin;
    struct pl_service *service;
    char action[24]; /* to be ended when this was the last one; or "" */
    char folder[512], id[17];
    char *meta, *body;
    size_t body_len;
    int error;
};

static bool write_file(const char *folder, const char *id, const char *kind, const char *bytes, size_t len) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s.%s", folder, id, kind);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1) return false;
    bool ok = true;
    while (ok && len > 0) {
        ssize_t n = write(fd, bytes, len);
        ok = n > 0;
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    if (close(fd) != 0) ok = false;
    if (!ok) unlink(path);
    return ok;
}

static void write_now(uv_work_t *work) {
    struct keeping *k = work->data;
    /* The body first: a sample counts by its description. */
    bool ok = pl_tree_make(k->folder) && write_file(k->folder, k->id, "body", k->body, k->body_len) &&
              write_file(k->folder, k->id, "json", k->meta, strlen(k->meta));
    k->error = ok ? 0 : errno;
}

static void written(uv_work_t *work, int status) {
    struct keeping *k = work->data;
    struct pl_admin *a = k->admin;
    char message[300];
    (void)status;
    if (k->error == 0) {
        snprintf(message, sizeof message, "sample %s, %zu bytes, %.200s/%s.body", k->id, k->body_len,
                 k->folder, k->id);
        pl_log(a->o.app->log, PL_INFO, "sample.recorded", F_STR("service", k->service->config->id),
               F_STR("id", k->id), F_INT("bytes", k->body_len));
    } else {
        snprintf(message, sizeof message, "write to %.200s: %s", k->folder, strerror(k->error));
    }
    if (k->action[0] != '\0') pl_admin_action_done(a, k->action, k->error == 0 ? 0 : 5, message);
    free(k->meta);
    free(k->body);
    free(k);
}

static char *describe(const struct pl_captured *c, bool canary) {
    json_t *o = json_pack("{s:i,s:s,s:s%}", "v", 1, "method", c->method, "path", c->target, c->target_len);
    if (c->content_type != NULL)
        json_object_set_new(o, "content_type", json_stringn(c->content_type, c->content_type_len));
    if (canary) json_object_set_new(o, "canary", json_true());
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

/* Called by the gateway with a request that was answered well. */
static void on_captured(void *ctx, struct pl_service *s, const struct pl_captured *c) {
    struct pl_admin *a = ctx;
    struct pl_capturing *order = &a->capturing[s->index];
    struct keeping *k = calloc(1, sizeof *k);
    uint64_t id;
    if (k == NULL) return;
    if (getrandom(&id, sizeof id, 0) != sizeof id) id = pl_now_us();
    snprintf(k->id, sizeof k->id, "%016llx", (unsigned long long)id);
    snprintf(k->folder, sizeof k->folder, "%s/samples/%s", a->o.state_dir, s->config->id);
    snprintf(k->action, sizeof k->action, "%s", c->last ? order->action : "");
    if (c->last) order->action[0] = '\0';
    k->admin = a;
    k->service = s;
    k->meta = describe(c, order->canary);
    k->body = malloc(c->body_len + 1);
    k->body_len = c->body_len;
    k->work.data = k;
    if (k->meta != NULL && k->body != NULL) {
        memcpy(k->body, c->body, c->body_len);
        if (uv_queue_work(a->o.app->loop, &k->work, write_now, written) == 0) return;
    }
    k->error = ENOMEM;
    written(&k->work, 0);
}

void pl_samples_order(struct pl_admin *a, struct pl_conn *c, json_t *body) {
    const char *name = json_string_value(json_object_get(body, "service"));
    const char *route = json_string_value(json_object_get(body, "route"));
    json_int_t count = json_integer_value(json_object_get(body, "count"));
    struct pl_service *s = name != NULL ? pl_crew_find(a->o.crew, name, strlen(name)) : NULL;
    if (s == NULL) {
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
        return;
    }
    if (s->parent != NULL) {
        pl_admin_reply_error(c, 409, "conflict",
                             "what its callers send a dependency does not pass through us", NULL);
        return;
    }
    if (a->o.state_dir == NULL) {
        pl_admin_reply_error(c, 409, "conflict", "there is no state folder to keep samples in",
                             "set state_dir");
        return;
    }
    if (route == NULL || route[0] != '/' || count < 1 || count > 100) {
        pl_admin_reply_error(c, 400, "invalid_value", "a route like /predict and 1 to 100 requests", NULL);
        return;
    }
    if (a->capturing == NULL) a->capturing = calloc(pl_crew_service_count(a->o.crew), sizeof *a->capturing);
    if (a->capturing == NULL) {
        pl_admin_reply_error(c, 503, "service_unavailable", "out of memory", NULL);
        return;
    }
    struct pl_capturing *order = &a->capturing[s->index];
    if (order->action[0] != '\0')
        pl_admin_action_done(a, order->action, 1, "another order for this service has taken its place");
    const char *action = pl_actions_new(a);
    snprintf(order->action, sizeof order->action, "%s", action);
    order->canary = json_is_true(json_object_get(body, "canary"));
    pl_gateway_capture(a->o.gateway, s, route, (uint32_t)count, on_captured, a);
    pl_admin_reply_json(c, 202, json_pack("{s:i,s:s,s:s}", "v", 1, "kind", "action", "id", action));
}
