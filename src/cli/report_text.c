#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/report.h"

/* Foreign text: escaped as in JSON, without the quotes. */
static void put(struct pl_buf *out, const char *s) {
    struct pl_buf quoted;
    pl_buf_init(&quoted, 0);
    if (pl_buf_add_json(&quoted, s, strlen(s)) && quoted.len >= 2)
        pl_buf_add(out, quoted.data + 1, quoted.len - 2);
    pl_buf_free(&quoted);
}

static const char *bytes(double n, char out[32]) {
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t i = 0;
    while (n >= 1024 && i + 1 < sizeof units / sizeof *units) {
        n /= 1024;
        i++;
    }
    snprintf(out, 32, i == 0 ? "%.0f %s" : "%.1f %s", n, units[i]);
    return out;
}

static const char *millis(double ms, char out[32]) {
    if (ms < 1000)
        snprintf(out, 32, "%.1f ms", ms);
    else if (ms < 120000)
        snprintf(out, 32, "%.1f s", ms / 1000);
    else
        snprintf(out, 32, "%.0f min", ms / 60000);
    return out;
}

/* "chat/1.12": service, worker, generation, as far as they are known. */
static void who(struct pl_buf *out, const json_t *o) {
    if (pl_fig_has(o, "service")) put(out, pl_fig_text(o, "service"));
    if (pl_fig_has(o, "worker")) pl_buf_addf(out, "/%.0f", pl_fig_number(o, "worker"));
    if (pl_fig_has(o, "generation")) pl_buf_addf(out, ".%.0f", pl_fig_number(o, "generation"));
}

/* Of a day everybody knows: the time alone. */
static const char *clock_of(const char *ts) { return strlen(ts) > 11 ? ts + 11 : "-"; }

static void death(struct pl_buf *out, const json_t *d) {
    static const struct {
        const char *kind, *words;
    } kinds[] = { { "instance", "keeper, main and workers together" },
                  { "main", "the gateway process" },
                  { "start", "a start that failed" } };
    const char *kind = pl_fig_text(d, "kind"), *words = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i].kind) == 0) words = kinds[i].words;
    put(out, pl_fig_text(d, "ts"));
    pl_buf_adds(out, "  ");
    who(out, d);
    if (words != NULL) pl_buf_addf(out, "%s%s", pl_fig_has(d, "service") ? ", " : "", words);
    pl_buf_adds(out, ": ");
    put(out, pl_fig_text(d, "cause"));
    if (pl_fig_has(d, "id")) pl_buf_addf(out, "  (%s)", pl_fig_text(d, "id"));
    pl_buf_adds(out, "\n  ");
    put(out, pl_fig_text(d, "sentence"));
    pl_buf_adds(out, "\n");
    if (pl_fig_text(d, "last_line")[0] != '\0') {
        pl_buf_adds(out, "  its last line: ");
        put(out, pl_fig_text(d, "last_line"));
        pl_buf_adds(out, "\n");
    }
    if (pl_fig_number(d, "in_handlers") > 0)
        pl_buf_addf(out, "  requests lost in its handlers: %.0f\n", pl_fig_number(d, "in_handlers"));
    static const char *const figures[] = { "allocated_bytes", "reserved_bytes", "device_free_bytes" };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        char b[32];
        if (pl_fig_has(d, figures[i]))
            pl_buf_addf(out, "  %.*s %s\n", (int)strlen(figures[i]) - 6, figures[i],
                        bytes(pl_fig_number(d, figures[i]), b));
    }
}

static void event(struct pl_buf *out, const json_t *e) {
    static const char *const said[] = { "ts",      "level",  "event",      "instance",
                                        "service", "worker", "generation", "death" };
    const char *key, *level = pl_fig_text(e, "level");
    json_t *value;
    pl_buf_addf(out, "  %.12s %-5s ", clock_of(pl_fig_text(e, "ts")), level);
    put(out, pl_fig_text(e, "event"));
    if (pl_fig_has(e, "service")) {
        pl_buf_adds(out, " ");
        who(out, e);
    }
    json_object_foreach((json_t *)(uintptr_t)e, key, value) {
        bool skip = false;
        for (size_t i = 0; i < sizeof said / sizeof *said; i++) skip |= strcmp(key, said[i]) == 0;
        if (skip) continue;
        pl_buf_adds(out, " ");
        put(out, key);
        pl_buf_adds(out, "=");
        if (json_is_string(value)) {
            put(out, json_string_value(value));
        } else {
            char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
            pl_buf_adds(out, dumped != NULL ? dumped : "?");
            free(dumped);
        }
    }
    pl_buf_adds(out, "\n");
}

static void requests(struct pl_buf *out, const json_t *n) {
    char a[32], b[32], c[32];
    const char *key;
    json_t *value;
    bool first = true;
    pl_buf_adds(out, "  ");
    put(out, pl_fig_text(n, "service"));
    pl_buf_addf(out, ": %.0f answered (", pl_fig_number(n, "requests"));
    json_object_foreach(json_object_get(n, "outcomes"), key, value) {
        pl_buf_addf(out, "%s%" JSON_INTEGER_FORMAT " ", first ? "" : ", ", json_integer_value(value));
        put(out, key);
        first = false;
    }
    pl_buf_adds(out, ")");
    if (pl_fig_has(n, "median_ms"))
        pl_buf_addf(out, ", median %s, 95 %% within %s, longest %s", millis(pl_fig_number(n, "median_ms"), a),
                    millis(pl_fig_number(n, "p95_ms"), b), millis(pl_fig_number(n, "longest_ms"), c));
    if (pl_fig_number(n, "recorded") < pl_fig_number(n, "requests"))
        pl_buf_addf(out, "; %.0f of them have a row", pl_fig_number(n, "recorded"));
    pl_buf_adds(out, "\n");
}

static void running(struct pl_buf *out, const json_t *r) {
    char a[32];
    const char *outcome = pl_fig_text(r, "outcome");
    pl_buf_addf(out, "  %s  ", pl_fig_text(r, "id"));
    put(out, pl_fig_text(r, "method"));
    pl_buf_adds(out, " ");
    put(out, pl_fig_text(r, "route"));
    pl_buf_adds(out, "  ");
    who(out, r);
    pl_buf_addf(out, "  for %s, %.0f bytes in", millis(pl_fig_number(r, "running_ms"), a),
                pl_fig_number(r, "request_bytes"));
    pl_buf_addf(out, ", %s\n", outcome[0] == '\0' ? "no end known" : outcome);
}

static void memory(struct pl_buf *out, const json_t *m) {
    char a[32], b[32], c[32];
    const json_t *points = json_object_get(m, "points");
    size_t n = json_array_size(points);
    if (n == 0) return;
    double first = json_number_value(json_array_get(json_array_get(points, 0), 1)),
           last = json_number_value(json_array_get(json_array_get(points, n - 1), 1));
    pl_buf_adds(out, "  ");
    put(out, pl_fig_text(m, "scope"));
    if (pl_fig_has(m, "service")) pl_buf_adds(out, " ");
    who(out, m);
    pl_buf_addf(out, ": %s %s -> %s, peak %s", pl_fig_text(m, "what"), bytes(first, a), bytes(last, b),
                bytes(pl_fig_number(m, "peak_bytes"), c));
    if (pl_fig_has(m, "limit_bytes")) pl_buf_addf(out, " of %s", bytes(pl_fig_number(m, "limit_bytes"), a));
    pl_buf_addf(out, " (%zu samples)\n", n);
}

static void verdict(struct pl_buf *out, const json_t *v) {
    char a[32];
    double each = pl_fig_number(v, "bytes_per_request");
    pl_buf_addf(out, "  %.12s ", clock_of(pl_fig_text(v, "ts")));
    who(out, v);
    pl_buf_adds(out, " ");
    put(out, pl_fig_text(v, "scope"));
    pl_buf_adds(out, ": ");
    put(out, pl_fig_text(v, "verdict"));
    if (pl_fig_has(v, "bytes_per_request"))
        pl_buf_addf(out, ", %s a request", bytes(each < 0 ? -each : each, a));
    if (pl_fig_has(v, "forecast_s"))
        pl_buf_addf(out, ", full in %s", millis(pl_fig_number(v, "forecast_s") * 1000, a));
    if (pl_fig_has(v, "holder")) {
        pl_buf_adds(out, ", held by ");
        put(out, pl_fig_text(v, "holder"));
    }
    pl_buf_adds(out, "\n");
}

static void section(struct pl_buf *out, const char *head, const json_t *list,
                    void (*each)(struct pl_buf *, const json_t *)) {
    size_t i;
    json_t *o;
    if (json_array_size(list) == 0) return;
    pl_buf_addf(out, "\n%s\n", head);
    json_array_foreach(list, i, o) each(out, o);
}

static void would(struct pl_buf *out, const json_t *w) {
    pl_buf_adds(out, "  ");
    put(out, pl_fig_text(w, "service"));
    pl_buf_addf(out, ": would %s (", pl_fig_text(w, "action"));
    put(out, pl_fig_text(w, "reason"));
    pl_buf_addf(out, "), mode %s: %.0f times, first %s, last %s\n", pl_fig_text(w, "mode"),
                pl_fig_number(w, "times"), pl_fig_text(w, "first"), pl_fig_text(w, "last"));
}

void pl_report_would_text(const json_t *doc, struct pl_buf *out) {
    if (json_array_size(json_object_get(doc, "would")) == 0)
        pl_buf_adds(out, "nothing was held back by a service's mode\n");
    else
        section(out, "what was not done, because of the service's mode", json_object_get(doc, "would"),
                would);
}

void pl_report_text(const json_t *doc, struct pl_buf *out) {
    const json_t *d = json_object_get(doc, "death"), *record = json_object_get(doc, "record");
    char head[128];
    size_t i;
    json_t *o;
    pl_buf_adds(out, "record ");
    put(out, pl_fig_text(record, "file"));
    pl_buf_addf(out, ", %s to %s\n\n", pl_fig_has(record, "from") ? pl_fig_text(record, "from") : "-",
                pl_fig_has(record, "to") ? pl_fig_text(record, "to") : "-");
    if (d == NULL) pl_buf_adds(out, "no death is recorded\n");
    if (d != NULL) death(out, d);
    json_array_foreach(json_object_get(doc, "deaths"), i, o) {
        if (i == 0) continue; /* told above */
        pl_buf_adds(out, i == 1 ? "\nbefore it\n" : "");
        death(out, o);
    }
    snprintf(head, sizeof head, "what happened from %.12s to %.12s", clock_of(pl_fig_text(doc, "from")),
             clock_of(pl_fig_text(doc, "to")));
    section(out, head, json_object_get(doc, "story"), event);
    section(out, "requests", json_object_get(doc, "numbers"), requests);
    section(out, "requests in flight then", json_object_get(doc, "in_flight"), running);
    section(out, "memory", json_object_get(doc, "memory"), memory);
    section(out, "verdicts", json_object_get(doc, "verdicts"), verdict);
    section(out, "what was not done, because of the service's mode", json_object_get(doc, "would"), would);
}
