/* planned.c - what an engine's memory should become, before it does: `plimsoll plan` is run beside the start
 * of a worker, once for each command and device, when the command names a model that is a file or a folder
 * here. A child of main does it, with an empty environment: a model's files are foreign, and large. What it
 * answers is compared with what the engine says once it is READY (gateway/boot.c); nobody waits for it but
 * that. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew/devices.h"
#include "crew/look.h"
#include "crew/more.h"
#include "net/errand.h"
#include "worker/boot_plan.h"
#include "worker/devices.h"

enum { LIMIT_MS = 30000, WATCH_MS = 15000, SAID_BYTES = 1 << 20, ARENA_BYTES = 1 << 16, PATH_BYTES = 4096 };

struct pl_planned {
    struct pl_boot_plan plan;
    uint64_t hash;  /* of command and device; 0: none */
    int64_t failed; /* exit status of a child that made none; -1: it was ended, or could not be started */
    bool on_device; /* of the one that runs */
    struct pl_errand *running; /* NULL: none */
};

bool pl_planned_waits(const struct pl_worker *w) {
    const struct pl_planned *p = w->service->more->planned;
    return pl_boot_plan_model(w->service->config) != NULL &&
           (!w->more->plan_asked || (p != NULL && p->running != NULL));
}

const struct pl_boot_plan *pl_planned_of(const struct pl_worker *w) {
    const struct pl_planned *p = w->service->more->planned;
    return p != NULL && p->plan.made ? &p->plan : NULL;
}

int64_t pl_planned_failed(const struct pl_worker *w) {
    const struct pl_planned *p = w->service->more->planned;
    return p != NULL ? p->failed : 0;
}

/* --- its answer */

static uint64_t number(const json_t *o, const char *key) {
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

static struct pl_boot_bytes bytes_of(const json_t *budget, const char *name) {
    const json_t *bytes = json_object_get(json_object_get(budget, name), "bytes");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return (struct pl_boot_bytes){ .known = false };
    return (struct pl_boot_bytes){ .known = true, .bytes = (uint64_t)json_integer_value(bytes) };
}

static uint64_t largest_block(const json_t *ranks) {
    uint64_t most = 0;
    size_t i;
    json_t *one;
    json_array_foreach(ranks, i, one) {
        uint64_t n = number(one, "block_bytes");
        if (n > most) most = n;
    }
    return most;
}

/* Without a GPU only what does not depend on one is taken: an engine on the CPU has other rules. */
static void take(struct pl_boot_plan *p, const json_t *doc, bool on_device) {
    const json_t *budget = json_object_get(doc, "budget");
    const char *engine = json_string_value(json_object_get(doc, "engine"));
    bool llama = engine != NULL && strcmp(engine, "llama.cpp") == 0;
    *p = (struct pl_boot_plan){ .made = json_is_object(budget) };
    if (!p->made) return;
    if (bytes_of(budget, "weights").bytes == 0) on_device = false; /* nor is what they leave known */
    for (int i = 0; i < PL_BOOT_PARTS; i++)
        if (i == PL_BOOT_WEIGHTS || (on_device && !llama))
            p->side.part[i] = bytes_of(budget, pl_boot_part_name((enum pl_boot_part)i));
    if (p->side.part[PL_BOOT_WEIGHTS].bytes == 0) p->side.part[PL_BOOT_WEIGHTS].known = false;
    if (llama) { /* its cache is as long as it is told to be, not what is left */
        uint64_t kv = number(doc, "request_bytes");
        p->side.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = kv > 0, .bytes = kv };
        return;
    }
    if (on_device) p->side.total_bytes = number(doc, "total_bytes");
    if (on_device) p->margin_bytes = bytes_of(budget, "margin").bytes;
    if (number(doc, "pp") > 1 || number(doc, "dp") > 1) return; /* its tokens are not one card's */
    p->block_tokens = number(doc, "block_tokens");
    p->block_bytes = largest_block(json_object_get(doc, "ranks"));
    if (number(doc, "groups") <= 1) p->token_bytes = number(doc, "token_bytes");
}

/* --- the child */

static void on_done(void *ctx, struct pl_errand_result *r) {
    struct pl_service *s = ctx;
    struct pl_planned *p = s->more->planned;
    json_t *doc = NULL;
    p->running = NULL;
    /* 1: it does not fit, which the plan says with numbers */
    bool answered = r->end == PL_ERRAND_EXITED && r->status <= 1 && r->said->len > 0;
    if (answered) doc = json_loadb(r->said->data, r->said->len, JSON_REJECT_DUPLICATES, NULL);
    take(&p->plan, doc, p->on_device);
    if (!p->plan.made) p->failed = r->end == PL_ERRAND_EXITED && r->status > 1 ? r->status : -1;
    json_decref(doc);
    pl_engine_planned(s);
}

static void start(struct pl_service *s, const char *const *words) {
    static char program[] = "/proc/self/exe"; /* also when its file has been replaced since */
    char *argv[PL_BOOT_PLAN_WORDS + 1] = { program };
    struct pl_planned *p = s->more->planned;
    struct pl_err err;
    const struct pl_errand_order o = { .loop = s->crew->app->loop,
                                       .argv = argv,
                                       .bytes_most = SAID_BYTES,
                                       .limit_ms = LIMIT_MS,
                                       .done = on_done,
                                       .ctx = s };
    for (size_t i = 0; words[i] != NULL; i++) argv[i + 1] = (char *)(uintptr_t)words[i];
    p->running = pl_errand_start(&o, &err);
    if (p->running != NULL) return;
    p->failed = -1;
    pl_engine_planned(s);
}

/* --- when, and of what */

/* The first GPU that the worker may use. False: nothing is known of one, yet or (*never) ever. */
static bool device_of(const struct pl_worker *w, struct pl_boot_device *out, bool *never) {
    struct pl_look_gpu gpus[PL_WATCH_GPUS];
    const struct pl_crew *c = w->service->crew;
    char names[PL_DEVICES_TEXT];
    bool told = false;
    struct pl_err err;
    size_t n = pl_look_gpus(c, pl_crew_now(c), gpus, PL_WATCH_GPUS);
    if (!pl_devices_of(w->service->config, getenv("CUDA_VISIBLE_DEVICES"), w->slot, names, &told, &err))
        return false;
    names[strcspn(names, ",")] = '\0';
    *never = told && names[0] == '\0';
    for (size_t i = 0; i < n; i++) {
        char index[16];
        snprintf(index, sizeof index, "%u", gpus[i].gpu);
        bool mine = !told || strcmp(names, index) == 0 || strcmp(names, gpus[i].uuid) == 0;
        if (!mine || gpus[i].total == PL_LOOK_UNKNOWN || gpus[i].total == 0) continue;
        *out = (struct pl_boot_device){ .product = gpus[i].name, .total_bytes = gpus[i].total };
        return true;
    }
    return false;
}

static uint64_t host_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), each = sysconf(_SC_PAGESIZE);
    return pages > 0 && each > 0 ? (uint64_t)pages * (uint64_t)each : 0;
}

/* Where the model is, if it is one here: a folder with a config.json, or a file. */
static bool find_model(const struct pl_service_config *s, char out[PATH_BYTES]) {
    char config[PATH_BYTES + 16];
    const char *model = pl_boot_plan_model(s);
    if (model == NULL || model[0] == '\0') return false;
    int n = model[0] == '/' || s->working_dir == NULL
                ? snprintf(out, PATH_BYTES, "%s", model)
                : snprintf(out, PATH_BYTES, "%s/%s", s->working_dir, model);
    if (n <= 0 || n >= PATH_BYTES) return false;
    snprintf(config, sizeof config, "%s/config.json", out);
    size_t len = strlen(out);
    bool gguf = len > 5 && strcmp(out + len - 5, ".gguf") == 0;
    return access(gguf ? out : config, R_OK) == 0;
}

static uint64_t mixed(uint64_t hash, const struct pl_boot_device *d) {
    hash ^= d->total_bytes * UINT64_C(0x9e3779b97f4a7c15);
    return hash != 0 ? hash : 1;
}

static void plan(struct pl_worker *w, const struct pl_boot_device *d) {
    struct pl_service *s = w->service;
    struct pl_planned *p = s->more->planned;
    char model[PATH_BYTES];
    const char *words[PL_BOOT_PLAN_WORDS];
    struct pl_arena arena;
    uint64_t hash = mixed(pl_engine_hash(s->config), d);
    if (p == NULL) p = s->more->planned = calloc(1, sizeof *p);
    if (p == NULL || p->hash == hash) return;
    p->plan = (struct pl_boot_plan){ .made = false };
    p->failed = 0;
    p->hash = 0;
    if (!find_model(s->config, model)) return;
    pl_arena_init(&arena, ARENA_BYTES);
    p->on_device = d->product != NULL;
    p->hash = hash;
    if (pl_boot_plan_words(s->config, model, d, &arena, words)) start(s, words);
    pl_arena_free(&arena);
}

/* Watch has not said yet whether there is a GPU, or there is one and nothing is known of it for the moment.
 */
static bool is_early(const struct pl_crew *c, uint64_t now) {
    const struct pl_devices *d = c->devices;
    bool open = d != NULL && (d->driver.at_ms == 0 || d->driver.state == PL_WATCH_DRIVER_RUNS);
    return open && c->watch_path != NULL && now < c->app->started_ms + WATCH_MS;
}

/* As soon as its GPU is known; a worker that is READY without one has none. */
static void look(struct pl_worker *w, uint64_t now) {
    struct pl_boot_device d = { .product = NULL, .total_bytes = 0 };
    const struct pl_planned *p = w->service->more->planned;
    bool never = false, starts = w->state == PL_WORKER_LOADING || w->state == PL_WORKER_WARMING;
    if (w->more->plan_asked || (!starts && w->state != PL_WORKER_READY)) return;
    if (p != NULL && p->running != NULL) return;
    if (pl_boot_plan_model(w->service->config) == NULL) {
        w->more->plan_asked = true;
        return;
    }
    if (!device_of(w, &d, &never)) {
        if (!never && (starts || is_early(w->service->crew, now))) return;
        d.total_bytes = host_bytes();
    }
    w->more->plan_asked = true;
    plan(w, &d);
}

void pl_planned_tick(struct pl_crew *c, uint64_t now) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        if (!pl_engine_is_llm(s)) continue;
        for (struct pl_worker *w = s->workers; w != NULL; w = w->next) look(w, now);
    }
}

void pl_planned_close(struct pl_crew *c) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_planned *p = c->every[i]->more->planned;
        if (p == NULL) continue;
        pl_errand_drop(p->running);
        p->running = NULL;
    }
}
