#include "crew/accounts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/books.h"
#include "crew/devices.h"
#include "crew/look.h"
#include "plimsoll/shm.h"
#include "worker/devices.h"

enum {
    TAKE = 128,  /* records at a time */
    PIECES = 13, /* of a minute, and the one that has just begun */
    PIECE_MS = 5000,
};

struct pl_accounts {
    uint64_t cursor, lost, lost_told;
    uint64_t retries, ooms; /* of all devices, when last seen */
    struct {
        char gpu[48];                         /* the name of its series; "": it has none */
        uint64_t peak[PIECES], piece[PIECES]; /* the largest in piece `n` of all time, at n % PIECES */
    } device[PL_PAGE_DEVICES];
};

/* A worker that was there before this main has told the last one about its requests. */
static struct pl_accounts *accounts_of(struct pl_worker *w) {
    struct pl_page_counters p;
    if (w->more->accounts != NULL || !pl_page_counters(&w->page, &p)) return w->more->accounts;
    struct pl_accounts *a = calloc(1, sizeof *a);
    if (a != NULL && w->more->adopted) {
        a->cursor = p.ended;
        a->retries = a->ooms = UINT64_MAX; /* what was before is not counted again */
    }
    return w->more->accounts = a;
}

static void note_peak(struct pl_accounts *a, uint32_t device, uint64_t bytes, uint64_t now_ms) {
    if (device >= PL_PAGE_DEVICES) return;
    uint64_t piece = now_ms / PIECE_MS;
    size_t at = piece % PIECES;
    if (a->device[device].piece[at] != piece) a->device[device].peak[at] = 0;
    a->device[device].piece[at] = piece;
    if (bytes > a->device[device].peak[at]) a->device[device].peak[at] = bytes;
}

static uint64_t peak_of_a_minute(const struct pl_accounts *a, uint32_t device, uint64_t now_ms) {
    uint64_t most = 0, piece = now_ms / PIECE_MS;
    for (size_t i = 0; i < PIECES; i++)
        if (a->device[device].piece[i] + PIECES > piece && a->device[device].peak[i] > most)
            most = a->device[device].peak[i];
    return most;
}

static const char *path_of(const struct pl_service *s, uint16_t route) {
    const struct pl_description *d = s->more->description;
    return d != NULL && route < d->route_count ? d->routes[route].path : "other";
}

/* By which way a request of one of the service's routes came. */
static void count_way(const struct pl_service *s, const struct pl_page_record *r) {
    const struct pl_description *d = s->more->description;
    if (d == NULL || r->route >= d->route_count || (r->flags & PL_RECORD_WARMUP) != 0) return;
    const char *way = (r->flags & PL_RECORD_RETURNED) != 0 ? "returned"
                      : (r->flags & PL_RECORD_LANE) != 0   ? "lane"
                                                           : "asgi";
    pl_series_add(pl_series(s->crew->app->metrics, PL_M_FAST_LANE_REQUESTS_TOTAL, s->config->id, way), 1);
}

static void look_at(struct pl_worker *w, struct pl_accounts *a, const struct pl_page_record *r,
                    uint64_t now_ms) {
    const struct pl_service *s = w->service;
    count_way(s, r);
    if ((r->flags & PL_RECORD_MEMORY) == 0) return;
    note_peak(a, r->device, r->peak, now_ms);
    if ((r->flags & (PL_RECORD_PEAK_EXACT | PL_RECORD_WARMUP)) != PL_RECORD_PEAK_EXACT) return;
    pl_series_observe(
        pl_series(s->crew->app->metrics, PL_M_REQUEST_PEAK_BYTES, s->config->id, path_of(s, r->route)),
        (double)r->peak);
}

void pl_accounts_take(struct pl_worker *w, uint64_t now_ms) {
    static struct pl_page_record records[TAKE];
    struct pl_accounts *a = accounts_of(w);
    if (a == NULL) return;
    for (int turns = 0; turns < 2 * (int)PL_PAGE_RECORDS / TAKE; turns++) {
        size_t n = pl_page_take_ends(&w->page, &a->cursor, records, TAKE, &a->lost);
        if (a->lost > a->lost_told) pl_books_lost(w, a->lost - a->lost_told);
        a->lost_told = a->lost;
        for (size_t i = 0; i < n; i++) {
            look_at(w, a, &records[i], now_ms);
            pl_books_row(w, &records[i], now_ms);
            w->service->crew->hooks.ended(w->service->crew->hooks.ctx, w,
                                          path_of(w->service, records[i].route), &records[i]);
        }
        if (n < TAKE) return;
    }
}

/* The index that the machine has for it, by its UUID where somebody looks at devices. Else what a worker
 * calls device `i` is the i-th of those that it was given: an index, or a UUID. */
static void name_gpu(const struct pl_worker *w, uint32_t i, const char *uuid, char out[48]) {
    const struct pl_devices *known = w->service->crew->devices;
    char list[PL_DEVICES_TEXT], *rest = list;
    bool told = false;
    struct pl_err ignored;
    const char *word = NULL;
    snprintf(out, 48, "%u", i);
    for (uint32_t k = 0; uuid[0] != '\0' && known != NULL && k < known->count; k++) {
        if (strcmp(known->device[k].now.uuid, uuid) != 0) continue;
        snprintf(out, 48, "%u", known->device[k].now.index);
        return;
    }
    if (!pl_devices_of(w->service->config, getenv("CUDA_VISIBLE_DEVICES"), w->slot, list, &told, &ignored) ||
        !told)
        return;
    for (uint32_t k = 0; k <= i; k++)
        if ((word = strsep(&rest, ",")) == NULL) return;
    if (word[0] != '\0') snprintf(out, 48, "%s", word);
}

static void scope_of(const char *gpu, char out[56]) {
    bool index = isdigit((unsigned char)gpu[0]) != 0;
    snprintf(out, 56, "%s%s", index ? "gpu" : "", gpu);
}

bool pl_look_device(struct pl_worker *w, uint32_t i, uint64_t now_ms, struct pl_look_device *out) {
    struct pl_page_device_now d;
    const struct pl_accounts *a = w->more->accounts;
    if (i >= PL_PAGE_DEVICES || !pl_page_device(&w->page, i, &d)) return false;
    *out = (struct pl_look_device){
        .allocated = d.allocated, .reserved = d.reserved, .limit = d.total, .stuck = d.inactive_split
    };
    name_gpu(w, i, d.uuid, out->gpu);
    scope_of(out->gpu, out->scope);
    if (a != NULL) out->peak = peak_of_a_minute(a, i, now_ms);
    if (out->peak < d.allocated) out->peak = d.allocated;
    return true;
}

/* A worker's counters begin with it; one that goes backwards is a worker's lie, or another process's page. */
static void count_up(struct pl_worker *w, enum pl_metric id, uint64_t now, uint64_t *seen) {
    const struct pl_service *s = w->service;
    struct pl_series *series = pl_series(s->crew->app->metrics, id, s->config->id, pl_worker_label(w));
    if (now > *seen) pl_series_add(series, (double)(now - *seen));
    *seen = now;
}

static void take_back(const struct pl_worker *w, const struct pl_accounts *a, uint32_t i) {
    const char *service = w->service->config->id, *gpu = a->device[i].gpu;
    struct pl_metrics *m = w->service->crew->app->metrics;
    char scope[56];
    if (gpu[0] == '\0') return;
    scope_of(gpu, scope);
    const char *by_gpu[] = { service, pl_worker_label(w), gpu };
    const char *by_scope[] = { service, pl_worker_label(w), scope };
    pl_metrics_drop(m, PL_M_MEMORY_ALLOCATED_BYTES, by_gpu, 3);
    pl_metrics_drop(m, PL_M_MEMORY_RESERVED_BYTES, by_gpu, 3);
    pl_metrics_drop(m, PL_M_MEMORY_PEAK_BYTES, by_scope, 3);
}

void pl_accounts_second(struct pl_worker *w, uint64_t now_ms) {
    const struct pl_service *s = w->service;
    struct pl_metrics *m = s->crew->app->metrics;
    struct pl_accounts *a = accounts_of(w);
    uint64_t retries = 0, ooms = 0;
    bool told = false;
    if (a == NULL) return;
    for (uint32_t i = 0; i < pl_page_devices(&w->page) && i < PL_PAGE_DEVICES; i++) {
        struct pl_page_device_now raw;
        struct pl_look_device d;
        if (!pl_page_device(&w->page, i, &raw)) continue;
        note_peak(a, i, raw.allocated, now_ms);
        if (!pl_look_device(w, i, now_ms, &d)) continue;
        if (strcmp(a->device[i].gpu, d.gpu) != 0) take_back(w, a, i); /* its index is known only now */
        memcpy(a->device[i].gpu, d.gpu, sizeof d.gpu);
        retries += raw.retries;
        ooms += raw.ooms;
        told = true;
        pl_series_set(pl_series(m, PL_M_MEMORY_ALLOCATED_BYTES, s->config->id, pl_worker_label(w), d.gpu),
                      (double)d.allocated);
        pl_series_set(pl_series(m, PL_M_MEMORY_RESERVED_BYTES, s->config->id, pl_worker_label(w), d.gpu),
                      (double)d.reserved);
        pl_series_set(pl_series(m, PL_M_MEMORY_PEAK_BYTES, s->config->id, pl_worker_label(w), d.scope),
                      (double)d.peak);
    }
    if (!told) return;
    count_up(w, PL_M_ALLOCATOR_RETRIES_TOTAL, retries, &a->retries);
    count_up(w, PL_M_ALLOCATOR_OOMS_TOTAL, ooms, &a->ooms);
}

size_t pl_look_rows(struct pl_worker *w, uint64_t *from, struct pl_page_record *out, size_t room,
                    uint64_t *lost) {
    return pl_page_take_ends(&w->page, from, out, room, lost);
}

uint64_t pl_look_ended(struct pl_worker *w) {
    struct pl_page_counters p;
    return pl_page_counters(&w->page, &p) ? p.ended : 0;
}

bool pl_look_tag(struct pl_worker *w, uint16_t tag, char text[PL_PAGE_TAG_ROOM]) {
    return pl_page_tag(&w->page, tag, text);
}

void pl_accounts_free(struct pl_worker *w) {
    struct pl_accounts *a = w->more->accounts;
    w->more->accounts = NULL;
    for (uint32_t i = 0; a != NULL && i < PL_PAGE_DEVICES; i++) take_back(w, a, i);
    free(a);
}
