/* cli/manifest.h - inside the verb `manifest`: what its files share. */
#ifndef PL_CLI_MANIFEST_H
#define PL_CLI_MANIFEST_H
#include "cli/verbs.h"
#include "ship/size.h"

enum { PL_MANIFEST_FILE_BYTES = 8 << 20 };

/* Reads `path` ("-": stdin) up to PL_MANIFEST_FILE_BYTES + 1 bytes. */
bool pl_manifest_read(const char *path, struct pl_buf *out, struct pl_err *err);
/* A JSON file of measurements, or a flight record: the figures of `service` (NULL: of any). */
bool pl_manifest_measured(const char *path, const char *service, struct pl_measured *out,
                          struct pl_size_ask *ask, struct pl_err *err);
int pl_manifest_check(struct pl_cli *cli);
int pl_manifest_write(struct pl_cli *cli);
#endif
