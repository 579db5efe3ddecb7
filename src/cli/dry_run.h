/* cli/dry_run.h - `plimsoll serve` inside the dry dock: what it answers is no model's answer, so that nobody
 * may take it for one. It listens on loopback only, and says `dry_run` wherever it says how it is. */
#ifndef PL_CLI_DRY_RUN_H
#define PL_CLI_DRY_RUN_H
#include "base/err.h"
#include "config/config.h"

/* The stand-in CUDA libraries are mapped into this process. */
bool pl_dry_run(void);
/* In a dry run, unless `allowed`: wildcard addresses become loopback, with a line on stderr; another address
 * that is not loopback is a usage error. The configuration's addresses are changed in place. */
bool pl_dry_run_listeners(struct pl_config *c, bool allowed, bool quiet, struct pl_err *err);
#endif
