/* snapshot/holders.h - the part of a report that says who holds memory. For report.c, and for those who walk
 * live blocks. */
#ifndef PL_SNAPSHOT_HOLDERS_H
#define PL_SNAPSHOT_HOLDERS_H
#include "snapshot/inside.h"
#include "snapshot/report.h"

/* A block in use at the end, with the stack and the tag of who asked for it as far as block or trace tell. */
typedef bool pl_live_block(void *ctx, uint32_t block, uint64_t bytes, uint32_t stack, uint32_t tag);
bool pl_each_live(const struct pl_snap *s, uint32_t device, const struct pl_snap_lives *lives,
                  pl_live_block *each, void *ctx);

/* Each fills its lists of `r`, whose device and lives stand. False without memory. */
bool pl_holders_at_end(const struct pl_snap *s, size_t top, struct pl_report *r);
bool pl_holders_at_peak(const struct pl_snap *s, size_t top, struct pl_report *r);
bool pl_holders_growth(const struct pl_snap *s, size_t top, struct pl_report *r);
bool pl_holders_since(const struct pl_snap *s, const struct pl_snap *old, size_t top, struct pl_report *r,
                      struct pl_err *err);
#endif
