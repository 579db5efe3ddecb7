/* upgrade.c - `plimsoll upgrade`: orders that another main takes the helm, and tells who has it in the end.
 * The one that was asked cannot say so: when it succeeds, whoever answers here is the new one. */
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/client.h"
#include "cli/paths.h"

enum { ASK_AGAIN_MS = 50, TAKE_MS = 60000, AFTERWARDS_MS = 30000, VERSION_BYTES = 32 };

struct who {
    char version[VERSION_BYTES], started[16];
    long long pid;
};

/* False and no error in err: nobody answers at the moment. */
static bool ask_who(struct pl_client *c, struct who *out, struct pl_err *err) {
    json_t *doc = pl_client_document(c, "/status", err);
    if (doc == NULL) return false;
    const char *version = json_string_value(json_object_get(doc, "version"));
    const char *started = json_string_value(json_object_get(doc, "started"));
    out->pid = json_integer_value(json_object_get(json_object_get(doc, "pid"), "main"));
    snprintf(out->version, sizeof out->version, "%s", version != NULL ? version : "");
    snprintf(out->started, sizeof out->started, "%s", started != NULL ? started : "");
    json_decref(doc);
    return out->pid > 0 || PL_FAIL(err, PL_E_SYS, "the server's status cannot be read");
}

/* True: it has failed, `why` says it. */
static bool has_failed(struct pl_client *c, const char *action, char *why, size_t room) {
    struct pl_err err;
    char target[64];
    snprintf(target, sizeof target, "/actions/%s", action);
    json_t *doc = pl_client_document(c, target, &err);
    if (doc == NULL) return false;
    const char *state = json_string_value(json_object_get(doc, "state"));
    const char *message = json_string_value(json_object_get(doc, "message"));
    bool failed = state != NULL && strcmp(state, "failed") == 0;
    snprintf(why, room, "%s", message != NULL ? message : "");
    json_decref(doc);
    return failed;
}

static void show(const struct pl_cli *cli, const struct who *old, const struct who *now, uint64_t took_ms) {
    if (cli->args.json) {
        json_t *doc =
            json_pack("{s:i,s:s,s:b,s:{s:s,s:I},s:{s:s,s:I},s:I}", "v", 1, "kind", "upgrade", "done", 1,
                      "from", "version", old->version, "pid", (json_int_t)old->pid, "to", "version",
                      now->version, "pid", (json_int_t)now->pid, "took_ms", (json_int_t)took_ms);
        json_dumpf(doc, stdout, JSON_COMPACT);
        printf("\n");
        json_decref(doc);
    } else {
        printf("upgraded: %s (main %lld) -> %s (main %lld) in %llu ms; what was open is finished by the old "
               "one\n",
               old->version, old->pid, now->version, now->pid, (unsigned long long)took_ms);
    }
}

static int show_failed(const struct pl_cli *cli, const struct who *old, const char *why) {
    if (cli->args.json) {
        json_t *doc = json_pack("{s:i,s:s,s:b,s:{s:s,s:I},s:s}", "v", 1, "kind", "upgrade", "done", 0, "from",
                                "version", old->version, "pid", (json_int_t)old->pid, "reason", why);
        json_dumpf(doc, stdout, JSON_COMPACT);
        printf("\n");
        json_decref(doc);
    } else {
        printf("not upgraded, %s (main %lld) goes on: %s\n", old->version, old->pid, why);
    }
    return 1;
}

/* The binary as an order names it: absolute, since the server's folder is another one. None is named over the
 * network, or without a word: the server moves to what lies where it was started from. */
static bool name_binary(struct pl_cli *cli, json_t *order, struct pl_err *err) {
    char path[PATH_MAX];
    if (cli->args.words.count == 0) return true;
    const char *word = cli->args.words.at[0];
    if (realpath(word, path) == NULL) {
        PL_FAIL(err, PL_E_USAGE, "%s: no such program", word);
        return pl_err_hint(err, "the old main goes on; nothing was ordered");
    }
    json_object_set_new(order, "binary", json_string(path));
    return true;
}

static int follow(struct pl_cli *cli, struct pl_client *c, const struct who *old, const char *action,
                  uint64_t limit_ms) {
    struct pl_err err = { 0 };
    struct who now = { 0 };
    char why[4096];
    uint64_t began = pl_now_ms(&pl_clock_system), late = began + limit_ms + AFTERWARDS_MS;
    for (bool told = false;; poll(NULL, 0, ASK_AGAIN_MS)) {
        bool answered = ask_who(c, &now, &err);
        uint64_t at = pl_now_ms(&pl_clock_system);
        if (answered && now.pid != old->pid) break;
        if (answered && told)
            return show_failed(cli, old, why); /* asked once more: it is still the old one */
        told = answered && has_failed(c, action, why, sizeof why);
        if (told) continue;
        if (at < late) continue;
        if (answered) PL_FAIL(&err, PL_E_LIMIT, "it is not decided yet: plimsoll events --event 'upgrade.*'");
        return pl_cli_fail(cli, &err);
    }
    if (strcmp(now.started, "upgrade") != 0)
        return show_failed(cli, old, "the main that was asked has crashed meanwhile, and was started again");
    show(cli, old, &now, pl_now_ms(&pl_clock_system) - began);
    return 0;
}

int pl_verb_upgrade(struct pl_cli *cli) {
    struct pl_client c;
    struct pl_err err = { 0 };
    struct who old;
    int64_t limit = TAKE_MS;
    json_t *reply = NULL, *order = json_object();
    const char *timeout = pl_args_value(&cli->args, "timeout");
    if (timeout != NULL && !pl_config_parse_duration(timeout, &limit, &err)) {
        pl_err_wrap(&err, "--timeout");
        err.code = PL_E_USAGE;
        return pl_cli_fail(cli, &err);
    }
    json_object_set_new(order, "timeout_ms", json_integer(limit));
    bool ok = name_binary(cli, order, &err) && pl_client_find(cli, &c, &err) && ask_who(&c, &old, &err) &&
              pl_client_order(&c, "/upgrade", order, &reply, &err);
    const char *id = json_string_value(json_object_get(reply, "id"));
    int result = ok ? follow(cli, &c, &old, id != NULL ? id : "", (uint64_t)limit) : pl_cli_fail(cli, &err);
    json_decref(reply);
    json_decref(order);
    return result;
}
