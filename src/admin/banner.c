/* banner.c - the first thing people read: where it listens, what it holds a request against and who said so,
 * what is guarded and what is not. At most 8 lines. */
#include <stdio.h>

#include "admin/inside.h"
#include "crew/look.h"

static const char *origin_of(const struct pl_admin *a, const struct pl_service *s, const char *key) {
    return pl_origin_name(pl_config_origin(a->o.app->config, s->index, key, NULL));
}

static void service_lines(const struct pl_admin *a, struct pl_service *s, struct pl_buf *out) {
    const struct pl_config *c = a->o.app->config;
    const struct pl_description *d = pl_look_description(s);
    uint64_t now = pl_now_ms(a->o.app->clock);
    const struct pl_worker *ready = pl_service_pick(s);
    struct pl_look_worker l = { 0 };
    if (ready != NULL) pl_look_worker((struct pl_worker *)(uintptr_t)ready, now, &l);
    char target[160];
    pl_buf_addf(out, "  %s  %s  ", s->config->id, pl_look_target(s, target, sizeof target));
    if (s->kind == PL_KIND_PYTHON)
        pl_buf_addf(out, "(BentoML %s, Python %s)", d != NULL && d->bentoml != NULL ? d->bentoml : "?",
                    d != NULL && d->python != NULL ? d->python : "?");
    else
        pl_buf_addf(out, "(%s, engine %s)", pl_kind_name(s->kind), pl_look_engine(s));
    pl_buf_addf(out, "  mode %s\n", pl_config_word("mode", s->config->mode));
    pl_buf_addf(out,
                "    limits: workers %s (%s), threads %s (%s), timeout %s (%s), max_concurrency %s (%s), "
                "queue %s, body %s\n",
                pl_config_text(c, s->index, "workers"), origin_of(a, s, "workers"),
                pl_config_text(c, s->index, "threads"), origin_of(a, s, "threads"),
                pl_config_text(c, s->index, "traffic.timeout"), origin_of(a, s, "traffic.timeout"),
                pl_config_text(c, s->index, "traffic.max_concurrency"),
                origin_of(a, s, "traffic.max_concurrency"),
                pl_config_text(c, s->index, "traffic.queue.max_requests"),
                pl_config_text(c, s->index, "limits.body"));
    if (ready == NULL)
        pl_buf_addf(out, "    not ready: %s\n", pl_health_why(s));
    else if (s->kind == PL_KIND_REMOTE)
        pl_buf_adds(out, "    ready; somebody else runs it: no restart, no replacement, no warm-up\n");
    else if (l.warm)
        pl_buf_addf(out, "    ready after %.1f s, warm: %u %s requests, first %.1f ms, settled %.1f ms\n",
                    (double)l.ready_ms / 1000, l.warmup_requests, l.source, (double)l.first_us / 1000,
                    (double)l.settled_us / 1000);
    else
        pl_buf_addf(
            out,
            "    ready after %.1f s (unwarmed): give it warmup.requests and the first caller will not pay\n",
            (double)l.ready_ms / 1000);
}

void pl_admin_banner(struct pl_admin *a, struct pl_buf *out) {
    size_t services = pl_crew_service_count(a->o.crew);
    pl_buf_addf(out, "plimsoll %s  on %s  admin %s%s\n", a->o.version, a->o.listen, a->o.admin,
                a->o.dry_run ? "  DRY RUN: values are not computed" : "");
    for (size_t i = 0; i < services && i < 2; i++) service_lines(a, pl_crew_service(a->o.crew, i), out);
    if (services > 2) {
        pl_buf_addf(out, "  and %zu more services: plimsoll status\n", services - 2);
        return;
    }
    bool ours = false, books = false;
    for (size_t i = 0; i < services; i++) {
        enum pl_kind kind = pl_crew_service(a->o.crew, i)->kind;
        ours = ours || kind != PL_KIND_REMOTE;
        books = books || kind == PL_KIND_PYTHON;
    }
    pl_buf_addf(out, "  guarded: readiness, %s%sconcurrency and queue\n",
                ours ? "restart after death, replacement, " : "", books ? "memory growth, " : "");
}
