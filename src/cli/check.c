/* check.c - `plimsoll check service:Class`: before it ships. What lint finds, a start without network in a
 * dry dock, a short soak and what follows for a card become the seven points of the checklist, on one page.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/child.h"
#include "cli/figures.h"
#include "cli/out.h"
#include "cli/paths.h"
#include "cli/soak.h"

enum {
    ANSWER_BYTES = 64 << 20,
    LINT_MS = 300000,
    WHOLE = 900, /* requests; with those that are added while it grows a leak is certain */
    QUICK = 600,
    SHOWN = 4, /* findings of a point */
    LINE = 500,
};
#define MARGIN 0.15 /* memory.margin */

enum state { OK, NO, UNKNOWN, STATES };
static const char *const state_names[] = { "ok", "no", "unknown" };

/* In order of yield. The rules are lint's. */
enum { GRAPH, KEPT, COPIES, FAILING, BOUNDS, START, FITS, POINTS };
static const struct {
    const char *name, *title, *rules;
} points[] = {
    { "graph", "inference builds no graph", "PL003 PL004 PL007 PL018" },
    { "kept", "nothing outlives its request", "PL005 PL006 PL010 PL011 PL026" },
    { "copies", "one model on a card", "PL001 PL002 PL017 PL028" },
    { "failing", "failing requests leave nothing", "PL008 PL009" },
    { "bounds", "lengths, batches and queues have a bound",
      "PL014 PL015 PL016 PL020 PL021 PL023 PL024 PL027" },
    { "start", "starts without a network, and ready means ready",
      "PL012 PL013 PL019 PL022 PL025 PL029 PL030 PL031 PL032" },
    { "fits", "fits on the card, with room to spare", "PL033" },
};

struct check {
    struct pl_cli *cli;
    struct pl_soak_wish wish;
    enum state state[POINTS];
    json_t *said[POINTS]; /* lines */
    json_t *lint, *soak;
    const char *gpu;
    bool quick, started;
    double began_s;
};

/* The worst of what is said of a point stands; `no` is worse than `unknown`. */
static void say(struct check *c, int point, enum state state, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void say(struct check *c, int point, enum state state, const char *fmt, ...) {
    char line[LINE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    json_t *s = json_string(line);
    json_array_append_new(c->said[point], s != NULL ? s : json_string("(not text)"));
    if (state == NO || (state == UNKNOWN && c->state[point] == OK)) c->state[point] = state;
}

/* --- lint */

/* The file or folder behind a target: "service:Class", "service.py:Class", ".", a folder. NULL: none here. */
static const char *source_of(const struct check *c, char out[PL_PATH_BYTES]) {
    const char *target = c->wish.target, *colon = strchr(target, ':');
    struct stat st;
    const char *folder = ".";
    for (size_t i = 0; i < c->cli->args.key_count; i++)
        if (strcmp(c->cli->args.keys[i].path, "working_dir") == 0 ||
            strcmp(c->cli->args.keys[i].path, "working-dir") == 0)
            folder = c->cli->args.keys[i].text;
    snprintf(out, PL_PATH_BYTES, "%.200s/%.*s", folder,
             colon != NULL ? (int)(colon - target) : (int)strlen(target), target);
    if (colon != NULL && (strlen(out) < 3 || strcmp(out + strlen(out) - 3, ".py") != 0)) {
        for (char *s = out + strlen(folder) + 1; *s != '\0'; s++)
            if (*s == '.') *s = '/';
        snprintf(out + strlen(out), PL_PATH_BYTES - strlen(out), ".py");
    }
    if (strncmp(out, "./", 2) == 0 && out[2] != '\0') memmove(out, out + 2, strlen(out + 2) + 1);
    return stat(out, &st) == 0 ? out : NULL;
}

static void run_lint(struct check *c) {
    char self[PL_PATH_BYTES], path[PL_PATH_BYTES], config[PL_PATH_BYTES + 20];
    const char *source = source_of(c, path), *python = NULL;
    struct pl_err err = { 0 };
    struct stat st;
    if (source == NULL || !pl_path_program(self, &err)) {
        for (int i = 0; i < FITS; i++) say(c, i, UNKNOWN, "its source is not here: nothing was linted");
        return;
    }
    for (size_t i = 0; i < c->cli->args.key_count; i++)
        if (strcmp(c->cli->args.keys[i].path, "python") == 0) python = c->cli->args.keys[i].text;
    const char *argv[8] = { self, "lint", "--json", source };
    size_t n = 4;
    snprintf(config, sizeof config, "%.*sbentofile.yaml",
             strrchr(path, '/') != NULL ? (int)(strrchr(path, '/') - path + 1) : 0, path);
    if (stat(config, &st) == 0 && strcmp(source + strlen(source) - 3, ".py") == 0) argv[n++] = config;
    if (python != NULL) argv[n++] = "--python", argv[n++] = python;
    const struct pl_child ask = { .argv = argv, .limit_ms = LINT_MS, .shows_stderr = false };
    struct pl_buf out;
    pl_buf_init(&out, ANSWER_BYTES);
    pl_child_ask(&ask, &out);
    c->lint = json_loadb(out.data != NULL ? out.data : "", out.len, 0, NULL);
    pl_buf_free(&out);
    if (c->lint == NULL)
        for (int i = 0; i < FITS; i++) say(c, i, UNKNOWN, "%s could not be linted", source);
}

static void place_findings(struct check *c) {
    const json_t *list = json_object_get(c->lint, "findings"), *f;
    size_t i, shown[POINTS] = { 0 };
    json_array_foreach(list, i, f) {
        const char *rule = pl_fig_text(f, "rule");
        for (int p = 0; p < POINTS; p++) {
            if (strstr(points[p].rules, rule) == NULL) continue;
            shown[p]++;
            if (shown[p] <= SHOWN)
                say(c, p, NO, "%.120s:%lld %s %.250s", pl_fig_text(f, "file"),
                    (long long)json_integer_value(json_object_get(f, "line")), rule, pl_fig_text(f, "text"));
        }
    }
    for (int p = 0; p < POINTS; p++)
        if (shown[p] > SHOWN) say(c, p, NO, "and %zu more: plimsoll lint", shown[p] - SHOWN);
}

/* --- a start without network */

static void start_offline(struct check *c) {
    struct pl_soak_place p;
    struct pl_err err = { 0 };
    struct pl_soak_wish w = c->wish;
    w.offline = true;
    uint64_t began = pl_now_us();
    bool up = pl_soak_open(&w, &p, &err);
    double took = (double)(pl_now_us() - began) / 1e6;
    char wanted[sizeof p.hosts] = "";
    if (up) pl_soak_hosts(&p, wanted, sizeof wanted);
    if (up) pl_soak_close(&p);
    if (!up) snprintf(wanted, sizeof wanted, "%s", p.hosts);
    if (up && wanted[0] == '\0') {
        say(c, START, OK, "ready without a network in %.1f s", took);
    } else if (up) {
        say(c, START, NO, "it wants the network at its start, and gets by without: %.300s", wanted);
    } else if (wanted[0] != '\0') {
        say(c, START, NO, "it does not start without a network: it wants %.300s", wanted);
        if (err.hint[0] != '\0') say(c, START, NO, "%s", err.hint);
    } else if (err.code == PL_E_LIMIT) {
        say(c, START, UNKNOWN, "%s: %s", err.msg, err.hint);
    } else {
        say(c, START, NO, "%s%s%s", err.msg, err.hint[0] != '\0' ? ": " : "", err.hint);
    }
    c->started = up;
}

/* --- the soak */

static const json_t *scenario(const json_t *doc, const char *name) {
    const json_t *s;
    size_t i;
    json_array_foreach(json_object_get(doc, "scenarios"), i,
                       s) if (strcmp(pl_fig_text(s, "scenario"), name) == 0) return s;
    return NULL;
}

static void notes_of(struct check *c, int point, const json_t *s, enum state state) {
    const json_t *n;
    size_t i;
    json_array_foreach(json_object_get(s, "notes"), i, n)
        say(c, point, state, "%.400s", json_string_value(n));
}

static void judge(struct check *c, int point, const char *name, const char *good) {
    const json_t *s = scenario(c->soak, name), *v = json_object_get(s, "verdict");
    const char *result = pl_fig_text(s, "result");
    char bytes[24];
    if (s == NULL) return;
    pl_soak_bytes(bytes, pl_fig_number(v, "bytes_per_request"));
    if (strcmp(result, "clean") == 0) {
        say(c, point, OK, "%s: %s after %.0f requests", good, pl_fig_text(v, "word"),
            pl_fig_number(s, "requests"));
    } else if (strcmp(result, "leak") == 0 && json_object_get(v, "copies") != NULL) {
        say(c, COPIES, NO, "%.0f processes hold a model on the same card", pl_fig_number(v, "copies"));
    } else if (strcmp(result, "leak") == 0) {
        say(c, point, NO, "%s: %s a request on %s%s%.200s", pl_fig_text(v, "word"), bytes,
            pl_fig_text(v, "scope"), pl_fig_text(s, "holder")[0] != '\0' ? ", held by " : "",
            pl_fig_text(s, "holder"));
    } else {
        notes_of(c, point, s, strcmp(result, "failed") == 0 ? NO : UNKNOWN);
    }
}

static void judge_shapes(struct check *c) {
    const json_t *s = scenario(c->soak, "shapes"), *v = json_object_get(s, "verdict");
    const char *word = pl_fig_text(v, "word");
    char bytes[24];
    if (s == NULL) return;
    if (strcmp(word, "dynamic_shapes") == 0 || strcmp(word, "fragmentation") == 0) {
        pl_soak_bytes(bytes, pl_fig_number(v, "growth_bytes"));
        say(c, BOUNDS, NO, "%s: %s more is reserved for %s from 1 to %.0f", word, bytes,
            pl_fig_text(s, "field"), pl_fig_number(s, "longest"));
    } else if (json_object_get(s, "field") != NULL) {
        judge(c, BOUNDS, "shapes", "inputs of many lengths");
    } else {
        say(c, BOUNDS, OK, "every request has the same shape");
    }
}

/* What the soak measured, held against the card: fixed cost, what one request adds, how many fit. */
static void plan(struct check *c) {
    const json_t *s = scenario(c->soak, "identical"), *gpu = json_object_get(c->soak, "gpu");
    double total = pl_fig_number(gpu, "total_bytes"), floor_bytes = pl_fig_number(s, "device_bytes"),
           peak = pl_fig_number(s, "peak_bytes");
    char fixed[24], more[24], card[24], host[24];
    if (s == NULL) return;
    pl_soak_bytes(host, pl_fig_number(s, "host_bytes"));
    if (total <= 0 || peak <= 0) {
        say(c, FITS, OK, "it uses no card; host memory %s", host);
        return;
    }
    double budget = total * (1 - MARGIN), left = budget - floor_bytes,
           each = peak > floor_bytes ? peak - floor_bytes : 0;
    pl_soak_bytes(fixed, floor_bytes);
    pl_soak_bytes(more, each);
    pl_soak_bytes(card, total);
    if (peak > budget) {
        say(c, FITS, NO, "one request needs %s beside %s: over 85 %% of %s", more, fixed, card);
        return;
    }
    say(c, FITS, OK, "%s of %s when idle, %s more for a request; host memory %s", fixed, card, more, host);
    if (each > 0)
        say(c, FITS, OK, "%.0f such requests at a time fit into 85 %% of the card",
            left / each < 1e6 ? left / each : 1e6);
    const json_t *v = json_object_get(s, "verdict");
    double grows = pl_fig_number(v, "bytes_per_request");
    if (grows > 0 && strcmp(pl_fig_text(v, "scope"), "host") != 0)
        say(c, FITS, NO, "at this rate it is full after %.0f requests", left / grows);
}

static void soak(struct check *c) {
    struct pl_err err = { 0 };
    struct pl_soak_wish w = c->wish;
    w.scenarios = 1u << PL_SOAK_IDENTICAL;
    if (!c->quick) w.scenarios |= 1u << PL_SOAK_FAILING | 1u << PL_SOAK_SHAPES;
    w.requests = c->quick ? QUICK : WHOLE;
    c->soak = pl_soak_run(&w, &err);
    if (c->soak == NULL) {
        static const int measured[] = { COPIES, FAILING, BOUNDS, FITS };
        bool known = err.code == PL_E_USAGE || c->state[START] == NO; /* why, that is */
        say(c, KEPT, known ? UNKNOWN : NO, "not soaked: %s%s%s", err.msg, err.hint[0] != '\0' ? ": " : "",
            err.hint);
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
            say(c, measured[i], UNKNOWN, "not soaked");
        return;
    }
    judge(c, KEPT, "identical", "the same request again and again");
    const json_t *f = scenario(c->soak, "failing");
    if (f != NULL && json_object_get(f, "failing_by") == NULL && c->wish.failing == NULL)
        say(c, FAILING, OK, "no request was found that it fails on: --failing names one");
    else
        judge(c, FAILING, "failing", "requests that fail");
    if (json_is_true(json_object_get(f, "before_handler")))
        say(c, FAILING, OK,
            "they are refused before the handler: --failing names one that it fails on itself");
    if (c->quick) say(c, FAILING, OK, "not soaked with --quick");
    judge_shapes(c);
    const json_t *v = json_object_get(scenario(c->soak, "identical"), "verdict");
    if (json_object_get(v, "copies") == NULL && pl_fig_text(v, "word")[0] != '\0')
        say(c, COPIES, OK, "one process holds a model on the card");
    plan(c);
}

/* --- the page */

static enum state whole(const struct check *c) {
    enum state worst = OK;
    for (int p = 0; p < POINTS; p++)
        if (c->state[p] == NO || (c->state[p] == UNKNOWN && worst == OK)) worst = c->state[p];
    return worst;
}

static json_t *document(const struct check *c) {
    char ts[PL_TIME_TEXT];
    json_t *list = json_array();
    for (int p = 0; p < POINTS; p++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:O}", "point", points[p].name, "title",
                                              points[p].title, "state", state_names[c->state[p]], "said",
                                              c->said[p]));
    json_t *doc = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:f,s:o}", "v", 1, "kind", "check", "ts",
                            pl_time_rfc3339(pl_wall_ms(&pl_clock_system), ts), "target", c->wish.target,
                            "gpu", c->gpu, "result", state_names[whole(c)], "seconds",
                            (double)pl_now_us() / 1e6 - c->began_s, "points", list);
    if (c->lint != NULL) json_object_set(doc, "lint", c->lint);
    if (c->soak != NULL) json_object_set(doc, "soak", c->soak);
    return doc;
}

static void put_text(const json_t *doc, struct pl_buf *out) {
    const json_t *p, *line;
    size_t i, k;
    struct pl_buf wide;
    pl_buf_init(&wide, 0);
    pl_buf_addf(&wide, "plimsoll check %.200s, on a stand-in %.60s\n\n", pl_fig_text(doc, "target"),
                pl_fig_text(doc, "gpu"));
    json_array_foreach(json_object_get(doc, "points"), i, p) {
        pl_buf_addf(&wide, "%-7s  %zu  %s\n", pl_fig_text(p, "state"), i + 1, pl_fig_text(p, "title"));
        json_array_foreach(json_object_get(p, "said"), k, line) {
            pl_buf_adds(&wide, "            ");
            for (const char *ch = json_string_value(line); *ch != '\0'; ch++) /* foreign text */
                pl_buf_add(&wide, (unsigned char)*ch < ' ' || *ch == 0x7f ? "?" : ch, 1);
            pl_buf_adds(&wide, "\n");
        }
    }
    pl_buf_addf(&wide, "\n%s (%.0f s)\n",
                strcmp(pl_fig_text(doc, "result"), "ok") == 0   ? "it may ship"
                : strcmp(pl_fig_text(doc, "result"), "no") == 0 ? "it may not ship as it is"
                                                                : "not all of it could be judged",
                pl_fig_number(doc, "seconds"));
    pl_soak_fold(pl_buf_text(&wide), out);
    pl_buf_free(&wide);
}

static json_t *sections(const json_t *doc) {
    json_t *list = json_array(), *rows = json_array(), *p, *about = json_array();
    char line[400], number_text[8];
    size_t i, k;
    json_array_foreach(json_object_get(doc, "points"), i, p) {
        struct pl_buf said;
        json_t *one;
        pl_buf_init(&said, 0);
        json_array_foreach(json_object_get(p, "said"), k, one)
            pl_buf_addf(&said, "%s%s", k > 0 ? "; " : "", json_string_value(one));
        snprintf(number_text, sizeof number_text, "%zu", i + 1);
        const char *state = pl_fig_text(p, "state");
        json_array_append_new(
            rows, json_pack("[s,s,s,s]", number_text, state, pl_fig_text(p, "title"), pl_buf_text(&said)));
        pl_buf_free(&said);
    }
    json_array_append_new(list, json_pack("{s:s,s:{s:[s,s,s,s],s:o}}", "head", "The seven points", "table",
                                          "heads", "", "", "point", "what was seen", "rows", rows));
    snprintf(line, sizeof line, "%.200s, %.30s, on a stand-in %.60s", pl_fig_text(doc, "target"),
             pl_fig_text(doc, "ts"), pl_fig_text(doc, "gpu"));
    json_array_append_new(about, json_string(line));
    const json_t *soak = json_object_get(doc, "soak");
    json_t *more = soak != NULL ? pl_soak_sections(soak) : NULL, *s;
    json_array_foreach(json_object_get(more, "sections"), i, s) if (i > 0) json_array_append(list, s);
    json_decref(more);
    return json_pack("{s:s,s:o,s:o}", "title", "plimsoll check", "about", about, "sections", list);
}

static void put_junit(const json_t *doc, struct pl_buf *out) {
    const json_t *p, *line;
    size_t i, k, failures = 0, errors = 0;
    json_array_foreach(json_object_get(doc, "points"), i, p) {
        failures += strcmp(pl_fig_text(p, "state"), "no") == 0;
        errors += strcmp(pl_fig_text(p, "state"), "unknown") == 0;
    }
    pl_buf_adds(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"plimsoll check ");
    pl_out_xml(out, pl_fig_text(doc, "target"));
    pl_buf_addf(
        out,
        "\" tests=\"%d\" failures=\"%zu\" errors=\"%zu\" skipped=\"0\" time=\"%.3f\" timestamp=\"%.19s\">\n",
        POINTS, failures, errors, pl_fig_number(doc, "seconds"), pl_fig_text(doc, "ts"));
    json_array_foreach(json_object_get(doc, "points"), i, p) {
        const char *state = pl_fig_text(p, "state");
        const char *tag = strcmp(state, "no") == 0        ? "failure"
                          : strcmp(state, "unknown") == 0 ? "error"
                                                          : "system-out";
        pl_buf_addf(out, "  <testcase classname=\"plimsoll.check\" name=\"%s\" time=\"0\">\n    <%s",
                    pl_fig_text(p, "title"), tag);
        if (strcmp(tag, "system-out") != 0) {
            pl_buf_addf(out, " type=\"%s\" message=\"", state);
            pl_out_xml(out, json_string_value(json_array_get(json_object_get(p, "said"), 0)));
            pl_buf_adds(out, "\"");
        }
        pl_buf_adds(out, ">");
        json_array_foreach(json_object_get(p, "said"), k, line) {
            pl_out_xml(out, json_string_value(line));
            pl_buf_adds(out, "\n");
        }
        pl_buf_addf(out, "</%s>\n  </testcase>\n", tag);
    }
    pl_buf_adds(out, "</testsuite>\n");
}

static bool write_all(const struct pl_cli *cli, const json_t *doc, struct pl_err *err) {
    const char *junit = pl_args_value(&cli->args, "junit"), *html = pl_args_value(&cli->args, "html");
    struct pl_buf out;
    bool ok = true;
    pl_out_print(cli, doc, put_text, stdout);
    pl_buf_init(&out, 0);
    if (junit != NULL) {
        put_junit(doc, &out);
        ok = pl_out_file(junit, &out, err);
    }
    pl_buf_free(&out);
    return ok && (html == NULL || pl_out_page(html, sections(doc), err));
}

int pl_verb_check(struct pl_cli *cli) {
    static const int exits[] = { 0, 1, 4 };
    struct pl_err err = { 0 };
    struct check c = { .cli = cli, .began_s = (double)pl_now_us() / 1e6 };
    const char *gpu = pl_args_value(&cli->args, "gpu");
    c.gpu = gpu != NULL ? gpu : "a100-40";
    c.quick = pl_args_has(&cli->args, "quick");
    if (!pl_soak_read_wish(cli, &c.wish, &err)) return pl_cli_fail(cli, &err);
    c.wish.target = cli->args.words.at[0];
    c.wish.gpu = c.gpu;
    if (strncmp(c.wish.target, "http", 4) == 0 && strstr(c.wish.target, "://") != NULL) {
        PL_FAIL(&err, PL_E_USAGE, "check starts the service itself: it takes what serve takes, no URL");
        pl_err_hint(&err, "plimsoll soak URL judges one that runs");
        pl_soak_free_wish(&c.wish);
        return pl_cli_fail(cli, &err);
    }
    for (int p = 0; p < POINTS; p++) c.said[p] = json_array();
    pl_soak_watch_signals();
    run_lint(&c);
    place_findings(&c);
    if (pl_soak_signal == 0) start_offline(&c);
    if (pl_soak_signal == 0) soak(&c);
    json_t *doc = document(&c);
    int status = exits[whole(&c)];
    if (!write_all(cli, doc, &err)) status = pl_cli_fail(cli, &err);
    for (int p = 0; p < POINTS; p++) json_decref(c.said[p]);
    json_decref(doc);
    json_decref(c.lint);
    json_decref(c.soak);
    pl_soak_free_wish(&c.wish);
    return pl_soak_leave(status);
}
