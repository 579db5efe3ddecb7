/* limits.c - which limit of a service binds: the one that is used the most. What people ask first when
 * requests wait or are refused, so that they turn the knob that helps. */
#include <stdio.h>

#include "admin/inside.h"
#include "crew/look.h"

struct candidate {
    const char *limit, *key; /* `key`: the setting behind it, or NULL */
    char place[56];          /* "gpu0", "host"; "": the service */
    double used, of;
    bool bytes;
};

static void consider(struct candidate *best, const struct candidate *c) {
    if (c->of > 0 && (best->of <= 0 || c->used / c->of > best->used / best->of)) *best = *c;
}

static void consider_traffic(const struct pl_admin *a, const struct pl_service *s, struct candidate *best) {
    struct pl_gateway_numbers load;
    struct pl_gateway_budget b;
    pl_gateway_numbers(a->o.gateway, s, &load);
    if (s->config->traffic_max_concurrency > 0)
        consider(best, &(struct candidate){ .limit = "concurrency",
                                            .key = "traffic.max_concurrency",
                                            .used = (double)load.running,
                                            .of = (double)s->config->traffic_max_concurrency });
    for (size_t i = 0; pl_gateway_budget(a->o.gateway, s, i, &b); i++) {
        struct candidate c = { .limit = "budget",
                               .key = "memory.budget",
                               .used = (double)b.charged_bytes,
                               .of = (double)b.budget_bytes,
                               .bytes = true };
        snprintf(c.place, sizeof c.place, "%.50s", b.gpu);
        consider(best, &c);
    }
}

/* The peak of the last minute is held against the card, the process against its share of the pod. */
static void consider_memory(const struct pl_service *s, uint64_t now, struct candidate *best) {
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        struct pl_look_device d;
        struct pl_look_host h;
        if (w->state == PL_WORKER_GONE) continue;
        for (uint32_t i = 0; i < PL_LOOK_DEVICES; i++) {
            if (!pl_look_device(w, i, now, &d)) continue;
            struct candidate c = { .limit = "device_memory",
                                   .used = (double)(d.peak > d.reserved ? d.peak : d.reserved),
                                   .of = (double)d.limit,
                                   .bytes = true };
            snprintf(c.place, sizeof c.place, "%.50s", d.scope);
            consider(best, &c);
        }
        if (pl_look_host(w, &h))
            consider(best, &(struct candidate){ .limit = "host_memory",
                                                .key = "replace.host_rss",
                                                .place = "host",
                                                .used = (double)h.rss,
                                                .of = (double)h.limit,
                                                .bytes = true });
    }
}

void pl_limits_add(const struct pl_admin *a, const struct pl_service *s, uint64_t now, json_t *o) {
    struct candidate best = { 0 };
    consider_traffic(a, s, &best);
    consider_memory(s, now, &best);
    if (best.of <= 0) return; /* nothing is limited, or nothing is known of it */
    json_t *b = json_pack("{s:s,s:f,s:f,s:f,s:s}", "limit", best.limit, "used", best.used, "of", best.of,
                          "used_ratio", best.used / best.of, "unit", best.bytes ? "bytes" : "requests");
    if (best.key != NULL) json_object_set_new(b, "key", json_string(best.key));
    if (best.place[0] != '\0') json_object_set_new(b, "place", json_string(best.place));
    json_object_set_new(o, "binds", b);
}
