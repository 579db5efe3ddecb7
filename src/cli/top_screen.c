#include "cli/top_screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures.h"

enum { LINE_BYTES = 1024, LEAST_EVENTS = 3, FEW_GPUS = 4 };

static const char *text(const json_t *o, const char *key) { return pl_fig_text(o, key); }
static double number(const json_t *o, const char *key) { return pl_fig_number(o, key); }
static bool yes(const json_t *o, const char *key) { return json_is_true(json_object_get(o, key)); }

static bool is_full(const struct pl_top_screen *t) { return t->count >= t->rows; }

/* What does not fit is cut; what is not plain is shown as '?': a name cannot move the cursor. */
__attribute__((format(printf, 3, 4))) static void say(struct pl_top_screen *t, enum pl_top_style style,
                                                      const char *form, ...) {
    char line[LINE_BYTES];
    va_list args;
    if (is_full(t)) return;
    va_start(args, form);
    vsnprintf(line, sizeof line, form, args);
    va_end(args);
    char *out = t->lines[t->count].text;
    size_t n = 0;
    for (const unsigned char *in = (const unsigned char *)line; *in != '\0' && n < t->cols; in++) {
        if ((*in & 0xc0) == 0x80) continue; /* the rest of a character that is one '?' already */
        out[n++] = *in >= 0x20 && *in < 0x7f ? (char)*in : '?';
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
    t->lines[t->count++].style = style;
}

static void head(struct pl_top_screen *t, const json_t *d, size_t service) {
    char up[24], of[32] = "";
    const json_t *services = json_object_get(d, "services");
    if (json_array_size(services) > 1)
        snprintf(of, sizeof of, "  service %zu of %zu (tab)", service + 1, json_array_size(services));
    say(t, yes(d, "ready") ? PL_TOP_HEAD : PL_TOP_BAD, "plimsoll %s  %s  up %s  %s%s%s%s", text(d, "version"),
        text(d, "instance"), pl_fig_duration(number(d, "uptime_s"), up, sizeof up),
        yes(d, "ready") ? "READY" : "NOT READY", yes(d, "draining") ? ", draining" : "",
        yes(d, "dry_run") ? ", DRY RUN" : "", of);
}

/* --- the load line of a card: # in use, = reserved, x not ours, . free, | where the margin begins */

static bool is_scope(const json_t *m, const json_t *gpu) {
    char scope[32];
    snprintf(scope, sizeof scope, "gpu%.0f", number(gpu, "gpu"));
    return strcmp(text(m, "scope"), scope) == 0 || strcmp(text(m, "scope"), text(gpu, "uuid")) == 0;
}

static void add_held(const json_t *d, const json_t *gpu, double *used, double *idle) {
    size_t i, k, n;
    json_t *s, *w, *m;
    json_array_foreach(json_object_get(d, "services"), i, s)
        json_array_foreach(json_object_get(s, "workers"), k, w)
            json_array_foreach(json_object_get(w, "memory"), n, m) {
        if (!is_scope(m, gpu)) continue;
        *used += number(m, "allocated_bytes");
        *idle += number(m, "reserved_bytes") - number(m, "allocated_bytes");
    }
}

static const json_t *budget_of(const json_t *s, const json_t *gpu) {
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(s, "budget"), i, b) {
        const json_t *name = json_object_get(b, "gpu");
        if (json_is_number(name) ? json_number_value(name) == number(gpu, "gpu")
                                 : strcmp(text(b, "gpu"), text(gpu, "uuid")) == 0)
            return b;
    }
    return NULL;
}

static void draw_bar(char *bar, size_t width, double total, const double part[3], double margin_at) {
    static const char signs[] = "#=x";
    double at = 0;
    memset(bar, '.', width);
    bar[width] = '\0';
    for (size_t p = 0; p < 3; p++) {
        double share = part[p] > 0 ? part[p] / total : 0;
        for (double end = at + (share < 1 ? share : 1) * (double)width; at < end; at += 1)
            if (at < (double)width) bar[(size_t)at] = signs[p];
    }
    if (margin_at > 0 && margin_at < total) bar[(size_t)(margin_at / total * (double)width)] = '|';
}

static void gpu_line(struct pl_top_screen *t, const json_t *d, const json_t *s, const json_t *gpu) {
    char bar[64], used_text[24], total_text[24], foreign[48] = "", busy[32] = "";
    double used = 0, idle = 0, total = number(gpu, "total_bytes");
    const json_t *b = budget_of(s, gpu);
    size_t width = t->cols > 100 ? 48 : 28;
    if (total <= 0) {
        say(t, PL_TOP_DIM, "gpu %.0f  %s: the driver tells no memory", number(gpu, "gpu"), text(gpu, "name"));
        return;
    }
    add_held(d, gpu, &used, &idle);
    const double part[3] = { used, idle, number(gpu, "foreign_bytes") };
    draw_bar(bar, width, total, part, pl_fig_has(b, "margin_bytes") ? total - number(b, "margin_bytes") : 0);
    if (part[2] > 0)
        snprintf(foreign, sizeof foreign, ", %s not ours", pl_fig_size(part[2], used_text, sizeof used_text));
    if (pl_fig_has(gpu, "utilization_ratio"))
        snprintf(busy, sizeof busy, ", busy %.0f %%", 100 * number(gpu, "utilization_ratio"));
    bool out = json_is_false(json_object_get(gpu, "in_service"));
    say(t, out ? PL_TOP_BAD : PL_TOP_PLAIN, "gpu %.0f [%s] %s of %s%s%s%s", number(gpu, "gpu"), bar,
        pl_fig_size(number(gpu, "used_bytes"), used_text, sizeof used_text),
        pl_fig_size(total, total_text, sizeof total_text), out ? " OUT OF SERVICE" : "", foreign, busy);
}

static void gpus(struct pl_top_screen *t, const json_t *d, const json_t *s) {
    const json_t *list = json_object_get(d, "gpus");
    for (size_t i = 0; i < json_array_size(list) && i < FEW_GPUS; i++)
        gpu_line(t, d, s, json_array_get(list, i));
    if (json_array_size(list) > FEW_GPUS)
        say(t, PL_TOP_DIM, "and %zu more GPUs", json_array_size(list) - FEW_GPUS);
}

/* --- a service */

static void service_lines(struct pl_top_screen *t, const json_t *s) {
    char p50[24] = "-", p99[24] = "-", list[400], used[24], of[24], oldest[40] = "";
    const json_t *r = json_object_get(s, "recent"), *q = json_object_get(s, "queue"),
                 *b = json_object_get(s, "binds");
    bool ready = yes(s, "ready"), warm = strcmp(text(s, "warmth"), "warm") == 0;
    say(t, ready ? PL_TOP_HEAD : PL_TOP_BAD, "%s  %s  %s%s  mode %s (%s)", text(s, "name"), text(s, "target"),
        ready ? "ready, " : "NOT READY: ", ready ? text(s, "warmth") : text(s, "why"), text(s, "mode"),
        text(s, "mode_origin"));
    if (ready && !warm) t->lines[t->count - 1].style = PL_TOP_WARN;
    if (pl_fig_has(r, "p50_s")) {
        snprintf(p50, sizeof p50, "%.0f ms", 1000 * number(r, "p50_s"));
        snprintf(p99, sizeof p99, "%.0f ms", 1000 * number(r, "p99_s"));
    }
    if (number(q, "oldest_ms") > 0)
        snprintf(oldest, sizeof oldest, ", oldest waits %.1f s", number(q, "oldest_ms") / 1000);
    say(t, PL_TOP_PLAIN, "  %.1f answers/s, median %s, 99 %% %s; running %.0f, waiting %.0f of %.0f%s",
        number(r, "per_s"), p50, p99, number(q, "running"), number(q, "requests"), number(q, "max_requests"),
        oldest);
    if (b != NULL && strcmp(text(b, "unit"), "bytes") == 0)
        say(t, number(b, "used_ratio") >= 0.9 ? PL_TOP_BAD : PL_TOP_PLAIN,
            "  binds: %s, %s of %s (%.0f %%)%s%s", text(b, "limit"),
            pl_fig_size(number(b, "used"), used, sizeof used), pl_fig_size(number(b, "of"), of, sizeof of),
            100 * number(b, "used_ratio"), pl_fig_has(b, "key") ? ", " : "",
            pl_fig_has(b, "key") ? text(b, "key") : "");
    else if (b != NULL)
        say(t, number(b, "used_ratio") >= 0.9 ? PL_TOP_BAD : PL_TOP_PLAIN,
            "  binds: %s, %.0f of %.0f (%.0f %%), %s", text(b, "limit"), number(b, "used"), number(b, "of"),
            100 * number(b, "used_ratio"), text(b, "key"));
    if (pl_fig_counts(json_object_get(s, "refused_5m"), list, sizeof list)[0] != '\0')
        say(t, PL_TOP_WARN, "  refused in 5 min: %s", list);
    if (pl_fig_counts(json_object_get(s, "would"), list, sizeof list)[0] != '\0')
        say(t, PL_TOP_WARN, "  enforce would have: %s", list);
    if (pl_fig_counts(json_object_get(s, "keys_5m"), list, sizeof list)[0] != '\0')
        say(t, PL_TOP_PLAIN, "  requests by key in 5 min: %s", list);
}

static void budget_lines(struct pl_top_screen *t, const json_t *s) {
    char line[240];
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(s, "budget"), i, b)
        say(t, PL_TOP_PLAIN, "  %s", pl_fig_budget(b, line, sizeof line));
}

static void verdict_lines(struct pl_top_screen *t, const json_t *v, bool indent) {
    char mid[24], left[24];
    const char *in = indent ? "    " : "  ";
    bool bad = yes(v, "bad");
    if (v == NULL || (pl_fig_is_plain(v) && !pl_fig_has(v, "holder") && !pl_fig_has(v, "forecast_s"))) return;
    if (!pl_fig_is_plain(v) && pl_fig_has(v, "bytes_per_request"))
        say(t, bad ? PL_TOP_BAD : PL_TOP_WARN, "%s%s on %s: %s a request, %s%s%s", in, text(v, "word"),
            text(v, "scope"), pl_fig_size(number(v, "bytes_per_request"), mid, sizeof mid),
            text(v, "confidence"), pl_fig_has(v, "top_tag") ? ", most by " : "",
            pl_fig_has(v, "top_tag") ? text(v, "top_tag") : "");
    else if (!pl_fig_is_plain(v))
        say(t, bad ? PL_TOP_BAD : PL_TOP_WARN, "%s%s on %s", in, text(v, "word"), text(v, "scope"));
    if (pl_fig_has(v, "holder"))
        say(t, bad ? PL_TOP_BAD : PL_TOP_WARN, "%sheld by %s", in, text(v, "holder"));
    if (pl_fig_has(v, "forecast_s"))
        say(t, PL_TOP_BAD, "%sout of memory in %s", in,
            pl_fig_duration(number(v, "forecast_s"), left, sizeof left));
}

static void worker_line(struct pl_top_screen *t, const json_t *w) {
    char age[24], memory[80] = "", a[24], r[24];
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(w, "memory"), i, m) {
        if (strcmp(text(m, "scope"), "host") == 0 && memory[0] == '\0')
            snprintf(memory, sizeof memory, "host %s", pl_fig_size(number(m, "rss_bytes"), a, sizeof a));
        else if (strcmp(text(m, "scope"), "host") != 0)
            snprintf(memory, sizeof memory, "%.20s %s, reserved %s", text(m, "scope"),
                     pl_fig_size(number(m, "allocated_bytes"), a, sizeof a),
                     pl_fig_size(number(m, "reserved_bytes"), r, sizeof r));
    }
    bool ready = strcmp(text(w, "state"), "ready") == 0;
    say(t, ready ? PL_TOP_PLAIN : PL_TOP_WARN, "  %.0f.%-3.0f %-8s %-8s age %-6s reqs %-7.0f fly %-3.0f %s",
        number(w, "worker"), number(w, "generation"), text(w, "state"),
        ready ? yes(w, "warm") ? "warm" : "unwarmed" : "",
        pl_fig_duration(number(w, "age_s"), age, sizeof age), number(w, "requests"), number(w, "in_flight"),
        memory);
    verdict_lines(t, json_object_get(w, "verdict"), true);
}

/* Workers get what is left between what is said of the service and the least of events. */
static void workers(struct pl_top_screen *t, const json_t *s) {
    const json_t *list = json_object_get(s, "workers");
    size_t n = json_array_size(list), keep = LEAST_EVENTS + 3;
    for (size_t i = 0; i < n; i++) {
        if (t->count + keep + 1 >= t->rows && i + 1 < n) {
            say(t, PL_TOP_DIM, "  and %zu more workers", n - i);
            return;
        }
        worker_line(t, json_array_get(list, i));
    }
}

static void replacement_line(struct pl_top_screen *t, const json_t *s) {
    char gap[48];
    const json_t *r = json_object_get(s, "replacement");
    if (r == NULL || strcmp(text(s, "kind"), "remote") == 0) return;
    if (!pl_fig_has(r, "expected_gap_s"))
        snprintf(gap, sizeof gap, "gap not known");
    else if (number(r, "expected_gap_s") > 0)
        snprintf(gap, sizeof gap, "a gap of %.1f s", number(r, "expected_gap_s"));
    else
        snprintf(gap, sizeof gap, "no gap");
    if (yes(r, "planned") && yes(r, "under_way"))
        say(t, PL_TOP_WARN, "  replacing worker %.0f: %s, %s, %s", number(r, "worker"), text(r, "reason"),
            text(r, "mode"), gap);
    else if (yes(r, "planned"))
        say(t, PL_TOP_WARN, "  worker %.0f should be replaced: %s, %s, %s; held back by %s",
            number(r, "worker"), text(r, "reason"), text(r, "mode"), gap, text(r, "held_by"));
    else
        say(t, PL_TOP_DIM, "  a replacement would be: %s, %s; %.0f of %.0f in the hour", text(r, "mode"), gap,
            number(r, "in_hour"), number(r, "max_per_hour"));
}

static void death_lines(struct pl_top_screen *t, const json_t *d, const json_t *s) {
    const json_t *death = json_object_get(s, "last_death"), *life = json_object_get(d, "last_life");
    if (death != NULL)
        say(t, PL_TOP_BAD, "  last death %.8s %s: %s",
            strlen(text(death, "ts")) > 18 ? text(death, "ts") + 11 : "", text(death, "cause"),
            text(death, "sentence"));
    if (life != NULL) say(t, PL_TOP_WARN, "  %s", text(life, "sentence"));
}

/* --- events: the newest at the end, as many as there is room for */

static void event_line(struct pl_top_screen *t, json_t *e) {
    char rest[400] = "";
    size_t at = 0;
    const char *key;
    json_t *value;
    if (pl_fig_has(e, "sentence")) {
        snprintf(rest, sizeof rest, "%s", text(e, "sentence"));
    } else {
        json_object_foreach(e, key, value) {
            static const char *const said[] = { "ts", "level", "event", "service", "instance" };
            bool skip = false;
            for (size_t i = 0; i < sizeof said / sizeof *said; i++) skip |= strcmp(key, said[i]) == 0;
            if (skip || at + 1 >= sizeof rest) continue;
            char *shown = json_is_string(value)
                              ? NULL
                              : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
            at += (size_t)snprintf(rest + at, sizeof rest - at, " %s=%s", key,
                                   shown != NULL ? shown : json_string_value(value));
            free(shown);
        }
    }
    const char *level = text(e, "level");
    say(t,
        strcmp(level, "error") == 0  ? PL_TOP_BAD
        : strcmp(level, "warn") == 0 ? PL_TOP_WARN
                                     : PL_TOP_DIM,
        "%.8s %s %s%s%s", strlen(text(e, "ts")) > 18 ? text(e, "ts") + 11 : "-", text(e, "event"),
        pl_fig_has(e, "service") ? text(e, "service") : "", rest[0] != '\0' && rest[0] != ' ' ? " " : "",
        rest);
}

static void events(struct pl_top_screen *t, const json_t *d) {
    const json_t *list = json_object_get(d, "events");
    size_t n = json_array_size(list), room = t->rows - t->count;
    for (size_t i = n > room ? n - room : 0; i < n; i++) event_line(t, json_array_get(list, i));
}

void pl_top_render(const json_t *status, size_t service, struct pl_top_screen *out) {
    const json_t *services = json_object_get(status, "services");
    size_t n = json_array_size(services);
    const json_t *s = n > 0 ? json_array_get(services, service % n) : NULL;
    if (out->rows > PL_TOP_MOST_ROWS) out->rows = PL_TOP_MOST_ROWS;
    if (out->cols > PL_TOP_MOST_COLS) out->cols = PL_TOP_MOST_COLS;
    if (out->rows < 1) out->rows = 1;
    if (out->cols < 1) out->cols = 1;
    out->count = 0;
    head(out, status, n > 0 ? service % n : 0);
    gpus(out, status, s);
    if (s != NULL) {
        service_lines(out, s);
        budget_lines(out, s);
        workers(out, s);
        replacement_line(out, s);
        death_lines(out, status, s);
    }
    events(out, status);
}
