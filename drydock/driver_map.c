/* driver_map.c - libcuda: virtual memory management, which PyTorch's expandable segments use.
 *
 * A physical handle is only a charge. Mapping makes fresh pages usable: contents do not survive unmap and
 * remap, and one handle mapped at two addresses does not alias.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "inside.h"

enum { PRIVATE_PAGES = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

struct physical {
    size_t bytes;
    int card, refs;
};
struct mapping {
    uint64_t start;
    size_t bytes;
    struct physical *physical;
};
static struct mapping *mappings;
static size_t mapping_count, mapping_room;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void put_physical(struct physical *p) {
    if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    dd_uncharge(p->card, p->bytes);
    free(p);
}

static bool remember(uint64_t at, size_t bytes, struct physical *p) {
    if (mapping_count == mapping_room) {
        size_t room = mapping_room != 0 ? 2 * mapping_room : 256;
        struct mapping *bigger = realloc(mappings, room * sizeof *mappings);
        if (bigger == NULL) return false;
        mappings = bigger;
        mapping_room = room;
    }
    __atomic_add_fetch(&p->refs, 1, __ATOMIC_ACQ_REL);
    mappings[mapping_count++] = (struct mapping){ at, bytes, p };
    return true;
}

DD_API int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
    *granularity = DD_GRANULE;
    return DD_OK;
}

DD_API int cuMemAddressReserve(uint64_t *p, size_t bytes, size_t align, uint64_t hint,
                               unsigned long long flags) {
    size_t unit = DD_GRANULE;
    char *raw = mmap((void *)(uintptr_t)hint, bytes + unit, PROT_NONE, PRIVATE_PAGES, -1, 0);
    if (raw == MAP_FAILED) return DD_OUT_OF_MEMORY;
    char *start = (char *)(((uintptr_t)raw + unit - 1) & ~(unit - 1));
    size_t before = (size_t)(start - raw);
    if (before > 0) munmap(raw, before);
    if (unit > before) munmap(start + bytes, unit - before);
    dd_range_add(start, bytes, DD_RESERVED);
    *p = (uint64_t)(uintptr_t)start;
    return DD_OK;
}

DD_API int cuMemAddressFree(uint64_t p, size_t bytes) {
    return dd_free((void *)(uintptr_t)p) == 0 ? DD_OK : DD_INVALID_VALUE;
}

/* The properties begin with type, requested handle types, location type, location id. */
DD_API int cuMemCreate(uint64_t *handle, size_t bytes, const int *properties, unsigned long long flags) {
    int dev = properties != NULL ? properties[3] : dd_current();
    if (dev < 0 || dev >= dd_count()) return DD_INVALID_DEVICE;
    int made = dd_context();
    if (made != DD_OK) return made;
    struct physical *p = calloc(1, sizeof *p);
    int refused = p == NULL ? -1 : dd_charge(dd_card(dev), bytes);
    dd_ask_python(true);
    if (refused != 0) {
        free(p);
        return DD_OUT_OF_MEMORY;
    }
    *p = (struct physical){ bytes, dd_card(dev), 1 };
    *handle = (uint64_t)(uintptr_t)p;
    return DD_OK;
}

DD_API int cuMemRelease(uint64_t handle) {
    put_physical((struct physical *)(uintptr_t)handle);
    return DD_OK;
}

DD_API int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    void *start = (void *)(uintptr_t)at;
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, PRIVATE_PAGES | MAP_FIXED, -1, 0) == MAP_FAILED)
        return DD_INVALID_VALUE;
    madvise(start, bytes, MADV_NOHUGEPAGE);
    pthread_mutex_lock(&mutex);
    bool kept = remember(at, bytes, (struct physical *)(uintptr_t)handle);
    pthread_mutex_unlock(&mutex);
    return kept ? DD_OK : DD_OUT_OF_MEMORY;
}

DD_API int cuMemUnmap(uint64_t at, size_t bytes) {
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < mapping_count;) {
        if (mappings[i].start < at || mappings[i].start + mappings[i].bytes > at + bytes) {
            i++;
            continue;
        }
        put_physical(mappings[i].physical);
        mappings[i] = mappings[--mapping_count];
    }
    pthread_mutex_unlock(&mutex);
    mmap((void *)(uintptr_t)at, bytes, PROT_NONE, PRIVATE_PAGES | MAP_FIXED, -1, 0);
    return DD_OK;
}

DD_API int cuMemSetAccess(uint64_t at, size_t bytes, const void *access, size_t count) { return DD_OK; }

DD_API int cuMemRetainAllocationHandle(uint64_t *handle, void *address) {
    uint64_t at = (uint64_t)(uintptr_t)address;
    int result = DD_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < mapping_count && result != DD_OK; i++) {
        if (at < mappings[i].start || at >= mappings[i].start + mappings[i].bytes) continue;
        __atomic_add_fetch(&mappings[i].physical->refs, 1, __ATOMIC_ACQ_REL);
        *handle = (uint64_t)(uintptr_t)mappings[i].physical;
        result = DD_OK;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

DD_API int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags) {
    return DD_NOT_SUPPORTED;
}

DD_API int cuMemImportFromShareableHandle(uint64_t *handle, void *in, int type) { return DD_NOT_SUPPORTED; }
