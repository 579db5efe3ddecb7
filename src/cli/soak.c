/* soak.c - `plimsoll soak`: the command line, one scenario after the other, what is written where. */
#include "cli/soak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"

enum { BODY_BYTES = 64 << 20, REQUESTS = 2000, SHORTEST = 1, LONGEST = 10000000, WITH_MOST = 16 };

/* --- the command line */

/* JSON as it is, or @FILE. */
static bool body_flag(const struct pl_cli *cli, const char *name, json_t **out, struct pl_err *err) {
    const char *text = pl_args_value(&cli->args, name);
    json_error_t why;
    if (text == NULL) return true;
    if (text[0] == '@') {
        PL_AUTO_FILE FILE *f = fopen(text + 1, "re");
        if (f == NULL) return PL_FAIL_SYS(err, errno, "--%s: open %.200s", name, text + 1);
        *out = json_loadf(f, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    } else {
        *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    }
    if (*out != NULL) return true;
    PL_FAIL(err, PL_E_CONFIG, "--%s: %s:%d:%d: %.150s", name, text[0] == '@' ? text + 1 : "body", why.line,
            why.column, why.text);
    return pl_err_hint(err, "soak sends JSON: --body '{\"x\": 1}' or --body @request.json");
}

static bool scenario_flag(const struct pl_cli *cli, unsigned *out, struct pl_err *err) {
    const char *text = pl_args_value(&cli->args, "scenario");
    *out = 1u << PL_SOAK_IDENTICAL;
    if (text == NULL) return true;
    if (strcmp(text, "all") == 0) {
        *out = (1u << PL_SOAK_SCENARIOS) - 1;
        return true;
    }
    *out = 0;
    for (const char *s = text; *s != '\0';) {
        size_t n = strcspn(s, ",");
        int found = -1;
        for (int i = 0; i < PL_SOAK_SCENARIOS; i++) {
            const char *name = pl_soak_scenario_name((enum pl_scenario)i);
            if (strlen(name) == n && strncmp(name, s, n) == 0) found = i;
        }
        if (found < 0) {
            PL_FAIL(err, PL_E_USAGE, "--scenario: '%.*s' is none", (int)(n < 40 ? n : 40), s);
            return pl_err_hint(
                err, "identical, failing, shapes, batch, cancel, concurrency, idle; several by commas; all");
        }
        *out |= 1u << found;
        s += n + (s[n] == ',');
    }
    return true;
}

bool pl_soak_read_wish(const struct pl_cli *cli, struct pl_soak_wish *w, struct pl_err *err) {
    uint64_t concurrency = 0, pid = 0;
    int64_t ms = 0;
    const char *rate = pl_args_value(&cli->args, "rate"), *time = pl_args_value(&cli->args, "max-time");
    char *end = NULL;
    *w = (struct pl_soak_wish){ .cli = cli, .requests = REQUESTS };
    if (rate != NULL) w->rate = strtod(rate, &end);
    if (rate != NULL && (end == rate || *end != '\0' || !(w->rate > 0 && w->rate <= 1e6)))
        return PL_FAIL(err, PL_E_USAGE, "--rate: '%.40s' is not a number of requests a second", rate);
    if (time != NULL && !pl_config_parse_duration(time, &ms, err)) {
        err->code = PL_E_USAGE;
        return pl_err_wrap(err, "--max-time");
    }
    w->max_time_ms = (uint64_t)ms;
    w->route = pl_args_value(&cli->args, "route");
    w->metrics = pl_args_value(&cli->args, "metrics");
    w->gpu = pl_args_value(&cli->args, "drydock");
    w->trace_host = pl_args_has(&cli->args, "host");
    w->tune = pl_args_has(&cli->args, "tune");
    if (w->route != NULL && w->route[0] != '/')
        return PL_FAIL(err, PL_E_USAGE, "--route: '%.80s' does not begin with a slash", w->route);
    if (!pl_args_count(&cli->args, "requests", SHORTEST, LONGEST, &w->requests, err) ||
        !pl_args_count(&cli->args, "concurrency", 1, 4096, &concurrency, err) ||
        !pl_args_count(&cli->args, "pid", 1, 4194304, &pid, err) || !scenario_flag(cli, &w->scenarios, err) ||
        !body_flag(cli, "body", &w->body, err) || !body_flag(cli, "failing", &w->failing, err))
        return false;
    w->concurrency = (uint32_t)concurrency;
    w->pid = (int)pid;
    return true;
}

void pl_soak_free_wish(struct pl_soak_wish *w) {
    json_decref(w->body);
    json_decref(w->failing);
}

/* --- a run */

/* Route and body, from what the service says of itself where they were not given. */
static bool complete(struct pl_soak_wish *w, const struct pl_soak_place *p, char route[400],
                     struct pl_err *err) {
    struct pl_buf text;
    char target[240];
    const char *found = NULL;
    if (w->route != NULL && w->body != NULL) return true;
    pl_buf_init(&text, BODY_BYTES);
    snprintf(target, sizeof target, "%s/docs.json", p->base);
    uint16_t status = pl_soak_one(p, "GET", target, NULL, 0, &text);
    json_t *doc = status == 200 ? json_loadb(text.data, text.len, 0, NULL) : NULL, *body = NULL;
    bool ok = true;
    if (w->body != NULL && w->route == NULL) { /* the body is there: any way to one route will do */
        struct pl_err ignored = { 0 };
        ok = pl_soak_example(doc, NULL, &found, &body, &ignored) ||
             (found != NULL && strstr(ignored.msg, "routes") == NULL);
        if (!ok) *err = ignored;
    } else {
        ok = pl_soak_example(doc, w->route, &found, &body, err);
    }
    if (ok && found != NULL) {
        snprintf(route, 400, "%s", found);
        w->route = route;
    }
    if (ok && w->body == NULL)
        w->body = body;
    else
        json_decref(body);
    json_decref(doc);
    pl_buf_free(&text);
    return ok;
}

static const char *worst_of(const json_t *scenarios) {
    static const char *const order[] = { "leak", "failed", "unknown" };
    const json_t *s;
    size_t i;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) json_array_foreach(scenarios, i, s) {
            const char *result = json_string_value(json_object_get(s, "result"));
            if (result != NULL && strcmp(result, order[k]) == 0) return order[k];
        }
    json_array_foreach(scenarios, i, s) if (strcmp(json_string_value(json_object_get(s, "result")),
                                                   "skipped") != 0) return "clean";
    return "unknown"; /* nothing applied */
}

static json_t *new_document(const struct pl_soak_wish *w, const struct pl_soak_place *p) {
    char ts[PL_TIME_TEXT];
    json_t *doc = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:b}", "v", 1, "kind", "soak", "ts",
                            pl_time_rfc3339(pl_wall_ms(&pl_clock_system), ts), "target", w->target, "service",
                            p->service, "route", w->route, "dry_run", p->dry_run);
    json_t *with = json_array();
    if (p->gpu_name[0] != '\0')
        json_object_set_new(
            doc, "gpu", json_pack("{s:s,s:I}", "name", p->gpu_name, "total_bytes", (json_int_t)p->gpu_bytes));
    for (const char *const *v = w->with; v != NULL && *v != NULL; v++)
        json_array_append_new(with, json_string(*v));
    if (json_array_size(with) > 0) json_object_set(doc, "with", with);
    json_decref(with);
    return doc;
}

json_t *pl_soak_run(const struct pl_soak_wish *wish, struct pl_err *err) {
    struct pl_soak_wish w = *wish;
    struct pl_soak_place p;
    char route[400];
    json_t *doc = NULL, *scenarios = json_array();
    bool open = false, ok = true;
    json_incref(w.body);
    for (int s = 0; ok && s < PL_SOAK_SCENARIOS && pl_soak_signal == 0; s++) {
        if ((w.scenarios & (1u << s)) == 0) continue;
        if (open && p.child > 0) { /* each begins with a service as it starts */
            pl_soak_close(&p);
            open = false;
        }
        if (!open) ok = open = pl_soak_open(&w, &p, err);
        ok = ok && complete(&w, &p, route, err);
        if (ok && doc == NULL) doc = new_document(&w, &p);
        json_t *one = ok ? pl_soak_scenario(&w, &p, (enum pl_scenario)s, err) : NULL;
        ok = ok && one != NULL;
        if (one != NULL) json_array_append_new(scenarios, one);
    }
    if (open) pl_soak_close(&p);
    json_decref(w.body);
    if (ok && doc == NULL) ok = PL_FAIL(err, PL_E_SYS, "interrupted");
    if (ok) {
        json_object_set_new(doc, "result", json_string(worst_of(scenarios)));
        json_object_set(doc, "scenarios", scenarios);
    }
    json_decref(scenarios);
    if (ok) return doc;
    json_decref(doc);
    return NULL;
}

int pl_soak_exit(const json_t *doc) {
    const char *result = json_string_value(json_object_get(doc, "result"));
    if (result == NULL || strcmp(result, "unknown") == 0) return 4;
    return strcmp(result, "clean") == 0 ? 0 : 1;
}

/* --- what is written */

static bool write_files(const struct pl_cli *cli, const json_t *doc, struct pl_err *err) {
    const char *junit = pl_args_value(&cli->args, "junit"), *html = pl_args_value(&cli->args, "html");
    struct pl_buf out;
    bool ok = true;
    pl_buf_init(&out, 0);
    if (junit != NULL) {
        pl_soak_junit(doc, &out);
        ok = pl_out_file(junit, &out, err);
    }
    pl_buf_free(&out);
    return ok && (html == NULL || pl_out_page(html, pl_soak_sections(doc), err));
}

static void on_signal(int sig) { pl_soak_signal = sig; }

void pl_soak_watch_signals(void) {
    const struct sigaction act = { .sa_handler = on_signal };
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int pl_soak_leave(int status) {
    if (pl_soak_signal == 0) return status;
    signal(pl_soak_signal, SIG_DFL);
    raise(pl_soak_signal);
    return 128 + pl_soak_signal;
}

/* --- two of them */

/* A document of an earlier run, or a target to run now. */
static json_t *one_side(const struct pl_soak_wish *w, const char *target, struct pl_err *err) {
    struct pl_soak_wish own = *w;
    size_t n = strlen(target);
    own.target = target;
    if (n < 6 || strcmp(target + n - 5, ".json") != 0) return pl_soak_run(&own, err);
    json_error_t why;
    PL_AUTO_FILE FILE *f = fopen(target, "re");
    if (f == NULL) {
        PL_FAIL_SYS(err, errno, "open %.200s", target);
        return NULL;
    }
    json_t *doc = NULL, *line;
    while ((line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &why)) != NULL) { /* progress comes first */
        json_decref(doc);
        doc = line;
    }
    const char *kind = json_string_value(json_object_get(doc, "kind"));
    if (kind != NULL && strcmp(kind, "soak") == 0) return doc;
    json_decref(doc);
    PL_FAIL(err, PL_E_CONFIG, "%.200s:%d:%d: no document of plimsoll soak --json", target, why.line,
            why.column);
    return NULL;
}

static int compare(struct pl_cli *cli, struct pl_soak_wish *w, const char *const *with, struct pl_err *err) {
    const struct pl_strings *words = &cli->args.words;
    const char *a = words->at[0], *b = words->count > 1 ? words->at[1] : words->at[0];
    if (words->count < 2 && with == NULL) {
        PL_FAIL(err, PL_E_USAGE, "--compare wants two targets, or one and --with KEY=VALUE");
        return -1;
    }
    json_t *first = one_side(w, a, err), *second = NULL, *doc = NULL;
    w->with = with;
    if (first != NULL && pl_soak_signal == 0) second = one_side(w, b, err);
    if (second != NULL) doc = pl_soak_compare(first, second);
    int status = -1;
    if (doc != NULL) {
        pl_out_print(cli, doc, pl_soak_compare_text, stdout);
        int one = pl_soak_exit(first), two = pl_soak_exit(second);
        bool worse = json_is_true(json_object_get(doc, "worse"));
        status = worse || two == 1 ? 1 : one == 4 || two == 4 ? 4 : 0;
        if (!write_files(cli, second, err)) status = -1;
    }
    json_decref(first);
    json_decref(second);
    json_decref(doc);
    return status;
}

static int run_one(struct pl_cli *cli, struct pl_soak_wish *w, struct pl_err *err) {
    bool tune = w->tune;
    if (tune && !pl_args_has(&cli->args, "scenario"))
        w->scenarios = 1u << PL_SOAK_CONCURRENCY | 1u << PL_SOAK_BATCH;
    json_t *doc = pl_soak_run(w, err);
    if (doc == NULL) return -1;
    if (tune && !cli->args.json) {
        pl_out_print(cli, doc, pl_soak_text, stderr);
        pl_out_print(cli, doc, pl_soak_tune, stdout);
    } else {
        pl_out_print(cli, doc, pl_soak_text, stdout);
    }
    int status = pl_soak_exit(doc);
    if (!write_files(cli, doc, err)) status = -1;
    json_decref(doc);
    return status;
}

int pl_verb_soak(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_soak_wish w = { 0 };
    const char *with[WITH_MOST + 1] = { NULL };
    size_t count = 0;
    bool compares = pl_args_has(&cli->args, "compare");
    int status = -1;
    for (size_t i = 0; i < cli->args.flag_count && count < WITH_MOST; i++)
        if (strcmp(cli->args.flags[i].name, "with") == 0) with[count++] = cli->args.flags[i].value;
    bool ok = pl_soak_read_wish(cli, &w, &err);
    for (size_t i = 0; ok && i < count; i++)
        if (strchr(with[i], '=') == NULL)
            ok = PL_FAIL(&err, PL_E_USAGE, "--with: '%.80s' is not KEY=VALUE", with[i]);
    if (ok && !compares && cli->args.words.count > 1)
        ok = PL_FAIL(&err, PL_E_USAGE, "soak takes one target; two with --compare");
    if (ok) {
        pl_soak_watch_signals();
        w.target = cli->args.words.at[0];
        if (!compares && count > 0) w.with = with;
        status = compares ? compare(cli, &w, count > 0 ? with : NULL, &err) : run_one(cli, &w, &err);
    }
    pl_soak_free_wish(&w);
    if (status < 0 && pl_soak_signal == 0) return pl_cli_fail(cli, &err);
    return pl_soak_leave(status);
}
