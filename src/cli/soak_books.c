#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/figures.h"
#include "cli/soak.h"
#include "plimsoll/shm.h"
#include "sample/proc.h"

/* In the order of admin/rows.c. */
enum { N, ID, TAG, OUTCOME, STATUS, FLAGS, BATCH, DEVICE, TOOK, BEFORE, ALLOCATED, RESERVED, PEAK, HOST };

static uint64_t now_ms(void) { return pl_now_us() / 1000; }

/* --- the curve */

static void add_point(struct pl_soak_books *b) {
    if (b->stride == 0) b->stride = 1;
    if (b->rows % b->stride != 0) return;
    if (b->points == PL_SOAK_CURVE) {
        for (size_t i = 0; i < PL_SOAK_CURVE / 2; i++) b->curve[i] = b->curve[2 * i + 1];
        b->points = PL_SOAK_CURVE / 2;
        b->stride *= 2;
        if (b->rows % b->stride != 0) return;
    }
    b->curve[b->points++] = b->now;
}

/* --- peaks by tag and batch */

static void note_peak(struct pl_soak_books *b, const struct pl_ledger_row *r, const char *tag) {
    if (!r->known || !r->peak_exact) return;
    b->last_peak_bytes = r->peak;
    b->last_before_bytes = r->before;
    if (r->peak > b->peak_bytes) b->peak_bytes = r->peak;
    int k = 0;
    for (uint32_t most = 1; k < PL_LEDGER_BATCHES - 1 && r->batch > most; k++) most *= 2;
    b->batch[k].requests++;
    if (r->peak > b->batch[k].bytes) b->batch[k].bytes = r->peak;
    size_t i = 0;
    while (i < b->peaks && strcmp(b->peak[i].tag, tag) != 0) i++;
    if (i == PL_SOAK_TAGS) i--; /* the rest is one */
    if (i == b->peaks) {
        snprintf(b->peak[i].tag, sizeof b->peak[i].tag, "%s", tag);
        b->peaks++;
    }
    b->peak[i].requests++;
    if (r->peak > b->peak[i].bytes) b->peak[i].bytes = r->peak;
}

/* --- rows of a page */

static uint64_t cell(const json_t *row, size_t i) {
    json_int_t v = json_integer_value(json_array_get(row, i));
    return v > 0 ? (uint64_t)v : 0;
}

static void take_row(struct pl_soak_books *b, struct pl_soak_worker *w, const json_t *row) {
    uint64_t flags = cell(row, FLAGS), tag = cell(row, TAG), outcome = cell(row, OUTCOME);
    bool unbegun = (flags & PL_RECORD_UNBEGUN) != 0;
    if ((unbegun && !b->unbegun_too) || (flags & PL_RECORD_WARMUP) != 0) return;
    const struct pl_ledger_row r = {
        .at_ms = now_ms() - b->from_ms,
        .tag = (uint16_t)tag,
        .gpu = cell(row, DEVICE) < PL_LEDGER_GPUS ? (uint8_t)cell(row, DEVICE) : UINT8_MAX,
        .failed = outcome != PL_OUTCOME_OK,
        .quiet = (flags & (PL_RECORD_ALONE | PL_RECORD_QUIESCENT)) == (PL_RECORD_ALONE | PL_RECORD_QUIESCENT),
        .peak_exact = (flags & PL_RECORD_PEAK_EXACT) != 0,
        .oom = (flags & PL_RECORD_OOM) != 0,
        .known = (flags & PL_RECORD_MEMORY) != 0,
        .batch = (uint32_t)cell(row, BATCH),
        .before = cell(row, BEFORE),
        .after = cell(row, ALLOCATED),
        .reserved = cell(row, RESERVED),
        .peak = cell(row, PEAK),
        .host_bytes = unbegun ? b->now.host : cell(row, HOST),
    };
    pl_ledger_row(&w->ledger, &r);
    b->rows++;
    if (outcome < 5) b->outcomes[outcome]++;
    b->ooms += r.oom;
    note_peak(b, &r, tag < 256 ? b->names[tag] : "");
    if (w != b->worker[0]) return;
    b->now.request = b->rows;
    if (r.known) b->now.device = r.after;
    if (r.known) b->now.reserved = r.reserved;
    if (r.host_bytes != 0) b->now.host = r.host_bytes;
    if (b->now.device != 0 || b->now.host != 0) add_point(b);
}

static void take_sample(struct pl_soak_books *b, struct pl_soak_worker *w, const json_t *o) {
    struct pl_ledger_sample s = { .at_ms = now_ms() - b->from_ms };
    const json_t *gpus = json_object_get(o, "gpus"), *g;
    size_t i;
    s.host_bytes = pl_fig_count(o, "host_bytes");
    s.host_max = pl_fig_count(o, "host_max_bytes");
    s.holders = (uint32_t)pl_fig_count(o, "holders");
    s.holders_ok = (uint32_t)pl_fig_count(o, "holders_ok");
    json_array_foreach(gpus, i, g) {
        uint64_t d = pl_fig_count(g, "device");
        if (d >= PL_LEDGER_GPUS) continue;
        s.gpu[d].total = pl_fig_count(g, "total_bytes");
        s.gpu[d].used = pl_fig_count(g, "used_bytes");
        s.gpu[d].process = pl_fig_count(g, "process_bytes");
        s.gpu[d].inactive_split = pl_fig_count(g, "inactive_split_bytes");
        s.gpu[d].retries = pl_fig_count(g, "retries");
        s.gpu[d].ooms = pl_fig_count(g, "ooms");
        if (d == 0 && s.gpu[d].total > 0) b->total_bytes = s.gpu[d].total;
        if (d == 0 && s.gpu[d].process > b->now.reserved && b->now.reserved > 0)
            b->outside_bytes = s.gpu[d].process - b->now.reserved;
    }
    if ((b->now.host == 0 || b->unbegun_too) && s.host_bytes > 0 && w == b->worker[0])
        b->now.host = s.host_bytes;
    pl_ledger_sample(&w->ledger, &s);
}

static void begin_ledger(const struct pl_soak_books *b, struct pl_soak_worker *w) {
    pl_ledger_start(&w->ledger);
    pl_ledger_steady(&w->ledger, b->steady ? PL_LEDGER_ALONE : PL_LEDGER_TOGETHER);
}

void pl_soak_books_again(struct pl_soak_books *b) {
    for (size_t i = 0; i < b->count; i++) begin_ledger(b, b->worker[i]);
    b->points = 0;
    b->peak_bytes = b->now.device = b->now.reserved = 0;
    b->peaks = 0;
    memset(b->batch, 0, sizeof b->batch);
}

/* A worker that was replaced or died begins anew. */
static void same_generation(struct pl_soak_books *b, struct pl_soak_worker *w, const json_t *doc) {
    uint32_t generation = (uint32_t)pl_fig_count(doc, "generation");
    if (w->generation == generation) return;
    if (w->generation != 0) {
        b->gone++;
        begin_ledger(b, w);
        w->next = 0;
    }
    w->generation = generation;
}

static json_t *ask_rows(struct pl_soak_books *b, const struct pl_soak_worker *w, bool first,
                        struct pl_err *err) {
    char target[160], from[40] = "";
    if (!first) snprintf(from, sizeof from, "&from=%llu", (unsigned long long)w->next);
    snprintf(target, sizeof target, "/rows/%s?worker=%u%s", b->place->service, w->slot, from);
    return pl_soak_ask(b->place, target, err);
}

static void learn_names(struct pl_soak_books *b, const json_t *doc) {
    const char *key;
    json_t *text;
    json_object_foreach(json_object_get(doc, "tags"), key, text) {
        long tag = strtol(key, NULL, 10);
        if (tag >= 0 && tag < 256) snprintf(b->names[tag], sizeof b->names[0], "%s", json_string_value(text));
    }
}

static bool read_worker(struct pl_soak_books *b, struct pl_soak_worker *w, struct pl_err *err) {
    for (bool more = true; more;) {
        json_t *doc = ask_rows(b, w, false, err), *row;
        size_t i;
        if (doc == NULL) return false;
        uint32_t was = w->generation;
        same_generation(b, w, doc);
        if (was != w->generation) { /* its rows are another one's */
            json_decref(doc);
            continue;
        }
        if (w == b->worker[0]) learn_names(b, doc);
        json_array_foreach(json_object_get(doc, "rows"), i, row) take_row(b, w, row);
        uint64_t lost = pl_fig_count(doc, "lost");
        b->lost += lost;
        pl_ledger_lost(&w->ledger, lost);
        w->next = pl_fig_count(doc, "next");
        more = json_is_true(json_object_get(doc, "more"));
        if (!more) take_sample(b, w, json_object_get(doc, "sample"));
        json_decref(doc);
    }
    return true;
}

/* --- a process of somebody else */

static uint64_t host_of(int pid) {
    char path[40], text[8192];
    struct pl_proc_memory m;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, sizeof text, f) : 0;
    if (n == 0 || !pl_proc_read_status(text, n, &m)) return 0;
    return m.anon + (m.swap != PL_PROC_UNKNOWN ? m.swap : 0);
}

/* process_resident_memory_bytes of a page of metrics; 0: it is not there. */
static uint64_t resident_of(const char *url, struct pl_err *err) {
    static const char family[] = "process_resident_memory_bytes";
    struct pl_soak_place p = { .child = 0 };
    struct pl_buf page;
    char port[16];
    double bytes = 0;
    if (strncmp(url, "http://", 7) != 0) {
        PL_FAIL(err, PL_E_USAGE, "--metrics: %.100s does not begin with http://", url);
        return 0;
    }
    if (!pl_soak_dial_url(url, &p, port, err)) return 0;
    pl_buf_init(&page, 64 << 20);
    uint16_t status = pl_soak_one(&p, "GET", p.base[0] != '\0' ? p.base : "/", NULL, 0, &page);
    for (const char *s = pl_buf_text(&page); s != NULL && status == 200; s = strchr(s, '\n')) {
        if (*s == '\n') s++;
        if (strncmp(s, family, sizeof family - 1) != 0) continue;
        const char *value = s + strcspn(s, " \n"); /* labels have no blank in this one */
        if (*value == ' ') bytes += strtod(value, NULL);
    }
    pl_buf_free(&page);
    if (bytes > 0 && bytes < 9e15) return (uint64_t)bytes;
    PL_FAIL(err, PL_E_SYS, "--metrics %.100s: no %s there (status %u)", url, family, (unsigned)status);
    return 0;
}

static bool read_process(struct pl_soak_books *b, uint64_t sent, const struct pl_soak_wish *w,
                         struct pl_err *err) {
    struct pl_soak_worker *one = b->worker[0];
    uint64_t bytes = w->pid > 0 ? host_of(w->pid) : resident_of(w->metrics, err);
    if (bytes == 0 && w->pid <= 0) return false;
    if (bytes == 0)
        return PL_FAIL(err, PL_E_SYS, "--pid %d: there is no such process, or it is another user's", w->pid);
    b->now.host = bytes;
    for (; b->rows < sent; b->rows++) {
        const struct pl_ledger_row r = { .at_ms = now_ms() - b->from_ms, .gpu = 0 };
        pl_ledger_row(&one->ledger, &r);
    }
    const struct pl_ledger_sample s = { .at_ms = now_ms() - b->from_ms, .host_bytes = bytes };
    pl_ledger_sample(&one->ledger, &s);
    b->now.request = b->rows;
    b->stride = 1;
    if (b->points == PL_SOAK_CURVE) {
        for (size_t i = 0; i < PL_SOAK_CURVE / 2; i++) b->curve[i] = b->curve[2 * i + 1];
        b->points /= 2;
    }
    b->curve[b->points++] = b->now;
    return true;
}

/* --- from outside */

static bool add_worker(struct pl_soak_books *b, uint32_t slot, struct pl_err *err) {
    struct pl_soak_worker *w = calloc(1, sizeof *w);
    if (w == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the books");
    w->slot = slot;
    begin_ledger(b, w);
    b->worker[b->count++] = w;
    if (!b->place->has_admin) return true;
    json_t *doc = ask_rows(b, w, true, err);
    if (doc == NULL) return false;
    w->generation = (uint32_t)pl_fig_count(doc, "generation");
    w->next = pl_fig_count(doc, "next");
    json_decref(doc);
    return true;
}

bool pl_soak_books_open(struct pl_soak_books *b, struct pl_soak_place *p, bool steady, struct pl_err *err) {
    memset(b, 0, sizeof *b);
    b->place = p;
    b->steady = steady;
    b->from_ms = now_ms();
    if (!p->has_admin) return add_worker(b, 0, err);
    char target[80];
    snprintf(target, sizeof target, "/status/%s", p->service);
    json_t *status = pl_soak_ask(p, target, err), *w;
    size_t i;
    bool ok = status != NULL;
    json_array_foreach(json_object_get(status, "workers"), i, w) {
        const char *state = json_string_value(json_object_get(w, "state"));
        if (!ok || b->count == PL_SOAK_WORKERS || state == NULL || strcmp(state, "ready") != 0) continue;
        ok = add_worker(b, (uint32_t)pl_fig_count(w, "worker"), err);
    }
    json_decref(status);
    if (ok && b->count == 0) ok = PL_FAIL(err, PL_E_SYS, "%s has no worker that is ready", p->service);
    return ok;
}

bool pl_soak_books_read(struct pl_soak_books *b, uint64_t sent, const struct pl_soak_wish *w,
                        struct pl_err *err) {
    if (!b->place->has_admin) return read_process(b, sent, w, err);
    for (size_t i = 0; i < b->count; i++)
        if (!read_worker(b, b->worker[i], err)) return false;
    return true;
}

/* Worse news first; then what grows; then what is known. */
static int badness(const struct pl_ledger_verdict *v) {
    if (pl_verdict_is_bad(v->word)) return 5;
    switch (v->word) {
    case PL_VERDICT_GROWING:
        return 4;
    case PL_VERDICT_FRAGMENTATION:
    case PL_VERDICT_DYNAMIC_SHAPES:
        return 3;
    case PL_VERDICT_CACHE:
    case PL_VERDICT_PREALLOCATED:
        return 2;
    case PL_VERDICT_STABLE:
        return 1;
    default:
        return 0;
    }
}

const struct pl_soak_worker *pl_soak_books_verdict(const struct pl_soak_books *b,
                                                   struct pl_ledger_verdict *v) {
    const struct pl_soak_worker *worst = NULL;
    for (size_t i = 0; i < b->count; i++) {
        struct pl_ledger_verdict mine;
        pl_ledger_verdict(&b->worker[i]->ledger, &mine);
        if (worst != NULL && badness(&mine) <= badness(v)) continue;
        worst = b->worker[i];
        *v = mine;
    }
    return worst;
}

void pl_soak_books_close(struct pl_soak_books *b) {
    for (size_t i = 0; i < b->count; i++) free(b->worker[i]);
    b->count = 0;
}
