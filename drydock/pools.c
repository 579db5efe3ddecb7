/* pools.c - cudaMallocAsync: one pool for each device, which keeps freed memory up to its release threshold.
 *
 * A model of the documented behaviour: what is freed stays in the pool while the pool's reserve is not over
 * the threshold (0 unless the program sets it; PyTorch's backend:cudaMallocAsync sets all), a request takes
 * the smallest kept piece that is large enough and not over twice its size, and a trim gives back. A real
 * driver cuts its pieces otherwise. Attributes: 4 release threshold, 5 and 6 reserved now and at most, 7 and
 * 8 used now and at most.
 */
#include <stdlib.h>

#include "runtime.h"

struct piece {
    void *at;
    size_t bytes;
    bool free;
};
struct pool {
    uint64_t threshold, reserved, reserved_high, used, used_high;
    struct piece *pieces;
    size_t count, room;
};
static struct pool pools[DD_CARDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *handle_of(int dev) { return (void *)(uintptr_t)(0x3000 + dev); }

static struct pool *pool_of(void *handle) {
    size_t i = (uintptr_t)handle - 0x3000;
    return i < DD_CARDS ? &pools[i] : &pools[0];
}

static void raise_to(uint64_t *high, uint64_t value) {
    if (value > *high) *high = value;
}

static struct piece *best_free(struct pool *p, size_t bytes) {
    struct piece *best = NULL;
    for (size_t i = 0; i < p->count; i++) {
        struct piece *q = &p->pieces[i];
        if (q->free && q->bytes >= bytes && q->bytes / 2 <= bytes && (best == NULL || q->bytes < best->bytes))
            best = q;
    }
    return best;
}

static void release_over(struct pool *p, uint64_t keep) {
    for (size_t i = 0; i < p->count && p->reserved > keep;) {
        struct piece *q = &p->pieces[i];
        if (!q->free) {
            i++;
            continue;
        }
        dd_free(q->at);
        p->reserved -= q->bytes;
        *q = p->pieces[--p->count];
    }
}

static bool room_for_one(struct pool *p) {
    if (p->count < p->room) return true;
    size_t room = p->room != 0 ? 2 * p->room : 64;
    struct piece *bigger = realloc(p->pieces, room * sizeof *bigger);
    if (bigger == NULL) return false;
    p->pieces = bigger;
    p->room = room;
    return true;
}

static struct piece *new_piece(struct pool *p, size_t bytes, int *error) {
    *error = DD_OUT_OF_MEMORY;
    if (!room_for_one(p)) return NULL;
    void *at = dd_alloc(bytes, DD_DEVICE, error);
    if (at == NULL &&
        *error == DD_OUT_OF_MEMORY) { /* what the pool keeps is given back before it is refused */
        release_over(p, 0);
        at = dd_alloc(bytes, DD_DEVICE, error);
    }
    if (at == NULL) return NULL;
    p->pieces[p->count] = (struct piece){ at, bytes, true };
    p->reserved += bytes;
    raise_to(&p->reserved_high, p->reserved);
    return &p->pieces[p->count++];
}

DD_API int cudaMallocFromPoolAsync(void **out, size_t bytes, void *handle, void *stream) {
    struct pool *p = pool_of(handle);
    int error = DD_OK;
    *out = NULL;
    if (bytes == 0) return DD_OK;
    size_t length = (bytes + DD_GRANULE - 1) & ~(DD_GRANULE - 1);
    pthread_mutex_lock(&mutex);
    struct piece *q = best_free(p, length);
    if (q == NULL) q = new_piece(p, length, &error);
    if (q != NULL) {
        q->free = false;
        *out = q->at;
        p->used += q->bytes;
        raise_to(&p->used_high, p->used);
    }
    pthread_mutex_unlock(&mutex);
    return dd_fail(error);
}

DD_API int cudaMallocAsync(void **out, size_t bytes, void *stream) {
    return cudaMallocFromPoolAsync(out, bytes, handle_of(dd_current()), stream);
}

DD_API int cudaFreeAsync(void *at, void *stream) {
    bool found = at == NULL;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < DD_CARDS && !found; i++) {
        struct pool *p = &pools[i];
        for (size_t k = 0; k < p->count && !found; k++) {
            if (p->pieces[k].at != at || p->pieces[k].free) continue;
            p->pieces[k].free = found = true;
            p->used -= p->pieces[k].bytes;
        }
        if (found) release_over(p, p->threshold);
    }
    pthread_mutex_unlock(&mutex);
    if (found) return DD_OK;
    return dd_free(at) == 0 ? DD_OK : dd_fail(DD_INVALID_VALUE); /* cudaMalloc's memory may be freed so too */
}

DD_API int cudaDeviceGetDefaultMemPool(void **pool, int dev) {
    *pool = handle_of(dev);
    return DD_OK;
}

DD_API int cudaDeviceGetMemPool(void **pool, int dev) { return cudaDeviceGetDefaultMemPool(pool, dev); }

DD_API int cudaMemPoolGetAttribute(void *handle, int attribute, void *value) {
    const struct pool *p = pool_of(handle);
    if (attribute < 4) { /* reuse policies: int */
        *(int *)value = 1;
        return DD_OK;
    }
    pthread_mutex_lock(&mutex);
    *(uint64_t *)value = attribute == 4   ? p->threshold
                         : attribute == 5 ? p->reserved
                         : attribute == 6 ? p->reserved_high
                         : attribute == 7 ? p->used
                         : attribute == 8 ? p->used_high
                                          : 0;
    pthread_mutex_unlock(&mutex);
    return DD_OK;
}

/* The highs may be set to 0 only: they begin anew. */
DD_API int cudaMemPoolSetAttribute(void *handle, int attribute, void *value) {
    struct pool *p = pool_of(handle);
    pthread_mutex_lock(&mutex);
    if (attribute == 4) p->threshold = *(const uint64_t *)value;
    if (attribute == 6) p->reserved_high = p->reserved;
    if (attribute == 8) p->used_high = p->used;
    pthread_mutex_unlock(&mutex);
    return DD_OK;
}

DD_API int cudaMemPoolTrimTo(void *handle, size_t keep) {
    pthread_mutex_lock(&mutex);
    release_over(pool_of(handle), keep);
    pthread_mutex_unlock(&mutex);
    return DD_OK;
}

/* Graphs keep no memory of their own here. */
DD_API int cudaDeviceGetGraphMemAttribute(int dev, int attribute, void *value) {
    *(uint64_t *)value = 0;
    return DD_OK;
}
