#include "cli/renew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ring.h"
#include "cli/accept.h"
#include "cli/door.h"
#include "cli/helm.h"
#include "cli/manager.h"
#include "cli/verbs.h"
#include "config/diff.h"
#include "crew/look.h"

enum { LINES_BYTES = 4096 };

static struct {
    struct pl_renew_options o;
    uv_work_t work;
    bool busy, check, rejected;
    char action[24];
    struct pl_config *fresh;    /* read, not yet in force */
    struct pl_config *replaced; /* was in force; kept until the next reload: it is also the way back */
    struct pl_door door;        /* what the files that `fresh` names say */
    struct pl_changes changes;
    struct pl_err err;
    size_t waiting, live, generations, below; /* below: dependencies that have their new generation */
    bool failed, callers;                     /* callers: their turn, after what they depend on */
    char why[256];
} renew;

static struct pl_logger *log_of(void) { return renew.o.app->log; }

void pl_renew_init(const struct pl_renew_options *o) { renew.o = *o; }
bool pl_renew_busy(void) { return renew.busy; }
bool pl_renew_rejected(void) { return renew.rejected; }

/* --- the end, one way or the other */

enum { DONE = 0, ROLLED_BACK = 1, NOT_TAKEN = 3 };

static void finish(int exit_status, const char *message) {
    char action[sizeof renew.action];
    memcpy(action, renew.action, sizeof action);
    renew.busy = false;
    if (!renew.check) {
        renew.rejected = exit_status != DONE;
        pl_manager_reloaded(exit_status == DONE);
        pl_series_set(pl_series0(renew.o.app->metrics, PL_M_CONFIG_REJECTED), exit_status != DONE);
    }
    if (action[0] != '\0') renew.o.action_done(action, exit_status, message);
}

static void reject(int exit_status, const char *message) {
    if (!renew.check) pl_log(log_of(), PL_ERROR, "config.rejected", F_STR("message", message));
    finish(exit_status, message);
}

/* The lines of a difference, for people. Only those of one class if `only` is one. */
static void describe(char *out, size_t room, int only) {
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < renew.changes.count && at < room; i++) {
        const struct pl_change *c = &renew.changes.at[i];
        if (only >= 0 && (int)c->class != only) continue;
        at += (size_t)snprintf(out + at, room - at, "%s%s%s%s%s%s: '%s' -> '%s' (%s)", at > 0 ? "\n" : "",
                               c->place, c->place[0] != '\0' ? ": " : "",
                               c->service != NULL ? c->service : "", c->service != NULL ? "." : "", c->key,
                               c->from, c->to, pl_change_class_name(c->class));
    }
}

/* --- the new one in force, or the old one again */

static void put_in_force(struct pl_config *c) {
    struct pl_buf text;
    renew.o.app->config = c;
    pl_crew_reconfigured(renew.o.crew);
    renew.o.settle();
    pl_buf_init(&text, (size_t)8 << 20);
    int fd = pl_config_to_json(c, &text) ? pl_memfd_of("plimsoll-config", text.data, text.len) : -1;
    pl_buf_free(&text);
    if (fd == -1) return; /* the next main starts with the one before: it was accepted, too */
    renew.o.hold("config", fd);
    close(fd);
}

/* What the services said of themselves holds for the new one, too, until their next generations speak. */
static bool inherit(struct pl_config *c, struct pl_err *err) {
    for (size_t i = 0; i < pl_crew_service_count(renew.o.crew); i++) {
        const struct pl_description *d = pl_look_description(pl_crew_service(renew.o.crew, i));
        if (d != NULL) pl_description_apply(d, c, i, NULL, 0);
    }
    return pl_config_check(c, err);
}

static bool has_change(const char *service, enum pl_change_class class) {
    for (size_t i = 0; i < renew.changes.count; i++)
        if (renew.changes.at[i].class == class && renew.changes.at[i].service != NULL &&
            strcmp(renew.changes.at[i].service, service) == 0)
            return true;
    return false;
}

/* Its dependencies that run apart, all at once: they are made of the same files and settings. */
static void replace_below(struct pl_service *s, const struct pl_replace_wish *wish) {
    struct pl_err err;
    if (s->config->dependencies == PL_CFG_DEPENDENCIES_INLINE) return; /* they go when their callers have */
    for (struct pl_service *d = s->dependencies; d != NULL; d = d->next) {
        if (!pl_look_wanted(d)) continue;
        bool told = wish->action != NULL;
        renew.waiting += told;
        if (!pl_service_replace(d, wish, NULL, &err) && told) pl_renew_replaced(false, err.msg);
    }
}

static void roll_back(void) {
    struct pl_config *bad = renew.o.app->config;
    struct pl_err err;
    put_in_force(renew.replaced);
    pl_door_back();
    renew.replaced = bad; /* still looked at by what is under way; freed by the next reload */
    for (size_t i = 0; i < pl_crew_service_count(renew.o.crew); i++) {
        struct pl_service *s = pl_crew_service(renew.o.crew, i);
        /* One that had its new generation already goes back, too; the failed one still serves with its old
         * one. */
        const struct pl_replace_wish back = { .reason = PL_REPLACE_FOR_ROLLBACK };
        if (!has_change(s->config->id, PL_CHANGE_GENERATION)) continue;
        if (renew.generations > 1) pl_service_replace(s, &back, NULL, &err);
        if (renew.below > 0) replace_below(s, &back);
    }
    char message[sizeof renew.why + 80];
    snprintf(message, sizeof message, "rolled back, a new generation did not become ready: %s", renew.why);
    reject(ROLLED_BACK, message);
}

static void start_callers(void);

static void done(void) {
    char hash[17], message[128];
    pl_config_hash(renew.o.app->config, hash);
    pl_log(log_of(), PL_INFO, "config.reloaded", F_INT("live", renew.live),
           F_INT("generations", renew.generations), F_STR("hash", hash));
    snprintf(message, sizeof message, "%zu live keys changed, %zu services replaced", renew.live,
             renew.generations);
    finish(DONE, message);
}

void pl_renew_replaced(bool ok, const char *message) {
    if (!ok && !renew.failed) {
        renew.failed = true;
        snprintf(renew.why, sizeof renew.why, "%s", message);
    }
    renew.below +=
        ok && !renew.callers && message[0] != '\0'; /* "": only our own place among those waited for */
    if (--renew.waiting > 0) return;
    if (renew.failed)
        roll_back();
    else if (!renew.callers)
        start_callers();
    else
        done();
}

/* What others call comes first: a caller's new generation finds it as new as itself. */
static void start_generations(void) {
    const struct pl_replace_wish wish = { .reason = PL_REPLACE_FOR_GENERATION, .action = PL_RENEW_ACTION };
    renew.callers = false;
    renew.below = 0;
    renew.waiting = 1; /* ours, so that nothing ends while they are being started */
    for (size_t i = 0; i < pl_crew_service_count(renew.o.crew); i++) {
        struct pl_service *s = pl_crew_service(renew.o.crew, i);
        if (has_change(s->config->id, PL_CHANGE_GENERATION)) replace_below(s, &wish);
    }
    pl_renew_replaced(true, "");
}

static void start_callers(void) {
    struct pl_err err;
    renew.callers = true;
    renew.waiting = 1;
    for (size_t i = 0; i < pl_crew_service_count(renew.o.crew); i++) {
        struct pl_service *s = pl_crew_service(renew.o.crew, i);
        if (!has_change(s->config->id, PL_CHANGE_GENERATION)) continue;
        renew.generations++;
        renew.waiting++;
        const struct pl_replace_wish wish = { .reason = PL_REPLACE_FOR_GENERATION,
                                              .action = PL_RENEW_ACTION };
        if (!pl_service_replace(s, &wish, NULL, &err)) pl_renew_replaced(false, err.msg);
    }
    pl_renew_replaced(true, "");
}

static void apply(void) {
    struct pl_err err = { 0 };
    if (!inherit(renew.fresh, &err)) {
        reject(NOT_TAKEN, err.msg);
        return;
    }
    for (size_t i = 0; i < renew.changes.count; i++)
        renew.live += renew.changes.at[i].class == PL_CHANGE_LIVE;
    pl_config_destroy(renew.replaced);
    renew.replaced = renew.o.app->config;
    put_in_force(renew.fresh);
    pl_door_put(&renew.door);
    renew.fresh = NULL;
    start_generations();
}

/* --- reading, beside the loop */

static void read_now(uv_work_t *work) {
    struct pl_arena arena;
    struct pl_cli cli = { .program = renew.o.argv[0] };
    (void)work;
    pl_arena_init(&arena, (size_t)4 << 20);
    cli.arena = &arena;
    if (pl_cli_parse(renew.o.argc, renew.o.argv, "serve", &cli, &renew.err)) {
        const char *target = cli.args.words.count > 0 ? cli.args.words.at[0] : NULL;
        renew.fresh = pl_accept(&cli.args, target, true, &renew.err);
        if (renew.fresh != NULL && !pl_door_collect(renew.fresh, &renew.door, &renew.err)) {
            pl_config_destroy(renew.fresh);
            renew.fresh = NULL;
        }
    }
    pl_arena_free(&arena);
}

static bool any(enum pl_change_class class) {
    for (size_t i = 0; i < renew.changes.count; i++)
        if (renew.changes.at[i].class == class) return true;
    return false;
}

static void was_read(uv_work_t *work, int status) {
    static char lines[LINES_BYTES];
    (void)work;
    (void)status;
    if (renew.fresh == NULL) {
        if (renew.err.hint[0] != '\0') {
            char hint[sizeof renew.err.hint];
            memcpy(hint, renew.err.hint, sizeof hint);
            snprintf(lines, sizeof lines, "%s: %s", renew.err.msg, hint);
        } else {
            snprintf(lines, sizeof lines, "%s", renew.err.msg);
        }
        reject(NOT_TAKEN, lines);
        return;
    }
    pl_config_diff(renew.o.app->config, renew.fresh, &renew.changes);
    if (any(PL_CHANGE_RESTART) && !renew.check) {
        describe(lines, sizeof lines, PL_CHANGE_RESTART);
        reject(NOT_TAKEN, lines);
    } else if (renew.check) {
        describe(lines, sizeof lines, -1);
        finish(any(PL_CHANGE_RESTART) ? NOT_TAKEN : DONE, lines[0] != '\0' ? lines : "nothing would change");
    } else if (!pl_config_align(renew.o.app->config, renew.fresh)) {
        reject(NOT_TAKEN, "services come and go by a restart only");
    } else {
        apply();
    }
    pl_door_free(&renew.door);
    pl_config_destroy(renew.fresh);
    renew.fresh = NULL;
}

bool pl_renew_order(bool check, const char *action, struct pl_err *err) {
    if (renew.busy) return PL_FAIL(err, PL_E_LIMIT, "a reload is under way");
    if (!pl_helm_ours() || pl_helm_under_way())
        return PL_FAIL(err, PL_E_LIMIT, "an upgrade is under way: wait for its end");
    renew.busy = true;
    renew.check = check;
    renew.failed = false;
    renew.live = renew.generations = 0;
    renew.changes.count = 0;
    renew.err = (struct pl_err){ 0 };
    snprintf(renew.action, sizeof renew.action, "%s", action);
    if (uv_queue_work(renew.o.app->loop, &renew.work, read_now, was_read) == 0) {
        if (!check) pl_manager_reloading();
        return true;
    }
    renew.busy = false;
    return PL_FAIL(err, PL_E_SYS, "start reading the configuration");
}
