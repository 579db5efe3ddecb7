#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/soak_scene.h"

enum {
    CHUNK = 200, /* requests between two looks; the worker's ring has 1,024 records */
    FEW = 20,
    FURTHER = 3, /* times the wished number, while it is not known whether it settles */
    TIMEOUT_MS = 120000,
    ROW_WAIT_MS = 3000,
    CLIENTS = 32, /* that leave, at a time */
    ROUNDS = 3,
    STEPS_MOST = 64,   /* concurrency */
    STEP_LEAST = 20,   /* requests */
    SHAPE_MOST = 4096, /* the longest that is tried */
    SHAPE_APART = 37,
    BATCH_MOST = 1 << 20,
    BODY_MOST = 64 << 20,
    GAPS = 9,
    GAP_MS = 1000,
    DRIVER_MS = 2500, /* its figures come once a second */
    OOMS_ENOUGH = 20, /* requests that ran out of device memory: more tell nothing new */
};
enum { TUNE_MOST = 256, TUNE_EACH = 12 };
#define MARGIN 0.15 /* memory.margin */

static const char *const names[] = { "identical", "failing",     "shapes", "batch",
                                     "cancel",    "concurrency", "idle" };
const char *pl_soak_scenario_name(enum pl_scenario s) { return names[s]; }

/* --- what is sent */

static bool set_body(struct pl_scene *s, const json_t *body) {
    free(s->text);
    s->text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    s->len = s->text != NULL ? strlen(s->text) : 0;
    return s->text != NULL && s->len <= BODY_MOST;
}

static const char *body_of(void *ctx, uint64_t n, size_t *len) {
    struct pl_scene *s = ctx;
    if (s->longest > 0) {
        json_t *other = pl_soak_resized(s->wish->body, &s->spot, 1 + n * SHAPE_APART % s->longest);
        if (other != NULL) set_body(s, other);
        json_decref(other);
    }
    *len = s->len;
    return s->text;
}

static bool read_books(struct pl_scene *s, struct pl_err *err) {
    return pl_soak_books_read(&s->books, s->load.n, s->wish, err);
}

/* One request with this body, and its row. Its status; 0: there was no answer. */
static uint16_t probe(struct pl_scene *s, const json_t *body, struct pl_err *err) {
    uint64_t rows = s->books.rows, until = pl_scene_now_ms() + ROW_WAIT_MS;
    if (body == NULL || !set_body(s, body)) return 0;
    s->books.last_peak_bytes = 0;
    struct pl_soak_counts *c = &s->load.counts;
    uint64_t began_us = pl_now_us();
    uint16_t status = pl_soak_one(s->place, "POST", s->target, s->text, s->len, NULL);
    c->busy_us += pl_now_us() - began_us;
    c->sent++;
    c->last_status = status != 0 ? status : c->last_status;
    *(status == 0     ? &c->broken
      : status >= 500 ? &c->server_errors
      : status >= 400 ? &c->client_errors
                      : &c->ok) += 1;
    s->load.n++;
    /* what never reached a handler has no row: a look is enough then */
    if (status >= 400) until = pl_scene_now_ms() + 200;
    while (read_books(s, err) && s->books.rows == rows && pl_scene_now_ms() < until && s->place->has_admin)
        pl_scene_nap(5);
    return status;
}

static bool is_well(uint16_t status) { return status >= 200 && status < 300; }

/* One request whose body is `size` long at that place: whether it is answered well. */
static bool does_well(struct pl_scene *s, const struct pl_soak_spot *spot, uint64_t size,
                      struct pl_err *err) {
    json_t *body = pl_soak_resized(s->wish->body, spot, size);
    uint16_t status = probe(s, body, err);
    json_decref(body);
    return is_well(status);
}

/* --- until it is certain */

static bool is_over(const struct pl_scene *s) {
    return s->wish->max_time_ms > 0 && pl_scene_now_ms() - s->began_ms >= s->wish->max_time_ms;
}

/* More of the same, a chunk at a time; stops when its memory is certainly bad. */
static bool go_on(struct pl_scene *s, uint64_t count, struct pl_err *err) {
    for (uint64_t done = 0; done < count && !s->cut && pl_soak_signal == 0;) {
        /* without rows every look is one sample: more of them */
        uint64_t most = s->place->has_admin ? CHUNK : FEW, chunk = count - done < most ? count - done : most;
        struct pl_ledger_verdict v;
        if (!pl_soak_send(&s->load, chunk, err) || !read_books(s, err)) return false;
        done += chunk;
        pl_soak_books_verdict(&s->books, &v);
        s->late = is_over(s);
        s->cut = s->late || pl_scene_is_certain(&v) || s->books.gone > 0 || s->books.ooms > OOMS_ENOUGH;
        if (done % CHUNK == 0 || done == count)
            pl_soak_progress(s->wish, s->what, &s->books, s->load.n, s->of, false);
    }
    return true;
}

/* As many as were wished; and on, while that is not enough to know. */
static bool whole(struct pl_scene *s, struct pl_err *err) {
    uint64_t wished = s->wish->requests, most = wished * FURTHER;
    s->of = wished;
    if (s->load.n < wished && !go_on(s, wished - s->load.n, err)) return false;
    while (!s->cut && pl_soak_signal == 0 && s->load.n < most) {
        struct pl_ledger_verdict v;
        pl_soak_books_verdict(&s->books, &v);
        if (v.word != PL_VERDICT_GROWING) break;
        s->of = s->load.n + 250;
        if (!go_on(s, 250, err)) return false;
    }
    pl_scene_nap(100); /* the last records are written after their replies */
    return read_books(s, err);
}

/* --- each of them */

static void is(struct pl_scene *s, const char *result) {
    json_object_set_new(s->doc, "result", json_string(result));
}

static bool identical(struct pl_scene *s, struct pl_err *err) {
    return set_body(s, s->wish->body) && whole(s, err);
}

/* A body that a handler fails on: the one that was given, or the first of a few ways to spoil the good one.
 */
static json_t *find_failing(struct pl_scene *s, struct pl_err *err) {
    static const char *const how[] = { "every number negative", "every text empty", "every number huge",
                                       "null for every text",   "every list empty", "nothing in it" };
    json_t *before = NULL; /* refused before the handler */
    if (s->wish->failing != NULL) return json_incref(s->wish->failing);
    for (unsigned k = 0; k < PL_SOAK_WRONG && err->code == PL_OK; k++) {
        json_t *body = pl_soak_wrong(s->wish->body, k);
        uint64_t failed = s->books.outcomes[2] + s->books.outcomes[3];
        if (body == NULL) continue;
        uint16_t status = probe(s, body, err);
        bool reached = s->books.outcomes[2] + s->books.outcomes[3] > failed || !s->place->has_admin;
        if (status >= 400 && reached) {
            json_object_set_new(s->doc, "failing_by", json_string(how[k]));
            json_decref(before);
            return body;
        }
        if (status >= 400 && before == NULL) {
            before = json_incref(body);
            json_object_set_new(s->doc, "failing_by", json_string(how[k]));
        }
        json_decref(body);
    }
    if (before != NULL) {
        pl_scene_note(
            s,
            "these requests are refused before the handler: --failing names a body that it fails on itself");
        json_object_set_new(s->doc, "before_handler", json_true());
        s->books.unbegun_too = true;
        pl_soak_books_again(&s->books); /* what reached a handler meanwhile is another series */
    }
    return before;
}

static bool failing(struct pl_scene *s, struct pl_err *err) {
    json_t *body = find_failing(s, err);
    if (err->code != PL_OK) return false;
    if (body == NULL) {
        pl_scene_note(s, "nothing that was tried makes it fail: --failing @FILE names a body that does");
        is(s, "unknown");
        return true;
    }
    bool ok = set_body(s, body) && whole(s, err);
    json_decref(body);
    if (ok && s->load.counts.ok == s->load.counts.sent && s->load.counts.sent > 0)
        pl_scene_note(s, "the failing body was answered well every time");
    return ok;
}

/* The largest size that is answered well, up to `most`; 0: not even twice as much as now. */
static uint64_t find_longest(struct pl_scene *s, const struct pl_soak_spot *spot, uint64_t most,
                             struct pl_err *err) {
    uint64_t good = 0, bad = 0;
    for (uint64_t size = spot->size * 2; good < most && bad == 0 && err->code == PL_OK;) {
        if (does_well(s, spot, size, err))
            good = size;
        else
            bad = size;
        size = size * 2 > most && size < most ? most : size * 2;
    }
    while (good > 0 && bad > good + 1 && bad - good > good / 64 && err->code == PL_OK) {
        uint64_t size = good + (bad - good) / 2;
        if (does_well(s, spot, size, err))
            good = size;
        else
            bad = size;
    }
    return good;
}

static bool shapes(struct pl_scene *s, struct pl_err *err) {
    struct pl_soak_spot spots[PL_SOAK_PLACES];
    size_t n = pl_soak_spots(s->wish->body, spots, PL_SOAK_PLACES);
    probe(s, s->wish->body, err); /* what one of the usual size needs comes first */
    for (size_t i = 0; i < n && s->longest == 0 && err->code == PL_OK; i++) {
        if (spots[i].size >= SHAPE_MOST) continue;
        s->spot = spots[i];
        s->longest = find_longest(s, &spots[i], SHAPE_MOST, err);
    }
    if (err->code != PL_OK) return false;
    if (s->longest == 0) {
        pl_scene_note(s, "nothing in the body may be longer: every request has the same shape");
        return identical(s, err);
    }
    json_object_set_new(s->doc, "field", json_string(s->spot.name));
    json_object_set_new(s->doc, "longest", json_integer((json_int_t)s->longest));
    return whole(s, err);
}

/* --- batch */

struct batch {
    const struct pl_soak_spot *spot;
    uint64_t good, good_peak, bad, one_peak, budget;
    const char *limit; /* why `bad` is */
};

static void try_batch(struct pl_scene *s, struct batch *b, uint64_t size, struct pl_err *err) {
    uint64_t failed = s->books.outcomes[3];
    bool well = does_well(s, b->spot, size, err);
    uint64_t peak = s->books.last_peak_bytes;
    if (size == 1) b->one_peak = peak;
    if (well && peak <= b->budget) {
        b->good = size;
        b->good_peak = peak;
    } else {
        b->bad = size;
        b->limit = well ? "budget" : s->books.outcomes[3] > failed ? "memory" : "service";
    }
    pl_soak_progress(s->wish, s->what, &s->books, s->load.n, s->of, false);
}

/* A place where more items need more memory. */
static const struct pl_soak_spot *find_batch(struct pl_scene *s, const struct pl_soak_spot *spots, size_t n,
                                             struct pl_err *err) {
    for (size_t i = 0; i < n && err->code == PL_OK; i++) {
        uint64_t peak[2] = { 0, 0 };
        bool well = true;
        for (int k = 0; k < 2 && well; k++) {
            well = does_well(s, &spots[i], k == 0 ? 1 : 64, err);
            peak[k] = s->books.last_peak_bytes;
        }
        if (!well && peak[0] > 0) { /* 64 may be too many for it: 2 */
            well = does_well(s, &spots[i], 2, err);
            peak[1] = s->books.last_peak_bytes;
        }
        if (well && peak[0] > 0 && peak[1] > peak[0]) return &spots[i];
    }
    return NULL;
}

static uint64_t budget_of(struct pl_scene *s) {
    uint64_t total = s->books.total_bytes != 0 ? s->books.total_bytes : s->place->gpu_bytes;
    double budget = (double)total * (1 - MARGIN) - (double)s->books.outside_bytes;
    return budget > 0 ? (uint64_t)budget : 0;
}

/* What is done a second in batches of 1, 2, 4 ...: a list, or a text, that may be longer. */
static void measure_batches(struct pl_scene *s, const struct pl_soak_spot *spots, size_t n, uint64_t most,
                            struct pl_err *err) {
    json_t *steps = json_array();
    for (size_t i = 0; i < n && json_array_size(steps) < 2 && err->code == PL_OK; i++) {
        if (!json_is_array(spots[i].at)) continue;
        json_array_clear(steps);
        for (uint64_t size = 1; size <= TUNE_MOST && (most == 0 || size <= most) && err->code == PL_OK;
             size *= 2) {
            bool well = does_well(s, &spots[i], size, err);
            memset(&s->load.counts, 0, sizeof s->load.counts);
            if (!well || !pl_soak_send(&s->load, TUNE_EACH, err) || !read_books(s, err)) break;
            const struct pl_soak_counts *c = &s->load.counts;
            json_array_append_new(steps, json_pack("{s:I,s:f,s:f}", "size", (json_int_t)size, "items_per_s",
                                                   (double)(c->ok * size) * 1e6 / (double)(c->busy_us + 1),
                                                   "median_ms", (double)pl_soak_us(c, .5) / 1000));
        }
        if (json_array_size(steps) > 1)
            json_object_set_new(s->doc, "batch_field", json_string(spots[i].name));
    }
    if (json_array_size(steps) > 1) json_object_set(s->doc, "batch_steps", steps);
    json_decref(steps);
}

static bool batch(struct pl_scene *s, struct pl_err *err) {
    struct pl_soak_spot spots[PL_SOAK_PLACES];
    size_t n = pl_soak_spots(s->wish->body, spots, PL_SOAK_PLACES);
    struct batch b = { .limit = NULL };
    uint64_t until = pl_scene_now_ms() + 3000;
    uint16_t status = probe(s, s->wish->body, err);
    if (err->code != PL_OK) return false;
    while (status < 300 && s->books.last_peak_bytes > 0 && s->books.outside_bytes == 0 &&
           pl_scene_now_ms() < until) {
        pl_scene_nap(200);
        if (!read_books(s, err)) return false;
    }
    if (s->books.outside_bytes > 0) { /* the driver's figure and PyTorch's, both of a worker at rest */
        pl_scene_nap(DRIVER_MS);
        if (!read_books(s, err)) return false;
    }
    b.budget = budget_of(s);
    b.spot = b.budget > 0 && s->books.last_peak_bytes > 0 ? find_batch(s, spots, n, err) : NULL;
    if (err->code != PL_OK) return false;
    if (b.spot == NULL && s->wish->tune) {
        measure_batches(s, spots, n, 0, err);
        is(s, "skipped");
        return err->code == PL_OK;
    }
    if (b.spot == NULL) {
        is(s, is_well(status) ? "skipped" : "unknown");
        pl_scene_note(s,
                      !is_well(status) ? "the body is answered with status %u"
                      : b.budget == 0 || s->books.peak_bytes == 0
                          ? "no device memory is told for its requests (last status %u)"
                          : "no list, text or number in the body makes it need more memory (last status %u)",
                      (unsigned)status);
        return true;
    }
    try_batch(s, &b, 1, err);
    for (uint64_t size = 2; b.bad == 0 && size <= BATCH_MOST && err->code == PL_OK && !is_over(s); size *= 2)
        try_batch(s, &b, size, err);
    while (b.bad > b.good + 1 && err->code == PL_OK && s->books.gone == 0 && !is_over(s))
        try_batch(s, &b, b.good + (b.bad - b.good) / 2, err);
    if (err->code != PL_OK && s->books.gone == 0) return false;
    is(s, b.good > 0 ? "clean" : "failed");
    if (b.good == 0) pl_scene_note(s, "not even one item fits into the budget");
    json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:s}", "field", b.spot->name, "largest", (json_int_t)b.good,
                          "peak_bytes", (json_int_t)b.good_peak, "budget_bytes", (json_int_t)b.budget,
                          "limited_by", b.limit != NULL ? b.limit : "scan");
    if (b.good > 1 && b.good_peak > b.one_peak)
        json_object_set_new(o, "bytes_per_item",
                            json_integer((json_int_t)((b.good_peak - b.one_peak) / (b.good - 1))));
    json_object_set_new(s->doc, "batch", o);
    if (s->wish->tune && s->books.gone == 0) measure_batches(s, spots, n, b.good, err);
    if (s->books.gone > 0) pl_scene_note_death(s);
    return true;
}

/* --- clients that leave; more of them at a time; pauses */

static bool cancel(struct pl_scene *s, struct pl_err *err) {
    s->load.concurrency = s->wish->concurrency != 0 ? s->wish->concurrency : CLIENTS;
    s->of = s->wish->requests;
    if (!set_body(s, s->wish->body)) return PL_FAIL(err, PL_E_NOMEM, "the body is too large");
    for (uint64_t most = s->wish->requests * FURTHER; !s->cut && pl_soak_signal == 0 && s->load.n < most;) {
        struct pl_ledger_verdict v;
        pl_soak_books_verdict(&s->books, &v);
        if (s->load.n >= s->wish->requests && v.word != PL_VERDICT_GROWING) break;
        if (s->load.n >= s->of) s->of += CHUNK;
        /* every other time they are gone before they could have had an answer: few of those come to their end
         */
        s->load.leave = s->load.n / CHUNK % 2 == 1 ? PL_SOAK_LEAVES_AT_ONCE : PL_SOAK_LEAVES_EARLY;
        if (!go_on(s, CHUNK, err)) return false;
    }
    s->load.leave = PL_SOAK_LEAVES_EARLY;
    pl_scene_nap(200);
    return read_books(s, err);
}

struct step {
    uint64_t sent, ok, refused, device;
    double per_s;
    json_t *latency; /* of the best round */
};

static void add_counts(struct pl_soak_counts *all, const struct pl_soak_counts *k) {
    all->sent += k->sent;
    all->ok += k->ok;
    all->client_errors += k->client_errors;
    all->server_errors += k->server_errors;
    all->refused += k->refused;
    all->broken += k->broken;
    all->busy_us += k->busy_us;
    all->last_status = k->last_status;
}

static bool one_step(struct pl_scene *s, struct step *step, uint32_t at_a_time, uint64_t requests,
                     struct pl_err *err) {
    struct pl_soak_counts *k = &s->load.counts;
    memset(k, 0, sizeof *k);
    s->load.concurrency = at_a_time;
    if (!go_on(s, requests > 4ull * at_a_time ? requests : 4ull * at_a_time, err)) return false;
    double per_s = (double)k->ok * 1e6 / (double)(k->busy_us + 1);
    step->sent += k->sent;
    step->ok += k->ok;
    step->refused += k->refused;
    step->device = s->books.now.device;
    if (step->latency != NULL && per_s <= step->per_s) return true;
    json_decref(step->latency);
    step->latency = pl_scene_latency(k);
    step->per_s = per_s;
    return true;
}

/* Several rounds, and the best of each step: what else the machine did in a bad moment is not the service's.
 */
static bool concurrency(struct pl_scene *s, struct pl_err *err) {
    uint32_t most = s->wish->concurrency != 0 ? s->wish->concurrency : STEPS_MOST, count = 0;
    struct step step[16] = { { .sent = 0 } };
    struct pl_soak_counts all = { 0 };
    bool ok = set_body(s, s->wish->body) || PL_FAIL(err, PL_E_NOMEM, "the body is too large");
    for (uint32_t c = 1; c <= most; c *= 2) count++;
    uint64_t each = s->wish->requests / count / ROUNDS;
    if (each < STEP_LEAST) each = STEP_LEAST;
    s->of = 0;
    for (uint32_t c = 1; c <= most; c *= 2) s->of += ROUNDS * (each > 4ull * c ? each : 4ull * c);
    for (int round = 0; ok && round < ROUNDS && !s->cut; round++)
        for (uint32_t i = 0; ok && i < count && !s->cut && pl_soak_signal == 0; i++) {
            ok = one_step(s, &step[i], 1u << i, each, err);
            add_counts(&all, &s->load.counts);
        }
    json_t *steps = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (step[i].latency == NULL) continue;
        json_t *one =
            json_pack("{s:i,s:I,s:I,s:f,s:o}", "concurrency", 1 << i, "requests", (json_int_t)step[i].sent,
                      "ok", (json_int_t)step[i].ok, "per_s", step[i].per_s, "latency_ms", step[i].latency);
        pl_scene_set_bytes(one, "refused", step[i].refused);
        pl_scene_set_bytes(one, "device_bytes", step[i].device);
        json_array_append_new(steps, one);
    }
    s->load.counts = all;
    json_object_set_new(s->doc, "steps", steps);
    pl_scene_nap(100);
    return ok && read_books(s, err);
}

static bool idle(struct pl_scene *s, struct pl_err *err) {
    uint64_t each = s->wish->requests / (GAPS + 1), device = 0, host = 0;
    if (!set_body(s, s->wish->body)) return PL_FAIL(err, PL_E_NOMEM, "the body is too large");
    s->of = s->wish->requests;
    for (int i = 0; i <= GAPS && !s->cut && pl_soak_signal == 0; i++) {
        if (!go_on(s, i == GAPS ? s->wish->requests - GAPS * each : each, err)) return false;
        if (i == GAPS || s->cut) break;
        struct pl_soak_point before = s->books.now;
        pl_scene_nap(GAP_MS);
        if (!pl_soak_send(&s->load, 1, err) || !read_books(s, err)) return false;
        if (s->books.now.device > before.device) device += s->books.now.device - before.device;
        if (s->books.now.host > before.host) host += s->books.now.host - before.host;
    }
    json_object_set_new(s->doc, "gaps",
                        json_pack("{s:i,s:i,s:I,s:I}", "count", GAPS, "ms", GAP_MS, "device_bytes",
                                  (json_int_t)device, "host_bytes", (json_int_t)host));
    pl_scene_nap(100);
    return read_books(s, err);
}

json_t *pl_soak_scenario(const struct pl_soak_wish *w, struct pl_soak_place *p, enum pl_scenario what,
                         struct pl_err *err) {
    static bool (*const run[])(struct pl_scene *, struct pl_err *) = { identical, failing,     shapes, batch,
                                                                       cancel,    concurrency, idle };
    struct pl_scene *s = calloc(1, sizeof *s);
    if (s == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "no memory for the books");
        return NULL;
    }
    bool one_by_one =
        what != PL_SOAK_CANCEL && what != PL_SOAK_CONCURRENCY && w->concurrency <= 1 && w->rate <= 0;
    s->wish = w;
    s->place = p;
    s->what = what;
    s->began_ms = pl_scene_now_ms();
    s->doc = json_pack("{s:s}", "scenario", names[what]);
    s->notes = json_array();
    snprintf(s->target, sizeof s->target, "%s%s", p->base, w->route);
    s->load = (struct pl_soak_load){ .place = p,
                                     .target = s->target,
                                     .concurrency = w->concurrency != 0 ? w->concurrency : 1,
                                     .rate = w->rate,
                                     .timeout_ms = TIMEOUT_MS,
                                     .body = body_of,
                                     .ctx = s };
    bool ok = pl_soak_books_open(&s->books, p, one_by_one, err) && run[what](s, err);
    /* a worker that died takes its answers with it: that is a finding, no failure of ours */
    if (!ok && s->books.gone == 0 && p->has_admin && s->books.count > 0) {
        struct pl_err ignored = { 0 };
        read_books(s, &ignored);
    }
    if (!ok && s->books.gone > 0) ok = true;
    if (ok) pl_scene_finish(s);
    pl_soak_progress(w, what, &s->books, s->load.n, s->of, true);
    if (json_array_size(s->notes) > 0) json_object_set(s->doc, "notes", s->notes);
    json_t *doc = ok ? json_incref(s->doc) : NULL;
    json_decref(s->doc);
    json_decref(s->notes);
    pl_soak_books_close(&s->books);
    free(s->text);
    free(s);
    return doc;
}
