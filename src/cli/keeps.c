#include "cli/keeps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "watch/host.h"

enum { BEAT_MS = 1000 };

static struct {
    uint64_t beat_ms, dropped;
    bool in_memory, unfinished_told;
    char problem[256];
} told;

/* --- the memory of the whole instance, on the record's thread */

static bool read_memory(void *ctx, struct pl_record_host *out) {
    static const struct pl_host_roots machine = { "/proc", "/sys/fs/cgroup" };
    struct pl_watch_host group;
    (void)ctx;
    pl_host_group(&machine, "self", &group);
    if (group.current == PL_WATCH_UNKNOWN) return false;
    *out = (struct pl_record_host){ .used = group.current };
    if (group.limit != PL_WATCH_UNKNOWN) out->limit = group.limit;
    if (group.events_oom_kill != PL_WATCH_UNKNOWN) out->oom_kills = group.events_oom_kill;
    return true;
}

void pl_keeps_open(struct pl_app *app, const struct pl_keeps_start *s) {
    char path[512], hash[17];
    const struct pl_config *c = app->config;
    pl_record_path(c->record_path, s->state_dir, path, sizeof path);
    pl_config_hash(c, hash);
    app->record =
        pl_record_create(&(struct pl_record_options){ .path = path[0] != '\0' ? path : NULL,
                                                      .max_bytes = (uint64_t)c->record_max_bytes_bytes,
                                                      .max_age_ms = (uint64_t)c->record_max_age_ms,
                                                      .clock = app->clock,
                                                      .host = read_memory,
                                                      .boot = { .life = s->life,
                                                                .reason = s->reason,
                                                                .version = PL_VERSION,
                                                                .instance = c->name,
                                                                .config = hash,
                                                                .keeper_pid = s->keeper_pid,
                                                                .main_pid = getpid() } });
}

static void tell_place(struct pl_app *app, const struct pl_record_look *l) {
    char path[512];
    pl_record_file(app->record, path, sizeof path);
    if (l->in_memory && !told.in_memory)
        pl_log(app->log, PL_WARN, "record.memory", F_STR("path", app->config->record_path),
               F_STR("reason", l->problem));
    else if (!l->in_memory && told.in_memory)
        pl_log(app->log, PL_INFO, "record.back", F_STR("path", path));
    else if (!l->in_memory && l->problem[0] != '\0' && strcmp(l->problem, told.problem) != 0)
        pl_log(app->log, PL_WARN, "record.note", F_STR("path", path), F_STR("reason", l->problem));
    told.in_memory = l->in_memory;
    memcpy(told.problem, l->problem, sizeof told.problem);
}

/* Others may know of the same end, and better: then it is not told again here, and the row takes their words
 * (record/derive.def). */
void pl_keeps_event(struct pl_app *app, enum pl_level level, const char *event, const char *line,
                    size_t len) {
    if (strcmp(event, "instance.died") == 0) told.unfinished_told = true;
    pl_record_event(app->record, level, event, line, len);
}

void pl_keeps_beat(struct pl_app *app, uint64_t now_ms) {
    struct pl_record_look l;
    if (app->record == NULL || now_ms - told.beat_ms < BEAT_MS) return;
    told.beat_ms = now_ms;
    pl_record_look(app->record, &l);
    pl_series_set(pl_series0(app->metrics, PL_M_RECORD_BYTES), (double)l.bytes);
    pl_series_add(pl_series0(app->metrics, PL_M_RECORD_ROWS_DROPPED_TOTAL),
                  (double)(l.dropped - told.dropped));
    if (l.opened) tell_place(app, &l);
    if (l.dropped > told.dropped)
        pl_log(app->log, PL_WARN, "record.dropped", F_INT("rows", l.dropped - told.dropped),
               F_STR("reason", l.problem[0] != '\0' ? l.problem : "the queue is full"));
    told.dropped = l.dropped;
    if (!l.unfinished || told.unfinished_told) return;
    char seen[PL_TIME_TEXT];
    told.unfinished_told = true;
    pl_log(app->log, PL_ERROR, "instance.died", F_STR("death", l.death), F_STR("cause", l.cause),
           F_STR("sentence", l.sentence), F_STR("seen", pl_time_rfc3339(l.seen_ms, seen)));
}

void pl_keeps_reconfigured(struct pl_app *app) {
    pl_record_limits(app->record, (uint64_t)app->config->record_max_bytes_bytes,
                     (uint64_t)app->config->record_max_age_ms);
}

void pl_keeps_close(struct pl_app *app, int status) {
    pl_record_destroy(app->record, status);
    app->record = NULL;
}
