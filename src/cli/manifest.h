/* cli/manifest.h - inside the verb `manifest`: what its files share. */
#ifndef PL_CLI_MANIFEST_H
#define PL_CLI_MANIFEST_H
#include "cli/verbs.h"
#include "config/config.h"
#include "ship/manifest.h"

enum { PL_MANIFEST_FILE_BYTES = 8 << 20 };

/* Reads `path` ("-": stdin) up to PL_MANIFEST_FILE_BYTES + 1 bytes. */
bool pl_manifest_read(const char *path, struct pl_buf *out, struct pl_err *err);
/* A JSON file of measurements, or a flight record: the figures of `service` (NULL: of any). */
bool pl_manifest_measured(const char *path, const char *service, struct pl_measured *out,
                          struct pl_size_ask *ask, struct pl_err *err);
/* What one manifest is made of. Owned by who made it: pl_manifest_job_free. */
struct pl_manifest_job {
    struct pl_cli *cli;
    struct pl_config *config;
    const char *file;
    struct pl_buf text; /* of the configuration's file */
    struct pl_measured measured;
    struct pl_manifest m;
    struct pl_buf beside[PL_MANIFEST_BESIDE];
    char name[64], image[160], model_dir[512];
};
/* Fills it from the flags; `cli` and an empty `text` are set. False and err: nothing was asked that can be
 * written. */
bool pl_manifest_ask(struct pl_manifest_job *j, struct pl_err *err);
void pl_manifest_job_free(struct pl_manifest_job *j);

int pl_manifest_check(struct pl_cli *cli);
int pl_manifest_write(struct pl_cli *cli);
#endif
