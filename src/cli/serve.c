/* serve.c - `plimsoll serve`: checks everything, opens what needs rights, and becomes the keeper. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ring.h"
#include "cli/accept.h"
#include "cli/bound.h"
#include "cli/child.h"
#include "cli/door.h"
#include "cli/drop.h"
#include "cli/dry_run.h"
#include "cli/log_form.h"
#include "cli/paths.h"
#include "cli/verbs.h"

enum { MAX_HOLDS = 16, MAX_WORDS = 96, STOP_SLACK_MS = 10000, PYTHON_LIMIT_MS = 20000 };

/* The keeper's command line as it grows. Texts live in the arena. */
struct command {
    char *words[MAX_WORDS];
    int count;
    struct pl_arena *arena;
};

static void add(struct command *c, const char *word) {
    if (c->count < MAX_WORDS - 1) c->words[c->count++] = pl_arena_strndup(c->arena, word, strlen(word));
}

static void add_hold(struct command *c, const char *name, int fd) {
    char text[64];
    snprintf(text, sizeof text, "%s=%d", name, fd);
    add(c, "--hold");
    add(c, text);
}

static void add_ms(struct command *c, const char *flag, int64_t ms) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)ms);
    add(c, flag);
    add(c, text);
}

/* --- listeners */

static bool open_one(struct command *k, const struct pl_address *a, const char *name, struct pl_err *err) {
    int fd = pl_bound_open(a, err);
    if (fd == -1) return false;
    fcntl(fd, F_SETFD, 0); /* the keeper takes it over by number */
    add_hold(k, name, fd);
    return true;
}

static bool open_listeners(struct command *k, const struct pl_config *c, struct pl_err *err) {
    char name[16];
    for (size_t i = 0; i < c->listen.count; i++) {
        snprintf(name, sizeof name, "listen:%zu", i);
        if (!open_one(k, &c->listen.at[i], name, err)) return false;
    }
    return c->admin.kind == PL_ADDRESS_NONE || open_one(k, &c->admin, "admin", err);
}

/* --- BentoML is looked for before anything starts: a sentence now beats a failed start later. */

static bool have_bentoml(const char *python, const char *folder, struct pl_err *err) {
    static const char look[] =
        "import importlib.util,sys;sys.exit(0 if importlib.util.find_spec('bentoml') else 9)";
    const char *words[] = { python, "-c", look, NULL };
    const struct pl_child ask = { .argv = words, .folder = folder, .limit_ms = PYTHON_LIMIT_MS };
    int status = pl_child_ask(&ask, NULL);
    if (status == 0) return true;
    if (status == 9) {
        PL_FAIL(err, PL_E_SYS, "BentoML is not installed for %s", python);
        return pl_err_hint(err, "%s -m pip install bentoml, or give --python of the environment that has it",
                           python);
    }
    PL_FAIL(err, PL_E_SYS, "%s does not run as a Python interpreter", python);
    return pl_err_hint(err, "give --python PATH");
}

/* --- the whole */

static bool hold_config(struct command *k, const struct pl_config *c, struct pl_err *err) {
    struct pl_buf text;
    pl_buf_init(&text, (size_t)8 << 20);
    bool ok = pl_config_to_json(c, &text);
    int fd = ok ? pl_memfd_of("plimsoll-config", text.data, text.len) : -1;
    pl_buf_free(&text);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "keep the configuration");
    fcntl(fd, F_SETFD, 0);
    add_hold(k, "config", fd);
    return true;
}

/* What the files for the door say now is what was accepted, whatever becomes of the files. */
static bool hold_door(struct command *k, const struct pl_papers *papers, struct pl_err *err) {
    if (papers->count == 0) return true;
    int fd = pl_door_memfd(papers);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "keep keys and certificates");
    fcntl(fd, F_SETFD, 0);
    add_hold(k, "door", fd);
    return true;
}

/* Our own arguments, NUL-ended one after the other: a reload reads file, environment and flags again. */
static bool hold_arguments(struct command *k, const struct pl_cli *cli, struct pl_err *err) {
    struct pl_buf text;
    pl_buf_init(&text, (size_t)1 << 20);
    bool ok = true;
    for (int i = 0; ok && i < cli->argc; i++) ok = pl_buf_add(&text, cli->argv[i], strlen(cli->argv[i]) + 1);
    int fd = ok ? pl_memfd_of("plimsoll-args", text.data, text.len) : -1;
    pl_buf_free(&text);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "keep the arguments");
    fcntl(fd, F_SETFD, 0);
    add_hold(k, "args", fd);
    return true;
}

static int64_t longest_stop_ms(const struct pl_config *c) {
    int64_t drain = 0, stop = 0;
    for (size_t i = 0; i < c->service_count; i++) {
        const struct pl_service_config *s = &c->services[i];
        int64_t mine = s->traffic_timeout_ms + s->traffic_queue_max_wait_ms;
        if (mine > drain) drain = mine;
        if (s->stop_timeout_ms > stop) stop = s->stop_timeout_ms;
    }
    if (drain < 600000) drain = 600000; /* streams: known only when the service has told its routes */
    if (c->drain_timeout_ms >= 0) drain = c->drain_timeout_ms;
    return c->drain_delay_ms + drain + 2 * stop + STOP_SLACK_MS; /* a service, then what it depends on */
}

static void warn(const struct pl_cli *cli, const struct pl_config *c) {
    for (size_t i = 0; !cli->args.quiet && i < c->warnings.count; i++)
        fprintf(stderr, "plimsoll: %s\n", c->warnings.at[i]);
    for (size_t i = 0; !cli->args.quiet && i < c->not_started.count; i++)
        fprintf(stderr, "plimsoll: service %s of %s is not started: only the target is\n",
                c->not_started.at[i], c->file);
}

static bool build_command(struct command *k, const struct pl_cli *cli, const struct pl_config *c,
                          const struct pl_papers *papers, struct pl_err *err) {
    char run[PL_PATH_BYTES], state[PL_PATH_BYTES], keeper[PL_PATH_BYTES], self[PL_PATH_BYTES],
        side[PL_PATH_BYTES];
    if (!pl_path_keeper(keeper, err) || !pl_path_program(self, err) || !pl_path_python_side(side, err))
        return false;
    if (!pl_path_run_dir(c, true, run, err)) return false;
    pl_path_state_dir(c, state);
    add(k, keeper);
    add(k, "--run");
    add(k, run);
    add_ms(k, "--hang-ms", c->main_hang_after_ms);
    add_ms(k, "--stop-ms", longest_stop_ms(c));
    if (pl_log_form(c, isatty(2) == 1) == PL_LOG_JSON) add_ms(k, "--json", 1);
    if (cli->args.verbose > 0) add_ms(k, "--verbose", 1);
    if (!open_listeners(k, c, err)) return false;
    if (c->workers_user != NULL && !pl_drop_let_workers_through(run, err)) return false;
    if (!pl_drop_rights(c, run, state, err)) return false; /* nothing below needs root */
    for (size_t i = 0; i < c->service_count; i++)
        if (c->services[i].run != NULL &&
            !have_bentoml(c->services[i].python, c->services[i].working_dir, err))
            return false;
    if (!hold_config(k, c, err) || !hold_door(k, papers, err) || !hold_arguments(k, cli, err)) return false;
    add(k, "--");
    add(k, self);
    add(k, "main");
    add(k, run);
    add(k, state);
    add(k, side);
    k->words[k->count] = NULL;
    return true;
}

/* Returns only when something is wrong. */
static void serve(struct pl_cli *cli, struct pl_config *c, struct pl_door *door, struct pl_err *err) {
    struct command k = { .arena = cli->arena };
    if (!build_command(&k, cli, c, &door->papers, err)) return;
    fflush(NULL);
    execv(k.words[0], k.words);
    PL_FAIL_SYS(err, errno, "run %s", k.words[0]);
}

int pl_verb_serve(struct pl_cli *cli) {
    struct pl_err err = { 0 };
    const char *target = cli->args.words.count > 0 ? cli->args.words.at[0] : NULL;
    struct pl_config *c = pl_accept(&cli->args, target, true, &err);
    struct pl_door door = { 0 };
    bool ok = c != NULL && pl_drop_check(c, &err) && pl_door_collect(c, &door, &err);
    if (ok) warn(cli, c);
    ok = ok && pl_dry_run_listeners(c, cli->args.allow_drydock, cli->args.quiet, &err);
    if (ok && cli->args.check)
        printf(cli->args.json ? "{\"v\":1,\"kind\":\"check\",\"valid\":true}\n" : "configuration is valid\n");
    else if (ok)
        serve(cli, c, &door, &err);
    pl_door_free(&door);
    pl_config_destroy(c);
    return ok && cli->args.check ? 0 : pl_cli_fail(cli, &err);
}
