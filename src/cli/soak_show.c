#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/drydock_report.h"
#include "cli/figures.h"
#include "cli/out.h"
#include "cli/soak.h"

enum { WIDTH = 80, CURVE_WIDTH = 46, PEAKS_SHOWN = 8 };

void pl_soak_bytes(char out[24], double bytes) {
    if (bytes > 0)
        snprintf(out, 24, "%s", pl_size((uint64_t)llround(bytes)).text);
    else
        snprintf(out, 24, "0");
}

/* Text of others: no control characters reach the terminal. */
static void put(struct pl_buf *out, const char *s) {
    for (; *s != '\0'; s++) {
        char c = (unsigned char)*s < ' ' || *s == 0x7f ? ' ' : *s;
        pl_buf_add(out, &c, 1);
    }
}

/* --- curves */

static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };

static void spark(const double *v, size_t n, size_t width, struct pl_buf *out) {
    double low = HUGE_VAL, high = 0;
    for (size_t i = 0; i < n; i++) {
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    if (n < width) width = n;
    double span = high - low;
    bool flat = span < high / 50; /* a ripple is no mountain */
    for (size_t i = 0; i < width; i++) {
        double x = v[width > 1 ? i * (n - 1) / (width - 1) : 0];
        int level = flat ? 0 : (int)((x - low) / span * 7.999);
        pl_buf_adds(out, blocks[level]);
    }
}

void pl_soak_spark(const json_t *curve, size_t column, size_t width, struct pl_buf *out) {
    double v[PL_SOAK_CURVE];
    size_t n = json_array_size(curve);
    if (n > PL_SOAK_CURVE) n = PL_SOAK_CURVE;
    for (size_t i = 0; i < n; i++) v[i] = json_number_value(json_array_get(json_array_get(curve, i), column));
    spark(v, n, width, out);
}

/* --- progress */

static bool on_terminal(void) {
    const char *term = getenv("TERM");
    return isatty(2) == 1 && term != NULL && strcmp(term, "dumb") != 0;
}

static void draw(const struct pl_soak_books *b, const char *name, uint64_t sent, uint64_t of, bool first,
                 bool over) {
    struct pl_buf out;
    double device[PL_SOAK_CURVE], host[PL_SOAK_CURVE];
    char bytes[24];
    pl_buf_init(&out, 0);
    for (size_t i = 0; i < b->points; i++) {
        device[i] = (double)b->curve[i].device;
        host[i] = (double)b->curve[i].host;
    }
    if (!first) pl_buf_adds(&out, "\033[3A\033[J");
    if (!over) {
        pl_buf_addf(&out, "%-11s %llu of %llu requests\n  device ", name, (unsigned long long)sent,
                    (unsigned long long)of);
        spark(device, b->points, CURVE_WIDTH, &out);
        pl_soak_bytes(bytes, (double)b->now.device);
        pl_buf_addf(&out, " %s\n  host   ", bytes);
        spark(host, b->points, CURVE_WIDTH, &out);
        pl_soak_bytes(bytes, (double)b->now.host);
        pl_buf_addf(&out, " %s\n", bytes);
    }
    fwrite(out.data, 1, out.len, stderr);
    fflush(stderr);
    pl_buf_free(&out);
}

void pl_soak_progress(const struct pl_soak_wish *w, enum pl_scenario s, const struct pl_soak_books *b,
                      uint64_t sent, uint64_t of, bool over) {
    static bool drawn;
    const char *name = pl_soak_scenario_name(s);
    if (w->cli->args.json) {
        if (over) return;
        printf("{\"v\":1,\"kind\":\"soak_progress\",\"scenario\":\"%s\",\"requests\":%llu,\"of\":%llu", name,
               (unsigned long long)sent, (unsigned long long)of);
        if (b->now.device > 0) printf(",\"device_bytes\":%llu", (unsigned long long)b->now.device);
        if (b->now.host > 0) printf(",\"host_bytes\":%llu", (unsigned long long)b->now.host);
        printf("}\n");
        fflush(stdout);
        return;
    }
    if (w->cli->args.quiet || !on_terminal() || (over && !drawn)) return;
    draw(b, name, sent, of, !drawn, over);
    drawn = !over;
}

/* --- the verdict table */

static void growth(const json_t *v, char out[24]) {
    if (pl_fig_has(v, "bytes_per_request"))
        pl_soak_bytes(out, pl_fig_number(v, "bytes_per_request"));
    else
        snprintf(out, 24, "-");
}

static void level(const json_t *o, const char *key, char out[24]) {
    if (pl_fig_has(o, key))
        pl_soak_bytes(out, pl_fig_number(o, key));
    else
        snprintf(out, 24, "-");
}

static void put_table(struct pl_buf *out, const json_t *doc) {
    const json_t *s;
    size_t i;
    pl_buf_addf(out, "%-11s %8s %-15s %10s %10s %10s %10s\n", "scenario", "requests", "verdict", "a request",
                "device", "peak", "host");
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) {
        const json_t *v = json_object_get(s, "verdict");
        char grows[24], device[24], peak[24], host[24];
        growth(v, grows);
        level(s, "device_bytes", device);
        level(s, "peak_bytes", peak);
        level(s, "host_bytes", host);
        pl_buf_addf(out, "%-11s %8.0f %-15s %10s %10s %10s %10s\n", pl_fig_text(s, "scenario"),
                    pl_fig_number(s, "requests"),
                    strcmp(pl_fig_text(s, "scenario"), "batch") == 0 ? "-" : pl_fig_text(v, "word"), grows,
                    device, peak, host);
    }
}

static void put_curves(struct pl_buf *out, const json_t *s) {
    const json_t *curve = json_object_get(s, "curve"),
                 *last = json_array_get(curve, json_array_size(curve) - 1);
    static const struct {
        const char *name;
        size_t column;
    } rows[] = { { "device", 1 }, { "host", 3 } };
    if (json_array_size(curve) < 2) return;
    for (size_t i = 0; i < 2; i++) {
        char from[24], to[24];
        double now = json_number_value(json_array_get(last, rows[i].column));
        if (now <= 0) continue;
        pl_soak_bytes(from, json_number_value(json_array_get(json_array_get(curve, 0), rows[i].column)));
        pl_soak_bytes(to, now);
        pl_buf_addf(out, "  %-7s", rows[i].name);
        pl_soak_spark(curve, rows[i].column, CURVE_WIDTH, out);
        pl_buf_addf(out, " %s to %s\n", from, to);
    }
}

static void put_verdict(struct pl_buf *out, const json_t *v) {
    char a[24], low[24], high[24];
    pl_buf_addf(out, "  %s: %s\n", pl_fig_text(v, "word"), pl_fig_text(v, "text"));
    if (pl_fig_has(v, "bytes_per_request")) {
        pl_soak_bytes(a, pl_fig_number(v, "bytes_per_request"));
        pl_soak_bytes(low, pl_fig_number(v, "low"));
        pl_soak_bytes(high, pl_fig_number(v, "high"));
        pl_buf_addf(out, "  %s a request (%s to %s) on %s, %s, seen since request %.0f\n", a, low, high,
                    pl_fig_text(v, "scope"), pl_fig_text(v, "confidence"),
                    pl_fig_number(v, "since_requests"));
    } else if (strcmp(pl_fig_text(v, "word"), "cache") == 0) {
        pl_soak_bytes(a, pl_fig_number(v, "growth_bytes"));
        pl_buf_addf(out, "  %s more on %s, at rest since request %.0f\n", a, pl_fig_text(v, "scope"),
                    pl_fig_number(v, "since_requests"));
    } else if (pl_fig_has(v, "growth_bytes") && strcmp(pl_fig_text(v, "word"), "stable") != 0) {
        pl_soak_bytes(a, pl_fig_number(v, "growth_bytes"));
        pl_buf_addf(out, "  %s more on %s\n", a, pl_fig_text(v, "scope"));
    }
    if (pl_fig_has(v, "copies"))
        pl_buf_addf(out, "  %.0f processes hold a model on the same device\n", pl_fig_number(v, "copies"));
}

static void put_batch(struct pl_buf *out, const json_t *b) {
    char peak[24], budget[24], item[24];
    const char *why = pl_fig_text(b, "limited_by");
    pl_soak_bytes(peak, pl_fig_number(b, "peak_bytes"));
    pl_soak_bytes(budget, pl_fig_number(b, "budget_bytes"));
    pl_buf_addf(out, "  largest batch: %.0f (%s), peak %s of a budget of %s", pl_fig_number(b, "largest"),
                pl_fig_text(b, "field"), peak, budget);
    if (pl_fig_has(b, "bytes_per_item")) {
        pl_soak_bytes(item, pl_fig_number(b, "bytes_per_item"));
        pl_buf_addf(out, ", %s an item", item);
    }
    pl_buf_addf(out, "\n  %s\n",
                strcmp(why, "budget") == 0    ? "one more would be over the budget"
                : strcmp(why, "memory") == 0  ? "one more fails in the handler"
                : strcmp(why, "service") == 0 ? "one more is refused by the service"
                                              : "more were not tried");
}

static void put_steps(struct pl_buf *out, const json_t *steps) {
    const json_t *s;
    size_t i;
    if (json_array_size(steps) == 0) return;
    pl_buf_adds(out, "  at a time    a second    median       95 %    refused\n");
    json_array_foreach(steps, i, s) {
        const json_t *l = json_object_get(s, "latency_ms");
        pl_buf_addf(out, "  %9.0f  %10.1f  %6.1f ms  %6.1f ms  %9.0f\n", pl_fig_number(s, "concurrency"),
                    pl_fig_number(s, "per_s"), pl_fig_number(l, "median"), pl_fig_number(l, "p95"),
                    pl_fig_number(s, "refused"));
    }
}

static void put_peaks(struct pl_buf *out, const json_t *s) {
    const json_t *list = json_object_get(s, "peaks"), *batches = json_object_get(s, "batches"), *p;
    size_t i;
    char bytes[24];
    if (json_array_size(list) > 1) pl_buf_adds(out, "  peaks by shape:\n");
    json_array_foreach(list, i, p) {
        if (json_array_size(list) < 2 || i >= PEAKS_SHOWN) break;
        pl_soak_bytes(bytes, pl_fig_number(p, "bytes"));
        pl_buf_addf(out, "  %10s  ", bytes);
        put(out, pl_fig_text(p, "tag"));
        pl_buf_addf(out, " (%.0f)\n", pl_fig_number(p, "requests"));
    }
    if (json_array_size(list) > PEAKS_SHOWN)
        pl_buf_addf(out, "      and %zu more\n", json_array_size(list) - PEAKS_SHOWN);
    if (json_array_size(batches) > 0) pl_buf_adds(out, "  peaks by batch:\n");
    json_array_foreach(batches, i, p) {
        pl_soak_bytes(bytes, pl_fig_number(p, "bytes"));
        pl_buf_addf(out, "  %10s  up to %.0f (%.0f)\n", bytes, pl_fig_number(p, "up_to"),
                    pl_fig_number(p, "requests"));
    }
}

static void put_answers(struct pl_buf *out, const json_t *s) {
    static const char *const keys[] = { "client_errors",  "server_errors", "refused",
                                        "without_answer", "left",          "rows_lost" };
    static const char *const words[] = { "4xx",
                                         "5xx",
                                         "429 or 503",
                                         "without an answer",
                                         "left by the client",
                                         "whose memory was not read in time" };
    const json_t *l = json_object_get(s, "latency_ms");
    pl_buf_addf(out, "  %.0f answered well", pl_fig_number(s, "ok"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (pl_fig_has(s, keys[i])) pl_buf_addf(out, ", %.0f %s", pl_fig_number(s, keys[i]), words[i]);
    if (l != NULL && !pl_fig_has(s, "steps"))
        pl_buf_addf(out, "; %.0f a second, median %.1f ms", pl_fig_number(s, "per_s"),
                    pl_fig_number(l, "median"));
    pl_buf_addf(out, "; %.1f s\n", pl_fig_number(s, "seconds"));
}

static void put_scenario(struct pl_buf *out, const json_t *s) {
    const json_t *n, *gaps = json_object_get(s, "gaps");
    size_t i;
    pl_buf_addf(out, "\n%s\n", pl_fig_text(s, "scenario"));
    put_curves(out, s);
    if (pl_fig_has(s, "batch")) put_batch(out, json_object_get(s, "batch"));
    if (strcmp(pl_fig_text(s, "scenario"), "batch") != 0) put_verdict(out, json_object_get(s, "verdict"));
    if (pl_fig_has(s, "holder")) {
        pl_buf_adds(out, "  held by ");
        put(out, pl_fig_text(s, "holder"));
        pl_buf_adds(out, "\n");
    }
    if (pl_fig_has(s, "top_tag")) {
        pl_buf_adds(out, "  grows with ");
        put(out, pl_fig_text(s, "top_tag"));
        pl_buf_addf(out, ", %.0f %% of it in requests that failed\n", pl_fig_number(s, "failed_share") * 100);
    }
    if (pl_fig_has(s, "field"))
        pl_buf_addf(out, "  %s from 1 to %.0f\n", pl_fig_text(s, "field"), pl_fig_number(s, "longest"));
    if (pl_fig_has(s, "failing_by"))
        pl_buf_addf(out, "  made to fail by: %s\n", pl_fig_text(s, "failing_by"));
    if (gaps != NULL) {
        char device[24], host[24];
        pl_soak_bytes(device, pl_fig_number(gaps, "device_bytes"));
        pl_soak_bytes(host, pl_fig_number(gaps, "host_bytes"));
        pl_buf_addf(out, "  %.0f pauses of %.0f ms: %s more on the device after them, %s on the host\n",
                    pl_fig_number(gaps, "count"), pl_fig_number(gaps, "ms"), device, host);
    }
    put_steps(out, json_object_get(s, "steps"));
    put_peaks(out, s);
    put_answers(out, s);
    json_array_foreach(json_object_get(s, "notes"), i, n) {
        pl_buf_adds(out, "  ");
        put(out, json_string_value(n));
        pl_buf_adds(out, "\n");
    }
}

/* --- lines that a terminal can show */

static size_t columns(const char *s, size_t n) {
    size_t c = 0;
    for (size_t i = 0; i < n; i++) c += ((unsigned char)s[i] & 0xc0) != 0x80;
    return c;
}

static void fold_line(const char *s, size_t n, struct pl_buf *out) {
    size_t indent = 0, at = 0;
    while (indent < n && s[indent] == ' ') indent++;
    if (columns(s, n) <= WIDTH) {
        pl_buf_add(out, s, n);
        return;
    }
    for (size_t i = indent; i < n;) {
        size_t word = i;
        while (word < n && s[word] != ' ') word++;
        size_t wide = columns(s + i, word - i);
        if (at > 0 && at + 1 + wide > WIDTH) {
            pl_buf_addf(out, "\n%*s", (int)indent + 2, "");
            at = indent + 2;
        } else if (at > 0) {
            pl_buf_adds(out, " ");
            at++;
        } else {
            pl_buf_addf(out, "%*s", (int)indent, "");
            at = indent;
        }
        pl_buf_add(out, s + i, word - i);
        at += wide;
        i = word;
        while (i < n && s[i] == ' ') i++;
    }
}

void pl_soak_fold(const char *text, struct pl_buf *out) {
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        fold_line(text, n, out);
        pl_buf_adds(out, "\n");
        text += n + (text[n] == '\n');
    }
}

static void put_all(const json_t *doc, struct pl_buf *out) {
    const json_t *s, *gpu = json_object_get(doc, "gpu");
    size_t i;
    pl_buf_adds(out, "plimsoll soak ");
    put(out, pl_fig_text(doc, "target"));
    pl_buf_adds(out, " ");
    put(out, pl_fig_text(doc, "route"));
    if (gpu != NULL) {
        pl_buf_adds(out, ", on ");
        put(out, pl_fig_text(gpu, "name"));
    }
    pl_buf_adds(out, "\n");
    if (json_is_true(json_object_get(doc, "dry_run")))
        pl_buf_adds(out, "dry run: values not computed, library workspaces not counted\n");
    put_table(out, doc);
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) put_scenario(out, s);
    pl_buf_addf(out, "\n%s\n",
                strcmp(pl_fig_text(doc, "result"), "clean") == 0    ? "clean"
                : strcmp(pl_fig_text(doc, "result"), "leak") == 0   ? "it leaks"
                : strcmp(pl_fig_text(doc, "result"), "failed") == 0 ? "it failed"
                                                                    : "not known: see what is said above");
}

void pl_soak_text(const json_t *doc, struct pl_buf *out) {
    struct pl_buf wide;
    pl_buf_init(&wide, 0);
    put_all(doc, &wide);
    pl_soak_fold(pl_buf_text(&wide), out);
    pl_buf_free(&wide);
}

/* --- JUnit: a case for each scenario. Leaks are failures; what could not be judged is an error. */

static void put_case(struct pl_buf *out, const json_t *s, const char *target) {
    const char *result = pl_fig_text(s, "result");
    struct pl_buf story;
    pl_buf_init(&story, 0);
    put_scenario(&story, s);
    pl_buf_adds(out, "  <testcase classname=\"plimsoll.soak.");
    pl_out_xml(out, target);
    pl_buf_addf(out, "\" name=\"%s\" time=\"%.3f\">\n", pl_fig_text(s, "scenario"),
                pl_fig_number(s, "seconds"));
    bool bad = strcmp(result, "leak") == 0 || strcmp(result, "failed") == 0;
    if (bad || strcmp(result, "unknown") == 0) {
        const json_t *v = json_object_get(s, "verdict");
        const json_t *notes = json_object_get(s, "notes");
        const char *why = json_string_value(json_array_get(notes, bad ? 0 : json_array_size(notes) - 1));
        pl_buf_addf(out, "    <%s type=\"%s\" message=\"", bad ? "failure" : "error",
                    strcmp(result, "leak") == 0 ? pl_fig_text(v, "word") : result);
        if (strcmp(result, "leak") == 0) {
            char bytes[24];
            growth(v, bytes);
            pl_out_xml(out, pl_fig_text(v, "text"));
            if (pl_fig_has(v, "bytes_per_request")) pl_buf_addf(out, ": %s a request", bytes);
            if (pl_fig_has(s, "holder")) {
                pl_buf_adds(out, ", held by ");
                pl_out_xml(out, pl_fig_text(s, "holder"));
            }
        } else {
            pl_out_xml(out, why != NULL ? why : "it could not be judged");
        }
        pl_buf_adds(out, "\">");
        pl_out_xml(out, pl_buf_text(&story));
        pl_buf_addf(out, "</%s>\n", bad ? "failure" : "error");
    } else {
        if (strcmp(result, "skipped") == 0) {
            const char *why = json_string_value(json_array_get(json_object_get(s, "notes"), 0));
            pl_buf_adds(out, "    <skipped message=\"");
            pl_out_xml(out, why != NULL ? why : "it does not apply");
            pl_buf_adds(out, "\"/>\n");
        }
        pl_buf_adds(out, "    <system-out>");
        pl_out_xml(out, pl_buf_text(&story));
        pl_buf_adds(out, "</system-out>\n");
    }
    pl_buf_adds(out, "  </testcase>\n");
    pl_buf_free(&story);
}

void pl_soak_junit(const json_t *doc, struct pl_buf *out) {
    const json_t *list = json_object_get(doc, "scenarios"), *s;
    size_t i, failures = 0, errors = 0, skipped = 0;
    double seconds = 0;
    json_array_foreach(list, i, s) {
        failures +=
            strcmp(pl_fig_text(s, "result"), "leak") == 0 || strcmp(pl_fig_text(s, "result"), "failed") == 0;
        errors += strcmp(pl_fig_text(s, "result"), "unknown") == 0;
        skipped += strcmp(pl_fig_text(s, "result"), "skipped") == 0;
        seconds += pl_fig_number(s, "seconds");
    }
    pl_buf_adds(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"plimsoll soak ");
    pl_out_xml(out, pl_fig_text(doc, "target"));
    pl_buf_addf(out,
                "\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" time=\"%.3f\" "
                "timestamp=\"%.19s\">\n",
                json_array_size(list), failures, errors, skipped, seconds, pl_fig_text(doc, "ts"));
    json_array_foreach(list, i, s) put_case(out, s, pl_fig_text(doc, "target"));
    pl_buf_adds(out, "</testsuite>\n");
}
