/* The knee: the fewest requests at a time that do KNEE of the most that can be done a second. More of them
 * only wait, and hold memory while they do. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/soak.h"

#define KNEE 0.9

static const json_t *scenario(const json_t *doc, const char *name) {
    const json_t *s;
    size_t i;
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) {
        const char *is = json_string_value(json_object_get(s, "scenario"));
        if (is != NULL && strcmp(is, name) == 0) return s;
    }
    return NULL;
}

/* The step of a list at the knee; `key` is what is done a second. */
static const json_t *knee(const json_t *steps, const char *key) {
    const json_t *s;
    double best = 0;
    size_t i;
    json_array_foreach(steps, i, s) best = fmax(best, pl_fig_number(s, key));
    json_array_foreach(steps, i, s) if (best > 0 && pl_fig_number(s, key) >= KNEE * best) return s;
    return NULL;
}

/* A duration that reads well, not below `ms`. */
static void round_up(char out[24], double ms) {
    static const int nice[] = { 1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600 };
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (ms <= nice[i] * 1000.0) {
            snprintf(out, 24, "%ds", nice[i]);
            return;
        }
    snprintf(out, 24, "%.0fs", ceil(ms / 1000));
}

static void put_batch(const json_t *doc, struct pl_buf *out) {
    const json_t *s = scenario(doc, "batch"), *b = json_object_get(s, "batch");
    const json_t *k = knee(json_object_get(s, "batch_steps"), "items_per_s");
    double most = b != NULL ? pl_fig_number(b, "largest") : 0;
    if (k == NULL && most <= 0) return;
    double size = k != NULL ? pl_fig_number(k, "size") : most;
    if (most > 0 && size > most) size = most;
    if (k != NULL)
        pl_buf_addf(out, "# in the service's decorator (%.0f items a second in batches of %.0f",
                    pl_fig_number(k, "items_per_s"), pl_fig_number(k, "size"));
    else
        pl_buf_addf(out, "# in the service's decorator (");
    if (most > 0) pl_buf_addf(out, "%sat most %.0f fit into the budget", k != NULL ? "; " : "", most);
    pl_buf_addf(out, "):\n#   @bentoml.api(batchable=True, max_batch_size=%.0f)\n", size);
    pl_buf_addf(out, "# max_batch_size: %.0f\n", size);
}

void pl_soak_tune(const json_t *doc, struct pl_buf *out) {
    const json_t *steps = json_object_get(scenario(doc, "concurrency"), "steps"), *k = knee(steps, "per_s");
    const char *service = json_string_value(json_object_get(doc, "service"));
    const char *route = json_string_value(json_object_get(doc, "route"));
    char timeout[24], wait[24];
    if (k == NULL) {
        pl_buf_adds(out, "# nothing was answered well: there is no knee\n");
        return;
    }
    const json_t *l = json_object_get(k, "latency_ms");
    double per_s = pl_fig_number(k, "per_s"), p99 = pl_fig_number(l, "p99");
    /* ten times what the slowest take at the knee; half of it may be spent in the queue */
    double timeout_ms = fmax(1000, 10 * p99), wait_ms = fmin(10000, fmax(1000, timeout_ms / 2));
    round_up(timeout, timeout_ms + wait_ms);
    round_up(wait, wait_ms);
    double queue = ceil(per_s * wait_ms / 1000);
    pl_buf_addf(out,
                "# plimsoll soak --tune, %.200s: the knee is at %.0f at a time, %.1f a second, median %.1f "
                "ms, 99 %% within %.1f ms\n",
                route != NULL ? route : "", pl_fig_number(k, "concurrency"), per_s,
                pl_fig_number(l, "median"), p99);
    pl_buf_addf(out, "services:\n  %s:\n    traffic:\n      max_concurrency: %.0f\n      timeout: %s\n",
                service != NULL ? service : "service", pl_fig_number(k, "concurrency"), timeout);
    pl_buf_addf(out, "      queue: { max_requests: %.0f, max_wait: %s }\n", fmin(queue, 1000000), wait);
    put_batch(doc, out);
}
