/* admin.c - the admin server: who asks what. */
#include "admin/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/inside.h"

enum { ACT_BODY_BYTES = 65536, PAGE_BYTES = 64 << 20, SPARE_FDS = 8 };

/* --- replies */

void pl_admin_reply_json(struct pl_conn *c, uint16_t status, json_t *doc) {
    char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const struct pl_http_reply r = { .status = status,
                                     .body = text,
                                     .body_len = text != NULL ? strlen(text) : 0 };
    pl_conn_reply(c, &r);
    free(text);
    json_decref(doc);
}

void pl_admin_reply_error(struct pl_conn *c, uint16_t status, const char *code, const char *message,
                          const char *hint) {
    json_t *e = json_pack("{s:s,s:s}", "code", code, "message", message);
    if (hint != NULL && hint[0] != '\0') json_object_set_new(e, "hint", json_string(hint));
    pl_admin_reply_json(c, status, json_pack("{s:o}", "error", e));
}

static void reply_page(struct pl_admin *a, struct pl_conn *c) {
    a->page.len = 0;
    pl_crew_metrics_asked(a->o.crew);
    pl_metrics_page(a, &a->page);
    const struct pl_http_reply r = { .status = 200,
                                     .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                     .body = a->page.data,
                                     .body_len = a->page.len };
    pl_conn_reply(c, &r);
}

static bool is_reading(const struct pl_http_head *h) {
    return h->method_id == HTTP_GET || h->method_id == HTTP_HEAD;
}

bool pl_admin_own(void *ctx, struct pl_conn *c) {
    struct pl_admin *a = ctx;
    const struct pl_http_head *h = pl_conn_head(c);
    struct pl_http_query t;
    if (!is_reading(h) || h->target_len > 256) return false;
    const char *target = pl_http_at(h, h->target);
    if (target[0] != '/' || target[1] == '\0' || strchr("lrmhpv", target[1]) == NULL) return false;
    if (!pl_http_query_read(target, h->target_len, &t)) return false;
    if (strcmp(t.path, "/metrics") == 0) {
        reply_page(a, c);
        return true;
    }
    return pl_health_answer(a, c, t.path) || pl_compat_answer(a, c, t.path);
}

/* --- the admin server's requests */

struct acting {
    struct pl_actor who;
    char verb[32];
    struct pl_buf body;
};

static void reply_status(struct pl_admin *a, struct pl_conn *c, const char *service) {
    json_t *doc = pl_status_json(a, service);
    if (doc != NULL)
        pl_admin_reply_json(c, 200, doc);
    else
        pl_admin_reply_error(c, 404, "not_found", "no such service", NULL);
}

static void reply_config(struct pl_admin *a, struct pl_conn *c) {
    a->page.len = 0;
    pl_config_show(a->o.app->config, NULL, true, &a->page);
    const struct pl_http_reply r = { .status = 200, .body = a->page.data, .body_len = a->page.len };
    pl_conn_reply(c, &r);
}

static void read_request(struct pl_admin *a, struct pl_conn *c) {
    const struct pl_http_head *h = pl_conn_head(c);
    struct pl_http_query t;
    const char *path;
    if (!pl_http_query_read(pl_http_at(h, h->target), h->target_len, &t)) {
        pl_admin_reply_error(c, 400, "bad_request", "the target cannot be read", NULL);
        return;
    }
    path = t.path;
    if (pl_admin_own(a, c)) return; /* as on the data port: to everybody */
    if (!pl_admin_may_read(a, c)) return;
    if (pl_ui_answer(c, path)) return;
    const char *follow = pl_http_query_get(&t, "follow");
    if (strcmp(path, "/status") == 0 && follow != NULL && strcmp(follow, "1") == 0)
        pl_ui_follow(a, c);
    else if (strcmp(path, "/status") == 0)
        reply_status(a, c, NULL);
    else if (strncmp(path, "/status/", 8) == 0)
        reply_status(a, c, path + 8);
    else if (strcmp(path, "/config") == 0)
        reply_config(a, c);
    else if (strcmp(path, "/events") == 0)
        pl_events_answer(a, c, &t);
    else if (strncmp(path, "/logs/", 6) == 0)
        pl_logs_answer(a, c, &t, path + 6);
    else if (strncmp(path, "/actions/", 9) == 0)
        pl_actions_state(a, c, path + 9);
    else if (strcmp(path, "/report") == 0 || strcmp(path, "/history") == 0)
        pl_records_answer(a, c, &t, path + 1, NULL);
    else if (strncmp(path, "/rows/", 6) == 0)
        pl_rows_answer(a, c, &t, path + 6);
    else if (strncmp(path, "/timeline/", 10) == 0)
        pl_records_answer(a, c, &t, "timeline", path + 10);
    else
        pl_admin_reply_error(
            c, 404, "not_found", "no such route",
            "/ /livez /readyz /metrics /status /config /events /logs/SERVICE /report /history "
            "/timeline/SERVICE /rows/SERVICE /actions/ID");
}

static void on_request(void *ctx, struct pl_conn *c) {
    struct pl_admin *a = ctx;
    const struct pl_http_head *h = pl_conn_head(c);
    if (is_reading(h)) {
        read_request(a, c);
        return;
    }
    struct pl_actor who;
    struct acting *x =
        h->method_id == HTTP_POST && h->target_len < sizeof x->verb ? calloc(1, sizeof *x) : NULL;
    if (x != NULL && !pl_admin_may_act(a, c, &who)) {
        free(x);
        return;
    }
    if (x == NULL) {
        pl_admin_reply_error(c, 405, "method_not_allowed", "GET reads, POST acts", NULL);
        return;
    }
    x->who = who;
    memcpy(x->verb, pl_http_at(h, h->target), h->target_len);
    pl_buf_init(&x->body, ACT_BODY_BYTES);
    pl_conn_set_user(c, x);
}

static void drop_acting(struct pl_conn *c) {
    struct acting *x = pl_conn_user(c);
    if (x == NULL) return;
    pl_buf_free(&x->body);
    free(x);
    pl_conn_set_user(c, NULL);
}

static void on_body(void *ctx, struct pl_conn *c, const char *bytes, size_t len) {
    (void)ctx;
    struct acting *x = pl_conn_user(c);
    if (x == NULL || pl_buf_add(&x->body, bytes, len)) return;
    drop_acting(c);
    pl_admin_reply_error(c, 413, "request_too_large", "an order has at most 64 KiB", NULL);
}

static void on_body_end(void *ctx, struct pl_conn *c) {
    struct pl_admin *a = ctx;
    struct acting *x = pl_conn_user(c);
    if (x == NULL) return;
    struct acting own = *x;
    free(x);
    pl_conn_set_user(c, NULL);
    pl_actions_answer(a, c, &own.who, own.verb, own.body.data != NULL ? own.body.data : "", own.body.len);
    pl_buf_free(&own.body);
}

static void on_gone(void *ctx, struct pl_conn *c) {
    drop_acting(c);
    pl_followers_gone(ctx, c);
    pl_ui_gone(ctx, c);
    pl_records_gone(ctx, c);
}

struct pl_admin *pl_admin_create(struct pl_err *err) {
    struct pl_admin *a = calloc(1, sizeof *a);
    if (a == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "out of memory");
        return NULL;
    }
    pl_buf_init(&a->page, PAGE_BYTES);
    pl_buf_init(&a->families, PAGE_BYTES);
    return a;
}

bool pl_admin_start(struct pl_admin *a, const struct pl_admin_options *o, struct pl_err *err) {
    static const struct pl_server_calls calls = {
        .request = on_request, .body = on_body, .body_end = on_body_end, .gone = on_gone
    };
    a->o = *o;
    a->limits =
        (struct pl_server_limits){ .http = { .request_line = 2048, .head_bytes = 16384, .headers = 64 },
                                   .head_timeout_ms = 10000,
                                   .idle_timeout_ms = 75000,
                                   .write_timeout_ms = 60000,
                                   .connections = 256 };
    a->server = pl_server_create(&(struct pl_server_options){ .loop = o->app->loop,
                                                              .timers = o->timers,
                                                              .metrics = o->app->metrics,
                                                              .log = o->app->log,
                                                              .limits = &a->limits,
                                                              .calls = &calls,
                                                              .ctx = a,
                                                              .spare_fds = SPARE_FDS,
                                                              .spare_own = true,
                                                              .plain_loopback = true });
    return (a->server != NULL && pl_recent_start(a)) || PL_FAIL(err, PL_E_NOMEM, "out of memory");
}

bool pl_admin_listen(struct pl_admin *a, int fd, const char *name, struct pl_err *err) {
    return pl_server_listen(a->server, fd, name, err);
}

void pl_admin_set_tls(struct pl_admin *a, struct pl_tls *tls) {
    a->tls_until_s = tls != NULL ? pl_tls_not_after_s(tls) : 0;
    pl_server_set_tls(a->server, tls);
}

void pl_admin_unlisten(struct pl_admin *a) { pl_server_unlisten(a->server); }

void pl_admin_leave(struct pl_admin *a) {
    a->left = true;
    pl_followers_end(a);
    pl_server_leave(a->server, NULL, NULL);
}

void pl_admin_close(struct pl_admin *a) {
    pl_timer_stop(&a->pulse);
    pl_followers_end(a);
    pl_ui_end(a);
    pl_recent_stop(a);
    pl_server_cut(a->server);
}
