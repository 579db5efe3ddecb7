#include "gateway/route.h"

#include <string.h>
#include <strings.h>

struct pl_text pl_route_path(const char *target, size_t len) {
    const char *query = memchr(target, '?', len);
    return (struct pl_text){ target, query != NULL ? (size_t)(query - target) : len };
}

bool pl_route_below(struct pl_text path, const char *prefix) {
    size_t len = strlen(prefix);
    if (len <= 1) return true; /* "/" */
    if (path.len < len || memcmp(path.at, prefix, len) != 0) return false;
    return path.len == len || path.at[len] == '/';
}

/* "Example.com:3000" is example.com; the brackets of an IPv6 address stay. */
static bool same_host(struct pl_text host, const char *wanted) {
    size_t len = host.len;
    while (len > 0 && host.at[len - 1] >= '0' && host.at[len - 1] <= '9') len--;
    len = len > 0 && host.at[len - 1] == ':' ? len - 1 : host.len;
    return len == strlen(wanted) && strncasecmp(host.at, wanted, len) == 0;
}

int pl_route_pick(const struct pl_route_rule *rules, size_t count, struct pl_text path, struct pl_text host) {
    int best = -1;
    size_t best_len = 0;
    bool best_host = false;
    for (size_t i = 0; i < count; i++) {
        bool hosted = rules[i].host != NULL && rules[i].host[0] != '\0';
        size_t len = rules[i].path != NULL ? strlen(rules[i].path) : 0;
        if (hosted && !same_host(host, rules[i].host)) continue;
        if (rules[i].path != NULL && !pl_route_below(path, rules[i].path)) continue;
        if (best >= 0 && (hosted < best_host || (hosted == best_host && len <= best_len))) continue;
        best = (int)i;
        best_len = len;
        best_host = hosted;
    }
    return best;
}

static bool is_or_named(struct pl_text path, const char *own) {
    size_t len = strlen(own);
    if (path.len < len || memcmp(path.at, own, len) != 0) return false;
    if (path.len == len) return true;
    return path.at[len] == '/' && path.len > len + 1 &&
           memchr(path.at + len + 1, '/', path.len - len - 1) == NULL;
}

bool pl_route_is_own(struct pl_text path) {
    static const char metrics[] = "/metrics";
    if (path.len == sizeof metrics - 1 && memcmp(path.at, metrics, path.len) == 0) return true;
    return is_or_named(path, "/livez") || is_or_named(path, "/readyz");
}

static bool is_path(struct pl_text path, const char *text) {
    return strlen(text) == path.len && memcmp(text, path.at, path.len) == 0;
}

enum pl_route_compat pl_route_compat(struct pl_text path) {
    static const char models[] = "/v2/models/", ready[] = "/ready";
    size_t begin = sizeof models - 1, end = sizeof ready - 1;
    if (is_path(path, "/health") || is_path(path, "/ping") || is_path(path, "/load")) return PL_COMPAT_VLLM;
    if (is_path(path, "/v1/models")) return PL_COMPAT_VLLM_MODELS;
    if (is_path(path, "/v2/health/live") || is_path(path, "/v2/health/ready")) return PL_COMPAT_KSERVE;
    if (path.len > begin + end && memcmp(path.at, models, begin) == 0 &&
        memcmp(path.at + path.len - end, ready, end) == 0)
        return PL_COMPAT_KSERVE_MODEL;
    return PL_COMPAT_NONE;
}

static bool all_hex(const char *at, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (strchr("0123456789abcdef", at[i]) == NULL || at[i] == '\0') return false;
    return true;
}

bool pl_route_trace(struct pl_text t, struct pl_text *trace_id, struct pl_text *span_id) {
    enum { VERSION = 2, TRACE = 32, SPAN = 16, LEAST = VERSION + 1 + TRACE + 1 + SPAN };
    if (t.len < LEAST || t.at[VERSION] != '-' || t.at[VERSION + 1 + TRACE] != '-') return false;
    *trace_id = (struct pl_text){ t.at + VERSION + 1, TRACE };
    *span_id = (struct pl_text){ t.at + VERSION + TRACE + 2, SPAN };
    return all_hex(trace_id->at, TRACE) && all_hex(span_id->at, SPAN);
}
