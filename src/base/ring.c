#include "base/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; older kernels answer EINVAL */
#endif

static int new_memfd(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd == -1 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

static int give_up(int fd, int error) {
    close(fd);
    errno = error;
    return -1;
}

int pl_memfd_create(const char *name, size_t bytes) {
    int fd = new_memfd(name);
    if (fd == -1) return -1;
    int error;
    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error != 0) return give_up(fd, error);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == -1) return give_up(fd, errno);
    return fd;
}

int pl_memfd_of(const char *name, const void *content, size_t bytes) {
    int fd = new_memfd(name);
    if (fd == -1) return -1;
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pwrite(fd, (const char *)content + at, bytes - at, (off_t)at);
        if (n == -1 && errno == EINTR) continue;
        if (n <= 0) return give_up(fd, n == 0 ? EIO : errno);
        at += (size_t)n;
    }
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    if (fcntl(fd, F_ADD_SEALS, seals) == -1) return give_up(fd, errno);
    return fd;
}

static bool ring_size(uint64_t bytes) { return bytes >= PL_RING_MIN && (bytes & (bytes - 1)) == 0; }

static bool map(struct pl_ring *r, int fd, size_t bytes) {
    void *at = mmap(NULL, PL_RING_DATA_AT + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    r->head = at;
    r->data = (uint8_t *)at + PL_RING_DATA_AT;
    r->size = bytes;
    return true;
}

int pl_ring_create(struct pl_ring *r, const char *name, size_t bytes) {
    if (!ring_size(bytes)) {
        errno = EINVAL;
        return -1;
    }
    int fd = pl_memfd_create(name, PL_RING_DATA_AT + bytes);
    if (fd == -1) return -1;
    if (!map(r, fd, bytes)) return give_up(fd, errno);
    r->head->magic = PL_RING_MAGIC;
    r->head->version = 1;
    r->head->size = bytes;
    return fd;
}

bool pl_ring_open(struct pl_ring *r, int fd) {
    struct stat st;
    if (fstat(fd, &st) == -1 || st.st_size < PL_RING_DATA_AT) return false;
    uint64_t bytes = (uint64_t)st.st_size - PL_RING_DATA_AT;
    if (!ring_size(bytes) || !map(r, fd, (size_t)bytes)) return false;
    if (r->head->magic == PL_RING_MAGIC && r->head->version == 1 && r->head->size == r->size) return true;
    pl_ring_close(r);
    return false;
}

void pl_ring_close(struct pl_ring *r) {
    if (r->head != NULL) munmap(r->head, PL_RING_DATA_AT + r->size);
    memset(r, 0, sizeof *r);
}

/* The claim must be seen before the first overwritten byte; the bytes before the new head. */
static uint64_t claim(struct pl_ring *r, uint64_t count) {
    uint64_t at = atomic_load_explicit(&r->head->head, memory_order_relaxed);
    atomic_store_explicit(&r->head->claim, at + count, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return at;
}

static void publish(struct pl_ring *r, uint64_t head) {
    atomic_store_explicit(&r->head->head, head, memory_order_release);
    atomic_store_explicit(&r->head->claim, head, memory_order_release);
}

ssize_t pl_ring_fill(struct pl_ring *r, int fd) {
    uint64_t at = claim(r, PL_RING_CHUNK);
    size_t from = at & (r->size - 1);
    size_t first = r->size - from < PL_RING_CHUNK ? r->size - from : PL_RING_CHUNK;
    struct iovec parts[2] = { { .iov_base = r->data + from, .iov_len = first },
                              { .iov_base = r->data, .iov_len = PL_RING_CHUNK - first } };
    ssize_t n = readv(fd, parts, 2);
    int error = errno;
    publish(r, at + (n > 0 ? (uint64_t)n : 0));
    errno = error;
    return n;
}

void pl_ring_put(struct pl_ring *r, const void *bytes, size_t count) {
    if (count > PL_RING_CHUNK) count = PL_RING_CHUNK;
    uint64_t at = claim(r, count);
    size_t from = at & (r->size - 1);
    size_t first = r->size - from < count ? r->size - from : count;
    memcpy(r->data + from, bytes, first);
    memcpy(r->data, (const uint8_t *)bytes + first, count - first);
    publish(r, at + count);
}

/* The first byte that the writer is sure not to have touched. */
static uint64_t oldest_whole(const struct pl_ring *r) {
    uint64_t claimed = atomic_load_explicit(&r->head->claim, memory_order_acquire);
    return claimed > r->size ? claimed - r->size : 0;
}

/* Counts seen..to as lost and moves the place there. The order of the stores is what makes it safe to be
 * killed between any two: before skip_to nothing has happened, after it the next reader does the rest. */
static void skip(struct pl_ring *r, uint64_t seen, uint64_t to) {
    uint64_t lost = atomic_load_explicit(&r->head->lost, memory_order_relaxed) + (to - seen);
    atomic_store_explicit(&r->head->lost_after, lost, memory_order_release);
    atomic_store_explicit(&r->head->skip_to, to, memory_order_release);
    atomic_store_explicit(&r->head->lost, lost, memory_order_release);
    pl_ring_seen(&r->head->seen, to);
}

static uint64_t settled_place(struct pl_ring *r) {
    uint64_t seen = atomic_load_explicit(&r->head->seen, memory_order_acquire);
    uint64_t to = atomic_load_explicit(&r->head->skip_to, memory_order_acquire);
    if (to <= seen) return seen;
    uint64_t lost = atomic_load_explicit(&r->head->lost_after, memory_order_relaxed);
    atomic_store_explicit(&r->head->lost, lost, memory_order_release);
    pl_ring_seen(&r->head->seen, to);
    return to;
}

void pl_ring_seen(_Atomic uint64_t *seen, uint64_t place) {
    uint64_t now = atomic_load_explicit(seen, memory_order_relaxed);
    while (now < place && !atomic_compare_exchange_weak_explicit(seen, &now, place, memory_order_release,
                                                                 memory_order_relaxed)) {
    }
}

size_t pl_ring_read(struct pl_ring *r, void *out, size_t cap) {
    size_t n = pl_ring_peek(r, out, cap);
    pl_ring_seen(&r->head->seen, r->place);
    return n;
}

size_t pl_ring_peek(struct pl_ring *r, void *out, size_t cap) {
    uint64_t seen = settled_place(r);
    if (seen < r->place) seen = r->place;
    r->place = seen;
    uint64_t head = atomic_load_explicit(&r->head->head, memory_order_acquire);
    uint64_t low = oldest_whole(r);
    uint64_t at = seen < low ? low : seen;
    if (at >= head || cap == 0) return 0;
    size_t count = head - at < cap ? (size_t)(head - at) : cap;
    size_t from = at & (r->size - 1);
    size_t first = r->size - from < count ? r->size - from : count;
    memcpy(out, r->data + from, first);
    memcpy((uint8_t *)out + first, r->data, count - first);
    /* What the writer may have overwritten while we copied is torn: the claim tells, if it is looked at after
     * the copy. */
    atomic_thread_fence(memory_order_acquire);
    low = oldest_whole(r);
    size_t torn = low <= at ? 0 : low - at < count ? (size_t)(low - at) : count;
    memmove(out, (uint8_t *)out + torn, count - torn);
    if (at + torn > seen) skip(r, seen, at + torn);
    r->place = at + count;
    return count - torn;
}
