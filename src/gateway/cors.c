/* gateway/cors.c - cross-origin rules for what we answer ourselves: pre-flights, which must not wait behind
 * requests, and our refusals, which a page may otherwise not read. What a worker answers has its own headers
 * and stays as it is. */
#include <regex.h>
#include <string.h>
#include <strings.h>

#include "gateway/inside.h"

static bool listed(const struct pl_strings *list, struct pl_text value) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], "*") == 0 ||
            (strlen(list->at[i]) == value.len && memcmp(list->at[i], value.at, value.len) == 0))
            return true;
    return false;
}

static bool any(const struct pl_strings *list) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], "*") == 0) return true;
    return false;
}

/* Over the whole origin, as BentoML's middleware matches. */
static bool matches(const char *pattern, struct pl_text origin) {
    regex_t compiled;
    regmatch_t at[1] = { { .rm_so = 0, .rm_eo = (regoff_t)origin.len } };
    if (pattern == NULL || pattern[0] == '\0' || regcomp(&compiled, pattern, REG_EXTENDED) != 0) return false;
    bool found = regexec(&compiled, origin.at, 1, at, REG_STARTEND) == 0 && at[0].rm_so == 0 &&
                 at[0].rm_eo == (regoff_t)origin.len;
    regfree(&compiled);
    return found;
}

static void add_list(struct pl_buf *out, const char *name, const struct pl_strings *list) {
    if (list->count == 0) return;
    pl_buf_addf(out, "%s: ", name);
    for (size_t i = 0; i < list->count; i++) pl_buf_addf(out, "%s%s", i != 0 ? ", " : "", list->at[i]);
    pl_buf_adds(out, "\r\n");
}

static struct pl_text origin_of(const struct pl_http_head *h) {
    const struct pl_http_header *f = pl_http_find(h, PL_HF_ORIGIN);
    if (f == NULL || f->value_len > 1024) return (struct pl_text){ NULL, 0 };
    return (struct pl_text){ pl_http_at(h, f->value), f->value_len };
}

void pl_cors_headers(const struct pl_gate *gate, const struct pl_http_head *h, struct pl_buf *out) {
    const struct pl_service_config *c = gate->service->config;
    struct pl_text origin = c->cors_enabled ? origin_of(h) : (struct pl_text){ NULL, 0 };
    if (origin.at == NULL) return;
    if (!listed(&c->cors_allow_origins, origin) && !matches(c->cors_allow_origin_regex, origin)) return;
    if (any(&c->cors_allow_origins) && !c->cors_allow_credentials)
        pl_buf_adds(out, "Access-Control-Allow-Origin: *\r\n");
    else
        pl_buf_addf(out, "Access-Control-Allow-Origin: %.*s\r\nVary: Origin\r\n", (int)origin.len, origin.at);
    if (c->cors_allow_credentials) pl_buf_adds(out, "Access-Control-Allow-Credentials: true\r\n");
    add_list(out, "Access-Control-Expose-Headers", &c->cors_expose_headers);
}

static void allow(const struct pl_service_config *c, const struct pl_http_head *h, struct pl_buf *out) {
    const struct pl_strings every = { .at =
                                          (const char *[]){ "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" },
                                      .count = 1 };
    const struct pl_http_header *wanted = pl_http_find_named(h, "access-control-request-headers");
    add_list(out, "Access-Control-Allow-Methods",
             any(&c->cors_allow_methods) ? &every : &c->cors_allow_methods);
    if (any(&c->cors_allow_headers) && wanted != NULL)
        pl_buf_addf(out, "Access-Control-Allow-Headers: %.*s\r\n", (int)wanted->value_len,
                    pl_http_at(h, wanted->value));
    else
        add_list(out, "Access-Control-Allow-Headers", &c->cors_allow_headers);
    pl_buf_addf(out, "Access-Control-Max-Age: %lld\r\n", (long long)(c->cors_max_age_ms / 1000));
}

bool pl_cors_preflight(struct pl_gate *gate, struct pl_conn *conn) {
    const struct pl_service_config *c = gate->service->config;
    const struct pl_http_head *h = pl_conn_head(conn);
    struct pl_buf *out = &gate->g->scratch;
    if (!c->cors_enabled || h->method_id != HTTP_OPTIONS ||
        pl_http_find(h, PL_HF_ACCESS_CONTROL_REQUEST_METHOD) == NULL)
        return false;
    out->len = 0;
    pl_cors_headers(gate, h, out);
    bool allowed = out->len != 0;
    if (allowed) allow(c, h, out);
    struct pl_http_reply r = { .status = allowed ? 200 : 400,
                               .content_type = "text/plain; charset=utf-8",
                               .extra = pl_buf_text(out),
                               .body = allowed ? "OK" : "Disallowed CORS origin",
                               .body_len = allowed ? 2 : 22 };
    pl_account_conn(gate->g, conn, r.status, NULL);
    pl_conn_reply(conn, &r);
    return true;
}
