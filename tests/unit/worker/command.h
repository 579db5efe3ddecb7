/* A configuration of one service that runs a command, given as a line of words. */
#ifndef PL_TESTS_WORKER_COMMAND_H
#define PL_TESTS_WORKER_COMMAND_H
#include <string.h>

#include "config/config.h"
#include "unit.h"

static struct pl_err err;

static inline struct pl_config *with(const char *command) {
    struct pl_config *c = pl_config_create();
    const char *words[32];
    char text[512];
    struct pl_strings list = { words, 0 };
    strcpy(text, command);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) words[list.count++] = word;
    if (!pl_config_add_command(c, &list, "c", &err)) fail_msg("%s", err.msg);
    return c;
}
#endif
