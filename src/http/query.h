/* http/query.h - a request target taken apart for our own routes: the path as it came, and parameters with
 * their percent codes undone.
 *
 * Not for what is proxied: that goes on byte for byte.
 */
#ifndef PL_HTTP_QUERY_H
#define PL_HTTP_QUERY_H
#include <stdbool.h>
#include <stddef.h>

enum { PL_HTTP_MAX_PARAMS = 16, PL_HTTP_OWN_TARGET_BYTES = 1024 };

/* Everything is borrowed from `text`. */
struct pl_http_query {
    char text[PL_HTTP_OWN_TARGET_BYTES]; /* path, NUL, then the parameters' names and values */
    const char *path;
    struct {
        const char *name, *value; /* value "1": none was given */
    } params[PL_HTTP_MAX_PARAMS]; /* in their order */
    size_t count;
};

/* False: too long, a NUL, a broken percent code in a parameter, or too many of them. */
bool pl_http_query_read(const char *target, size_t len, struct pl_http_query *out);
/* The first parameter of this name, or NULL. */
const char *pl_http_query_get(const struct pl_http_query *q, const char *name);
#endif
