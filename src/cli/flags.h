/* cli/flags.h - the flags of each verb beside the shared ones. */
#ifndef PL_CLI_FLAGS_H
#define PL_CLI_FLAGS_H
#include "cli/args.h"
/* Never NULL with a count over 0. */
const struct pl_flag *pl_verb_flags(const char *verb, size_t *count);
#endif
