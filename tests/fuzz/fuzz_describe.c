/* fuzz_describe.c - what a worker says of its service over its control socket: bounded, text that ends, and
 * whatever settings it carries leave a configuration that reaches the next main whole.
 *
 * USES crew
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "crew/describe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void settle(const struct pl_description *d) {
    struct pl_err err = { 0 };
    struct pl_buf text;
    char problem[320] = "", one[17], two[17];
    struct pl_config *c = pl_config_create();
    PL_ASSERT(c != NULL && pl_config_add_target(c, "service:Chat", NULL, false, &err));
    size_t skipped = pl_description_apply(d, c, 0, problem, sizeof problem);
    PL_ASSERT(skipped <= d->setting_count && (skipped == 0) == (problem[0] == '\0'));
    PL_ASSERT(memchr(problem, '\0', sizeof problem) != NULL);
    pl_config_hash(c, one);
    pl_buf_init(&text, 0);
    PL_ASSERT(pl_config_to_json(c, &text));
    struct pl_config *copy = pl_config_from_json(text.data, text.len, &err);
    PL_ASSERT(copy != NULL);
    pl_config_hash(copy, two);
    PL_ASSERT(strcmp(one, two) == 0);
    pl_config_destroy(copy);
    pl_config_destroy(c);
    pl_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err = { 0 };
    struct pl_description *d = pl_description_parse((const char *)data, size, &err);
    if (d == NULL) {
        PL_ASSERT(err.code != PL_OK && err.msg[0] != '\0');
        return 0;
    }
    PL_ASSERT(d->route_count <= PL_DESCRIBE_ROUTES && d->dependency_count <= PL_DESCRIBE_DEPENDENCIES);
    PL_ASSERT(d->path_prefix[0] == '\0' || d->path_prefix[0] == '/');
    for (size_t i = 0; i < d->route_count; i++)
        PL_ASSERT(d->routes[i].path[0] == '/' && strlen(d->routes[i].name) <= size);
    for (size_t i = 0; i < d->dependency_count; i++)
        PL_ASSERT(d->dependencies[i].name[0] != '\0' && d->dependencies[i].rank >= 1);
    for (size_t i = 0; i < d->degraded_count; i++) PL_ASSERT(strlen(d->degraded[i].feature) <= size);
    settle(d);
    pl_description_free(d);
    return 0;
}
