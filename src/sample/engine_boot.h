/* sample/engine_boot.h - what an engine says of its memory while it starts, line by line.
 *
 * vLLM 0.32, the older forms of the same lines (0.8 to 0.31; V0's summary of its profiling run), SGLang, and
 * llama.cpp's buffers. Foreign text: fixed phrases where a message begins (behind a logger's "] ", or first
 * in its line), numbers between them with limits; what cannot be is not taken. Why a start was refused is
 * sample/oom.h.
 *
 * One worker's output holds the lines of all its processes: of what each card's process takes the most
 * counts, of what is left for the KV cache the least ("the smallest rank rules"). llama.cpp says a line for
 * each buffer: they are summed, over its devices where it has any, else on the host. Source of the forms: the
 * projects' own sources and logs that people have published (tests/data/vllm/boot says which are which).
 */
#ifndef PL_SAMPLE_ENGINE_BOOT_H
#define PL_SAMPLE_ENGINE_BOOT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(SYMBOL, "component"): surface.md's plimsoll_plan_bytes. llama.cpp's compute and output buffers are
 * ACTIVATION, its recurrent state belongs to KV. */
#define PL_BOOT_PARTS_OF(X)     \
    X(WEIGHTS, "weights")       \
    X(KV, "kv")                 \
    X(ACTIVATION, "activation") \
    X(GRAPHS, "graphs") X(NON_TORCH, "non_torch")
enum pl_boot_part {
#define X(sym, name) PL_BOOT_##sym,
    PL_BOOT_PARTS_OF(X)
#undef X
        PL_BOOT_PARTS
};
const char *pl_boot_part_name(enum pl_boot_part p);

/* A size as it was printed: `off` is what rounding hides, either way. */
struct pl_boot_bytes {
    bool known;
    uint64_t bytes, off;
};

enum { PL_BOOT_VERSION_BYTES = 24 };

/* 0, or not known: it has not said. */
struct pl_engine_boot {
    struct pl_boot_bytes part[PL_BOOT_PARTS];
    struct pl_boot_bytes graphs_estimated; /* what was kept free for graphs before they were captured */
    struct pl_boot_bytes consumed;         /* weights and what is not PyTorch's, where they are told as one */
    struct pl_boot_bytes free, total;      /* of the device, when it began */
    uint64_t kv_tokens, kv_blocks;         /* of the cache */
    uint64_t context_tokens;               /* of one request */
    uint64_t concurrency_pct;              /* requests of that length, in hundredths */
    uint64_t auto_from, auto_to;           /* the context was changed so that it fits */
    uint64_t persisted_bytes;              /* for KV, of a start before: nothing was measured this time */
    uint64_t init_ms;                      /* profile, cache and warm-up */
    bool captured_only;                    /* graphs: what capturing took, and the pool has not spoken yet */
    bool host_buffers_only;                /* llama.cpp, and no device has spoken yet */
    char version[PL_BOOT_VERSION_BYTES];   /* "0.32.0" */
};
/* Adds what a line says. False: it says nothing of this kind. Zeroed is a good start. */
bool pl_engine_boot_line(struct pl_engine_boot *b, const char *line, size_t len);
#endif
