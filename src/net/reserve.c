#include "net/reserve.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <uv.h>

/* Twice the table for a million descriptors, which is copied when it grows. */
enum { RESERVE_BYTES = 16 << 20 };

static pl_reserve_take *take; /* NULL: not started */
static _Atomic(void *) kept;

static void *set_aside(void) {
    void *at = mmap(NULL, RESERVE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

static bool give_back(void) {
    void *at = atomic_exchange(&kept, NULL);
    return at != NULL && munmap(at, RESERVE_BYTES) == 0;
}

static void *reserve_realloc(void *old, size_t bytes) {
    void *at = take(old, bytes);
    return at != NULL || bytes == 0 || !give_back() ? at : take(old, bytes);
}

static void *reserve_malloc(size_t bytes) { return reserve_realloc(NULL, bytes); }

static void *reserve_calloc(size_t count, size_t bytes) {
    void *at = bytes == 0 || count <= SIZE_MAX / bytes ? reserve_malloc(count * bytes) : NULL;
    if (at != NULL) memset(at, 0, count * bytes);
    return at;
}

void pl_reserve_start(pl_reserve_take *from) {
    take = from;
    atomic_store(&kept, set_aside());
    if (uv_replace_allocator(reserve_malloc, reserve_realloc, reserve_calloc, free) != 0) take = NULL;
}

bool pl_reserve_whole(void) {
    if (take == NULL || atomic_load(&kept) != NULL) return true;
    void *at = set_aside();
    atomic_store(&kept, at); /* others only take it away */
    return at != NULL;
}
