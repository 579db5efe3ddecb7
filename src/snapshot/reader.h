/* snapshot/reader.h - reads the pickle of a memory snapshot, fed in pieces of any size, without running
 * anything in it.
 *
 * The whole file is dicts, lists, tuples, texts, numbers: every opcode that names or calls something is
 * refused with its offset. Nothing recurses on input, every read is bounded, memory is capped: what the file
 * makes us hold past the cap is an error (PL_E_TOO_LARGE), what it holds that a snapshot never does is
 * PL_E_CONFIG. Pickle: PEP 307, PEP 3154, PEP 574; opcodes as in pickletools.
 */
#ifndef PL_SNAPSHOT_READER_H
#define PL_SNAPSHOT_READER_H
#include "base/err.h"
#include "snapshot/snapshot.h"

struct pl_snap_limits {
    size_t memory_bytes; /* 0 = no cap: for own files only */
    uint64_t seed;       /* of the hash tables: a number the writer of a file cannot know */
};
struct pl_snap_reader;

struct pl_snap_reader *pl_snap_reader_create(const struct pl_snap_limits *limits); /* NULL without memory */
/* False on the first thing that is wrong; then only destroy may follow. The bytes are borrowed for the call.
 */
bool pl_snap_reader_feed(struct pl_snap_reader *r, const void *bytes, size_t count, struct pl_err *err);
/* After the last byte: the snapshot, owned by the caller (pl_snap_destroy), or NULL. Destroys the reader
 * either way. */
struct pl_snap *pl_snap_reader_finish(struct pl_snap_reader *r, struct pl_err *err);
void pl_snap_reader_destroy(struct pl_snap_reader *r); /* NULL is fine */
#endif
