#include "cli/flags.h"

#include <string.h>

static const struct pl_flag status_flags[] = {
    { "watch", 'w', PL_FLAG_OPTIONAL, "SEC", "again every SEC seconds (2)" },
};
static const struct pl_flag top_flags[] = {
    { "once", 0, PL_FLAG_SWITCH, NULL, "print one screen and end" },
    { "interval", 0, PL_FLAG_VALUE, "DUR", "between two looks (1s)" },
};
static const struct pl_flag logs_flags[] = {
    { "follow", 'f', PL_FLAG_SWITCH, NULL, "go on with what comes" },
    { "previous", 'p', PL_FLAG_SWITCH, NULL, "of the last worker that is gone" },
    { "worker", 0, PL_FLAG_VALUE, "N", "of this worker only" },
    { "tail", 0, PL_FLAG_VALUE, "N", "the last N lines (200; with --since, all that are kept)" },
    { "since", 0, PL_FLAG_VALUE, "T", "not older: 10m ago, or 2026-11-30T14:02:11Z" },
};
static const struct pl_flag events_flags[] = {
    { "follow", 'f', PL_FLAG_SWITCH, NULL, "go on with what comes" },
    { "since", 0, PL_FLAG_VALUE, "T", "not older: 10m ago, or 2026-11-30T14:02:11Z" },
    { "service", 0, PL_FLAG_VALUE, "S", "of this service only" },
    { "event", 0, PL_FLAG_VALUE, "GLOB", "names that match: worker.*" },
    { "level", 0, PL_FLAG_VALUE, "L", "debug, info, warn or error and above (info)" },
};
static const struct pl_flag hold_flags[] = {
    { "once", 0, PL_FLAG_SWITCH, NULL, "end when the files are in memory" },
};
static const struct pl_flag restart_flags[] = {
    { "all", 0, PL_FLAG_SWITCH, NULL, "every service" },
    { "worker", 0, PL_FLAG_VALUE, "N", "this worker only" },
    { "mode", 0, PL_FLAG_VALUE, "MODE", "auto, overlap or handover" },
    { "now", 0, PL_FLAG_SWITCH, NULL, "do not wait for a quiet moment" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait for the successor" },
};
static const struct pl_flag reload_flags[] = {
    { "check", 0, PL_FLAG_SWITCH, NULL, "only show what would change, and how" },
    { "no-wait", 0, PL_FLAG_SWITCH, NULL, "do not wait for new generations" },
};
static const struct pl_flag upgrade_flags[] = {
    { "timeout", 0, PL_FLAG_VALUE, "DUR", "the new main must have taken over by then (60s)" },
};
static const struct pl_flag sample_flags[] = {
    { "from-next", 0, PL_FLAG_OPTIONAL, "N", "the next N requests (1) that are answered well" },
    { "file", 0, PL_FLAG_VALUE, "BODY", "this file's bytes" },
    { "content-type", 0, PL_FLAG_VALUE, "TYPE", "of the file (application/json)" },
    { "canary", 0, PL_FLAG_SWITCH, NULL, "mark it: it is sent to an idle worker from time to time" },
    { "list", 0, PL_FLAG_SWITCH, NULL, "what is kept" },
    { "remove", 0, PL_FLAG_VALUE, "ID", "forget one" },
};
static const struct pl_flag explain_flags[] = {
    { "worker", 0, PL_FLAG_VALUE, "N", "this worker (else an idle one)" },
    { "mode", 0, PL_FLAG_VALUE, "MODE", "auto, fork (a copy of the process looks) or inline" },
    { "deadline", 0, PL_FLAG_VALUE, "DUR", "for one look (10s)" },
    { "force", 0, PL_FLAG_SWITCH, NULL, "beside running requests, and over the limit of looks" },
    { "again", 0, PL_FLAG_VALUE, "DUR", "second look, or after 300 requests (60s); 0s: one look only" },
    { "history", 0, PL_FLAG_VALUE, "on|off", "PyTorch's memory history: the allocating lines, from now on" },
    { "snapshot", 0, PL_FLAG_VALUE, "FILE", "save a memory snapshot as well, and say what is in it" },
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
    { "record", 0, PL_FLAG_VALUE, "FILE", "expect the lengths of the requests in this flight record" },
    { "explain", 0, PL_FLAG_SWITCH, NULL, "the usual formulas beside this plan" },
    { "flags", 0, PL_FLAG_VALUE, "ENGINE", "only the engine's command line, each flag with its rule" },
    { "yaml", 0, PL_FLAG_SWITCH, NULL, "only the service for plimsoll.yaml" },
    { "k8s", 0, PL_FLAG_SWITCH, NULL, "only the memory of a pod" },
    { "total-gib", 0, PL_FLAG_VALUE, "X", "as --gpu card:XGiB" },
};
static const struct pl_flag report_flags[] = {
    { "last", 0, PL_FLAG_SWITCH, NULL, "the minute before the last death (unless a time is given)" },
    { "since", 0, PL_FLAG_VALUE, "T", "from this time on: 2026-11-30T14:02:11Z, or 10m ago" },
    { "until", 0, PL_FLAG_VALUE, "T", "up to this time" },
    { "service", 0, PL_FLAG_VALUE, "S", "of this service only" },
    { "would", 0, PL_FLAG_SWITCH, NULL, "what was not done, because of a service's mode" },
    { "html", 0, PL_FLAG_VALUE, "FILE", "a page with plots too" },
    { "record", 0, PL_FLAG_VALUE, "FILE", "this record, with no server" },
};
static const struct pl_flag drain_flags[] = {
    { "timeout", 0, PL_FLAG_VALUE, "DUR", "how long to wait for what runs (60s)" },
    { "undo", 0, PL_FLAG_SWITCH, NULL, "let requests in again" },
};
static const struct pl_flag snapshot_flags[] = {
    { "since", 0, PL_FLAG_VALUE, "OLDER", "report: what grew since this snapshot" },
    { "device", 0, PL_FLAG_VALUE, "N", "of this device only" },
    { "top", 0, PL_FLAG_VALUE, "N", "report: rows of each list (10)" },
    { "html", 0, PL_FLAG_VALUE, "FILE", "report: a page with timeline, segment map and flame graph" },
    { "folded", 0, PL_FLAG_VALUE, "FILE", "report: live bytes by stack, for flame graph tools" },
    { "sqlite", 0, PL_FLAG_VALUE, "FILE", "report: everything as tables" },
    { "conf", 0, PL_FLAG_VALUE, "TEXT",
      "replay, what-if: this PYTORCH_CUDA_ALLOC_CONF; what-if: more than once" },
    { "no-bisect", 0, PL_FLAG_SWITCH, NULL, "what-if: peaks only, not the smallest devices" },
    { "capacity", 0, PL_FLAG_VALUE, "BYTES", "size of the device: 24GiB" },
    { "other", 0, PL_FLAG_VALUE, "BYTES", "of it outside PyTorch: context, libraries, neighbours" },
    { "fraction", 0, PL_FLAG_VALUE, "SHARE", "per_process_memory_fraction that was set" },
    { "log", 0, PL_FLAG_VALUE, "FILE", "capacity and other from PyTorch's OOM message in this log" },
    { "torch", 0, PL_FLAG_VALUE, "VER", "version that wrote the file, when its keys do not tell" },
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
    { "fault", 0, PL_FLAG_VALUE, "GPU=WHAT",
      "silent, lost, xid:N, foreign:BYTES, kept, hidden; several by commas" },
    { "trace", 0, PL_FLAG_SWITCH, NULL, "log each call that does nothing and each function looked up" },
    { "list", 0, PL_FLAG_SWITCH, NULL, "the GPU names" },
};
static const struct pl_flag check_flags[] = {
    { "gpu", 0, PL_FLAG_VALUE, "GPU", "the stand-in card (a100-40)" },
    { "quick", 0, PL_FLAG_SWITCH, NULL, "soak with the good request only, and fewer of them" },
    { "route", 0, PL_FLAG_VALUE, "R", "path to post to (the only one that the service has)" },
    { "body", 0, PL_FLAG_VALUE, "JSON|@FILE", "what to post (the examples of its schema)" },
    { "failing", 0, PL_FLAG_VALUE, "JSON|@FILE", "what it fails on (the body, spoilt)" },
    { "junit", 0, PL_FLAG_VALUE, "FILE", "the points as JUnit XML too" },
    { "html", 0, PL_FLAG_VALUE, "FILE", "a page with plots too" },
};
static const struct pl_flag soak_flags[] = {
    { "scenario", 0, PL_FLAG_VALUE, "LIST",
      "identical, failing, shapes, batch, cancel, concurrency, idle; several by commas; all (identical)" },
    { "requests", 0, PL_FLAG_VALUE, "N",
      "of a scenario (2000); up to three times as many while it is not certain" },
    { "max-time", 0, PL_FLAG_VALUE, "DUR", "at most so long, each scenario" },
    { "concurrency", 0, PL_FLAG_VALUE, "N",
      "requests at a time (1; cancel 32); scenario concurrency: up to N (64)" },
    { "rate", 0, PL_FLAG_VALUE, "R", "R requests a second, whether answers come or not" },
    { "route", 0, PL_FLAG_VALUE, "R", "path to post to (the only one that the service has)" },
    { "body", 0, PL_FLAG_VALUE, "JSON|@FILE", "what to post (the examples of its schema)" },
    { "failing", 0, PL_FLAG_VALUE, "JSON|@FILE", "scenario failing: what it fails on (the body, spoilt)" },
    { "pid", 0, PL_FLAG_VALUE, "PID", "of a URL without Plimsoll: the process whose host memory is read" },
    { "metrics", 0, PL_FLAG_VALUE, "URL", "of a URL without Plimsoll: its process_resident_memory_bytes" },
    { "host", 0, PL_FLAG_SWITCH, NULL, "trace host memory (tracemalloc): the lines that allocated; slower" },
    { "drydock", 0, PL_FLAG_VALUE, "GPU", "with a stand-in card: a100-40, mine:24GiB" },
    { "compare", 0, PL_FLAG_SWITCH, NULL, "two targets, or documents of --json: is B worse than A?" },
    { "with", 0, PL_FLAG_VALUE, "KEY=VALUE",
      "a setting, or a variable in capitals; with --compare: B is A with it" },
    { "tune", 0, PL_FLAG_SWITCH, NULL,
      "max_concurrency, queue, timeout and batch size at the knee, as YAML" },
    { "junit", 0, PL_FLAG_VALUE, "FILE", "the verdicts as JUnit XML too" },
    { "html", 0, PL_FLAG_VALUE, "FILE", "a page with plots too" },
};
static const struct pl_flag config_flags[] = {
    { "service", 0, PL_FLAG_VALUE, "S", "of this service only" },
};

static const struct pl_flag lint_flags[] = {
    { "select", 0, PL_FLAG_VALUE, "IDS", "these rules only: PL005,PL006" },
    { "ignore", 0, PL_FLAG_VALUE, "IDS", "all but these" },
    { "strict", 0, PL_FLAG_SWITCH, NULL, "exit status 1 for warnings too" },
    { "rules", 0, PL_FLAG_SWITCH, NULL, "list the rules, or explain those of --select" },
    { "stdin-name", 0, PL_FLAG_VALUE, "FILE", "the file is on stdin and called FILE" },
    { "python", 0, PL_FLAG_VALUE, "PATH", "the interpreter whose syntax the files have (as with serve)" },
};

static const struct pl_flag manifest_flags[] = {
    { "check", 0, PL_FLAG_SWITCH, NULL, "judge files or folders of manifests (- is stdin)" },
    { "measured", 0, PL_FLAG_VALUE, "FILE",
      "a flight record or a JSON file of measurements; without: guessed, and said so" },
    { "from", 0, PL_FLAG_VALUE, "FILE", "the configuration to ship (./plimsoll.yaml)" },
    { "out", 0, PL_FLAG_VALUE, "DIR", "write the files there (stdout, joined)" },
    { "single", 0, PL_FLAG_SWITCH, NULL, "one file instead of a Kustomize base" },
    { "replicas", 0, PL_FLAG_VALUE, "N", "pods; with a scaler the least (1)" },
    { "spare-gpu", 0, PL_FLAG_SWITCH, NULL, "there is always room for one more pod" },
    { "front", 0, PL_FLAG_VALUE, "KIND", "service, loadbalancer or picker (service)" },
    { "scaler", 0, PL_FLAG_VALUE, "KIND", "none, hpa or keda (none)" },
    { "mode", 0, PL_FLAG_VALUE, "MODE",
      "entrypoint, or sidecar in front of an unchanged image (entrypoint)" },
    { "runtime-class", 0, PL_FLAG_VALUE, "NAME", "runtimeClassName (none)" },
    { "gpu-resource", 0, PL_FLAG_VALUE, "R", "as the device plugin calls it (nvidia.com/gpu)" },
    { "claim", 0, PL_FLAG_VALUE, "NAME", "GPUs by a ResourceClaimTemplate instead" },
    { "prewarm", 0, PL_FLAG_VALUE, "N", "placeholders that keep N nodes and images warm (0)" },
    { "kube", 0, PL_FLAG_VALUE, "VER", "oldest Kubernetes that must take it (1.31)" },
    { "qos", 0, PL_FLAG_VALUE, "CLASS", "burstable or guaranteed (burstable)" },
    { "no-operator", 0, PL_FLAG_SWITCH, NULL, "plain rules.yaml instead of PodMonitor and PrometheusRule" },
    { "image", 0, PL_FLAG_SWITCH, NULL, "print a Containerfile instead" },
    { "bento", 0, PL_FLAG_SWITCH, NULL, "print the lines for bentofile.yaml instead" },
};

const struct pl_flag *pl_verb_flags(const char *verb, size_t *count) {
    static const struct {
        const char *verb;
        const struct pl_flag *flags;
        size_t count;
    } all[] = {
        { "status", status_flags, sizeof status_flags / sizeof *status_flags },
        { "top", top_flags, sizeof top_flags / sizeof *top_flags },
        { "logs", logs_flags, sizeof logs_flags / sizeof *logs_flags },
        { "events", events_flags, sizeof events_flags / sizeof *events_flags },
        { "restart", restart_flags, sizeof restart_flags / sizeof *restart_flags },
        { "hold", hold_flags, sizeof hold_flags / sizeof *hold_flags },
        { "reload", reload_flags, sizeof reload_flags / sizeof *reload_flags },
        { "upgrade", upgrade_flags, sizeof upgrade_flags / sizeof *upgrade_flags },
        { "sample", sample_flags, sizeof sample_flags / sizeof *sample_flags },
        { "explain", explain_flags, sizeof explain_flags / sizeof *explain_flags },
        { "plan", plan_flags, sizeof plan_flags / sizeof *plan_flags },
        { "report", report_flags, sizeof report_flags / sizeof *report_flags },
        { "drain", drain_flags, sizeof drain_flags / sizeof *drain_flags },
        { "snapshot", snapshot_flags, sizeof snapshot_flags / sizeof *snapshot_flags },
        { "manifest", manifest_flags, sizeof manifest_flags / sizeof *manifest_flags },
        { "check", check_flags, sizeof check_flags / sizeof *check_flags },
        { "soak", soak_flags, sizeof soak_flags / sizeof *soak_flags },
        { "lint", lint_flags, sizeof lint_flags / sizeof *lint_flags },
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
