/* A run as sections of a page (cli/page.h). */
#include <stdio.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/soak.h"

static json_t *bytes(const json_t *o, const char *key) {
    char out[24] = "-";
    if (json_object_get(o, key) != NULL) pl_soak_bytes(out, pl_fig_number(o, key));
    return json_string(out);
}

static json_t *plain(const char *form, double v) {
    char out[40];
    snprintf(out, sizeof out,
             strcmp(form, "ms") == 0  ? "%.1f ms"
             : strcmp(form, "1") == 0 ? "%.1f"
                                      : "%.0f",
             v);
    return json_string(out);
}

static json_t *section(json_t *list, const char *head) {
    json_t *s = json_pack("{s:s}", "head", head);
    json_array_append_new(list, s);
    return s;
}

static void add_table(json_t *sections, const json_t *doc) {
    json_t *rows = json_array(), *s;
    size_t i;
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) {
        const json_t *v = json_object_get(s, "verdict");
        bool batch = strcmp(pl_fig_text(s, "scenario"), "batch") == 0;
        json_array_append_new(
            rows, json_pack("[s,s,s,o,o,o,o,o,s]", pl_fig_text(s, "scenario"), pl_fig_text(s, "result"),
                            batch ? "-" : pl_fig_text(v, "word"), plain("0", pl_fig_number(s, "requests")),
                            bytes(v, "bytes_per_request"), bytes(s, "device_bytes"), bytes(s, "peak_bytes"),
                            bytes(s, "host_bytes"), pl_fig_text(s, "holder")));
    }
    json_object_set_new(section(sections, "Verdicts"), "table",
                        json_pack("{s:[s,s,s,s,s,s,s,s,s],s:[i,i,i,i,i],s:o}", "heads", "scenario", "result",
                                  "verdict", "requests", "a request", "device", "peak", "host", "held by",
                                  "numbers", 3, 4, 5, 6, 7, "rows", rows));
}

static json_t *points(const json_t *curve, size_t column) {
    json_t *list = json_array(), *p;
    size_t i;
    json_array_foreach(curve, i, p)
        json_array_append_new(list, json_pack("[O,O]", json_array_get(p, 0), json_array_get(p, column)));
    return list;
}

static bool any(const json_t *curve, size_t column) {
    const json_t *p;
    size_t i;
    json_array_foreach(curve, i, p) if (json_number_value(json_array_get(p, column)) > 0) return true;
    return false;
}

/* Device and host apart: one would flatten the other. */
static json_t *plot(const json_t *curve, bool host) {
    json_t *series = json_array();
    if (host) {
        json_array_append_new(series,
                              json_pack("{s:s,s:o}", "name", "host memory", "points", points(curve, 3)));
    } else {
        json_array_append_new(series,
                              json_pack("{s:s,s:o}", "name", "allocated", "points", points(curve, 1)));
        json_array_append_new(series, json_pack("{s:s,s:o}", "name", "reserved", "points", points(curve, 2)));
    }
    return json_pack("{s:s,s:s,s:i,s:o}", "unit", "bytes", "x", "requests", "height", host ? 150 : 210,
                     "series", series);
}

static void add_words(json_t *lines, const json_t *s) {
    const json_t *v = json_object_get(s, "verdict"), *b = json_object_get(s, "batch"), *n;
    char line[600] = "", a[24], low[24], high[24];
    size_t i;
    if (b != NULL) {
        pl_soak_bytes(a, pl_fig_number(b, "peak_bytes"));
        pl_soak_bytes(low, pl_fig_number(b, "budget_bytes"));
        snprintf(line, sizeof line,
                 "Largest batch: %.0f (%.60s), peak %s of a budget of %s; limited by the %.20s.",
                 pl_fig_number(b, "largest"), pl_fig_text(b, "field"), a, low, pl_fig_text(b, "limited_by"));
    } else if (strcmp(pl_fig_text(s, "scenario"), "batch") != 0) {
        snprintf(line, sizeof line, "%.40s: %.200s.", pl_fig_text(v, "word"), pl_fig_text(v, "text"));
    }
    if (line[0] != '\0') json_array_append_new(lines, json_string(line));
    if (json_object_get(v, "bytes_per_request") != NULL) {
        pl_soak_bytes(a, pl_fig_number(v, "bytes_per_request"));
        pl_soak_bytes(low, pl_fig_number(v, "low"));
        pl_soak_bytes(high, pl_fig_number(v, "high"));
        snprintf(line, sizeof line, "%s a request (%s to %s) on %.20s, %.20s, seen since request %.0f.", a,
                 low, high, pl_fig_text(v, "scope"), pl_fig_text(v, "confidence"),
                 pl_fig_number(v, "since_requests"));
        json_array_append_new(lines, json_string(line));
    }
    if (pl_fig_text(s, "holder")[0] != '\0') {
        snprintf(line, sizeof line, "Held by %.500s.", pl_fig_text(s, "holder"));
        json_array_append_new(lines, json_string(line));
    }
    json_array_foreach(json_object_get(s, "notes"), i, n) json_array_append(lines, (json_t *)(uintptr_t)n);
}

static void add_scenario(json_t *sections, const json_t *s) {
    const json_t *curve = json_object_get(s, "curve"), *l = json_object_get(s, "latency_ms"), *p;
    json_t *one = section(sections, pl_fig_text(s, "scenario")), *lines = json_array(), *rows = json_array();
    size_t i;
    add_words(lines, s);
    json_object_set_new(one, "text", lines);
    json_t *cards = json_pack("[[s,o,s],[s,o,s]]", "requests", plain("0", pl_fig_number(s, "requests")), "",
                              "answered well", plain("0", pl_fig_number(s, "ok")), "");
    if (pl_fig_number(s, "per_s") > 0)
        json_array_append_new(cards,
                              json_pack("[s,o,s]", "a second", plain("1", pl_fig_number(s, "per_s")), ""));
    if (pl_fig_number(l, "median") > 0)
        json_array_append_new(cards,
                              json_pack("[s,o,s]", "median", plain("ms", pl_fig_number(l, "median")), ""));
    json_object_set_new(one, "cards", cards);
    if (json_array_size(curve) > 1 && any(curve, 1)) json_object_set_new(one, "plot", plot(curve, false));
    if (json_array_size(curve) > 1 && any(curve, 3)) {
        json_t *host = json_pack("{s:o}", "plot", plot(curve, true));
        json_array_append_new(sections, host);
    }
    json_array_foreach(json_object_get(s, "steps"), i, p) {
        const json_t *ms = json_object_get(p, "latency_ms");
        json_array_append_new(
            rows, json_pack("[o,o,o,o,o]", plain("0", pl_fig_number(p, "concurrency")),
                            plain("1", pl_fig_number(p, "per_s")), plain("ms", pl_fig_number(ms, "median")),
                            plain("ms", pl_fig_number(ms, "p95")), plain("0", pl_fig_number(p, "refused"))));
    }
    if (json_array_size(rows) > 0)
        json_array_append_new(sections, json_pack("{s:{s:[s,s,s,s,s],s:[i,i,i,i,i],s:O}}", "table", "heads",
                                                  "at a time", "a second", "median", "95 %", "refused",
                                                  "numbers", 0, 1, 2, 3, 4, "rows", rows));
    json_decref(rows);
    rows = json_array();
    json_array_foreach(json_object_get(s, "peaks"), i, p)
        json_array_append_new(rows, json_pack("[s,o,o]", pl_fig_text(p, "tag"),
                                              plain("0", pl_fig_number(p, "requests")), bytes(p, "bytes")));
    if (json_array_size(rows) > 0)
        json_array_append_new(sections, json_pack("{s:{s:[s,s,s],s:[i,i],s:O}}", "table", "heads", "shape",
                                                  "requests", "peak", "numbers", 1, 2, "rows", rows));
    json_decref(rows);
}

json_t *pl_soak_sections(const json_t *doc) {
    json_t *sections = json_array(), *about = json_array(), *s;
    char line[700];
    size_t i;
    const json_t *gpu = json_object_get(doc, "gpu");
    snprintf(line, sizeof line, "%.300s %.200s, %.30s%s%.100s", pl_fig_text(doc, "target"),
             pl_fig_text(doc, "route"), pl_fig_text(doc, "ts"), gpu != NULL ? ", on " : "",
             gpu != NULL ? pl_fig_text(gpu, "name") : "");
    json_array_append_new(about, json_string(line));
    if (json_is_true(json_object_get(doc, "dry_run")))
        json_array_append_new(about,
                              json_string("Dry run: values not computed, library workspaces not counted."));
    const char *result = pl_fig_text(doc, "result");
    json_array_append_new(sections, json_pack("{s:[s],s:b}", "text",
                                              strcmp(result, "clean") == 0    ? "Clean."
                                              : strcmp(result, "leak") == 0   ? "It leaks."
                                              : strcmp(result, "failed") == 0 ? "It failed."
                                                                              : "It could not be judged.",
                                              "lead", 1));
    add_table(sections, doc);
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) add_scenario(sections, s);
    return json_pack("{s:s,s:o,s:o}", "title", "plimsoll soak", "about", about, "sections", sections);
}
