/* host_room.c - what starts take of host memory: measured at each, kept for the next life in
 * state_dir/learnt/SERVICE.start.json, and held against the memory group's limit before the next start.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/devices.h"
#include "crew/look.h"
#include "crew/shelf.h"
#include "worker/host_room.h"

enum { HELD_AGAIN_MS = 10000 };

static const char FILE_END[] = ".start.json";

/* --- measured */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

void pl_host_room_seen(struct pl_worker *w, uint64_t anon, uint64_t swap, uint64_t rss, uint64_t pss) {
    struct pl_start_peak *p = &w->more->peak;
    p->anon = larger(p->anon, anon + swap);
    p->rss = larger(p->rss, rss);
    if (pss != PL_WATCH_UNKNOWN) p->pss = larger(p->pss, pss);
}

/* /proc/PID/status, a page of text that touches no disk: what it has now, and the most it has had. */
static void look_at_leader(struct pl_worker *w) {
    char path[64], text[4096];
    uint64_t anon_kib, swap_kib, peak_kib;
    snprintf(path, sizeof path, "/proc/%d/status", (int)w->pid);
    PL_AUTO_FILE FILE *f = w->pid > 0 ? fopen(path, "re") : NULL;
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    const char *anon = strstr(text, "RssAnon:"), *swap = strstr(text, "VmSwap:"),
               *peak = strstr(text, "VmHWM:");
    if (anon == NULL || peak == NULL) return;
    anon_kib = swap_kib = peak_kib = 0;
    sscanf(anon, "RssAnon: %lu", &anon_kib);
    sscanf(peak, "VmHWM: %lu", &peak_kib);
    if (swap != NULL) sscanf(swap, "VmSwap: %lu", &swap_kib);
    pl_host_room_seen(w, anon_kib << 10, swap_kib << 10, peak_kib << 10, PL_WATCH_UNKNOWN);
    w->service->more->start_settled = (anon_kib + swap_kib) << 10;
}

static void keep(const struct pl_service *s) {
    char name[160];
    const struct pl_start_peak *p = &s->more->start_peak;
    json_t *o = json_pack("{s:i,s:s,s:s,s:I,s:I,s:I,s:I}", "v", 1, "kind", "start", "service", s->config->id,
                          "anon_bytes", (json_int_t)p->anon, "rss_bytes", (json_int_t)p->rss, "pss_bytes",
                          (json_int_t)p->pss, "settled_bytes", (json_int_t)s->more->start_settled);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    snprintf(name, sizeof name, "%.128s%s", s->config->id, FILE_END);
    if (text != NULL) pl_shelf_write(s->crew, "learnt", name, text);
    free(text);
    json_decref(o);
}

void pl_host_room_ready(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_start_peak *p = &s->more->start_peak, was = *p;
    if (w->more->adopted || s->kind == PL_KIND_REMOTE) return;
    look_at_leader(w);
    *p = w->more->peak; /* the last start's: a service may get smaller */
    /* A tenth more or less is the same. */
    if (p->anon > was.anon + was.anon / 10 || p->anon + p->anon / 10 < was.anon) keep(s);
}

static uint64_t number(const json_t *o, const char *key) {
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

void pl_host_room_load(struct pl_service *s) {
    char path[512];
    if (s->crew->state_dir == NULL) return;
    snprintf(path, sizeof path, "%s/learnt/%.128s%s", s->crew->state_dir, s->config->id, FILE_END);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (json_integer_value(json_object_get(o, "v")) == 1)
        s->more->start_peak = (struct pl_start_peak){ .anon = number(o, "anon_bytes"),
                                                      .rss = number(o, "rss_bytes"),
                                                      .pss = number(o, "pss_bytes") };
    s->more->start_settled = number(o, "settled_bytes");
    json_decref(o);
}

/* --- held against the limit */

static void fill(const struct pl_service *s, struct pl_start_room *r) {
    const struct pl_crew *c = s->crew;
    *r = (struct pl_start_room){ .limit = pl_host_limit(c),
                                 .used = pl_host_in_use(c),
                                 .peak = s->more->start_peak.anon };
    for (size_t i = 0; i < c->every_count; i++)
        for (const struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (w->state < PL_WORKER_SPAWNING || w->state >= PL_WORKER_READY) continue;
            uint64_t peak = w->service->more->start_peak.anon, has = w->more->peak.anon;
            r->running++;
            if (peak > has) r->coming += peak - has;
        }
}

static void tell_held(struct pl_service *s, uint32_t slot, const struct pl_start_room *r, bool held) {
    uint64_t now = pl_crew_now(s->crew);
    if (s->more->start_held_ms != 0 && now - s->more->start_held_ms < HELD_AGAIN_MS) return;
    s->more->start_held_ms = now;
    pl_log(s->crew->app->log, PL_WARN, "host.start_held", F_STR("service", s->config->id),
           F_INT("worker", slot), F_INT("peak_bytes", r->peak), F_INT("used_bytes", r->used + r->coming),
           F_INT("max_bytes", r->limit), F_BOOL("held", held));
}

bool pl_host_room_is_free(struct pl_service *s, uint32_t slot) {
    struct pl_start_room r;
    fill(s, &r);
    if (pl_start_judge(&r) != PL_START_LATER) return true;
    bool observed = s->config->mode == PL_CFG_MODE_OBSERVE;
    tell_held(s, slot, &r, !observed);
    return observed;
}

bool pl_host_room_allows(const struct pl_service *s, struct pl_err *err) {
    struct pl_start_room r;
    fill(s, &r);
    if (s->config->mode == PL_CFG_MODE_OBSERVE || pl_start_judge(&r) != PL_START_NEVER) return true;
    return PL_FAIL(err, PL_E_SYS,
                   "a start takes %.1f MiB of memory, and the limit is %.1f MiB: raise it to %.0f MiB",
                   (double)r.peak / (1 << 20), (double)r.limit / (1 << 20),
                   (double)pl_start_limit(0, 0, r.peak) / (1 << 20));
}

/* --- for people */

bool pl_look_start_memory(const struct pl_service *s, struct pl_look_start_memory *out) {
    const struct pl_crew *c = s->crew;
    const struct pl_start_peak *p = &s->more->start_peak;
    uint64_t workers_now = 0, settled = 0, dearest = 0, used = pl_host_in_use(c);
    if (p->rss == 0) return false;
    for (size_t i = 0; i < c->every_count; i++) {
        const struct pl_service *o = c->every[i];
        settled += o->more->start_settled * pl_life_slots(o);
        dearest = larger(dearest, o->more->start_peak.anon);
        for (const struct pl_worker *w = o->workers; w != NULL; w = w->next)
            if (pl_worker_has_process(w->state)) workers_now += w->more->host.anon + w->more->host.swap;
    }
    *out = (struct pl_look_start_memory){
        .rss = p->rss,
        .pss = p->pss,
        .anon = p->anon,
        .limit = pl_host_limit(c),
        .suggested = pl_start_limit(used > workers_now ? used - workers_now : 0, settled, dearest),
    };
    return true;
}
