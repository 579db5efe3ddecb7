/* gateway/route.h - which service a request is for, by its path and Host. Pure. */
#ifndef PL_GATEWAY_ROUTE_H
#define PL_GATEWAY_ROUTE_H
#include <stdbool.h>
#include <stddef.h>

struct pl_text {
    const char *at;
    size_t len;
};
struct pl_route_rule {
    const char *path; /* "/" or "/prefix" without a slash at its end */
    const char *host; /* NULL or "": any */
};

/* The path of a target: what stands before '?'. */
struct pl_text pl_route_path(const char *target, size_t len);
/* Does `path` lie at or below `prefix`: "/a" has "/a" and "/a/b", not "/ab". */
bool pl_route_below(struct pl_text path, const char *prefix);
/* Index of the rule that fits best, or -1: a rule with the host goes before one for any host, then the longer
 * path. */
int pl_route_pick(const struct pl_route_rule *rules, size_t count, struct pl_text path, struct pl_text host);
/* /livez, /livez/NAME, /readyz, /readyz/NAME or /metrics: ours for GET and HEAD. */
bool pl_route_is_own(struct pl_text path);
/* Routes of other servers that `compat` lets us answer, for GET and HEAD. */
enum pl_route_compat {
    PL_COMPAT_NONE,
    PL_COMPAT_VLLM,        /* /health, /ping, /load */
    PL_COMPAT_VLLM_MODELS, /* /v1/models: it tells what is here, so it asks for a key */
    PL_COMPAT_KSERVE,      /* /v2/health/… */
    PL_COMPAT_KSERVE_MODEL /* /v2/models/M/ready: likewise */
};
enum pl_route_compat pl_route_compat(struct pl_text path);
/* traceparent of W3C: its two ids, or false. */
bool pl_route_trace(struct pl_text traceparent, struct pl_text *trace_id, struct pl_text *span_id);
#endif
