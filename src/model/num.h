/* model/num.h - sums and products of bytes that cannot wrap: what does not fit is UINT64_MAX, and stays it. A
 * caller checks the result once, at the end, and says "too large to be a model". */
#ifndef PL_MODEL_NUM_H
#define PL_MODEL_NUM_H
#include <stdint.h>

#define PL_GIB (UINT64_C(1) << 30)
#define PL_MIB (UINT64_C(1) << 20)

static inline uint64_t pl_mul(uint64_t a, uint64_t b) {
    uint64_t out;
    return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}
static inline uint64_t pl_add(uint64_t a, uint64_t b) {
    uint64_t out;
    return __builtin_add_overflow(a, b, &out) ? UINT64_MAX : out;
}
/* a - b, 0 when b is larger. */
static inline uint64_t pl_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
/* a / b upwards; b is not 0. UINT64_MAX stays what it is. */
static inline uint64_t pl_cdiv(uint64_t a, uint64_t b) { return a == UINT64_MAX ? a : a / b + (a % b != 0); }
static inline uint64_t pl_round_up(uint64_t a, uint64_t unit) { return pl_mul(pl_cdiv(a, unit), unit); }
static inline uint64_t pl_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t pl_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
#endif
