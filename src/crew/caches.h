/* crew/caches.h - what a service's engine compiles (Triton, inductor, CUDA, vLLM) outlives its workers: each
 * service has cache_dir/jit/SERVICE, its workers are told of it by the variables that these libraries read,
 * unless something else is set. A start that finds the folders empty and leaves something in them was a cold
 * one: it has paid for compilation, and still carries what the compilers left in its memory. That is told,
 * and one restart is offered.
 */
#ifndef PL_CREW_CACHES_H
#define PL_CREW_CACHES_H
#include <stdbool.h>
#include <stdint.h>

enum pl_cache { PL_CACHE_TRITON, PL_CACHE_INDUCTOR, PL_CACHE_CUDA, PL_CACHE_VLLM, PL_CACHES };
const char *pl_caches_name(enum pl_cache c);

/* Of a service; zero is a good start. */
struct pl_caches {
    bool known, told; /* told: why there is none */
    bool cold;        /* the last start was one */
    bool empty;       /* as last prepared: nothing was compiled before */
    uint64_t files[PL_CACHES], bytes[PL_CACHES];
};

struct pl_worker;
struct pl_service;
/* Before one is spawned: its folder, made, in `out`; "" when there is none to be had (told once), or what
 * runs there is not ours. */
void pl_caches_prepare(struct pl_service *s, uint32_t slot, char *out, unsigned room);
void pl_caches_ready(struct pl_worker *w); /* what it has compiled by now is counted, beside the loop */
/* NULL: nothing is known yet. */
const struct pl_caches *pl_look_caches(const struct pl_service *s);
#endif
