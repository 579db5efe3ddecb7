/* plan/gpus.h - the cards known by name (gpus.def), and the text NAME, NAMExN, NAME:BYTES, NAME:BYTESxN. */
#ifndef PL_PLAN_GPUS_H
#define PL_PLAN_GPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum pl_gpu_class { PL_GPU_SMALL, PL_GPU_HOPPER, PL_GPU_BIG };
struct pl_gpu {
    char name[48];                       /* as asked for */
    char product[64];                    /* "" when only its bytes are known */
    char source[96];                     /* where the total comes from */
    uint64_t total_bytes, foreign_bytes; /* of one card; what others hold now */
    uint32_t count;
    enum pl_gpu_class class;
};
/* Rows of the table in its order; NULL past the end. `mib` may be NULL. */
const char *pl_gpu_name(size_t i, uint64_t *mib);
/* E_USAGE with the names when it is none. In NAME:BYTES the name may be a product's, as NVML says it, and its
 * bytes NVML's total. */
bool pl_gpu_parse(const char *text, struct pl_gpu *out, struct pl_err *err);
/* The class that engines give a card of this product name and size. */
enum pl_gpu_class pl_gpu_class_of(const char *product, uint64_t total_bytes);
/* "79.2GiB", "24 GiB", "40442MiB", "1.5TiB" to bytes. */
bool pl_plan_parse_bytes(const char *text, size_t len, uint64_t *out);
#endif
