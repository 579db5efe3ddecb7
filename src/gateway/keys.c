/* gateway/keys.c - API keys where requests come in: who it is, what it may, what it has used. What a key has
 * used belongs to its name, so that neither a reload nor a new hash gives it a fresh minute. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gateway/inside.h"

struct pl_key {
    struct pl_key *next;
    const struct pl_key_row *row; /* in the ring; NULL: it has left it */
    struct pl_quota quota;
    bool counted; /* there are series of it */
    char name[PL_KEY_NAME_MOST + 1];
};

/* --- the ring changes */

static void free_key(struct pl_gateway *g, struct pl_key *k) {
    for (size_t i = 0; k->counted && i < g->gate_count; i++) {
        const char *const labels[] = { k->name, g->gates[i].service->config->id };
        pl_metrics_drop(g->o.app->metrics, PL_M_KEY_REQUESTS_TOTAL, labels, 2);
        pl_metrics_drop(g->o.app->metrics, PL_M_KEY_TOKENS_TOTAL, labels, 2);
    }
    free(k);
}

/* Those that are not in the ring and have nothing under way. */
static void drop_unused(struct pl_gateway *g) {
    for (struct pl_key **at = &g->keys; *at != NULL;) {
        struct pl_key *k = *at;
        if (k->row != NULL || k->quota.running > 0) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free_key(g, k);
    }
}

static struct pl_key *key_named(struct pl_gateway *g, const char *name) {
    for (struct pl_key *k = g->keys; k != NULL; k = k->next)
        if (strcmp(k->name, name) == 0) return k;
    struct pl_key *k = calloc(1, sizeof *k);
    if (k == NULL) return NULL;
    snprintf(k->name, sizeof k->name, "%s", name);
    k->next = g->keys;
    g->keys = k;
    return k;
}

void pl_gateway_set_keys(struct pl_gateway *g, struct pl_keyring *ring) {
    struct pl_keyring *before = g->ring;
    free(g->key_of);
    g->key_of = ring != NULL ? calloc(ring->row_count + 1, sizeof *g->key_of) : NULL;
    struct pl_key_row *old = before != NULL ? before->rows : NULL;
    for (struct pl_key *k = g->keys; k != NULL; k = k->next) k->row = NULL;
    for (size_t i = 0; g->key_of != NULL && i < ring->row_count; i++) {
        struct pl_key *k = key_named(g, ring->rows[i].name);
        if (k == NULL) continue; /* its requests get 503 */
        for (size_t n = 0; old != NULL && n < before->row_count; n++)
            if (strcmp(old[n].name, k->name) == 0 &&
                (old[n].requests_per_minute != ring->rows[i].requests_per_minute ||
                 old[n].tokens_per_minute != ring->rows[i].tokens_per_minute))
                k->quota.seen_ms = 0; /* another measure: begins full */
        k->row = &ring->rows[i];
        g->key_of[i] = k;
    }
    g->ring = ring;
    drop_unused(g);
    pl_keyring_free(before);
}

void pl_keys_free(struct pl_gateway *g) {
    for (struct pl_key *k = g->keys, *next; k != NULL; k = next) {
        next = k->next;
        free(k);
    }
    g->keys = NULL;
    free(g->key_of);
    pl_keyring_free(g->ring);
}

/* --- a request comes in */

/* Authorization: Bearer KEY, or x-api-key: KEY. */
static struct pl_text shown_key(const struct pl_http_head *h) {
    static const char bearer[] = "bearer ";
    const struct pl_http_header *f = pl_http_find(h, PL_HF_AUTHORIZATION);
    if (f != NULL && f->value_len > sizeof bearer - 1 &&
        strncasecmp(pl_http_at(h, f->value), bearer, sizeof bearer - 1) == 0) {
        struct pl_text key = { pl_http_at(h, f->value) + sizeof bearer - 1,
                               f->value_len - (sizeof bearer - 1) };
        while (key.len > 0 && *key.at == ' ') key.at++, key.len--;
        return key;
    }
    f = pl_http_find(h, PL_HF_X_API_KEY);
    if (f == NULL) return (struct pl_text){ "", 0 };
    return (struct pl_text){ pl_http_at(h, f->value), f->value_len };
}

/* Never the key, not even a part of it. */
static void tell_refused(struct pl_gateway *g, const struct pl_conn *c, const char *reason, const char *name,
                         const char *service) {
    char address[PL_PEER_TEXT];
    const char *from = pl_conn_address(c, address);
    int64_t left_out = pl_log_sample(&g->key_refused, pl_gateway_now(g));
    if (left_out < 0) return;
    pl_log(g->o.app->log, PL_WARN, "key.refused", F_STR("address", from != NULL ? from : "unix"),
           F_STR("reason", reason), F_STR("key", name), F_STR("service", service),
           F_INT("suppressed", left_out));
}

static const struct pl_key_row *row_of(struct pl_gateway *g, const struct pl_http_head *h, bool *shown) {
    struct pl_text key = shown_key(h);
    *shown = key.len > 0;
    return *shown ? pl_keyring_find(g->ring, key.at, key.len) : NULL;
}

static const char no_key[] = "no API key was sent: Authorization: Bearer KEY";
static const char bad_key[] = "this API key is not known here";

bool pl_keys_refuse_conn(struct pl_gateway *g, struct pl_conn *c) {
    bool shown;
    if (g->ring == NULL || row_of(g, pl_conn_head(c), &shown) != NULL) return false;
    tell_refused(g, c, shown ? "unknown" : "missing", NULL, NULL);
    pl_account_conn(g, c, 401, pl_reason_info(PL_REASON_UNAUTHORIZED)->name);
    pl_conn_error(c, 401, NULL, shown ? bad_key : no_key, "WWW-Authenticate: Bearer\r\n");
    return true;
}

static void read_priority(struct pl_request *r, const struct pl_key_row *row) {
    const struct pl_http_head *h = pl_conn_head(r->conn);
    const struct pl_http_header *f = pl_http_find(h, PL_HF_PRIORITY);
    enum pl_priority p;
    r->priority = row->max_priority < PL_PRIORITY_NORMAL ? PL_PRIORITY_LOW : PL_PRIORITY_NORMAL;
    if (f == NULL || !pl_priority_read(pl_http_at(h, f->value), f->value_len, &p) || p > row->max_priority)
        return;
    r->priority = (uint8_t)p;
    r->priority_told = true;
}

/* True: refused. A service that is only observed takes it. */
static bool over_quota(struct pl_request *r, struct pl_key *k) {
    uint64_t retry_ms;
    char why[200];
    const struct pl_key_row *row = k->row;
    enum pl_quota_answer a = pl_quota_take(&k->quota, row, pl_gateway_now(r->g), &retry_ms);
    if (a == PL_QUOTA_OK) {
        r->key_held = true;
        return false;
    }
    if (r->gate->service->config->mode == PL_CFG_MODE_OBSERVE) {
        pl_refuse_would(r, PL_REASON_KEY_LIMIT, retry_ms);
        pl_quota_take_anyway(&k->quota);
        r->key_held = true;
        return false;
    }
    if (a == PL_QUOTA_CONCURRENCY)
        snprintf(why, sizeof why, "key %s may have %lld requests at a time", k->name,
                 (long long)row->max_concurrency);
    else if (a == PL_QUOTA_REQUESTS)
        snprintf(why, sizeof why, "key %s may send %lld requests a minute", k->name,
                 (long long)row->requests_per_minute);
    else
        snprintf(why, sizeof why, "key %s may use %lld tokens a minute", k->name,
                 (long long)row->tokens_per_minute);
    pl_refuse(r, PL_REASON_KEY_LIMIT, retry_ms, why);
    return true;
}

bool pl_keys_refuse_service(struct pl_request *r) {
    const char *service = r->gate->service->config->id;
    char why[200];
    if (r->key == NULL || r->key->row == NULL || pl_key_opens(r->key->row, service)) return false;
    tell_refused(r->g, r->conn, "service", r->key->row->name, service);
    snprintf(why, sizeof why, "key %s does not open service %s", r->key->row->name, service);
    pl_refuse(r, PL_REASON_FORBIDDEN, 0, why);
    return true;
}

bool pl_keys_refuse(struct pl_request *r) {
    struct pl_gateway *g = r->g;
    const char *service = r->gate->service->config->id;
    bool shown;
    if (g->ring == NULL) return false;
    r->keys_asked = true;
    const struct pl_key_row *row = row_of(g, pl_conn_head(r->conn), &shown);
    if (row == NULL) {
        tell_refused(g, r->conn, shown ? "unknown" : "missing", NULL, service);
        pl_refuse(r, PL_REASON_UNAUTHORIZED, 0, shown ? bad_key : no_key);
        return true;
    }
    struct pl_key *k = g->key_of != NULL ? g->key_of[row - g->ring->rows] : NULL;
    if (k == NULL) {
        pl_refuse(r, PL_REASON_BUFFER_FULL, 1000, "out of memory");
        return true;
    }
    r->key = k;
    /* Which of several services it is for is known when its body has named a model: dialect.c. */
    if (r->gate->service->config->route_models.count == 0 && pl_keys_refuse_service(r)) return true;
    read_priority(r, row);
    return over_quota(r, k);
}

/* --- and goes */

const char *pl_keys_name(const struct pl_request *r) { return r->key != NULL ? r->key->name : NULL; }

void pl_keys_count(struct pl_request *r) {
    if (r->key == NULL) return;
    r->key->counted = true;
    pl_series_add(
        pl_series(r->g->o.app->metrics, PL_M_KEY_REQUESTS_TOTAL, r->key->name, r->gate->service->config->id),
        1);
}

void pl_keys_tokens(struct pl_request *r, uint64_t count) {
    if (r->key == NULL || count == 0) return;
    r->key->counted = true;
    pl_series_add(
        pl_series(r->g->o.app->metrics, PL_M_KEY_TOKENS_TOTAL, r->key->name, r->gate->service->config->id),
        (double)count);
    if (r->key->row != NULL) pl_quota_spend(&r->key->quota, r->key->row, count, pl_gateway_now(r->g));
}

void pl_keys_done(struct pl_request *r) {
    struct pl_key *k = r->key;
    r->key = NULL;
    if (k == NULL || !r->key_held) return;
    r->key_held = false;
    pl_quota_done(&k->quota);
    if (k->row == NULL && k->quota.running == 0) drop_unused(r->g);
}
