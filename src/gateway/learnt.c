/* gateway/learnt.c - what was learnt outlives main: state_dir/learnt/SERVICE.json, read once at the start,
 * written beside the loop to a name of its own and then moved, so that it is whole or the old one. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "gateway/models.h"

enum { VERSION = 1, FILE_MOST = 1 << 20, TICK_MS = 30000, PATH_MOST = 600 };

static void path_of(const struct pl_gate *gate, char out[PATH_MOST]) {
    snprintf(out, PATH_MOST, "%s/learnt/%s.json", gate->g->o.state_dir, gate->service->config->id);
}

/* --- reading */

static bool read_numbers(const json_t *list, double *out, size_t count) {
    if (json_array_size(list) != count) return false;
    for (size_t i = 0; i < count; i++) {
        if (!json_is_number(json_array_get(list, i))) return false;
        out[i] = json_number_value(json_array_get(list, i));
    }
    return true;
}

static void restore(struct pl_gate *gate, const json_t *o) {
    const char *name = json_string_value(json_object_get(o, "model"));
    struct pl_tokens t = { .seen = (uint64_t)json_integer_value(json_object_get(o, "seen")),
                           .factor = json_number_value(json_object_get(o, "factor")),
                           .error = json_number_value(json_object_get(o, "error")) };
    if (name == NULL || name[0] == '\0' || gate->learnt.count == PL_GATE_MODELS) return;
    if (!read_numbers(json_object_get(o, "weights"), t.weight, PL_TOKEN_FEATURES) ||
        !read_numbers(json_object_get(o, "covariance"), t.covariance[0],
                      (size_t)PL_TOKEN_FEATURES * PL_TOKEN_FEATURES) ||
        !pl_tokens_check(&t))
        return; /* of another version, or damaged: it learns again */
    struct pl_model *m = pl_model_of(gate, name);
    json_int_t answer = json_integer_value(json_object_get(o, "answer_tokens"));
    if (m == NULL) return;
    m->tokens = t;
    if (answer > 0 && answer <= UINT32_MAX) m->answers.expect = (uint32_t)answer;
}

static void restore_budget(struct pl_gate *gate, const json_t *o) {
    const char *name = json_string_value(json_object_get(o, "gpu"));
    json_int_t bytes = json_integer_value(json_object_get(o, "bytes"));
    json_int_t quiet = json_integer_value(json_object_get(o, "quiet_ms"));
    if (name == NULL || bytes <= 0 || quiet <= 0) return;
    struct pl_budget *b = &gate->admit.places[pl_budget_place(gate, name)];
    pl_budget_restore(b, (uint64_t)bytes, (uint64_t)quiet, pl_gateway_now(gate->g));
}

/* [[index, bytes, requests], ...] */
static void restore_cells(struct pl_peak *cells, size_t count, const json_t *list) {
    size_t n;
    json_t *one;
    json_array_foreach(list, n, one) {
        json_int_t i = json_integer_value(json_array_get(one, 0));
        json_int_t total = json_integer_value(json_array_get(one, 1));
        json_int_t requests = json_integer_value(json_array_get(one, 2));
        bool ok = i >= 0 && (uint64_t)i < count && total >= 0 && (uint64_t)total <= PL_PEAKS_MOST;
        if (!ok || requests <= 0 || requests > INT32_MAX) continue;
        cells[i].total[1] = (uint64_t)total; /* as the window before: it is forgotten like any other */
        cells[i].requests[1] = (uint32_t)requests;
    }
}

static void restore_peaks(struct pl_gate *gate, const json_t *o) {
    const char *path = json_string_value(json_object_get(o, "path"));
    json_int_t seen = json_integer_value(json_object_get(o, "seen"));
    if (path == NULL || path[0] == '\0' || seen <= 0 || gate->peaks.count == PL_PEAKS_ROUTES) return;
    struct pl_peaks_route *r = pl_peaks_add(&gate->peaks, path, strlen(path));
    if (r == NULL) return;
    r->seen = (uint64_t)seen;
    restore_cells(r->size, PL_PEAKS_SIZES, json_object_get(o, "sizes"));
    restore_cells(r->batch, PL_PEAKS_BATCHES, json_object_get(o, "batches"));
    pl_peaks_settle(r);
}

/* "weights": [bytes, what rounding hides] */
static struct pl_boot_bytes restore_part(const json_t *pair) {
    json_int_t bytes = json_integer_value(json_array_get(pair, 0));
    json_int_t off = json_integer_value(json_array_get(pair, 1));
    bool ok = json_array_size(pair) == 2 && json_is_integer(json_array_get(pair, 0)) && bytes >= 0 &&
              bytes < INT64_C(1) << 50 && off >= 0 && off < INT64_C(1) << 40;
    return ok ? (struct pl_boot_bytes){ .known = true, .bytes = (uint64_t)bytes, .off = (uint64_t)off }
              : (struct pl_boot_bytes){ .known = false };
}

/* A start of this keeper's life was checked already, by a main before this one. Older files know the bytes of
 * the cache only. */
static void restore_boot(struct pl_gate *gate, const json_t *o) {
    struct pl_boot *b = &gate->llm.boot;
    json_int_t bytes = json_integer_value(json_object_get(o, "kv_bytes"));
    json_int_t tokens = json_integer_value(json_object_get(o, "kv_tokens"));
    json_int_t total = json_integer_value(json_object_get(o, "total_bytes"));
    json_int_t generation = json_integer_value(json_object_get(o, "generation"));
    const char *command = json_string_value(json_object_get(o, "command"));
    const char *keeper = json_string_value(json_object_get(o, "keeper"));
    const char *version = json_string_value(json_object_get(o, "version"));
    const json_t *parts = json_object_get(o, "parts");
    if (command == NULL) return;
    b->command = strtoull(command, NULL, 16);
    for (int p = 0; p < PL_BOOT_PARTS; p++)
        b->last.part[p] = restore_part(json_object_get(parts, pl_boot_part_name((enum pl_boot_part)p)));
    if (parts == NULL && bytes > 0)
        b->last.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = true, .bytes = (uint64_t)bytes };
    if (tokens > 0) b->last.kv_tokens = (uint64_t)tokens;
    if (total > 0) b->last.total_bytes = (uint64_t)total;
    json_int_t length = json_integer_value(json_object_get(o, "length"));
    if (length > 0) b->length = (uint64_t)length;
    b->ratio = json_number_value(json_object_get(o, "ratio"));
    if (version != NULL) snprintf(b->last.version, sizeof b->last.version, "%s", version);
    if (keeper != NULL && generation > 0 && strtoull(keeper, NULL, 16) == gate->g->o.app->keeper_boot)
        b->checked = (uint64_t)generation;
    pl_boot_restored(gate);
}

void pl_learnt_load(struct pl_gate *gate) {
    char path[PATH_MOST];
    size_t i;
    json_t *one;
    if (gate->g->o.state_dir == NULL) return;
    path_of(gate, path);
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MOST) return;
    json_t *all = json_loadf(f, 0, NULL);
    if (json_integer_value(json_object_get(all, "v")) == VERSION) {
        json_array_foreach(json_object_get(all, "models"), i, one) restore(gate, one);
        restore_boot(gate, json_object_get(all, "boot"));
        json_array_foreach(json_object_get(all, "budgets"), i, one) restore_budget(gate, one);
        json_array_foreach(json_object_get(all, "peaks"), i, one) restore_peaks(gate, one);
    }
    json_decref(all);
}

/* --- writing */

struct saving {
    uv_work_t work;
    struct pl_gate *gate;
    char path[PATH_MOST];
    char *text; /* owned, for free() */
};

static json_t *numbers(const double *at, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_real(at[i]));
    return list;
}

/* Those that an OOM has lowered. */
static json_t *budgets(const struct pl_gate *gate) {
    json_t *list = json_array();
    for (unsigned i = 0; i < gate->place_count; i++) {
        const struct pl_budget *b = &gate->admit.places[i];
        if (b->taught != 0)
            json_array_append_new(list,
                                  json_pack("{s:s,s:I,s:I}", "gpu", gate->places[i].name, "bytes",
                                            (json_int_t)b->taught, "quiet_ms", (json_int_t)b->quiet_ms));
    }
    return list;
}

static json_t *cells(const struct pl_peak *c, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        int k = c[i].requests[1] != 0 && (c[i].requests[0] == 0 || c[i].total[1] > c[i].total[0]) ? 1 : 0;
        if (c[i].requests[k] == 0) continue;
        json_array_append_new(list, json_pack("[I,I,I]", (json_int_t)i, (json_int_t)c[i].total[k],
                                              (json_int_t)c[i].requests[k]));
    }
    return list;
}

static json_t *peaks(const struct pl_gate *gate) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < gate->peaks.count; i++) {
        const struct pl_peaks_route *r = &gate->peaks.at[i];
        if (r->seen == 0) continue;
        json_array_append_new(list, json_pack("{s:s,s:I,s:o,s:o}", "path", r->path, "seen",
                                              (json_int_t)r->seen, "sizes", cells(r->size, PL_PEAKS_SIZES),
                                              "batches", cells(r->batch, PL_PEAKS_BATCHES)));
    }
    return list;
}

static json_t *hex(uint64_t n) {
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)n);
    return json_string(text);
}

static json_t *boot(const struct pl_gate *gate) {
    const struct pl_boot *b = &gate->llm.boot;
    json_t *parts = json_object();
    for (int p = 0; p < PL_BOOT_PARTS; p++) {
        const struct pl_boot_bytes *one = &b->last.part[p];
        if (one->known)
            json_object_set_new(parts, pl_boot_part_name((enum pl_boot_part)p),
                                json_pack("[I,I]", (json_int_t)one->bytes, (json_int_t)one->off));
    }
    return json_pack("{s:o,s:I,s:I,s:I,s:s,s:o,s:I,s:f,s:I,s:o}", "command", hex(b->command), "kv_bytes",
                     (json_int_t)b->last.part[PL_BOOT_KV].bytes, "kv_tokens", (json_int_t)b->last.kv_tokens,
                     "total_bytes", (json_int_t)b->last.total_bytes, "version", b->last.version, "keeper",
                     hex(gate->g->o.app->keeper_boot), "generation", (json_int_t)b->checked, "ratio",
                     b->ratio, "length", (json_int_t)b->length, "parts", parts);
}

static char *describe(const struct pl_gate *gate) {
    json_t *models = json_array();
    for (size_t i = 0; i < gate->learnt.count; i++) {
        const struct pl_model *m = gate->learnt.at[i];
        const struct pl_tokens *t = &m->tokens;
        json_array_append_new(
            models, json_pack("{s:s,s:I,s:I,s:f,s:f,s:o,s:o}", "model", m->name, "seen", (json_int_t)t->seen,
                              "answer_tokens", (json_int_t)m->answers.expect, "factor", t->factor, "error",
                              t->error, "weights", numbers(t->weight, PL_TOKEN_FEATURES), "covariance",
                              numbers(t->covariance[0], (size_t)PL_TOKEN_FEATURES * PL_TOKEN_FEATURES)));
    }
    json_t *all = json_pack("{s:i,s:s,s:s,s:o,s:o,s:o}", "v", VERSION, "kind", "learnt", "service",
                            gate->service->config->id, "models", models, "budgets", budgets(gate), "peaks",
                            peaks(gate));
    if (gate->llm.boot.command != 0) json_object_set_new(all, "boot", boot(gate));
    char *text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(all);
    return text;
}

static void write_now(uv_work_t *work) {
    struct saving *s = work->data;
    char folder[PATH_MOST], draft[PATH_MOST + 8];
    size_t len = strlen(s->text);
    snprintf(folder, sizeof folder, "%s", s->path);
    *strrchr(folder, '/') = '\0';
    snprintf(draft, sizeof draft, "%s.new", s->path);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return;
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1) return;
    bool ok = write(fd, s->text, len) == (ssize_t)len;
    if (close(fd) != 0) ok = false;
    if (!ok || rename(draft, s->path) != 0)
        unlink(draft); /* a full disk costs what was learnt, and no more */
}

static void written(uv_work_t *work, int status) {
    struct saving *s = work->data;
    (void)status;
    s->gate->learnt.saving = false;
    free(s->text);
    free(s);
}

void pl_learnt_save(struct pl_gate *gate) {
    if (gate->g->o.state_dir == NULL || !gate->learnt.changed || gate->learnt.saving) return;
    struct saving *s = calloc(1, sizeof *s);
    if (s == NULL) return;
    s->gate = gate;
    s->work.data = s;
    s->text = describe(gate);
    path_of(gate, s->path);
    gate->learnt.changed = false;
    gate->learnt.saving = true;
    if (s->text == NULL || uv_queue_work(gate->g->o.app->loop, &s->work, write_now, written) != 0)
        written(&s->work, 0);
}

static void on_save(struct pl_timer *t) {
    struct pl_gateway *g = PL_TIMER_OWNER(t, struct pl_gateway, save_timer);
    for (size_t i = 0; i < g->gate_count; i++) {
        pl_budget_pass_time(&g->gates[i]);
        pl_learnt_save(&g->gates[i]);
    }
    pl_learnt_watch(g);
}

void pl_learnt_watch(struct pl_gateway *g) { pl_timer_start(g->o.timers, &g->save_timer, TICK_MS, on_save); }

void pl_learnt_free(struct pl_gate *gate) {
    pl_calibrate_stop(gate);
    for (size_t i = 0; i < gate->learnt.count; i++) free(gate->learnt.at[i]);
    gate->learnt.count = 0;
}
