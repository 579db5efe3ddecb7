#include "cli/watchers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/paths.h"
#include "cli/renew.h"
#include "crew/look.h"

struct watcher {
    uv_fs_event_t event;
    uv_timer_t quiet; /* runs while changes still come */
    struct pl_app *app;
    struct pl_service *service; /* NULL: the configuration's folder */
};

/* What it depends on and runs apart is made of the same files. */
static bool replace_all(struct pl_service *s, uint64_t now) {
    const struct pl_replace_wish wish = { .reason = PL_REPLACE_FOR_GENERATION };
    struct pl_look_replacement r;
    struct pl_err err;
    for (struct pl_service *d = s->dependencies; d != NULL; d = d->next) {
        pl_look_replacement(d, now, &r);
        if (r.under_way) return false;
    }
    if (!pl_service_replace(s, &wish, NULL, &err)) return false;
    for (struct pl_service *d = s->dependencies; d != NULL; d = d->next)
        if (pl_look_wanted(d)) pl_service_replace(d, &wish, NULL, &err);
    return true;
}

static void on_quiet(uv_timer_t *t) {
    struct watcher *w = t->data;
    struct pl_err err = { 0 };
    bool ok = w->service != NULL ? replace_all(w->service, pl_now_ms(w->app->clock))
                                 : pl_renew_order(false, "", &err);
    if (ok) return;
    /* One is under way: the change came too late for it, so look again. */
    uv_timer_start(&w->quiet, on_quiet, (uint64_t)w->app->config->reload_debounce_ms, 0);
}

/* A service's own files; what editors and caches leave in the folder is none. */
static bool is_source(const char *name) {
    static const char *const ends[] = { ".py", ".yaml", ".yml", ".json", ".toml" };
    const char *dot = name != NULL ? strrchr(name, '.') : NULL;
    if (dot == NULL || name[0] == '.') return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(dot, ends[i]) == 0) return true;
    return false;
}

static void on_change(uv_fs_event_t *e, const char *name, int events, int status) {
    struct watcher *w = e->data;
    (void)events;
    if (status != 0 || (w->service != NULL && !is_source(name))) return;
    uv_timer_start(&w->quiet, on_quiet, (uint64_t)w->app->config->reload_debounce_ms, 0);
}

static void watch(struct pl_app *app, struct pl_service *service, const char *folder) {
    struct watcher *w = calloc(1, sizeof *w);
    if (w == NULL) return;
    w->app = app;
    w->service = service;
    w->event.data = w->quiet.data = w;
    uv_timer_init(app->loop, &w->quiet);
    uv_fs_event_init(app->loop, &w->event);
    int r = uv_fs_event_start(&w->event, on_change, folder, 0);
    if (r != 0)
        pl_log(app->log, PL_WARN, "worker.degraded",
               F_STR("service", service != NULL ? service->config->id : NULL), F_STR("feature", "watch"),
               F_STR("reason", uv_strerror(r)), F_STR("folder", folder));
}

void pl_watchers_start(struct pl_app *app, struct pl_crew *crew) {
    const char *file = app->config->file;
    if (app->config->reload_watch && file != NULL) {
        char folder[PL_PATH_BYTES];
        const char *slash = strrchr(file, '/');
        snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - file + 1) : 1,
                 slash != NULL ? file : ".");
        watch(app, NULL, folder);
    }
    for (size_t i = 0; i < pl_crew_service_count(crew); i++) {
        struct pl_service *s = pl_crew_service(crew, i);
        if (s->config->watch) watch(app, s, s->config->working_dir);
    }
}
