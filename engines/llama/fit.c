#include "llama/fit.h"

#include <ggml-backend.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sample/proc.h"

enum {
    PARALLEL = 4,       /* sequences where nothing is said: llama-server's default */
    CPU_CONTEXT = 8192, /* of each, on a CPU, where all memory is not ours to take */
    CONTEXT_LEAST = 512,
    GRAIN = 256, /* llama.cpp rounds a context up to this */
};
/* Of what is free: fragments, buffers of libraries and what grows later (planner.md keeps the same share). */
static const double SHARE = 0.85;

/* --- the machine */

static bool read_text(const char *path, char *text, size_t room) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    size_t n = fread(text, 1, room - 1, f);
    text[n] = '\0';
    return n > 0;
}

static uint64_t file_number(const char *path) {
    char text[64];
    return read_text(path, text, sizeof text) ? pl_proc_read_limit(text, strlen(text)) : PL_PROC_UNKNOWN;
}

static uint64_t memory_available(void) {
    char text[4096];
    const char *line = read_text("/proc/meminfo", text, sizeof text) ? strstr(text, "MemAvailable:") : NULL;
    return line != NULL ? strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
}

/* In a container its own group is what /sys/fs/cgroup shows: v2, or v1's memory controller. */
static uint64_t cgroup_left(void) {
    static const char *const limits[] = { "/sys/fs/cgroup/memory.max",
                                          "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    static const char *const used[] = { "/sys/fs/cgroup/memory.current",
                                        "/sys/fs/cgroup/memory/memory.usage_in_bytes" };
    for (size_t i = 0; i < 2; i++) {
        uint64_t limit = file_number(limits[i]), now = file_number(used[i]);
        if (limit == PL_PROC_UNKNOWN || now == PL_PROC_UNKNOWN) continue;
        return limit > now ? limit - now : 1;
    }
    return UINT64_MAX;
}

uint64_t pl_llm_available(bool *gpu) {
    uint64_t devices = 0;
    *gpu = false;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t d = ggml_backend_dev_get(i);
        size_t free_bytes = 0, total = 0;
        if (ggml_backend_dev_type(d) != GGML_BACKEND_DEVICE_TYPE_GPU) continue;
        ggml_backend_dev_memory(d, &free_bytes, &total);
        devices += free_bytes;
        *gpu = true;
    }
    if (*gpu) return devices;
    uint64_t host = memory_available(), group = cgroup_left();
    return group < host ? group : host;
}

uint32_t pl_llm_threads(void) {
    char text[64];
    cpu_set_t set;
    CPU_ZERO(&set);
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    long quota = 0, period = 0;
    if (read_text("/sys/fs/cgroup/cpu.max", text, sizeof text)) {
        if (sscanf(text, "%ld %ld", &quota, &period) != 2) quota = period = 0;
    } else if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text)) {
        quota = atol(text);
        if (read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text)) period = atol(text);
    }
    if (quota > 0 && period > 0 && quota / period < n) n = quota / period;
    return n < 1 ? 1 : (uint32_t)n;
}

/* --- the decision */

static uint64_t total(const struct pl_llm_bytes *b) {
    return b->weights + b->kv + b->compute + b->output + b->state;
}

static double gib(uint64_t bytes) { return (double)bytes / (double)(UINT64_C(1) << 30); }

/* What is wanted where nobody says: the whole trained context for each on a GPU, less on a CPU. */
static uint32_t wanted(uint32_t trained, uint32_t parallel, bool gpu) {
    uint64_t one = trained != 0 ? trained : CONTEXT_LEAST * 4;
    if (!gpu && one > CPU_CONTEXT) one = CPU_CONTEXT;
    uint64_t all = one * parallel;
    return all > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)all;
}

/* The largest context within `most` bytes: KV grows in a line with it, the rest nearly does not. */
static uint32_t largest(const struct pl_llm_bytes *b, uint32_t cells, uint64_t most) {
    uint64_t fixed = total(b) - b->kv;
    if (b->kv == 0 || most <= fixed) return 0;
    uint64_t fits = (uint64_t)((double)(most - fixed) / ((double)b->kv / (double)cells));
    if (fits > cells) fits = cells;
    return (uint32_t)(fits / GRAIN * GRAIN);
}

bool pl_llm_fit(const struct pl_llm_options *o, uint64_t available, bool gpu, struct pl_llm_fit *out,
                struct pl_err *err) {
    uint32_t trained = 0, parallel = o->parallel != 0 ? o->parallel : PARALLEL;
    struct pl_llm_bytes b;
    uint64_t most = (uint64_t)((double)available * SHARE);
    /* An absurd context costs a minute of CPU before llama.cpp refuses it: sizes come from a small one first.
     */
    if (!pl_llm_measure(o, CONTEXT_LEAST, parallel, &b, &trained, err)) return false;
    uint32_t cells = o->ctx_size != 0 ? o->ctx_size : wanted(trained, parallel, gpu);
    uint64_t fixed = total(&b) - b.kv, each = b.kv / CONTEXT_LEAST;
    bool fits = available == 0 || fixed + each * cells <= most;
    uint32_t fitting =
        available == 0 ? cells
                       : largest(&(struct pl_llm_bytes){ .kv = each * cells, .weights = fixed }, cells, most);
    if (!fits && o->ctx_size == 0 && fitting >= CONTEXT_LEAST) {
        cells = fitting;
        fits = true;
    }
    if (fits && !pl_llm_measure(o, cells, parallel, &b, &trained, err)) return false;
    *out = (struct pl_llm_fit){ .cells = cells, .parallel = parallel, .bytes = b, .available = available };
    if (fits && (available == 0 || total(&b) <= most || o->ctx_size == 0)) return true;
    const char *slash = strrchr(o->model, '/');
    PL_FAIL(
        err, PL_E_LIMIT,
        "%.60s does not fit: weights %.2f + KV of %u tokens %.2f + buffers %.2f = %.2f GiB, of %.2f GiB free",
        slash != NULL ? slash + 1 : o->model, gib(b.weights), cells, gib(each * cells),
        gib(b.compute + b.output + b.state), gib(fixed + each * cells), gib(most));
    if (fitting >= CONTEXT_LEAST) return pl_err_hint(err, "llama.ctx_size: %u fits", fitting);
    return pl_err_hint(err, "not even %d tokens fit: a smaller model or number format, or more memory",
                       CONTEXT_LEAST);
}
