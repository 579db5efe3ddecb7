/* The two texts that `snapshot` takes from others: allocator settings (first byte 'c') and a log with an
 * out-of-memory line.
 *
 * USES snapshot sample base
 */
#include <stdlib.h>
#include <string.h>

#include "sample/oom.h"
#include "snapshot/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_alloc_conf c;
    struct pl_oom line;
    struct pl_err err = { 0 };
    if (size == 0) return 0;
    char *text = malloc(size);
    if (text == NULL) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    pl_alloc_conf_init(&c);
    if (data[0] == 'c') {
        if (pl_alloc_conf_parse(&c, text, &err) ? c.large_segment <= 10 << 20 || !(c.gc >= 0 && c.gc < 1)
                                                : err.msg[0] == '\0')
            abort();
    } else if (pl_oom_last_torch(text, size - 1, &line) && pl_oom_other(&line) > line.total) {
        abort();
    }
    free(text);
    return 0;
}
