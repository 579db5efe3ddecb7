/* sample/engine.h - what an LLM engine says of its load and of its KV cache in its own /metrics.
 *
 * vLLM (also the names before 0.9), SGLang and llama.cpp's server. Foreign text, read line by line with
 * sample/promline.h; a figure that is not told, or that cannot be (negative, not a number), is not known.
 * Where one page speaks for several engines (data parallel), requests, tokens and blocks are summed, and of
 * ratios and bytes the largest counts: each engine has devices of its own. Source of the names: the projects'
 * metrics pages, vLLM 0.32's recorded page (tests/data/metrics/vllm.txt).
 */
#ifndef PL_SAMPLE_ENGINE_H
#define PL_SAMPLE_ENGINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_ENGINE_UNKNOWN UINT64_MAX

struct pl_engine_load {
    double kv_used_ratio;                        /* below 0: not known */
    uint64_t running, waiting, preemptions;      /* requests */
    uint64_t kv_bytes;                           /* of the cache, on one device */
    uint64_t kv_tokens, kv_blocks, block_tokens; /* that it holds in all; tokens of one block */
};
/* False: no line of any of them, and nothing is known. */
bool pl_engine_load_read(const char *text, size_t len, struct pl_engine_load *out);
#endif
