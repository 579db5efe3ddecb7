/* crew/app.h - what every part of main's rim shares: the loop, the log, the metrics, the accepted
 * configuration. */
#ifndef PL_CREW_APP_H
#define PL_CREW_APP_H
#include <uv.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "config/config.h"
#include "record/record.h"

struct pl_app {
    uv_loop_t *loop;
    struct pl_logger *log;
    struct pl_metrics *metrics;
    const struct pl_clock *clock;
    struct pl_config
        *config; /* the accepted one; values inherited from a service arrive later (crew: described) */
    struct pl_record *record; /* NULL: nothing is kept */
    uint64_t boot;            /* nonce of this start of main */
    uint64_t keeper_boot;     /* of the keeper's life */
    uint64_t started_ms;
    bool stopping; /* draining for good: nothing new is taken, /readyz is 503 */
};
#endif
