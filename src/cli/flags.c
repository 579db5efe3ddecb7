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
    { "mode", 0, PL_FLAG_VALUE, "MODE", "auto or overlap" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait for the successor" },
};
static const struct pl_flag drydock_flags[] = {
    { "gpu", 0, PL_FLAG_VALUE, "NAME[xN]|NAME:BYTES", "the card (a100-40); --list tells the names" },
    { "count", 0, PL_FLAG_VALUE, "N", "how many cards (1)" },
    { "context", 0, PL_FLAG_VALUE, "BYTES", "what each process's context costs on a card (400MiB)" },
    { "report", 0, PL_FLAG_VALUE, "FILE", "write the report as JSON too" },
    { "record", 0, PL_FLAG_VALUE, "DIR", "leave PyTorch's memory snapshot of each process there" },
    { "values", 0, PL_FLAG_SWITCH, NULL, "compute small tensors, so that loops on their values end" },
    { "workspace", 0, PL_FLAG_VALUE, "BYTES", "what a cuDNN or cuFFT plan asks for (0)" },
    { "lag", 0, PL_FLAG_VALUE, "DUR", "events complete that much later: pending frees" },
    { "fail", 0, PL_FLAG_VALUE, "N", "refuse the N-th allocation of device memory, and its retry" },
    { "cap", 0, PL_FLAG_VALUE, "BYTES", "refuse what would go over BYTES on a card" },
    { "fault", 0, PL_FLAG_VALUE, "GPU=WHAT", "silent, lost, xid:N, foreign:BYTES, kept, hidden; several by commas" },
    { "trace", 0, PL_FLAG_SWITCH, NULL, "log each call that does nothing and each function looked up" },
    { "list", 0, PL_FLAG_SWITCH, NULL, "the GPU names" },
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
        { "drydock", drydock_flags, sizeof drydock_flags / sizeof *drydock_flags },
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
