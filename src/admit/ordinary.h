/* admit/ordinary.h - what an ordinary request is charged: nine in ten of the latest took no more. One that is
 * far larger than the rest is no measure of them. Pure. */
#ifndef PL_ADMIT_ORDINARY_H
#define PL_ADMIT_ORDINARY_H
#include <stdint.h>

enum { PL_ORDINARY_WINDOW = 64, PL_ORDINARY_KNOWN = 8 };

/* Zero it before the first use. */
struct pl_ordinary {
    uint64_t at[PL_ORDINARY_WINDOW]; /* bytes of the latest */
    uint64_t seen;
};
void pl_ordinary_add(struct pl_ordinary *o, uint64_t bytes);
uint64_t pl_ordinary_bytes(const struct pl_ordinary *o); /* 0: fewer than PL_ORDINARY_KNOWN came */
#endif
