#include "sample/engine_boot.h"

#include "sample/span.h"

enum { LINE_MOST = 4096, NAME_MOST = 40 };
#define TOKENS_MOST UINT64_C(1000000000000)
#define BYTES_MOST  (UINT64_C(1) << 50)
#define GIB         ((double)(1 << 30))
#define MIB         ((double)(1 << 20))

const char *pl_boot_part_name(enum pl_boot_part p) {
    static const char *const names[] = {
#define X(sym, name) [PL_BOOT_##sym] = name,
        PL_BOOT_PARTS_OF(X)
#undef X
    };
    return (unsigned)p < PL_BOOT_PARTS ? names[p] : "";
}

/* --- numbers */

/* Eats "12.34", and says what its rounding hides: half of the last digit. Python leaves zeros out ("0.4" is
 * round(x, 2)), so that two decimals are believed at most when there are fewer. */
static bool size_in(struct pl_span *s, double unit, struct pl_boot_bytes *out) {
    struct pl_span t = *s;
    double number, step = 0.005;
    if (t.at == NULL || t.len == 0 || t.at[0] < '0' || t.at[0] > '9') return false;
    if (!pl_span_decimal(&t, false, &number)) return false;
    const char *dot = memchr(s->at, '.', (size_t)(t.at - s->at));
    for (size_t n = dot != NULL ? (size_t)(t.at - dot) - 1 : 0; n > 2 && n < 10; n--) step /= 10;
    if (!pl_span_bytes(number, unit, &out->bytes) || !pl_span_bytes(step, unit, &out->off)) return false;
    out->known = true;
    *s = t;
    return true;
}

/* A whole number, perhaps with commas between its thousands. */
static bool count_in(struct pl_span *s, uint64_t *out) {
    struct pl_span t = *s;
    uint64_t value, more;
    if (!pl_span_number(&t, &value)) return false;
    while (t.len > 3 && t.at[0] == ',' && pl_span_digits((struct pl_span){ t.at + 1, t.len - 1 }) == 3) {
        pl_span_skip(&t, 1);
        if (!pl_span_number(&t, &more) || value > TOKENS_MOST) return false;
        value = value * 1000 + more;
    }
    if (value == 0 || value > TOKENS_MOST) return false;
    *s = t;
    *out = value;
    return true;
}

/* --- several processes speak */

static void most(struct pl_boot_bytes *into, struct pl_boot_bytes one) {
    if (one.known && (!into->known || one.bytes > into->bytes)) *into = one;
}

static void least(struct pl_boot_bytes *into, struct pl_boot_bytes one) {
    if (one.known && (!into->known || one.bytes < into->bytes)) *into = one;
}

static void fewest(uint64_t *into, uint64_t one) {
    if (*into == 0 || one < *into) *into = one;
}

/* Where weights and the rest are told as one, and weights alone elsewhere. */
static void settle(struct pl_engine_boot *b) {
    const struct pl_boot_bytes *c = &b->consumed, *w = &b->part[PL_BOOT_WEIGHTS];
    if (!c->known || !w->known || c->bytes < w->bytes) return;
    b->part[PL_BOOT_NON_TORCH] =
        (struct pl_boot_bytes){ .known = true, .bytes = c->bytes - w->bytes, .off = c->off + w->off };
}

/* --- vLLM. Each begins behind its phrase. */

static bool weights(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes one = { .known = false };
    /* "GB" until 0.8.3, and GiB were meant */
    if (!size_in(&s, GIB, &one) || !(pl_span_eat(&s, " GiB") || pl_span_eat(&s, " GB"))) return false;
    most(&b->part[PL_BOOT_WEIGHTS], one);
    return true;
}

static bool available(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes one = { .known = false };
    if (!size_in(&s, GIB, &one) || !pl_span_eat(&s, " GiB")) return false;
    least(&b->part[PL_BOOT_KV], one);
    return true;
}

static bool concurrency(struct pl_span s, struct pl_engine_boot *b) {
    uint64_t length;
    double times;
    if (!count_in(&s, &length) || !pl_span_eat(&s, " tokens per request: ") ||
        !pl_span_decimal(&s, false, &times) || !pl_span_eat(&s, "x") || !(times >= 0 && times < 1e9))
        return false;
    b->context_tokens = length;
    b->concurrency_pct = (uint64_t)(times * 100 + 0.5);
    return true;
}

static bool cache_size(struct pl_span s, struct pl_engine_boot *b) {
    uint64_t tokens;
    if (!count_in(&s, &tokens) || !pl_span_eat(&s, " tokens")) return false;
    fewest(&b->kv_tokens, tokens);
    if (pl_span_eat(&s, ", Maximum concurrency for ")) concurrency(s, b);
    return true;
}

static bool blocks(struct pl_span s, struct pl_engine_boot *b) {
    uint64_t n;
    if (!count_in(&s, &n)) return false;
    fewest(&b->kv_blocks, n);
    return true;
}

static bool graphs_estimated(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes one = { .known = false };
    if (!size_in(&s, GIB, &one) || !pl_span_eat(&s, " GiB total")) return false;
    most(&b->graphs_estimated, one);
    return true;
}

/* What the pool itself says is better than what was free before capturing and after it. */
static void take_graphs(struct pl_engine_boot *b, struct pl_boot_bytes one) {
    if (b->captured_only) b->part[PL_BOOT_GRAPHS].known = false;
    b->captured_only = false;
    most(&b->part[PL_BOOT_GRAPHS], one);
}

static bool graphs(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes actual = { .known = false }, estimated = { .known = false };
    if (!size_in(&s, GIB, &actual) || !pl_span_eat(&s, " GiB (actual)")) return false;
    take_graphs(b, actual);
    if (pl_span_eat(&s, ", ") && size_in(&s, GIB, &estimated) && pl_span_eat(&s, " GiB (estimated)"))
        most(&b->graphs_estimated, estimated);
    return true;
}

static bool captured(struct pl_span s, struct pl_engine_boot *b) {
    double seconds;
    struct pl_boot_bytes one = { .known = false };
    if (!pl_span_decimal(&s, false, &seconds) || !pl_span_eat(&s, " secs, took ") ||
        !size_in(&s, GIB, &one) || !pl_span_eat(&s, " GiB"))
        return false;
    if (b->part[PL_BOOT_GRAPHS].known && !b->captured_only) return true;
    b->captured_only = true;
    most(&b->part[PL_BOOT_GRAPHS], one);
    return true;
}

/* "… Actual usage is …", behind "Free memory on device (": every term at once. */
static bool all_terms(struct pl_span s, struct pl_engine_boot *b) {
    static const char usage[] = "Actual usage is ";
    struct pl_boot_bytes free = { .known = false }, total = free, first = free, activation = free,
                         other = free, graphs_taken = free;
    if (!size_in(&s, GIB, &free) || !pl_span_eat(&s, "/") || !size_in(&s, GIB, &total) ||
        !pl_span_eat(&s, " GiB) on startup. "))
        return false;
    s = pl_span_find(s, usage);
    if (!pl_span_eat(&s, usage) || !size_in(&s, GIB, &first)) return false;
    bool apart = pl_span_eat(&s, " GiB for weight, "); /* 0.11 to 0.28 */
    if ((!apart && !pl_span_eat(&s, " GiB for consumed memory (weights + non-torch), ")) ||
        !size_in(&s, GIB, &activation) || !pl_span_eat(&s, " GiB for peak activation, "))
        return false;
    if (apart && (!size_in(&s, GIB, &other) || !pl_span_eat(&s, " GiB for non-torch memory, "))) return false;
    if (!pl_span_eat(&s, "and ") || !size_in(&s, GIB, &graphs_taken) ||
        !pl_span_eat(&s, " GiB for CUDAGraph memory"))
        return false;
    least(&b->free, free);
    most(&b->total, total);
    most(apart ? &b->part[PL_BOOT_WEIGHTS] : &b->consumed, first);
    most(&b->part[PL_BOOT_NON_TORCH], other);
    most(&b->part[PL_BOOT_ACTIVATION], activation);
    take_graphs(b, graphs_taken);
    settle(b);
    return true;
}

/* V0, and what was made of it: "model weights take 14.99GiB; non_torch_memory takes 0.35GiB; …". */
static bool old_terms(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes w = { .known = false }, other = w, activation = w, kv = w;
    if (!size_in(&s, GIB, &w) || !pl_span_eat(&s, "GiB; non_torch_memory takes ") ||
        !size_in(&s, GIB, &other) || !pl_span_eat(&s, "GiB; PyTorch activation peak memory takes ") ||
        !size_in(&s, GIB, &activation))
        return false;
    most(&b->part[PL_BOOT_WEIGHTS], w);
    most(&b->part[PL_BOOT_NON_TORCH], other);
    most(&b->part[PL_BOOT_ACTIVATION], activation);
    if (pl_span_eat(&s, "GiB; the rest of the memory reserved for KV Cache is ") && size_in(&s, GIB, &kv))
        least(&b->part[PL_BOOT_KV], kv);
    return true;
}

/* On the CPU: "Auto set (0.81/18.09) GiB for KV cache on node 0"; the second is what was free. */
static bool on_cpu(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes kv = { .known = false }, free = kv;
    if (!size_in(&s, GIB, &kv) || !pl_span_eat(&s, "/") || !size_in(&s, GIB, &free) ||
        !pl_span_eat(&s, ") GiB for KV cache on node "))
        return false;
    least(&b->part[PL_BOOT_KV], kv);
    least(&b->free, free);
    return true;
}

static bool persisted(struct pl_span s, struct pl_engine_boot *b) {
    static const char words[] = "): kv_cache_memory_bytes=";
    uint64_t bytes;
    s = pl_span_find(s, words);
    if (!pl_span_eat(&s, words) || !pl_span_number(&s, &bytes) || bytes == 0 || bytes >= BYTES_MOST)
        return false;
    fewest(&b->persisted_bytes, bytes);
    return true;
}

static bool fitted(struct pl_span s, struct pl_engine_boot *b) {
    uint64_t from, to;
    if (!count_in(&s, &from) || !pl_span_eat(&s, " to ") || !count_in(&s, &to)) return false;
    b->auto_from = from;
    b->auto_to = to;
    return true;
}

static bool initialised(struct pl_span s, struct pl_engine_boot *b) {
    double seconds;
    if (!pl_span_decimal(&s, false, &seconds) || !pl_span_eat(&s, " s") || !(seconds >= 0 && seconds < 1e6))
        return false;
    b->init_ms = (uint64_t)(seconds * 1000 + 0.5);
    return true;
}

static bool version(struct pl_span s, struct pl_engine_boot *b) {
    size_t n = 0;
    while (n < s.len && n < sizeof b->version - 1 &&
           ((s.at[n] >= '0' && s.at[n] <= '9') || (s.at[n] >= 'a' && s.at[n] <= 'z') || s.at[n] == '.' ||
            s.at[n] == '+' || s.at[n] == '-'))
        n++;
    if (n == 0) return false;
    memcpy(b->version, s.at, n);
    b->version[n] = '\0';
    return true;
}

/* --- SGLang; its "GB" are GiB */

static bool sglang_part(struct pl_span s, struct pl_boot_bytes *into) {
    static const char words[] = "mem usage=";
    struct pl_boot_bytes one = { .known = false };
    s = pl_span_find(s, words);
    if (!pl_span_eat(&s, words) || !size_in(&s, GIB, &one) || !pl_span_eat(&s, " GB")) return false;
    most(into, one);
    return true;
}

static bool sglang_weights(struct pl_span s, struct pl_engine_boot *b) {
    return sglang_part(s, &b->part[PL_BOOT_WEIGHTS]);
}

static bool sglang_graphs(struct pl_span s, struct pl_engine_boot *b) {
    return sglang_part(s, &b->part[PL_BOOT_GRAPHS]);
}

static bool sglang_cache(struct pl_span s, struct pl_engine_boot *b) {
    struct pl_boot_bytes k = { .known = false }, v = k;
    struct pl_span t = pl_span_find(s, "#tokens: ");
    uint64_t tokens;
    if (!pl_span_eat(&t, "#tokens: ") || !count_in(&t, &tokens)) return false;
    if (pl_span_eat(&t, ", K size: ")) {
        if (!size_in(&t, GIB, &k) || !pl_span_eat(&t, " GB, V size: ") || !size_in(&t, GIB, &v) ||
            !pl_span_eat(&t, " GB"))
            return false;
        if (k.bytes + v.bytes >= BYTES_MOST) return false;
        k.bytes += v.bytes;
        k.off += v.off;
    } else if (!pl_span_eat(&t, ", KV size: ") || !size_in(&t, GIB, &k) || !pl_span_eat(&t, " GB")) {
        return false;
    }
    fewest(&b->kv_tokens, tokens);
    least(&b->part[PL_BOOT_KV], k);
    return true;
}

/* --- llama.cpp: "load_tensors:        CUDA0 model buffer size =  4165.37 MiB" */

static bool on_host(struct pl_span name) {
    static const char host[] = "_Host";
    size_t n = sizeof host - 1;
    return (name.len >= 3 && memcmp(name.at, "CPU", 3) == 0) ||
           (name.len > n && memcmp(name.at + name.len - n, host, n) == 0);
}

static void eat_blanks(struct pl_span *s) {
    while (s->len > 0 && *s->at == ' ') pl_span_skip(s, 1);
}

/* A sum of this kind must not grow without bound either. */
static void add_buffer(struct pl_boot_bytes *into, struct pl_boot_bytes one) {
    if (one.bytes > BYTES_MOST - into->bytes) return;
    *into =
        (struct pl_boot_bytes){ .known = true, .bytes = into->bytes + one.bytes, .off = into->off + one.off };
}

static bool llama_buffer(struct pl_span line, struct pl_engine_boot *b) {
    static const struct {
        const char *words;
        enum pl_boot_part part;
    } kinds[] = { { " model buffer size = ", PL_BOOT_WEIGHTS },
                  { " KV buffer size = ", PL_BOOT_KV },
                  { " RS buffer size = ", PL_BOOT_KV },
                  { " compute buffer size = ", PL_BOOT_ACTIVATION },
                  { " output buffer size = ", PL_BOOT_ACTIVATION } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pl_span s = pl_span_find(line, kinds[i].words);
        struct pl_boot_bytes one = { .known = false };
        if (s.at == NULL) continue;
        struct pl_span name = { line.at, (size_t)(s.at - line.at) };
        while (name.len > 0 && name.at[name.len - 1] == ' ') name.len--; /* "CUDA_Host  output buffer" */
        const char *blank = memrchr(name.at, ' ', name.len);
        if (blank != NULL) pl_span_skip(&name, (size_t)(blank - name.at) + 1);
        pl_span_eat(&s, kinds[i].words);
        eat_blanks(&s);
        if (name.len == 0 || name.len > NAME_MOST || !size_in(&s, MIB, &one) || !pl_span_eat(&s, " MiB"))
            return false;
        bool any = false;
        for (int p = 0; p < PL_BOOT_PARTS; p++) any = any || b->part[p].known;
        if (on_host(name)) {
            if (any && !b->host_buffers_only) return true; /* beside a device it is the machine's */
            b->host_buffers_only = true;
        } else if (b->host_buffers_only) {
            for (int p = 0; p < PL_BOOT_PARTS; p++) b->part[p] = (struct pl_boot_bytes){ .known = false };
            b->host_buffers_only = false;
        }
        add_buffer(&b->part[kinds[i].part], one);
        return true;
    }
    return false;
}

/* "size =  512.00 MiB (  4096 cells,  32 layers, …": behind the bracket. */
static bool llama_cells(struct pl_span line, struct pl_engine_boot *b) {
    struct pl_span s = pl_span_find(line, " MiB (");
    uint64_t cells;
    if (!pl_span_eat(&s, " MiB (")) return false;
    eat_blanks(&s);
    if (!count_in(&s, &cells) || !pl_span_eat(&s, " cells,")) return false;
    if (cells > b->kv_tokens) b->kv_tokens = cells; /* a sliding cache beside it has fewer */
    return true;
}

/* --- lines */

static const struct {
    const char *phrase;
    bool (*take)(struct pl_span s, struct pl_engine_boot *b);
} rules[] = {
    { "Model loading took ", weights },
    { "Loading model weights took ", weights },
    { "Available KV cache memory: ", available },
    { "GPU KV cache size: ", cache_size },
    { "CPU KV cache size: ", cache_size },
    { "Maximum concurrency for ", concurrency },
    { "# GPU blocks: ", blocks },
    { "# cuda blocks: ", blocks },
    { "# CUDA blocks: ", blocks },
    { "Estimated CUDA graph memory: ", graphs_estimated },
    { "CUDA graph pool memory: ", graphs },
    { "Graph capturing finished in ", captured },
    { "Free memory on device (", all_terms },
    { "model weights take ", old_terms },
    { "Auto set (", on_cpu },
    { "Explicitly set (", on_cpu },
    { "Applying persisted startup plan (", persisted },
    { "Auto-fit max_model_len: reduced from ", fitted },
    { "init engine (profile, create kv cache, warmup model) took ", initialised },
    { "Initializing a V1 LLM engine (v", version },
    { "Initializing an LLM engine (v", version },
    { "Load weight end.", sglang_weights },
    { "Capture cuda graph end.", sglang_graphs },
    { "KV Cache is allocated.", sglang_cache },
};

/* Behind what a logger puts in front: up to two brackets, as in "(Worker pid=2) INFO 11-29 16:10:26
 * [gpu_worker.py:298] …" and "INFO 12-22 10:55:34 worker.py:241] …". */
static struct pl_span behind_logger(struct pl_span line) {
    struct pl_span s = line;
    for (size_t at = 0; at + 1 < line.len && at < 160; at++)
        if (line.at[at] == ']' && line.at[at + 1] == ' ') {
            s = (struct pl_span){ line.at + at + 2, line.len - at - 2 };
            break;
        }
    return s;
}

bool pl_engine_boot_line(struct pl_engine_boot *b, const char *line, size_t len) {
    struct pl_span whole = { line, len < LINE_MOST ? len : (size_t)LINE_MOST };
    struct pl_span message = behind_logger(whole);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct pl_span s = message;
        if (!pl_span_eat(&s, rules[i].phrase) && !(s = whole, pl_span_eat(&s, rules[i].phrase))) continue;
        bool said = rules[i].take(s, b);
        if (said) settle(b);
        return said;
    }
    return llama_buffer(whole, b) || llama_cells(whole, b);
}
