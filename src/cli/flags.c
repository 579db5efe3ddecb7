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
static const struct pl_flag reload_flags[] = {
    { "check", 0, PL_FLAG_SWITCH, NULL, "only show what would change, and how" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait for new generations" },
};
static const struct pl_flag sample_flags[] = {
    { "from-next", 0, PL_FLAG_OPTIONAL, "N", "the next N requests (1) that are answered well" },
    { "file", 0, PL_FLAG_VALUE, "BODY", "this file's bytes" },
    { "content-type", 0, PL_FLAG_VALUE, "TYPE", "of the file (application/json)" },
    { "list", 0, PL_FLAG_SWITCH, NULL, "what is kept" },
    { "remove", 0, PL_FLAG_VALUE, "ID", "forget one" },
};
static const struct pl_flag plan_flags[] = {
    { "gpu", 0, PL_FLAG_VALUE, "NAME[xN]|NAME:BYTES|auto",
      "the cards: h100x2, mine:24GiB, or what is in this machine (auto)" },
    { "max-len", 0, PL_FLAG_VALUE, "N|auto",
      "longest request in tokens; auto: what fits (the model's context)" },
    { "expect", 0, PL_FLAG_VALUE, "IN+OUT[:SHARE,...]",
      "usual tokens in and out: 2000+500, or 300+100:70%,2000+500:30%" },
    { "concurrency", 0, PL_FLAG_VALUE, "N", "requests wanted at a time" },
    { "engine", 0, PL_FLAG_VALUE, "ENGINE", "vllm, sglang, llama.cpp or torch (vllm; llama.cpp for a GGUF)" },
    { "kv", 0, PL_FLAG_VALUE, "TYPE",
      "number format of the KV cache: auto, fp8 ...; llama.cpp: f16, q8_0 ..." },
    { "tp", 0, PL_FLAG_VALUE, "N", "cards that share every layer (all)" },
    { "pp", 0, PL_FLAG_VALUE, "N", "stages one behind the other (1)" },
    { "dp", 0, PL_FLAG_VALUE, "N", "full copies (1)" },
    { "utilization", 0, PL_FLAG_VALUE, "X", "share of a card that the engine may use (0.85)" },
    { "batched-tokens", 0, PL_FLAG_VALUE, "N", "tokens of one step (the engine's default for the card)" },
    { "eager", 0, PL_FLAG_SWITCH, NULL, "plan without CUDA graphs" },
    { "strategies", 0, PL_FLAG_SWITCH, NULL,
      "static and continuous batching, paged KV, INT8, INT4 side by side" },
    { "explain", 0, PL_FLAG_SWITCH, NULL, "the usual formulas beside this plan" },
    { "flags", 0, PL_FLAG_VALUE, "ENGINE", "only the engine's command line, each flag with its rule" },
    { "yaml", 0, PL_FLAG_SWITCH, NULL, "only the service for plimsoll.yaml" },
    { "k8s", 0, PL_FLAG_SWITCH, NULL, "only the memory of a pod" },
    { "total-gib", 0, PL_FLAG_VALUE, "X", "as --gpu card:XGiB" },
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
        { "reload", reload_flags, sizeof reload_flags / sizeof *reload_flags },
        { "sample", sample_flags, sizeof sample_flags / sizeof *sample_flags },
        { "plan", plan_flags, sizeof plan_flags / sizeof *plan_flags },
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
