/* report.c - `plimsoll report`: what happened before the last death, or between two times, out of the flight
 * record. The record of a running server is read by a child of that server; without one the file is read
 * here. Also the hidden `read-record`, which is that child. */
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/accept.h"
#include "cli/client.h"
#include "cli/flight.h"
#include "cli/out.h"
#include "cli/paths.h"
#include "record/record.h"

enum { TARGET_BYTES = 512 };

/* --- the child of a server: PLACE WHAT key=value... */

static const char *value_of(const char *word, const char *key) {
    size_t n = strlen(key);
    return strncmp(word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

static bool read_wish(int count, char **words, struct pl_flight_wish *w, struct pl_err *err) {
    int64_t step = 0;
    for (int i = 0; i < count; i++) {
        const char *service = value_of(words[i], "service"), *from = value_of(words[i], "from"),
                   *to = value_of(words[i], "to"), *text = value_of(words[i], "step");
        if (service != NULL) w->service = service;
        if (from != NULL && !pl_flight_time(from, w->now_ms, &w->from_ms, err))
            return pl_err_wrap(err, "from");
        if (to != NULL && !pl_flight_time(to, w->now_ms, &w->to_ms, err)) return pl_err_wrap(err, "to");
        if (text != NULL && (!pl_config_parse_duration(text, &step, err) || step < 0))
            return pl_err_wrap(err, "step");
    }
    w->step_ms = (uint64_t)step;
    return true;
}

int pl_read_record_main(int argc, char **argv) {
    struct pl_err err = { 0 };
    struct pl_flight f;
    struct pl_flight_wish w = { .now_ms = pl_wall_ms(&pl_clock_system) };
    const struct {
        const char *what;
        json_t *(*make)(struct pl_flight *, const struct pl_flight_wish *, struct pl_err *);
    } kinds[] = { { "report", pl_flight_report },
                  { "history", pl_flight_history },
                  { "timeline", pl_flight_timeline } };
    json_t *doc = NULL;
    if (argc < 4) return 2;
    if (read_wish(argc - 4, argv + 4, &w, &err) && pl_flight_open(&f, argv[2], &err)) {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strcmp(argv[3], kinds[i].what) == 0) doc = kinds[i].make(&f, &w, &err);
        pl_flight_close(&f);
    }
    if (doc != NULL)
        json_dumpf(doc, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    else
        printf("%s", err.msg); /* the server passes it on */
    json_decref(doc);
    return doc != NULL ? 0 : pl_err_exit_status(err.code);
}

/* --- the verb */

static bool read_flags(struct pl_cli *cli, struct pl_flight_wish *w, struct pl_err *err) {
    const char *since = pl_args_value(&cli->args, "since"), *until = pl_args_value(&cli->args, "until");
    w->service = pl_args_value(&cli->args, "service");
    w->now_ms = pl_wall_ms(&pl_clock_system);
    if (pl_args_has(&cli->args, "last") && (since != NULL || until != NULL))
        return PL_FAIL(err, PL_E_USAGE, "--last, or --since and --until: one of them");
    if (since != NULL && !pl_flight_time(since, w->now_ms, &w->from_ms, err))
        return pl_err_wrap(err, "--since");
    if (until != NULL && !pl_flight_time(until, w->now_ms, &w->to_ms, err))
        return pl_err_wrap(err, "--until");
    if (w->to_ms != 0 && w->to_ms <= w->from_ms)
        return PL_FAIL(err, PL_E_USAGE, "--until lies before --since");
    return true;
}

/* As it goes into a target: everything that is not plain is written %XX. */
static void add_query(char target[TARGET_BYTES], const char *key, const char *value) {
    size_t at = strlen(target);
    at += (size_t)snprintf(target + at, TARGET_BYTES - at, "%c%s=", strchr(target, '?') != NULL ? '&' : '?',
                           key);
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0' && at + 4 < TARGET_BYTES; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     *c == '-' || *c == '.' || *c == '_';
        at += (size_t)snprintf(target + at, TARGET_BYTES - at, plain ? "%c" : "%%%02X", *c);
    }
}

static json_t *from_server(struct pl_cli *cli, struct pl_client *c, const struct pl_flight_wish *w,
                           struct pl_err *err) {
    char target[TARGET_BYTES] = "/report", time[PL_TIME_TEXT];
    (void)cli;
    if (w->service != NULL) add_query(target, "service", w->service);
    if (w->from_ms != 0) add_query(target, "from", pl_time_rfc3339(w->from_ms, time));
    if (w->to_ms != 0) add_query(target, "to", pl_time_rfc3339(w->to_ms, time));
    return pl_client_document(c, target, err);
}

static json_t *from_file(const char *place, const struct pl_flight_wish *w, struct pl_err *err) {
    struct pl_flight f;
    json_t *doc;
    if (!pl_flight_open(&f, place, err)) return NULL;
    doc = pl_flight_report(&f, w, err);
    pl_flight_close(&f);
    return doc;
}

/* Where the instance of this folder's configuration has its record. */
static json_t *from_state(struct pl_cli *cli, const struct pl_flight_wish *w, struct pl_err *err) {
    char state[PL_PATH_BYTES], path[PL_PATH_BYTES + 32];
    struct pl_config *c = pl_accept_quietly(&cli->args, err);
    if (c == NULL) return NULL;
    pl_path_state_dir(c, state);
    pl_record_path(c->record_path, state, path, sizeof path);
    pl_config_destroy(c);
    if (path[0] != '\0') return from_file(path, w, err);
    PL_FAIL(err, PL_E_SYS, "no server runs, and there is no file to read");
    pl_err_hint(err, "--record FILE names one");
    return NULL;
}

static json_t *read_report(struct pl_cli *cli, const struct pl_flight_wish *w, struct pl_err *err) {
    struct pl_client c;
    struct pl_err why = { 0 };
    const char *file = pl_args_value(&cli->args, "record");
    if (file != NULL) return from_file(file, w, err);
    if (pl_client_find(cli, &c, &why)) return from_server(cli, &c, w, err);
    bool named = cli->args.admin != NULL || getenv("PLIMSOLL_ADMIN") != NULL;
    if (!named && why.code == PL_E_SYS) return from_state(cli, w, err);
    *err = why;
    return NULL;
}

int pl_verb_report(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    struct pl_flight_wish w = { 0 };
    const char *page = pl_args_value(&cli->args, "html");
    if (!read_flags(cli, &w, &err)) return pl_cli_fail(cli, &err);
    json_t *doc = read_report(cli, &w, &err);
    if (doc == NULL) return pl_cli_fail(cli, &err);
    bool last = w.from_ms == 0 && w.to_ms == 0 && !pl_args_has(&cli->args, "would");
    bool none = last && json_object_get(doc, "death") == NULL;
    bool ok = pl_out_print(cli, doc, pl_args_has(&cli->args, "would") ? pl_report_would_text : pl_report_text,
                           stdout);
    if (!ok) PL_FAIL_SYS(&err, errno, "write the answer");
    if (ok && page != NULL) ok = pl_out_page(page, pl_report_sections(doc), &err);
    json_decref(doc);
    return !ok ? pl_cli_fail(cli, &err) : none ? 1 : 0;
}
