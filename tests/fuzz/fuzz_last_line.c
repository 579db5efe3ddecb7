/* The end of a worker's output, and the sentence made of it.
 *
 * The first two bytes choose the wait status, the third the rooms.
 *
 * USES worker
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/death.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    size_t room = (size_t)data[2] + 1;
    char *line = malloc(room), *sentence = malloc(room);
    if (line == NULL || sentence == NULL) abort();
    pl_death_last_line((const char *)data + 3, size - 3, line, room);
    if (strlen(line) >= room) abort();
    for (const char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20) abort();
    const struct pl_death d = { .wait_status = data[0] | data[1] << 8,
                                .was_ready = (data[2] & 1) != 0,
                                .timed_out = (data[2] & 6) == 6,
                                .command = (data[2] & 8) != 0,
                                .engine_died = pl_death_engine_died((const char *)data + 3, size - 3),
                                .last_line = line,
                                .program = "/usr/bin/python3" };
    if (pl_death_explain(&d, sentence, room) >= PL_CAUSE_COUNT || strlen(sentence) >= room) abort();
    free(line);
    free(sentence);
    return 0;
}
