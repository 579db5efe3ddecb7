/* fuzz_life.c - state_dir/last-life.json as somebody else may have left it.
 *
 * USES crew
 *
 * Property: what is read makes one sentence that fits, without control characters. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "crew/last_life.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_life last, now = { .machine = "m", .group = "/", .kills = 7 };
    const char *scope;
    char sentence[320];
    if (!pl_life_read((const char *)data, size, &last)) return 0;
    const char *cause = pl_life_judge(&last, &now, &scope, sentence, sizeof sentence);
    PL_ASSERT(cause != NULL && strlen(sentence) < sizeof sentence);
    PL_ASSERT(strlen(last.seen) < sizeof last.seen && strlen(last.group) < sizeof last.group);
    for (const char *c = sentence; *c != '\0'; c++) PL_ASSERT((unsigned char)*c >= ' ');
    return 0;
}
