/* crew/tail.h - the last lines of a worker's output, in a fixed ring of bytes. Kept for the diagnosis of its
 * death and for `plimsoll logs`. Counted references: a tail outlives its worker as "previous". */
#ifndef PL_CREW_TAIL_H
#define PL_CREW_TAIL_H
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct pl_tail;
struct pl_tail *pl_tail_create(uint32_t lines); /* NULL without memory */
struct pl_tail *pl_tail_ref(struct pl_tail *t);
void pl_tail_drop(struct pl_tail *t); /* NULL is fine */
/* One line, without its newline; cut at 4 KiB. `wall_ms`: when it was read. */
void pl_tail_add(struct pl_tail *t, const char *line, size_t len, uint64_t wall_ms);
/* The last `lines` lines of those not read before `since_wall_ms` (0: all), each with a newline,
 * oldest first. */
void pl_tail_text(const struct pl_tail *t, uint32_t lines, uint64_t since_wall_ms, struct pl_buf *out);
/* How many lines have ever been added: where a follower goes on. */
uint64_t pl_tail_count(const struct pl_tail *t);
/* Lines from number `from` on that are still kept; returns the number after the last. */
uint64_t pl_tail_since(const struct pl_tail *t, uint64_t from, struct pl_buf *out);
#endif
