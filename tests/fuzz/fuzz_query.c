/* fuzz_query.c - targets and Host headers at our own routes: what is read is text within the target, a path
 * is never longer than it was sent, and only a name that nobody else can own is ours. The first line is Host,
 * the rest the target.
 *
 * USES door http base
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "door/host.h"
#include "http/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy_of(const char *from, size_t len) {
    char *exact = malloc(len > 0 ? len : 1);
    PL_ASSERT(exact != NULL);
    if (len > 0) memcpy(exact, from, len);
    return exact;
}

static void host(const char *text, size_t len) {
    char *exact = copy_of(text, len);
    bool known = pl_host_is_known(exact, len, "plimsoll.example", "box");
    if (known) { /* letters only as in a name of ours, or of an IPv6 address */
        PL_ASSERT(len > 0 && memchr(exact, '\0', len) == NULL && memchr(exact, '/', len) == NULL);
        PL_ASSERT(!pl_host_is_known("", 0, "plimsoll.example", "box"));
    }
    free(exact);
}

static void target(const char *text, size_t len) {
    struct pl_http_query q;
    char *exact = copy_of(text, len);
    if (pl_http_query_read(exact, len, &q)) {
        PL_ASSERT(strlen(q.path) <= len && q.count <= PL_HTTP_MAX_PARAMS);
        for (size_t i = 0; i < q.count; i++) {
            PL_ASSERT(strlen(q.params[i].name) + strlen(q.params[i].value) <= len);
            PL_ASSERT(pl_http_query_get(&q, q.params[i].name) != NULL);
        }
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = size > 0 ? memchr(text, '\n', size) : NULL;
    size_t first = end != NULL ? (size_t)(end - text) : size;
    if (size > 8192) return 0;
    host(text, first);
    if (end != NULL) target(end + 1, size - first - 1);
    return 0;
}
