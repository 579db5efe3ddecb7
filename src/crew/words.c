/* words.c - what a worker's output says of memory, as it is printed: events, and what an engine tells of its
 * own cache. The rules are sample/oom.h. */
#include "crew/more.h"
#include "sample/oom.h"

enum { MOST_FIELDS = 12 };

struct fields {
    struct pl_field at[MOST_FIELDS];
    size_t count;
};

static void add(struct fields *f, struct pl_field one) { f->at[f->count++] = one; }

static void add_bytes(struct fields *f, const char *name, uint64_t bytes) {
    if (bytes != PL_OOM_UNKNOWN) add(f, F_INT(name, bytes));
}

/* False: one of its kind was told less than a second ago. */
static bool begin(struct fields *f, const struct pl_worker *w, struct pl_log_sampler *sampler,
                  const struct pl_oom *o) {
    int64_t suppressed = pl_log_sample(sampler, pl_crew_now(w->service->crew));
    *f = (struct fields){ .count = 0 };
    if (suppressed == -1) return false;
    add(f, F_STR("service", w->service->config->id));
    add(f, F_INT("worker", w->slot));
    add(f, F_INT("generation", w->generation));
    if (o->device != UINT32_MAX) add(f, F_INT("device", o->device));
    if (suppressed > 0) add(f, F_INT("suppressed", suppressed));
    return true;
}

static void say(const struct pl_worker *w, enum pl_level level, const char *event, const struct fields *f) {
    pl_log_emit(w->service->crew->app->log, level, event, f->at, f->count);
}

static void tell_oom(struct pl_worker *w, const struct pl_oom *o) {
    struct fields f;
    char words[200];
    if (!begin(&f, w, &w->more->words.oom, o)) return;
    pl_oom_say(o, words, sizeof words);
    add(&f, F_STR("kind", pl_oom_kind_name(o->kind)));
    add(&f, F_STR("oom_verdict", pl_oom_verdict_name(pl_oom_judge(o))));
    add_bytes(&f, "requested_bytes", o->requested);
    add_bytes(&f, "free_bytes", o->free);
    if (words[0] != '\0') add(&f, F_STR("message", words));
    say(w, PL_ERROR, "memory.oom", &f);
}

/* Once the retry has saved it; twice with the same size an OOM follows. */
static void tell_retry(struct pl_worker *w, const struct pl_oom *o) {
    struct fields f;
    w->more->words.retries++;
    if (!begin(&f, w, &w->more->words.retry, o)) return;
    add(&f, F_INT("count", w->more->words.retries));
    add_bytes(&f, "size_bytes", o->requested);
    add_bytes(&f, "free_bytes", o->free);
    say(w, PL_WARN, "memory.retries", &f);
}

static void tell_line(struct pl_worker *w, const struct pl_oom *o, const char *line, size_t len) {
    struct fields f;
    bool good = o->kind == PL_OOM_VLLM_AVAILABLE && o->available_gib > 0 && o->available_gib < 1e6;
    if (good && w->more->was_ready) w->more->words.kv_bytes = (uint64_t)(o->available_gib * (1 << 30));
    if (!begin(&f, w, &w->more->words.line, o)) return;
    add(&f, F_STR("kind", pl_oom_kind_name(o->kind)));
    add(&f, F_TEXT("text", line + o->at, len - o->at));
    say(w, good ? PL_INFO : PL_WARN, "engine.line", &f);
}

/* Until it is READY no request's words are in its output. */
static void read_boot(struct pl_worker *w, const char *line, size_t len) {
    struct pl_worker_words *words = &w->more->words;
    const struct pl_boot_bytes *kv = &words->boot.part[PL_BOOT_KV];
    if (w->more->was_ready || !pl_engine_boot_line(&words->boot, line, len)) return;
    if (kv->known && !words->boot.host_buffers_only) words->kv_bytes = kv->bytes;
}

void pl_words_read(struct pl_worker *w, const char *line, size_t len) {
    struct pl_oom o;
    read_boot(w, line, len);
    if (!pl_oom_in_line(line, len, &o)) return;
    switch (pl_oom_class_of(o.kind)) {
    case PL_OOM_CLASS_GPU:
        tell_oom(w, &o);
        break;
    case PL_OOM_CLASS_WARNING:
        tell_retry(w, &o);
        break;
    case PL_OOM_CLASS_SIZING:
    case PL_OOM_CLASS_HOST:
        tell_line(w, &o, line, len);
        break;
    case PL_OOM_CLASS_NONE:
    default:
        break;
    }
}
