/* follow.c - `plimsoll logs` and `plimsoll events`: text that may go on. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/client.h"
#include "cli/flight.h"
#include "crew/crew.h"

static bool read_since(const char *text, uint64_t *from_ms, struct pl_err *err) {
    if (pl_flight_time(text, pl_wall_ms(&pl_clock_system), from_ms, err)) return true;
    return pl_err_wrap(err, "--since");
}

/* --- logs: bytes as they were printed */

enum { LINES = 200 };

static bool put(void *ctx, const char *bytes, size_t len) {
    (void)ctx;
    return fwrite(bytes, 1, len, stdout) == len && fflush(stdout) == 0;
}

/* With one service its name may be left out. */
static bool only_service(struct pl_client *c, char *name, size_t room, struct pl_err *err) {
    json_t *doc = pl_client_document(c, "/status", err);
    if (doc == NULL) return false;
    json_t *services = json_object_get(doc, "services");
    const char *first = json_string_value(json_object_get(json_array_get(services, 0), "name"));
    bool ok = json_array_size(services) == 1 && first != NULL;
    if (ok)
        snprintf(name, room, "%s", first);
    else
        PL_FAIL(err, PL_E_USAGE, "%zu services run: name one", json_array_size(services));
    json_decref(doc);
    return ok;
}

int pl_verb_logs(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    char service[64], target[256];
    const char *since = pl_args_value(&cli->args, "since");
    uint64_t from_ms = 0, tail = since != NULL ? UINT32_MAX : LINES;
    uint64_t worker = 0; /* all of them */
    int status;
    if ((since != NULL && !read_since(since, &from_ms, &err)) ||
        !pl_args_count(&cli->args, "tail", 0, UINT32_MAX, &tail, &err) ||
        !pl_args_count(&cli->args, "worker", 1, PL_CREW_SLOTS_MOST, &worker, &err))
        return pl_cli_fail(cli, &err);
    if (!pl_client_find(cli, &c, &err)) return pl_cli_fail(cli, &err);
    if (cli->args.words.count > 0)
        snprintf(service, sizeof service, "%s", cli->args.words.at[0]);
    else if (!only_service(&c, service, sizeof service, &err))
        return pl_cli_fail(cli, &err);
    snprintf(target, sizeof target, "/logs/%s?tail=%llu&since_ms=%llu&worker=%llu%s%s", service,
             (unsigned long long)tail, (unsigned long long)from_ms, (unsigned long long)worker,
             pl_args_has(&cli->args, "previous") ? "&previous=1" : "",
             pl_args_has(&cli->args, "follow") ? "&follow=1" : "");
    if (!pl_client_stream(&c, target, &status, put, NULL, &err)) return pl_cli_fail(cli, &err);
    return 0;
}

/* --- events: JSON lines as they are, or a line for people */

struct lines {
    struct pl_buf partial;
    bool json;
    char since[PL_TIME_TEXT]; /* "": all of them */
    size_t count;
};

/* Times of one form sort as texts. */
static bool is_older(const char *line, size_t len, const char *since) {
    json_t *doc = since[0] != '\0' ? json_loadb(line, len, 0, NULL) : NULL;
    const char *ts = json_string_value(json_object_get(doc, "ts"));
    bool older = ts != NULL && strcmp(ts, since) < 0;
    json_decref(doc);
    return older;
}

static void print_event(const char *line, size_t len) {
    json_t *doc = json_loadb(line, len, 0, NULL);
    const char *key, *ts = json_string_value(json_object_get(doc, "ts"));
    json_t *value;
    if (doc == NULL) return;
    printf("%s %-5s %s", ts != NULL ? ts : "-", json_string_value(json_object_get(doc, "level")),
           json_string_value(json_object_get(doc, "event")));
    json_object_foreach(doc, key, value) {
        if (strcmp(key, "ts") == 0 || strcmp(key, "level") == 0 || strcmp(key, "event") == 0) continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (text != NULL) printf(" %s=%s", key, text);
        free(text);
    }
    printf("\n");
    json_decref(doc);
}

static bool put_events(void *ctx, const char *bytes, size_t len) {
    struct lines *l = ctx;
    if (!pl_buf_add(&l->partial, bytes, len)) return false;
    for (char *end; l->partial.len > 0 && (end = memchr(l->partial.data, '\n', l->partial.len)) != NULL;) {
        size_t n = (size_t)(end - l->partial.data);
        bool older = is_older(l->partial.data, n, l->since);
        l->count += !older;
        if (!older && l->json) printf("%.*s\n", (int)n, l->partial.data);
        if (!older && !l->json) print_event(l->partial.data, n);
        pl_buf_drop(&l->partial, n + 1);
    }
    return fflush(stdout) == 0;
}

int pl_verb_events(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    struct lines l = { .json = cli->args.json };
    char target[256];
    int status, at;
    static const char *const keys[] = { "service", "event", "level" };
    const char *since = pl_args_value(&cli->args, "since");
    uint64_t from_ms;
    if (since != NULL) {
        if (!read_since(since, &from_ms, &err)) return pl_cli_fail(cli, &err);
        pl_time_rfc3339(from_ms, l.since);
    }
    if (!pl_client_find(cli, &c, &err)) return pl_cli_fail(cli, &err);
    at = snprintf(target, sizeof target, "/events?follow=%d", pl_args_has(&cli->args, "follow"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = pl_args_value(&cli->args, keys[i]);
        if (value != NULL && (size_t)at < sizeof target)
            at += snprintf(target + at, sizeof target - (size_t)at, "&%s=%.50s", keys[i], value);
    }
    pl_buf_init(&l.partial, (size_t)1 << 20);
    bool ok = pl_client_stream(&c, target, &status, put_events, &l, &err);
    pl_buf_free(&l.partial);
    if (!ok) return pl_cli_fail(cli, &err);
    return l.count > 0 ? 0 : 1;
}
