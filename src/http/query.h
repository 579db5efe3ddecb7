/* http/query.h - a request target taken apart for our own routes: path and parameters, percent codes undone.
 *
 * Not for what is proxied: that goes on byte for byte. Text is NUL-ended and borrowed from the arena.
 */
#ifndef PL_HTTP_QUERY_H
#define PL_HTTP_QUERY_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

enum { PL_HTTP_MAX_PARAMS = 32 };

struct pl_http_param {
    const char *name, *value; /* value "": none was given */
};
struct pl_http_query {
    const char *path;
    struct pl_http_param *params; /* in their order */
    size_t count;
};

/* False: a broken percent code, a NUL, an escaped slash in the path, too many parameters, or the arena is
 * full. */
bool pl_http_query_parse(const char *target, size_t len, struct pl_arena *a, struct pl_http_query *out);
/* The first parameter of this name, or NULL. */
const char *pl_http_query_get(const struct pl_http_query *q, const char *name);
#endif
