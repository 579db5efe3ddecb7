/* control.c - the control socket of a worker: JSON lines both ways. The worker describes its service and
 * waits for `go`; later main asks (`sample`, `configure`, `drain`, ...), and most answers name their
 * question. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "crew/zygote.h"

enum { SAMPLE_EVERY_MS = 15000, SAMPLE_PATIENCE_MS = 10000 };

static char read_space[65536];

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b) {
    (void)h;
    (void)suggested;
    *b = uv_buf_init(read_space, sizeof read_space);
}

static void on_closed(uv_handle_t *h) { free(h); }

/* --- questions */

struct pl_question {
    struct pl_question *next;
    uint64_t id, until_ms;
    pl_control_answer done;
    void *ctx;
};

/* Takes it out of the list, tells, frees. */
static void answer(struct pl_worker *w, struct pl_question **at, const char *line, size_t len) {
    struct pl_question *q = *at;
    *at = q->next;
    q->done(q->ctx, w, line, len);
    free(q);
}

static bool answer_if_asked(struct pl_worker *w, const char *line, size_t len) {
    json_t *root = json_loadb(line, len, 0, NULL);
    const json_t *id = json_object_get(root, "id");
    uint64_t number = json_is_integer(id) ? (uint64_t)json_integer_value(id) : 0;
    json_decref(root);
    for (struct pl_question **at = &w->more->questions; *at != NULL; at = &(*at)->next) {
        if ((*at)->id != number) continue;
        answer(w, at, line, len);
        return true;
    }
    return false;
}

void pl_control_close(struct pl_worker *w) {
    while (w->more->questions != NULL) answer(w, &w->more->questions, NULL, 0);
    if (w->more->control == NULL) return;
    pl_agents_left(w);
    w->more->control->data = NULL;
    uv_close((uv_handle_t *)w->more->control, on_closed);
    w->more->control = NULL;
    pl_buf_free(&w->more->control_in);
}

struct sending {
    uv_write_t req;
    char bytes[];
};

static void on_sent(uv_write_t *req, int status) {
    (void)status; /* a worker that does not listen goes on with defaults, or is dead: EXITED tells */
    free(req->data);
}

static void send_line(struct pl_worker *w, const char *text) {
    size_t n = strlen(text);
    struct sending *s = w->more->control != NULL ? malloc(sizeof *s + n + 1) : NULL;
    if (s == NULL) return;
    memcpy(s->bytes, text, n);
    s->bytes[n] = '\n';
    s->req.data = s;
    uv_buf_t b = uv_buf_init(s->bytes, (unsigned)n + 1);
    if (uv_write(&s->req, (uv_stream_t *)w->more->control, &b, 1, on_sent) != 0) free(s);
}

void pl_control_wait(struct pl_worker *w) { send_line(w, "{\"v\":1,\"wait\":true}"); }

void pl_control_go(struct pl_worker *w, bool deploy) {
    char *line = pl_go_line(w, deploy);
    w->more->sync_told = (int)w->service->config->memory_sync;
    w->more->sampled_ms = pl_crew_now(w->service->crew);
    if (line != NULL) send_line(w, line);
    free(line);
}

bool pl_control_ask(struct pl_worker *w, const char *verb, const char *more, uint64_t patience_ms,
                    pl_control_answer done, void *ctx) {
    char line[512];
    struct pl_question *q = w->more->control != NULL ? calloc(1, sizeof *q) : NULL;
    if (q == NULL) return false;
    *q = (struct pl_question){ .next = w->more->questions,
                               .id = ++w->more->ask_id,
                               .until_ms = pl_crew_now(w->service->crew) + patience_ms,
                               .done = done,
                               .ctx = ctx };
    int n = snprintf(line, sizeof line, "{\"v\":1,\"id\":%llu,\"ask\":\"%s\"%s}", (unsigned long long)q->id,
                     verb, more != NULL ? more : "");
    PL_ASSERT(n > 0 && (size_t)n < sizeof line);
    w->more->questions = q;
    send_line(w, line);
    return true;
}

static void not_minded(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    (void)ctx, (void)w, (void)line, (void)len; /* the page has it; a worker that is silent is the guard's */
}

/* Settings that live workers take over, and a look at one that no request has brought up to date. */
static void keep_up(struct pl_worker *w, uint64_t now) {
    struct pl_worker_more *o = w->more;
    int sync = (int)w->service->config->memory_sync;
    char more[64];
    if (sync != o->sync_told) {
        snprintf(more, sizeof more, ",\"memory_sync\":\"%s\"", pl_config_word("memory.sync", (unsigned)sync));
        if (pl_control_ask(w, "configure", more, SAMPLE_PATIENCE_MS, not_minded, NULL)) o->sync_told = sync;
    }
    pl_lane_ask(w);
    if (now - o->sampled_ms < SAMPLE_EVERY_MS) return;
    if (pl_control_ask(w, "sample", NULL, SAMPLE_PATIENCE_MS, not_minded, NULL)) o->sampled_ms = now;
}

void pl_control_tick(struct pl_worker *w, uint64_t now) {
    for (struct pl_question **at = &w->more->questions; *at != NULL;) {
        if (now >= (*at)->until_ms)
            answer(w, at, NULL, 0);
        else
            at = &(*at)->next;
    }
    if (w->state == PL_WORKER_READY) keep_up(w, now);
}

/* Without an answer it is as it always was: SIGTERM ends what is open. */
void pl_control_drain(struct pl_worker *w) {
    w->more->left_socket = w->more->control == NULL;
    send_line(w, "{\"v\":1,\"ask\":\"drain\"}");
}

static void name_degraded(struct pl_worker *w, const struct pl_description *d) {
    for (size_t i = 0; i < d->degraded_count; i++) {
        if (strcmp(d->degraded[i].feature, "zygote") == 0) {
            pl_zygote_unfit(w, d->degraded[i].reason);
            continue;
        }
        pl_log(w->service->crew->app->log, PL_WARN, "worker.degraded",
               F_STR("service", w->service->config->id), F_INT("worker", w->slot),
               F_STR("feature", d->degraded[i].feature), F_STR("reason", d->degraded[i].reason));
    }
}

/* Held before it is used: a main that comes after us must know what this service said. */
static void on_description(struct pl_worker *w, const char *line, size_t len) {
    struct pl_service *s = w->service;
    struct pl_app *app = s->crew->app;
    struct pl_err err;
    char name[PL_WIRE_NAME_BYTES], problem[320] = "";
    struct pl_description *d = pl_description_parse(line, len, &err);
    if (d == NULL) {
        pl_log(app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_STR("feature", "describe"), F_STR("reason", err.msg));
        return;
    }
    if (pl_depend_is(s)) { /* the decorators of a dependency are BentoML's affair */
        name_degraded(w, d);
        pl_description_free(d);
        pl_depend_told(w);
        pl_depend_tick(w, w->more->told_ms);
        return;
    }
    snprintf(name, sizeof name, "desc:%u", s->index);
    pl_hold_text(s->crew, name, line, len);
    if (pl_description_apply(d, app->config, s->index, problem, sizeof problem) > 0)
        pl_log(app->log, PL_WARN, "worker.degraded", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_STR("feature", "settings"), F_STR("reason", problem));
    name_degraded(w, d);
    pl_description_free(s->more->description);
    s->more->description = d;
    s->described = true;
    if (d->path_prefix[0] != '\0') pl_probe_moved(w);
    if (s->crew->hooks.described != NULL) s->crew->hooks.described(s->crew->hooks.ctx, s);
    pl_depend_described(s);
    pl_depend_told(w);
    pl_depend_tick(w, w->more->told_ms);
}

/* {"fallback": {"reason": "..."}}: the launcher cannot run this service and waits to be ended. */
static void on_fallback(struct pl_worker *w, const char *line, size_t len) {
    json_t *root = json_loadb(line, len, 0, NULL);
    const char *reason = json_string_value(json_object_get(json_object_get(root, "fallback"), "reason"));
    pl_fallback_take(w, reason != NULL ? reason : "not said why");
    json_decref(root);
}

static bool has_key(const char *line, size_t len, const char *key) {
    json_t *root = json_loadb(line, len, 0, NULL);
    bool has = json_object_get(root, key) != NULL;
    json_decref(root);
    return has;
}

static void on_line(struct pl_worker *w, const char *line, size_t len) {
    if (len == 0) return;
    if (!w->more->watched && has_key(line, len, "describe"))
        on_description(w, line, len);
    else if (!w->more->watched && has_key(line, len, "fallback"))
        on_fallback(w, line, len);
    else if (answer_if_asked(w, line, len) || pl_snapshot_told(w, line, len))
        return;
    else if (w->state == PL_WORKER_DRAINING && (has_key(line, len, "drained") || has_key(line, len, "error")))
        w->more->left_socket = true;
    else
        pl_log(w->service->crew->app->log, PL_DEBUG, "worker.control",
               F_STR("service", w->service->config->id), F_INT("worker", w->slot), F_INT("bytes", len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b) {
    struct pl_worker *w = stream->data;
    if (n == 0 || w == NULL) return;
    if (n < 0 || !pl_buf_add(&w->more->control_in, b->base, (size_t)n)) {
        w->more->left_socket = true; /* nobody will say so any more */
        pl_control_close(w);
        return;
    }
    struct pl_buf *in = &w->more->control_in;
    for (char *end; in->len > 0 && (end = memchr(in->data, '\n', in->len)) != NULL;) {
        size_t len = (size_t)(end - in->data);
        on_line(w, in->data, len);
        if (w->more->control == NULL) return;
        pl_buf_drop(in, len + 1);
    }
}

void pl_control_listen(struct pl_worker *w, bool yes) {
    uv_stream_t *stream = (uv_stream_t *)w->more->control;
    if (stream == NULL) return;
    if (yes)
        uv_read_start(stream, on_alloc, on_read);
    else
        uv_read_stop(stream);
}

bool pl_control_open(struct pl_worker *w, int fd) {
    uv_pipe_t *pipe = malloc(sizeof *pipe);
    if (pipe == NULL || uv_pipe_init(w->service->crew->app->loop, pipe, 0) != 0 ||
        uv_pipe_open(pipe, fd) != 0) {
        free(pipe);
        close(fd);
        return false;
    }
    pipe->data = w;
    w->more->control = pipe;
    pl_buf_init(&w->more->control_in, PL_DESCRIBE_BYTES);
    uv_read_start((uv_stream_t *)pipe, on_alloc, on_read);
    return true;
}
