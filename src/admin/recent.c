/* recent.c - the last five minutes in figures: what was refused, what would have been done, whose requests
 * came, how fast the answers were. The counters of /metrics are looked at every ten seconds, and the
 * difference to a look of five minutes ago is the answer: nobody counts twice. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/inside.h"

enum { LOOK_MS = 10000, WINDOW_MS = 300000, LOOKS = WINDOW_MS / LOOK_MS, MOST_COUNTS = 4096 };

/* One counter when it was looked at. `what` is its key in the answer: "queue_full", "replace:leak". */
struct count {
    enum pl_metric metric;
    char service[48], what[80];
    double value;
};

struct latency {
    char service[48];
    uint64_t buckets[PL_METRIC_BUCKETS];
};

struct look {
    uint64_t at_ms;
    struct count *counts;
    struct latency *latencies;
    size_t count, room, latency_count, latency_room;
};

struct pl_recent {
    struct pl_admin *admin;
    struct pl_timer timer;
    struct look looks[LOOKS]; /* a ring; `taken` % LOOKS comes next */
    size_t taken;
    struct look now; /* for the document that is being made: one look for all its services */
};

/* Room for one more in a list that doubles; false without memory. */
static bool has_room(void **list, size_t count, size_t *room, size_t size) {
    if (count < *room) return true;
    size_t wanted = *room == 0 ? 16 : 2 * *room;
    void *more = realloc(*list, wanted * size);
    if (more == NULL) return false;
    *list = more;
    *room = wanted;
    return true;
}

static void name_it(const struct pl_series *s, char *out, size_t room) {
    char action[32], reason[48];
    if (pl_series_label(s, "key", out, room) || pl_series_label(s, "direction", out, room)) return;
    pl_series_label(s, "reason", reason, sizeof reason);
    bool acts = pl_series_label(s, "action", action, sizeof action);
    snprintf(out, room, "%s%s%s", action, acts ? ":" : "", reason);
}

static bool is_same(const struct count *a, const struct count *b) {
    return a->metric == b->metric && strcmp(a->what, b->what) == 0 && strcmp(a->service, b->service) == 0;
}

static void see_count(void *ctx, enum pl_metric metric, const struct pl_series *s) {
    struct look *l = ctx;
    if (pl_series_value(s) <= 0 || l->count == MOST_COUNTS ||
        !has_room((void **)&l->counts, l->count, &l->room, sizeof *l->counts))
        return;
    struct count *c = &l->counts[l->count];
    *c = (struct count){ .metric = metric, .value = pl_series_value(s) };
    pl_series_label(s, "service", c->service, sizeof c->service);
    name_it(s, c->what, sizeof c->what);
    for (size_t i = 0; i < l->count; i++) { /* of tokens there are several: by model and by source */
        if (!is_same(&l->counts[i], c)) continue;
        l->counts[i].value += c->value;
        return;
    }
    l->count++;
}

static void see_latency(void *ctx, enum pl_metric metric, const struct pl_series *s) {
    struct look *l = ctx;
    (void)metric;
    if (!has_room((void **)&l->latencies, l->latency_count, &l->latency_room, sizeof *l->latencies)) return;
    struct latency *t = &l->latencies[l->latency_count++];
    pl_series_label(s, "service", t->service, sizeof t->service);
    pl_series_buckets(s, t->buckets);
}

static void take(const struct pl_admin *a, struct look *l) {
    static const enum pl_metric counted[] = { PL_M_REQUESTS_REFUSED_TOTAL, PL_M_REQUESTS_REJECTED_TOTAL,
                                              PL_M_WOULD_TOTAL, PL_M_KEY_REQUESTS_TOTAL, PL_M_TOKENS_TOTAL };
    const struct pl_metrics *m = a->o.app->metrics;
    l->at_ms = pl_timers_now(a->o.timers);
    l->count = l->latency_count = 0;
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        pl_metrics_each(m, counted[i], see_count, l);
    pl_metrics_each(m, PL_M_REQUEST_SECONDS, see_latency, l);
}

static void free_look(struct look *l) {
    free(l->counts);
    free(l->latencies);
}

static void on_time(struct pl_timer *t) {
    struct pl_recent *r = PL_TIMER_OWNER(t, struct pl_recent, timer);
    take(r->admin, &r->looks[r->taken++ % LOOKS]);
    pl_timer_start(r->admin->o.timers, &r->timer, LOOK_MS, on_time);
}

bool pl_recent_start(struct pl_admin *a) {
    struct pl_recent *r = a->recent = calloc(1, sizeof *r);
    if (r == NULL) return false;
    r->admin = a;
    on_time(&r->timer);
    return true;
}

void pl_recent_stop(struct pl_admin *a) {
    struct pl_recent *r = a->recent;
    if (r == NULL) return;
    pl_timer_stop(&r->timer);
    for (size_t i = 0; i < LOOKS; i++) free_look(&r->looks[i]);
    free_look(&r->now);
    free(r);
    a->recent = NULL;
}

/* --- the answer */

/* The first one was taken at our start. */
static const struct look *oldest(const struct pl_recent *r) {
    return &r->looks[r->taken < LOOKS ? 0 : r->taken % LOOKS];
}

static double counted_before(const struct look *l, const struct count *c) {
    for (size_t i = 0; i < l->count; i++)
        if (is_same(&l->counts[i], c)) return l->counts[i].value;
    return 0;
}

static void add_counts(json_t *o, const char *service, const struct look *now, const struct look *before) {
    static const struct {
        const char *key;
        enum pl_metric of[2];
        bool ever; /* since main's start */
    } groups[] = { { "refused_5m", { PL_M_REQUESTS_REFUSED_TOTAL, PL_M_REQUESTS_REJECTED_TOTAL }, false },
                   { "would_5m", { PL_M_WOULD_TOTAL, PL_M_WOULD_TOTAL }, false },
                   { "would", { PL_M_WOULD_TOTAL, PL_M_WOULD_TOTAL }, true },
                   { "tokens_5m", { PL_M_TOKENS_TOTAL, PL_M_TOKENS_TOTAL }, false },
                   { "keys_5m", { PL_M_KEY_REQUESTS_TOTAL, PL_M_KEY_REQUESTS_TOTAL }, false } };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        json_t *list = json_object();
        for (size_t i = 0; i < now->count; i++) {
            const struct count *c = &now->counts[i];
            bool ours = c->metric == groups[g].of[0] || c->metric == groups[g].of[1];
            if (!ours || strcmp(c->service, service) != 0) continue;
            double more = c->value - (groups[g].ever ? 0 : counted_before(before, c));
            if (more > 0) json_object_set_new(list, c->what, json_integer((json_int_t)more));
        }
        json_object_set_new(o, groups[g].key, list);
    }
}

static const struct latency *latency_of(const struct look *l, const char *service) {
    for (size_t i = 0; i < l->latency_count; i++)
        if (strcmp(l->latencies[i].service, service) == 0) return &l->latencies[i];
    return NULL;
}

static void add_latency(json_t *o, const char *service, const struct look *now, const struct look *before,
                        double window_s) {
    const struct latency *to = latency_of(now, service), *from = latency_of(before, service);
    uint64_t between[PL_METRIC_BUCKETS] = { 0 }, answers = 0;
    for (size_t i = 0; to != NULL && i < PL_METRIC_BUCKETS; i++) {
        between[i] = to->buckets[i] - (from != NULL ? from->buckets[i] : 0);
        answers += between[i];
    }
    json_t *r = json_pack("{s:f,s:I,s:f}", "window_s", window_s, "answers", (json_int_t)answers, "per_s",
                          window_s > 0 ? (double)answers / window_s : 0.0);
    if (answers > 0) {
        json_object_set_new(r, "p50_s", json_real(pl_metrics_quantile_seconds(between, 0.5)));
        json_object_set_new(r, "p99_s", json_real(pl_metrics_quantile_seconds(between, 0.99)));
    }
    json_object_set_new(o, "recent", r);
}

void pl_recent_add(const struct pl_admin *a, const char *service, json_t *o) {
    struct look *now = &a->recent->now;
    const struct look *before = oldest(a->recent);
    if (now->at_ms != pl_timers_now(a->o.timers)) take(a, now);
    add_counts(o, service, now, before);
    add_latency(o, service, now, before, (double)(now->at_ms - before->at_ms) / 1000);
}
