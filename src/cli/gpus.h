/* cli/gpus.h - which GPUs a service may use, made certain before anything starts. */
#ifndef PL_CLI_GPUS_H
#define PL_CLI_GPUS_H
#include "config/config.h"

/* `gpus` said by index becomes UUIDs where nvidia-smi is there to tell them; without it indexes stay. False
 * and err: GPUs that may not be used, or more than there are. */
bool pl_seen_gpus(struct pl_config *c, size_t service, struct pl_err *err);
#endif
