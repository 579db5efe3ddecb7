/* base/metrics.h - the metrics we export, from one table (metrics.def), rendered as Prometheus text 0.0.4.
 *
 * A series is made once and kept by whoever counts on it, so that the hot path adds to a pointer. Label
 * values are copied. Closed label sets are made with 0 from the start by their owners. No locks: one loop
 * owns a registry.
 */
#ifndef PL_BASE_METRICS_H
#define PL_BASE_METRICS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum pl_metric_type { PL_COUNTER, PL_GAUGE, PL_HISTOGRAM_SECONDS, PL_HISTOGRAM_BYTES };
/* Buckets of a histogram of seconds, which no other has more of. */
enum { PL_METRIC_MAX_LABELS = 6, PL_METRIC_LABEL_BYTES = 160, PL_METRIC_BUCKETS = 18 };

/* METRIC(ID, "name", TYPE, "label,label", "help") */
enum pl_metric {
#define METRIC(id, name, type, labels, help) PL_M_##id,
#include "base/metrics.def"
#undef METRIC
    PL_METRIC_COUNT
};

struct pl_metrics;
struct pl_series;

/* `max_series`: over it, new label values become "other" (config metrics.max_series). NULL without memory. */
struct pl_metrics *pl_metrics_create(size_t max_series);
void pl_metrics_destroy(struct pl_metrics *m);

/* The series with these label values (as many as the table says), made at need. Never NULL. Borrowed from `m`
 * until it is dropped. Use the macro: pl_series(m, PL_M_REQUESTS_TOTAL, "chat", "200"). */
struct pl_series *pl_metrics_get(struct pl_metrics *m, enum pl_metric id, const char *const *values,
                                 size_t count);
#define pl_series(m, id, ...)                                       \
    pl_metrics_get((m), (id), (const char *const[]){ __VA_ARGS__ }, \
                   sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))
/* For a metric without labels. */
struct pl_series *pl_series0(struct pl_metrics *m, enum pl_metric id);
/* No data, no series: takes it out of the page. Unknown ones are ignored. */
void pl_metrics_drop(struct pl_metrics *m, enum pl_metric id, const char *const *values, size_t count);

void pl_series_add(struct pl_series *s, double more);
void pl_series_set(struct pl_series *s, double value);
void pl_series_observe(struct pl_series *s, double value); /* histograms: seconds or bytes */
/* Observations that somebody else has counted: `buckets` in the places of a histogram of seconds, the sum of
 * them. */
void pl_series_merge(struct pl_series *s, const uint64_t buckets[PL_METRIC_BUCKETS], double sum);
size_t pl_metric_second_bucket(double seconds);    /* where an observation goes */
double pl_series_value(const struct pl_series *s); /* of a histogram: its count */

/* --- looking at what was counted */

/* Every series of a family, in the order of the page. */
typedef void pl_metrics_seen(void *ctx, enum pl_metric id, const struct pl_series *s);
void pl_metrics_each(const struct pl_metrics *m, enum pl_metric id, pl_metrics_seen *seen, void *ctx);
/* The value of a label, as it stands on the page but without its escapes. False and "": it has no such label.
 */
bool pl_series_label(const struct pl_series *s, const char *name, char *out, size_t room);
/* How many observations fell into each bucket (not summed up, the last is +Inf); the rest of `out` is 0. */
void pl_series_buckets(const struct pl_series *s, uint64_t out[PL_METRIC_BUCKETS]);
/* The value below which a share `q` (0 to 1) of these observations of seconds lies, linear within its bucket
 * as Prometheus' histogram_quantile has it; NAN: there are none. What lies over the last bound is that bound.
 */
double pl_metrics_quantile_seconds(const uint64_t buckets[PL_METRIC_BUCKETS], double q);

/* Families sorted as in the table, with HELP and TYPE; families without series are left out. What has not
 * changed since the last time is copied. */
void pl_metrics_render(struct pl_metrics *m, struct pl_buf *out);
/* True if `family` (full name, `plimsoll_` included) is one of ours. */
bool pl_metrics_is_ours(const char *family, size_t len);
#endif
