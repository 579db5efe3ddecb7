#include "admit/ordinary.h"

#include <stdlib.h>
#include <string.h>

void pl_ordinary_add(struct pl_ordinary *o, uint64_t bytes) { o->at[o->seen++ % PL_ORDINARY_WINDOW] = bytes; }

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t pl_ordinary_bytes(const struct pl_ordinary *o) {
    uint64_t sorted[PL_ORDINARY_WINDOW];
    size_t n = o->seen < PL_ORDINARY_WINDOW ? (size_t)o->seen : PL_ORDINARY_WINDOW;
    if (n < PL_ORDINARY_KNOWN) return 0;
    memcpy(sorted, o->at, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], by_value);
    return sorted[(n * 9 + 9) / 10 - 1];
}
