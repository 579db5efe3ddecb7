/* soak_document.c - what a scenario has seen, as the document that everything shown is made from. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/soak_scene.h"

uint64_t pl_scene_now_ms(void) { return pl_now_us() / 1000; }

void pl_scene_nap(long ms) {
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

void pl_scene_note(struct pl_scene *s, const char *fmt, ...) {
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(s->notes, json_string(text));
}

bool pl_scene_is_certain(const struct pl_ledger_verdict *v) {
    return v->confirmed && pl_verdict_is_bad(v->word);
}

void pl_scene_set_bytes(json_t *o, const char *key, uint64_t bytes) {
    if (bytes > 0) json_object_set_new(o, key, json_integer((json_int_t)bytes));
}

static json_t *verdict_json(const struct pl_ledger_verdict *v) {
    json_t *o = json_pack("{s:s,s:s,s:s,s:b,s:I}", "word", pl_verdict_name(v->word), "text",
                          pl_verdict_text(v->word), "scope", pl_ledger_scope_name(v->scope), "bad",
                          pl_verdict_is_bad(v->word), "requests", (json_int_t)v->requests);
    if (v->has_shape) json_object_set_new(o, "shape", json_string(pl_shape_name(v->shape)));
    if (v->bytes_per_request > 0) {
        json_object_set_new(o, "confidence", json_string(v->confirmed ? "confirmed" : "suspected"));
        json_object_set_new(o, "bytes_per_request", json_real(v->bytes_per_request));
        json_object_set_new(o, "low", json_real(v->low));
        json_object_set_new(o, "high", json_real(v->high));
    }
    pl_scene_set_bytes(o, "since_requests", v->since_requests);
    pl_scene_set_bytes(o, "missing_requests", v->missing);
    pl_scene_set_bytes(o, "copies", v->copies);
    if (v->growth_bytes > 0) json_object_set_new(o, "growth_bytes", json_real(v->growth_bytes));
    if (v->level_bytes > 0) json_object_set_new(o, "level_bytes", json_real(v->level_bytes));
    return o;
}

static json_t *curve_json(const struct pl_soak_books *b) {
    json_t *list = json_array();
    for (size_t i = 0; i < b->points; i++)
        json_array_append_new(
            list, json_pack("[I,I,I,I]", (json_int_t)b->curve[i].request, (json_int_t)b->curve[i].device,
                            (json_int_t)b->curve[i].reserved, (json_int_t)b->curve[i].host));
    return list;
}

static void set_peaks(json_t *doc, const struct pl_soak_books *b) {
    json_t *tags = json_array(), *batches = json_array();
    for (size_t i = 0; i < b->peaks; i++)
        json_array_append_new(tags, json_pack("{s:s,s:I,s:I}", "tag", b->peak[i].tag, "requests",
                                              (json_int_t)b->peak[i].requests, "bytes",
                                              (json_int_t)b->peak[i].bytes));
    for (int k = 0; k < PL_LEDGER_BATCHES; k++)
        if (b->batch[k].requests > 0)
            json_array_append_new(batches, json_pack("{s:i,s:I,s:I}", "up_to", 1 << k, "requests",
                                                     (json_int_t)b->batch[k].requests, "bytes",
                                                     (json_int_t)b->batch[k].bytes));
    if (json_array_size(tags) > 0) json_object_set(doc, "peaks", tags);
    if (json_array_size(batches) > 1) json_object_set(doc, "batches", batches);
    json_decref(tags);
    json_decref(batches);
    pl_scene_set_bytes(doc, "peak_bytes", b->peak_bytes);
}

json_t *pl_scene_latency(const struct pl_soak_counts *c) {
    return json_pack("{s:f,s:f,s:f}", "median", (double)pl_soak_us(c, .5) / 1000, "p95",
                     (double)pl_soak_us(c, .95) / 1000, "p99", (double)pl_soak_us(c, .99) / 1000);
}

static void set_counts(struct pl_scene *s) {
    const struct pl_soak_counts *c = &s->load.counts;
    json_object_set_new(s->doc, "requests", json_integer((json_int_t)s->load.n));
    json_object_set_new(s->doc, "ok", json_integer((json_int_t)c->ok));
    pl_scene_set_bytes(s->doc, "client_errors", c->client_errors);
    pl_scene_set_bytes(s->doc, "server_errors", c->server_errors);
    pl_scene_set_bytes(s->doc, "refused", c->refused);
    pl_scene_set_bytes(s->doc, "without_answer", c->broken);
    pl_scene_set_bytes(s->doc, "left", c->left);
    pl_scene_set_bytes(s->doc, "rows_lost", s->books.lost);
    json_object_set_new(s->doc, "seconds", json_real((double)(pl_scene_now_ms() - s->began_ms) / 1000));
    if (c->busy_us > 0)
        json_object_set_new(s->doc, "per_s", json_real((double)c->sent * 1e6 / (double)c->busy_us));
    if (c->timed > 0) json_object_set_new(s->doc, "latency_ms", pl_scene_latency(c));
}

/* The tag that makes it grow, and how much of it comes from requests that failed. */
static void set_blame(struct pl_scene *s, const struct pl_soak_worker *w, const struct pl_ledger_verdict *v) {
    struct pl_tag_report t;
    if (v->bytes_per_request <= 0 || v->scope == PL_LEDGER_HOST) return;
    pl_tags_report(&w->ledger.tags, v->bytes_per_request, &t);
    if (t.count == 0) return;
    const char *tag = t.of[0].name < 256 ? s->books.names[t.of[0].name] : "other";
    json_object_set_new(s->doc, "top_tag", json_string(tag[0] != '\0' ? tag : "other"));
    json_object_set_new(s->doc, "share", json_real(t.of[0].share));
    json_object_set_new(s->doc, "failed_share", json_real(t.failed_share));
}

void pl_scene_note_death(struct pl_scene *s) {
    struct pl_err err = { 0 };
    char target[80];
    snprintf(target, sizeof target, "/status/%s", s->place->service);
    json_t *status = pl_soak_ask(s->place, target, &err);
    const char *sentence =
        json_string_value(json_object_get(json_object_get(status, "last_death"), "sentence"));
    pl_scene_note(s, "a worker died: %.300s", sentence != NULL ? sentence : "it is not known why");
    json_decref(status);
}

/* clean, leak, failed or unknown, with the reason of the last two among the notes. */
static const char *result_of(struct pl_scene *s, const struct pl_ledger_verdict *v) {
    const struct pl_soak_counts *c = &s->load.counts;
    if (s->books.gone > 0) {
        pl_scene_note_death(s);
        return "failed";
    }
    if (pl_scene_is_certain(v)) return "leak";
    if (s->books.ooms > 0) {
        pl_scene_note(
            s, "%llu requests failed for lack of device memory%s", (unsigned long long)s->books.ooms,
            s->what == PL_SOAK_IDENTICAL ? ": what the first ones left was in the way of the others" : "");
        return "failed";
    }
    if (pl_soak_signal != 0) {
        pl_scene_note(s, "interrupted");
        return "unknown";
    }
    if (c->sent > 0 && c->ok == 0 && s->what != PL_SOAK_FAILING && s->what != PL_SOAK_CANCEL) {
        pl_scene_note(s, "no request was answered well; the last status was %u", (unsigned)c->last_status);
        return "unknown";
    }
    if (v->word == PL_VERDICT_WARMING && !s->wish->tune) {
        pl_scene_note(s, "about %llu more requests are needed%s", (unsigned long long)v->missing,
                      s->late ? ", and the time was over" : "");
        return "unknown";
    }
    if (v->word == PL_VERDICT_GROWING) {
        pl_scene_note(s, "it grew until the end: whether it settles is not known after %llu requests%s",
                      (unsigned long long)v->requests, s->late ? ", when the time was over" : "");
        return "unknown";
    }
    return "clean";
}

void pl_scene_finish(struct pl_scene *s) {
    struct pl_ledger_verdict v = { 0 };
    const struct pl_soak_worker *w = pl_soak_books_verdict(&s->books, &v);
    bool judges = s->what != PL_SOAK_BATCH; /* few requests: it measures */
    if (judges && json_object_get(s->doc, "result") == NULL)
        json_object_set_new(s->doc, "result", json_string(result_of(s, &v)));
    set_counts(s);
    json_object_set_new(s->doc, "verdict", verdict_json(&v));
    set_blame(s, w, &v);
    bool asks = v.word == PL_VERDICT_LEAK || v.word == PL_VERDICT_HOST_LEAK || v.word == PL_VERDICT_GROWING ||
                (s->books.ooms > 0 && s->what == PL_SOAK_IDENTICAL);
    if (asks && judges && s->place->has_admin && s->books.gone == 0 && s->place->service[0] != '\0')
        pl_scene_find_holder(s, w, v.scope == PL_LEDGER_HOST);
    pl_scene_set_bytes(s->doc, "device_bytes", s->books.now.device);
    pl_scene_set_bytes(s->doc, "reserved_bytes", s->books.now.reserved);
    pl_scene_set_bytes(s->doc, "host_bytes", s->books.now.host);
    set_peaks(s->doc, &s->books);
    json_object_set_new(s->doc, "curve", curve_json(&s->books));
}
