/* admin/inside.h - shared by the files of room admin only. */
#ifndef PL_ADMIN_INSIDE_H
#define PL_ADMIN_INSIDE_H
#include <jansson.h>

#include "admin/admin.h"
#include "http/query.h"
#include "sample/promtext.h"

enum { PL_EVENTS_KEPT = 512, PL_ACTIONS_KEPT = 64 };

/* One event as it was logged, JSON without newline. */
struct pl_event {
    uint64_t number;
    enum pl_level level;
    char name[40];
    char *line;
    size_t len;
};

/* A connection that goes on: /events?follow or /logs?follow. */
struct pl_follower;
/* The counters of the last five minutes. */
struct pl_recent;
/* A page that is looked at: /status?follow=1. */
struct pl_viewer;
/* A child that reads the flight record for a request. */
struct pl_reading;
/* An order to keep requests of one service. */
struct pl_capturing {
    char action[24]; /* that waits for them; "": none does */
    bool canary;     /* they are marked */
};

struct pl_action {
    char id[24];
    enum { PL_ACTION_RUNNING, PL_ACTION_DONE, PL_ACTION_FAILED } state;
    int exit_status;
    char message[4096];
    char *report; /* a document, or NULL; owned */
};

struct pl_admin {
    struct pl_admin_options o;
    struct pl_server *server;
    struct pl_server_limits limits;
    struct pl_event events[PL_EVENTS_KEPT];
    uint64_t event_count;
    struct pl_follower *followers;
    struct pl_reading *readings;
    struct pl_timer pulse; /* followers of logs are fed by it */
    struct pl_action actions[PL_ACTIONS_KEPT];
    uint64_t action_count;
    struct pl_capturing *capturing; /* one for each service; NULL: nobody has asked yet */
    struct pl_buf page;             /* scratch for bodies */
    struct pl_promtext *prom;
    struct pl_buf families; /* the workers' own, as they were last merged */
    uint64_t families_of;   /* of which texts: a hash */
    uint64_t own_ms;        /* when our own process was last looked at */
    struct pl_key_digest token;
    bool has_token;
    bool left;           /* another main is at the helm */
    int64_t tls_until_s; /* seconds since 1970; 0: no TLS */
    struct pl_log_sampler refused;
    struct pl_recent *recent;
    struct pl_viewer *viewers;
    struct pl_timer view; /* viewers get the status again */
};

/* Who gave an order: somebody at the Unix socket, or whoever has the token. */
struct pl_actor {
    bool local;
    uid_t uid; /* local */
};

/* health.c */
bool pl_health_answer(struct pl_admin *a, struct pl_conn *c, const char *path);
const char *pl_health_why(const struct pl_service *s);
/* compat.c */
bool pl_compat_answer(struct pl_admin *a, struct pl_conn *c, const char *path);
/* picker.c: what endpoint pickers read, exactly once a model */
bool pl_picker_claims(const struct pl_admin *a); /* some service has it */
bool pl_picker_is_ours(const char *family, size_t len);
void pl_picker_add(struct pl_admin *a, struct pl_buf *out);
/* Of a service: "vllm" or "kserve" in `compat`. */
bool pl_compat_has(const struct pl_service *s, const char *word);
/* page.c */
void pl_metrics_page(struct pl_admin *a, struct pl_buf *out);
/* status.c */
json_t *pl_status_json(struct pl_admin *a, const char *service); /* NULL: no such service */
/* events.c */
void pl_events_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t);
void pl_logs_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t,
                    const char *service);
void pl_followers_gone(struct pl_admin *a, struct pl_conn *c);
void pl_followers_end(struct pl_admin *a);
/* recent.c: what the last five minutes had, into a service's document */
bool pl_recent_start(struct pl_admin *a);
void pl_recent_stop(struct pl_admin *a);
void pl_recent_add(const struct pl_admin *a, const char *service, json_t *o);
/* limits.c: the limit that is used the most, into a service's document */
void pl_limits_add(const struct pl_admin *a, const struct pl_service *s, uint64_t now, json_t *o);
/* ui.c: the dashboard. False: none of its files. */
bool pl_ui_answer(struct pl_conn *c, const char *path);
void pl_ui_follow(struct pl_admin *a, struct pl_conn *c); /* the status each second, as server-sent events */
void pl_ui_gone(struct pl_admin *a, struct pl_conn *c);
void pl_ui_end(struct pl_admin *a);
/* guard.c: false: it has been answered */
bool pl_admin_may_read(struct pl_admin *a, struct pl_conn *c);
bool pl_admin_may_act(struct pl_admin *a, struct pl_conn *c, struct pl_actor *who);
/* rows.c: GET /rows/SERVICE?worker=N&from=K */
void pl_rows_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t,
                    const char *service);
/* records.c: `what` is report, history or timeline; `service` NULL: as the query says. */
void pl_records_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_http_query *t, const char *what,
                       const char *service);
void pl_records_gone(struct pl_admin *a, struct pl_conn *c);
/* actions.c */
void pl_actions_answer(struct pl_admin *a, struct pl_conn *c, const struct pl_actor *who, const char *verb,
                       const char *body, size_t len);
const char *pl_actions_new(struct pl_admin *a); /* the id of a running one; borrowed */
/* samples.c: POST /sample {"service","route","count"} */
void pl_samples_order(struct pl_admin *a, struct pl_conn *c, json_t *body);
void pl_explain_order(struct pl_admin *a, struct pl_conn *c, json_t *body);  /* explain.c: POST /explain */
void pl_snapshot_order(struct pl_admin *a, struct pl_conn *c, json_t *body); /* explain.c: POST /snapshot */
void pl_actions_state(struct pl_admin *a, struct pl_conn *c, const char *id);

/* admin.c: takes the document. */
void pl_admin_reply_json(struct pl_conn *c, uint16_t status, json_t *doc);
void pl_admin_reply_error(struct pl_conn *c, uint16_t status, const char *code, const char *message,
                          const char *hint);
#endif
