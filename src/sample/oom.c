#include "sample/oom.h"

#include <stdio.h>

#include "sample/span.h"

enum { MESSAGE_BYTES = 4096, LAST_LINES = 16 };
static const uint64_t not_believable = UINT64_C(1) << 50; /* ONNX Runtime prints garbage as a size */

static const struct {
    const char *name;
    enum pl_oom_class class;
} kinds[] = { [PL_OOM_NONE] = { "none", PL_OOM_CLASS_NONE },
#define X(sym, word, of) [PL_OOM_##sym] = { word, PL_OOM_CLASS_##of },
              PL_OOM_KINDS(X)
#undef X
};

const char *pl_oom_kind_name(enum pl_oom_kind k) { return kinds[k].name; }
enum pl_oom_class pl_oom_class_of(enum pl_oom_kind k) { return kinds[k].class; }

static struct pl_oom nothing(enum pl_oom_kind kind) {
    return (struct pl_oom){ .kind = kind,
                            .device = UINT32_MAX,
                            .requested = PL_OOM_UNKNOWN,
                            .total = PL_OOM_UNKNOWN,
                            .free = PL_OOM_UNKNOWN,
                            .allowed = PL_OOM_UNKNOWN,
                            .allocated = PL_OOM_UNKNOWN,
                            .unallocated = PL_OOM_UNKNOWN,
                            .reserved = PL_OOM_UNKNOWN,
                            .private_pools = PL_OOM_UNKNOWN,
                            .this_process = PL_OOM_UNKNOWN,
                            .max_seq_len = PL_OOM_UNKNOWN,
                            .fits_len = PL_OOM_UNKNOWN,
                            .needed = PL_OOM_UNKNOWN,
                            .available = PL_OOM_UNKNOWN };
}

static bool device(struct pl_span *s, uint32_t *out) {
    uint64_t n;
    if (!pl_span_number(s, &n) || n >= UINT32_MAX) return false;
    *out = (uint32_t)n;
    return true;
}

/* A name up to `end`, which is eaten too. It is kept as far as there is room. */
static bool name_until(struct pl_span *s, char end, char out[PL_OOM_NAME_BYTES]) {
    const char *stop = s->at != NULL ? memchr(s->at, end, s->len) : NULL;
    if (stop == NULL) return false;
    size_t n = (size_t)(stop - s->at), keep = n < PL_OOM_NAME_BYTES - 1 ? n : PL_OOM_NAME_BYTES - 1;
    for (size_t i = 0; i < keep; i++) out[i] = s->at[i] < 0x20 || s->at[i] == 0x7f ? '?' : s->at[i];
    out[keep] = '\0';
    pl_span_skip(s, n + 1);
    return true;
}

/* --- PyTorch */

/* "Process 7 has 20.00 GiB memory in use. ", "Including non-PyTorch memory, this process has ...", and at the
 * end perhaps "20.00 GiB allowed; ". */
static void read_processes(struct pl_span s, struct pl_oom *o) {
    static const char own[] = "Including non-PyTorch memory, this process has ", other[] = "Process ";
    while (s.len > 0) {
        struct pl_span t = s;
        uint64_t pid, bytes;
        if (pl_span_eat(&t, own) && pl_span_size(&t, &bytes)) {
            o->this_process = bytes;
        } else if (pl_span_eat(&t, other) && pl_span_number(&t, &pid) && pl_span_eat(&t, " has ") &&
                   pl_span_size(&t, &bytes)) {
            if (o->process_count < PL_OOM_PROCESSES) {
                o->processes[o->process_count].pid = (uint32_t)pid;
                o->processes[o->process_count++].bytes = bytes;
            }
        } else if (t = s, pl_span_size(&t, &bytes) && pl_span_eat(&t, " allowed; ") && t.len == 0) {
            o->allowed = bytes;
            return;
        } else {
            t = s;
            pl_span_skip(&t, 1);
        }
        s = t;
    }
}

/* From 2.1 on. `s` is behind "Tried to allocate SIZE". */
static bool torch_new(struct pl_span s, struct pl_oom *o) {
    if (!pl_span_eat(&s, ". GPU ") || !device(&s, &o->device)) return false;
    if (!pl_span_eat(&s, " has a total capacity of ") && !pl_span_eat(&s, " has a total capacty of "))
        return false;
    if (!pl_span_size(&s, &o->total) || !pl_span_eat(&s, " of which ") || !pl_span_size(&s, &o->free) ||
        !pl_span_eat(&s, " is free. "))
        return false;
    struct pl_span t = pl_span_find(s, "Of the allocated memory ");
    if (t.at == NULL) return false;
    read_processes((struct pl_span){ s.at, (size_t)(t.at - s.at) }, o);
    if (!pl_span_eat(&t, "Of the allocated memory ") || !pl_span_size(&t, &o->allocated) ||
        !pl_span_eat(&t, " is allocated by PyTorch, "))
        return false;
    if (pl_span_eat(&t, "with ") && (!pl_span_size(&t, &o->private_pools) ||
                                     !pl_span_eat(&t, " allocated in private pools (e.g., CUDA Graphs), ")))
        return false;
    if (!pl_span_eat(&t, "and ") || !pl_span_size(&t, &o->unallocated) ||
        !pl_span_eat(&t, " is reserved by PyTorch but unallocated."))
        return false;
    o->expandable = pl_span_find(t, "expandable_segments is enabled").at != NULL;
    return true;
}

/* Up to 2.0. Until 1.4 the last number is "cached": reserved and not allocated. */
static bool torch_old(struct pl_span s, struct pl_oom *o) {
    uint64_t last;
    o->kind = PL_OOM_TORCH_OLD;
    if (!pl_span_eat(&s, " (GPU ") || !device(&s, &o->device) || !pl_span_eat(&s, "; ") ||
        !pl_span_size(&s, &o->total) || !pl_span_eat(&s, " total capacity; ") ||
        !pl_span_size(&s, &o->allocated) || !pl_span_eat(&s, " already allocated; ") ||
        !pl_span_size(&s, &o->free) || !pl_span_eat(&s, " free; ") || !pl_span_size(&s, &last))
        return false;
    if (pl_span_eat(&s, " allowed; ")) {
        o->allowed = last;
        if (!pl_span_size(&s, &last)) return false;
    }
    if (pl_span_eat(&s, " cached)")) {
        o->unallocated = last;
        return true;
    }
    o->reserved = last;
    o->unallocated = last > o->allocated ? last - o->allocated : 0;
    return pl_span_eat(&s, " reserved in total by PyTorch)");
}

/* `s` begins with "CUDA out of memory." or, on ROCm, "HIP out of memory." */
static bool torch_at(struct pl_span s, struct pl_oom *o) {
    struct pl_span t = s;
    uint64_t wanted;
    if (s.len > MESSAGE_BYTES) t.len = MESSAGE_BYTES;
    if (!pl_span_eat(&t, "CUDA") && !pl_span_eat(&t, "HIP")) return false;
    if (!pl_span_eat(&t, " out of memory. ")) return false;
    *o = nothing(PL_OOM_TORCH_REJECTED);
    if (pl_span_eat(&t, "Allocation was preemptively rejected because it would exceed "
                        "per_process_memory_fraction limit. Requested size: ")) {
        if (pl_span_size(&t, &wanted)) o->requested = wanted;
        return true;
    }
    if (!pl_span_eat(&t, "Tried to allocate ") || !pl_span_size(&t, &wanted)) return false;
    *o = nothing(PL_OOM_TORCH);
    o->requested = wanted;
    if (torch_new(t, o)) return true;
    *o = nothing(PL_OOM_TORCH_OLD);
    o->requested = wanted;
    return torch_old(t, o);
}

static bool torch(struct pl_span s, struct pl_oom *o) {
    const char *text = s.at;
    while ((s = pl_span_find(s, " out of memory. ")).at != NULL) {
        for (size_t back = 3; back <= 4; back++) { /* HIP, CUDA */
            struct pl_span t = { s.at - back, s.len + back };
            if ((size_t)(s.at - text) < back || !torch_at(t, o)) continue;
            o->at = (size_t)(t.at - text);
            return true;
        }
        pl_span_skip(&s, 1);
    }
    return false;
}

static bool torch_warning(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_TORCH_WARNING);
    return pl_span_eat(&s, "memory allocation failed with OOM on device ") && device(&s, &o->device) &&
           pl_span_eat(&s, " while trying to allocate ") && pl_span_number(&s, &o->requested) &&
           pl_span_eat(&s, " bytes (free: ") && pl_span_number(&s, &o->free) &&
           pl_span_eat(&s, ", total: ") && pl_span_number(&s, &o->total) && pl_span_eat(&s, ").");
}

/* --- engines */

static bool llama_buffer(struct pl_span s, struct pl_oom *o) {
    double mib;
    *o = nothing(PL_OOM_LLAMA_BUFFER);
    return pl_span_eat(&s, "ggml_backend_cuda_buffer_type_alloc_buffer: allocating ") &&
           pl_span_decimal(&s, false, &mib) && pl_span_bytes(mib, 1 << 20, &o->requested) &&
           pl_span_eat(&s, " MiB on device ") && device(&s, &o->device) &&
           pl_span_eat(&s, ": cudaMalloc failed: out of memory");
}

static bool llama_galloc(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_LLAMA_GALLOC);
    if (!pl_span_eat(&s, "alloc_tensor_range")) {
        if (!pl_span_eat(&s, "ggml_gallocr_reserve_n")) return false;
        pl_span_eat(&s, "_impl");
    }
    return pl_span_eat(&s, ": failed to allocate ") && name_until(&s, ' ', o->name) &&
           pl_span_eat(&s, "buffer of size ") && pl_span_number(&s, &o->requested);
}

static bool onnxruntime(struct pl_span s, struct pl_oom *o) {
    static const char words[] = "Failed to allocate memory for requested buffer of size ";
    *o = nothing(PL_OOM_ONNXRUNTIME);
    s = pl_span_find(s, words);
    if (s.at == NULL || !pl_span_eat(&s, words) || pl_span_digits(s) == 0) return false;
    if (!pl_span_number(&s, &o->requested) || o->requested >= not_believable) o->requested = PL_OOM_UNKNOWN;
    return true;
}

static bool vllm_length(struct pl_span s, struct pl_oom *o) {
    static const char fits[] = "estimated maximum model length is ";
    double needed, available;
    *o = nothing(PL_OOM_VLLM_LENGTH);
    if (!pl_span_eat(&s, "To serve at least one request with the model") ||
        (!pl_span_eat(&s, "s's max seq len (") && !pl_span_eat(&s, "'s max seq len (")) ||
        !pl_span_number(&s, &o->max_seq_len) || !pl_span_eat(&s, "), "))
        return false;
    pl_span_eat(&s, "(");
    if (!pl_span_decimal(&s, false, &needed) || !pl_span_bytes(needed, 1 << 30, &o->needed) ||
        !pl_span_eat(&s, " GiB KV cache is needed, which is larger than the available KV cache memory (") ||
        !pl_span_decimal(&s, false, &available) || !pl_span_bytes(available, 1 << 30, &o->available) ||
        !pl_span_eat(&s, " GiB)"))
        return false;
    s = pl_span_find(s, fits);
    uint64_t tokens;
    if (pl_span_eat(&s, fits) && pl_span_number(&s, &tokens)) o->fits_len = tokens;
    return true;
}

static bool vllm_length_v0(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_VLLM_LENGTH_V0);
    return pl_span_eat(&s, "The model's max seq len (") && pl_span_number(&s, &o->max_seq_len) &&
           pl_span_eat(&s,
                       ") is larger than the maximum number of tokens that can be stored in KV cache (") &&
           pl_span_number(&s, &o->fits_len) && pl_span_eat(&s, ")");
}

static bool vllm_available(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_VLLM_AVAILABLE);
    return pl_span_eat(&s, "Available KV cache memory: ") && pl_span_decimal(&s, true, &o->available_gib) &&
           pl_span_eat(&s, " GiB");
}

/* "Free memory on device (6.59/79.11 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2
 * GiB)", newer ones with the device's name in it; the CPU backend says "Available memory on node 0 (". */
static bool vllm_free(struct pl_span s, struct pl_oom *o) {
    static const char less[] = " GiB) on startup is less than desired ";
    double free, total, share, wanted;
    *o = nothing(PL_OOM_VLLM_FREE);
    if (!pl_span_eat(&s, "Free memory on device ") && !pl_span_eat(&s, "Available memory on node "))
        return false;
    for (size_t n = 0; n < 24 && s.len > 0 && *s.at != '('; n++) pl_span_skip(&s, 1);
    if (!pl_span_eat(&s, "(") || !pl_span_decimal(&s, false, &free) || !pl_span_eat(&s, "/") ||
        !pl_span_decimal(&s, false, &total) || !pl_span_eat(&s, less) ||
        !(pl_span_eat(&s, "GPU") || pl_span_eat(&s, "CPU")) || !pl_span_eat(&s, " memory utilization (") ||
        !pl_span_decimal(&s, false, &share) || !pl_span_eat(&s, ", ") || !pl_span_decimal(&s, false, &wanted))
        return false;
    return pl_span_bytes(free, 1 << 30, &o->free) && pl_span_bytes(total, 1 << 30, &o->total) &&
           pl_span_bytes(wanted, 1 << 30, &o->needed);
}

static bool tensorflow(struct pl_span s, struct pl_oom *o) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "B", 1 }, { "KiB", 1 << 10 }, { "MiB", 1 << 20 }, { "GiB", 1 << 30 } };
    double number;
    uint64_t rounded;
    *o = nothing(PL_OOM_TENSORFLOW);
    if (!pl_span_eat(&s, "Allocator (") || !name_until(&s, ')', o->name) ||
        !pl_span_eat(&s, " ran out of memory trying to allocate ") || !pl_span_decimal(&s, false, &number))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (pl_span_eat(&s, units[i].name) && !pl_span_bytes(number, units[i].bytes, &o->requested))
            return false;
    if (o->requested == PL_OOM_UNKNOWN) return false;
    if (pl_span_eat(&s, " (rounded to ") && pl_span_number(&s, &rounded) && pl_span_eat(&s, ")"))
        o->requested = rounded;
    return true;
}

static bool nccl_failure(struct pl_span s, struct pl_oom *o) {
    uint64_t code;
    *o = nothing(PL_OOM_NCCL);
    if (!pl_span_eat(&s, "Cuda failure ")) return false;
    if (pl_span_number(&s, &code) && !pl_span_eat(&s, " ")) return false;
    return pl_span_eat(&s, "'out of memory'");
}

static bool nccl_calloc(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_NCCL);
    return pl_span_eat(&s, "Failed to CUDA calloc ") && pl_span_number(&s, &o->requested) &&
           pl_span_eat(&s, " bytes");
}

static bool killed_process(struct pl_span s, struct pl_oom *o) {
    uint64_t pid;
    if (!pl_span_eat(&s, "Killed process ") || !pl_span_number(&s, &pid) || pid >= UINT32_MAX) return false;
    o->pid = (uint32_t)pid;
    return pl_span_eat(&s, " (") && name_until(&s, ')', o->name);
}

static bool kernel_cgroup(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_LINUX_CGROUP);
    return pl_span_eat(&s, "Memory cgroup out of memory: ") && killed_process(s, o);
}

static bool kernel_global(struct pl_span s, struct pl_oom *o) {
    *o = nothing(PL_OOM_LINUX_GLOBAL);
    return pl_span_eat(&s, "Out of memory: ") && killed_process(s, o);
}

static bool jax(struct pl_span s, struct pl_oom *o) {
    uint64_t bytes;
    *o = nothing(PL_OOM_JAX);
    if (!pl_span_eat(&s, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate ")) return false;
    if (!pl_span_number(&s, &bytes) || !pl_span_eat(&s, " bytes")) return false;
    o->requested = bytes;
    return true;
}

/* --- the rules, most specific first. `anchor` is where `read` starts; NULL: the anchor is all there is. */

struct rule {
    enum pl_oom_kind kind;
    const char *anchor;
    bool (*read)(struct pl_span s, struct pl_oom *o);
    bool plain; /* words without a number: others may use them too */
};
static const struct rule rules[] = {
    { PL_OOM_TORCH_WARNING, "memory allocation failed with OOM on device ", torch_warning, false },
    { PL_OOM_LLAMA_BUFFER, "ggml_backend_cuda_buffer_type_alloc_buffer: ", llama_buffer, false },
    { PL_OOM_LLAMA_GALLOC, "alloc_tensor_range", llama_galloc, false },
    { PL_OOM_LLAMA_GALLOC, "ggml_gallocr_reserve_n", llama_galloc, false },
    { PL_OOM_ONNXRUNTIME, "BFCArena::AllocateRawInternal", onnxruntime, false },
    { PL_OOM_VLLM_LENGTH, "To serve at least one request", vllm_length, false },
    { PL_OOM_VLLM_LENGTH_V0, "The model's max seq len (", vllm_length_v0, false },
    { PL_OOM_VLLM_NO_BLOCKS, "No available memory for the cache blocks", NULL, true },
    { PL_OOM_VLLM_AVAILABLE, "Available KV cache memory: ", vllm_available, false },
    { PL_OOM_VLLM_FREE, "Free memory on device ", vllm_free, false },
    { PL_OOM_VLLM_FREE, "Available memory on node ", vllm_free, false },
    { PL_OOM_VLLM_PROFILING, "Error in memory profiling", NULL, true },
    { PL_OOM_TENSORFLOW, "Allocator (", tensorflow, false },
    { PL_OOM_NCCL, "Failed to CUDA calloc ", nccl_calloc, false },
    { PL_OOM_NCCL, "Cuda failure ", nccl_failure, false },
    { PL_OOM_LINUX_CGROUP, "Memory cgroup out of memory: ", kernel_cgroup, false },
    { PL_OOM_LINUX_GLOBAL, "Out of memory: ", kernel_global, false },
    { PL_OOM_CUDA_ERROR, "CUDA error: out of memory", NULL, true },
    { PL_OOM_CUBLAS_ALLOC, "CUBLAS_STATUS_ALLOC_FAILED", NULL, true },
    { PL_OOM_CUDNN_ALLOC, "CUDNN_STATUS_ALLOC_FAILED", NULL, true },
    { PL_OOM_CUDNN_ALLOC, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", NULL, true },
    { PL_OOM_JAX, "RESOURCE_EXHAUSTED: ", jax, false },
    { PL_OOM_TENSORFLOW_SHAPE, "OOM when allocating tensor with shape[", NULL, true },
    { PL_OOM_LLAMA_COMPUTE, "failed to allocate compute buffers", NULL, true },
};

static bool apply(const struct rule *r, struct pl_span text, struct pl_oom *out) {
    for (struct pl_span s = pl_span_find(text, r->anchor); s.at != NULL; s = pl_span_find(s, r->anchor)) {
        struct pl_span message = { s.at, s.len < MESSAGE_BYTES ? s.len : (size_t)MESSAGE_BYTES };
        if (r->read == NULL)
            *out = nothing(r->kind);
        else if (!r->read(message, out)) {
            pl_span_skip(&s, 1);
            continue;
        }
        out->at = (size_t)(s.at - text.at);
        return true;
    }
    return false;
}

static const struct rule *parse(struct pl_span text, struct pl_oom *out) {
    static const struct rule of_torch = { PL_OOM_TORCH, "", NULL, false };
    if (torch(text, out)) return &of_torch;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (apply(&rules[i], text, out)) return &rules[i];
    *out = nothing(PL_OOM_NONE);
    return NULL;
}

bool pl_oom_parse(const char *text, size_t len, struct pl_oom *out) {
    return parse((struct pl_span){ text, len }, out) != NULL;
}

/* --- what the program itself says */

static bool is_quote(char c) { return c == '"' || c == '\'' || c == '`'; }

/* What stands before the message: nothing, or what loggers and exceptions put there. A message with numbers
 * may stand anywhere but in quotes, unless the quotes are a field's ("error": "...") or an exception's
 * ('...'). */
static bool is_said(const char *line, size_t at, bool plain) {
    if (at == 0) return true;
    if (is_quote(line[at - 1])) {
        size_t n = at - 1;
        while (n > 0 && line[n - 1] == ' ') n--;
        return !plain && n > 0 && (line[n - 1] == ':' || line[n - 1] == '(');
    }
    if (!plain) return true;
    if (at < 2 || line[at - 1] != ' ') return false;
    return line[at - 2] == ':' || line[at - 2] == ']' || (at >= 5 && memcmp(line + at - 5, "WARN ", 5) == 0);
}

/* "CUDA out of memory" without numbers, and classes that mean it: "torch.OutOfMemoryError: text". */
static bool bare(struct pl_span line, struct pl_oom *out) {
    static const char *const phrases[] = { "CUDA out of memory", "HIP out of memory",
                                           "cudaMalloc failed: out of memory",
                                           "RESOURCE_EXHAUSTED: Out of memory" };
    static const char type[] = "OutOfMemoryError";
    size_t name = 0;
    while (name < line.len && line.at[name] != ':' && line.at[name] != ' ') name++;
    *out = nothing(PL_OOM_TORCH_BARE);
    if (name >= sizeof type - 1 && memcmp(line.at + name - (sizeof type - 1), type, sizeof type - 1) == 0)
        return true;
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        struct pl_span s = pl_span_find(line, phrases[i]);
        if (s.at == NULL || !is_said(line.at, (size_t)(s.at - line.at), true)) continue;
        out->at = (size_t)(s.at - line.at);
        return true;
    }
    return false;
}

/* All that workers print passes here: a line without one of these words is none of ours. */
static bool is_worth_a_look(struct pl_span line) {
    static const char *const words[] = { "emory", "alloc", "_ALLOC", "max seq len" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (pl_span_find(line, words[i]).at != NULL) return true;
    return false;
}

bool pl_oom_in_line(const char *line, size_t len, struct pl_oom *out) {
    struct pl_span s = { line, len < MESSAGE_BYTES ? len : (size_t)MESSAGE_BYTES };
    *out = nothing(PL_OOM_NONE);
    if (!is_worth_a_look(s)) return false;
    const struct rule *r = parse(s, out);
    if (r != NULL && is_said(line, out->at, r->plain)) return true;
    if (r == NULL && bare(s, out)) return true;
    *out = nothing(PL_OOM_NONE);
    return false;
}

bool pl_oom_last_torch(const char *text, size_t len, struct pl_oom *out) {
    bool found = false;
    for (size_t from = 0; from < len;) {
        struct pl_oom one;
        if (!torch((struct pl_span){ text + from, len - from }, &one)) break;
        one.at += from;
        from = one.at + 1;
        if (one.total == PL_OOM_UNKNOWN || one.total == 0) continue;
        *out = one;
        found = true;
    }
    return found;
}

bool pl_oom_last_words(const char *tail, size_t len, struct pl_oom *out) {
    unsigned lines = 0;
    while (len > 0 && lines < LAST_LINES) {
        size_t end = len;
        if (tail[end - 1] == '\n') end--;
        const char *before = end > 0 ? memrchr(tail, '\n', end) : NULL;
        size_t from = before != NULL ? (size_t)(before - tail) + 1 : 0;
        struct pl_oom one;
        bool theirs = pl_oom_in_line(tail + from, end - from, &one) && one.kind != PL_OOM_TORCH &&
                      one.kind != PL_OOM_TORCH_OLD && one.kind != PL_OOM_TORCH_REJECTED &&
                      one.kind != PL_OOM_TORCH_BARE;
        enum pl_oom_class class = pl_oom_class_of(one.kind);
        bool sizing = class == PL_OOM_CLASS_SIZING && one.kind != PL_OOM_VLLM_AVAILABLE;
        if (theirs && (class == PL_OOM_CLASS_GPU || sizing)) {
            *out = one;
            out->line_at = from;
            return true;
        }
        if (end > from) lines++;
        len = from;
    }
    return false;
}

/* --- what it was */

uint64_t pl_oom_reserved(const struct pl_oom *o) {
    if (o->reserved != PL_OOM_UNKNOWN) return o->reserved;
    if (o->allocated == PL_OOM_UNKNOWN || o->unallocated == PL_OOM_UNKNOWN) return PL_OOM_UNKNOWN;
    return o->allocated + o->unallocated;
}

uint64_t pl_oom_other(const struct pl_oom *o) {
    uint64_t reserved = pl_oom_reserved(o);
    if (reserved == PL_OOM_UNKNOWN || o->total == PL_OOM_UNKNOWN) return PL_OOM_UNKNOWN;
    uint64_t known = reserved + (o->free != PL_OOM_UNKNOWN ? o->free : 0);
    return o->total > known ? o->total - known : 0;
}

static uint64_t apart(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

/* What the others hold, and in *own what this process does. In a container it may be listed under a foreign
 * number: the entry nearest to what PyTorch has reserved, if it is not below nine tenths of it. */
static uint64_t neighbours(const struct pl_oom *o, uint64_t reserved, uint64_t *own) {
    uint64_t sum = 0, nearest = PL_OOM_UNKNOWN;
    for (uint32_t i = 0; i < o->process_count; i++) {
        uint64_t bytes = o->processes[i].bytes;
        sum += bytes;
        if (nearest == PL_OOM_UNKNOWN || apart(bytes, reserved) < apart(nearest, reserved)) nearest = bytes;
    }
    *own = o->this_process;
    if (*own != PL_OOM_UNKNOWN || nearest == PL_OOM_UNKNOWN || nearest < reserved - reserved / 10) return sum;
    *own = nearest;
    return sum - nearest;
}

enum pl_oom_verdict pl_oom_judge(const struct pl_oom *o) {
    static const uint64_t much = UINT64_C(2) << 30;
    if (o->kind != PL_OOM_TORCH && o->kind != PL_OOM_TORCH_OLD) return PL_OOM_NO_VERDICT;
    uint64_t reserved = o->allocated + o->unallocated, own;
    if (o->allowed != PL_OOM_UNKNOWN && o->free >= o->requested) return PL_OOM_IS_LIMIT;
    if (o->requested <= o->unallocated) return PL_OOM_IS_FRAGMENTATION;
    if (o->requested <= o->unallocated + o->free) return PL_OOM_IS_PARTLY;
    uint64_t others = neighbours(o, reserved, &own);
    if (others >= o->requested && others >= o->total / 10) return PL_OOM_IS_NEIGHBOUR;
    uint64_t enough = o->requested > much ? o->requested : much;
    if (own != PL_OOM_UNKNOWN && own > reserved && own - reserved >= enough) return PL_OOM_IS_OUTSIDE;
    return PL_OOM_IS_SHORTAGE;
}

const char *pl_oom_verdict_name(enum pl_oom_verdict v) {
    static const char *const names[] = { NULL,
#define X(sym, name) name,
                                         PL_OOM_VERDICTS(X)
#undef X
    };
    return names[v];
}

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

void pl_oom_say(const struct pl_oom *o, char *out, size_t room) {
    uint64_t own, reserved = pl_oom_reserved(o);
    if (room == 0) return;
    out[0] = '\0';
    switch (pl_oom_judge(o)) {
    case PL_OOM_IS_LIMIT:
        snprintf(out, room,
                 "the process is held by per_process_memory_fraction (%.2f GiB); the GPU has %.2f GiB free",
                 gib(o->allowed), gib(o->free));
        break;
    case PL_OOM_IS_FRAGMENTATION:
        snprintf(out, room, "%.2f GiB are cached but in pieces: %s", gib(o->unallocated),
                 o->expandable ? "plimsoll snapshot what-if shows which setting helps"
                               : "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
        break;
    case PL_OOM_IS_PARTLY:
        snprintf(out, room,
                 "without fragmentation it would have fitted: %.2f GiB are cached in pieces, %.2f GiB free",
                 gib(o->unallocated), gib(o->free));
        break;
    case PL_OOM_IS_NEIGHBOUR:
        snprintf(out, room, "other processes hold %.2f GiB of the GPU", gib(neighbours(o, reserved, &own)));
        break;
    case PL_OOM_IS_OUTSIDE:
        neighbours(o, reserved, &own);
        snprintf(out, room, "%.2f GiB of this process are outside PyTorch", gib(own - reserved));
        break;
    case PL_OOM_IS_SHORTAGE:
        snprintf(out, room, "the GPU is really full: lower batch, tokens or models");
        break;
    case PL_OOM_NO_VERDICT:
    default:
        break;
    }
}
