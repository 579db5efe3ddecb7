/* snapshot/conf.h - allocator settings as PyTorch reads them: PYTORCH_CUDA_ALLOC_CONF=k:v,k:[a:b,c:d].
 *
 * Rules and defaults of c10/cuda/CUDAAllocatorConfig.cpp (2026): blanks ignored, booleans exactly True or
 * False, sizes in MiB. What changes no layout on the device is accepted and not kept.
 */
#ifndef PL_SNAPSHOT_CONF_H
#define PL_SNAPSHOT_CONF_H
#include "base/err.h"
#include "snapshot/snapshot.h"

#define PL_ALLOC_UNLIMITED UINT64_MAX
enum { PL_ALLOC_KIB = 1 << 10, PL_ALLOC_MIB = 1 << 20 };

struct pl_alloc_conf {
    bool expandable;
    uint64_t max_split;     /* bytes, PL_ALLOC_UNLIMITED */
    uint64_t large_segment; /* bytes, 20 MiB */
    uint64_t non_split_rounding;
    double gc;       /* 0 = off */
    double fraction; /* 1 or more = none */
    uint32_t roundup[PL_SNAP_INTERVALS];
    bool throw_on_oom; /* a limit refuses before the driver is asked, without the retry chain */
    bool async;        /* backend:cudaMallocAsync, which is not this allocator */
    bool order_by_age; /* ties among free blocks: age of the segment (about 2.13 on), else its address */
    bool fix193400;    /* max_split no longer touches expandable blocks: PR #193400, not merged */
    bool fix189504;    /* search once more after the last retry: PR #191302, not merged */
};
void pl_alloc_conf_init(struct pl_alloc_conf *c);
/* On top of what is there. The error names the key and what it may be. */
bool pl_alloc_conf_parse(struct pl_alloc_conf *c, const char *text, struct pl_err *err);
/* As the file tells it: the text where there is one that can be read, else the single keys. */
void pl_alloc_conf_recorded(const struct pl_snap *s, struct pl_alloc_conf *c);
#endif
