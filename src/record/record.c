#include "record/record.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "record/store.h"

enum {
    LINGER_MS = 250,       /* how long rows gather before a commit */
    TICK_MS = 1000,        /* a sign of life, and a look at the instance's memory */
    THIN_EVERY_MS = 20000, /* sizes and ages */
    RETRY_MS = 15000,      /* the file, while we write into memory */
    GOODBYE_MS = 2000,
    LEFT_SLOTS = 64
};

struct pl_record {
    struct pl_record_options o;
    char path[512], reason[16], version[32], instance[48], config[32];
    pthread_t thread;
    /* Under the lock. Held for a memcpy only, never while the disk is used. */
    pthread_mutex_t lock;
    pthread_cond_t bell, left_bell;
    struct pl_buf fill;
    bool urgent, stopping, left;
    int status;
    struct pl_record_look look;
    char file[512];
    void (*copy_done)(void *ctx, int fd);
    void *copy_ctx;
    _Atomic uint64_t max_bytes, max_age_ms, dropped;
    /* The loop's own. */
    uint64_t second_ms, kept, failed;
    uint32_t left_out[2][LEFT_SLOTS]; /* failed or well; by a hash of the service's name */
    /* The thread's own. */
    struct pl_store store;
    struct pl_buf work;
    uint64_t boot_ms, tick_ms, thin_ms, retry_ms;
};

/* --- the loop's side */

static void put(struct pl_record *r, enum pl_row_kind kind, bool urgent, const struct pl_value *v,
                size_t count) {
    char row[PL_RECORD_LINE_BYTES];
    size_t n = pl_row_pack(row, sizeof row, kind, v, count);
    pthread_mutex_lock(&r->lock);
    bool took = n > 0 && pl_buf_add(&r->fill, row, n);
    bool ring = took && (r->fill.len == n || (urgent && !r->urgent));
    if (took && urgent) r->urgent = true;
    pthread_mutex_unlock(&r->lock);
    if (!took) atomic_fetch_add(&r->dropped, 1);
    if (ring) pthread_cond_signal(&r->bell);
}
#define PUT(r, kind, urgent, ...)                                        \
    put((r), (kind), (urgent), (const struct pl_value[]){ __VA_ARGS__ }, \
        sizeof((const struct pl_value[]){ __VA_ARGS__ }) / sizeof(struct pl_value))

void pl_record_event(struct pl_record *r, enum pl_level level, const char *event, const char *line,
                     size_t len) {
    if (r == NULL || strcmp(event, "access") == 0) return;
    PUT(r, PL_ROW_EVENT, level >= PL_ERROR, pl_v_count(pl_wall_ms(r->o.clock)),
        pl_v_text(pl_level_name(level)), pl_v_text(event), pl_v_bytes(line, len));
}

/* Which requests of this second get a row. What failed is worth more than what went well. */
static bool has_room(struct pl_record *r, bool opened, bool well, uint64_t now_ms) {
    if (now_ms - r->second_ms >= 1000) {
        r->second_ms = now_ms;
        r->kept = r->failed = 0;
    }
    if (opened) return true;
    return well ? r->kept++ < PL_RECORD_KEPT_PER_S : r->failed++ < PL_RECORD_FAILED_PER_S;
}

/* Those without a row are counted with the next one of their service that ended as they did. */
static uint32_t *left_out(struct pl_record *r, const char *service, bool well) {
    uint32_t hash = 5381;
    for (const char *c = service; c != NULL && *c != '\0'; c++) hash = hash * 33 + (unsigned char)*c;
    return &r->left_out[well][hash % LEFT_SLOTS];
}

static struct pl_value millis(int64_t us) { return us < 0 ? pl_v_real(-1) : pl_v_real((double)us / 1000); }

bool pl_record_request(struct pl_record *r, const struct pl_record_request *q) {
    if (r == NULL) return false;
    bool well = q->outcome != NULL && strcmp(q->outcome, "ok") == 0;
    uint32_t *left = left_out(r, q->service, well);
    if (!has_room(r, q->opened, well, pl_now_ms(r->o.clock))) {
        *left += !q->open;
        return false;
    }
    uint64_t began = pl_wall_ms(r->o.clock) - (q->duration_us > 0 ? (uint64_t)q->duration_us / 1000 : 0);
    int64_t stands_for = q->open ? 1 : (int64_t)*left + 1;
    if (!q->open) *left = 0;
    PUT(r, PL_ROW_REQUEST, false, pl_v_id(q->id), pl_v_count(began), pl_v_text(q->service),
        pl_v_bytes(q->method, q->method_len), pl_v_bytes(q->route, q->route_len < 300 ? q->route_len : 300),
        pl_v_count(q->worker), pl_v_count(q->generation), pl_v_count(q->open ? 0 : (uint64_t)q->status),
        pl_v_text(q->open ? NULL : q->outcome), pl_v_text(q->reason), millis(q->open ? -1 : q->duration_us),
        millis(q->queue_us), millis(q->first_byte_us), pl_v_int(q->request_bytes), pl_v_int(q->reply_bytes),
        pl_v_int(q->input_tokens), pl_v_int(q->output_tokens), pl_v_text(q->replay), pl_v_int(stands_for));
    return true;
}

struct pl_record_sample pl_record_sample_of(const char *scope) {
    return (struct pl_record_sample){ .scope = scope,
                                      .allocated = -1,
                                      .reserved = -1,
                                      .peak = -1,
                                      .limit = -1,
                                      .used = -1,
                                      .total = -1,
                                      .foreign = -1,
                                      .rss = -1,
                                      .anon = -1,
                                      .swap = -1,
                                      .in_flight = -1,
                                      .requests = -1,
                                      .utilization = -1 };
}

void pl_record_sample(struct pl_record *r, const struct pl_record_sample *s) {
    if (r == NULL) return;
    PUT(r, PL_ROW_SAMPLE, false, pl_v_count(pl_wall_ms(r->o.clock)), pl_v_text(s->scope),
        pl_v_text(s->service), pl_v_count(s->worker), pl_v_count(s->generation), pl_v_int(s->allocated),
        pl_v_int(s->reserved), pl_v_int(s->peak), pl_v_int(s->limit), pl_v_int(s->used), pl_v_int(s->total),
        pl_v_int(s->foreign), pl_v_int(s->rss), pl_v_int(s->anon), pl_v_int(s->swap), pl_v_int(s->in_flight),
        pl_v_int(s->requests), pl_v_real(s->utilization), pl_v_int(-1));
}

void pl_record_verdict(struct pl_record *r, const struct pl_record_verdict *v) {
    if (r == NULL) return;
    PUT(r, PL_ROW_VERDICT, false, pl_v_count(pl_wall_ms(r->o.clock)), pl_v_text(v->service),
        pl_v_count(v->worker), pl_v_count(v->generation), pl_v_text(v->scope), pl_v_text(v->verdict),
        pl_v_text(v->shape), pl_v_text(v->confidence), pl_v_signed(v->bytes_per_request), pl_v_signed(v->low),
        pl_v_signed(v->high), pl_v_int(v->since_requests), pl_v_real(v->forecast_s), pl_v_text(v->tag),
        pl_v_real(v->share), pl_v_text(v->holder));
}

/* --- the thread's side */

static void tell(struct pl_record *r, const char *problem) {
    uint64_t bytes = r->store.db != NULL ? pl_store_bytes(&r->store) : 0;
    pthread_mutex_lock(&r->lock);
    r->look.in_memory = r->store.memory && r->path[0] != '\0';
    r->look.bytes = bytes;
    r->look.opened = true;
    if (problem != NULL) snprintf(r->look.problem, sizeof r->look.problem, "%s", problem);
    snprintf(r->file, sizeof r->file, "%s", r->store.memory ? "" : r->store.path);
    pthread_mutex_unlock(&r->lock);
}

static struct pl_record_boot boot_of(struct pl_record *r) { return r->o.boot; }

static bool begin(struct pl_record *r, struct pl_err *err) {
    struct pl_record_host host;
    struct pl_record_look found = { 0 };
    const struct pl_record_boot b = boot_of(r);
    bool known = r->o.host != NULL && r->o.host(r->o.host_ctx, &host);
    if (!pl_store_begin(&r->store, &b, r->boot_ms, known ? &host : NULL, &found, err)) return false;
    if (!found.unfinished) return true;
    pthread_mutex_lock(&r->lock);
    r->look.unfinished = true;
    memcpy(r->look.death, found.death, sizeof found.death);
    memcpy(r->look.cause, found.cause, sizeof found.cause);
    memcpy(r->look.sentence, found.sentence, sizeof found.sentence);
    r->look.seen_ms = found.seen_ms;
    pthread_mutex_unlock(&r->lock);
    return true;
}

static void into_memory(struct pl_record *r, const char *problem) {
    struct pl_err err = { 0 };
    char note[256];
    pl_store_close(&r->store);
    r->retry_ms = pl_now_ms(r->o.clock) + RETRY_MS;
    if (!pl_store_open(&r->store, NULL, note, sizeof note, &err) || !begin(r, &err))
        pl_store_close(&r->store);
    tell(r, problem);
}

static void open_first(struct pl_record *r) {
    struct pl_err err = { 0 };
    char note[256] = "";
    if (r->path[0] == '\0') {
        into_memory(r, NULL);
        return;
    }
    if (pl_store_open(&r->store, r->path, note, sizeof note, &err) && begin(r, &err))
        tell(r, note[0] != '\0' ? note : NULL);
    else
        into_memory(r, err.msg);
}

/* The disk may have room again. */
static void retry_file(struct pl_record *r, uint64_t now_ms) {
    struct pl_err err = { 0 };
    struct pl_store file;
    char note[256];
    if (!r->store.memory || r->path[0] == '\0' || now_ms < r->retry_ms) return;
    r->retry_ms = now_ms + RETRY_MS;
    bool opened = pl_store_open(&file, r->path, note, sizeof note, &err);
    if (!opened) return;
    char path[512];
    snprintf(path, sizeof path, "%s", file.path);
    pl_store_close(&file);
    if (r->store.db != NULL && !pl_store_move(&r->store, path, &err)) return;
    struct pl_store memory = r->store;
    if (!pl_store_open(&r->store, r->path, note, sizeof note, &err)) {
        r->store = memory;
        return;
    }
    pl_store_close(&memory);
    if (!begin(r, &err))
        into_memory(r, err.msg);
    else
        tell(r, "");
}

static void write_rows(struct pl_record *r, const char *rows, size_t len) {
    struct pl_err err = { 0 };
    struct pl_row row;
    if (r->store.db != NULL && pl_store_write(&r->store, rows, len, &err)) return;
    bool was_file = r->store.db != NULL && !r->store.memory;
    if (was_file) {
        into_memory(r, err.msg);
        if (r->store.db != NULL && pl_store_write(&r->store, rows, len, &err)) return;
    }
    for (size_t at = 0; pl_row_first(rows + at, len - at, &row); at += row.bytes)
        atomic_fetch_add(&r->dropped, 1);
}

static void tick(struct pl_record *r) {
    char row[1024];
    struct pl_record_host host = { 0 };
    uint64_t wall = pl_wall_ms(r->o.clock);
    const struct pl_value seen[] = { pl_v_count(wall), pl_v_id((uint64_t)r->store.boot) };
    if (r->store.db == NULL) return;
    if (pl_store_run(&r->store, "UPDATE boot SET seen_ms = ?1 WHERE boot = ?2", seen, 2) != SQLITE_OK) {
        struct pl_err err = { 0 };
        pl_store_fail(&r->store, "write", &err);
        if (!r->store.memory) into_memory(r, err.msg);
    }
    if (r->store.db == NULL || r->o.host == NULL || !r->o.host(r->o.host_ctx, &host)) return;
    const struct pl_value null = { .kind = PL_V_NULL };
    const struct pl_value v[] = { pl_v_count(wall),
                                  pl_v_text("instance"),
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  pl_v_count(host.limit),
                                  pl_v_count(host.used),
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  null,
                                  pl_v_id(host.oom_kills) };
    size_t n = pl_row_pack(row, sizeof row, PL_ROW_SAMPLE, v, sizeof v / sizeof *v);
    write_rows(r, row, n);
}

static void look_after(struct pl_record *r) {
    struct pl_err err = { 0 };
    uint64_t now = pl_now_ms(r->o.clock), most = atomic_load(&r->max_bytes);
    if (now - r->tick_ms >= TICK_MS) {
        r->tick_ms = now;
        tick(r);
        tell(r, NULL);
    }
    if (r->store.memory && most > PL_RECORD_MEMORY_BYTES) most = PL_RECORD_MEMORY_BYTES;
    bool large = r->store.db != NULL && pl_store_bytes(&r->store) > most + most / 8;
    if (r->store.db != NULL && (now - r->thin_ms >= THIN_EVERY_MS || large)) {
        r->thin_ms = now;
        if (!pl_store_thin(&r->store, pl_wall_ms(r->o.clock), most, atomic_load(&r->max_age_ms), &err) &&
            !r->store.memory)
            into_memory(r, err.msg);
    }
    retry_file(r, now);
}

static void give_copy(struct pl_record *r) {
    pthread_mutex_lock(&r->lock);
    void (*done)(void *, int) = r->copy_done;
    void *ctx = r->copy_ctx;
    r->copy_done = NULL;
    pthread_mutex_unlock(&r->lock);
    if (done != NULL) done(ctx, pl_store_copy(&r->store));
}

static struct timespec after_ms(uint64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(ms / 1000);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* Until something waits and has gathered a little, something urgent waits, or a second is over. */
static void wait_for_rows(struct pl_record *r) {
    struct timespec tick_at = after_ms(TICK_MS), linger = { 0 };
    bool lingers = false;
    while (!r->stopping && !r->urgent && r->copy_done == NULL) {
        if (r->fill.len > 0 && !lingers) {
            linger = after_ms(LINGER_MS);
            lingers = true;
        }
        if (r->fill.len > r->fill.cap / 2) return;
        if (pthread_cond_timedwait(&r->bell, &r->lock, lingers ? &linger : &tick_at) != 0) return;
    }
}

static void *work(void *arg) {
    struct pl_record *r = arg;
    open_first(r);
    pthread_mutex_lock(&r->lock);
    for (bool stop = false; !stop;) {
        wait_for_rows(r);
        struct pl_buf full = r->fill;
        stop = r->stopping;
        r->fill = r->work;
        r->fill.len = 0;
        r->work = full;
        r->urgent = false;
        pthread_mutex_unlock(&r->lock);
        if (full.len > 0) write_rows(r, full.data, full.len);
        look_after(r);
        give_copy(r);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    struct pl_err err = { 0 };
    if (r->store.db != NULL) pl_store_end(&r->store, pl_wall_ms(r->o.clock), r->status, &err);
    pl_store_close(&r->store);
    pthread_mutex_lock(&r->lock);
    r->left = true;
    pthread_cond_signal(&r->left_bell);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* --- its own life */

static void copy_texts(struct pl_record *r) {
    struct pl_record_boot *b = &r->o.boot;
    snprintf(r->path, sizeof r->path, "%s", r->o.path != NULL ? r->o.path : "");
    snprintf(r->reason, sizeof r->reason, "%s", b->reason != NULL ? b->reason : "first");
    snprintf(r->version, sizeof r->version, "%s", b->version != NULL ? b->version : "");
    snprintf(r->instance, sizeof r->instance, "%s", b->instance != NULL ? b->instance : "");
    snprintf(r->config, sizeof r->config, "%s", b->config != NULL ? b->config : "");
    b->reason = r->reason;
    b->version = r->version;
    b->instance = r->instance;
    b->config = r->config;
    r->o.path = NULL;
}

struct pl_record *pl_record_create(const struct pl_record_options *o) {
    struct pl_record *r = calloc(1, sizeof *r);
    pthread_condattr_t monotonic;
    sigset_t all, before;
    if (r == NULL) return NULL;
    r->o = *o;
    copy_texts(r);
    pl_record_limits(r, o->max_bytes, o->max_age_ms);
    pl_buf_init(&r->fill, o->queue_bytes != 0 ? o->queue_bytes : (size_t)PL_RECORD_QUEUE_BYTES);
    pl_buf_init(&r->work, r->fill.cap);
    r->boot_ms = pl_wall_ms(o->clock);
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->bell, &monotonic);
    pthread_cond_init(&r->left_bell, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are the main thread's business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&r->thread, NULL, work, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0) return r;
    free(r);
    return NULL;
}

void pl_record_limits(struct pl_record *r, uint64_t max_bytes, uint64_t max_age_ms) {
    if (r == NULL) return;
    atomic_store(&r->max_bytes,
                 max_bytes > PL_RECORD_LEAST_BYTES ? max_bytes : (uint64_t)PL_RECORD_LEAST_BYTES);
    atomic_store(&r->max_age_ms, max_age_ms);
}

void pl_record_destroy(struct pl_record *r, int status) {
    if (r == NULL) return;
    struct timespec until = after_ms(GOODBYE_MS);
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    r->status = status;
    pthread_cond_signal(&r->bell);
    while (!r->left && pthread_cond_timedwait(&r->left_bell, &r->lock, &until) == 0) continue;
    bool left = r->left;
    pthread_mutex_unlock(&r->lock);
    if (!left) { /* a disk that does not answer: the process ends, and the thread with it */
        pthread_detach(r->thread);
        return;
    }
    pthread_join(r->thread, NULL);
    pl_buf_free(&r->fill);
    pl_buf_free(&r->work);
    pthread_cond_destroy(&r->bell);
    pthread_cond_destroy(&r->left_bell);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void pl_record_look(const struct pl_record *r, struct pl_record_look *out) {
    struct pl_record *own = (struct pl_record *)(uintptr_t)r; /* the lock alone is written to */
    pthread_mutex_lock(&own->lock);
    *out = r->look;
    pthread_mutex_unlock(&own->lock);
    out->dropped = atomic_load(&own->dropped);
}

void pl_record_file(const struct pl_record *r, char *out, size_t room) {
    struct pl_record *own = (struct pl_record *)(uintptr_t)r;
    pthread_mutex_lock(&own->lock);
    snprintf(out, room, "%s", r->file);
    pthread_mutex_unlock(&own->lock);
}

void pl_record_copy(struct pl_record *r, void (*done)(void *ctx, int fd), void *ctx) {
    pthread_mutex_lock(&r->lock);
    void (*other)(void *, int) = r->copy_done;
    void *other_ctx = r->copy_ctx;
    r->copy_done = done;
    r->copy_ctx = ctx;
    pthread_cond_signal(&r->bell);
    pthread_mutex_unlock(&r->lock);
    if (other != NULL) other(other_ctx, -1);
}

void pl_record_path(const char *wanted, const char *state_dir, char *out, size_t room) {
    bool automatic = wanted == NULL || strcmp(wanted, "auto") == 0;
    out[0] = '\0';
    if (automatic && state_dir != NULL && state_dir[0] != '\0')
        snprintf(out, room, "%s/record.sqlite", state_dir);
    else if (!automatic && strcmp(wanted, "memory") != 0)
        snprintf(out, room, "%s", wanted);
}
