/* base/ring.h - memory that two processes see: sealed memfds, and the log ring on one.
 *
 * The log ring has one writer, the keeper, which never waits, and one reader, main, which reads when it
 * likes: the oldest bytes are overwritten. `head` counts all bytes ever written; from `claim` on the writer
 * may be overwriting. `seen` is the reader's place and `lost` what it never got; both lie in the ring, so
 * that the next main goes on where the last one stopped and *written = read + lost* holds to the byte,
 * wherever the last one was killed.
 */
#ifndef PL_BASE_RING_H
#define PL_BASE_RING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A memfd of a fixed size, zeroed: allocated, and sealed so that nobody can shrink, grow or unseal it. -1
 * with errno. */
int pl_memfd_create(const char *name, size_t bytes);
/* A memfd with this content that nobody can change any more. -1 with errno. */
int pl_memfd_of(const char *name, const void *content, size_t bytes);

/* Layout of the memory, shared by builds: fields are only added at the end. Three cache lines, data at 4096.
 */
struct pl_ring_head {
    uint32_t magic;
    uint32_t version;
    uint64_t size; /* of the data, a power of two */
    _Alignas(64) _Atomic uint64_t claim;
    _Atomic uint64_t head;
    _Atomic uint32_t closed; /* nothing will follow */
    _Alignas(64) _Atomic uint64_t seen;
    _Atomic uint64_t lost;
    /* A loss moves `seen` and `lost` together. It is written down here first; a reader that finds skip_to
     * before its place completes what the last one was killed in. */
    _Atomic uint64_t skip_to;
    _Atomic uint64_t lost_after;
};

enum { PL_RING_MAGIC = 0x474e4952, PL_RING_DATA_AT = 4096, PL_RING_CHUNK = 16384, PL_RING_MIN = 65536 };

struct pl_ring {
    struct pl_ring_head *head; /* mapped; NULL: closed */
    uint8_t *data;
    uint64_t size;
    uint64_t place; /* reader: what is before it has been read; `seen` follows by pl_ring_seen */
};

/* Makes a ring of `bytes` data (a power of two, at least PL_RING_MIN) and maps it. Its descriptor, owned by
 * the caller; or -1 with errno. */
int pl_ring_create(struct pl_ring *r, const char *name, size_t bytes);
/* Maps one that was received; `fd` is borrowed. False: not a ring. */
bool pl_ring_open(struct pl_ring *r, int fd);
void pl_ring_close(struct pl_ring *r);

/* Writer: moves what lies in the pipe `fd` into the ring, at most PL_RING_CHUNK bytes. As read(2): 0 is the
 * end. */
ssize_t pl_ring_fill(struct pl_ring *r, int fd);
/* Writer: at most PL_RING_CHUNK bytes; the rest is cut. */
void pl_ring_put(struct pl_ring *r, const void *bytes, size_t count);

/* Reader: up to `cap` bytes that follow the reader's place. What was overwritten before it came is added to
 * `lost`. 0 with a moved place is possible: all that was looked at had been overwritten. */
size_t pl_ring_read(struct pl_ring *r, void *out, size_t cap);
/* The same, but `seen` stays: what was read is the reader's only when it says so, and a reader that is killed
 * before leaves it to the next one. */
size_t pl_ring_peek(struct pl_ring *r, void *out, size_t cap);
/* Everything before `place` is done with. Never goes back; from any thread. */
void pl_ring_seen(_Atomic uint64_t *seen, uint64_t place);
#endif
