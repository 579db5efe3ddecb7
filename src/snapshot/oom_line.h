/* snapshot/oom_line.h - the size of a device and what others held, out of PyTorch's out-of-memory message in
 * a log.
 *
 * Forms of torch 1.x ("S total capacity; S already allocated; S free; S reserved in total") and of 2.1 on
 * ("has a total capacity of S of which S is free. ... Of the allocated memory S is allocated by PyTorch, and
 * S is reserved by PyTorch but unallocated"; 2.1 wrote "capacty"). GiB come with two decimals, so sums are
 * good to about 10 MiB.
 */
#ifndef PL_SNAPSHOT_OOM_LINE_H
#define PL_SNAPSHOT_OOM_LINE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_oom_line {
    uint32_t device;
    uint64_t total, free, reserved; /* bytes; reserved by PyTorch */
    uint64_t other;                 /* total - free - reserved, not below 0 */
};
/* The last such message in the text. False when there is none. */
bool pl_oom_line_find(const char *text, size_t len, struct pl_oom_line *out);
#endif
