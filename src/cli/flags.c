#include "cli/flags.h"

#include <string.h>

static const struct pl_flag status_flags[] = {
    { "watch", 'w', PL_FLAG_OPTIONAL, "SEC", "again every SEC seconds (2)" },
};
static const struct pl_flag logs_flags[] = {
    { "follow", 'f', PL_FLAG_SWITCH, NULL, "go on with what comes" },
    { "previous", 'p', PL_FLAG_SWITCH, NULL, "of the last worker that is gone" },
    { "worker", 0, PL_FLAG_VALUE, "N", "of this worker only" },
    { "tail", 0, PL_FLAG_VALUE, "N", "the last N lines (200)" },
};
static const struct pl_flag events_flags[] = {
    { "follow", 'f', PL_FLAG_SWITCH, NULL, "go on with what comes" },
    { "service", 0, PL_FLAG_VALUE, "S", "of this service only" },
    { "event", 0, PL_FLAG_VALUE, "GLOB", "names that match: worker.*" },
    { "level", 0, PL_FLAG_VALUE, "L", "debug, info, warn or error and above (info)" },
};
static const struct pl_flag restart_flags[] = {
    { "all", 0, PL_FLAG_SWITCH, NULL, "every service" },
    { "worker", 0, PL_FLAG_VALUE, "N", "this worker only" },
    { "mode", 0, PL_FLAG_VALUE, "MODE", "auto, overlap or handover" },
    { "now", 0, PL_FLAG_SWITCH, NULL, "do not wait for a quiet moment" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait for the successor" },
};
static const struct pl_flag drain_flags[] = {
    { "timeout", 0, PL_FLAG_VALUE, "DUR", "how long to wait for what runs (60s)" },
    { "undo", 0, PL_FLAG_SWITCH, NULL, "let requests in again" },
};
static const struct pl_flag config_flags[] = {
    { "service", 0, PL_FLAG_VALUE, "S", "of this service only" },
};

const struct pl_flag *pl_verb_flags(const char *verb, size_t *count) {
    static const struct {
        const char *verb;
        const struct pl_flag *flags;
        size_t count;
    } all[] = {
        { "status", status_flags, sizeof status_flags / sizeof *status_flags },
        { "logs", logs_flags, sizeof logs_flags / sizeof *logs_flags },
        { "events", events_flags, sizeof events_flags / sizeof *events_flags },
        { "restart", restart_flags, sizeof restart_flags / sizeof *restart_flags },
        { "drain", drain_flags, sizeof drain_flags / sizeof *drain_flags },
        { "config", config_flags, sizeof config_flags / sizeof *config_flags },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].verb, verb) != 0) continue;
        *count = all[i].count;
        return all[i].flags;
    }
    *count = 0;
    return NULL;
}
