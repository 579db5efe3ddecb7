/* cli/papers.h - reads what the configuration names for the door: keys, tokens, certificates. Files, so never
 * on the loop. Everything that is wrong with them is PL_E_CONFIG and says which key and which file. */
#ifndef PL_CLI_PAPERS_H
#define PL_CLI_PAPERS_H
#include "config/config.h"
#include "door/papers.h"

/* `out` is zeroed by the caller. False: freed again. Warnings go to `c`. */
bool pl_papers_collect(struct pl_config *c, struct pl_papers *out, struct pl_err *err);
/* file:PATH or env:NAME, without the line's end. At most PL_SECRET_BYTES, never empty. */
enum { PL_SECRET_BYTES = 4096 };
bool pl_secret_read(const char *secret, char out[PL_SECRET_BYTES], struct pl_err *err);
#endif
