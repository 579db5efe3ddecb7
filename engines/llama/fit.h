/* fit.h - how large a context is made, before a byte of weights is read: what the model wants, what the
 * machine has. */
#ifndef PL_LLAMA_FIT_H
#define PL_LLAMA_FIT_H
#include "llama/model.h"

struct pl_llm_fit {
    uint32_t cells, parallel;
    struct pl_llm_bytes bytes;
    uint64_t available; /* bytes; 0: not known, and nothing was compared */
};

/* False: it does not fit; err names the bytes, and the hint the largest context that would. */
bool pl_llm_fit(const struct pl_llm_options *o, uint64_t available, bool gpu, struct pl_llm_fit *out,
                struct pl_err *err);
/* Bytes that loading may take: free memory of the GPUs, else of the machine or of our cgroup, whichever is
 * less. */
uint64_t pl_llm_available(bool *gpu);
/* Threads for computing: what the CPU quota and our affinity leave, at least 1. */
uint32_t pl_llm_threads(void);
#endif
