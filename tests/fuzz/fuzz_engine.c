/* The text of an LLM engine's /metrics: load and KV cache.
 *
 * USES sample base
 */
#include <stdlib.h>
#include <string.h>

#include "sample/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_engine_load o;
    char *text = malloc(size > 0 ? size : 1);
    if (text == NULL) abort();
    if (size > 0) memcpy(text, data, size);
    bool any = pl_engine_load_read(text, size, &o);
    if (!(o.kv_used_ratio <= 1)) abort();
    if (!any && (o.running != PL_ENGINE_UNKNOWN || o.kv_blocks != PL_ENGINE_UNKNOWN)) abort();
    free(text);
    return 0;
}
