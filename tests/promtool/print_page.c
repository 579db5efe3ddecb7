/* print_page.c - prints the page of /metrics for promtool. usage: print_page [WORKER_TEXT…]
 * Every metric of the table has a series; each text is merged in as one more worker's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "sample/promtext.h"

static const struct {
    const char *labels;
    enum pl_metric_type type;
} table[PL_METRIC_COUNT] = {
#define METRIC(id, name, type, labels, help) { labels, type },
#include "base/metrics.def"
#undef METRIC
};

static void fill(struct pl_metrics *m) {
    const char *values[PL_METRIC_MAX_LABELS] = { "chat",      "2 \"quoted\"", "back\\slash",
                                                 "new\nline", "plain",        "" };
    for (int i = 0; i < PL_METRIC_COUNT; i++) {
        struct pl_series *s = pl_metrics_get(m, (enum pl_metric)i, values, PL_METRIC_MAX_LABELS);
        if (table[i].type == PL_HISTOGRAM_SECONDS || table[i].type == PL_HISTOGRAM_BYTES) {
            for (double v = 0.0005; v < 1e12; v *= 7) pl_series_observe(s, v);
        } else {
            pl_series_add(s, 0.1 * i);
        }
    }
}

static bool merge(struct pl_promtext *p, const char *path, unsigned worker) {
    static char text[1 << 20];
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    pl_promtext_add(p, NULL, worker, text, n);
    return pl_promtext_skipped(p) == 0;
}

int main(int argc, char **argv) {
    struct pl_metrics *m = pl_metrics_create(1000);
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf out;
    pl_buf_init(&out, 0);
    if (m == NULL || p == NULL) return 1;
    fill(m);
    pl_metrics_render(m, &out);
    for (int i = 1; i < argc; i++)
        if (!merge(p, argv[i], (unsigned)i)) return fprintf(stderr, "print_page: %s\n", argv[i]), 1;
    bool ok =
        pl_promtext_render(p, &out, pl_metrics_is_ours) && fwrite(out.data, 1, out.len, stdout) == out.len;
    pl_buf_free(&out);
    pl_promtext_destroy(p);
    pl_metrics_destroy(m);
    return ok ? 0 : 1;
}
