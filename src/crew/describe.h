/* crew/describe.h - what a worker says about its service, once it has loaded it and before it makes an
 * instance.
 *
 * One JSON document on the control socket (python/plimsoll/describe.py writes it): the settings that the
 * decorator and BentoML's own configuration carry, the routes, the hooks. Foreign bytes: bounded, unknown
 * fields skipped.
 */
#ifndef PL_CREW_DESCRIBE_H
#define PL_CREW_DESCRIBE_H
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "config/config.h"

enum { PL_DESCRIBE_BYTES = 1 << 20, PL_DESCRIBE_ROUTES = 512, PL_DESCRIBE_DEPENDENCIES = 64 };

enum pl_route_kind { PL_ROUTE_SYNC, PL_ROUTE_ASYNC, PL_ROUTE_STREAM, PL_ROUTE_TASK };
struct pl_route {
    const char *name, *path;
    enum pl_route_kind kind;
    bool batchable;
    const char *content_type; /* of the example */
    const char *example;      /* body that the author's own defaults and examples make, or NULL */
};

struct pl_description {
    struct pl_arena arena; /* everything below */
    const char *name, *bentoml, *python;
    const char *path_prefix; /* BentoML puts its own routes below it, too; "" if there is none */
    struct pl_route *routes;
    size_t route_count;
    unsigned deployment_hooks, tasks;
    bool is_ready_hook;
    bool wants_deployment; /* hooks or tasks, of it or of a dependency: one process must do that first */
    struct pl_dependency {
        const char *name;
        int64_t workers; /* 1..., or PL_CFG_CPU_COUNT */
        uint32_t rank;   /* 1...: it is called by those of lower ranks only; the service itself has 0 */
        bool separate;   /* sets workers, threads or resources */
    } * dependencies;
    size_t dependency_count;
    struct pl_setting {
        const char *path, *text;
        bool from_decorator; /* else from BENTOML_CONFIG and its kin */
    } * settings;
    size_t setting_count;
    struct pl_degraded {
        const char *feature, *reason;
    } * degraded;
    size_t degraded_count;
};

/* `json` is the value of "describe" or the whole line that holds it. NULL with err. */
struct pl_description *pl_description_parse(const char *json, size_t len, struct pl_err *err);
void pl_description_free(struct pl_description *d);
/* Sets what the service says, below every nearer origin. A value that the configuration cannot take is
 * skipped and named in `problem` (may be NULL). Returns how many were skipped. */
size_t pl_description_apply(const struct pl_description *d, struct pl_config *c, size_t service,
                            char *problem, size_t room);
#endif
