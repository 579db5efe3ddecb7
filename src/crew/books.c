#include "crew/books.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crew/accounts.h"
#include "crew/devices.h"
#include "crew/explain.h"
#include "crew/look.h"
#include "crew/more.h"
#include "plimsoll/shm.h"

enum {
    DRIVER_OLD_MS = 10000,
    LOADED_LEAST = 65536, /* bytes of a device that a loaded model has at least */
    EMPTY_WAIT_MS = 2000, /* for a moment without user code */
    EMPTY_PATIENCE_MS = 30000,
};

struct pl_books {
    struct pl_ledger ledger;
    struct pl_ledger_verdict verdict; /* as last told */
    struct pl_tag_report tags;        /* of it */
    uint64_t since_wall_ms;           /* when its word was first told */
    uint32_t again;
    struct pl_forecast forecast[PL_LEDGER_SCOPES];
    struct pl_forecast_told forecast_told[PL_LEDGER_SCOPES];
    struct pl_alarm alarm[PL_LEDGER_SCOPES];
    struct pl_empty empty[PL_LEDGER_GPUS];
    char name[PL_LEDGER_SCOPES][56]; /* of the scopes that are on the page of metrics */
    struct pl_log_sampler ooms;
    uint32_t heard; /* retries that its output has told */
    bool sampled;
    bool answered; /* its replacement has begun, and is noted */
};

static struct pl_books *books_of(struct pl_worker *w) {
    if (w->more->books != NULL) return w->more->books;
    struct pl_books *b = calloc(1, sizeof *b);
    if (b != NULL) pl_ledger_start(&b->ledger);
    return w->more->books = b;
}

static struct pl_logger *log_of(const struct pl_worker *w) { return w->service->crew->app->log; }

/* "gpu0" as the machine numbers it, a UUID, "host". */
static void scope_text(struct pl_worker *w, int scope, char out[56]) {
    struct pl_look_device d;
    if (scope != PL_LEDGER_HOST && pl_look_device(w, (uint32_t)scope, 0, &d))
        snprintf(out, 56, "%s", d.scope);
    else
        snprintf(out, 56, "%s", pl_ledger_scope_name(scope));
}

/* --- rows */

static void tell_oom(struct pl_worker *w, const struct pl_page_record *r, uint64_t now_ms) {
    struct pl_books *b = w->more->books;
    char tag[PL_PAGE_TAG_ROOM] = "", scope[56];
    int64_t left_out = pl_log_sample(&b->ooms, now_ms);
    if (left_out < 0) return;
    scope_text(w, r->device < PL_LEDGER_GPUS ? r->device : 0, scope);
    pl_page_tag(&w->page, r->tag, tag);
    pl_log(log_of(w), PL_ERROR, "memory.oom", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("kind", "request"),
           F_STR("scope", scope), F_STR("tag", tag[0] != '\0' ? tag : NULL),
           F_STR("error", r->error_class[0] != '\0' ? r->error_class : NULL), F_INT("status", r->status),
           F_INT("allocated_bytes", r->allocated), F_INT("reserved_bytes", r->reserved),
           F_INT("suppressed", left_out));
}

void pl_books_row(struct pl_worker *w, const struct pl_page_record *r, uint64_t now_ms) {
    struct pl_books *b = books_of(w);
    if (b == NULL || (r->flags & PL_RECORD_UNBEGUN) != 0) return;
    struct pl_ledger_row row = {
        .at_ms = now_ms,
        .tag = r->tag,
        .gpu = r->device < PL_LEDGER_GPUS ? (uint8_t)r->device : UINT8_MAX,
        .failed = r->outcome != PL_OUTCOME_OK,
        .quiet =
            (r->flags & (PL_RECORD_ALONE | PL_RECORD_QUIESCENT)) == (PL_RECORD_ALONE | PL_RECORD_QUIESCENT),
        .peak_exact = (r->flags & PL_RECORD_PEAK_EXACT) != 0,
        .oom = (r->flags & PL_RECORD_OOM) != 0,
        .known = (r->flags & PL_RECORD_MEMORY) != 0,
        .batch = r->batch,
        .before = r->allocated_before,
        .after = r->allocated,
        .reserved = r->reserved,
        .peak = r->peak,
        .host_bytes = r->host_anon,
    };
    pl_ledger_row(&b->ledger, &row);
    if (row.oom) tell_oom(w, r, now_ms);
}

void pl_books_lost(struct pl_worker *w, uint64_t records) {
    struct pl_books *b = books_of(w);
    if (b != NULL) pl_ledger_lost(&b->ledger, records);
}

/* --- once a second: what no record says */

/* The device that the worker calls `i`, as the driver saw it lately; NULL: nobody tells. */
static const struct pl_watch_gpu *driver_gpu(struct pl_worker *w, uint32_t i, uint64_t now_ms) {
    const struct pl_devices *d = w->service->crew->devices;
    struct pl_look_device mine;
    char index[16];
    if (d == NULL || !pl_look_device(w, i, 0, &mine)) return NULL;
    for (uint32_t k = 0; k < d->count; k++) {
        const struct pl_watch_gpu *g = &d->device[k].now;
        if (g->at_ms == 0 || g->at_ms + DRIVER_OLD_MS < now_ms) continue;
        snprintf(index, sizeof index, "%u", g->index);
        if (strcmp(index, mine.gpu) == 0 || strcmp(g->uuid, mine.gpu) == 0) return g;
    }
    return NULL;
}

/* What all workers of the instance reserve on that device, this one's own included. */
static uint64_t reserved_by_all(struct pl_worker *w, uint32_t i) {
    struct pl_crew *c = w->service->crew;
    struct pl_look_device mine, d;
    uint64_t sum = 0;
    if (!pl_look_device(w, i, 0, &mine)) return 0;
    for (size_t k = 0; k < c->every_count; k++)
        for (struct pl_worker *o = c->every[k]->workers; o != NULL; o = o->next)
            for (uint32_t n = 0; n < pl_page_devices(&o->page) && pl_worker_has_process(o->state); n++)
                if (pl_look_device(o, n, 0, &d) && strcmp(d.scope, mine.scope) == 0) sum += d.reserved;
    return sum;
}

/* Workers of this service that have a model on a device of this one's. */
static uint32_t holders_by_pages(struct pl_worker *w) {
    uint32_t most = 0;
    struct pl_look_device mine, d;
    for (uint32_t i = 0; i < pl_page_devices(&w->page); i++) {
        uint32_t holders = 0;
        if (!pl_look_device(w, i, 0, &mine) || mine.allocated < LOADED_LEAST) continue;
        for (struct pl_worker *o = w->service->workers; o != NULL; o = o->next)
            for (uint32_t n = 0; n < pl_page_devices(&o->page) && o->state == PL_WORKER_READY; n++)
                holders += pl_look_device(o, n, 0, &d) && strcmp(d.scope, mine.scope) == 0 &&
                           d.allocated >= LOADED_LEAST;
        if (holders > most) most = holders;
    }
    return most;
}

/* Processes of this worker, its children included, that the driver lists on one device. */
static uint32_t holders_by_driver(const struct pl_worker *w, uint64_t now_ms) {
    const struct pl_devices *d = w->service->crew->devices;
    uint32_t most = 0;
    for (uint32_t k = 0; d != NULL && k < d->count; k++) {
        const struct pl_watch_gpu *g = &d->device[k].now;
        uint32_t mine = 0;
        if (g->at_ms == 0 || g->at_ms + DRIVER_OLD_MS < now_ms || (g->flags & PL_WATCH_GPU_PROCESSES) == 0)
            continue;
        for (uint32_t i = 0; i < g->process_count && i < PL_WATCH_PROCESSES; i++)
            mine += g->processes[i].leader != 0 && g->processes[i].leader == (uint32_t)w->pid;
        if (mine > most) most = mine;
    }
    return most;
}

static void sample_gpu(struct pl_worker *w, uint32_t i, uint64_t now_ms, struct pl_ledger_sample *s) {
    struct pl_page_device_now d;
    if (!pl_page_device(&w->page, i, &d)) return;
    s->gpu[i].total = d.total;
    s->gpu[i].used = reserved_by_all(w, i);
    s->gpu[i].inactive_split = d.inactive_split;
    s->gpu[i].retries = d.retries;
    s->gpu[i].ooms = d.ooms;
    const struct pl_watch_gpu *g = driver_gpu(w, i, now_ms);
    if (g == NULL) return;
    uint64_t process = pl_gpu_process_bytes(g, (uint32_t)w->pid);
    if (g->total != PL_WATCH_UNKNOWN) s->gpu[i].total = g->total;
    if (g->used != PL_WATCH_UNKNOWN && g->used > s->gpu[i].used) s->gpu[i].used = g->used;
    if (process != PL_WATCH_UNKNOWN && g->at_ms != 0) s->gpu[i].process = process;
}

static uint64_t has_on(struct pl_worker *w, uint32_t i, const struct pl_ledger_sample *s) {
    struct pl_look_device d;
    if (s->gpu[i].process != 0) return s->gpu[i].process;
    return pl_look_device(w, i, 0, &d) ? d.reserved : 0;
}

/* What a worker needs on a device before it has served anything. */
static void note_need(struct pl_worker *w, const struct pl_books *b, const struct pl_ledger_sample *s) {
    uint64_t *need = &w->service->more->new_device_bytes;
    if (b->sampled || w->more->adopted) return;
    for (uint32_t i = 0; i < PL_LEDGER_GPUS; i++) {
        uint64_t has = has_on(w, i, s);
        if (has > *need || (i == 0 && has > 0)) *need = has;
    }
    if (*need != 0) pl_kept_save(w->service);
}

/* No new one was ever seen: what it has itself, which may have grown. */
bool pl_books_room(struct pl_worker *w) {
    uint64_t known = w->service->more->new_device_bytes, now = pl_crew_now(w->service->crew);
    struct pl_ledger_sample s = { .at_ms = now };
    for (uint32_t i = 0; i < PL_LEDGER_GPUS; i++) {
        sample_gpu(w, i, now, &s);
        uint64_t total = s.gpu[i].total, used = s.gpu[i].used, need = known != 0 ? known : has_on(w, i, &s);
        if (total > 0 && (total < used || total - used < need + need / 10)) return false;
    }
    return true;
}

void pl_look_sample(struct pl_worker *w, uint64_t now_ms, struct pl_ledger_sample *s) {
    struct pl_look_host h;
    uint32_t beside = holders_by_pages(w), below = holders_by_driver(w, now_ms);
    *s = (struct pl_ledger_sample){ .at_ms = now_ms,
                                    .holders = beside > below ? beside : below,
                                    .holders_ok = 1 };
    if (pl_look_host(w, &h)) {
        s->host_bytes = w->more->host.anon + w->more->host.swap;
        s->host_max = h.limit;
    }
    for (uint32_t i = 0; i < PL_LEDGER_GPUS; i++) sample_gpu(w, i, now_ms, s);
}

static void take_sample(struct pl_worker *w, struct pl_books *b, uint64_t now_ms) {
    struct pl_ledger_sample s;
    pl_look_sample(w, now_ms, &s);
    note_need(w, b, &s);
    b->sampled = true;
    pl_ledger_sample(&b->ledger, &s);
}

/* --- verdict */

static void tag_text(struct pl_worker *w, const struct pl_books *b, char out[PL_PAGE_TAG_ROOM]) {
    out[0] = '\0';
    if (b->tags.count == 0) return;
    if (b->tags.of[0].name == PL_TAG_OTHER || !pl_page_tag(&w->page, b->tags.of[0].name, out))
        snprintf(out, PL_PAGE_TAG_ROOM, "other");
}

enum { VERDICT_FIELDS = 20 };
struct told {
    struct pl_field at[VERDICT_FIELDS];
    size_t count;
};

static void add(struct told *t, bool applies, struct pl_field f) {
    if (applies && t->count < VERDICT_FIELDS) t->at[t->count++] = f;
}

static void tell_verdict(struct pl_worker *w, struct pl_books *b) {
    const struct pl_ledger_verdict *v = &b->verdict;
    char tag[PL_PAGE_TAG_ROOM], scope[56];
    bool grows = v->bytes_per_request > 0, named = b->tags.count > 0;
    struct told t = { .count = 0 };
    tag_text(w, b, tag);
    scope_text(w, v->scope, scope);
    add(&t, true, F_STR("service", w->service->config->id));
    add(&t, true, F_INT("worker", w->slot));
    add(&t, true, F_INT("generation", w->generation));
    add(&t, true, F_STR("verdict", pl_verdict_name(v->word)));
    add(&t, v->has_shape, F_STR("shape", pl_shape_name(v->shape)));
    add(&t, true, F_STR("scope", scope));
    add(&t, grows, F_INT("bytes_per_request", llround(v->bytes_per_request)));
    add(&t, grows, F_INT("low", llround(v->low)));
    add(&t, grows, F_INT("high", llround(v->high)));
    add(&t, v->since_requests > 0, F_INT("since_requests", v->since_requests));
    add(&t, true, F_INT("requests", v->requests));
    add(&t, grows || v->copies > 0, F_STR("confidence", v->confirmed ? "confirmed" : "suspected"));
    add(&t, named, F_STR("top_tag", tag));
    add(&t, named, F_REAL("share", named ? b->tags.of[0].share : 0));
    add(&t, named, F_REAL("failed_share", b->tags.failed_share));
    add(&t, v->growth_bytes > 0, F_INT("growth_bytes", llround(v->growth_bytes)));
    add(&t, v->copies > 0, F_INT("copies", v->copies));
    add(&t, b->again > 0, F_INT("again", b->again));
    enum pl_level level = b->again > 0 ? PL_ERROR : pl_verdict_is_bad(v->word) ? PL_WARN : PL_INFO;
    pl_log_emit(log_of(w), level, "memory.verdict", t.at, t.count);
}

/* A leak has a holder: looked for once, while the verdict stands. */
static void ask_who(struct pl_worker *w, const struct pl_ledger_verdict *before,
                    const struct pl_ledger_verdict *now) {
    bool was = before->word == PL_VERDICT_LEAK || before->word == PL_VERDICT_HOST_LEAK;
    bool is = now->word == PL_VERDICT_LEAK || now->word == PL_VERDICT_HOST_LEAK;
    if (was && before->word != now->word) pl_explain_settled(w, pl_verdict_name(before->word));
    if (is) pl_explain_propose(w, pl_verdict_name(now->word));
}

static void look_at_verdict(struct pl_worker *w, struct pl_books *b) {
    struct pl_ledger_verdict v;
    pl_ledger_verdict(&b->ledger, &v);
    bool news = b->since_wall_ms == 0 || v.word != b->verdict.word || v.scope != b->verdict.scope;
    if (news) ask_who(w, &b->verdict, &v);
    b->verdict = v;
    pl_tags_report(&b->ledger.tags, v.scope != PL_LEDGER_HOST ? v.bytes_per_request : 0, &b->tags);
    bool leaks = v.confirmed && v.bytes_per_request > 0;
    b->again = leaks ? pl_again_seen(&w->service->more->again, &v, w->more->time.spawned) : 0;
    if (!news) return;
    b->since_wall_ms = pl_wall_ms(w->service->crew->app->clock);
    if (v.word != PL_VERDICT_WARMING) tell_verdict(w, b); /* that it warms is no news */
}

/* --- alarm, forecast, counts */

static void look_at_peak(struct pl_worker *w, struct pl_books *b, int scope) {
    uint64_t limit = pl_ledger_limit(&b->ledger, scope);
    uint64_t peak = scope == PL_LEDGER_HOST ? b->ledger.host_bytes : pl_ledger_peak(&b->ledger, scope);
    char text[56];
    scope_text(w, scope, text);
    uint32_t mark = (uint32_t)w->service->config->memory_alarm_bp;
    if (pl_alarm_look(&b->alarm[scope], peak, limit, mark) != PL_ALARM_RAISED) return;
    pl_log(log_of(w), PL_WARN, "memory.alarm", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("scope", text),
           F_INT("peak_bytes", peak), F_INT("limit_bytes", limit));
}

static void look_at_forecast(struct pl_worker *w, struct pl_books *b, int scope) {
    struct pl_forecast *f = &b->forecast[scope];
    char text[56];
    pl_ledger_forecast(&b->ledger, scope, (uint32_t)w->service->config->memory_forecast_margin_bp, f);
    if (!pl_forecast_is_news(&b->forecast_told[scope], f)) return;
    scope_text(w, scope, text);
    pl_log(log_of(w), PL_WARN, "memory.forecast", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("scope", text),
           F_REAL("seconds", round(f->seconds)), F_REAL("low_s", round(f->low_s)),
           F_REAL("high_s", round(f->high_s)), F_REAL("requests", round(f->requests)));
}

static void look_at_counts(struct pl_worker *w, struct pl_books *b) {
    uint64_t retries, ooms;
    pl_ledger_take_counts(&b->ledger, &retries, &ooms);
    uint32_t heard = w->more->words.retries - b->heard;
    b->heard = w->more->words.retries;
    if (retries > 0) w->service->crew->hooks.retried(w->service->crew->hooks.ctx, w);
    if (retries <= heard) return; /* it has printed them: words.c told */
    pl_log(log_of(w), PL_WARN, "memory.retries", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_INT("count", retries - heard));
}

static const struct pl_forecast *nearest(const struct pl_books *b) {
    const struct pl_forecast *f = &b->forecast[0];
    for (int i = 1; i < PL_LEDGER_SCOPES; i++)
        if (b->forecast[i].is && (!f->is || b->forecast[i].low_s < f->low_s)) f = &b->forecast[i];
    return f;
}

/* --- metrics */

static void set_growth(struct pl_worker *w, const char *scope, const char *bound, double value) {
    pl_series_set(pl_series(w->service->crew->app->metrics, PL_M_MEMORY_GROWTH_BYTES_PER_REQUEST,
                            w->service->config->id, pl_worker_label(w), scope, bound),
                  value);
}

static void drop_scope(struct pl_worker *w, const struct pl_books *b, int scope) {
    static const char *const bounds[] = { "low", "mid", "high" };
    struct pl_metrics *m = w->service->crew->app->metrics;
    const char *id = w->service->config->id, *label = pl_worker_label(w), *name = b->name[scope];
    for (size_t i = 0; i < 3; i++)
        pl_metrics_drop(m, PL_M_MEMORY_GROWTH_BYTES_PER_REQUEST,
                        (const char *[]){ id, label, name, bounds[i] }, 4);
    pl_metrics_drop(m, PL_M_MEMORY_FORECAST_SECONDS, (const char *[]){ id, label, name }, 3);
    pl_metrics_drop(m, PL_M_MEMORY_LIMIT_BYTES, (const char *[]){ id, label, name }, 3);
}

/* What applied a second ago and does no more leaves the page, and so does a name: the machine's index of a
 * device may be known only later. */
static void meter_scope(struct pl_worker *w, struct pl_books *b, int scope) {
    const struct pl_ledger_verdict *v = &b->verdict;
    const struct pl_forecast *f = &b->forecast[scope];
    struct pl_metrics *m = w->service->crew->app->metrics;
    const char *id = w->service->config->id, *label = pl_worker_label(w);
    bool grows = v->scope == scope && v->bytes_per_request > 0, ends = f->is && isfinite(f->seconds);
    uint64_t limit = pl_ledger_limit(&b->ledger, scope);
    if (b->name[scope][0] != '\0') drop_scope(w, b, scope);
    b->name[scope][0] = '\0';
    if (!grows && !ends && limit == 0) return;
    char *name = b->name[scope];
    scope_text(w, scope, name);
    if (limit > 0) pl_series_set(pl_series(m, PL_M_MEMORY_LIMIT_BYTES, id, label, name), (double)limit);
    if (ends) pl_series_set(pl_series(m, PL_M_MEMORY_FORECAST_SECONDS, id, label, name), f->seconds);
    if (!grows) return;
    set_growth(w, name, "low", v->low);
    set_growth(w, name, "mid", v->bytes_per_request);
    set_growth(w, name, "high", v->high);
}

static void meter(struct pl_worker *w, struct pl_books *b) {
    struct pl_metrics *m = w->service->crew->app->metrics;
    for (int i = 0; i < PL_VERDICT_COUNT; i++)
        pl_series_set(pl_series(m, PL_M_MEMORY_VERDICT, w->service->config->id, pl_worker_label(w),
                                pl_verdict_name((enum pl_verdict)i)),
                      (int)b->verdict.word == i);
    for (int i = 0; i < PL_LEDGER_SCOPES; i++)
        if (i == PL_LEDGER_HOST || b->ledger.gpu[i].seen) meter_scope(w, b, i);
}

/* --- empty_cache */

static void on_emptied(void *ctx, struct pl_worker *w, const char *line, size_t len) {
    struct pl_books *b = w->more->books;
    int gpu = (int)(intptr_t)ctx;
    if (b == NULL) return;
    json_t *root = line != NULL ? json_loadb(line, len, 0, NULL) : NULL;
    const json_t *bytes = json_object_get(root, "returned_bytes"), *took = json_object_get(root, "took_ms");
    double returned = json_number_value(bytes);
    bool done = json_is_number(bytes) && returned >= 0 && returned < (double)PL_LEDGER_ABSURD;
    /* No answer, or never a moment without user code: asked again when the interval has passed. */
    pl_empty_done(&b->empty[gpu], done ? (uint64_t)returned : b->empty[gpu].expected);
    if (done) {
        struct pl_metrics *m = w->service->crew->app->metrics;
        char scope[56];
        scope_text(w, gpu, scope);
        pl_series_add(pl_series(m, PL_M_EMPTY_CACHE_TOTAL, w->service->config->id), 1);
        pl_series_add(pl_series(m, PL_M_EMPTY_CACHE_RETURNED_BYTES_TOTAL, w->service->config->id), returned);
        pl_log(log_of(w), PL_INFO, "memory.empty_cache", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("scope", scope),
               F_INT("returned_bytes", returned),
               F_REAL("took_ms", json_is_number(took) ? json_number_value(took) : HUGE_VAL));
    }
    json_decref(root);
}

static void would_empty(struct pl_worker *w, int gpu, uint64_t bytes) {
    char scope[56];
    scope_text(w, gpu, scope);
    pl_service_would(w->service, "empty_cache", "reserved_over");
    pl_log(log_of(w), PL_INFO, "would.empty_cache", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("scope", scope),
           F_INT("returned_bytes", bytes), F_STR("mode", pl_config_word("mode", w->service->config->mode)));
}

static void look_at_cache(struct pl_worker *w, struct pl_books *b, int gpu, uint64_t now_ms) {
    const struct pl_service_config *c = w->service->config;
    const struct pl_empty_rule rule = { .reserved_over = c->empty_cache_reserved_over_bp,
                                        .every_requests = c->empty_cache_every_requests,
                                        .min_interval_ms = (uint64_t)c->empty_cache_min_interval_ms };
    struct pl_empty *e = &b->empty[gpu];
    char more[32];
    if (!pl_empty_wanted(e, &rule, &b->ledger, gpu, now_ms)) return;
    if (c->mode == PL_CFG_MODE_OBSERVE) {
        would_empty(w, gpu, e->expected);
        pl_empty_done(e, e->expected);
        return;
    }
    snprintf(more, sizeof more, ",\"wait_ms\":%d", EMPTY_WAIT_MS);
    if (!pl_control_ask(w, "empty_cache", more, EMPTY_PATIENCE_MS, on_emptied, (void *)(intptr_t)gpu))
        pl_empty_done(e, 0);
}

/* --- replacement */

static void propose_or_settle(struct pl_worker *w, bool holds, enum pl_replace_reason reason) {
    if (holds)
        pl_replace_propose(w, reason, 0);
    else
        pl_replace_settled(w, reason);
}

/* It has begun because of what the books say: a successor that leaks as fast is no surprise any more. */
static void note_replaced(struct pl_worker *w, struct pl_books *b, uint64_t now_ms) {
    const struct pl_replacement *r = &w->service->more->replacement;
    if (b->answered || !r->active || r->from_generation != w->generation) return;
    if (r->reason != PL_REPLACE_FOR_LEAK && r->reason != PL_REPLACE_FOR_FORECAST) return;
    b->answered = true;
    if (b->verdict.confirmed && b->verdict.bytes_per_request > 0)
        pl_again_replaced(&w->service->more->again, &b->verdict, w->more->time.spawned, now_ms);
}

static void look_at_reasons(struct pl_worker *w, struct pl_books *b, uint64_t now_ms) {
    const struct pl_reasons_case c = {
        .verdict = &b->verdict, .forecast = nearest(b), .again = b->again, .boot_ms = w->service->boot_ms
    };
    struct pl_reasons r = pl_reasons_of(&c);
    w->more->forecast_ms = r.forecast_ms;
    propose_or_settle(w, b->ledger.oom.state == PL_AFTER_OOM_STUCK, PL_REPLACE_FOR_OOM);
    propose_or_settle(w, r.leak, PL_REPLACE_FOR_LEAK);
    propose_or_settle(w, r.forecast, PL_REPLACE_FOR_FORECAST);
    note_replaced(w, b, now_ms);
}

void pl_books_second(struct pl_worker *w, uint64_t now_ms) {
    struct pl_page_counters p;
    struct pl_books *b = pl_page_counters(&w->page, &p) ? books_of(w) : NULL;
    if (b == NULL) return;
    take_sample(w, b, now_ms);
    look_at_verdict(w, b);
    for (int i = 0; i < PL_LEDGER_SCOPES; i++) {
        if (i != PL_LEDGER_HOST && !b->ledger.gpu[i].seen) continue;
        look_at_peak(w, b, i);
        look_at_forecast(w, b, i);
        if (i != PL_LEDGER_HOST) look_at_cache(w, b, i, now_ms);
    }
    look_at_counts(w, b);
    meter(w, b);
    look_at_reasons(w, b, now_ms);
}

bool pl_look_verdict(struct pl_worker *w, struct pl_look_verdict *out) {
    const struct pl_books *b = w->more->books;
    if (b == NULL || b->since_wall_ms == 0) return false;
    const struct pl_ledger_verdict *v = &b->verdict;
    const struct pl_forecast *f = nearest(b);
    *out = (struct pl_look_verdict){ .word = pl_verdict_name(v->word),
                                     .text = pl_verdict_text(v->word),
                                     .bad = pl_verdict_is_bad(v->word),
                                     .shape = v->has_shape ? pl_shape_name(v->shape) : NULL,
                                     .confirmed = v->confirmed,
                                     .bytes_per_request = v->bytes_per_request,
                                     .low = v->low,
                                     .high = v->high,
                                     .since_wall_ms = b->since_wall_ms,
                                     .since_requests = v->since_requests,
                                     .requests = v->requests,
                                     .missing = v->missing,
                                     .growth_bytes = v->growth_bytes,
                                     .copies = v->copies,
                                     .again = b->again,
                                     .share = b->tags.count > 0 ? b->tags.of[0].share : 0,
                                     .failed_share = b->tags.failed_share,
                                     .forecast_s = f->is ? f->seconds : HUGE_VAL,
                                     .forecast_low_s = f->is ? f->low_s : HUGE_VAL,
                                     .forecast_high_s = f->is ? f->high_s : HUGE_VAL,
                                     .forecast_requests = f->is ? f->requests : HUGE_VAL };
    scope_text(w, v->scope, out->scope);
    tag_text(w, b, out->tag);
    return true;
}

void pl_books_free(struct pl_worker *w) {
    struct pl_books *b = w->more->books;
    if (b == NULL) return;
    for (int i = 0; i < PL_VERDICT_COUNT; i++)
        pl_metrics_drop(w->service->crew->app->metrics, PL_M_MEMORY_VERDICT,
                        (const char *[]){ w->service->config->id, pl_worker_label(w),
                                          pl_verdict_name((enum pl_verdict)i) },
                        3);
    for (int i = 0; i < PL_LEDGER_SCOPES; i++)
        if (b->name[i][0] != '\0') drop_scope(w, b, i);
    w->more->books = NULL;
    free(b);
}
