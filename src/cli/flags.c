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
static const struct pl_flag snapshot_flags[] = {
    { "since", 0, PL_FLAG_VALUE, "OLDER", "report: what grew since this snapshot" },
    { "device", 0, PL_FLAG_VALUE, "N", "of this device only" },
    { "top", 0, PL_FLAG_VALUE, "N", "report: rows of each list (10)" },
    { "html", 0, PL_FLAG_VALUE, "FILE", "report: a page with timeline, segment map and flame graph" },
    { "folded", 0, PL_FLAG_VALUE, "FILE", "report: live bytes by stack, for flame graph tools" },
    { "sqlite", 0, PL_FLAG_VALUE, "FILE", "report: everything as tables" },
    { "conf", 0, PL_FLAG_VALUE, "TEXT", "replay, what-if: this PYTORCH_CUDA_ALLOC_CONF; what-if: more than once" },
    { "no-bisect", 0, PL_FLAG_SWITCH, NULL, "what-if: peaks only, not the smallest devices" },
    { "capacity", 0, PL_FLAG_VALUE, "BYTES", "size of the device: 24GiB" },
    { "other", 0, PL_FLAG_VALUE, "BYTES", "of it outside PyTorch: context, libraries, neighbours" },
    { "fraction", 0, PL_FLAG_VALUE, "SHARE", "per_process_memory_fraction that was set" },
    { "log", 0, PL_FLAG_VALUE, "FILE", "capacity and other from PyTorch's OOM message in this log" },
    { "torch", 0, PL_FLAG_VALUE, "VER", "version that wrote the file, when its keys do not tell" },
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
        { "snapshot", snapshot_flags, sizeof snapshot_flags / sizeof *snapshot_flags },
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
