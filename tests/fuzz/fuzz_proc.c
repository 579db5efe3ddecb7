/* fuzz_proc.c - whatever the kernel, or a damaged file in its place, says of a process, its memory group and
 * its log.
 *
 * USES base sample
 *
 * Property: no reader looks behind the text, a number is not known or stands in the text, and a path that is
 * found begins at the root and fits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sample/proc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void any_number(uint64_t n, size_t size) { PL_ASSERT(n == PL_PROC_UNKNOWN || size > 0); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size > 0 ? size : 1),
         path[64]; /* exactly as long as the text: the sanitizer sees one too many */
    struct pl_proc_memory m;
    struct pl_proc_stat s;
    struct pl_proc_events e;
    int64_t pid = -1;
    bool v2, machine;
    PL_ASSERT(text != NULL);
    memcpy(text, data, size);
    if (pl_proc_read_status(text, size, &m)) PL_ASSERT(m.anon != PL_PROC_UNKNOWN);
    pl_proc_read_stat(text, size, &s);
    any_number(pl_proc_read_limit(text, size), size);
    if (pl_proc_read_cgroup(text, size, &v2, path, sizeof path))
        PL_ASSERT(path[0] == '/' && strlen(path) < sizeof path);
    bool told = pl_proc_read_events(text, size, &e);
    bool any = e.max != PL_PROC_UNKNOWN || e.oom != PL_PROC_UNKNOWN || e.oom_kill != PL_PROC_UNKNOWN ||
               e.oom_group_kill != PL_PROC_UNKNOWN;
    if (told != any) PL_ASSERT(told); /* UINT64_MAX itself reads as not known */
    if (pl_proc_kernel_kill(text, size, &pid, &machine)) PL_ASSERT(pid >= 0 && pid <= INT32_MAX);
    free(text);
    return 0;
}
