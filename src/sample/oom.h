/* sample/oom.h - out-of-memory messages in the output of a worker, as fields.
 *
 * Known: PyTorch of all versions, its allocator's warning before the death, llama.cpp, ONNX Runtime, vLLM,
 * TensorFlow, JAX, NCCL, cuBLAS, cuDNN, and the kernel. Source of the forms: the projects' own sources and
 * reports (tests/data/oom/messages.json says which); the rules are fixed phrases with numbers between them.
 * PyTorch prints GiB with two decimals, so that sums are good to about 10 MiB. "Tried to allocate" is the
 * segment it asked the driver for, not the tensor; "reserved but unallocated" is printed after everything
 * that could be given back was, so it is what is stuck.
 *
 * Foreign text: bounded, never trusted to end.
 */
#ifndef PL_SAMPLE_OOM_H
#define PL_SAMPLE_OOM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(SYMBOL, "name", class). GPU: a device had no room. SIZING: an engine says before it serves that its
 * settings do not fit. HOST: the kernel has killed somebody. WARNING: the allocator tries once more. */
#define PL_OOM_KINDS(X)                          \
    X(TORCH, "torch", GPU)                       \
    X(TORCH_OLD, "torch_old", GPU)               \
    X(TORCH_REJECTED, "torch_rejected", GPU)     \
    X(TORCH_BARE, "torch_bare", GPU)             \
    X(TORCH_WARNING, "torch_warning", WARNING)   \
    X(LLAMA_BUFFER, "llama_buffer", GPU)         \
    X(LLAMA_GALLOC, "llama_galloc", GPU)         \
    X(ONNXRUNTIME, "onnxruntime", GPU)           \
    X(VLLM_LENGTH, "vllm_length", SIZING)        \
    X(VLLM_LENGTH_V0, "vllm_length_v0", SIZING)  \
    X(VLLM_NO_BLOCKS, "vllm_no_blocks", SIZING)  \
    X(VLLM_AVAILABLE, "vllm_available", SIZING)  \
    X(VLLM_FREE, "vllm_free", SIZING)            \
    X(VLLM_PROFILING, "vllm_profiling", SIZING)  \
    X(TENSORFLOW, "tensorflow", GPU)             \
    X(NCCL, "nccl", GPU)                         \
    X(LINUX_CGROUP, "linux_cgroup", HOST)        \
    X(LINUX_GLOBAL, "linux_global", HOST)        \
    X(CUDA_ERROR, "cuda_error", GPU)             \
    X(CUBLAS_ALLOC, "cublas_alloc", GPU)         \
    X(CUDNN_ALLOC, "cudnn_alloc", GPU)           \
    X(JAX, "jax", GPU)                           \
    X(TENSORFLOW_SHAPE, "tensorflow_shape", GPU) \
    X(LLAMA_COMPUTE, "llama_compute", GPU)
enum pl_oom_kind {
    PL_OOM_NONE,
#define X(sym, name, class) PL_OOM_##sym,
    PL_OOM_KINDS(X)
#undef X
};
enum pl_oom_class {
    PL_OOM_CLASS_NONE,
    PL_OOM_CLASS_GPU,
    PL_OOM_CLASS_SIZING,
    PL_OOM_CLASS_HOST,
    PL_OOM_CLASS_WARNING
};
const char *pl_oom_kind_name(enum pl_oom_kind k);
enum pl_oom_class pl_oom_class_of(enum pl_oom_kind k);

#define PL_OOM_UNKNOWN UINT64_MAX /* the message does not say */
enum { PL_OOM_PROCESSES = 16, PL_OOM_NAME_BYTES = 32 };

/* Bytes, PL_OOM_UNKNOWN where the message does not say. */
struct pl_oom {
    enum pl_oom_kind kind;
    size_t at;       /* where in the text the message begins */
    size_t line_at;  /* of pl_oom_last_words: where its line does, in the tail */
    uint32_t device; /* UINT32_MAX: not said */
    uint64_t requested, total, free;
    uint64_t allowed;                          /* by per_process_memory_fraction */
    uint64_t allocated, unallocated, reserved; /* PyTorch's; reserved only where it is printed */
    uint64_t private_pools;                    /* of CUDA graphs, free blocks included */
    uint64_t this_process;                     /* its context and libraries included */
    struct {
        uint32_t pid;
        uint64_t bytes;
    } processes[PL_OOM_PROCESSES];
    uint32_t process_count;
    bool expandable; /* expandable_segments was on */
    /* vLLM: tokens, then bytes (needed: by VLLM_FREE what it wants of the device, whose total and free are
     * above); of VLLM_AVAILABLE GiB, which may be below 0 */
    uint64_t max_seq_len, fits_len, needed, available;
    double available_gib;
    /* the kernel's victim; of llama.cpp and TensorFlow the backend */
    uint32_t pid;
    char name[PL_OOM_NAME_BYTES];
};

/* The most specific message in the text. False: none. */
bool pl_oom_parse(const char *text, size_t len, struct pl_oom *out);
/* The same for one line of a worker's output, where only what the program itself says counts: not a phrase in
 * the middle of a sentence, nor one in quotes. Knows "CUDA out of memory" without its numbers too. */
bool pl_oom_in_line(const char *line, size_t len, struct pl_oom *out);
/* The last message of PyTorch's allocator, with its numbers, in a whole log. */
bool pl_oom_last_torch(const char *text, size_t len, struct pl_oom *out);
/* In the last lines of somebody who ended: a message of a library that cannot live on after it. PyTorch can,
 * so its messages are left to the exception that ended it. `at` counts from line_at. */
bool pl_oom_last_words(const char *tail, size_t len, struct pl_oom *out);

/* What PyTorch had of the device, and what others had. PL_OOM_UNKNOWN for kinds without numbers. */
uint64_t pl_oom_reserved(const struct pl_oom *o);
uint64_t pl_oom_other(const struct pl_oom *o);

/* What kind of shortage it was, first that applies. Only for PyTorch's messages with numbers.
 * LIMIT: held by per_process_memory_fraction; the device has room.
 * FRAGMENTATION: what is cached and unused would hold it, but is in pieces.
 * PARTLY: that and what is free together would.
 * NEIGHBOUR: another process holds at least the request and a tenth of the device.
 * OUTSIDE: this process holds much more than PyTorch has reserved.
 * SHORTAGE: really full. */
#define PL_OOM_VERDICTS(X)            \
    X(LIMIT, "limit")                 \
    X(FRAGMENTATION, "fragmentation") \
    X(PARTLY, "partly") X(NEIGHBOUR, "neighbour") X(OUTSIDE, "outside") X(SHORTAGE, "shortage")
enum pl_oom_verdict {
    PL_OOM_NO_VERDICT,
#define X(sym, name) PL_OOM_IS_##sym,
    PL_OOM_VERDICTS(X)
#undef X
};
enum pl_oom_verdict pl_oom_judge(const struct pl_oom *o);
const char *pl_oom_verdict_name(enum pl_oom_verdict v); /* NULL for none */
/* The verdict as words for people, with numbers; "" without one. At most room - 1 bytes. */
void pl_oom_say(const struct pl_oom *o, char *out, size_t room);
#endif
