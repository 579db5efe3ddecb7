#include "crew/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/devices.h"
#include "crew/look.h"
#include "worker/devices.h"

/* --- devices and their names */

static bool is_named(const struct pl_device *g, const char *word, size_t len) {
    char index[16];
    snprintf(index, sizeof index, "%u", g->now.index);
    return (strlen(index) == len && memcmp(index, word, len) == 0) ||
           (len > 0 && strncmp(g->now.uuid, word, len) == 0 && g->now.uuid[len] == '\0');
}

static bool lists(const char *devices, const struct pl_device *g) {
    for (const char *at = devices; *at != '\0';) {
        size_t len = strcspn(at, ",");
        if (is_named(g, at, len)) return true;
        at += len + (at[len] == ',');
    }
    return false;
}

static size_t names_in(const char *devices) {
    size_t n = devices[0] != '\0';
    for (const char *at = devices; *at != '\0'; at++) n += *at == ',';
    return n;
}

/* What the page says of device `g`; false: nothing. */
static bool on_page(struct pl_worker *w, const struct pl_device *g, struct pl_look_device *out) {
    for (uint32_t i = 0; i < pl_page_devices(&w->page) && i < PL_PAGE_DEVICES; i++)
        if (pl_look_device(w, i, 0, out) && is_named(g, out->gpu, strlen(out->gpu))) return true;
    return false;
}

static void add_name(char out[PL_ROOM_NAMES], const char *name) {
    size_t at = strlen(out), len = strlen(name);
    if (at + len + 2 > PL_ROOM_NAMES) return;
    snprintf(out + at, PL_ROOM_NAMES - at, "%s%s", at > 0 ? "," : "", name);
}

void pl_look_places(struct pl_worker *w, char out[PL_ROOM_NAMES]) {
    const struct pl_devices *d = w->service->crew->devices;
    const struct pl_worker_devices *mine = &w->more->devices;
    struct pl_look_device on;
    char index[16];
    out[0] = '\0';
    for (uint32_t i = 0; i < pl_page_devices(&w->page) && i < PL_PAGE_DEVICES; i++)
        if (pl_look_device(w, i, 0, &on) && on.reserved > 0) add_name(out, on.gpu);
    for (uint32_t i = 0; out[0] == '\0' && d != NULL && i < mine->count; i++) {
        snprintf(index, sizeof index, "%u", d->device[mine->device[i]].now.index);
        add_name(out, index);
    }
}

/* --- one worker on one device */

static struct pl_worker_room *room_of(struct pl_worker *w) {
    if (w->more->room != NULL) return w->more->room;
    struct pl_worker_room *r = calloc(1, sizeof *r);
    for (size_t k = 0; r != NULL && k < PL_WATCH_GPUS; k++) r->base[k] = UINT64_MAX;
    return w->more->room = r;
}

static bool is_ready(const struct pl_worker *w) { return w->more->was_ready; }

static bool is_idle(struct pl_worker *w) {
    struct pl_page_counters p;
    return pl_page_counters(&w->page, &p) && p.in_flight == 0;
}

static uint64_t process_of(const struct pl_worker *w, const struct pl_device *g) {
    uint64_t bytes = w->pid > 0 ? pl_gpu_process_bytes(&g->now, (uint32_t)w->pid) : 0;
    return bytes != PL_WATCH_UNKNOWN ? bytes : 0;
}

static void push(uint64_t looks[PL_ROOM_LOOKS], uint64_t value) {
    memmove(&looks[1], &looks[0], (PL_ROOM_LOOKS - 1) * sizeof looks[0]);
    looks[0] = value;
}

/* Those that run hold no more than they are charged; tasks, which run on after their reply, are charged
 * nothing. The least of some looks: between a request's end and the next look at the page its memory may be
 * counted and its charge not. */
static void raise_under_load(struct pl_worker *w, uint32_t k, uint64_t live) {
    struct pl_worker_room *r = w->more->room;
    const struct pl_crew_hooks *h = &w->service->crew->hooks;
    struct pl_page_counters p;
    bool all = h->charged != NULL && pl_page_counters(&w->page, &p) && p.tasks == 0;
    uint64_t charged = all ? h->charged(h->ctx, w) : UINT64_MAX;
    uint64_t sure = charged < live ? live - charged : 0;
    push(r->least[k], sure);
    push(r->least_ms[k], pl_crew_now(w->service->crew));
    for (int i = 1; i < PL_ROOM_LOOKS; i++)
        if (r->least[k][i] < sure) sure = r->least[k][i];
    if (r->base[k] != UINT64_MAX && sure > r->base[k]) r->base[k] = sure;
}

static void measure(struct pl_worker *w, uint32_t k, const struct pl_device *g, bool quiet) {
    struct pl_worker_room *r = room_of(w);
    struct pl_look_device on;
    uint64_t process = process_of(w, g);
    if (r == NULL) return;
    bool told = on_page(w, g, &on);
    uint64_t has = told && on.reserved > process ? on.reserved : process;
    if (!is_ready(w)) {
        if (has > r->most[k]) r->most[k] = has;
        return;
    }
    uint64_t live = told ? on.allocated : process,
             outside = told && process > on.reserved ? process - on.reserved : 0;
    if (!told && process == 0) return; /* it is not there, or nobody tells */
    if (quiet || live < r->base[k]) {
        r->base[k] = live;
        r->base_ms[k] = pl_crew_now(w->service->crew);
    } else if (told) {
        raise_under_load(w, k, live);
    }
    if (quiet) {
        memset(r->least[k], 0, sizeof r->least[k]);
        memset(r->least_ms[k], 0, sizeof r->least_ms[k]);
    }
    push(r->stuck[k], told ? on.stuck : 0);
    if (outside > r->outside[k]) r->outside[k] = outside;
}

static bool lives_on(const struct pl_worker *w, const struct pl_device *g) {
    char list[PL_DEVICES_TEXT];
    bool told = false;
    struct pl_err ignored;
    bool ok =
        pl_devices_of(w->service->config, getenv("CUDA_VISIBLE_DEVICES"), w->slot, list, &told, &ignored);
    return !ok || !told || lists(list, g);
}

/* What a new worker of the service takes there: the most that one had before it was READY; else what one had
 * when it was new, since a start may be over between two looks. What one of them has now is a last resort: it
 * may have grown. 0: nothing, or it is not known. */
static uint64_t of_a_new_one(const struct pl_service *s, uint32_t k) {
    uint64_t need = s->more->load_bytes[k];
    if (need == 0) need = s->more->fresh_bytes[k];
    for (const struct pl_worker *o = s->workers; need == 0 && o != NULL; o = o->next)
        if (is_ready(o)) need = pl_room_at_rest(o, k);
    return need;
}

bool pl_room_beside(const struct pl_worker *w, bool *known) {
    const struct pl_devices *d = w->service->crew->devices;
    const struct pl_worker_devices *mine = &w->more->devices;
    *known = d != NULL && mine->count > 0;
    for (uint32_t i = 0; *known && i < mine->count; i++) {
        const struct pl_device *g = &d->device[mine->device[i]];
        uint64_t need = of_a_new_one(w->service, mine->device[i]), request = w->service->more->request_bytes;
        uint64_t total = g->now.total, used = g->now.used;
        *known = need > 0 && g->now.at_ms != 0 && !g->lost && total != PL_WATCH_UNKNOWN &&
                 used != PL_WATCH_UNKNOWN;
        if (*known && (total < used || total - used < need + need / 10 + request)) return false;
    }
    return true;
}

static uint64_t of_one_on_its_way(const struct pl_worker *w, uint32_t k, const struct pl_device *g) {
    const struct pl_worker_room *r = w->more->room;
    uint64_t need = lives_on(w, g) ? of_a_new_one(w->service, k) : 0, has = r != NULL ? r->most[k] : 0;
    return need > has ? need : has;
}

static uint64_t left_by_one_that_ended(const struct pl_worker *w, uint32_t k) {
    const struct pl_worker_devices *mine = &w->more->devices;
    for (uint32_t i = 0; i < mine->count; i++)
        if (mine->device[i] == k) return mine->hold[i].bytes;
    return 0;
}

uint64_t pl_room_at_rest(const struct pl_worker *w, uint32_t k) {
    const struct pl_worker_room *r = w->more->room;
    return r != NULL && r->base[k] != UINT64_MAX ? r->base[k] + r->outside[k] : 0;
}

uint64_t pl_room_now(const struct pl_worker *w, uint32_t k) {
    const struct pl_worker_room *r = w->more->room;
    uint64_t measured = pl_room_at_rest(w, k);
    if (measured == 0 || r->least_ms[k][0] == 0) return measured; /* exact, or nobody looks beside requests */
    uint64_t of = r->least_ms[k][PL_ROOM_LOOKS - 1], now = pl_crew_now(w->service->crew);
    if (of < r->base_ms[k]) of = r->base_ms[k];
    return measured + (uint64_t)(pl_rise_per_ms(&r->rise[k]) * (double)(now > of ? now - of : 0));
}

uint64_t pl_room_in_pieces(const struct pl_worker *w, uint32_t k) {
    const struct pl_worker_room *r = w->more->room;
    uint64_t least = r != NULL ? r->stuck[k][0] : 0;
    for (int i = 1; i < PL_ROOM_LOOKS && least > 0; i++)
        if (r->stuck[k][i] < least) least = r->stuck[k][i];
    return least;
}

/* It gets no more requests, so that what it keeps for them is of no use to anybody until it is gone: all it
 * has, less what those that it still runs are charged. */
static uint64_t of_one_that_goes(struct pl_worker *w, uint32_t k, const struct pl_device *g) {
    const struct pl_crew_hooks *h = &w->service->crew->hooks;
    uint64_t charged = h->charged_to != NULL ? h->charged_to(h->ctx, w) : 0;
    struct pl_look_device on;
    uint64_t has = process_of(w, g), at_rest = pl_room_now(w, k), outside = w->more->room->outside[k];
    if (on_page(w, g, &on) && on.reserved + outside > has) has = on.reserved + outside;
    uint64_t fixed = has > charged ? has - charged : 0;
    return fixed > at_rest ? fixed : at_rest;
}

static uint64_t fixed_of(struct pl_worker *w, uint32_t k, const struct pl_device *g) {
    const struct pl_worker_room *r = w->more->room;
    if (w->more->keeper_gone || w->more->let_go || w->state == PL_WORKER_GONE ||
        w->service->kind == PL_KIND_REMOTE)
        return 0;
    if (w->exited) return left_by_one_that_ended(w, k);
    if (!is_ready(w)) return of_one_on_its_way(w, k, g);
    if (r == NULL || r->base[k] == UINT64_MAX) return process_of(w, g);
    return w->state == PL_WORKER_READY ? pl_room_now(w, k) : of_one_that_goes(w, k, g);
}

/* What ours have outside of PyTorch's allocator where the driver lists none of our processes: the whole of
 * it. */
static uint64_t unlisted(const struct pl_crew *c, const struct pl_device *g) {
    uint64_t reserved = 0, foreign = g->foreign_now != PL_WATCH_UNKNOWN ? g->foreign_now : 0;
    struct pl_look_device on;
    if (g->now.used == PL_WATCH_UNKNOWN) return 0;
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (w->exited || w->pid <= 0) continue;
            if (process_of(w, g) != 0) return 0;
            if (on_page(w, g, &on)) reserved += on.reserved;
        }
    if (reserved == 0) return 0;
    uint64_t taken = foreign + reserved + g->kept;
    return g->now.used > taken ? g->now.used - taken : 0;
}

/* --- a device */

void pl_room_on(const struct pl_crew *c, uint32_t k, struct pl_room *out) {
    const struct pl_device *g = &c->devices->device[k];
    *out = (struct pl_room){ .total = g->now.total,
                             .foreign = g->foreign_now != PL_WATCH_UNKNOWN ? g->foreign_now : 0,
                             .fixed = g->kept + unlisted(c, g) };
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
            out->fixed += fixed_of(w, k, g);
}

bool pl_room_in_motion(const struct pl_crew *c, uint32_t k) {
    const struct pl_device *g = &c->devices->device[k];
    for (size_t i = 0; i < c->every_count; i++)
        for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next) {
            if (w->more->let_go || w->state == PL_WORKER_GONE || w->service->kind == PL_KIND_REMOTE) continue;
            if (w->state != PL_WORKER_READY && fixed_of(w, k, g) > 0) return true;
        }
    return false;
}

static uint64_t left_in(const struct pl_room *r) {
    uint64_t taken = r->foreign + r->fixed;
    return taken < r->total ? r->total - taken : 0;
}

bool pl_look_room(const struct pl_crew *c, const char *devices, struct pl_room *out) {
    const struct pl_devices *d = c->devices;
    size_t found = 0;
    for (uint32_t k = 0; d != NULL && k < d->count; k++) {
        struct pl_room r;
        const struct pl_device *g = &d->device[k];
        if (!lists(devices, g)) continue;
        if (g->now.at_ms == 0 || g->lost || g->now.total == PL_WATCH_UNKNOWN) return false;
        pl_room_on(c, k, &r);
        if (found++ == 0 || left_in(&r) < left_in(out)) *out = r;
    }
    return found > 0 && found == names_in(devices);
}

bool pl_look_out_of_service(const struct pl_worker *w) {
    const struct pl_devices *d = w->service->crew->devices;
    const struct pl_worker_devices *mine = &w->more->devices;
    if (d == NULL || d->silent) return false; /* that nobody tells of it is no news of the device */
    for (uint32_t i = 0; i < mine->count; i++) {
        const struct pl_device *g = &d->device[mine->device[i]];
        if (g->out && g->kept == 0) return true; /* memory that did not come back is taken off the budget */
    }
    return false;
}

/* --- when it is looked at */

static void tell(struct pl_crew *c) {
    if (c->hooks.room_changed != NULL) c->hooks.room_changed(c->hooks.ctx);
}

void pl_room_ready(struct pl_worker *w) {
    struct pl_devices *d = w->service->crew->devices;
    struct pl_worker_room *r = room_of(w);
    if (d == NULL || r == NULL) return;
    for (uint32_t k = 0; k < d->count; k++) {
        if (r->most[k] > 0) w->service->more->load_bytes[k] = r->most[k];
        measure(w, k, &d->device[k], !w->more->adopted || is_idle(w));
    }
    r->measured = true;
    pl_kept_save(w->service);
    tell(w->service->crew);
}

void pl_room_sampled(struct pl_crew *c) {
    struct pl_devices *d = c->devices;
    for (uint32_t k = 0; k < d->count; k++)
        for (size_t i = 0; i < c->every_count; i++)
            for (struct pl_worker *w = c->every[i]->workers; w != NULL; w = w->next)
                if (!w->exited && w->pid > 0) measure(w, k, &d->device[k], is_idle(w));
    tell(c);
}

void pl_room_spawning(struct pl_worker *w) { tell(w->service->crew); }

void pl_room_needs(struct pl_service *s, uint64_t request_bytes) { s->more->request_bytes = request_bytes; }
