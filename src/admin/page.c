/* page.c - /metrics: ours, then the workers' own families with their names and a label `worker`. Nothing
 * waits: the workers' texts are those of the last background scrape. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "admin/inside.h"
#include "base/cleanup.h"
#include "sample/promtext.h"

enum { OWN_EVERY_MS = 1000 };

static double resident_bytes(void) {
    unsigned long pages = 0;
    PL_AUTO_FILE FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL || fscanf(f, "%*u %lu", &pages) != 1) return 0;
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_descriptors(void) {
    DIR *d = opendir("/proc/self/fd");
    double count = -3; /* ".", ".." and the one we read through */
    if (d == NULL) return 0;
    while (readdir(d) != NULL) count++;
    closedir(d);
    return count;
}

/* Once a second: it costs system calls, and this is asked for many times a second. */
static void own_process(struct pl_admin *a) {
    struct rusage u;
    struct pl_app *app = a->o.app;
    uint64_t now = pl_now_ms(app->clock);
    if (a->own_ms != 0 && now - a->own_ms < OWN_EVERY_MS) return;
    a->own_ms = now;
    struct pl_series *cpu = pl_series0(app->metrics, PL_M_PROCESS_CPU_SECONDS_TOTAL);
    if (getrusage(RUSAGE_SELF, &u) == 0)
        pl_series_set(cpu, (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    pl_series_set(pl_series0(app->metrics, PL_M_PROCESS_RESIDENT_BYTES), resident_bytes());
    pl_series_set(pl_series0(app->metrics, PL_M_PROCESS_OPEN_FDS), open_descriptors());
    pl_series_set(pl_series0(app->metrics, PL_M_UP_SECONDS),
                  (double)(pl_now_ms(app->clock) - app->started_ms) / 1000);
    pl_series_set(pl_series0(app->metrics, PL_M_DRY_RUN), a->o.dry_run);
    pl_series_set(pl_series0(app->metrics, PL_M_LOG_LINES_DROPPED_TOTAL), (double)pl_log_dropped(app->log));
}

/* The workers of a dependency share a socket and answer for each other: one text is enough. */
static void add_dependency(struct pl_admin *a, const struct pl_service *s) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        const struct pl_buf *text = w->routable ? pl_worker_metrics_text(w) : NULL;
        if (text == NULL) continue;
        pl_promtext_add(a->prom, s->config->id, 0, text->data, text->len);
        return;
    }
}

static void add_workers(struct pl_admin *a) {
    size_t services = pl_crew_service_count(a->o.crew);
    for (size_t i = 0; i < services; i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
            const struct pl_buf *text = w->routable ? pl_worker_metrics_text(w) : NULL;
            if (text != NULL)
                pl_promtext_add(a->prom, services > 1 ? s->config->id : NULL, w->slot, text->data, text->len);
        }
        for (const struct pl_service *d = s->dependencies; d != NULL; d = d->next) add_dependency(a, d);
    }
}

static void tell_clashes(struct pl_admin *a) {
    for (const char *name; (name = pl_promtext_clash(a->prom)) != NULL;)
        if (!pl_picker_is_ours(name, strlen(name))) /* of the picker's, what they told is in ours */
            pl_log(a->o.app->log, PL_WARN, "worker.degraded", F_STR("feature", "metrics"),
                   F_STR("reason", "a family of ours"), F_STR("family", name));
}

/* Which texts stand on the page: of whom, and since when. FNV-1a over the numbers. */
static void mix(uint64_t *h, uint64_t value) { *h = (*h ^ value) * UINT64_C(1099511628211); }

static void mix_service(uint64_t *h, const struct pl_service *s) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        uint64_t at;
        if (!w->routable || !pl_worker_metrics_since(w, &at)) continue;
        mix(h, w->generation);
        mix(h, w->slot);
        mix(h, at);
    }
}

static uint64_t texts_of(const struct pl_admin *a) {
    uint64_t h = UINT64_C(14695981039346656037);
    mix(&h, pl_picker_claims(a));
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        mix(&h, i);
        mix_service(&h, s);
        for (const struct pl_service *d = s->dependencies; d != NULL; d = d->next) mix_service(&h, d);
    }
    return h;
}

static bool is_ours_or_pickers(const char *family, size_t len) {
    return pl_picker_is_ours(family, len) || pl_metrics_is_ours(family, len);
}

/* Merged anew only when a worker has told something new. */
static void add_families(struct pl_admin *a, struct pl_buf *out) {
    uint64_t texts = texts_of(a);
    if (a->prom == NULL) a->prom = pl_promtext_create();
    if (a->prom == NULL) return;
    if (texts != a->families_of) {
        a->families.len = 0;
        pl_promtext_clear(a->prom);
        add_workers(a);
        pl_promtext_render(a->prom, &a->families,
                           pl_picker_claims(a) ? is_ours_or_pickers : pl_metrics_is_ours);
        tell_clashes(a);
        a->families_of = texts;
    }
    pl_buf_add(out, a->families.data, a->families.len);
}

void pl_metrics_page(struct pl_admin *a, struct pl_buf *out) {
    own_process(a);
    pl_series_set(pl_series0(a->o.app->metrics, PL_M_DRAINING), a->o.app->stopping);
    pl_series_set(pl_series0(a->o.app->metrics, PL_M_BUFFERED_BYTES),
                  (double)pl_gateway_buffered(a->o.gateway));
    pl_metrics_render(a->o.app->metrics, out);
    add_families(a, out);
    pl_picker_add(a, out);
}
