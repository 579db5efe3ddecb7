/* fuzz_proc.c - whatever the kernel, or a damaged file in its place, says of a process and its memory
 * group.
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
    bool v2;
    PL_ASSERT(text != NULL);
    memcpy(text, data, size);
    if (pl_proc_read_status(text, size, &m)) PL_ASSERT(m.anon != PL_PROC_UNKNOWN);
    pl_proc_read_stat(text, size, &s);
    any_number(pl_proc_read_limit(text, size), size);
    if (pl_proc_read_cgroup(text, size, &v2, path, sizeof path))
        PL_ASSERT(path[0] == '/' && strlen(path) < sizeof path);
    uint64_t kills = pl_proc_read_key(text, size, "oom_kill");
    if (kills != PL_PROC_UNKNOWN) PL_ASSERT(memmem(text, size, "oom_kill", 8) != NULL);
    any_number(pl_proc_read_count(text, size), size);
    any_number(pl_proc_read_threads(text, size), size);
    any_number(pl_proc_read_pss(text, size), size);
    free(text);
    return 0;
}
