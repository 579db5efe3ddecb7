/* Tokens told by a reply (http/usage.c): a model's bytes, cut anywhere. The cut must make no difference.
 *
 * USES http
 */
#include <stdlib.h>

#include "http/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_http_usage whole = { 0 }, cut = { 0 };
    pl_http_usage_feed(&whole, (const char *)data, size);
    for (size_t i = 0; i < size; i++) pl_http_usage_feed(&cut, (const char *)data + i, 1);
    if (whole.known != cut.known || whole.tokens != cut.tokens || whole.state != cut.state) abort();
    return 0;
}
