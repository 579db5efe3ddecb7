/* report_html.c - a report as sections of a page: the death, memory over time, requests, what happened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/report.h"

static json_t *section(json_t *list, const char *head) {
    json_t *s = json_pack("{s:s}", "head", head);
    json_array_append_new(list, s);
    return s;
}

static void who(const json_t *o, char *out, size_t room) {
    char slot[48] = "";
    if (json_object_get(o, "generation") != NULL)
        snprintf(slot, sizeof slot, "/%.0f.%.0f", pl_fig_number(o, "worker"), pl_fig_number(o, "generation"));
    snprintf(out, room, "%.80s%s", pl_fig_text(o, "service"), slot);
}

static void add_death(json_t *sections, const json_t *d) {
    char who_died[160], head[300];
    json_t *lines = json_array(), *cards = json_array();
    who(d, who_died, sizeof who_died);
    if (who_died[0] == '\0') snprintf(who_died, sizeof who_died, "%s", pl_fig_text(d, "kind"));
    snprintf(head, sizeof head, "%.20s %.160s: %.60s", pl_fig_text(d, "id"), who_died,
             pl_fig_text(d, "cause"));
    json_t *s = section(sections, head);
    json_array_append_new(lines, json_string(pl_fig_text(d, "sentence")));
    if (pl_fig_text(d, "last_line")[0] != '\0') json_array_append(lines, json_object_get(d, "last_line"));
    json_object_set_new(s, "text", lines);
    json_object_set_new(s, "lead", json_true());
    json_array_append_new(cards, json_pack("[s,s,s]", "when", pl_fig_text(d, "ts"), "UTC"));
    if (pl_fig_number(d, "in_handlers") > 0) {
        char lost[32];
        snprintf(lost, sizeof lost, "%.0f", pl_fig_number(d, "in_handlers"));
        json_array_append_new(cards, json_pack("[s,s,s]", "lost in handlers", lost, "requests"));
    }
    json_object_set_new(s, "cards", cards);
}

/* All plots begin with the first thing that is known, so that they can be read one below the other. */
static double first_ms(const json_t *doc) {
    double first = pl_fig_number(doc, "to_ms");
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(doc, "memory"), i, o) {
        const json_t *points = json_object_get(o, "points");
        double at = json_number_value(json_array_get(json_array_get(points, 0), 0));
        if (json_array_size(points) > 0 && at < first) first = at;
    }
    json_array_foreach(json_object_get(doc, "requests"), i, o) if (pl_fig_number(o, "ts_ms") < first) first =
        pl_fig_number(o, "ts_ms");
    return first;
}

static void set_range(json_t *plot, const json_t *doc) {
    json_object_set_new(plot, "from", json_real(first_ms(doc)));
    json_object_set_new(plot, "to", json_real(pl_fig_number(doc, "to_ms")));
}

/* Those of the same scope share a plot. */
static void add_memory(json_t *sections, const json_t *doc, const json_t *marks) {
    const json_t *list = json_object_get(doc, "memory");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *scope = pl_fig_text(json_array_get(list, i), "scope");
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= strcmp(scope, pl_fig_text(json_array_get(list, k), "scope")) == 0;
        if (seen) continue;
        char head[120];
        json_t *series = json_array(), *lines = json_array();
        double limit = 0;
        for (size_t k = i; k < json_array_size(list); k++) {
            const json_t *m = json_array_get(list, k);
            char name[200], of[160];
            if (strcmp(scope, pl_fig_text(m, "scope")) != 0) continue;
            who(m, of, sizeof of);
            snprintf(name, sizeof name, "%s %s", of, pl_fig_text(m, "what"));
            json_array_append_new(
                series, json_pack("{s:s,s:O}", "name", name, "points", json_object_get(m, "points")));
            if (json_object_get(m, "reserved") != NULL) {
                snprintf(name, sizeof name, "%s reserved", of);
                json_array_append_new(
                    series, json_pack("{s:s,s:O}", "name", name, "points", json_object_get(m, "reserved")));
            }
            if (pl_fig_number(m, "limit_bytes") > limit) limit = pl_fig_number(m, "limit_bytes");
        }
        if (limit > 0) json_array_append_new(lines, json_pack("{s:s,s:f}", "name", "limit", "value", limit));
        snprintf(head, sizeof head, "Memory, %.60s", scope);
        json_t *plot = json_pack("{s:s,s:i,s:o,s:o,s:O}", "unit", "bytes", "gap", 30000, "series", series,
                                 "lines", lines, "marks", marks);
        set_range(plot, doc);
        json_object_set_new(section(sections, head), "plot", plot);
    }
}

/* Answers and failures a step, all services together. */
static void add_rate(json_t *sections, const json_t *doc, const json_t *marks) {
    json_t *all = json_array(), *failed = json_array(), *p;
    double at = -1, sum = 0, bad = 0;
    const json_t *list = json_object_get(doc, "requests");
    for (size_t i = 0; i <= json_array_size(list); i++) {
        p = json_array_get(list, i);
        if (at >= 0 && (p == NULL || pl_fig_number(p, "ts_ms") > at)) {
            json_array_append_new(all, json_pack("[f,f]", at, sum));
            if (bad > 0) json_array_append_new(failed, json_pack("[f,f]", at, bad));
            sum = bad = 0;
        }
        if (p == NULL) break;
        at = pl_fig_number(p, "ts_ms");
        sum += pl_fig_number(p, "requests");
        bad += pl_fig_number(p, "failed");
    }
    if (json_array_size(all) > 0) {
        char head[64];
        double step = pl_fig_number(doc, "step_ms");
        snprintf(head, sizeof head, "Requests that began, each %.0f s", step / 1000);
        json_t *plot =
            json_pack("{s:s,s:i,s:O,s:[{s:s,s:s,s:f,s:O},{s:s,s:s,s:f,s:O}]}", "unit", "count", "height", 140,
                      "marks", marks, "series", "name", "answered", "kind", "bars", "step", step, "points",
                      all, "name", "not ok", "kind", "bars", "step", step, "points", failed);
        set_range(plot, doc);
        json_object_set_new(section(sections, head), "plot", plot);
    }
    json_decref(all);
    json_decref(failed);
}

static json_t *plain(int decimals, double value, const char *unit) {
    char out[64];
    snprintf(out, sizeof out, "%.*f%s", decimals, value, unit);
    return json_string(out);
}

static void add_requests(json_t *sections, const json_t *doc) {
    const json_t *list = json_object_get(doc, "numbers");
    json_t *rows = json_array();
    size_t i;
    json_t *n, *value;
    const char *key;
    json_array_foreach(list, i, n) {
        char outcomes[300] = "";
        size_t at = 0;
        json_object_foreach(json_object_get(n, "outcomes"), key, value) if (at < sizeof outcomes) at +=
            (size_t)snprintf(outcomes + at, sizeof outcomes - at, "%s%" JSON_INTEGER_FORMAT " %.40s",
                             at > 0 ? ", " : "", json_integer_value(value), key);
        json_array_append_new(rows, json_pack("[s,o,o,o,o,s]", pl_fig_text(n, "service"),
                                              plain(0, pl_fig_number(n, "requests"), ""),
                                              plain(1, pl_fig_number(n, "median_ms"), " ms"),
                                              plain(1, pl_fig_number(n, "p95_ms"), " ms"),
                                              plain(1, pl_fig_number(n, "longest_ms"), " ms"), outcomes));
    }
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return;
    }
    json_object_set_new(section(sections, "Requests"), "table",
                        json_pack("{s:[s,s,s,s,s,s],s:[i,i,i,i],s:o}", "heads", "service", "answered",
                                  "median", "95 % within", "longest", "outcomes", "numbers", 1, 2, 3, 4,
                                  "rows", rows));
}

static void add_in_flight(json_t *sections, const json_t *doc) {
    json_t *rows = json_array(), *r;
    size_t i;
    json_array_foreach(json_object_get(doc, "in_flight"), i, r) {
        char of[160], what[400];
        who(r, of, sizeof of);
        snprintf(what, sizeof what, "%.10s %.300s", pl_fig_text(r, "method"), pl_fig_text(r, "route"));
        json_array_append_new(rows, json_pack("[s,s,s,o,o,s]", pl_fig_text(r, "id"), of, what,
                                              plain(2, pl_fig_number(r, "running_ms") / 1000, " s"),
                                              plain(0, pl_fig_number(r, "request_bytes"), ""),
                                              pl_fig_text(r, "outcome")[0] != '\0' ? pl_fig_text(r, "outcome")
                                                                                   : "no end known"));
    }
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return;
    }
    json_object_set_new(section(sections, "In flight then"), "table",
                        json_pack("{s:[s,s,s,s,s,s],s:[i,i],s:o}", "heads", "id", "worker", "request",
                                  "had run", "bytes in", "outcome", "numbers", 3, 4, "rows", rows));
}

/* Everything of an event but what has a column. */
static void rest_of(json_t *e, char *out, size_t room) {
    static const char *const said[] = {
        "ts", "level", "event", "instance", "service", "worker", "generation"
    };
    const char *key;
    json_t *value;
    size_t at = 0;
    out[0] = '\0';
    json_object_foreach(e, key, value) {
        bool skip = at >= room;
        for (size_t i = 0; i < sizeof said / sizeof *said; i++) skip |= strcmp(key, said[i]) == 0;
        if (skip) continue;
        char *dumped =
            json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        at += (size_t)snprintf(out + at, room - at, "%s%.60s=%.600s", at > 0 ? "  " : "", key,
                               dumped != NULL ? dumped : json_string_value(value));
        free(dumped);
    }
    /* cut inside a character it would be no text any more */
    while (at >= room && room > 1 && ((unsigned char)out[room - 2] & 0xc0) == 0x80) out[--room - 1] = '\0';
}

static void add_story(json_t *sections, const json_t *doc) {
    json_t *rows = json_array(), *e;
    size_t i;
    json_array_foreach(json_object_get(doc, "story"), i, e) {
        char of[160], rest[2000];
        who(e, of, sizeof of);
        rest_of(e, rest, sizeof rest);
        const char *ts = pl_fig_text(e, "ts");
        json_t *last = json_string(rest);
        json_array_append_new(rows, json_pack("[s,s,s,s,o]", strlen(ts) > 11 ? ts + 11 : ts,
                                              pl_fig_text(e, "level"), pl_fig_text(e, "event"), of,
                                              last != NULL ? last : json_string("")));
    }
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return;
    }
    json_object_set_new(
        section(sections, "What happened"), "table",
        json_pack("{s:[s,s,s,s,s],s:o}", "heads", "time", "level", "event", "worker", "", "rows", rows));
}

static void add_verdicts(json_t *sections, const json_t *doc) {
    json_t *rows = json_array(), *v;
    size_t i;
    json_array_foreach(json_object_get(doc, "verdicts"), i, v) {
        char of[160];
        who(v, of, sizeof of);
        json_array_append_new(rows, json_pack("[s,s,s,s,o,s]", pl_fig_text(v, "ts"), of,
                                              pl_fig_text(v, "scope"), pl_fig_text(v, "verdict"),
                                              plain(0, pl_fig_number(v, "bytes_per_request"), ""),
                                              pl_fig_text(v, "holder")));
    }
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return;
    }
    json_object_set_new(section(sections, "Verdicts"), "table",
                        json_pack("{s:[s,s,s,s,s,s],s:[i],s:o}", "heads", "time", "worker", "scope",
                                  "verdict", "bytes a request", "held by", "numbers", 4, "rows", rows));
}

static void add_would(json_t *sections, const json_t *doc) {
    json_t *rows = json_array(), *w;
    size_t i;
    json_array_foreach(json_object_get(doc, "would"), i, w)
        json_array_append_new(rows, json_pack("[s,s,s,s,o,s,s]", pl_fig_text(w, "service"),
                                              pl_fig_text(w, "action"), pl_fig_text(w, "reason"),
                                              pl_fig_text(w, "mode"), plain(0, pl_fig_number(w, "times"), ""),
                                              pl_fig_text(w, "first"), pl_fig_text(w, "last")));
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return;
    }
    json_object_set_new(section(sections, "Not done, because of the mode"), "table",
                        json_pack("{s:[s,s,s,s,s,s,s],s:[i],s:o}", "heads", "service", "would", "reason",
                                  "mode", "times", "first", "last", "numbers", 4, "rows", rows));
}

json_t *pl_report_sections(const json_t *doc) {
    const json_t *death = json_object_get(doc, "death"), *record = json_object_get(doc, "record");
    json_t *sections = json_array(), *marks = json_array(), *about = json_array(), *d;
    char line[700];
    size_t i;
    json_array_foreach(json_object_get(doc, "deaths"), i, d) json_array_append_new(
        marks, json_pack("{s:s,s:O}", "name", pl_fig_text(d, "cause"), "time", json_object_get(d, "ts_ms")));
    snprintf(line, sizeof line, "%s to %s, from %.500s", pl_fig_text(doc, "from"), pl_fig_text(doc, "to"),
             pl_fig_text(record, "file"));
    json_array_append_new(about, json_string(line));
    if (death == NULL) json_array_append_new(about, json_string("No death is recorded."));
    if (death != NULL) add_death(sections, death);
    add_memory(sections, doc, marks);
    add_rate(sections, doc, marks);
    add_verdicts(sections, doc);
    add_requests(sections, doc);
    add_in_flight(sections, doc);
    add_story(sections, doc);
    add_would(sections, doc);
    json_decref(marks);
    snprintf(line, sizeof line, "plimsoll report%s%.60s",
             pl_fig_text(record, "instance")[0] != '\0' ? ", " : "", pl_fig_text(record, "instance"));
    return json_pack("{s:s,s:o,s:o}", "title", line, "about", about, "sections", sections);
}
